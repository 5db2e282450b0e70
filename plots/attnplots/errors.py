"""The figure of approximation errors: the error of the output against the time of a call."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from attnplots import curves as data
from attnplots import panel, sheet, style, ticks
from attnplots.curves import Measure, Row
from attnplots.labels import Box, spread
from attnplots.records import Record, Records, RecordsError
from attnplots.sheet import LEFT, RIGHT, SMALL_LINE, WIDTH
from attnplots.style import Style

# Methods that compute exact attention. They have no error and are drawn as lines at their time.
EXACT = ("softmax", "sdpa")
LENGTHS = (1024, 4096, 16384)
ERROR = Measure(
    "approximation error",
    "Relative distance from the exact attention",
    lambda record: (record.get("approximation_error"), None, None),
)

TOP = 30.0
HEADING = 64.0
PANEL = 200.0
TICKS = 24.0
APART = 12.0
X_LABEL = 18.0
FOOT = 10.0
BETWEEN = 18.0
NAME_APART = 8.0
# The share of a time axis that stays free at the right for the names of the slowest methods.
ROOM = 0.15
# Names may cross the lines of the exact methods. A white halo keeps their letters readable.
HALO = withStroke(linewidth=2.5, foreground="white")


@dataclass(frozen=True)
class Mark:
    """One method at one length: its time per sample in ms, and its error, None if it is exact."""

    method: str
    time: float
    error: float | None


def draw(records: Records) -> Figure:
    """Draws a row of panels for each setting and a column for each of up to three lengths."""
    every = _forward(records)
    rows = data.split_rows(every)
    lengths = _lengths(_timed(every))
    looks = style.styles(record["method"] for record in records)
    panels = [[_marks(row, n) for n in lengths] for row in rows]

    figure = sheet.figure()
    header = sheet.wrapped(figure, sheet.setting(every))
    footer = sheet.wrapped_all(figure, _notes(rows, lengths))
    wide = (WIDTH - LEFT - RIGHT - BETWEEN * (len(LENGTHS) - 1)) / len(LENGTHS)
    head = TOP + SMALL_LINE * (len(header) - 1)
    height = head + len(rows) * (HEADING + PANEL + TICKS + APART)
    height += X_LABEL + FOOT + SMALL_LINE * len(footer)
    sheet.size(figure, height)

    sheet.small_lines(figure, height - 18, header)
    errors = [mark.error for row in panels for marks in row for mark in marks if mark.error]
    y_limits = ticks.around(errors)
    top = height - head
    for i, row in enumerate(rows):
        sheet.heading(figure, LEFT, top - 13, row.title)
        sheet.text(figure, LEFT, top - 29, ERROR.title, style.NAME_SIZE, style.TEXT)
        bottom = top - HEADING - PANEL
        for k, n in enumerate(lengths):
            left = LEFT + k * (wide + BETWEEN)
            frame = Box(left, bottom, left + wide, bottom + PANEL)
            # The panels of a column share the limits, so that settings can be compared by eye.
            x_limits = _x_limits([mark.time for marks in panels for mark in marks[k]])
            axes = panel.empty_axes(
                figure,
                frame,
                x_limits,
                y_limits,
                ticks.times(x_limits, between=(3,)),
                ticks.times(y_limits),
            )
            axes.tick_params(labelleft=k == 0)
            sheet.subheading(figure, left, frame.y1 + 19, f"N = {data.size_text(n)}")
            _panel(figure, axes, frame, panels[i][k], looks)
            if i == len(rows) - 1:
                sheet.centred(figure, frame, bottom - TICKS - 9, data.TIME.title, style.TEXT)
        top = bottom - TICKS - APART
    sheet.small_lines(figure, top - X_LABEL - FOOT, footer)
    return figure


def _forward(records: Records) -> Records:
    """The records of the forward pass, which has the error; all records if it has no time."""
    if not _timed(records):
        raise RecordsError("expected at least one measured record with a time, found none")
    forward = records.where(lambda record: record["protocol"] == "forward")
    return forward if _timed(forward) else records


def _timed(records: list[Record]) -> list[Record]:
    return [record for record in records if record["outcome"] == "measured" and _time(record)]


def _time(record: Record) -> float | None:
    return _positive(data.TIME.value(record)[0])


def _positive(value: float | None) -> float | None:
    """The value if it is above 0, so that a logarithmic axis can show it, otherwise None."""
    return value if value is not None and value > 0 else None


def _lengths(timed: list[Record]) -> list[int]:
    """The LENGTHS that were measured, or else the shortest, middle and longest measured length."""
    found = sorted({record["query_len"] for record in timed})
    chosen = [n for n in LENGTHS if n in found]
    return chosen or sorted({found[0], found[len(found) // 2], found[-1]})


def _marks(row: Row, n: int) -> list[Mark]:
    marks = []
    for record in row.records:
        time, error = _time(record), _positive(ERROR.value(record)[0])
        if record["query_len"] != n or record["outcome"] != "measured" or not time:
            continue
        if record["method"] in EXACT:
            marks.append(Mark(record["method"], time, None))
        elif error:
            marks.append(Mark(record["method"], time, error))
    return marks


def _x_limits(times: list[float]) -> ticks.Limits:
    low, high = ticks.around(times)
    return low, high * (high / low) ** ROOM


def _panel(
    figure: Figure, axes: Axes, frame: Box, marks: list[Mark], looks: dict[str, Style]
) -> None:
    """Draws lines with their names above the panel, and marks with their names beside them."""
    exact = sorted((mark for mark in marks if not mark.error), key=lambda mark: mark.time)
    _lines(figure, axes, frame, exact, looks)
    lines = [float(axes.transData.transform((mark.time, 1.0))[0]) for mark in exact]
    # Lines have few points, so that a name may cross a line where it would otherwise be far away.
    ink = [np.array([(x, y) for x in lines for y in np.arange(frame.y0, frame.y1, 6.0)])]
    tips: dict[str, tuple[float, float]] = {}
    for mark in marks:
        if mark.error:
            panel.marks(axes, [mark.time], [mark.error], looks[mark.method], 3.0)
            x, y = axes.transData.transform((mark.time, mark.error))
            ink.append(np.array([(x + a, y + b) for a in (-3, 0, 3) for b in (-3, 0, 3)]))
            tips[mark.method] = float(x), float(y)
    points = np.concatenate([part.reshape(-1, 2) for part in ink])
    taken: list[Box] = []
    # The slowest methods are placed first, because the free space is beside them.
    for method, tip in sorted(tips.items(), key=lambda item: -item[1][0]):
        form = panel.method_label(figure, method, [], narrow=True)
        panel.name_near(figure, tip, [form], looks[method], points, taken, frame)
    for text in figure.texts:
        if text.get_gid() == "label":
            text.set_path_effects([HALO])
    if not tips:
        middle = (frame.y0 + frame.y1) / 2
        reason = "no approximation measured" if marks else "nothing measured"
        sheet.centred(figure, frame, middle, reason, style.QUIET)


def _lines(
    figure: Figure, axes: Axes, frame: Box, exact: list[Mark], looks: dict[str, Style]
) -> None:
    """Draws a line for each exact method and writes their names in a row above the panel."""
    labels = [panel.method_label(figure, mark.method, [], narrow=False) for mark in exact]
    wanted = [float(axes.transData.transform((mark.time, 1.0))[0]) for mark in exact]
    widths = [label.width + NAME_APART for label in labels]
    centres = spread(wanted, widths, frame.x0, frame.x1)
    for mark, label, x, centre in zip(exact, labels, wanted, centres, strict=True):
        look = looks[mark.method]
        axes.axvline(mark.time, color=look.colour, linestyle=look.dash, linewidth=1.2)
        panel.write(figure, label, centre - label.width / 2, frame.y1 + panel.NAME_LINE + 3, look)
        if abs(centre - x) > label.width / 2:
            panel.leader(figure, (x, frame.y1), (centre, frame.y1 + 4), look)


def _notes(rows: list[Row], lengths: list[int]) -> list[str]:
    """Notes that explain the lines and say which methods have no mark, and why."""
    texts = []
    shown = [Row(row.title, [r for r in row.records if r["query_len"] in lengths]) for row in rows]
    every = [record for row in shown for record in row.records]
    exact = dict.fromkeys(r["method"] for r in every if r["method"] in EXACT)
    if exact:
        texts.append(f"Lines mark the times of exact methods ({', '.join(sorted(exact))}).")
    without_error = _without_error(every)
    if without_error:
        names = ", ".join(data.method_text(method) for method in sorted(without_error))
        why = "for example because the method approximates no other"
        texts.append(f"No approximation error was recorded, {why}: {names}.")

    def wanted(record: Record) -> list[Measure]:
        with_error = record["method"] not in without_error.union(EXACT)
        return [data.TIME, ERROR] if with_error else [data.TIME]

    return texts + data.notes(shown, wanted, data.SEQUENCE, ends=False)


def _without_error(records: list[Record]) -> set[str]:
    """The methods that were measured without an approximation error."""
    measured = [r for r in records if r["outcome"] == "measured" and r["method"] not in EXACT]
    methods = {record["method"] for record in measured}
    return methods - {r["method"] for r in measured if ERROR.value(r)[0] is not None}
