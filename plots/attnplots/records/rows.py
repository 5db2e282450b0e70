"""Turns records into the parts of a figure: rows of panels, curves with end marks, and notes."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attnplots.records import certainty, schema
from attnplots.records.methods import method_text
from attnplots.records.records import Record, Records, RecordsError
from attnplots.records.schema import Axis
from attnplots.records.text import count_of

@dataclass(frozen=True)
class Reason:
    """Why a case has no point: in a note, and shorter in the strip above a panel."""

    text: str
    short: str


# By the kind of failure; what was predicted was never run.
REASONS = {
    "oom": Reason("out of memory", "OOM"),
    "predicted_oom": Reason("predicted to be out of memory", "OOM, predicted"),
    "timeout": Reason("over the time limit", "time limit"),
    "predicted_timeout": Reason("predicted to be over the time limit", "time limit, predicted"),
    "unsupported": Reason("not supported", "not supported"),
    "invalid": Reason("with a wrong result", "wrong result"),
}
# Cases that others published as being out of memory.
PUBLISHED_OOM = Reason("published as out of memory", "OOM, published")
STRIP_NOTE = (
    "Marks above a panel: lengths without a point; after a method's last point, the first of them "
    "(OOM: out of memory; predicted: not run)."
)
PROTOCOLS = {
    "forward": "Forward", "forward_backward": "Forward + backward", "prefill": "Prefill", "decode": "Decoding",
}

# Row titles begin with these axes; the other axes follow in the order of the schema.
FIRST_IN_TITLE = ("protocol", "causal")
# A panel has one curve for each value of CURVE_AXIS, drawn against LENGTH_AXIS.
CURVE_AXIS = "method"
LENGTH_AXIS = "query_len"


@dataclass(frozen=True)
class Row:
    """The records that one row of panels shows, and the title of the row."""

    title: str
    records: list[Record]


@dataclass(frozen=True)
class Gap:
    """A length at which a method has no point, and the reason."""

    n: int
    reason: Reason


@dataclass(frozen=True)
class Curve:
    """One method in one panel: values `y` at lengths `n` with intervals from `low` to `high`.

    The arrays have one entry for each length; `y` is nan where there is no value, `low` and `high` are nan where there
    is no interval, and `ringed` is true where the value is doubtful. Of the lengths after the last value, `gaps` has
    the first of each reason. `published` are lengths and values that others published. `crossing` is the length from
    which on the method is faster than another, with the bounds of its interval. Intervals are bars, and also a band
    unless `band` is false.
    """

    method: str
    n: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    ringed: np.ndarray
    gaps: tuple[Gap, ...] = ()
    published: tuple[tuple[float, float], ...] = ()
    crossing: tuple[float, float, float] | None = None
    band: bool = True

    @property
    def tip(self) -> tuple[float, float]:
        """The last value."""
        last = np.flatnonzero(np.isfinite(self.y))[-1]
        return float(self.n[last]), float(self.y[last])

    @property
    def lengths(self) -> list[float]:
        """All lengths that the curve needs space for, also those of gaps and published values."""
        return [*self.n, *(gap.n for gap in self.gaps), *(n for n, _ in self.published)]


def plain_curve(method: str, n: Iterable[float], y: Iterable[float]) -> Curve:
    """A curve of values without intervals."""
    lengths, values = np.array(n, dtype=float), np.array(y, dtype=float)
    nothing = np.full_like(values, np.nan)
    return Curve(method, lengths, values, nothing, nothing, np.zeros(len(values), bool))


# Returns the value, and the lower and upper bound of its interval; each may be None.
Value = Callable[[Record], tuple[float | None, float | None, float | None]]


@dataclass(frozen=True)
class Measure:
    """A quantity to draw: its name in notes, the title of its axis, and its value in a record.

    `doubts` says why the value of a measured record is doubtful, in words of certainty.DOUBTS.
    `missing` says why a measured record has no value. Panels have a line at the value `line`;
    the notes of a figure have `note`. `published` is the column of what others published, and `rare` a note on the doubts
    that so many values have that none of them has a ring for it.
    """

    name: str
    title: str
    value: Value
    doubts: Callable[[Record], list[str]] = lambda record: []
    missing: Callable[[Record], str] = lambda record: "not recorded"
    line: float | None = None
    note: str = ""
    published: str = ""
    rare: str = ""


@dataclass(frozen=True)
class Length:
    """What a figure calls `query_len`: a letter in notes and slopes, and the label of the axis."""

    letter: str
    label: str


SEQUENCE = Length("N", "Sequence length N")


TIME_COLUMNS = ("time_median_ms", "time_ci_low_ms", "time_ci_high_ms")


def time_value(record: Record) -> tuple[float | None, float | None, float | None]:
    """Time per sequence in ms with its interval; records hold the interval of the whole batch."""
    low, high = certainty.interval(record, *TIME_COLUMNS[1:])
    batch = record["batch"]
    return (
        record.get("time_per_sample_ms"), None if low is None else low / batch, None if high is None else high / batch,
    )


def time_doubts(record: Record) -> list[str]:
    """Why the time of a record is doubtful."""
    return certainty.doubts(record, *TIME_COLUMNS)


def memory_value(record: Record) -> tuple[float | None, float | None, float | None]:
    """Peak memory per sequence above the inputs, in bytes."""
    return record.get("peak_extra_bytes_per_sample"), None, None


TIME = Measure("time", "Time per sequence (ms)", time_value, time_doubts, published="published_time_ms")
MEMORY = Measure("memory", "Peak memory per sequence, above inputs", memory_value)


def select_present_devices(records: Records) -> tuple[Records, list[str]]:
    """The records of the devices that support any case, and a note on each of the other devices."""
    absent, texts = set(), []
    for device in dict.fromkeys(record.get("device") for record in records):
        of_device = [record for record in records if record.get("device") == device]
        if all(record.get("failure_kind") == "unsupported" for record in of_device):
            count = len(of_device)
            cases = "the case" if count == 1 else f"all {count} cases"
            texts.append(f"Nothing was measured on {device}, where {cases} could not run.")
            absent.add(device)
    present = records.where(lambda record: record.get("device") not in absent)
    return (present, texts) if present else (records, [])


def split_rows(records: Records) -> list[Row]:
    """One row for each setting; its title names the axes whose values differ among the rows.

    Records of one row differ only in the method and in axes of kind "length". A length axis other
    than the sequence length, such as the batch size, usually follows from the sequence length. It
    splits rows only if one method has several values of it at one sequence length of a setting.
    """
    known = schema.current().axes
    lengths = [axis.name for axis in known if axis.kind == "length"]
    settings = [axis.name for axis in known if axis.name not in (CURVE_AXIS, *lengths)]
    axes = [axis for axis in FIRST_IN_TITLE if axis in settings]
    axes += [axis for axis in settings if axis not in FIRST_IN_TITLE]
    for axis in lengths:
        if axis == LENGTH_AXIS:
            continue
        seen: dict[str, object] = {}
        for record in records:
            case = json.dumps([record.get(a) for a in (CURVE_AXIS, LENGTH_AXIS, *axes)])
            if seen.setdefault(case, record.get(axis)) != record.get(axis):
                axes.append(axis)
                break
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(json.dumps([record.get(a) for a in axes]), []).append(record)
    followers = {axis.name for axis in known if only_follows(axis, records)}
    varying = [a for a in axes if a != "protocol" and a not in followers and len({_key(r, a) for r in records}) > 1]
    ordered = sorted(groups.values(), key=lambda group: [sort_key(group[0], a) for a in axes])
    return [
        Row(
            " · ".join([protocol_text(group[0])] + [setting_text(group[0], a) for a in varying]),
            sorted(group, key=lambda r: (r[CURVE_AXIS], r[LENGTH_AXIS])),
        )
        for group in ordered
    ]


def only_follows(axis: Axis, records: Iterable[Record]) -> bool:
    """Whether an axis has the value of the axis that it follows in every record, so that to name it
    would say nothing."""
    return axis.follows is not None and all(r.get(axis.name) == r.get(axis.follows) for r in records)


def _key(record: Record, axis: str) -> str:
    return json.dumps(record.get(axis))


def sort_key(record: Record, axis: str) -> tuple[int, float, str]:
    """The place of a value among those of its column: numbers first, in their order."""
    value = record.get(axis)
    if axis == "protocol" and value in PROTOCOLS:
        return 0, list(PROTOCOLS).index(value), ""
    if isinstance(value, int | float):
        return 0, value, ""
    return 1, 0, json.dumps(value)


def protocol_text(record: Record) -> str:
    """The protocol of a record as row titles say it."""
    return PROTOCOLS.get(record["protocol"], record["protocol"].replace("_", " "))


def setting_text(record: Record, axis: str) -> str:
    """The value of an axis as a row title says it."""
    value, name = record.get(axis), axis.replace("_", " ")
    if axis == "graph":
        return "in a CUDA graph" if value else "without a CUDA graph"
    if axis in ("heads", "threads") and value == 1:
        return f"1 {axis[:-1]}"
    if axis in ("heads", "threads"):
        return f"{value} {axis}"
    if axis in ("device", "dtype"):
        return str(value)
    if axis == "inputs":
        return f"{value} inputs"
    if isinstance(value, bool):
        return name if value else f"not {name}"
    return f"{name} {value}"


def group_methods(row: Row) -> dict[str, list[Record]]:
    """The row's records of each method, in their order in the row."""
    methods: dict[str, list[Record]] = {}
    for record in row.records:
        methods.setdefault(record["method"], []).append(record)
    return methods


