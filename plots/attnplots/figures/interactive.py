"""Charts of a report whose axes, settings and methods the reader chooses. They are described by the columns of the lines that the
report shows, from which its page takes the points of what is chosen.

report/vega.py draws them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnplots.figures import quality, style
from attnplots.figures.chart import column_title
from attnplots.figures.style import Style
from attnplots.records import ratios, schema
from attnplots.records import rows as data
from attnplots.records.records import Record, Records
from attnplots.records.words import varying

# At the beginning at most so many panels are shown.
PANELS = 4


@dataclass(frozen=True)
class Quantity:
    """A choice for an axis of a chart.

    `form` says how numbers are written: time (ms), bytes, share, length or number. `low` and `high`
    are the columns of the interval. If `divided` names a column, such as `batch`, the values may be
    divided by it. The ratio to another series makes sense if `has_ratio`. If values are above `floor`, those
    below it are drawn at it.
    """

    column: str
    title: str
    form: str
    low: str = ""
    high: str = ""
    divided: str = ""
    has_ratio: bool = False
    floor: float = 0.0


SWEEP_Y = (
    Quantity("time_median_ms", "Time", "time", "_time_low", "_time_high", "batch", True),
    Quantity("peak_extra_bytes", "Peak memory above the inputs", "bytes", divided="batch", has_ratio=True),
    Quantity("ratio_median", "Time / that of the baseline beside it", "number", "ratio_ci_low", "ratio_ci_high"),
    Quantity("_rate", "GFLOP/s", "number"),
    Quantity("quality_row_error_median", "Distance of a row from exact attention", "number",
             "quality_row_error_p5", "quality_row_error_p95", floor=quality.ROUNDING),
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
# The columns of points of trainings, and how their numbers are written.
CURVE_X = {"update": "number", "training_s": "number", "epoch": "number"}
CURVE_Y = {
    "validation_loss": "number", "training_loss": "number", "bits_per_dim": "number", "phone_error_rate": "share",
    "validation_accuracy": "share",
}  # fmt: skip
# The columns of the sentence that appears over a point.
TOLD = ("_folder", "query_len", "batch", "time_median_ms", "_interval", "_factor", "peak_extra_bytes", "ratio_median",
        "max_row_error", "implementation", "_doubts")  # fmt: skip


@dataclass(frozen=True)
class Facet:
    """A column whose values the reader switches on and off; each combination has a panel."""

    column: str
    title: str
    values: list[dict[str, Any]]


@dataclass(frozen=True)
class Chart:
    """The columns of both axes between which the reader chooses, the looks of the methods, the facets, the parts that a line of a
    method is split into, and the columns that a point tells. `panel` and `part` are the columns of the panel's title and of the
    part."""

    x: list[Quantity]
    y: list[Quantity]
    looks: dict[str, Style]
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
        y = [replace(q, title=title) if q.column == "ratio_median" else q for q in y]
    shown, _ = data.select_present_devices(records)
    return Chart(
        x, y, style.styles(r["method"] for r in shown), facets(shown), list(folders), [c for c in TOLD if c in present],
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
    return Chart([RUN], [RELATIVE, times], style.styles(r["method"] for r in shown),
                 [*facets(shown), lengths], list(folders), told, "_panel", "")  # fmt: skip


def gate_chart(methods: Iterable[str]) -> Chart:
    """The chart of the ratios that runs of the gate found for cases of these methods."""
    return Chart([RUN], [CHANGE], style.styles(methods), [], [], ["_label", "_verdict"], "_panel", "")


def _values(lines: Iterable[Record], column: str) -> set[str]:
    return {str(line.get(column)) for line in lines if line.get(column) is not None}


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
    known = schema.current().training_columns

    def quantities(forms: dict[str, str]) -> list[Quantity]:
        return [Quantity(name, column_title(known[name]), form) for name, form in forms.items() if name in present]

    return Chart(
        quantities(CURVE_X), quantities(CURVE_Y),
        style.styles(point["method"] for point in points), [], seeds, [], "", "seed" if len(seeds) > 1 else "",
    )  # fmt: skip
