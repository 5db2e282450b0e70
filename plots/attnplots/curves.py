"""Turns records into what figures show: rows of panels, curves with their ends, and notes."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from attnplots.records import EXTERNAL, Record, Records, RecordsError

# A curve that stops for one of these reasons gets an end mark with these words.
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

# Titles begin with these axes. The others follow in the order of the schema.
FIRST = ("protocol", "causal")
# A panel has a curve for each value of the axis CURVES, drawn against the axis ALONG.
CURVES = "method"
ALONG = "query_len"


@dataclass(frozen=True)
class Row:
    """The records that are drawn in one row of panels."""

    title: str
    records: list[Record]


@dataclass(frozen=True)
class End:
    """Where a curve ends although longer lengths were to be measured, and the words on it."""

    n: int
    y: float
    words: str


@dataclass(frozen=True)
class Curve:
    """One method in one panel; `y` is nan at a length without a value."""

    method: str
    n: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    end: End | None

    @property
    def tip(self) -> tuple[float, float]:
        """The rightmost point, which may be the end mark."""
        if self.end:
            return self.end.n, self.end.y
        last = np.flatnonzero(np.isfinite(self.y))[-1]
        return float(self.n[last]), float(self.y[last])


Value = Callable[[Record], tuple[float | None, float | None, float | None]]


@dataclass(frozen=True)
class Measure:
    """A quantity to draw: its name in notes, the title of its axis, and its value in a record.

    The value has an interval, or None for both ends.
    """

    name: str
    title: str
    value: Value


@dataclass(frozen=True)
class Length:
    """What `query_len` is called in a figure: a letter in notes and slopes, and a label."""

    letter: str
    label: str


SEQUENCE = Length("N", "Sequence length N")


def time_value(record: Record) -> tuple[float | None, float | None, float | None]:
    """Time per sample in ms with its 95% interval, which records have for the whole batch."""
    low, high = record.get("time_ci_low_ms"), record.get("time_ci_high_ms")
    batch = record["batch"]
    return (
        record.get("time_per_sample_ms"),
        None if low is None else low / batch,
        None if high is None else high / batch,
    )


def memory_value(record: Record) -> tuple[float | None, float | None, float | None]:
    """Peak memory per sample above the inputs, in bytes."""
    return record.get("peak_extra_bytes_per_sample"), None, None


TIME = Measure("time", "Time per sample (ms)", time_value)
MEMORY = Measure("memory", "Peak memory per sample, above the inputs", memory_value)


def on_present_devices(records: Records) -> tuple[Records, list[str]]:
    """The records of the devices that the machine had, and a note on each other device."""
    absent, texts = set(), []
    for device in dict.fromkeys(record.get("device") for record in records):
        mine = [record for record in records if record.get("device") == device]
        if all(record.get("failure_kind") == "unsupported" for record in mine):
            reasons = dict.fromkeys(str(record.get("reason") or "not supported") for record in mine)
            texts.append(f"Nothing was measured on {device}: {'; '.join(reasons)}.")
            absent.add(device)
    present = records.where(lambda record: record.get("device") not in absent)
    return (present, texts) if present else (records, [])


def split_rows(records: Records) -> list[Row]:
    """One row for each setting; its title says what sets it apart from the others.

    Records of one row differ in nothing but method and lengths. Of the lengths, those that may
    follow from the sequence length split only where one sequence length has several values.
    """
    lengths = [axis.name for axis in records.schema.axes if axis.kind == "length"]
    settings = [axis.name for axis in records.schema.axes if axis.name not in (CURVES, *lengths)]
    axes = [axis for axis in FIRST if axis in settings]
    axes += [axis for axis in settings if axis not in FIRST]
    for axis in lengths:
        if axis == ALONG:
            continue
        seen: dict[str, object] = {}
        for record in records:
            place = json.dumps([record.get(a) for a in (CURVES, ALONG, *axes)])
            if seen.setdefault(place, record.get(axis)) != record.get(axis):
                axes.append(axis)
                break
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(json.dumps([record.get(a) for a in axes]), []).append(record)
    varying = [a for a in axes if a != "protocol" and len({_key(r, a) for r in records}) > 1]
    ordered = sorted(groups.values(), key=lambda group: [_sort_key(group[0], a) for a in axes])
    return [
        Row(
            " · ".join([_protocol(group[0])] + [_said(group[0], a) for a in varying]),
            sorted(group, key=lambda r: (r[CURVES], r[ALONG])),
        )
        for group in ordered
    ]


def _key(record: Record, axis: str) -> str:
    return json.dumps(record.get(axis))


def _sort_key(record: Record, axis: str) -> tuple[int, float, str]:
    value = record.get(axis)
    if axis == "protocol" and value in PROTOCOLS:
        return 0, list(PROTOCOLS).index(value), ""
    if isinstance(value, int | float):
        return 0, value, ""
    return 1, 0, json.dumps(value)


def _protocol(record: Record) -> str:
    return PROTOCOLS.get(record["protocol"], record["protocol"].replace("_", " "))


def _said(record: Record, axis: str) -> str:
    """A column's value in the words of a row title."""
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
    """The row's records of each method, shortest length first."""
    methods: dict[str, list[Record]] = {}
    for record in row.records:
        methods.setdefault(record["method"], []).append(record)
    return methods


