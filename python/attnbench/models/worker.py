"""The worker of `attnbench models`, which measures one thing about one model in a process of its own.

    python -m attnbench.models.worker --answer-fd=N measure   # a `Request` on stdin → what it found
    python -m attnbench.models.worker --answer-fd=N list      # {} on stdin → what can be measured

Requests are JSON, and answers are a line of JSON that is written to the descriptor N.
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

# What runs: transformers alone, transformers with ours, and the same where the operator returns its
# values instead of computing anything, which no operator can be faster than.
TRANSFORMERS, OURS, FLOOR = "transformers", "attnbench", "floor"
PROMPT = 32  # tokens before the generated ones


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        model: a key of CONFIGURATIONS.
        phase: a key of PHASES.
        variant: TRANSFORMERS, OURS or FLOOR.
        tokens: the length of the sequence of a step and of a prefill; one sequence is a batch.
        generated: how many tokens are generated.
        repeats: the number of timed runs after the first, which does not count.
        steps: the number of training steps whose losses are recorded.
        threads: the number of threads of PyTorch; 0 for its default.
        tiny: whether the model is the one for tests.
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
    """The models and what can be measured about them, or the error that no model can be."""
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
    """What was found, by column."""
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
    """Tokens whose second half repeats the first, so that there is something to learn: int64 [1,length]."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    half = torch.randint(2, model.config.vocab_size, (1, -(-length // 2)), generator=generator)
    return torch.cat([half, half], 1)[:, :length]


@contextmanager
def variant_of(request: Request, configuration: Configuration, model: Any) -> Iterator[None]:
    """The model as the variant wants it."""
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
    """Whether the operator of a model is a function of its own, which can be timed alone and replaced by
    its values."""
    return configuration.operator in _FUNCTIONS


# By operator: the name of the function in modelling modules.
_FUNCTIONS = {
    "chunk_gated_delta_rule": "torch_chunk_gated_delta_rule",
    "chunk_kda": "chunk_kimi_delta_attention",
    "mamba_chunk_scan_combined": "mamba2_chunk_scan",
}


def _floor(*tensors: Any, output_final_state: bool = False, return_final_states: bool = False, **others: Any) -> Any:
    """The values as the output: the third argument of the delta rules, and the first of Mamba's scan, which
    returns the output alone."""
    if output_final_state or return_final_states:
        raise ValueError("the floor has no final states")
    return tensors[0] if "chunk_size" in others and "D" in others else (tensors[2], None)


@contextmanager
def replaced(configuration: Configuration, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """The operator in the modelling module is what `make` makes of it."""
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
    """The times of `run`, of which the first does not count, and the memory beyond that before it."""
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", "utf-8")  # The peak begins anew.
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
    import attnbench

    report = attnbench.accelerate.report()
    return found | {"served": report.served, "passed_on": report.passed_on}


# ---------------------------------------------------------------- what is measured


def _training_step(model: Any, length: int) -> Callable[[int], float]:
    """A function that does a step of training on tokens of a seed, and returns the loss."""
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
    """How far logits of both are apart, as a share of the largest logit of transformers alone."""
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
    """The operator alone, forward and backward, with the inputs that it has in all layers of a step."""
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
    """Where the time of a step goes: by the name of a part of the layers, forward and backward."""
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
