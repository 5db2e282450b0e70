"""Draws one panel of a figure: its axes, its curves, their names, and the strip of cases without a point above it."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike

from attnplots.figures import style
from attnplots.figures.description import Line, Marks, Panel, Scale
from attnplots.figures.style import Style
from attnplots.figures.ticks import Limits, Ticks
from attnplots.marks import sheet
from attnplots.marks.labels import LEADER, Box, Placed, free_place, place_all, spread
from attnplots.marks.sheet import POINT
from attnplots.records.rows import PUBLISHED_OOM, REASONS, Curve, Length, Reason, method_text

NAME_LINE = 9.4
# The longest line of a name and the most lines, in characters; longer names are broken and cut.
LONGEST_LINE = 19
MAX_LINES = 3

# A curve whose last point is farther than this from its name beside the panel has a leader to it.
FAR = 24.0

# The height of a lane of the strip, the width that a mark in it needs, and its colour.
LANE = 9.4
LANE_MARK = 5.0
# The lane of the lengths from which on methods are faster than another.
CROSSING = Reason("faster than sdpa", "faster than sdpa")
LANE_COLOUR = "#f3f3f3"

# The diameter of the ring around a doubtful point, which leaves a gap around every marker.
RING = 7.4

# Ticks of an axis that is linear near zero are at least so far apart.
TICK_APART = 11.0
# Names of rules may cross lines. A white halo keeps their letters readable.
HALO = withStroke(linewidth=1.6, foreground="white")


@dataclass(frozen=True)
class Label:
    """A method's name in one or several lines; `width` is in points."""

    lines: list[str]
    width: float

    @property
    def height(self) -> float:
        """The height of all its lines, in points."""
        return NAME_LINE * len(self.lines)


def method_label(figure: Figure, method: str) -> Label:
    """The label of a method; a long name is broken before brackets and after hyphens."""
    lines = [""]
    for part in re.split(r"(?= \()|(?<=[-,/: ])", sheet.drawable(method_text(method))):
        if lines[-1] and len(lines[-1].strip()) + len(part) > LONGEST_LINE:
            lines.append("")
        lines[-1] += part
    lines = [line.strip() for line in lines]
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], lines[MAX_LINES - 1] + "…"]
    lines = [x if len(x) <= LONGEST_LINE + 1 else x[:LONGEST_LINE] + "…" for x in lines]
    width = max(sheet.text_width(figure, line, style.NAME_SIZE, "bold") for line in lines)
    return Label(lines, width)


def labels_beside(figure: Figure, curves: Sequence[Curve], reach: float) -> list[Label]:
    """The labels that go beside the panel: those of the curves that reach the length `reach`."""
    return [method_label(figure, curve.method) for curve in curves if curve.tip[0] >= reach]


def empty_axes(figure: Figure, frame: Box, x: Scale, y: Scale) -> Axes:
    """Adds empty axes with these scales to the figure; `frame` is their place in points."""
    axes = sheet.axes(figure, frame)
    if x.logarithmic:
        axes.set_xscale("log", base=2)
    if y.linear_to:
        axes.set_yscale("symlog", linthresh=y.linear_to)
    elif y.logarithmic:
        axes.set_yscale("log", base=2)
    axes.set_xlim(*x.limits)
    axes.set_ylim(*y.limits)
    axes.set_xticks(*x.ticks)
    axes.set_yticks(y.ticks[0], [sheet.drawable(text) for text in y.ticks[1]])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    return axes


