"""Takes samples of a call that several ranks make together, by the settings of `attnbench measure`.

All ranks know the time of the slowest one after each sample, and decide from these times alone, so that they stop together.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

MOST_SAMPLES = 100_000


@dataclass(frozen=True)
class Plan:
    """When to stop.

    Attributes:
        warmup_s: time spent on calls before the first sample.
        min_samples: the least number of samples.
        noise_target: sampling stops when half the width of the median's 95 % interval, divided by the median, is at most this.
        time_budget_s: sampling also stops when it has taken this long.
        min_sample_s: how long the calls of a sample must take together.
        call_s: the time of one call, from which the calls of a sample are counted; after a warm-up, that of its last call.
    """

    warmup_s: float
    min_samples: int
    noise_target: float
    time_budget_s: float
    min_sample_s: float
    call_s: float


@dataclass
class Samples:
    """Times in seconds for one call.

    Attributes:
        slowest: of each sample, on the slowest rank.
        own: of each sample, on this rank.
        stop_reason: "noise_target" or "time_budget", as records of attnbench say it.
    """

    warmup_calls: int = 0
    calls_per_sample: int = 1
    slowest: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    stop_reason: str = "noise_target"


def take(plan: Plan, call: Callable[[], None], wait: Callable[[], object], slowest: Callable[[float], float]) -> Samples:
    """Samples of `call`. `wait` returns when all ranks have called it; `slowest` returns the longest of the ranks' times."""
    found = Samples()
    spent, call_s = 0.0, plan.call_s
    while spent < plan.warmup_s:
        call_s = _timed(call, 1, wait, slowest)[0]
        spent += call_s
        found.warmup_calls += 1
    found.calls_per_sample = max(1, math.ceil(plan.min_sample_s / max(call_s, 1e-9)))
    spent = 0.0
    while len(found.slowest) < MOST_SAMPLES:
        longest, own = _timed(call, found.calls_per_sample, wait, slowest)
        spent += longest
        found.slowest.append(longest / found.calls_per_sample)
        found.own.append(own / found.calls_per_sample)
        if len(found.slowest) < plan.min_samples:
            continue
        if reach_of_median(found.slowest) <= plan.noise_target:
            return found
        if spent >= plan.time_budget_s:
            break
    found.stop_reason = "time_budget"
    return found


def _timed(
    call: Callable[[], None], calls: int, wait: Callable[[], object], slowest: Callable[[float], float]
) -> tuple[float, float]:
    """The seconds of so many calls on the slowest rank and on this one."""
    wait()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    own = time.perf_counter() - began
    return slowest(own), own


def reach_of_median(samples: Sequence[float]) -> float:
    """Half the width of the median's 95 % interval, divided by the median. The interval is that between order statistics, by the
    normal approximation of the binomial distribution, and the whole range where there are fewer than six samples."""
    ordered, count = sorted(samples), len(samples)
    rank = max(0, int(count / 2 - 0.98 * math.sqrt(count)))
    return (ordered[count - 1 - rank] - ordered[rank]) / 2 / statistics.median(ordered)
