"""The worker of `attnbench models`: a process that makes one measurement of one model.

    python -m attnbench.models.worker --answer-fd=N measure   # a `Request` on stdin → the result
    python -m attnbench.models.worker --answer-fd=N list      # {} on stdin → what can be measured

Requests are JSON, and the answer is a line of JSON that is written to the file descriptor N.
"""

import argparse
import importlib.metadata
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from attnbench.models.configurations import CONFIGURATIONS, Configuration

# The variants of a model: transformers alone, transformers with our operators, and the latter with an operator
# that computes nothing and returns its values. No operator can make the model faster than this floor.
TRANSFORMERS, OURS, FLOOR = "transformers", "attnbench", "floor"
PROMPT = 32  # tokens before the generated ones


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        model: a key of CONFIGURATIONS.
        phase: a key of PHASES.
        variant: TRANSFORMERS, OURS or FLOOR.
        tokens: the length of the only sequence of the batch, except in the phase "generation".
        generated: the number of tokens that are generated.
        repeats: the number of timed runs after a first run, which is timed separately.
        steps: the number of training steps whose losses are recorded.
        threads: the number of threads of PyTorch; 0 for its default.
        tiny: whether to measure `Configuration.tiny()`, which tests use.
    """

    model: str
    phase: str
    variant: str
    tokens: int = 2048
    generated: int = 128
    repeats: int = 3
    steps: int = 50
    threads: int = 0
    tiny: bool = False


def main() -> None:
    parser = argparse.ArgumentParser(description="The worker of `attnbench models`.")
    parser.add_argument("--answer-fd", type=int, required=True)
    parser.add_argument("command", choices=("list", "measure"))
    chosen = parser.parse_args()
    request = json.load(sys.stdin)
    answer = describe() if chosen.command == "list" else measure(Request(**request))
    with os.fdopen(chosen.answer_fd, "w") as stream:
        stream.write(json.dumps(answer) + "\n")


def describe() -> dict[str, Any]:
    """The models and their phases with the variants that can be measured, or {"error": …} if packages are missing."""
    try:
        versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers")}
    except importlib.metadata.PackageNotFoundError as error:
        return {
            "error": f"attnbench models needs the package {error.name}, which {sys.executable} does not have; "
            "pip install 'attnbench[models]' installs it, and --python names another Python"
        }
    models = []
    for configuration in CONFIGURATIONS.values():
        both = [TRANSFORMERS, OURS]
        single = is_replaceable(configuration)
        phases = {"logits": [OURS], "losses": both, "profile": both}
        timed = {"step": [*both, FLOOR] if single else both, "prefill": both, "generation": both}
        timed |= {"operator": both} if single else {}
        models.append(
            {
                "name": configuration.name, "shaped_like": configuration.shaped_like, "scale": configuration.scale,
                "operator": configuration.operator,
                "phases": [
                    {"name": name, "variants": variants, "timed": name in timed} for name, variants in (phases | timed).items()
                ],
            }
        )  # fmt: skip
    return {"versions": versions, "models": models}


def measure(request: Request) -> dict[str, Any]:
    """The results of a request by name: those of its phase, the number of threads and the number of parameters of the model."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    if request.threads:
        torch.set_num_threads(request.threads)
    configuration = CONFIGURATIONS[request.model]
    if request.tiny:
        configuration = configuration.tiny()
    model = configuration.build()
    found = PHASES[request.phase](request, configuration, model)
    return found | {"threads": torch.get_num_threads(), "parameters": sum(p.numel() for p in model.parameters())}


def sample_tokens(model: Any, length: int, seed: int = 0) -> Any:
    """Random tokens, int64 [1,length]. The second half repeats the first, so that a model can learn to predict it."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    half = torch.randint(2, model.config.vocab_size, (1, -(-length // 2)), generator=generator)
    return torch.cat([half, half], 1)[:, :length]


@contextmanager
def variant_of(request: Request, configuration: Configuration, model: Any) -> Iterator[None]:
    """Within the `with` block the model runs as the variant that is requested."""
    import attnbench

    with ExitStack() as stack:
        if request.variant != TRANSFORMERS:
            stack.enter_context(attnbench.accelerate(quiet=True))
            if configuration.attention:
                model.set_attn_implementation(configuration.attention)
        if request.variant == FLOOR:
            stack.enter_context(replaced(configuration, lambda theirs: _floor))  # noqa: ARG005
        yield


def is_replaceable(configuration: Configuration) -> bool:
    """Whether the operator of a model is a function of the modelling module, so that it can be timed alone and
    replaced by one that computes nothing."""
    return configuration.operator in _FUNCTIONS


# The names in modelling modules of the functions that call the operators, by operator.
_FUNCTIONS = {
    "chunk_gated_delta_rule": "torch_chunk_gated_delta_rule",
    "chunk_kda": "chunk_kimi_delta_attention",
    "mamba_chunk_scan_combined": "mamba2_chunk_scan",
}


def _floor(*tensors: Any, output_final_state: bool = False, return_final_states: bool = False, **others: Any) -> Any:
    """Returns the values as the output: the third argument of a delta rule, whose final state is None, or the
    first of Mamba's scan, which returns only the output."""
    if output_final_state or return_final_states:
        raise ValueError("the variant 'floor' cannot return final states, which the model has asked for")
    return tensors[0] if "chunk_size" in others and "D" in others else (tensors[2], None)


