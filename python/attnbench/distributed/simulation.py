"""Predicts how operators scale to many ranks, from times measured on one process and a network that is stated.

Ranks have clocks that the slowest sets: all compute their ends, exchange, and compute their own passes. With n bytes a
rank, R ranks, latency α, bandwidth β and D = log₂ R rounded up:

    all-gather   D α + (R − 1) n / β, then R − 2 steps of the fold on the last rank
    scan         D steps of α + n / β and one step that joins two states and two transitions

The faster of both is taken, and the result names it; the operators of this package gather. Recurrent operators take

    forward   D α + end + exchange + forward      backward   gradient + exchange + (both − forward)

and a ring of softmax attention R − 1 steps, in each of which keys and values travel while the block before is computed;
with the causal mask a step has half the pairs of two slices. Times of recurrent operators grow with the positions of a
slice, and those of softmax with their square.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from attnbench.distributed.bound import weak_scaling_bound
from attnbench.distributed.operators import OPERATORS, Operator, Sizes

MOST_RANKS = 1024


@dataclass(frozen=True)
class Network:
    """The network between ranks: the latency of a message in seconds, and the bandwidth of a rank in bytes a second."""

    latency_s: float
    bandwidth: float

    def message(self, size: float) -> float:
        return self.latency_s + size / self.bandwidth


@dataclass(frozen=True)
class Point:
    """A prediction: the time of one call in seconds, and how states are exchanged ("gather", "scan" or "ring"; "none" for
    one rank)."""

    ranks: int
    tokens_per_rank: int
    seconds: float
    exchange: str


def simulate(
    operator: Operator, sizes: Sizes, times: dict[str, float], network: Network, ranks: int, tokens: int, *, backward: bool
) -> Point:
    """The time of a call with `tokens` positions a rank.

    Args:
        sizes: those of the measured `times`, which `kernels.measure` describes.
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
    """The predictions of each operator for 1, 2, 4, … ranks, with the tokens of a rank fixed ("weak") and with
    those of the whole sequence ("strong"), and where it stops scaling.

    Args:
        kernels: lines of what `kernels.measure` found, with the name of the `operator` and the `sizes`.
        total_tokens: of the sequence whose slices shrink; a power of two.
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
    """The ranks up to which each doubling makes a call at least 1.5 times as fast. Those to 2 and to 4 ranks do not count, since
    they add the end of a slice and its transition."""
    for before, after in zip(points[2:], points[3:], strict=False):
        if before.seconds < 1.5 * after.seconds:
            return before.ranks
    return points[-1].ranks


def _efficiency(operator: Operator, one: Point, many: Point) -> float:
    """The share of the speed of one process that each rank keeps. Softmax has more work in a longer sequence: a rank's share of
    it grows with the number of ranks, and the efficiency is against that."""
    work = many.ranks if operator.transition == "ring" else 1
    return work * one.seconds / many.seconds
