"""The scaling figure: time and peak memory per sample against the sequence length.

Layout is done in points (1/72 inch), so that labels sit alike in every output.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from attnplots import curves as data
from attnplots import style, ticks
from attnplots.curves import Curve, Row
from attnplots.labels import LEADER, Box, free_place, place, spread
from attnplots.records import Record, RecordsError
from attnplots.style import Style

# What the two columns show: the title, the value of a record, and the marks of the axis.
COLUMNS = (
    ("Time per sample (ms)", data.time_value, ticks.times),
    ("Peak memory per sample, above the inputs", data.memory_value, ticks.sizes),
)

POINT = 1 / 72

WIDTH = 720.0
LEFT = 44.0
MIDDLE = 54.0
RIGHT = 8.0
TOP = 30.0
HEADING = 38.0
PANEL = 205.0
TICKS = 24.0
X_LABEL = 18.0
FOOT = 10.0
SMALL_LINE = 11.5

# Between a panel and the names beside it; leaders of a crowd of names need the wide one.
GAP = 12.0
WIDE_GAP = 28.0
CROWD = 7

NAME_LINE = 12.0
WORDS_LINE = 10.0
LONGEST_NAME = 26


@dataclass(frozen=True)
class Label:
    """A method's name and, below it, why its curve stops."""

    name: str
    words: list[str]
    width: float

    @property
    def height(self) -> float:
        """The height of all its lines."""
        return NAME_LINE + WORDS_LINE * len(self.words)


def draw(records: list[Record]) -> Figure:
    """The figure: a row of panels for each setting, time at the left, memory at the right."""
    rows = data.split_rows(records)
    columns = [[data.curves(row, value) for row in rows] for _, value, _ in COLUMNS]
    if not any(columns[0]):
        raise RecordsError("expected at least one measured record with a time, found none")
    looks = style.styles(record["method"] for record in records)
    every = [curve for column in columns for panel in column for curve in panel]
    span = (min(curve.n[0] for curve in every), max(curve.tip[0] for curve in every))

    figure = Figure(dpi=72)
    FigureCanvasAgg(figure)
    header = _wrapped(figure, _setting(records))
    footer = _footer(figure, rows, columns[0])
    beside = [
        [[_label(figure, c, narrow=True) for c in panel if c.tip[0] == span[1]] for panel in column]
        for column in columns
    ]
    gaps = [WIDE_GAP if max(map(len, column)) >= CROWD else GAP for column in beside]
    margins = [
        gap + max((label.width for labels in column for label in labels), default=0.0)
        for gap, column in zip(gaps, beside, strict=True)
    ]
    wide = (WIDTH - LEFT - MIDDLE - RIGHT - sum(margins)) / 2
    highs = [
        max(PANEL, *(sum(label.height for label in column[i]) for column in beside))
        for i in range(len(rows))
    ]
    head = TOP + SMALL_LINE * (len(header) - 1)
    height = head + sum(HEADING + high + TICKS for high in highs)
    height += X_LABEL + FOOT + SMALL_LINE * len(footer)
    figure.set_size_inches(WIDTH * POINT, height * POINT)

    for k, line in enumerate(header):
        _text(figure, LEFT, height - 18 - SMALL_LINE * k, line, style.SMALL_SIZE, style.QUIET)
    limits = [ticks.limits(column) for column in columns]
    top = height - head
    for i, row in enumerate(rows):
        _text(figure, LEFT, top - 13, row.title, style.HEAD_SIZE, style.TEXT, weight="bold")
        bottom = top - HEADING - highs[i]
        for k, (title, _, marks) in enumerate(COLUMNS):
            left = LEFT + k * (wide + margins[0] + MIDDLE)
            frame = Box(left, bottom, left + wide, bottom + highs[i])
            places = marks(limits[k]) if any(columns[k]) else ([], [])
            axes = _axes(figure, frame, span, limits[k], places)
            _text(figure, left, frame.y1 + 7, title, style.NAME_SIZE, style.TEXT)
            middle = (frame.x0 + frame.x1) / 2
            if i == len(rows) - 1:
                _text(figure, middle, bottom - TICKS - 9, "Sequence length N",
                      style.NAME_SIZE, style.TEXT, ha="center")  # fmt: skip
            if columns[k][i]:
                _panel(figure, axes, frame, columns[k][i], looks, gaps[k], span)
            else:
                _text(figure, middle, (frame.y0 + frame.y1) / 2, "nothing measured",
                      style.NAME_SIZE, style.QUIET, ha="center")  # fmt: skip
        top = bottom - TICKS
    for k, line in enumerate(footer):
        y = top - X_LABEL - FOOT - SMALL_LINE * k
        _text(figure, LEFT, y, line, style.SMALL_SIZE, style.QUIET)
    return figure


