"""The interactive charts of a report: a specification of Vega-Lite, made by Altair, and what the page
needs to fill it with the lines that the reader chose.

page.js computes the points of a chart from the lines of the report, and embeds one chart for each
panel. The fields of a point are those of POINT.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from attnplots.figures import style
from attnplots.records import ratios, schema
from attnplots.records import rows as data
from attnplots.records.records import Record, Records
from attnplots.records.words import varying
from attnplots.report.gates import Gate

# The height of a panel in pixels; its width is that of the page.
HEIGHT = 300
# At the beginning at most so many panels are shown.
PANELS = 4
# The name of the data in the specification, and the fields of its points: the place, the ends of the
# interval, the series, and what lines of a series are split by.
DATA = "points"
POINT = ("x", "y", "low", "high", "series", "part")


@dataclass(frozen=True)
class Quantity:
    """A choice for an axis of a chart.

    `form` says how numbers are written: time (ms), bytes, share, length or number. `low` and `high`
    are the columns of the interval. If `divided` names a column, such as `batch`, the values may be
    divided by it. The ratio to another series makes sense if `has_ratio`.
    """

    column: str
    title: str
    form: str
    low: str = ""
    high: str = ""
    divided: str = ""
    has_ratio: bool = False


SWEEP_Y = (
    Quantity("time_median_ms", "Time", "time", "_time_low", "_time_high", "batch", True),
    Quantity("peak_extra_bytes", "Peak memory above the inputs", "bytes", divided="batch", has_ratio=True),
    Quantity("ratio_median", "Time / that of the baseline beside it", "number", "ratio_ci_low", "ratio_ci_high"),
    Quantity("_rate", "GFLOP/s", "number"),
    Quantity("quality_row_error_median", "Distance of a row from exact attention", "number",
             "quality_row_error_p5", "quality_row_error_p95"),
    Quantity("state_bytes", "Decoding state", "bytes", divided="batch"),
    Quantity("peak_allocated_bytes", "Peak memory with the inputs", "bytes", divided="batch", has_ratio=True),
    Quantity("peak_rss_bytes", "Resident memory of the process", "bytes"),
    Quantity("_interval", "Uncertainty of the time (reach of its interval)", "share"),
    Quantity("max_row_error", "Rounding error of a row, against the same method in float64", "number"),
)  # fmt: skip
RUN = Quantity("_run", "Run, in the order of their dates", "number")
RELATIVE = Quantity("_relative", "Time / that of the first run", "number", "_relative_low", "_relative_high")
CHANGE = Quantity("_ratio", "Candidate / base", "number", "_low", "_high")
SWEEP_X = (
    Quantity("query_len", "Sequence length N", "length"),
    Quantity("batch", "Batch size", "number"),
    Quantity("concentration", "Factor of the logits", "number"),
    Quantity("head_dim", "Dimension of a head", "number"),
    Quantity("threads", "Threads", "number"),
    Quantity("time_median_ms", "Time of a call", "time"),
)
CURVE_X = (
    Quantity("update", "Updates", "number"),
    Quantity("training_s", "Seconds of training", "number"),
    Quantity("epoch", "Epochs", "number"),
)
CURVE_Y = (
    Quantity("validation_loss", "Validation loss", "number"),
    Quantity("training_loss", "Training loss", "number"),
    Quantity("bits_per_dim", "Bits per dimension", "number"),
    Quantity("phone_error_rate", "Phone error rate", "share"),
    Quantity("validation_accuracy", "Validation accuracy", "share"),
)
# The columns of the sentence that appears over a point.
TOLD = ("_folder", "query_len", "batch", "time_median_ms", "_interval", "_factor", "peak_extra_bytes", "ratio_median",
        "max_row_error", "implementation", "_doubts")  # fmt: skip

# The markers of Matplotlib as paths, which Vega draws as large as its own shapes of these kinds.
SHAPES = {
    "o": "M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z",
    "s": "M-1,-1H1V1H-1Z",
    "^": "M0,-0.866L1,0.866H-1Z",
    "v": "M0,0.866L1,-0.866H-1Z",
    "<": "M-0.866,0L0.866,-1V1Z",
    ">": "M0.866,0L-0.866,-1V1Z",
    "D": "M0,-1L1,0L0,1L-1,0Z",
    "P": "M-0.4,-1H0.4V-0.4H1V0.4H0.4V1H-0.4V0.4H-1V-0.4H-0.4Z",
    "p": "M0.000,-1.000L0.951,-0.309L0.588,0.809L-0.588,0.809L-0.951,-0.309Z",
    "h": "M0.000,-1.000L0.866,-0.500L0.866,0.500L0.000,1.000L-0.866,0.500L-0.866,-0.500Z",
    "8": "M0.383,-0.924L0.924,-0.383L0.924,0.383L0.383,0.924L-0.383,0.924L-0.924,0.383L-0.924,-0.383L-0.383,-0.924Z",
    "*": "M0.000,-1.000L0.247,-0.340L0.951,-0.309L0.399,0.130L0.588,0.809L0.000,0.420L-0.588,0.809L-0.399,0.130L-0.951,-0.309L-0.247,-0.340Z",
    "d": "M0,-1L0.6,0L0,1L-0.6,0Z",
}


@dataclass(frozen=True)
class Look:
    """The look of a series on a light and on a dark page; `dash` are lengths in pixels."""

    name: str
    colour: str
    dark: str
    shape: str
    hollow: bool
    dash: list[float]


@dataclass(frozen=True)
class Facet:
    """A column whose values the reader switches on and off; each combination has a panel."""

    column: str
    title: str
    values: list[dict[str, Any]]


@dataclass(frozen=True)
class Chart:
    """All that page.js needs for a chart besides the lines."""

    x: list[Quantity]
    y: list[Quantity]
    series: list[Look]
    facets: list[Facet]
    parts: list[str]
    told: list[str]
    panel: str
    part: str


def sweep_chart(records: Records, folders: Sequence[str], columns: Iterable[str]) -> Chart:
    """The chart of the records of a sweep, which may come from several folders."""
    present = set(columns)
    x = [q for q in SWEEP_X if q.column in present and (q.column == "query_len" or len(_values(records, q.column)) > 1)]
    y = [q for q in SWEEP_Y if q.column in present]
    baselines = sorted({r["baseline"] for r in records if r.get("baseline")})
    if len(baselines) == 1:
        title = f"Time / that of {ratios.baseline_text(baselines[0], data.SEQUENCE)}"
        y = [Quantity(q.column, title, q.form, q.low, q.high) if q.column == "ratio_median" else q for q in y]
    shown, _ = data.select_present_devices(records)
    return Chart(
        x, y, looks(r["method"] for r in shown), facets(shown), list(folders), [c for c in TOLD if c in present],
        "_panel", "_folder" if len(folders) > 1 else "",
    )  # fmt: skip


def history_chart(records: Records, folders: Sequence[str]) -> Chart:
    """The chart of the times of each case over the runs of a sweep; at first it shows one length."""
    lengths = Facet("query_len", "N", [
        {"value": n, "text": data.size_text(n), "on": k == 0}
        for k, n in enumerate(sorted({r["query_len"] for r in records}))
    ])  # fmt: skip
    told = ["_folder", "query_len", "time_median_ms", "_interval"]
    times = Quantity("time_median_ms", "Time", "time", "_time_low", "_time_high", "batch")
    shown, _ = data.select_present_devices(records)
    return Chart([RUN], [RELATIVE, times], looks(r["method"] for r in shown),
                 [*facets(shown), lengths], list(folders), told, "_panel", "")  # fmt: skip


def gate_chart(gates: Sequence[Gate]) -> Chart:
    """The chart of the ratios that runs of the gate found."""
    methods = dict.fromkeys(case.name.split(" ")[0] for gate in gates for case in gate.cases)
    return Chart([RUN], [CHANGE], looks(methods), [], [], ["_label", "_verdict"], "_panel", "")


def _values(lines: Iterable[Record], column: str) -> set[str]:
    return {str(line.get(column)) for line in lines if line.get(column) is not None}


def looks(methods: Iterable[str]) -> list[Look]:
    """The looks of methods, as in figures."""
    found = style.styles(methods)
    return [
        Look(name, look.colour, style.on_dark(look.colour), SHAPES[look.marker or "o"], look.hollow,
             [4 * part for part in look.dash[1]])
        for name, look in found.items()
    ]  # fmt: skip


def facets(records: Records) -> list[Facet]:
    """The axes with several values other than the method and the lengths, with those values on that
    are shown at first."""
    lengths = [axis.name for axis in schema.current().axes if axis.kind == "length"]
    names = [n for n in ["protocol", *varying(records)] if n not in lengths and len(_values(records, n)) > 1]
    found = []
    for name in names:
        by_text: dict[str, Record] = {}
        for record in sorted(records, key=lambda r: data.sort_key(r, name)):
            by_text.setdefault(str(record.get(name)), record)
        values = [
            {"value": record.get(name), "text": _value_text(record, name), "on": True} for record in by_text.values()
        ]
        found.append(Facet(name, name.replace("_", " "), values))
    # From the axis with the most values on, only the first is shown until few panels are left.
    for facet in sorted(found, key=lambda facet: (facet.column == "protocol", -len(facet.values))):
        if _panels(records, found) <= PANELS:
            break
        for value in facet.values[1:]:
            value["on"] = False
    return found


def _value_text(record: Record, name: str) -> str:
    return data.protocol_text(record) if name == "protocol" else data.setting_text(record, name)


def _panels(records: Records, found: Iterable[Facet]) -> int:
    """How many panels the values that are on make."""
    on = {facet.column: {str(v["value"]) for v in facet.values if v["on"]} for facet in found}
    return len({
        tuple(str(record.get(name)) for name in on)
        for record in records
        if all(str(record.get(name)) in values for name, values in on.items())
    })  # fmt: skip


def training_chart(points: Sequence[Record]) -> Chart:
    """The chart of the curves of trainings; each seed has a line of its own."""
    present = {name for point in points for name, value in point.items() if value is not None}
    seeds = sorted({str(point.get("seed")) for point in points})
    return Chart(
        [q for q in CURVE_X if q.column in present], [q for q in CURVE_Y if q.column in present],
        looks(point["method"] for point in points), [], seeds, [], "", "seed" if len(seeds) > 1 else "",
    )  # fmt: skip


def specification() -> dict[str, Any]:
    """The specification of one panel. page.js sets the titles, the scales, the looks and the text
    over a point, and adds a layer of crosses for each series that has lengths without a value."""
    base = alt.Chart(alt.NamedData(DATA)).encode(x=alt.X("x:Q"), detail="part:N")
    colour, stroke = (kind("series:N", legend=None) for kind in (alt.Color, alt.Stroke))
    line = base.mark_line(strokeWidth=1.7, clip=True).encode(
        y="y:Q", color=colour, strokeDash=alt.StrokeDash("series:N", legend=None)
    )
    bars = base.mark_rule(strokeWidth=1.4, clip=True).encode(y="low:Q", y2="high:Q", color=colour)
    points = base.mark_point(size=52, strokeWidth=1.5, opacity=1, clip=True).encode(
        y="y:Q", stroke=stroke, fill=alt.Fill("series:N", legend=None), shape=alt.Shape("series:N", legend=None)
    )
    return alt.layer(line, bars, points).properties(width="container", height=HEIGHT).to_dict()
