"""The limits of axes, and the places and texts of their ticks."""

import math
from collections.abc import Iterable

import numpy as np

from attnplots.records.rows import Curve, size_text

Limits = tuple[float, float]
Ticks = tuple[list[float], list[str]]

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def lengths(span: Limits, max_count: int = 8) -> Ticks:
    """Powers of two from the shortest to the longest length, at most `max_count` of them."""
    first, last = math.ceil(math.log2(span[0])), math.floor(math.log2(span[1]))
    if first > last:
        return [span[0]], [size_text(span[0])]
    places = [2.0**power for power in range(first, last + 1, 1 + (last - first) // (max_count - 1))]
    return places, [size_text(n) for n in places]


def times(limits: Limits, between: tuple[int, ...] = (2, 5)) -> Ticks:
    """Powers of ten; if the limits are less than a factor of 1000 apart, also multiples of them."""
    first, last = math.floor(math.log10(limits[0])), math.ceil(math.log10(limits[1]))
    factors = (1, *between) if math.log10(limits[1] / limits[0]) < 3 else (1,)
    step = 1 + (last - first) // 9
    places = [f * 10.0**power for power in range(first, last + 1, step) for f in factors]
    places = [place for place in places if limits[0] <= place <= limits[1]]
    return places, [f"{v:,.0f}" if v >= 1 else f"{v:.12f}".rstrip("0") for v in places]


def sizes(limits: Limits) -> Ticks:
    """Powers of two, with their texts in binary units such as MiB."""
    low, high = math.log2(limits[0]), math.log2(limits[1])
    step = next((s for s in (1, 2, 4, 5, 10) if (high - low) / s <= 7), 20)
    powers = [p for p in range(math.ceil(low), math.floor(high) + 1) if p % step == 0]
    units = [min(max(power // 10, 0), len(UNITS) - 1) for power in powers]
    texts = [f"{2.0 ** (p - 10 * u):g} {UNITS[u]}" for p, u in zip(powers, units, strict=True)]
    return [2.0**power for power in powers], texts


def linear(limits: Limits, max_count: int = 7) -> Ticks:
    """Round numbers at equal distances, at least two of them."""
    low, high = limits
    power = 10.0 ** math.floor(math.log10((high - low) / max_count))
    steps = [factor * power for factor in (20, 10, 5, 2.5, 2, 1, 0.5, 0.25, 0.2, 0.1)]
    fitting = [step for step in steps if step >= (high - low) / max_count]
    inside: list[float] = []
    for step in steps[len(fitting) - 1 :]:
        first = math.ceil(low / step - 1e-10)
        inside = [k * step for k in range(first, math.floor(high / step + 1e-10) + 1)]
        if len(inside) > 1:
            break
    return inside, [f"{place:,.10g}" for place in inside]


def length_limits(span: Limits) -> Limits:
    """Limits of an axis of lengths, with space for the marks at both ends of the span."""
    return span[0] / 2**0.3, span[1] * 2**0.2


def limits(panels: list[list[Curve]], line: float | None = None) -> Limits:
    """Limits that fit all panels of a column and `line`, so that rows can be compared by eye."""
    every = [curve for panel in panels for curve in panel]
    values = [v for c in every for v in (*c.y, *c.low, *c.high, *(y for _, y in c.published))]
    return around(values if line is None else [*values, line], above=2.2)


def around(values: Iterable[float], above: float = 1.4) -> Limits:
    """Limits with some space around the finite values, `above` times as much above them as below, so that names of
    lines have room there."""
    logs = np.log2([value for value in values if np.isfinite(value)] or [1.0])
    low, high = float(logs.min()), float(logs.max())
    # A flat curve looks flat only if the axis spans at least three octaves.
    slack = max(0.07 * (high - low), (3.0 - (high - low)) / 2, 0.5)
    return 2.0 ** (low - slack), 2.0 ** (high + above * slack)