def _text(
    figure: Figure, x: float, y: float, text: str, size: float, colour: str, **more: Any
) -> None:
    """Text whose baseline is at a place given in points."""
    where = (x * POINT, y * POINT)
    inches = figure.dpi_scale_trans
    figure.text(*where, text, fontsize=size, color=colour, transform=inches, **more)


def _line(
    figure: Figure, start: Sequence[float], stop: Sequence[float], colour: str, **more: Any
) -> None:
    """A straight line between two places given in points."""
    x, y = ([start[i] * POINT, stop[i] * POINT] for i in (0, 1))
    inches = figure.dpi_scale_trans
    figure.add_artist(Line2D(x, y, transform=inches, color=colour, **more))


def _text_width(figure: Figure, text: str, size: float, weight: str = "normal") -> float:
    font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    return canvas.get_renderer().get_text_width_height_descent(text, font, False)[0]


def _label(figure: Figure, curve: Curve, narrow: bool) -> Label:
    """The label of a curve; a narrow one breaks its words in two lines."""
    name = " ".join(curve.method.split())
    if len(name) > LONGEST_NAME:
        name = name[: LONGEST_NAME - 1] + "…"
    words = [curve.end.words] if curve.end else []
    if narrow and words:
        words = words[0].replace(" (", "\n(").split("\n")
    widths = [_text_width(figure, name, style.NAME_SIZE, "bold")]
    widths += [_text_width(figure, line, style.SMALL_SIZE) for line in words]
    return Label(name, words, max(widths))


def _axes(
    figure: Figure,
    frame: Box,
    span: tuple[float, float],
    limits: ticks.Limits,
    marks: ticks.Ticks,
) -> Axes:
    high = figure.get_figheight() / POINT
    wide, tall = frame.x1 - frame.x0, frame.y1 - frame.y0
    axes = figure.add_axes((frame.x0 / WIDTH, frame.y0 / high, wide / WIDTH, tall / high))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlim(span[0] / 2**0.3, span[1] * 2**0.2)
    axes.set_ylim(*limits)
    axes.set_xticks(*ticks.lengths(span))
    axes.set_yticks(*marks)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    return axes


