"""Draws bars that consist of parts, each bar as a share of its sum."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnplots.figures import style
from attnplots.figures.description import Bar, Bars, Part
from attnplots.marks import panel, sheet
from attnplots.marks.labels import Box
from attnplots.marks.panel import Label
from attnplots.marks.sheet import MARGIN
from attnplots.records.methods import method_text
from attnplots.records.words import bytes_text

# Parts that are darker than this, on a scale from 0 to 1, have white text.
DARK = 0.25

ROW = 14.0
BAR = 11.0
# The space above and below the lines of a name that is broken, which it is on narrow sheets.
AROUND = 4.6
HEADING = 24.0
TICKS = 16.0
APART = 8.0
LINE = 12.0
TOP = 14.0
# The space for the mark in front of a name.
MARK = 10.0
# The space between the names and the bars, and that for the sums at the right.
GAP = 8.0
PEAK = 42.0


def draw(content: Bars) -> Figure:
    """Draws the bars below a legend of their parts."""
    figure = sheet.figure()
    header = sheet.wrapped_parts(figure, content.header)
    every = [bar for _, bars in content.panels for bar in bars]
    legend = _legend(figure, content.parts, every)
    footer = sheet.footer(figure, content.notes, content.stamp)
    labels = {bar.method: _label(figure, bar.method) for bar in every}
    heights = [HEADING + sum(_rows(bars, labels)) + TICKS + APART for _, bars in content.panels]
    top = TOP + sheet.SMALL_LINE * len(header) + LINE * len(legend) + APART / 2 + footer.height + sum(heights)
    sheet.size(figure, top)
    sheet.small_lines(figure, top - 12, header)
    top -= TOP + sheet.SMALL_LINE * len(header)
    for entries in legend:
        _write_legend(figure, top - 8, entries)
        top -= LINE
    top -= APART / 2
    for (heading, bars), height in zip(content.panels, heights, strict=True):
        sheet.heading(figure, MARGIN, top - 12, heading)
        _panel(figure, bars, content, top, labels)
        top -= height
    footer.write(figure)
    return figure


def _label(figure: Figure, method: str) -> Label:
    """The name of a method, in one line if the sheet is wide."""
    if sheet.is_narrow(figure):
        return panel.method_label(figure, method)
    name = method_text(method)
    return Label([name], sheet.text_width(figure, name, style.NAME_SIZE, "bold"))


def _rows(bars: Sequence[Bar], labels: dict[str, Label]) -> list[float]:
    """The heights of the lines of a panel."""
    return [max(ROW, labels[bar.method].height + AROUND) for bar in bars]


def _legend(figure: Figure, parts: dict[str, Part], shown: Sequence[Bar]) -> list[list[Part]]:
    """The parts that any bar has, in lines that fit the sheet."""
    lines: list[list[Part]] = [[]]
    room = sheet.width(figure) - 2 * MARGIN
    used = 0.0
    for name, part in parts.items():
        if not any(bar.sizes[name] for bar in shown):
            continue
        wide = _entry_width(figure, part)
        if lines[-1] and used + wide > room:
            lines.append([])
            used = 0.0
        lines[-1].append(part)
        used += wide
    return lines


def _entry_width(figure: Figure, part: Part) -> float:
    return 26 + sheet.text_width(figure, part.name, style.NAME_SIZE)


def _write_legend(figure: Figure, y: float, entries: Sequence[Part]) -> None:
    x = MARGIN
    for part in entries:
        sheet.line(figure, (x, y + 3), (x + 10, y + 3), part.colour, linewidth=7, solid_capstyle="butt")
        sheet.text(figure, x + 14, y, part.name, style.NAME_SIZE, style.TEXT, gid="part")
        x += _entry_width(figure, part)


def _panel(figure: Figure, bars: Sequence[Bar], content: Bars, top: float, labels: dict[str, Label]) -> None:
    heights = _rows(bars, labels)
    names = max(label.width for label in labels.values())
    left, right = MARGIN + MARK + names + GAP, sheet.width(figure) - MARGIN - PEAK
    sheet.text(figure, sheet.width(figure) - MARGIN, top - 21, "peak", style.SMALL_SIZE, style.QUIET, ha="right")
    bottom = top - HEADING - sum(heights)
    axes = sheet.axes(figure, Box(left, bottom, right, top - HEADING))
    axes.set_xlim(0, 1)
    # Vertical places are in points from the top.
    axes.set_ylim(sum(heights), 0)
    axes.grid(False)
    axes.set_yticks([])
    axes.set_xticks([0, 0.5, 1], ["0 %", "50 %", "100 %"], fontsize=style.SMALL_SIZE)
    axes.spines["left"].set_visible(False)
    down = 0.0
    for bar, high in zip(bars, heights, strict=True):
        look, label = content.looks[bar.method], labels[bar.method]
        middle = down + high / 2
        y = top - HEADING - middle
        panel.mark(figure, MARGIN + 3, y + (label.height - panel.NAME_LINE) / 2, look, "mark")
        panel.write(figure, label, MARGIN + MARK, y + label.height / 2, look)
        _bar(figure, axes, middle, bar.sizes, content.parts, right - left)
        total = bytes_text(sum(bar.sizes.values()))
        sheet.text(figure, sheet.width(figure) - MARGIN, y - 2.5, total, style.SMALL_SIZE, style.TEXT, ha="right")
        down += high


def _bar(figure: Figure, axes: Axes, y: float, sizes: dict[str, float], parts: dict[str, Part], wide: float) -> None:
    """Draws the bar of a case as a share of its peak, with the size of each part that has room for it."""
    peak, left = sum(sizes.values()), 0.0
    for name, size in sizes.items():
        share, colour = size / peak, parts[name].colour
        axes.barh(y, share, left=left, height=BAR, color=colour, edgecolor="white", linewidth=0.5, gid=name)
        words = bytes_text(size)
        if size and sheet.text_width(figure, words, style.SMALL_SIZE) + 4 < share * wide:
            ink = "white" if style.luminance(colour) < DARK else style.TEXT
            where = {"ha": "center", "va": "center", "fontsize": style.SMALL_SIZE, "gid": "size"}
            axes.text(left + share / 2, y + 0.2, words, color=ink, **where)
        left += share
