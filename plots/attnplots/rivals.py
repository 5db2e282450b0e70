"""The figure "against the others": how many times as long other packages take as the methods of
this project."""

from dataclasses import replace

from matplotlib.figure import Figure

from attnplots import panel, ratios, sheet, style, ticks
from attnplots import curves as data
from attnplots.curves import Row
from attnplots.labels import Box
from attnplots.methods import PYTHON
from attnplots.records import Record, Records
from attnplots.sheet import LEFT, RIGHT, SMALL_LINE, WIDTH

TOP = 30.0
TITLE = 40.0
PANEL = 260.0
TICKS = 24.0
X_LABEL = 18.0
FOOT = 12.0
GAP = 26.0
MIDDLE = 46.0


def draw(records: Records) -> Figure:
    """A panel for each protocol: the time of every other implementation, divided by the time of the
    method that took turns with it."""
    rows = [
        Row(row[0].title.partition(" · ")[0], [_named(r) for part in row for r in part.records])
        for row in _by_protocol(records)
    ]
    rows = [Row(row.title, sorted(row.records, key=_order)) for row in rows]
    measure = replace(
        ratios.measure(records, data.TIME, data.SEQUENCE),
        title="Time / time of the method in brackets",
        doubts=_doubts,
        note="Above 1, the method of attnbench that is named in brackets is faster.",
    )
    panels = [data.curves(row, measure) for row in rows]
    span = data.span([panels])
    looks = style.styles(curve.method for curves in panels for curve in curves)

    figure = sheet.figure()
    header = sheet.wrapped(figure, sheet.setting(records))
    notes = data.certainty_notes(rows, measure)
    notes += data.notes(rows, lambda _: [measure], data.SEQUENCE)
    footer = sheet.wrapped_all(figure, notes)
    beside = [panel.labels_beside(figure, curves, span[1]) for curves in panels]
    names = [GAP + max((label.width for label in labels), default=0.0) for labels in beside]
    wide = (WIDTH - LEFT - RIGHT - MIDDLE * (len(rows) - 1) - sum(names)) / len(rows)
    head = TOP + SMALL_LINE * (len(header) - 1)
    height = head + TITLE + PANEL + TICKS + X_LABEL + FOOT + SMALL_LINE * len(footer)
    sheet.size(figure, height)

    sheet.small_lines(figure, height - 18, header)
    limits = ticks.limits(panels, 1.0)
    bottom = height - head - TITLE - PANEL
    left = LEFT
    for row, curves, name in zip(rows, panels, names, strict=True):
        frame = Box(left, bottom, left + wide, bottom + PANEL)
        axes = panel.empty_axes(
            figure, frame, panel.length_limits(span), limits, ticks.lengths(span), ticks.times(limits)
        )
        sheet.heading(figure, left, frame.y1 + 23, row.title)
        sheet.text(figure, left, frame.y1 + 8, measure.title, style.NAME_SIZE, style.TEXT)
        sheet.centred(figure, frame, bottom - TICKS - 9, data.SEQUENCE.label, style.TEXT)
        panel.line_at(axes, 1.0)
        if curves:
            panel.draw(figure, axes, frame, curves, looks, GAP, span[1])
        else:
            middle = (frame.y0 + frame.y1) / 2
            sheet.centred(figure, frame, middle, "nothing measured", style.QUIET)
        left += wide + name + MIDDLE
    sheet.small_lines(figure, bottom - TICKS - X_LABEL - FOOT, footer)
    return figure


def _by_protocol(records: Records) -> list[list[Row]]:
    """The rows of the records without those that are their own baseline, by protocol."""
    others = records.where(lambda record: record["method"] != record.get("baseline"))
    found: dict[str, list[Row]] = {}
    for row in data.split_rows(others):
        found.setdefault(row.records[0]["protocol"], []).append(row)
    return list(found.values())


def _doubts(record: Record) -> list[str]:
    """Whether nothing checked the results. The bands show how noisy a ratio is."""
    return ["unverified"] if record.get("unverified") else []


def _named(record: Record) -> Record:
    """The record with a name for its curve in place of its method, such as "fast-transformers
    (causal, against linear)"."""
    method = data.method_text(record["method"]).partition(PYTHON)[0]
    causal = "causal, " if record["causal"] else ""
    return {**record, "method": f"{method} ({causal}against {record.get('baseline')})"}


def _order(record: Record) -> tuple[str, int]:
    return record["method"], record["query_len"]
