"""The figure of `python -m attnbench.distributed simulate`: the prediction of how operators scale with the number of ranks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnplots.figures import style, ticks
from attnplots.figures.description import Group, Line, Panel, Scale, Sheet
from attnplots.records import environment
from attnplots.records.rows import Curve, plain_curve, size_text
from attnplots.records.text import RecordsError, json_object

FILE_NAME = "scaling.json"
KEY = (
    "Predicted from times of one process and a network that is stated, not measured: {network}. Efficiency is the share of the speed of one "
    "process that each rank keeps; of softmax, whose work grows with the sequence, that of its rate per pair."
)


@dataclass(frozen=True)
class Scaling:
    """The prediction of a folder, and the stamp of the figure."""

    found: dict[str, Any]
    stamp: str


def load(folder: Path) -> Scaling:
    """Reads the prediction. Raises RecordsError if there is none, or if it is not one."""
    path = folder / FILE_NAME
    found = json_object(path)
    if not isinstance(found.get("operators"), list) or not found["operators"]:
        raise RecordsError(f"{path}: expected what `python -m attnbench.distributed simulate` writes, with at least one operator")
    return Scaling(found, environment.stamp([found]))


def describe(scaling: Scaling) -> Sheet:
    """Two panels against the number of ranks: the time of a sequence of fixed length that the ranks share, and the efficiency if the
    slice of each rank has a fixed length. Raises RecordsError if the prediction lacks a key or has a value of
    the wrong kind."""
    found = scaling.found
    try:
        network, operators = found["network"], found["operators"]
        strong = [_curve(one["operator"], one["strong"], "seconds") for one in operators]
        weak = [_curve(one["operator"], one["weak"], "efficiency") for one in operators]
        sizes = operators[0]["sizes"]
        passes = "with the backward pass" if found["backward"] else "forward pass"
        header = f"{passes} · {sizes['heads']} heads of {sizes['dim']} · {sizes['dtype']}"
        stated = f"{network['latency_s'] * 1e6:g} µs for a message, {network['bandwidth'] / 1e9:g} GB/s for a rank"
        total, length = size_text(found["total_tokens"]), size_text(sizes["length"])
        span = (1.0, float(max(point.n[-1] for point in strong)))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RecordsError(f"{FILE_NAME}: not a prediction of ranks: {type(error).__name__}: {error}")
    x = Scale((0.8, 1.25 * span[1]), ticks.lengths(span))
    limits = ticks.limits([strong], None)
    panels = [
        Panel("Time of a call (s)", "Ranks R", x, Scale(limits, ticks.times(limits)), strong, span[1]),
        Panel("Efficiency", "Ranks R", x, Scale((0.0, 1.1), ticks.linear((0.0, 1.1), 6), logarithmic=False), weak, span[1], (Line(1.0),)),
    ]
    groups = [
        Group(f"{total} positions, shared by R ranks", panels[:1]),
        Group(f"{length} positions of each rank", panels[1:]),
    ]
    return Sheet(groups, style.styles(one["operator"] for one in operators), header, [KEY.format(network=stated)], scaling.stamp)


def _curve(name: str, points: list[dict[str, Any]], quantity: str) -> Curve:
    return plain_curve(name, [point["ranks"] for point in points], [point[quantity] for point in points])