def curves(row: Row, measure: Measure) -> list[Curve]:
    """The curves of a panel; a method that has no value gets no curve."""
    found = (_curve(method, records, measure) for method, records in group_methods(row).items())
    return [curve for curve in found if curve]


def span(columns: list[list[list[Curve]]]) -> tuple[float, float]:
    """The shortest and the longest length in all panels of all columns.

    Raises RecordsError if the first column, which shows times, has no curve.
    """
    if not any(columns[0]):
        raise RecordsError("expected at least one measured record with a time, found none")
    every = [n for column in columns for panel in column for curve in panel for n in curve.lengths]
    return float(min(every)), float(max(every))


def points(rows: list[Row], measure: Measure) -> list[Record]:
    """The records that have a value of the measure, so that they are points of the figure."""
    return [
        record
        for row in rows
        for record in row.records
        if record["outcome"] == "measured" and not math.isnan(_positive(measure.value(record)[0]))
    ]


def drop_common_rings(rows: list[Row], measure: Measure) -> Measure:
    """The measure without those doubts that most points have, of which its note speaks instead."""
    doubts, note = certainty.rare(points(rows, measure), measure.doubts)
    return replace(measure, doubts=doubts, rare=note)


def certainty_notes(rows: list[Row], measure: Measure) -> list[str]:
    """Notes on a measure, and on the bands and the rings of its points."""
    shown = points(rows, measure)
    notes = certainty.band_notes(shown, lambda record: None not in measure.value(record)[1:])
    notes += [measure.rare] if measure.rare else []
    notes += certainty.ring_notes([(record, measure.doubts(record)) for record in shown])
    return [text for text in (measure.note, " ".join(notes)) if text]


