"""One rank of a measurement: joins the group, compares with one process, and measures.

    python -m attnbench.distributed.rank REQUEST   # REQUEST is JSON, see `Request`

`python -m attnbench.distributed measure` starts it. Rank 0 writes the answer, a line of JSON, to the file that the
request names. A rank that fails writes a traceback to stderr and exits with code 1, or with DISAGREED if the ranks do
not compute what one process does.
"""

import ctypes
import datetime
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnbench.distributed import sampling

if TYPE_CHECKING:
    from attnbench.distributed.operators import Sizes

DISAGREED = 3
ENVIRONMENT = "env://"
# Positions of a slice where the ranks are compared with one process, which computes the whole sequence.
AGREEMENT_LENGTH = 96
# The largest error against float64 that counts as a few roundings, in parts of the largest entry.
ROUNDINGS = {"float64": 1e-11, "float32": 2e-6, "bfloat16": 2e-2}


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        operator: a key of OPERATORS.
        rank, ranks: which rank this is, of how many.
        init: how the ranks find each other, as the init_method of torch.distributed; env:// with the number of the
            measurement behind it.
        answer: the file to which rank 0 writes.
        parent: the process that started this one and without which it ends; 0 for none.
        cores: on which this rank runs; empty for those that it has.
        length, heads, dim, batch, dtype, decay_positions: as in `Sizes`.
        backward: whether a call includes the backward pass.
        repeats: the least number of samples, after a first call that does not count.
        threads: of PyTorch.
        deadline_s: after which an exchange fails.
        warmup_s, noise_target, time_budget_s: settings of `attnbench measure`, by which calls are made before the first
            sample, and samples after the least number of them. Without them there are none of these.
        min_sample_s: how long the calls of one sample must take together.
        seed: of the inputs.
        keeps_memory: whether the allocator keeps large blocks from earlier calls.
    """

    operator: str
    rank: int
    ranks: int
    init: str
    answer: str
    parent: int
    cores: list[int]
    length: int
    heads: int
    dim: int
    batch: int
    dtype: str
    backward: bool
    repeats: int
    threads: int
    deadline_s: float
    decay_positions: float = 20
    warmup_s: float = 0
    noise_target: float = math.inf
    time_budget_s: float = math.inf
    min_sample_s: float = 0
    seed: int = 0
    keeps_memory: bool = True

    @property
    def sizes(self) -> "Sizes":
        from attnbench.distributed.operators import Sizes

        return Sizes(self.length, self.heads, self.dim, self.dtype, self.batch, self.decay_positions)


class Disagreement(Exception):
    """The ranks do not compute what one process does."""


def main() -> None:
    request = Request(**json.loads(sys.argv[1]))
    if request.parent:
        _end_with(request.parent)
    if request.cores:
        os.sched_setaffinity(0, request.cores)
    try:
        answer = measure(request)
    except Disagreement as error:
        print(error, file=sys.stderr, flush=True)
        # Other ranks may wait for this one, so that nothing of torch.distributed may be closed in an orderly way.
        os._exit(DISAGREED)
    if request.rank == 0:
        path = Path(request.answer)
        path.with_suffix(".part").write_text(json.dumps(answer) + "\n", "utf-8")
        path.with_suffix(".part").rename(path)


def _end_with(parent: int) -> None:
    """Asks the kernel to end this process when its parent ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        sys.exit("the process that started this rank has ended")