def draw(
    figure: Figure,
    axes: Axes,
    frame: Box,
    panel: list[Curve],
    looks: dict[str, Style],
    gap: float,
    reach: float,
    keyed: bool = False,
    names: float = 0.0,
    named: bool = True,
) -> tuple[np.ndarray, list[Box]]:
    """Draws curves and labels. Returns points on the curves, and the boxes of labels in the panel.

    Curves that reach the length `reach` have their names `gap` points beside the panel, the others have them inside it
    or, where that is clearer, also beside it, in a margin that is `names` points wide. If the names are `keyed`, each
    has the mark of its curve in front of it, in place of a leader. Curves that are not `named` have no names.
    """
    for curve in panel:
        _curve(axes, curve, looks[curve.method])
    if not named:
        return np.concatenate([_ink(axes, curve) for curve in panel]), []
    beside = [curve for curve in panel if curve.tip[0] >= reach]
    beside.sort(key=lambda curve: curve.tip[1])
    labels = [method_label(figure, curve.method) for curve in beside]
    tips = [_tip(axes, curve) for curve in beside]
    heights = [label.height for label in labels]
    left = frame.x1 + gap
    centres = spread([y for _, y in tips], heights, frame.y0 - 8, frame.y1 + 3)
    placed = []
    for curve, label, tip, centre in zip(beside, labels, tips, centres, strict=True):
        look = looks[curve.method]
        if keyed:
            top = centre + label.height / 2 - NAME_LINE / 2
            key(figure, left - 5, top - 0.5, look)
        elif abs(centre - tip[1]) > 2.5 or left - tip[0] > FAR:
            leader(figure, (tip[0] + 4, tip[1]), (left - 2, centre), look)
        write(figure, label, left, centre + label.height / 2, look)
        half = label.height / 2
        placed.append(Placed(tip, Box(left, centre - half, left + label.width, centre + half)))

    ink = np.concatenate([_ink(axes, curve) for curve in panel])
    inside = [curve for curve in panel if curve.tip[0] < reach]
    forms = [method_label(figure, curve.method) for curve in inside]
    tips = [_tip(axes, curve) for curve in inside]
    margin = Box(left, frame.y0 - 8, left + names, frame.y1 + 3) if names and not keyed else None
    sizes = [(form.width, form.height) for form in forms]
    boxes = place_all(tips, sizes, ink, placed, frame, margin)
    for curve, form, tip, box in zip(inside, forms, tips, boxes, strict=True):
        name_in(figure, tip, form, looks[curve.method], box)
    return ink, boxes


def _tip(axes: Axes, curve: Curve) -> tuple[float, float]:
    """Where the last point of a curve is, in points."""
    x, y = axes.transData.transform(curve.tip)
    return float(x), float(y)


def lanes(panel: Sequence[Curve]) -> list[Reason]:
    """The lanes of the strip above a panel, from the top down: the reasons of gaps, and CROSSING if a
    curve has one."""
    known = [*REASONS.values(), PUBLISHED_OOM]
    found = {gap.reason for curve in panel for gap in curve.gaps}
    others = sorted(found - set(known), key=lambda reason: reason.short)
    crossing = [CROSSING] if any(curve.crossing for curve in panel) else []
    return [*(reason for reason in known if reason in found), *others, *crossing]


def strip(figure: Figure, axes: Axes, frame: Box, panel: Sequence[Curve], looks: dict[str, Style]) -> None:
    """Draws the strip above a panel: a lane for each reason, with the marks of the methods that have no point at a
    length for this reason, and a lane with the crossings and their intervals. It is lanes(panel) lanes high."""
    inches = figure.dpi_scale_trans
    for k, reason in enumerate(reversed(lanes(panel))):
        bottom = frame.y1 + 2 + LANE * k
        middle = bottom + (LANE - 1) / 2
        corner, size = (frame.x0 * POINT, bottom * POINT), (LANE - 1) * POINT
        wide = (frame.x1 - frame.x0) * POINT
        figure.add_artist(Rectangle(corner, wide, size, transform=inches, color=LANE_COLOUR, linewidth=0, zorder=0))
        places: list[float] = []
        if reason == CROSSING:
            for curve in panel:
                if curve.crossing:
                    x, low, high = (place_across(axes, n) for n in curve.crossing)
                    look = looks[curve.method]
                    low, high = max(low, frame.x0), min(high, frame.x1)
                    sheet.line(figure, (low, middle), (high, middle), look.colour, linewidth=1.2)
                    _strip_mark(figure, x, middle, look)
                    places += [x, low, high]
        else:
            marked = [(gap.n, c.method) for c in panel for gap in c.gaps if gap.reason == reason]
            for n in dict.fromkeys(n for n, _ in marked):
                methods = [method for m, method in marked if m == n]
                for i, method in enumerate(methods):
                    x = place_across(axes, n) + LANE_MARK * (i - (len(methods) - 1) / 2)
                    places.append(x)
                    _strip_mark(figure, x, middle, looks[method])
        _lane_text(figure, frame, bottom + 1.7, reason.short, places)


