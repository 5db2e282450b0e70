"""Draws one panel of a figure: its axes, its curves and their names."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike

from attnplots import sheet, style, ticks
from attnplots.curves import Curve, Length, method_text
from attnplots.labels import LEADER, Box, free_place, place, spread
from attnplots.sheet import POINT, WIDTH
from attnplots.style import Style
from attnplots.ticks import Limits, Ticks

NAME_LINE = 12.0
WORDS_LINE = 10.0
LONGEST_NAME = 26

# The diameter of the ring around a doubtful point, which leaves a gap around every marker.
RING = 9.6

# The functions that return the ticks of an axis of time and of an axis of memory.
TICK_FUNCTIONS = (ticks.times, ticks.sizes)


@dataclass(frozen=True)
class Label:
    """A method's name and, below it, lines of smaller text; `width` is in points."""

    name: str
    words: list[str]
    width: float
    weight: str = "bold"

    @property
    def height(self) -> float:
        """The height of all its lines, in points."""
        return NAME_LINE + WORDS_LINE * len(self.words)


def curve_label(figure: Figure, curve: Curve, narrow: bool) -> Label:
    """The label of a curve: the name of the method, and the words on its end mark if it has any."""
    return method_label(
        figure, curve.method, [curve.end.words] if curve.end and curve.end.words else [], narrow
    )


def method_label(figure: Figure, method: str, words: list[str], narrow: bool) -> Label:
    """A label of a method's name above lines of words; `narrow` breaks lines before brackets,
    and so does a name that is too long."""
    name = method_text(method)
    if narrow or len(name) > LONGEST_NAME:
        name, *words = "\n".join([name, *words]).replace(" (", "\n(").split("\n")
    if len(name) > LONGEST_NAME:
        name = name[: LONGEST_NAME - 1] + "…"
    widths = [sheet.text_width(figure, name, style.NAME_SIZE, "bold")]
    widths += [sheet.text_width(figure, line, style.SMALL_SIZE) for line in words]
    return Label(name, words, max(widths))


def labels_beside(figure: Figure, curves: list[Curve], reach: float) -> list[Label]:
    """The labels that go beside the panel: those of the curves that reach the length `reach`."""
    return [curve_label(figure, curve, narrow=True) for curve in curves if curve.tip[0] >= reach]


def length_limits(span: Limits) -> Limits:
    """Limits of an axis of lengths, with space for the marks at both ends of the span."""
    return span[0] / 2**0.3, span[1] * 2**0.2


def empty_axes(
    figure: Figure,
    frame: Box,
    x_limits: Limits,
    y_limits: Limits,
    x_ticks: Ticks,
    y_ticks: Ticks,
    logarithmic: tuple[bool, bool] = (True, True),
) -> Axes:
    """Adds empty axes to the figure; `frame` is their place in points. `logarithmic` says of x and
    y whether their scale is logarithmic or linear."""
    high = figure.get_figheight() / POINT
    wide, tall = frame.x1 - frame.x0, frame.y1 - frame.y0
    axes = figure.add_axes((frame.x0 / WIDTH, frame.y0 / high, wide / WIDTH, tall / high))
    if logarithmic[0]:
        axes.set_xscale("log", base=2)
    if logarithmic[1]:
        axes.set_yscale("log", base=2)
    axes.set_xlim(*x_limits)
    axes.set_ylim(*y_limits)
    axes.set_xticks(*x_ticks)
    axes.set_yticks(*y_ticks)
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
) -> tuple[np.ndarray, list[Box]]:
    """Draws curves and labels. Returns points on the curves, and the boxes of labels in the panel.

    Curves that reach the length `reach` have their names `gap` points beside the panel, the others
    have them inside it.
    """
    for curve in panel:
        _curve(axes, curve, looks[curve.method])
    beside = [curve for curve in panel if curve.tip[0] >= reach]
    beside.sort(key=lambda curve: curve.tip[1])
    labels = [curve_label(figure, curve, narrow=True) for curve in beside]
    tips = [axes.transData.transform(curve.tip) for curve in beside]
    longest = max((curve.tip[0] for curve in beside), default=reach)
    # The name should be level with the tip of the curve; the words are below the name.
    hang = [(label.height - NAME_LINE) / 2 for label in labels]
    wanted = [float(tip[1]) - h for tip, h in zip(tips, hang, strict=True)]
    heights = [label.height for label in labels]
    centres = spread(wanted, heights, frame.y0 - 6, frame.y1 + 6)
    for curve, label, tip, centre, h in zip(beside, labels, tips, centres, hang, strict=True):
        look = looks[curve.method]
        if abs(centre + h - tip[1]) > 2.5 or curve.tip[0] < longest:
            leader(figure, (tip[0] + 5, tip[1]), (frame.x1 + gap - 3, centre + h), look)
        write(figure, label, frame.x1 + gap, centre + label.height / 2, look)

    ink = np.concatenate([_ink(axes, curve) for curve in panel])
    taken: list[Box] = []
    inside = [curve for curve in panel if curve.tip[0] < reach]
    for curve in sorted(inside, key=lambda curve: -curve.tip[1]):
        forms = [curve_label(figure, curve, narrow) for narrow in (False, True)]
        x, y = (float(v) for v in axes.transData.transform(curve.tip))
        name_near(figure, (x, y), forms, looks[curve.method], ink, taken, frame)
    return ink, taken


