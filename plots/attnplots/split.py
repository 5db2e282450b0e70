"""The figure of what the peak memory of a call consists of: inputs, output, decoding state, what
forward keeps for backward, and workspace."""

from matplotlib.figure import Figure

from attnplots import curves as data
from attnplots import environment, sheet, style
from attnplots.curves import Row
from attnplots.labels import Box
from attnplots.records import Record, Records, RecordsError
from attnplots.sheet import LEFT, MARGIN, RIGHT
from attnplots.words import bytes_text

# The parts from the bottom up, with their names and greys that differ in lightness; the workspace is
# what remains of the peak.
PARTS = {
    "input_bytes": ("inputs", "#c9ccd1"),
    "output_bytes": ("output", "#9aa0a8"),
    "state_bytes": ("state", "#6b727c"),
    "saved_bytes": ("kept for backward", "#58aee8"),
    "workspace": ("workspace", "#0b4a91"),
}
BAR = 13.0
BETWEEN = 4.0
TOP = 34.0
NAMES = 120.0
AXIS = 26.0
APART = 18.0


def parts_of(record: Record) -> dict[str, float]:
    """The bytes of each part of the peak of a record. Output and what is kept may be counted in both;
    the workspace is never below zero."""
    found = {name: float(record.get(name) or 0) for name in PARTS if name != "workspace"}
    peak = float(record["peak_allocated_bytes"])
    found["workspace"] = max(0.0, peak - sum(found.values()))
    return {name: value / record["batch"] for name, value in found.items()}


def draw(records: Records) -> Figure:
    """Draws a panel of bars for each setting, at the longest length that most methods have."""
    present, absent = data.on_present_devices(records)
    rows = [row for row in data.split_rows(present) if _shown(row)]
    if not rows:
        raise RecordsError("expected measured records with peak_allocated_bytes, found none")
    figure = sheet.figure()
    notes = ["Peak memory of one sequence, as the allocator counts it.", *absent]
    footer = sheet.footer(figure, notes, environment.stamp(present))
    heights = [AXIS + len(_shown(row)) * (BAR + BETWEEN) for row in rows]
    sheet.size(figure, TOP + footer.height + sum(heights) + APART * len(rows))
    top = sum(heights) + APART * len(rows) + footer.height
    _legend(figure, top + TOP - 12)
    for row, height in zip(rows, heights, strict=True):
        _panel(figure, row, top, height)
        top -= height + APART
    footer.write(figure)
    return figure


def _shown(row: Row) -> list[Record]:
    """The records of a row at the longest length that most methods have, largest peak first."""
    usable = [r for r in row.records if r["outcome"] == "measured" and r.get("peak_allocated_bytes")]
    by_length: dict[int, list[Record]] = {}
    for record in usable:
        by_length.setdefault(record["query_len"], []).append(record)
    if not by_length:
        return []
    most = max(len({r["method"] for r in found}) for found in by_length.values())
    length = max(n for n, found in by_length.items() if len({r["method"] for r in found}) == most)
    return sorted(by_length[length], key=lambda r: -r["peak_allocated_bytes"] / r["batch"])


def _legend(figure: Figure, y: float) -> None:
    x = MARGIN
    for name, colour in PARTS.values():
        sheet.line(figure, (x, y + 3), (x + 9, y + 3), colour, linewidth=7, solid_capstyle="butt")
        sheet.text(figure, x + 13, y, name, style.NAME_SIZE, style.TEXT)
        x += 26 + sheet.text_width(figure, name, style.NAME_SIZE)


def _panel(figure: Figure, row: Row, top: float, height: float) -> None:
    shown = _shown(row)
    title = f"{row.title} · N = {shown[0]['query_len']:,}"
    sheet.heading(figure, MARGIN, top - 2, title)
    frame = Box(MARGIN + NAMES, top - height + AXIS / 2, sheet.width(figure) - RIGHT - LEFT, top - AXIS / 2)
    axes = sheet.axes(figure, frame)
    for place, record in enumerate(reversed(shown)):
        left = 0.0
        for name, value in parts_of(record).items():
            axes.barh(place, value, left=left, height=0.72, color=PARTS[name][1], linewidth=0)
            left += value
        axes.text(left, place, f" {bytes_text(left)}", va="center", fontsize=style.SMALL_SIZE, color=style.QUIET)
    axes.set_yticks(range(len(shown)), [data.method_text(r["method"]) for r in reversed(shown)])
    axes.set_xticks([])
    axes.grid(False)
    axes.set_xlim(0, None)
    axes.spines["bottom"].set_visible(False)