def place_across(axes: Axes, n: float) -> float:
    """Where a length is, in points from the left edge of the sheet."""
    return float(axes.transData.transform((n, axes.get_ylim()[0]))[0])


def key(figure: Figure, x: float, y: float, look: Style) -> None:
    """Draws what stands for a curve in front of its name: its mark or, if it has none, its line."""
    if look.marker:
        _strip_mark(figure, x, y, look)
    else:
        sheet.line(figure, (x - 4, y), (x + 3, y), look.colour, linestyle=look.dash, linewidth=look.width)


def _strip_mark(figure: Figure, x: float, y: float, look: Style) -> None:
    mark(figure, x, y, look, "gap")


def mark(figure: Figure, x: float, y: float, look: Style, gid: str) -> None:
    """Draws the mark of a method at a place in points."""
    marker = look.marker or "o"
    figure.add_artist(
        Line2D(
            [x * POINT], [y * POINT], transform=figure.dpi_scale_trans, gid=gid,
            linestyle="none", marker=marker, markersize=style.MARKERS[marker],
            markerfacecolor="white" if look.hollow else look.colour,
            markeredgecolor=look.colour, markeredgewidth=0.9 if look.hollow else 0.4, zorder=5,
        )
    )  # fmt: skip


def _lane_text(figure: Figure, frame: Box, y: float, words: str, marks: list[float]) -> None:
    """Writes the name of a lane where it hides no marks, as far at the left as possible."""
    wide = sheet.text_width(figure, words, style.SMALL_SIZE)
    # If there is no space for it in the lane, it is beside it.
    lefts = [*np.arange(frame.x0 + 2, max(frame.x1 - wide, frame.x0 + 3), 3.0), frame.x1 + 3]
    x = min(lefts, key=lambda left: sum(left - 4 < mark < left + wide + 4 for mark in marks))
    sheet.text(figure, float(x), y, words, style.SMALL_SIZE, style.QUIET, gid="lane")


def name_in(figure: Figure, tip: tuple[float, float], label: Label, look: Style, box: Box) -> None:
    """Writes a label into its box, and draws a leader if the box is far away from `tip`."""
    x, y = tip
    edge = box.nearest(x, y)
    away = math.dist(edge, tip)
    if away > LEADER:
        start = (x + 5 * (edge[0] - x) / away, y + 5 * (edge[1] - y) / away)
        leader(figure, start, edge, look)
    write(figure, label, box.x0, box.y1, look)


def marks(
    axes: Axes, x: ArrayLike, y: ArrayLike, look: Style, z: float, scale: float = 1.0, gid: str | None = None
) -> None:
    """Draws a method's marks, which no line joins; `z` is their z-order."""
    assert look.marker
    axes.plot(
        x,
        y,
        linestyle="none",
        marker=look.marker,
        markersize=style.MARKERS[look.marker] * scale,
        markerfacecolor="white" if look.hollow else look.colour,
        markeredgecolor=look.colour if look.hollow else "white",
        markeredgewidth=0.9 if look.hollow else 0.4 * min(scale, 1.0),
        zorder=z,
        gid=gid,
    )