def measure(request: Request) -> dict[str, Any]:
    """What was found: times in seconds, payload and memory in bytes, by column."""
    import torch
    import torch.distributed as dist

    from attnbench.distributed.operators import OPERATORS

    torch.set_num_threads(request.threads)
    timeout = datetime.timedelta(seconds=request.deadline_s)
    if request.init.startswith(ENVIRONMENT):
        # A part of the store of its own, since the addresses of the group before would still be in a common one.
        shared, _, _ = next(dist.rendezvous(ENVIRONMENT, request.rank, request.ranks, timeout=timeout))
        own = dist.PrefixStore(f"measurement {request.init.removeprefix(ENVIRONMENT)}", shared)
        dist.init_process_group("gloo", store=own, rank=request.rank, world_size=request.ranks, timeout=timeout)
    else:
        dist.init_process_group("gloo", init_method=request.init, rank=request.rank, world_size=request.ranks, timeout=timeout)
    group = dist.group.WORLD
    operator = OPERATORS[request.operator]
    agreement = _agreement(request)
    tensors = operator.inputs(request.sizes, seed=request.ranks * request.seed + request.rank)
    gradient = torch.ones_like(tensors["v"])
    if request.backward:
        for x in tensors.values():
            x.requires_grad_()
    step = _step(operator, tensors, gradient, group if request.ranks > 1 else None, request.backward)
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", "utf-8")  # The peak begins anew.
    payload, first_s = _payload(step)
    expected = operator.payload_bytes(request.sizes, request.ranks, request.backward)
    if payload != expected:
        raise Disagreement(f"rank {request.rank} sent {payload} bytes, expected {expected} by the formula")
    plan = sampling.Plan(
        request.warmup_s, request.repeats, request.noise_target, request.time_budget_s, request.min_sample_s, first_s
    )
    samples = sampling.take(plan, step, dist.barrier, _slowest)
    mine = torch.tensor([*samples.own, first_s, float(_memory("VmHWM") - before)], dtype=torch.float64)
    everyone = [torch.empty_like(mine) for _ in range(request.ranks)]
    dist.all_gather(everyone, mine)
    dist.barrier()
    dist.destroy_process_group()
    columns = torch.stack(everyone)
    return {
        "seconds": samples.slowest,
        "seconds_by_rank": columns[:, :-2].median(1).values.tolist(),
        "peak_extra_bytes": [int(x) for x in columns[:, -1].tolist()],
        "payload_bytes": payload,
        "input_bytes": sum(x.nbytes for x in (*tensors.values(), *([gradient] if request.backward else []))),
        "agreement": agreement,
        "first_s": float(columns[:, -2].max()),
        "warmup_calls": samples.warmup_calls,
        "calls_per_sample": samples.calls_per_sample,
        "stop_reason": samples.stop_reason,
    }


def _slowest(seconds: float) -> float:
    """The longest of the times that the ranks have found."""
    import torch
    import torch.distributed as dist

    found = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return float(found)


def _step(operator: Any, tensors: Any, gradient: Any, group: Any, backward: bool) -> Any:
    """A function that makes one call, with its backward pass on request."""

    def step() -> None:
        output = operator.call(**tensors, cp_group=group)
        if backward:
            output.backward(gradient)
            for x in tensors.values():
                x.grad = None

    return step


def _payload(step: Callable[[], None]) -> tuple[int, float]:
    """What the first call hands to collectives, and its seconds on the slowest rank."""
    from attnbench.distributed import count_traffic

    began = time.perf_counter()
    with count_traffic() as traffic:
        step()
    return traffic.payload_bytes, _slowest(time.perf_counter() - began)


def _agreement(request: Request) -> dict[str, float]:
    """The largest errors of this rank and of one process against one process in float64, in parts of the largest entry. Raises
    Disagreement if the former is more than twice the latter and more than a few roundings."""
    import torch
    import torch.distributed as dist

    from attnbench.distributed.operators import OPERATORS

    operator = OPERATORS[request.operator]
    whole = replace(request.sizes, length=AGREEMENT_LENGTH * request.ranks)
    tensors = operator.inputs(whole, seed=1)
    part = operator.positions(whole.length, request.rank, request.ranks)
    gradient = torch.randn(tensors["v"].shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def results(tensors: Any, gradient: Any, group: Any) -> list[Any]:
        given = {name: x.detach().clone().requires_grad_() for name, x in tensors.items()}
        output = operator.call(**given, cp_group=group)
        return [output.detach(), *torch.autograd.grad(output, list(given.values()), gradient.to(output.dtype))]

    exact = [x[:, part] for x in results({name: x.double() for name, x in tensors.items()}, gradient, None)]
    alone = [x[:, part] for x in results(tensors, gradient, None)]
    group = dist.group.WORLD if request.ranks > 1 else None
    mine = results({name: x[:, part] for name, x in tensors.items()}, gradient[:, part], group)

    def error(found: list[Any]) -> float:
        return max(float((x.double() - y).abs().max() / y.abs().max()) for x, y in zip(found, exact, strict=True))

    found, of_one = error(mine), error(alone)
    tolerance = max(2 * of_one, ROUNDINGS[request.dtype])
    if not found <= tolerance:
        raise Disagreement(
            f"rank {request.rank} of {request.ranks} disagrees with one process: {request.operator} has an error of {found:.2g} of the "
            f"largest entry, and one process {of_one:.2g}"
        )
    return {"error": found, "error_of_one_process": of_one, "tolerance": tolerance}


def _memory(name: str) -> int:
    """Bytes of a line of /proc/self/status, such as VmRSS."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def request_text(request: Request) -> str:
    return json.dumps(asdict(request))


if __name__ == "__main__":
    main()