def name_near(
    figure: Figure,
    tip: tuple[float, float],
    forms: list[Label],
    look: Style,
    ink: np.ndarray,
    taken: list[Box],
    frame: Box,
) -> None:
    """Writes that form of a label which fits best near `tip`, and adds its box to `taken`."""
    which, box = place(tip, [(f.width, f.height) for f in forms], ink, taken, frame)
    taken.append(box)
    name_in(figure, tip, forms[which], look, box)


def name_in(
    figure: Figure,
    tip: tuple[float, float],
    label: Label,
    look: Style,
    box: Box,
    towards: bool = False,
) -> None:
    """Writes a label into its box, and draws a leader if the box is far away from `tip`.

    The text is aligned to the left; with `towards`, to the side that is nearer the tip.
    """
    x, y = tip
    edge = box.nearest(x, y)
    away = math.dist(edge, tip)
    if away > LEADER:
        start = (x + 5 * (edge[0] - x) / away, y + 5 * (edge[1] - y) / away)
        leader(figure, start, edge, look)
    right = towards and box.x1 < x
    write(figure, label, box.x1 if right else box.x0, box.y1, look, right)


def marks(
    axes: Axes, x: ArrayLike, y: ArrayLike, look: Style, z: float, scale: float = 1.0
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
        markeredgewidth=1.1 if look.hollow else 0.6 * min(scale, 1.0),
        zorder=z,
    )


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
        markeredgewidth=0.7,
        zorder=z,
    )


def _curve(axes: Axes, curve: Curve, look: Style) -> None:
    # Dashed lines are drawn over solid ones, so that both are visible where two curves coincide.
    z = 3.0 if look.dash == style.SOLID else 3.2
    axes.plot(
        curve.n, curve.y, color=look.colour, linestyle=look.dash, linewidth=look.width, zorder=z
    )
    if look.marker:
        marks(axes, curve.n, curve.y, look, z + 0.5)
        rings(axes, curve.n[curve.ringed], curve.y[curve.ringed], z + 0.4)
    if np.isfinite(curve.low + curve.high).any():
        low, high, colour = curve.low, curve.high, look.colour
        axes.fill_between(curve.n, low, high, color=colour, alpha=0.2, linewidth=0, zorder=2)
        # Bars show the interval of a point that has no neighbour to draw a band to. Curves without
        # marks have too many points for bars.
        if look.marker:
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
    """Points along the curve and around its markers, which labels should avoid."""
    seen = np.isfinite(curve.y)
    corners = list(zip(curve.n[seen], curve.y[seen], strict=True))
    if curve.end:
        corners.append((curve.end.n, curve.end.y))
    places = axes.transData.transform(corners)
    points = [places + shift for shift in ((0, 0), (3, 0), (-3, 0), (0, 3), (0, -3))]
    for a, b in pairwise(places):
        points.append(np.linspace(a, b, max(2, int(math.dist(a, b) / 1.5))))
    return np.concatenate(points)


def write(
    figure: Figure, label: Label, x: float, top: float, look: Style, right: bool = False
) -> None:
    """Writes a label whose upper left corner, or with `right` upper right one, is at (x, top)."""
    more = {"gid": "label", "ha": "right" if right else "left"}
    name = {"weight": label.weight, **more}
    sheet.text(figure, x, top - 9.3, label.name, style.NAME_SIZE, look.text_colour, **name)
    for k, line in enumerate(label.words):
        y = top - NAME_LINE - WORDS_LINE * k - 7.5
        sheet.text(figure, x, y, line, style.SMALL_SIZE, style.QUIET, **more)


def leader(figure: Figure, start: Sequence[float], stop: Sequence[float], look: Style) -> None:
    """Draws a thin line between a label and what it names."""
    sheet.line(figure, start, stop, look.text_colour, linewidth=0.6, alpha=0.7)


def line_at(axes: Axes, value: float) -> None:
    """Draws a horizontal line, below the curves."""
    axes.axhline(value, color=style.GUIDE, linewidth=0.9, zorder=1.5)


def guides(
    figure: Figure,
    axes: Axes,
    frame: Box,
    ink: np.ndarray,
    taken: list[Box],
    span: Limits,
    length: Length,
) -> None:
    """Draws short lines that show linear and quadratic growth, if a place near a corner is free."""
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
        for power, text in ((1, f"∝ {length.letter}"), (2, f"∝ {length.letter}²")):
            rise = power * run * octave[1]
            sheet.line(figure, (x, y), (x + wide, y + rise), style.GUIDE, linewidth=0.8)
            sheet.text(figure, x + wide + 3, y + rise - 3, text, style.SMALL_SIZE, style.QUIET)
        return