def _curve(method: str, records: list[Record], measure: Measure) -> Curve | None:
    nothing = (None, None, None)
    triples = [measure.value(r) if r["outcome"] == "measured" else nothing for r in records]
    # The nan of a length without a value interrupts the line there.
    n = np.array([r["query_len"] for r in records], dtype=float)
    y, low, high = (np.array([_positive(t[i]) for t in triples]) for i in range(3))
    seen = np.flatnonzero(np.isfinite(y))
    if not len(seen):
        return None
    shown = slice(0, seen[-1] + 1)
    ringed = np.array([bool(measure.doubts(r)) for r in records]) & np.isfinite(y)
    return Curve(
        method, n[shown], y[shown], low[shown], high[shown], ringed[shown],
        gaps_of(records, float(n[seen[-1]])), published_of(records, measure.published),
    )  # fmt: skip


def gaps_of(records: list[Record], last: float) -> tuple[Gap, ...]:
    """The gaps of the curve of one method whose last value is at the length `last`."""
    found: dict[tuple[int, Reason], Gap] = {}
    ended: set[Reason] = set()
    for record in records:
        n = record["query_len"]
        if record["outcome"] != "measured":
            reason = reason_of(record)
            if n < last or reason not in ended:
                found[n, reason] = Gap(n, reason)
            if n > last:
                ended.add(reason)
        if record.get("published_outcome") == "oom" and PUBLISHED_OOM not in ended:
            found[n, PUBLISHED_OOM] = Gap(n, PUBLISHED_OOM)
            ended.add(PUBLISHED_OOM)
    return tuple(found.values())