def described_marks(axes: Axes, marked: Marks) -> None:
    """Draws marks with their bars."""
    colour, below = marked.look.colour, marked.layer - 0.7
    if len(marked.low) and marked.sideways:
        axes.hlines(marked.y, marked.low, marked.high, color=colour, linewidth=0.9, zorder=below)
    elif len(marked.low):
        axes.vlines(marked.x, marked.low, marked.high, color=colour, linewidth=0.9, zorder=below)
    marks(axes, marked.x, marked.y, marked.look, marked.layer, marked.size, marked.kind or None)


def thin_symmetric_ticks(axes: Axes, shown: Ticks) -> None:
    """Leaves out the ticks whose texts have no room, from zero on in both directions."""
    upper = [(value, text) for value, text in zip(*shown, strict=True) if value >= 0]
    places = axes.transData.transform([(axes.get_xlim()[0], value) for value, _ in upper])[:, 1]
    kept, last = set(), -TICK_APART
    for (value, _), place in zip(upper, places - places[0], strict=True):
        if place - last >= TICK_APART:
            kept.add(value)
            last = place
    values, texts = zip(*(pair for pair in zip(*shown, strict=True) if abs(pair[0]) in kept), strict=True)
    axes.set_yticks(values, texts)
    axes.yaxis.set_minor_locator(NullLocator())


def rules(figure: Figure, axes: Axes, frame: Box, shown: Panel, looks: dict[str, Style]) -> None:
    """Draws vertical lines with the names of their methods, which are at the lower end or, if the curves come near it, at
    the upper end."""
    lowest = min((float(np.nanmin(curve.y)) for curve in shown.curves), default=np.inf)
    height = len(shown.rules) * NAME_LINE + 4
    is_low = float(axes.transData.transform((1, lowest))[1]) < frame.y0 + height + NAME_LINE
    bottom = frame.y1 - height if is_low else frame.y0 + 2
    ordered = sorted(shown.rules)
    across = [place_across(axes, x) for x, _ in ordered]
    for place, (x, method) in zip(across, ordered, strict=True):
        look = looks[method]
        axes.axvline(x, color=look.colour, linestyle=look.dash, linewidth=0.9, zorder=1.8)
        label = method_label(figure, method)
        # A name is on the right of its line, unless it would cross the next line or the edge there.
        edge = min((other for other in across if other > place), default=frame.x1)
        right = place + 2 + label.width > edge
        write(figure, label, place - 2 if right else place + 2, bottom + NAME_LINE, look, right)
        bottom += NAME_LINE
    for text in figure.texts:
        if text.get_gid() == "label":
            text.set_path_effects([HALO])


def rings(axes: Axes, x: ArrayLike, y: ArrayLike, z: float) -> None:
    """Draws rings around doubtful points; `z` is their z-order."""
    axes.plot(
        x,
        y,
        gid="ring",
        clip_on=False,
        linestyle="none",
        marker="o",
        markersize=RING,
        markerfacecolor="none",
        markeredgecolor=style.GUIDE,
        markeredgewidth=0.55,
        zorder=z,
    )


def diamond(axes: Axes, x: float, y: float, look: Style) -> None:
    """Draws the open diamond of a published value."""
    axes.plot(
        x, y, gid="published", marker="D", markersize=5.0, markerfacecolor="none",
        markeredgecolor=look.text_colour, markeredgewidth=0.9, linestyle="none", zorder=5,
    )  # fmt: skip


