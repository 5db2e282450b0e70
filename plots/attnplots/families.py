"""The figure of all methods as small multiples: one column of panels for each kind of method."""

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from attnplots import curves as data
from attnplots import panel, ratios, scaling, sheet, style, ticks
from attnplots.curves import Curve, Measure
from attnplots.labels import Box
from attnplots.panel import WORDS_LINE
from attnplots.records import Records
from attnplots.sheet import LEFT, RIGHT, SMALL_LINE, WIDTH

# The titles of the columns and the families of methods in them; the last has all other families.
KINDS: dict[str, tuple[str, ...]] = {
    "Linear": ("linear", "efficient"),
    "Kernels approximated": ("kernel",),
    "Exact, hashing and others": (),
}
# These methods are drawn in every column for comparison; outside their own column they are pale.
REFERENCES = ("softmax", "linear")

TOP = 36.0
HEADING = 40.0
TITLE = 18.0
PANEL = 122.0
TICKS = 26.0
APART = 12.0
X_LABEL = 16.0
FOOT = 10.0
GAP = 20.0
BETWEEN = 14.0


def draw_ratio(records: Records) -> Figure:
    """The figure of draw() with the ratio of the time to that of the baseline."""
    return draw(records, ratios.measure(records, data.TIME, data.SEQUENCE))


def draw(records: Records, time: Measure = data.TIME) -> Figure:
    """Draws a row of time panels and a row of memory panels for each setting."""
    rows = data.split_rows(records)
    measures = (time, data.MEMORY)
    whole = [[data.curves(row, measure) for row in rows] for measure in measures]
    span = data.span(whole)
    kinds = [kind for kind in KINDS if any(_kind(r["method"]) == kind for r in records)]
    looks = style.styles(record["method"] for record in records)
    faint = {method: style.faint(looks[method]) for method in REFERENCES if method in looks}

    figure = sheet.figure()
    header = sheet.wrapped(figure, sheet.setting(records))
    texts = scaling.notes(rows, measures, data.SEQUENCE)
    footer = sheet.wrapped_all(figure, texts)
    names = [_names_width(figure, whole, kind, span[0]) for kind in kinds]
    free = WIDTH - LEFT - RIGHT - sum(names) - GAP * len(kinds) - BETWEEN * (len(kinds) - 1)
    wide = free / len(kinds)
    lefts = [LEFT + sum(names[:k]) + k * (wide + GAP + BETWEEN) for k in range(len(kinds))]
    high = max(PANEL, *(_names_height(figure, column, kinds, span[0]) for column in whole))
    head = TOP + SMALL_LINE * (len(header) - 1)
    height = head + len(rows) * (HEADING + len(measures) * (TITLE + high + TICKS) + APART)
    height += X_LABEL + FOOT + SMALL_LINE * len(footer)
    sheet.size(figure, height)

    sheet.small_lines(figure, height - 18, header)
    limits = [ticks.limits(c, m.line) for c, m in zip(whole, measures, strict=True)]
    x_ticks = ticks.lengths(span, max_count=4)
    top = height - head
    for i, row in enumerate(rows):
        sheet.heading(figure, LEFT, top - 13, row.title)
        for kind, left in zip(kinds, lefts, strict=True):
            sheet.subheading(figure, left, top - 33, kind)
        top -= HEADING
        for k, (measure, find_ticks) in enumerate(zip(measures, panel.TICK_FUNCTIONS, strict=True)):
            sheet.text(figure, LEFT, top - 11, measure.title, style.NAME_SIZE, style.TEXT)
            bottom = top - TITLE - high
            y_ticks = find_ticks(limits[k]) if any(whole[k]) else ([], [])
            for kind, left in zip(kinds, lefts, strict=True):
                frame = Box(left, bottom, left + wide, bottom + high)
                axes = panel.empty_axes(
                    figure, frame, panel.length_limits(span), limits[k], x_ticks, y_ticks
                )
                axes.tick_params(labelleft=left == LEFT)
                if measure.line is not None:
                    panel.line_at(axes, measure.line)
                shown = _shown(whole[k][i], kind)
                own = looks | {m: faint[m] for m in faint if _kind(m) != kind}
                if any(_kind(curve.method) == kind for curve in shown):
                    panel.draw(figure, axes, frame, shown, own, GAP, span[0])
                else:
                    middle = (frame.y0 + frame.y1) / 2
                    sheet.centred(figure, frame, middle, "nothing measured", style.QUIET)
                if (i, k) == (len(rows) - 1, len(measures) - 1):
                    sheet.centred(
                        figure, frame, bottom - TICKS - 6, data.SEQUENCE.label, style.TEXT
                    )
            top = bottom - TICKS
        top -= APART
    sheet.small_lines(figure, top - X_LABEL - FOOT, footer)
    return figure


def _kind(method: str) -> str:
    family = style.family(method)
    return next((kind for kind in KINDS if family in KINDS[kind]), list(KINDS)[-1])


def _shown(curves: Sequence[Curve], kind: str) -> list[Curve]:
    """The curves of one kind, and those of REFERENCES without the words on their end marks."""
    own = [curve for curve in curves if _kind(curve.method) == kind]
    others = [c for c in curves if _kind(c.method) != kind and c.method in REFERENCES]
    return own + [replace(c, end=c.end and replace(c.end, words="")) for c in others]


def _names_width(figure: Figure, whole: list[list[list[Curve]]], kind: str, reach: float) -> float:
    """The width of the longest name beside the panels of a column."""
    panels = (curves for column in whole for curves in column)
    labels = (panel.labels_beside(figure, _shown(curves, kind), reach) for curves in panels)
    return max((label.width for pile in labels for label in pile), default=0.0)


def _names_height(
    figure: Figure, column: list[list[Curve]], kinds: Sequence[str], reach: float
) -> float:
    """The height of the tallest pile of names beside a panel, less a line that may stick out."""
    piles = (
        panel.labels_beside(figure, _shown(curves, kind), reach)
        for curves in column
        for kind in kinds
    )
    return max(sum(label.height for label in pile) for pile in piles) - WORDS_LINE
