"""Predicts how operators scale to many ranks, from times measured in one process and the latency and bandwidth of a network.

The slowest rank determines the time of each stage: all ranks compute the ends of their slices, exchange them, and compute
their own passes. With n bytes from each rank, R ranks, latency α, bandwidth β and D = log₂ R rounded up, an exchange takes

    all-gather   D α + (R − 1) n / β, and then R − 2 folds on the last rank
    scan         D steps, each of α + n / β and one composition of two states and two transitions

The prediction uses the faster of both, and names it; the operators of this package use an all-gather. With the times that
`kernels.measure` describes, recurrent operators take

    forward   D α + end + exchange + forward      backward   gradient + exchange + (both − forward)

where the first D α are for the header. A ring of softmax attention has R − 1 steps, in each of which keys and values are
exchanged while attention to the previous ones is computed; with the causal mask a step has half of the pairs of queries and
keys of two slices. Times of recurrent operators grow in proportion to the positions of a slice, those of softmax to their
square.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from attnbench.distributed.bound import weak_scaling_bound
from attnbench.distributed.operators import OPERATORS, Operator, Sizes

MOST_RANKS = 1024


@dataclass(frozen=True)
class Network:
    """The network between ranks: the latency of a message in seconds, and the bandwidth of a rank in bytes per second."""

    latency_s: float
    bandwidth: float

    def message(self, size: float) -> float:
        """The seconds that a message of `size` bytes takes."""
        return self.latency_s + size / self.bandwidth


@dataclass(frozen=True)
class Point:
    """A prediction.

    Attributes:
        ranks: the number of ranks.
        tokens_per_rank: the positions of each rank.
        seconds: the time of one call.
        exchange: how ranks exchange: "gather", "scan" or "ring"; "none" for one rank.
    """

    ranks: int
    tokens_per_rank: int
    seconds: float
    exchange: str


def simulate(
    operator: Operator, sizes: Sizes, times: dict[str, float], network: Network, ranks: int, tokens: int, *, backward: bool
) -> Point:
    """The prediction for a call with `tokens` positions on each of `ranks` ranks.

    Args:
        sizes: the sizes with which `times` were measured.
        times: the result of `kernels.measure`, in seconds.
    """
    growth = tokens / sizes.length
    if operator.transition == "ring":
        return _ring(operator, sizes, times, network, ranks, tokens, growth * growth, backward=backward)
    if ranks == 1:
        return Point(1, tokens, growth * (times["both"] if backward else times["forward"]), "none")
    payload = (operator.payload_bytes(sizes, ranks, True) - operator.payload_bytes(sizes, ranks, False)) * 1.0
    depth = math.ceil(math.log2(ranks))
    gather = depth * network.latency_s + (ranks - 1) * payload / network.bandwidth + (ranks - 2) * times["fold"]
    scan = depth * (network.message(payload) + times["compose"])
    exchange = min(gather, scan)
    end = times["first_end" if ranks == 2 else "end"]
    seconds = depth * network.latency_s + growth * (end + times["forward"]) + exchange
    if backward:
        seconds += growth * (times["gradient"] + times["both"] - times["forward"]) + exchange
    return Point(ranks, tokens, seconds, "gather" if gather <= scan else "scan")


def _ring(
    operator: Operator, sizes: Sizes, times: dict[str, float], network: Network, ranks: int, tokens: int, growth: float, *, backward: bool
) -> Point:  # fmt: skip
    if ranks == 1:
        return Point(1, tokens, growth * (times["both"] if backward else times["forward"]), "none")
    numbers = 2 * sizes.batch * sizes.heads * sizes.dim * tokens
    item = {"float64": 8, "float32": 4, "bfloat16": 2}[sizes.dtype]
    keys, gradients = network.message(numbers * item), network.message(numbers * max(4, item))
    block = growth * times["pair_forward"] / 2
    seconds = max(growth * times["forward"], keys) + (ranks - 2) * max(block, keys) + block
    if backward:
        own = growth * (times["both"] - times["forward"])
        block = growth * (times["pair_both"] - times["pair_forward"]) / 2
        seconds += max(own, keys) + (ranks - 2) * max(block, keys) + block + ranks * gradients
    return Point(ranks, tokens, seconds, "ring")


def scaling(
    kernels: list[dict[str, Any]], network: Network, total_tokens: int, *, backward: bool, most_ranks: int = MOST_RANKS
) -> dict[str, Any]:
    """The predictions of each operator for 1, 2, 4, … ranks: "weak" with a fixed number of positions on each rank, "strong" with a
    fixed number in total, and the number of ranks up to which strong scaling pays.

    Args:
        kernels: for each operator its name ("operator"), the measured "sizes", and what `kernels.measure` returned ("times").
        total_tokens: the positions of the whole sequence in strong scaling; a power of two, at least 2.
    """
    ranks = [2**power for power in range(int(math.log2(most_ranks)) + 1)]
    found = []
    for line in kernels:
        operator, sizes, times = OPERATORS[line["operator"]], Sizes(**line["sizes"]), line["times"]

        def point(count: int, tokens: int, operator: Operator = operator, sizes: Sizes = sizes, times: Any = times) -> Point:
            return simulate(operator, sizes, times, network, count, tokens, backward=backward)

        weak = [point(count, sizes.length) for count in ranks]
        strong = [point(count, total_tokens // count) for count in ranks if total_tokens // count >= 2]
        efficiency = [_efficiency(operator, weak[0], one) for one in weak]
        found.append(
            {
                "operator": operator.name, "rule": operator.rule, "transition": operator.transition, "sizes": asdict(sizes),
                "weak": [asdict(one) | {"efficiency": share} for one, share in zip(weak, efficiency, strict=True)],
                "strong": [asdict(one) for one in strong],
                "bound": None if operator.transition == "ring" else
                [weak_scaling_bound(operator.transition, sizes.dim, sizes.dim, count, backward=backward) for count in ranks],
                "fastest_ranks": min(strong, key=lambda one: one.seconds).ranks,
                "scales_to": _scales_to(strong),
            }
        )  # fmt: skip
    return {
        "network": asdict(network), "total_tokens": total_tokens, "backward": backward, "ranks": ranks, "operators": found,
    }  # fmt: skip


def _scales_to(points: list[Point]) -> int:
    """The number of ranks up to which each doubling makes a call at least 1.5 times as fast. The first two doublings, to 2 and to 4
    ranks, are not considered, since the first adds the computation of end states and the second that of transitions."""
    for before, after in zip(points[2:], points[3:], strict=False):
        if before.seconds < 1.5 * after.seconds:
            return before.ranks
    return points[-1].ranks


def _efficiency(operator: Operator, one: Point, many: Point) -> float:
    """The speed of each rank divided by that of one process. In softmax attention the work of each position grows with the length of
    the whole sequence, so the speed is that of work, not of positions."""
    work = many.ranks if operator.transition == "ring" else 1
    return work * one.seconds / many.seconds
