"""The scaling figure: time and peak memory per sample against the sequence length."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from attnplots import curves as data
from attnplots import panel, ratios, sheet, style, ticks
from attnplots.curves import Length, Measure, Row
from attnplots.labels import Box
from attnplots.records import Records
from attnplots.sheet import LEFT, RIGHT, SMALL_LINE, WIDTH

MIDDLE = 54.0
TOP = 30.0
HEADING = 38.0
PANEL = 205.0
TICKS = 24.0
X_LABEL = 18.0
FOOT = 10.0

# The gap between a panel and the names beside it. If a panel has CROWD names or more, the leaders
# of the names need the wide gap.
GAP = 12.0
WIDE_GAP = 28.0
CROWD = 7


def draw(
    records: Records,
    time: Measure = data.TIME,
    memory: Measure = data.MEMORY,
    length: Length = data.SEQUENCE,
) -> Figure:
    """Draws a row of panels for each setting, with time on the left and memory on the right."""
    records, absent = data.on_present_devices(records)
    rows = data.split_rows(records)
    measures = (time, memory)
    columns = [[data.curves(row, measure) for row in rows] for measure in measures]
    span = data.span(columns)
    looks = style.styles(record["method"] for record in records)

    figure = sheet.figure()
    header = sheet.wrapped(figure, sheet.setting(records))
    footer = sheet.wrapped_all(figure, notes(rows, measures, length) + absent)
    beside = [
        [panel.labels_beside(figure, curves, span[1]) for curves in column] for column in columns
    ]
    gaps = [WIDE_GAP if max(map(len, column)) >= CROWD else GAP for column in beside]
    margins = [
        gap + max((label.width for labels in column for label in labels), default=0.0)
        for gap, column in zip(gaps, beside, strict=True)
    ]
    wide = (WIDTH - LEFT - MIDDLE - RIGHT - sum(margins)) / 2
    highs = [
        max(PANEL, *(sum(label.height for label in column[i]) for column in beside))
        for i in range(len(rows))
    ]
    head = TOP + SMALL_LINE * (len(header) - 1)
    height = head + sum(HEADING + high + TICKS for high in highs)
    height += X_LABEL + FOOT + SMALL_LINE * len(footer)
    sheet.size(figure, height)

    sheet.small_lines(figure, height - 18, header)
    limits = [ticks.limits(c, m.line) for c, m in zip(columns, measures, strict=True)]
    top = height - head
    for i, row in enumerate(rows):
        sheet.heading(figure, LEFT, top - 13, row.title)
        bottom = top - HEADING - highs[i]
        for k, (measure, find_ticks) in enumerate(zip(measures, panel.TICK_FUNCTIONS, strict=True)):
            left = LEFT + k * (wide + margins[0] + MIDDLE)
            frame = Box(left, bottom, left + wide, bottom + highs[i])
            y_ticks = find_ticks(limits[k]) if any(columns[k]) else ([], [])
            axes = panel.empty_axes(
                figure, frame, panel.length_limits(span), limits[k], ticks.lengths(span), y_ticks
            )
            sheet.text(figure, left, frame.y1 + 7, measure.title, style.NAME_SIZE, style.TEXT)
            if i == len(rows) - 1:
                sheet.centred(figure, frame, bottom - TICKS - 9, length.label, style.TEXT)
            if columns[k][i]:
                ink, taken = panel.draw(figure, axes, frame, columns[k][i], looks, gaps[k], span[1])
                if measure.line is None:
                    panel.guides(figure, axes, frame, ink, taken, span, length)
                else:
                    panel.line_at(axes, measure.line)
            else:
                middle = (frame.y0 + frame.y1) / 2
                sheet.centred(figure, frame, middle, "nothing measured", style.QUIET)
        top = bottom - TICKS
    sheet.small_lines(figure, top - X_LABEL - FOOT, footer)
    return figure


def draw_ratio(records: Records) -> Figure:
    """The figure of draw() with the ratio of the time to that of the baseline."""
    return draw(records, ratios.measure(records, data.TIME, data.SEQUENCE))


def notes(rows: list[Row], measures: Sequence[Measure], length: Length) -> list[str]:
    """The notes below the figure; the first measure is the time, or a ratio of times."""
    texts = data.certainty_notes(rows, measures[0])
    texts += data.notes(rows, lambda _: measures, length)
    sources = {
        f"{data.method_text(record['method'])}: {record['external_source']}": None
        for row in rows
        for record in row.records
        if record.get("external_source")
    }
    return [*texts, *([f"Not measured here: {'; '.join(sources)}."] if sources else [])]