def _curve(axes: Axes, curve: Curve, look: Style) -> None:
    # Dashed lines are drawn over solid ones, so that both are visible where two curves coincide.
    z = 3.0 if look.dash == style.SOLID else 3.2
    axes.plot(curve.n, curve.y, color=look.colour, linestyle=look.dash, linewidth=look.width, zorder=z)
    if look.marker:
        few = slice((len(curve.n) - 1) % look.every, None, look.every)
        marks(axes, curve.n[few], curve.y[few], look, z + 0.5)
        rings(axes, curve.n[curve.ringed], curve.y[curve.ringed], z + 0.4)
    if np.isfinite(curve.low + curve.high).any():
        low, high, colour = curve.low, curve.high, look.colour
        if curve.band:
            axes.fill_between(curve.n, low, high, color=colour, alpha=0.2, linewidth=0, zorder=2)
        # Bars show the interval of a point that has no neighbour to draw a band to. Curves without
        # marks at each point have too many points for bars.
        if look.marker and look.every == 1:
            axes.vlines(curve.n, low, high, color=colour, linewidth=0.9, zorder=2.5)
    for n, y in curve.published:
        diamond(axes, n, y, look)


def _ink(axes: Axes, curve: Curve) -> np.ndarray:
    """Points along the curve and around its markers, which labels should avoid."""
    seen = np.isfinite(curve.y)
    corners = list(zip(curve.n[seen], curve.y[seen], strict=True))
    places = axes.transData.transform(corners)
    points = [places + shift for shift in ((0, 0), (3, 0), (-3, 0), (0, 3), (0, -3))]
    for a, b in pairwise(places):
        points.append(np.linspace(a, b, max(2, int(math.dist(a, b) / 1.5))))
    return np.concatenate(points)


def write(figure: Figure, label: Label, x: float, top: float, look: Style, right: bool = False) -> None:
    """Writes a label whose upper left corner, or with `right` upper right one, is at (x, top)."""
    more = {"gid": "label", "ha": "right" if right else "left", "weight": "bold"}
    for k, line in enumerate(label.lines):
        y = top - NAME_LINE * k - 7.3
        sheet.text(figure, x, y, line, style.NAME_SIZE, look.text_colour, **more)


def leader(figure: Figure, start: Sequence[float], stop: Sequence[float], look: Style) -> None:
    """Draws a thin line between a label and what it names."""
    sheet.line(figure, start, stop, look.text_colour, linewidth=0.5, alpha=0.7, gid="leader")


def line_at(axes: Axes, line: Line, curves: Sequence[Curve], looks: dict[str, Style]) -> None:
    """Draws a horizontal line, below the curves; that of a method as wide as its curve."""
    if not line.method:
        axes.axhline(line.value, color=style.GUIDE, linewidth=0.9, zorder=1.5)
        return
    span = line_span(line, curves)
    axes.plot(span, [line.value] * 2, color=looks[line.method].colour, linestyle=style.DOTTED, linewidth=1.2, zorder=1.5)


def line_span(line: Line, curves: Sequence[Curve]) -> tuple[float, float]:
    """The first and the last place of the curve of a line's method."""
    places = [float(n) for curve in curves if curve.method == line.method for n in curve.n]
    return min(places), max(places)


def guides(
    figure: Figure, axes: Axes, frame: Box, ink: np.ndarray, taken: list[Box], span: Limits, length: Length,
) -> None:
    """Draws short lines that show linear and quadratic growth, if a place near a corner is free."""
    low = axes.get_ylim()[0]
    here, there = axes.transData.transform([(span[0], low), (2 * span[0], 2 * low)])
    octave = there - here
    for run in (2.0, 1.5, 1.0):
        wide, high = run * octave[0], 2 * run * octave[1]
        if wide > 0.4 * (frame.x1 - frame.x0) or high > 0.4 * (frame.y1 - frame.y0):
            continue
        box = free_place((wide + 18, high + 5), ink, taken, frame)
        if box is None:
            continue
        x, y = box.x0, box.y0
        for power, text in ((1, f"∝ {length.letter}"), (2, f"∝ {length.letter}²")):
            rise = power * run * octave[1]
            sheet.line(figure, (x, y), (x + wide, y + rise), style.GUIDE, linewidth=0.8)
            sheet.text(figure, x + wide + 3, y + rise - 3, text, style.SMALL_SIZE, style.QUIET)
        return
