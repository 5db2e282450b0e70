"""Turns records into the parts of a figure: rows of panels, curves with end marks, and notes."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from attnplots import certainty
from attnplots.methods import short_name, split_method
from attnplots.records import EXTERNAL, Record, Records, RecordsError

# The failure kinds that end a curve with an end mark, and the words beside the mark.
END_WORDS = {
    "oom": "out of memory",
    "predicted_oom": "out of memory (predicted)",
    "timeout": "over the time limit",
    "predicted_timeout": "over the time limit (predicted)",
}
PROTOCOLS = {
    "forward": "Forward",
    "forward_backward": "Forward + backward",
    "prefill": "Prefill",
    "decode": "Decoding",
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
class End:
    """The end mark of a curve that stops because longer lengths failed for a reason in END_WORDS.

    `n` is the first of these lengths; `y` continues the curve to it with the curve's last slope.
    """

    n: int
    y: float
    words: str


@dataclass(frozen=True)
class Curve:
    """One method in one panel: values `y` at lengths `n` with intervals from `low` to `high`.

    The arrays have one entry for each length; `y` is nan where there is no value, `low` and `high`
    are nan where there is no interval, and `ringed` is true where the value is doubtful.
    """

    method: str
    n: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    ringed: np.ndarray
    end: End | None

    @property
    def tip(self) -> tuple[float, float]:
        """The rightmost point: the end mark, or else the last value."""
        if self.end:
            return self.end.n, self.end.y
        last = np.flatnonzero(np.isfinite(self.y))[-1]
        return float(self.n[last]), float(self.y[last])


# Returns the value, and the lower and upper bound of its interval; each may be None.
Value = Callable[[Record], tuple[float | None, float | None, float | None]]


@dataclass(frozen=True)
class Measure:
    """A quantity to draw: its name in notes, the title of its axis, and its value in a record.

    `doubts` says why the value of a measured record is doubtful, in words of certainty.DOUBTS.
    `missing` says why a measured record has no value. Panels have a line at the value `line`;
    the notes of a figure have `note`.
    """

    name: str
    title: str
    value: Value
    doubts: Callable[[Record], list[str]] = lambda record: []
    missing: Callable[[Record], str] = lambda record: "not recorded"
    line: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Length:
    """What a figure calls `query_len`: a letter in notes and slopes, and the label of the axis."""

    letter: str
    label: str


SEQUENCE = Length("N", "Sequence length N")


TIME_COLUMNS = ("time_median_ms", "time_ci_low_ms", "time_ci_high_ms")


def time_value(record: Record) -> tuple[float | None, float | None, float | None]:
    """Time per sample in ms with its interval; records hold the interval of the whole batch."""
    low, high = certainty.interval(record, *TIME_COLUMNS[1:])
    batch = record["batch"]
    return (
        record.get("time_per_sample_ms"),
        None if low is None else low / batch,
        None if high is None else high / batch,
    )


def time_doubts(record: Record) -> list[str]:
    """Why the time of a record is doubtful."""
    return certainty.doubts(record, *TIME_COLUMNS)


def memory_value(record: Record) -> tuple[float | None, float | None, float | None]:
    """Peak memory per sample above the inputs, in bytes."""
    return record.get("peak_extra_bytes_per_sample"), None, None


TIME = Measure("time", "Time per sample (ms)", time_value, time_doubts)
MEMORY = Measure("memory", "Peak memory per sample, above the inputs", memory_value)


def on_present_devices(records: Records) -> tuple[Records, list[str]]:
    """The records of the devices that support any case, and a note on each of the other devices."""
    absent, texts = set(), []
    for device in dict.fromkeys(record.get("device") for record in records):
        of_device = [record for record in records if record.get("device") == device]
        if all(record.get("failure_kind") == "unsupported" for record in of_device):
            reasons = dict.fromkeys(str(r.get("reason") or "not supported") for r in of_device)
            texts.append(f"Nothing was measured on {device}: {'; '.join(reasons)}.")
            absent.add(device)
    present = records.where(lambda record: record.get("device") not in absent)
    return (present, texts) if present else (records, [])


def split_rows(records: Records) -> list[Row]:
    """One row for each setting; its title names the axes whose values differ among the rows.

    Records of one row differ only in the method and in axes of kind "length". A length axis other
    than the sequence length, such as the batch size, usually follows from the sequence length. It
    splits rows only if one method has several values of it at one sequence length of a setting.
    """
    lengths = [axis.name for axis in records.schema.axes if axis.kind == "length"]
    settings = [a.name for a in records.schema.axes if a.name not in (CURVE_AXIS, *lengths)]
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
    varying = [a for a in axes if a != "protocol" and len({_key(r, a) for r in records}) > 1]
    ordered = sorted(groups.values(), key=lambda group: [sort_key(group[0], a) for a in axes])
    return [
        Row(
            " · ".join([protocol_text(group[0])] + [setting_text(group[0], a) for a in varying]),
            sorted(group, key=lambda r: (r[CURVE_AXIS], r[LENGTH_AXIS])),
        )
        for group in ordered
    ]


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
        return "in a CUDA graph" if value else "launched"
    if axis == "threads" and value == 1:
        return "1 thread"
    if axis in ("heads", "threads"):
        return f"{value} {axis}"
    if axis in ("device", "dtype"):
        return str(value)
    if axis == "inputs":
        return f"{value} inputs"
    if isinstance(value, bool):
        return name if value else f"not {name}"
    return f"{name} {value}"


def by_method(row: Row) -> dict[str, list[Record]]:
    """The row's records of each method, in their order in the row."""
    methods: dict[str, list[Record]] = {}
    for record in row.records:
        methods.setdefault(record["method"], []).append(record)
    return methods


