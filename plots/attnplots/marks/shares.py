"""Draws shares in percent against a quantity in percent, in panels with the same curves."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from attnplots.figures import style
from attnplots.figures.description import Shares
from attnplots.figures.style import Style
from attnplots.marks import sheet
from attnplots.marks.labels import Box
from attnplots.marks.sheet import LEFT, RIGHT

TOP = 16.0
HEADING = 24.0
PANEL = 110.0
TICKS = 26.0
BETWEEN = 14.0
KEY_LINE = 10.0
# The columns of the key on a page; a column has one.
KEY_COLUMNS = 3
HEAD_LINE = 11.0
PLACES = (0, 3, 5, 10, 15)


def draw(content: Shares) -> Figure:
    """Draws the panels, with the key of their curves below them."""
    figure = sheet.figure()
    footer = sheet.footer(figure, content.notes, content.stamp)
    narrow = sheet.is_narrow(figure)
    columns, key_columns = (1, 1) if narrow else (len(content.panels), KEY_COLUMNS)
    rows = -(-len(content.names) // key_columns)
    lines = -(-len(content.panels) // columns)
    key = KEY_LINE * rows + 12
    titles = sheet.wrapped(figure, content.heading, style.HEAD_SIZE, "bold")
    head = TOP + (len(titles) - 1) * HEAD_LINE
    height = head + lines * (HEADING + PANEL + TICKS) + key + footer.height
    sheet.size(figure, height)
    for k, words in enumerate(titles):
        sheet.heading(figure, sheet.MARGIN, height - 12 - HEAD_LINE * k, words)
    between = BETWEEN * (columns - 1)
    wide = (sheet.width(figure) - LEFT - RIGHT - between) / columns
    longest = max(max(places) for places in content.places)
    for k, (title, curves) in enumerate(content.panels.items()):
        line, column = divmod(k, columns)
        left = LEFT + column * (wide + BETWEEN)
        bottom = height - head - line * (HEADING + PANEL + TICKS) - HEADING - PANEL
        frame = Box(left, bottom, left + wide, bottom + PANEL)
        sheet.subheading(figure, left, frame.y1 + 13, title)
        axes = _axes(figure, frame, longest)
        axes.tick_params(labelleft=column == 0)
        for words, bound in content.bounds.items():
            _guide(axes, bound, words)
        for x, y, look in zip(content.places, curves, content.looks, strict=True):
            axes.plot(x, y, clip_on=False, **_marks(look))
        if line == lines - 1:
            sheet.centred(figure, frame, bottom - 21, content.x_label, style.TEXT)
    step = (sheet.width(figure) - LEFT) / key_columns
    for n, (name, look) in enumerate(zip(content.names, content.looks, strict=True)):
        y = footer.height + key - 6 - KEY_LINE * (n % rows + 1)
        _key(figure, LEFT / 2 + (n // rows) * step, y, name, look)
    footer.write(figure)
    return figure


def _axes(figure: Figure, frame: Box, longest: float) -> Axes:
    axes = sheet.axes(figure, frame)
    axes.set_xlim(0, longest + 0.5)
    axes.set_ylim(-3, 103)
    axes.set_xticks([x for x in PLACES if x <= longest])
    axes.set_yticks([0, 25, 50, 75, 100])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    return axes


def _guide(axes: Axes, x: float, words: str) -> None:
    axes.axvline(x, color=style.GUIDE, linewidth=0.9, linestyle=style.DASHED, zorder=1)
    axes.annotate(
        words, (x, 1), xycoords=("data", "axes fraction"), xytext=(0, 3),
        textcoords="offset points", ha="center", fontsize=style.SMALL_SIZE, color=style.QUIET,
    )  # fmt: skip


def _marks(look: Style) -> dict[str, Any]:
    """The arguments of Matplotlib for a line of this look."""
    return {
        "color": look.colour, "linewidth": look.width, "linestyle": look.dash,
        "marker": look.marker, "markersize": style.MARKERS[look.marker or "o"] * 0.8,
        "markerfacecolor": "white" if look.hollow else look.colour, "markeredgewidth": 0.9,
    }  # fmt: skip


def _key(figure: Figure, x: float, y: float, name: str, look: Style) -> None:
    """A short piece of the curve, with the name of its case beside it; y is the baseline."""
    middle = y + 2.5
    marks = _marks(look) | {"marker": None}
    sheet.line(figure, (x, middle), (x + 20, middle), marks.pop("color"), **marks)
    dot = _marks(look) | {"linewidth": 0}
    sheet.line(figure, (x + 10, middle), (x + 10, middle), dot.pop("color"), **dot)
    sheet.text(figure, x + 25, y, name, style.NAME_SIZE, look.text_colour)
