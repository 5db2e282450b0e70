"""Turns a sheet of curves that all have the same single place on the horizontal axis, such as one sequence length, into
a sheet of dots: a line for each method, with its value on the horizontal axis and in words."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnplots.figures import style
from attnplots.figures.description import Group, Panel, Scale, Sheet
from attnplots.figures.style import Style
from attnplots.marks import panel, sheet
from attnplots.marks.labels import Box
from attnplots.records.rows import Curve, method_text

# The height of the line of a method, and the space above and below all lines.
LINE, AROUND = 13.0, 8.0
# The space between a dot, or the end of its bar, and the value in words.
ASIDE = 6.0
# The longest name, in characters; longer names are cut.
LONGEST = 30


def of(content: Sheet, narrow: bool) -> Sheet:
    """The sheet with dots in place of curves, if there is a single place; else the same sheet. Where it is `narrow`, each panel has the
    names of the methods."""
    every = [shown for group in content.groups for shown in group.panels]
    places = {n for shown in every for curve in shown.curves for n in curve.lengths}
    if len(places) != 1 or any(shown.keyed for shown in every):
        return content
    label = every[0].x_label
    at = f"{label[:1].lower()}{label[1:]} = {places.pop():,.10g}"
    header = " · ".join(part for part in (content.header, at) if part)
    groups = [Group(group.heading, _panels(group.panels, narrow)) for group in content.groups]
    # Intervals of dots are bars.
    notes = [note.replace("Bands: ", "Bars: ", 1) for note in content.notes]
    return replace(content, groups=groups, header=header, notes=notes)


def _panels(panels: Sequence[Panel], narrow: bool) -> list[Panel]:
    """The panels of a group. They have the same lines, the smallest value of the first panel at the top. Where they
    are side by side, the names are at the left of the first."""
    values = [{curve.method: curve.tip[1] for curve in shown.curves} for shown in panels]
    methods = dict.fromkeys(method for found in values for method in sorted(found, key=found.__getitem__))
    names = [_name(method) for method in methods]
    return [_panel(shown, list(methods), names if narrow or k == 0 else [""] * len(names))
            for k, shown in enumerate(panels)]  # fmt: skip


def _name(method: str) -> str:
    name = method_text(method)
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}…"


def _panel(shown: Panel, methods: list[str], names: list[str]) -> Panel:
    count = len(methods)
    places = {method: float(count - 1 - k) for k, method in enumerate(methods)}
    y = Scale((-0.7, count - 0.3), (list(places.values()), names), logarithmic=False)
    return replace(
        shown, x_label="", x=shown.y, y=y, curves=[], reach=0.0, growth=None, empty="", high=LINE * count + AROUND,
        dots=tuple((places[curve.method], curve) for curve in shown.curves), methods=tuple(methods),
    )  # fmt: skip


def draw(figure: Figure, axes: Axes, frame: Box, shown: Panel, looks: dict[str, Style]) -> None:
    """Draws the dots of a panel, and gives the names of the methods their colours."""
    for text, method in zip(axes.get_yticklabels(), shown.methods, strict=True):
        text.set(color=looks[method].text_colour, gid="label")
    for place, curve in shown.dots:
        _dot(figure, axes, frame, curve, place, looks[curve.method], shown)


def _dot(figure: Figure, axes: Axes, frame: Box, curve: Curve, place: float, look: Style, shown: Panel) -> None:
    """Draws the mark of a method with its interval, and writes its value beside it."""
    x = curve.tip[1]
    k = int(np.flatnonzero(np.isfinite(curve.y))[-1])
    low, high = (x if np.isnan(end[k]) else float(end[k]) for end in (curve.low, curve.high))
    axes.hlines(place, low, high, color=look.colour, linewidth=0.9, zorder=2.5)
    panel.marks(axes, [x], [place], look if look.marker else replace(look, marker="o"), 3.5)
    if curve.ringed[k]:
        panel.rings(axes, [x], [place], 3.4)
    for _, y in curve.published:
        panel.diamond(axes, y, place, look)
    words = shown.text(x)
    ends = axes.transData.transform([(min([low, *(y for _, y in curve.published)]), place),
                                     (max([high, *(y for _, y in curve.published)]), place)])  # fmt: skip
    wide = sheet.text_width(figure, words, style.SMALL_SIZE)
    right = float(ends[1][0]) + ASIDE
    left = right if right + wide <= frame.x1 + 4 else float(ends[0][0]) - ASIDE - wide
    sheet.text(figure, left, float(ends[0][1]) - 2.5, words, style.SMALL_SIZE, style.TEXT, gid="value")