def curves(row: Row, measure: Measure) -> list[Curve]:
    """The curves of a panel; a method that has no value gets no curve."""
    found = (_curve(method, records, measure) for method, records in by_method(row).items())
    return [curve for curve in found if curve]


def span(columns: list[list[list[Curve]]]) -> tuple[float, float]:
    """The shortest and the longest length in all panels of all columns.

    Raises RecordsError if the first column, which shows times, has no curve.
    """
    if not any(columns[0]):
        raise RecordsError("expected at least one measured record with a time, found none")
    every = [curve for column in columns for panel in column for curve in panel]
    return min(curve.n[0] for curve in every), max(curve.tip[0] for curve in every)


def points(rows: list[Row], measure: Measure) -> list[Record]:
    """The records that have a value of the measure, so that they are points of the figure."""
    return [
        record
        for row in rows
        for record in row.records
        if record["outcome"] == "measured" and not math.isnan(_positive(measure.value(record)[0]))
    ]


def certainty_notes(rows: list[Row], measure: Measure) -> list[str]:
    """Notes on a measure, and on the bands and the rings of its points."""
    shown = points(rows, measure)
    notes = certainty.band_notes(shown, lambda record: None not in measure.value(record)[1:])
    notes += certainty.ring_notes([(record, measure.doubts(record)) for record in shown])
    return [measure.note, *notes] if measure.note else notes


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
    end = end_of(records, n[seen], y[seen])
    return Curve(method, n[shown], y[shown], low[shown], high[shown], ringed[shown], end)


def end_of(records: list[Record], n: np.ndarray, y: np.ndarray) -> End | None:
    """The end mark of the curve of one method, from its records and its points, whose values are
    above 0; None if no longer length failed for a reason in END_WORDS."""
    stop = _stop(records)
    if not stop or stop["query_len"] <= n[-1]:
        return None
    # A single point has no slope, so the value is assumed to be proportional to the length.
    slope = math.log(y[-1] / y[-2]) / math.log(n[-1] / n[-2]) if len(n) > 1 else 1.0
    at = stop["query_len"]
    return End(at, y[-1] * (at / n[-1]) ** slope, END_WORDS[stop["failure_kind"]])


