"""Lays out figures of curves: groups of panels side by side on a page, below each other in a column."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnplots.figures import style
from attnplots.figures.description import Group, Panel, Scale, Sheet
from attnplots.figures.style import Style
from attnplots.marks import dots, panel, sheet
from attnplots.marks.labels import Box
from attnplots.marks.panel import LANE
from attnplots.marks.sheet import LEFT, RIGHT, SMALL_LINE
from attnplots.records.rows import STRIP_NOTE

# The space from a panel's names to the texts of the ticks of the next panel's axis.
MIDDLE = 40.0
TOP = 14.0
HEADING = 12.0
TITLE = 13.0
# The height of panels on a page and in a column.
PANEL, LOW_PANEL = 124.0, 100.0
TICKS = 14.0
X_LABEL = 12.0
APART = 8.0
GAP = 9.0
# A panel with CROWD names or more needs the wide gap for the leaders of the names.
WIDE_GAP = 18.0
CROWD = 6
# The height of the name of a horizontal line.
LINE_NAME = 7.5
# Names beside a panel may stick out above and below it by this much together.
STICK_OUT = 11.0


@dataclass
class _Cell:
    heading: str
    panel: Panel
    headings: list[str] = field(default_factory=list)
    names: float = 0.0
    left: float = 0.0
    wide: float = 0.0
    lanes: int = 0
    least: float = PANEL
    label: bool = True
    labels: list[panel.Label] = field(default_factory=list)

    @property
    def gap(self) -> float:
        return WIDE_GAP if len(self.labels) >= CROWD and not self.panel.keyed else GAP + 3 * self.panel.keyed

    @property
    def high(self) -> float:
        return self.panel.high or max(self.least, sum(label.height for label in self.labels) - STICK_OUT)


def draw(content: Sheet) -> Figure:
    """Draws a sheet. On a page two panels are side by side: those of a group, or groups of one
    panel; in a column each panel has a row of its own."""
    figure = sheet.figure()
    content = dots.of(content, sheet.is_narrow(figure)) if content.dots else content
    header = sheet.wrapped_parts(figure, content.header)
    every = [shown for group in content.groups for shown in group.panels]
    strips = [STRIP_NOTE] if any(c.gaps for shown in every for c in shown.curves) else []
    footer = sheet.footer(figure, [*content.notes, *strips], content.stamp)
    rows = _rows(figure, content.groups)
    _place(figure, rows)
    head = TOP + SMALL_LINE * len(header)
    height = head + sum(_height(row) for row in rows) + footer.height
    sheet.size(figure, height)
    sheet.small_lines(figure, height - 12, header)
    top = height - head
    for row in rows:
        lanes = max(cell.lanes for cell in row)
        headings = max(len(cell.headings) for cell in row)
        for cell in row:
            for k, words in enumerate(cell.headings):
                sheet.heading(figure, cell.left, top - 4 - HEADING * k, words)
            y1 = top - HEADING * headings - TITLE - LANE * lanes
            high = max(c.high for c in row)
            frame = Box(cell.left, y1 - high, cell.left + cell.wide, y1)
            _draw_cell(figure, cell, frame, content.looks)
        top -= _height(row)
    footer.write(figure)
    return figure


def _rows(figure: Figure, groups: Sequence[Group]) -> list[list[_Cell]]:
    narrow = sheet.is_narrow(figure)
    rows: list[list[_Cell]] = []
    for group in groups:
        cells = [_Cell(group.heading if k == 0 else "", p) for k, p in enumerate(group.panels)]
        for cell in cells:
            cell.labels = panel.labels_beside(figure, cell.panel.curves, cell.panel.reach)
            cell.least = LOW_PANEL if narrow else PANEL
            cell.lanes = len(panel.lanes(cell.panel.curves))
            cell.names = cell.gap + max((label.width for label in cell.labels), default=0.0)
        if narrow:
            rows += [[cell] for cell in cells]
        elif len(cells) == 1 and rows and len(rows[-1]) == 1 and len(groups) > 1:
            rows[-1].append(cells[0])
        else:
            rows += [cells[i : i + 2] for i in range(0, len(cells), 2)]
    for above, below in zip(rows, rows[1:], strict=False):
        for cell, other in zip(above, below, strict=False):
            cell.label = cell.panel.x_label != other.panel.x_label
    return rows


def _place(figure: Figure, rows: list[list[_Cell]]) -> None:
    """Sets the left edge and the width of each panel; panels below each other have the same."""
    count = max(len(row) for row in rows)
    names = [max(row[k].names for row in rows if len(row) > k) for k in range(count)]
    texts = [
        max(sheet.text_width(figure, t, style.NAME_SIZE) for row in rows if len(row) > k
            for t in [*row[k].panel.y.ticks[1], ""]) for k in range(count)
    ]  # fmt: skip
    edges = [max(LEFT if k == 0 else MIDDLE, 8 + text) for k, text in enumerate(texts)]
    free = sheet.width(figure) - RIGHT - sum(edges) - sum(names)
    left = 0.0
    for k in range(count):
        left += edges[k]
        for row in rows:
            if len(row) > k:
                row[k].left, row[k].wide = left, free / count
        left += free / count + names[k]
    for row in rows:
        for k, cell in enumerate(row):
            if cell.heading:
                # The heading of several panels is above all of them.
                others = [other for other in row[k + 1 :] if other.heading]
                right = others[0].left - LEFT / 2 if others else sheet.width(figure) - sheet.MARGIN
                cell.headings = sheet.wrapped(
                    figure, cell.heading, style.HEAD_SIZE, "bold", right - cell.left
                )


def _height(row: list[_Cell]) -> float:
    heading = HEADING * max(len(cell.headings) for cell in row)
    label = X_LABEL if any(cell.label for cell in row) else 0.0
    high = max(cell.high for cell in row)
    return heading + TITLE + LANE * max(c.lanes for c in row) + high + TICKS + label + APART


def _draw_cell(figure: Figure, cell: _Cell, frame: Box, looks: dict[str, Style]) -> None:
    shown = cell.panel
    scales = (shown.x, shown.y)
    axes = panel.empty_axes(
        figure, frame, shown.x.limits, shown.y.limits, shown.x.ticks, shown.y.ticks,
        (scales[0].logarithmic, scales[1].logarithmic), shown.y.linear_to,
    )  # fmt: skip
    title = frame.y1 + LANE * cell.lanes + 5
    sheet.text(figure, cell.left, title, shown.title, style.NAME_SIZE, style.TEXT)
    if cell.label:
        sheet.centred(figure, frame, frame.y0 - TICKS - 7, shown.x_label, style.TEXT)
    _thin_ticks(figure, axes, shown.x)
    if shown.y.linear_to:
        panel.thin_symmetric_ticks(axes, shown.y.ticks)
    for bound, colour in shown.bands:
        axes.axhspan(-bound, bound, color=colour, linewidth=0, zorder=0.5)
    for value, _ in shown.lines:
        if shown.dots:
            axes.axvline(value, color=style.GUIDE, linewidth=0.9, zorder=1.5)
        else:
            panel.line_at(axes, value)
    if shown.curves:
        ink, taken = panel.draw(
            figure, axes, frame, shown.curves, looks, cell.gap, shown.reach, shown.keyed, cell.names - cell.gap
        )
        panel.strip(figure, axes, frame, shown.curves, looks)
        _line_names(figure, axes, frame, shown.lines, ink, taken)
        if shown.growth:
            span = float(min(shown.x.ticks[0])), shown.x.limits[1]
            panel.guides(figure, axes, frame, ink, taken, span, shown.growth)
    else:
        _line_names(figure, axes, frame, () if shown.dots else shown.lines, np.empty((0, 2)), [])
        middle = (frame.y0 + frame.y1) / 2
        sheet.centred(figure, frame, middle, shown.empty, style.QUIET)
    if shown.rules:
        panel.rules(figure, axes, frame, shown, looks)
    if shown.dots:
        dots.draw(figure, axes, frame, shown, looks)
    for marks in shown.marks:
        panel.described_marks(axes, marks)


def _line_names(
    figure: Figure, axes: Axes, frame: Box, lines: Sequence[tuple[float, str]], ink: np.ndarray, taken: list[Box]
) -> None:
    """Writes the names of horizontal lines, each at that end of its line, above or below it, where it hides the least; if
    nothing hides anything, above the right end. Adds their boxes to `taken`."""
    left = axes.get_xlim()[0]
    heights = [float(axes.transData.transform((left, value))[1]) for value, _ in lines]
    for y, (_, name) in zip(heights, lines, strict=True):
        if not name:
            continue
        wide = sheet.text_width(figure, name, style.SMALL_SIZE)
        places = [Box(x, low, x + wide, low + LINE_NAME) for x in (frame.x1 - 2 - wide, frame.x0 + 4) for low in (y + 1, y - 1 - LINE_NAME)]
        others = [np.array([(x, other) for x in (frame.x1 - 2 - wide / 2, frame.x0 + 4 + wide / 2)]) for other in heights if other != y]

        def hidden(box: Box, others: list[np.ndarray] = others) -> float:
            return box.grown(1.0).holds(ink) + 100 * sum(map(box.holds, others)) + sum(map(box.overlap, taken))

        box = min(places, key=hidden)
        taken.append(box)
        sheet.text(figure, box.x0, box.y0 + 1.5, name, style.SMALL_SIZE, style.QUIET, gid="line")


def _thin_ticks(figure: Figure, axes: Axes, scale: Scale) -> None:
    """Leaves out the texts of ticks that would overlap the text before them. On a linear axis every
    second text stays then, or every third and so on."""
    if not scale.logarithmic:
        _thin_evenly(axes, scale, lambda words: sheet.text_width(figure, words, style.NAME_SIZE))
        return
    end = -1e9
    texts = []
    for value, words in zip(*scale.ticks, strict=True):
        middle = float(axes.transData.transform((value, axes.get_ylim()[0]))[0])
        half = sheet.text_width(figure, words, style.NAME_SIZE) / 2
        fits = middle - half > end + 2
        texts.append(words if fits else "")
        end = middle + half if fits else end
    axes.set_xticks(scale.ticks[0], texts)


def _thin_evenly(axes: Axes, scale: Scale, wide: Callable[[str], float]) -> None:
    values, texts = scale.ticks
    places = [float(axes.transData.transform((v, axes.get_ylim()[0]))[0]) for v in values]
    spans = [(x - wide(t) / 2, x + wide(t) / 2) for x, t in zip(places, texts, strict=True)]

    def fits(step: int) -> bool:
        kept = spans[::step]
        return all(b[0] > a[1] + 2 for a, b in zip(kept, kept[1:], strict=False))

    step = next((k for k in range(1, len(texts)) if fits(k)), max(1, len(texts)))
    axes.set_xticks(values, [t if k % step == 0 else "" for k, t in enumerate(texts)])