@contextmanager
def replaced(configuration: Configuration, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Within the `with` block make(operator) takes the place of the operator in the modelling module."""
    module, name = _module(configuration), _FUNCTIONS[configuration.operator]
    theirs = getattr(module, name)
    setattr(module, name, make(theirs))
    try:
        yield
    finally:
        setattr(module, name, theirs)


def function_of(configuration: Configuration) -> Callable[..., Any]:
    """The operator in the modelling module."""
    function: Callable[..., Any] = getattr(_module(configuration), _FUNCTIONS[configuration.operator])
    return function


def _module(configuration: Configuration) -> Any:
    return import_module(f"transformers.models.{configuration.module}.modeling_{configuration.module}")


# ---------------------------------------------------------------- memory and time


def _memory(name: str) -> int:
    """Bytes of a line of /proc/self/status, such as VmRSS."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def _timed(request: Request, run: Callable[[], Any]) -> dict[str, Any]:
    """Calls `run` repeats + 1 times. Returns the times in seconds, the first call's apart from the others, and the peak of the
    resident memory in bytes beyond that before the first call."""
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", "utf-8")  # resets the peak VmHWM to the present VmRSS
    samples = []
    for _ in range(request.repeats + 1):
        began = time.perf_counter()
        run()
        samples.append(time.perf_counter() - began)
    return {
        "seconds": statistics.median(samples[1:]),
        "samples_s": samples[1:],
        "first_s": samples[0],
        "peak_extra_bytes": max(0, _memory("VmHWM") - before),
    }


def _with_report(found: dict[str, Any]) -> dict[str, Any]:
    """The results with the counts of calls that our operators served and passed on."""
    import attnbench

    report = attnbench.accelerate.report()
    return found | {"served": report.served, "passed_on": report.passed_on}


# ---------------------------------------------------------------- what is measured


def _training_step(model: Any, length: int) -> Callable[[int], float]:
    """A function that makes one training step on the tokens of a seed, and returns the loss."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(seed: int) -> float:
        inputs = sample_tokens(model, length, seed)
        optimizer.zero_grad()
        loss = model(inputs, labels=inputs, use_cache=False).loss
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def _step(request: Request, configuration: Configuration, model: Any) -> dict[str, Any]:
    with variant_of(request, configuration, model):
        step = _training_step(model, request.tokens)
        return _with_report(_timed(request, lambda: step(0)))


def _prefill(request: Request, configuration: Configuration, model: Any) -> dict[str, Any]:
    import torch

    model.eval()
    inputs = sample_tokens(model, request.tokens)
    with variant_of(request, configuration, model), torch.no_grad():
        return _with_report(_timed(request, lambda: model(inputs, use_cache=True, logits_to_keep=1)))


def _generation(request: Request, configuration: Configuration, model: Any) -> dict[str, Any]:
    import torch

    model.eval()
    inputs = sample_tokens(model, PROMPT)
    options = {"max_new_tokens": request.generated, "min_new_tokens": request.generated, "do_sample": False}

    def generate() -> None:
        output = model.generate(inputs, attention_mask=torch.ones_like(inputs), **options)
        assert output.shape[1] == PROMPT + request.generated, output.shape

    with variant_of(request, configuration, model):
        return _with_report(_timed(request, generate))


def _losses(request: Request, configuration: Configuration, model: Any) -> dict[str, Any]:
    with variant_of(request, configuration, model):
        step = _training_step(model, request.tokens)
        return _with_report({"losses": [step(seed) for seed in range(request.steps)]})


def _logits(request: Request, configuration: Configuration, model: Any) -> dict[str, Any]:
    """The largest difference between the logits of the variant and those of transformers alone, divided by the largest of the
    latter."""
    import torch

    model.eval()
    inputs = sample_tokens(model, request.tokens)
    with torch.no_grad():
        theirs = model(inputs, use_cache=False).logits
        with variant_of(request, configuration, model):
            mine = model(inputs, use_cache=False).logits
    error = float((mine - theirs).abs().max() / theirs.abs().max())
    return _with_report({"max_rel_error": error})


def _operator(request: Request, configuration: Configuration, model: Any) -> dict[str, Any]:
    """The time of the operator alone, forward and backward, with the inputs that it gets in all layers of one training step."""
    import torch

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def recording(theirs: Callable[..., Any]) -> Callable[..., Any]:
        def record(*args: Any, **kwargs: Any) -> Any:
            calls.append((args, kwargs))
            return theirs(*args, **kwargs)

        return record

    def leaf(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return x.detach().clone().requires_grad_(x.is_floating_point())

    with variant_of(request, configuration, model):
        inputs = sample_tokens(model, request.tokens)
        with replaced(configuration, recording):
            model(inputs, use_cache=False)
        leaves = [([leaf(x) for x in args], {k: leaf(x) for k, x in kwargs.items()}) for args, kwargs in calls]
        calls.clear()
        operator = function_of(configuration)

        def run() -> None:
            for args, kwargs in leaves:
                for x in (*args, *kwargs.values()):
                    if isinstance(x, torch.Tensor):
                        x.grad = None
                result = operator(*args, **kwargs)
                output = result[0] if isinstance(result, tuple) else result
                output.backward(torch.ones_like(output))

        return _with_report(_timed(request, run)) | {"calls": len(leaves)}


def _profile(request: Request, configuration: Configuration, model: Any) -> dict[str, Any]:
    """The times of the parts of the model in one training step, forward and backward, and the time of the step."""
    from attnbench.models.parts import PartTimes

    with variant_of(request, configuration, model):
        step = _training_step(model, request.tokens)
        step(0)
        times = PartTimes(model)
        with times.measuring():
            began = time.perf_counter()
            step(0)
            total = time.perf_counter() - began
    return _with_report({"parts_s": times.seconds(), "seconds": total})


PHASES: dict[str, Callable[[Request, Configuration, Any], dict[str, Any]]] = {
    "step": _step,
    "prefill": _prefill,
    "generation": _generation,
    "operator": _operator,
    "logits": _logits,
    "losses": _losses,
    "profile": _profile,
}

if __name__ == "__main__":
    main()