def _positive(value: float | None) -> float:
    return value if value is not None and value > 0 else math.nan


def _stop(records: list[Record]) -> Record | None:
    """The first record whose failure ends the curve, after the last measured length."""
    measured = [r["query_len"] for r in records if r["outcome"] == "measured"]
    if not measured:
        return None
    beyond = (r for r in records if r["query_len"] > max(measured) and _ends_curve(r))
    return next(beyond, None)


def _ends_curve(record: Record) -> bool:
    return record["outcome"] != "measured" and record.get("failure_kind") in END_WORDS


def method_text(method: str) -> str:
    """The name of a method in figures: "lsh:rounds=4,chunk=64" becomes "lsh-4 (chunk=64)"."""
    if method.endswith(EXTERNAL):
        return method_text(method.removesuffix(EXTERNAL)) + EXTERNAL
    name, tail = split_method(method)
    name = short_name(name)
    if not tail:
        return " ".join(name.split())
    options = [option.partition("=") for option in tail.split(",")]
    if not all(key and value for key, _, value in options):
        return " ".join(method.split())
    shown = []
    for key, _, value in options:
        if (name, key) == ("lsh", "rounds"):
            name = f"lsh-{value}"
        else:
            shown.append(value if key == "profile" else f"{key}={value}")
    return f"{name} ({', '.join(shown)})" if shown else name


def size_text(n: float) -> str:
    """A length as axes and notes show it: 512, 1k, 64k."""
    for unit, sign in ((2**20, "M"), (2**10, "k")):
        if n >= unit and n % unit == 0:
            return f"{n / unit:.0f}{sign}"
    return f"{n:.0f}"


def notes(
    rows: list[Row],
    wanted: Callable[[Record], Sequence[Measure]],
    length: Length,
    ends: bool = True,
) -> list[str]:
    """A sentence for each row that lists the records which its panels do not show, with reasons.

    `wanted` returns the measures that should be drawn of a measured record. If `ends` is true, the
    panels have end marks, and the records that these explain are not listed.
    """
    texts = []
    for row in rows:
        left_out: dict[tuple[str, str], list[int]] = {}
        for method, records in by_method(row).items():
            stop = _stop(records) if ends else None
            for record in records:
                for problem in _problems(record, stop, wanted(record)):
                    left_out.setdefault((method, problem), []).append(record["query_len"])
        if left_out:
            parts = [
                _left_out(method, problem, lengths, len(by_method(row)[method]), length)
                for (method, problem), lengths in left_out.items()
            ]
            where = f" ({row.title})" if len(rows) > 1 else ""
            texts.append(f"Not drawn{where}: {'; '.join(parts)}.")
    return texts


def _problems(record: Record, stop: Record | None, measures: Sequence[Measure]) -> list[str]:
    if record["outcome"] == "measured":
        values = [(measure, measure.value(record)[0]) for measure in measures]
        # A logarithmic axis cannot show zero.
        return [
            f"{measure.name} {measure.missing(record) if value is None else 'is not above 0'}"
            for measure, value in values
            if math.isnan(_positive(value))
        ]
    kind = str(record.get("failure_kind") or record["outcome"])
    if _ends_curve(record):
        has_end_mark = stop is not None and record["query_len"] >= stop["query_len"]
        return [] if has_end_mark else [END_WORDS[kind]]
    if kind == "unsupported":
        return ["not supported"]
    return [kind.replace("_", " ")]


def _left_out(method: str, problem: str, lengths: list[int], asked: int, length: Length) -> str:
    name = method_text(method)
    if len(lengths) == asked:
        return f"{name}: {problem}"
    if len(lengths) > 3:
        where = f"{size_text(lengths[0])} … {size_text(lengths[-1])}"
    else:
        where = ", ".join(size_text(n) for n in lengths)
    return f"{name} at {length.letter} = {where}: {problem}"
