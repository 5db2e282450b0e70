"""Takes samples of a call that several ranks make together, by the settings of `attnbench measure`.

After each sample all ranks know the time of the slowest rank, and decide only by these times, so that all stop together.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

MOST_SAMPLES = 100_000


@dataclass(frozen=True)
class Plan:
    """When to stop.

    Attributes:
        warmup_s: the time that calls before the first sample take together.
        min_samples: the smallest number of samples.
        noise_target: sampling stops when half the width of the median's 95 % interval, divided by the median, is at most this.
        time_budget_s: sampling also stops when the samples have taken this long together.
        min_sample_s: the time that the calls of a sample must take together.
        call_s: the time of one call, which decides how many calls a sample has; the last call of a warm-up replaces it.
    """

    warmup_s: float
    min_samples: int
    noise_target: float
    time_budget_s: float
    min_sample_s: float
    call_s: float


@dataclass
class Samples:
    """The samples that were taken.

    Attributes:
        warmup_calls: the number of calls before the first sample.
        calls_per_sample: the number of calls of each sample.
        slowest: for each sample the seconds of one call on the slowest rank.
        own: for each sample the seconds of one call on this rank.
        stop_reason: "noise_target" or "time_budget", as in the column of this name of attnbench's records.
    """

    warmup_calls: int = 0
    calls_per_sample: int = 1
    slowest: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    stop_reason: str = "noise_target"


def take(plan: Plan, call: Callable[[], None], wait: Callable[[], object], slowest: Callable[[float], float]) -> Samples:
    """Takes samples of `call`. `wait` returns when all ranks have called it; `slowest` returns the largest of the times, in seconds,
    that the ranks pass to it."""
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
    """The seconds that `calls` calls take together, on the slowest rank and on this one."""
    wait()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    own = time.perf_counter() - began
    return slowest(own), own


def reach_of_median(samples: Sequence[float]) -> float:
    """Half the width of the median's 95 % interval, divided by the median, as the C++ worker computes it (relative_noise in
    harness/worker/timing/timing.cpp). The interval goes from one order statistic to another, chosen by the normal approximation of the
    binomial distribution. Infinite for fewer than six samples."""
    count = len(samples)
    if count < 6:
        return math.inf
    ordered = sorted(samples)
    half = 0.98 * math.sqrt(count)
    low, high = max(0, math.floor(count / 2 - half)), min(count - 1, math.ceil(count / 2 + half))
    return (ordered[high] - ordered[low]) / 2 / ordered[count // 2]