def reason_of(record: Record) -> Reason:
    """Why a record that is not measured has no values."""
    kind = str(record.get("failure_kind") or record["outcome"])
    words = kind.replace("_", " ")
    return REASONS.get(kind, Reason(words, words))


def published_of(records: list[Record], column: str) -> tuple[tuple[float, float], ...]:
    """The lengths and values of a column of published values, such as published_time_ms; nothing if
    the name is empty."""
    with_value = [r for r in records if column and (r.get(column) or 0) > 0]
    return tuple((float(r["query_len"]), r[column]) for r in with_value)


def _positive(value: float | None) -> float:
    return value if value is not None and value > 0 else math.nan


def size_text(n: float) -> str:
    """A length as axes and notes show it: 512, 1k, 64k."""
    for unit, sign in ((2**20, "M"), (2**10, "k")):
        if n >= unit and n % unit == 0:
            return f"{n / unit:.0f}{sign}"
    return f"{n:.0f}"


def left_out(rows: list[Row], measures: Sequence[Measure], positive: bool = True) -> list[str]:
    """One sentence with the number of cases that have no point, by reason, and the methods without
    any; nothing if every case has one. The command `attnbench table` lists the cases. If values are
    `positive`, the axes are logarithmic and cannot show others."""

    def problem_of(record: Record) -> str:
        return _problem(record, measures, positive)

    counts: Counter[str] = Counter()
    empty: set[str] = set()
    asked = 0
    for row in rows:
        for method, records in group_methods(row).items():
            problems = [problem for r in records if (problem := problem_of(r))]
            counts.update(problems)
            asked += len(records)
            if len(problems) == len(records):
                empty.add(method)
    if not counts:
        return []
    several = len(counts) > 1
    listed = ", ".join(f"{n} {reason}" if several else reason for reason, n in counts.most_common())
    drawn = {r["method"] for row in rows for r in row.records if not problem_of(r)}
    everywhere = [method for method in empty if method not in drawn]
    names = ", ".join(method_text(method) for method in sorted(everywhere))
    without = f"; no curve: {names}" if names else ""
    total = counts.total()
    return [
        f"Without a point: {total} of {count_of(asked, 'case')} ({listed}){without}. "
        "`attnbench table FOLDER` lists them."
    ]


def _problem(record: Record, measures: Sequence[Measure], positive: bool) -> str:
    """Why a record has no point for one of the measures; an empty text if it has all."""
    if record["outcome"] != "measured":
        return reason_of(record).text
    for measure in measures:
        value = measure.value(record)[0]
        if value is None:
            return f"{measure.name} {measure.missing(record)}"
        if positive and value <= 0:
            return f"{measure.name} not above 0"
    return ""


def source_notes(rows: list[Row], measures: Sequence[Measure]) -> list[str]:
    """Where numbers come from that were not measured here: published ones and imported ones."""
    records = [record for row in rows for record in row.records]
    columns = [measure.published for measure in measures if measure.published]
    names = {c: "diamonds" for c in columns} | {"published_outcome": "strip"}
    shown = [(r, name) for r in records for column, name in names.items() if r.get(column)]
    shown = [(r, name) for r, name in shown if name != "strip" or r["published_outcome"] == "oom"]
    texts: list[str] = []
    for name in dict.fromkeys(name for _, name in shown):
        sources = dict.fromkeys(_common_source(str(r.get("published_source"))) for r, n in shown if n == name)
        texts.append(f"Published ({name}): {'; '.join(sources)}.")
    external = {f"{method_text(r['method'])}: {r['external_source']}": None
                for r in records if r.get("external_source")}  # fmt: skip
    return [*texts, *([f"Not measured here: {'; '.join(external)}."] if external else [])]


def _common_source(source: str) -> str:
    """A source without what it says of a single case, which follows a colon."""
    return source.split(": ")[0]