def curves(row: Row, measure: Measure) -> list[Curve]:
    """The curves of a panel; a method without a single value has none."""
    found = (_curve(method, records, measure.value) for method, records in by_method(row).items())
    return [curve for curve in found if curve]


def span(columns: list[list[list[Curve]]]) -> tuple[float, float]:
    """The shortest and the longest length in any panel of any column, the times first."""
    if not any(columns[0]):
        raise RecordsError("expected at least one measured record with a time, found none")
    every = [curve for column in columns for panel in column for curve in panel]
    return min(curve.n[0] for curve in every), max(curve.tip[0] for curve in every)


def _curve(method: str, records: list[Record], value: Value) -> Curve | None:
    triples = [value(r) if r["outcome"] == "measured" else (None, None, None) for r in records]
    # nan interrupts the line at a length that failed.
    n = np.array([r["query_len"] for r in records], dtype=float)
    y, low, high = (np.array([_positive(t[i]) for t in triples]) for i in range(3))
    points = np.flatnonzero(np.isfinite(y))
    if not len(points):
        return None
    keep = slice(0, points[-1] + 1)
    end = None
    stop = _stop(records)
    if stop and stop["query_len"] > n[points[-1]]:
        a, b = points[-2:] if len(points) > 1 else (points[-1], points[-1])
        # A single point has no slope, so the curve is taken to grow with the length.
        slope = math.log(y[b] / y[a]) / math.log(n[b] / n[a]) if a != b else 1.0
        at = stop["query_len"]
        end = End(at, y[b] * (at / n[b]) ** slope, END_WORDS[stop["failure_kind"]])
    return Curve(method, n[keep], y[keep], low[keep], high[keep], end)


def _positive(value: float | None) -> float:
    return value if value is not None and value > 0 else math.nan


def _stop(records: list[Record]) -> Record | None:
    """The first record beyond the last measured one whose failure ends the curve."""
    measured = [r["query_len"] for r in records if r["outcome"] == "measured"]
    if not measured:
        return None
    beyond = (r for r in records if r["query_len"] > max(measured) and not _other(r))
    return next(beyond, None)


def _other(record: Record) -> bool:
    return record["outcome"] == "measured" or record.get("failure_kind") not in END_WORDS


def method_text(method: str) -> str:
    """A method's name in figures: options in brackets, and rounds of lsh as in lsh-4."""
    if method.endswith(EXTERNAL):
        return method_text(method.removesuffix(EXTERNAL)) + EXTERNAL
    name, _, tail = method.partition(":")
    options = [option.partition("=") for option in tail.split(",")]
    if not all(key and value for key, _, value in options):
        return " ".join(method.split())
    said = []
    for key, _, value in options:
        if (name, key) == ("lsh", "rounds"):
            name = f"lsh-{value}"
        else:
            said.append(value if key == "profile" else f"{key}={value}")
    return f"{name} ({', '.join(said)})" if said else name


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
    """A sentence for each row on the records that its panels do not show.

    `wanted` returns the measures that should be drawn of a measured record. `ends` says whether
    the panels have end marks, which explain the records beyond them.
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
        values = {measure.name: measure.value(record)[0] for measure in measures}
        # A logarithmic axis cannot show zero.
        return [
            f"{name} {'not recorded' if value is None else 'is not above 0'}"
            for name, value in values.items()
            if math.isnan(_positive(value))
        ]
    kind = str(record.get("failure_kind") or record["outcome"])
    if not _other(record):
        implied = stop is not None and record["query_len"] >= stop["query_len"]
        return [] if implied else [END_WORDS[kind]]
    if kind == "unsupported":
        return ["not supported"]
    return [kind.replace("_", " ")]


def _left_out(method: str, problem: str, lengths: list[int], asked: int, length: Length) -> str:
    name = method_text(method)
    if len(lengths) == asked:
        return f"{name}: {problem}"
    if len(lengths) > 3:
        said = f"{size_text(lengths[0])} … {size_text(lengths[-1])}"
    else:
        said = ", ".join(size_text(n) for n in lengths)
    return f"{name} at {length.letter} = {said}: {problem}"