def _panel(
    figure: Figure,
    axes: Axes,
    frame: Box,
    panel: list[Curve],
    looks: dict[str, Style],
    gap: float,
    span: tuple[float, float],
) -> None:
    """One panel: curves, labels, and slopes to compare with where there is room."""
    for curve in panel:
        _curve(axes, curve, looks[curve.method])
    beside = [curve for curve in panel if curve.tip[0] == span[1]]
    beside.sort(key=lambda curve: curve.tip[1])
    labels = [_label(figure, curve, narrow=True) for curve in beside]
    tips = [axes.transData.transform(curve.tip) for curve in beside]
    # The name is what should be level with the tip; words hang below it.
    hang = [(label.height - NAME_LINE) / 2 for label in labels]
    wanted = [float(tip[1]) - h for tip, h in zip(tips, hang, strict=True)]
    heights = [label.height for label in labels]
    centres = spread(wanted, heights, frame.y0 - 6, frame.y1 + 6)
    for curve, label, tip, centre, h in zip(beside, labels, tips, centres, hang, strict=True):
        look = looks[curve.method]
        if abs(centre + h - tip[1]) > 2.5:
            _leader(figure, (tip[0] + 5, tip[1]), (frame.x1 + gap - 3, centre + h), look)
        _write(figure, label, frame.x1 + gap, centre + label.height / 2, look)

    ink = np.concatenate([_ink(axes, curve) for curve in panel])
    taken: list[Box] = []
    inside = [curve for curve in panel if curve.tip[0] != span[1]]
    for curve in sorted(inside, key=lambda curve: -curve.tip[1]):
        look = looks[curve.method]
        forms = [_label(figure, curve, narrow) for narrow in (False, True)]
        x, y = (float(v) for v in axes.transData.transform(curve.tip))
        which, box = place((x, y), [(f.width, f.height) for f in forms], ink, taken, frame)
        taken.append(box)
        edge = box.nearest(x, y)
        away = math.dist(edge, (x, y))
        if away > LEADER:
            start = (x + 5 * (edge[0] - x) / away, y + 5 * (edge[1] - y) / away)
            _leader(figure, start, edge, look)
        _write(figure, forms[which], box.x0, box.y1, look)
    _guides(figure, axes, frame, ink, taken, span)


def _curve(axes: Axes, curve: Curve, look: Style) -> None:
    # Dashes over solid lines: where two curves coincide both are then seen.
    z = 3.0 if look.dash == style.SOLID else 3.2
    axes.plot(curve.n, curve.y, color=look.colour, linestyle=look.dash, linewidth=1.5, zorder=z)
    axes.plot(
        curve.n,
        curve.y,
        linestyle="none",
        marker=look.marker,
        markersize=style.MARKERS[look.marker],
        markerfacecolor="white" if look.hollow else look.colour,
        markeredgecolor=look.colour if look.hollow else "white",
        markeredgewidth=1.1 if look.hollow else 0.6,
        zorder=z + 0.5,
    )
    if np.isfinite(curve.low + curve.high).any():
        low, high, colour = curve.low, curve.high, look.colour
        axes.fill_between(curve.n, low, high, color=colour, alpha=0.2, linewidth=0, zorder=2)
        # The bars show an interval where a point has no neighbour to draw a band to.
        axes.vlines(curve.n, low, high, color=colour, linewidth=0.9, zorder=2.5)
    if curve.end:
        last = np.flatnonzero(np.isfinite(curve.y))[-1]
        n, y = [curve.n[last], curve.end.n], [curve.y[last], curve.end.y]
        axes.plot(n, y, color=look.colour, linestyle=(0, (2, 2)), linewidth=0.9, zorder=z)
        axes.plot(
            curve.end.n,
            curve.end.y,
            color=look.colour,
            marker="x",
            markersize=5.5,
            markeredgewidth=1.5,
            zorder=5,
        )


def _ink(axes: Axes, curve: Curve) -> np.ndarray:
    """Points along the curve, and around its markers, that labels should keep clear of."""
    seen = np.isfinite(curve.y)
    corners = list(zip(curve.n[seen], curve.y[seen], strict=True))
    if curve.end:
        corners.append((curve.end.n, curve.end.y))
    places = axes.transData.transform(corners)
    points = [places + shift for shift in ((0, 0), (3, 0), (-3, 0), (0, 3), (0, -3))]
    for a, b in pairwise(places):
        points.append(np.linspace(a, b, max(2, int(math.dist(a, b) / 1.5))))
    return np.concatenate(points)


def _write(figure: Figure, label: Label, x: float, top: float, look: Style) -> None:
    name_size, small = style.NAME_SIZE, style.SMALL_SIZE
    _text(figure, x, top - 9.3, label.name, name_size, look.ink, weight="bold", gid="label")
    for k, line in enumerate(label.words):
        y = top - NAME_LINE - WORDS_LINE * k - 7.5
        _text(figure, x, y, line, small, style.QUIET, gid="label")


