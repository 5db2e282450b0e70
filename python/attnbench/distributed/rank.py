"""One rank of a measurement: joins the process group, compares results with those of one process, and measures.

    python -m attnbench.distributed.rank REQUEST   # REQUEST is JSON, see `Request`

`python -m attnbench.distributed measure` starts it. Rank 0 writes the answer, a line of JSON, to the file that the
request names. A rank that fails writes a traceback to stderr and exits with code 1. If its results differ from those of
one process, it writes a message and exits with code DISAGREED.
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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnbench.distributed import sampling

if TYPE_CHECKING:
    from attnbench.distributed.operators import Sizes

DISAGREED = 3
ENVIRONMENT = "env://"
# The number of positions of each rank when its results are compared with those of one process.
AGREEMENT_LENGTH = 96
# By dtype the error against float64 that is always tolerated as rounding, divided by the largest entry.
ROUNDINGS = {"float64": 1e-11, "float32": 2e-6, "bfloat16": 2e-2}


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        operator: a key of OPERATORS.
        rank, ranks: which rank this is, of how many.
        init: how the ranks find each other: an init_method of torch.distributed, or env:// followed by the number of the
            measurement.
        answer: the file to which rank 0 writes its answer.
        parent: the id of the process that started this one. This process ends when the parent does; 0 for no such process.
        cores: the cores on which this rank runs; empty to leave them as they are.
        length, heads, dim, batch, dtype, decay_positions: as in `Sizes`.
        backward: whether a call includes the backward pass.
        repeats: the smallest number of samples, which are taken after a first call that is timed separately.
        threads: the number of threads of PyTorch.
        deadline_s: the timeout of an exchange, in seconds.
        warmup_s, noise_target, time_budget_s: as in `sampling.Plan`. By default there is no warm-up, and no samples are taken
            beyond `repeats`.
        min_sample_s: the shortest time, in seconds, that the calls of one sample must take together.
        seed: the seed of the inputs.
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
    """A rank's results differ from those of one process, or its traffic from the formula."""


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
        # Other ranks may be waiting for this one, and an orderly end of torch.distributed would wait for them.
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
    """Joins the group, compares, and measures. Returns times in seconds, and payload and memory in bytes, by name; the same on all
    ranks except for what concerns one rank alone, such as the agreement. Raises Disagreement, and RuntimeError if an exchange
    fails."""
    import torch
    import torch.distributed as dist

    from attnbench.distributed.operators import OPERATORS

    torch.set_num_threads(request.threads)
    timeout = datetime.timedelta(seconds=request.deadline_s)
    if request.init.startswith(ENVIRONMENT):
        # Each measurement has keys of its own in the store, where the addresses of the previous group are still stored.
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
    Path("/proc/self/clear_refs").write_text("5", "utf-8")  # resets the peak VmHWM to the present VmRSS
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
    """The largest of the times that the ranks pass, on all ranks."""
    import torch
    import torch.distributed as dist

    found = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return float(found)


def _step(operator: Any, tensors: Any, gradient: Any, group: Any, backward: bool) -> Any:
    """A function that makes one call, with its backward pass if `backward`."""

    def step() -> None:
        output = operator.call(**tensors, cp_group=group)
        if backward:
            output.backward(gradient)
            for x in tensors.values():
                x.grad = None

    return step


def _payload(step: Callable[[], None]) -> tuple[int, float]:
    """Makes the first call. Returns the bytes that this rank sends in it, and its seconds on the slowest rank."""
    from attnbench.distributed import count_traffic

    began = time.perf_counter()
    with count_traffic() as traffic:
        step()
    return traffic.payload_bytes, _slowest(time.perf_counter() - began)


def _agreement(request: Request) -> dict[str, float]:
    """The largest errors of this rank and of one process, both against one process in float64, over the output and all gradients.
    Each error is divided by the largest entry of its tensor. Raises Disagreement if the error of this rank is more than twice that
    of one process and more than ROUNDINGS allows."""
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

    found, of_one = largest_error(mine, exact), largest_error(alone, exact)
    tolerance = max(2 * of_one, ROUNDINGS[request.dtype])
    if not found <= tolerance:
        raise Disagreement(
            f"rank {request.rank} of {request.ranks} disagrees with one process: {request.operator} has an error of {found:.2g} of the "
            f"largest entry, and one process {of_one:.2g}"
        )
    return {"error": found, "error_of_one_process": of_one, "tolerance": tolerance}


def largest_error(found: Sequence[Any], exact: Sequence[Any]) -> float:
    """The largest difference of tensors from the exact ones, each divided by the largest entry of its exact tensor unless that is 0.
    NaN if an entry is NaN."""
    import torch

    def error(x: Any, y: Any) -> Any:
        largest = y.double().abs().max()
        return (x.double() - y).abs().max() / torch.where(largest == 0, 1, largest)

    errors = [error(x, y) for x, y in zip(found, exact, strict=True)]
    return float(torch.stack(errors).max())  # max() of Python would drop NaN


def _memory(name: str) -> int:
    """Bytes of a line of /proc/self/status, such as VmRSS."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def request_text(request: Request) -> str:
    """The request as JSON, as the command line of a rank takes it."""
    return json.dumps(asdict(request))


if __name__ == "__main__":
    main()
