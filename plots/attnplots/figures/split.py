"""The figure of what the peak memory of a call consists of: inputs, output, decoding state, what
forward keeps for backward, and workspace."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnplots.records import rows as data
from attnplots.figures import style
from attnplots.marks import panel, sheet
from attnplots.records import environment
from attnplots.records.rows import Row
from attnplots.marks.labels import Box
from attnplots.marks.panel import Label
from attnplots.records.records import Record, Records, RecordsError
from attnplots.marks.sheet import MARGIN
from attnplots.figures.style import Style
from attnplots.records.words import bytes_text


@dataclass(frozen=True)
class Part:
    """A part of the peak: its name, and its colour, which no method has."""

    name: str
    colour: str


# From the left to the right. Each part is darker than the one before it, so that they can be told
# apart in grey.
PARTS = {
    "input_bytes": Part("inputs", "#e2e6eb"),
    "output_bytes": Part("output", "#b3bdc9"),
    "state_bytes": Part("decoding state", "#8694a6"),
    "saved_bytes": Part("kept for backward", "#5b6a7e"),
    "workspace": Part("workspace", "#2a3442"),
}
WORKSPACE = "workspace"
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
# The space between the names and the bars, and that for the peaks at the right.
GAP = 8.0
PEAK = 42.0


def parts_of(record: Record) -> dict[str, float]:
    """The bytes of each part of the peak of a record, for one sequence; their sum is the peak.

    Records have the size of each part, but not which parts are alive at the moment of the peak:
    backward frees what forward kept while it makes the gradients. So a part counts as far as the peak
    has room for it beside the parts before it, and the workspace is the rest.
    """
    left = float(record["peak_allocated_bytes"])
    found = {}
    for name in PARTS:
        size = left if name == WORKSPACE else min(float(record.get(name) or 0), left)
        found[name] = size / record["batch"]
        left -= size
    return found


def draw(*folders: Records) -> Figure:
    """Draws a panel of bars for each setting of each folder, at the longest length that most methods
    have."""
    rows: list[Row] = []
    absent: list[str] = []
    for folder in folders:
        present, notes = data.on_present_devices(folder)
        rows += [row for row in data.split_rows(present) if _shown(row)]
        absent += notes
    if not rows:
        raise RecordsError("expected measured records with peak_allocated_bytes, found none")
    shown = [record for row in rows for record in _shown(row)]
    figure = sheet.figure()
    header = sheet.wrapped_parts(figure, sheet.setting(shown))
    legend = _legend(figure, shown)
    footer = sheet.footer(figure, [*_notes(rows), *dict.fromkeys(absent)], environment.stamp(shown))
    labels = {record["method"]: _label(figure, record["method"]) for record in shown}
    heights = [HEADING + sum(_rows(row, labels)) + TICKS + APART for row in rows]
    top = TOP + sheet.SMALL_LINE * len(header) + LINE * len(legend) + APART / 2 + footer.height + sum(heights)
    sheet.size(figure, top)
    sheet.small_lines(figure, top - 12, header)
    top -= TOP + sheet.SMALL_LINE * len(header)
    for entries in legend:
        _write_legend(figure, top - 8, entries)
        top -= LINE
    top -= APART / 2
    looks = style.styles(labels)
    for row, height in zip(rows, heights, strict=True):
        _panel(figure, row, looks, top, labels)
        top -= height
    footer.write(figure)
    return figure


def _label(figure: Figure, method: str) -> Label:
    """The name of a method, in one line if the sheet is wide."""
    if sheet.is_narrow(figure):
        return panel.method_label(figure, method)
    name = data.method_text(method)
    return Label([name], sheet.text_width(figure, name, style.NAME_SIZE, "bold"))


def _rows(row: Row, labels: dict[str, Label]) -> list[float]:
    """The heights of the lines of a panel."""
    return [max(ROW, labels[record["method"]].height + AROUND) for record in _shown(row)]


def _at_longest(row: Row) -> int | None:
    """The longest length that most methods have a peak at; None if there is none."""
    methods: dict[int, set[str]] = {}
    for record in row.records:
        if record["outcome"] == "measured" and record.get("peak_allocated_bytes"):
            methods.setdefault(record["query_len"], set()).add(record["method"])
    most = max((len(found) for found in methods.values()), default=0)
    return max((n for n, found in methods.items() if len(found) == most), default=None)


def _shown(row: Row) -> list[Record]:
    """The records that have bars, largest peak first."""
    length = _at_longest(row)
    found = [
        record for record in row.records
        if record["outcome"] == "measured" and record.get("peak_allocated_bytes") and record["query_len"] == length
    ]  # fmt: skip
    return sorted(found, key=lambda record: -record["peak_allocated_bytes"] / record["batch"])


def _notes(rows: Sequence[Row]) -> list[str]:
    """What the bars are, and which methods have none."""
    notes = ["Bars: shares of the peak memory that the allocator counts. Sizes are of one sequence."]
    if any(record.get("saved_bytes") for row in rows for record in _shown(row)):
        notes.append(
            "With backward, the output includes the gradients of q, k and v. What forward keeps for backward is freed "
            "while these are made, so it counts as far as the peak has room for it beside inputs and output. "
            "Workspace is the rest."
        )
    else:
        notes.append("Workspace is what remains of the peak.")
    for row in rows:
        length, shown = _at_longest(row), {record["method"] for record in _shown(row)}
        why: dict[str, str] = {}
        for record in row.records:
            if record["method"] not in shown:
                why.setdefault(record["method"], "not measured there")
                if record["query_len"] == length and record["outcome"] != "measured":
                    why[record["method"]] = data.reason_of(record).text
        if why:
            listed = ", ".join(f"{data.method_text(method)} ({reason})" for method, reason in why.items())
            notes.append(f"No bar in {row.title}, N = {length:,}: {listed}.")
    return notes


def _legend(figure: Figure, shown: Sequence[Record]) -> list[list[Part]]:
    """The parts that any bar has, in lines that fit the sheet."""
    sums = [parts_of(record) for record in shown]
    lines: list[list[Part]] = [[]]
    room = sheet.width(figure) - 2 * MARGIN
    used = 0.0
    for name, part in PARTS.items():
        if not any(parts[name] for parts in sums):
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


def _panel(figure: Figure, row: Row, looks: dict[str, Style], top: float, labels: dict[str, Label]) -> None:
    shown, heights = _shown(row), _rows(row, labels)
    sheet.heading(figure, MARGIN, top - 12, f"{row.title} · N = {shown[0]['query_len']:,}")
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
    for record, high in zip(shown, heights, strict=True):
        look, label = looks[record["method"]], labels[record["method"]]
        middle = down + high / 2
        y = top - HEADING - middle
        panel.mark(figure, MARGIN + 3, y + (label.height - panel.NAME_LINE) / 2, look, "mark")
        panel.write(figure, label, MARGIN + MARK, y + label.height / 2, look)
        parts = parts_of(record)
        _bar(figure, axes, middle, parts, right - left)
        total = bytes_text(sum(parts.values()))
        sheet.text(figure, sheet.width(figure) - MARGIN, y - 2.5, total, style.SMALL_SIZE, style.TEXT, ha="right")
        down += high


def _bar(figure: Figure, axes: Axes, y: float, parts: dict[str, float], wide: float) -> None:
    """Draws the bar of a case as a share of its peak, with the size of each part that has room for it."""
    peak, left = sum(parts.values()), 0.0
    for name, size in parts.items():
        share, colour = size / peak, PARTS[name].colour
        axes.barh(y, share, left=left, height=BAR, color=colour, edgecolor="white", linewidth=0.5, gid=name)
        words = bytes_text(size)
        if size and sheet.text_width(figure, words, style.SMALL_SIZE) + 4 < share * wide:
            ink = "white" if style.luminance(colour) < DARK else style.TEXT
            where = {"ha": "center", "va": "center", "fontsize": style.SMALL_SIZE, "gid": "size"}
            axes.text(left + share / 2, y + 0.2, words, color=ink, **where)
        left += share