def _leader(figure: Figure, start: Sequence[float], stop: Sequence[float], look: Style) -> None:
    _line(figure, start, stop, look.ink, linewidth=0.6, alpha=0.7)


def _guides(
    figure: Figure,
    axes: Axes,
    frame: Box,
    ink: np.ndarray,
    taken: list[Box],
    span: tuple[float, float],
) -> None:
    """Short lines of slope N and N² in a free place near a corner, if there is one."""
    low = axes.get_ylim()[0]
    here, there = axes.transData.transform([(span[0], low), (2 * span[0], 2 * low)])
    octave = there - here
    for run in (2.0, 1.5, 1.0):
        wide, high = run * octave[0], 2 * run * octave[1]
        if wide > 0.4 * (frame.x1 - frame.x0) or high > 0.4 * (frame.y1 - frame.y0):
            continue
        box = free_place((wide + 24, high + 6), ink, taken, frame)
        if box is None:
            continue
        x, y = box.x0, box.y0
        for power, text in ((1, "∝ N"), (2, "∝ N²")):
            rise = power * run * octave[1]
            _line(figure, (x, y), (x + wide, y + rise), style.GUIDE, linewidth=0.8)
            _text(figure, x + wide + 3, y + rise - 3, text, style.SMALL_SIZE, style.QUIET)
        return


def _setting(records: list[Record]) -> str:
    """The machine and the sizes that the records are about, on one line."""
    on_cpu = {str(r.get("device") or "cpu").startswith("cpu") for r in records}
    parts = []
    if True in on_cpu:
        parts.append(_joined(records, "cpu_model", _short_cpu))
        parts.append(_joined(records, "threads", lambda n: f"{n} thread{'' if n == 1 else 's'}"))
    if False in on_cpu:
        parts.append(_joined(records, "gpu", str))
    parts.append(_joined(records, "dtype", str))
    heads, dim, value = (_shared(records, a) for a in ("heads", "head_dim", "value_dim"))
    if heads is not None and dim is not None:
        more = f" (values {value})" if value not in (None, dim) else ""
        parts.append(f"{heads} head{'' if heads == 1 else 's'} × {dim} dimensions{more}")
    if _shared(records, "causal") is True:
        parts.append("causal")
    batches = [record["batch"] for record in records]
    low, high = min(batches), max(batches)
    parts.append(f"batch {low}" if low == high else f"batch {low} to {high}")
    return " · ".join(part for part in parts if part)


def _shared(records: list[Record], column: str) -> Any:
    """The column's value where all records have the same, or None."""
    values = [record.get(column) for record in records]
    return values[0] if all(value == values[0] for value in values) else None


def _joined(records: list[Record], column: str, say: Callable[[Any], str]) -> str:
    values = (record.get(column) for record in records)
    return " / ".join(dict.fromkeys(say(value) for value in values if value is not None))


def _short_cpu(model: object) -> str:
    return " ".join(re.sub(r"\((R|TM)\)|\bCPU\b", " ", str(model), flags=re.IGNORECASE).split())


def _footer(figure: Figure, rows: list[Row], times: list[list[Curve]]) -> list[str]:
    """What a reader should know of the figure, in lines that fit under it."""
    texts = data.notes(rows)
    if any(np.isfinite(curve.low + curve.high).any() for panel in times for curve in panel):
        texts.insert(0, "Bands: 95% intervals of the time, often narrower than the marks.")
    return [line for text in texts for line in _wrapped(figure, text)]


def _wrapped(figure: Figure, text: str) -> list[str]:
    """The text in lines that fit the figure."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and _text_width(figure, longer, style.SMALL_SIZE) > WIDTH - LEFT - RIGHT:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
