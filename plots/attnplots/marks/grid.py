"""Lays out figures of curves: groups of panels side by side on a page, below each other in a column."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnplots.figures import style
from attnplots.figures.description import Line, Panel, Scale, Sheet
from attnplots.figures.style import Style
from attnplots.marks import dots, panel, sheet
from attnplots.marks.labels import Box
from attnplots.marks.panel import LANE
from attnplots.marks.sheet import LEFT, RIGHT, SMALL_LINE
from attnplots.records.methods import method_text
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
# Of a key: the height of a line, the space above and below all of them, that of a mark, and that between names.
KEY_LINE, KEY_APART, KEY_MARK, KEY_GAP = 11.0, 8.0, 22.0, 12.0
# The longest name in a key, in characters; longer names are cut.
LONGEST = 40
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
    named: bool = True
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
    rows = _rows(figure, content)
    key = _key(figure, every) if content.key else []
    _place(figure, rows)
    above = TOP + SMALL_LINE * len(header)
    head = above + (KEY_LINE * len(key) + KEY_APART if key else 0.0)
    height = head + sum(_height(row) for row in rows) + footer.height
    sheet.size(figure, height)
    sheet.small_lines(figure, height - 12, header)
    _write_key(figure, height - above - KEY_APART / 4, key, content)
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


def _key(figure: Figure, panels: Sequence[Panel]) -> list[list[tuple[str, float]]]:
    """The names of all curves in lines of as many as the sheet has room for, from the top down in each column."""
    methods = sorted({curve.method for shown in panels for curve in shown.curves}, key=method_text)
    if not methods:
        return []
    wide = [sheet.text_width(figure, _name(method), style.NAME_SIZE, "bold") + KEY_MARK + KEY_GAP for method in methods]
    lines, lefts = 0, [math.inf]
    while lefts[-1] > sheet.width(figure) - 2 * sheet.MARGIN + KEY_GAP and lines < len(methods):
        lines += 1
        columns = [max(wide[k : k + lines]) for k in range(0, len(methods), lines)]
        lefts = list(accumulate(columns, initial=0.0))
    return [[(method, sheet.MARGIN + left) for method, left in zip(methods[k::lines], lefts, strict=False)] for k in range(lines)]


def _name(method: str) -> str:
    name = method_text(method)
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}…"


def _write_key(figure: Figure, top: float, key: list[list[tuple[str, float]]], content: Sheet) -> None:
    lined = any(len(c.n) > 1 for group in content.groups for shown in group.panels for c in shown.curves)
    for row, entries in enumerate(key):
        y = top - KEY_LINE * row
        for method, x in entries:
            look = content.looks[method]
            if lined:
                sheet.line(figure, (x, y), (x + 18, y), look.colour, linestyle=look.dash, linewidth=look.width)
            if look.marker or not lined:
                panel.key(figure, x + 9, y, look)
            name = panel.Label([_name(method)], 0.0)
            panel.write(figure, name, x + KEY_MARK, y + panel.NAME_LINE / 2 + 0.5, look)


def _rows(figure: Figure, content: Sheet) -> list[list[_Cell]]:
    groups = content.groups
    narrow = sheet.is_narrow(figure)
    rows: list[list[_Cell]] = []
    for group in groups:
        cells = [_Cell(group.heading if k == 0 else "", p) for k, p in enumerate(group.panels)]
        for cell in cells:
            cell.named = not content.key
            cell.labels = panel.labels_beside(figure, cell.panel.curves, cell.panel.reach) if cell.named else []
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
                cell.headings = sheet.wrapped(figure, cell.heading, style.HEAD_SIZE, "bold", right - cell.left)


def _height(row: list[_Cell]) -> float:
    heading = HEADING * max(len(cell.headings) for cell in row)
    label = X_LABEL if any(cell.label for cell in row) else 0.0
    high = max(cell.high for cell in row)
    return heading + TITLE + LANE * max(c.lanes for c in row) + high + TICKS + label + APART


def _draw_cell(figure: Figure, cell: _Cell, frame: Box, looks: dict[str, Style]) -> None:
    shown = cell.panel
    axes = panel.empty_axes(figure, frame, shown.x, shown.y)
    title = frame.y1 + LANE * cell.lanes + 5
    sheet.text(figure, cell.left, title, shown.title, style.NAME_SIZE, style.TEXT)
    if cell.label:
        sheet.centred(figure, frame, frame.y0 - TICKS - 7, shown.x_label, style.TEXT)
    _thin_ticks(figure, axes, shown.x)
    if shown.y.linear_to:
        panel.thin_symmetric_ticks(axes, shown.y.ticks)
    for bound, colour in shown.bands:
        axes.axhspan(-bound, bound, color=colour, linewidth=0, zorder=0.5)
    for line in shown.lines:
        if shown.dots:
            axes.axvline(line.value, color=style.GUIDE, linewidth=0.9, zorder=1.5)
        else:
            panel.line_at(axes, line, shown.curves, looks)
    if shown.curves:
        ink, taken = panel.draw(
            figure, axes, frame, shown.curves, looks, cell.gap, shown.reach, shown.keyed, cell.names - cell.gap,
            cell.named,
        )
        panel.strip(figure, axes, frame, shown.curves, looks)
        heights = np.linspace(frame.y0, frame.y1, 60)
        ink = np.concatenate([ink, *([(panel.place_across(axes, x), y) for y in heights] for x, _ in shown.rules)])
        _line_names(figure, axes, frame, shown, looks, ink, taken)
        if shown.growth:
            span = float(min(shown.x.ticks[0])), shown.x.limits[1]
            panel.guides(figure, axes, frame, ink, taken, span, shown.growth)
    else:
        if not shown.dots:
            _line_names(figure, axes, frame, shown, looks, np.empty((0, 2)), [])
        middle = (frame.y0 + frame.y1) / 2
        sheet.centred(figure, frame, middle, shown.empty, style.QUIET)
    if shown.rules:
        panel.rules(figure, axes, frame, shown, looks)
    if shown.dots:
        dots.draw(figure, axes, frame, shown, looks)
    for marks in shown.marks:
        panel.described_marks(axes, marks)


def _line_names(
    figure: Figure, axes: Axes, frame: Box, shown: Panel, looks: dict[str, Style], ink: np.ndarray, taken: list[Box]
) -> None:
    """Writes the names of horizontal lines, each at that end of its line, above or below it, where it hides the least; if
    nothing hides anything, above the right end. Adds their boxes to `taken`."""
    for line in shown.lines:
        if not line.name:
            continue
        left, right, y = _ends(axes, line, shown, frame)
        wide = sheet.text_width(figure, line.name, style.SMALL_SIZE)
        lefts = (max(right - 2 - wide, frame.x0 + 2), min(left + 4, frame.x1 - wide))
        places = [Box(x, low, x + wide, low + LINE_NAME) for x in lefts for low in (y + 1, y - 1 - LINE_NAME)]
        heights = [_ends(axes, other, shown, frame)[2] for other in shown.lines if other.value != line.value]
        others = np.array([(x + wide / 2, height) for x in lefts for height in heights]).reshape(-1, 2)

        def hidden(box: Box, others: np.ndarray = others) -> float:
            return box.grown(1.0).holds(ink) + 100 * box.holds(others) + sum(map(box.overlap, taken))

        box = min(places, key=hidden)
        taken.append(box)
        colour = looks[line.method].text_colour if line.method else style.QUIET
        sheet.text(figure, box.x0, box.y0 + 1.5, line.name, style.SMALL_SIZE, colour, gid="line")


def _ends(axes: Axes, line: Line, shown: Panel, frame: Box) -> tuple[float, float, float]:
    """The left and the right end of a line and its height, in points."""
    span = panel.line_span(line, shown.curves) if line.method else axes.get_xlim()
    (left, y), (right, _) = axes.transData.transform([(x, line.value) for x in span])
    return (left, right, y) if line.method else (frame.x0, frame.x1, y)


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
