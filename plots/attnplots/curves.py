"""From records to what is drawn: rows of panels, curves with their ends, and notes."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from attnplots.records import EXTERNAL, Record, RecordsError

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

# Records that differ in one of these columns never share a panel.
SPLIT = (
    "protocol", "causal", "device", "dtype", "heads", "head_dim", "value_dim",
    "key_lengths", "threads", "cache", "allocation", "graph", "inputs",
)  # fmt: skip
# These may follow from the length; they split only where one length has several values.
SPLIT_IF_REPEATED = ("batch", "key_len", "seed")


@dataclass(frozen=True)
class Row:
    """Records that are compared in one row of panels."""

    title: str
    records: list[Record]


@dataclass(frozen=True)
class End:
    """Where a curve stops although longer lengths were asked for."""

    n: int
    y: float
    words: str


@dataclass(frozen=True)
class Curve:
    """One method in one panel; `y` is nan where a length gave no value."""

    method: str
    n: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    end: End | None

    @property
    def tip(self) -> tuple[float, float]:
        """The rightmost point, the end mark included."""
        if self.end:
            return self.end.n, self.end.y
        last = np.flatnonzero(np.isfinite(self.y))[-1]
        return float(self.n[last]), float(self.y[last])


Value = Callable[[Record], tuple[float | None, float | None, float | None]]


@dataclass(frozen=True)
class Measure:
    """What an axis shows: a word for it in notes, a title, and the value of a record."""

    name: str
    title: str
    value: Value


@dataclass(frozen=True)
class Length:
    """What `query_len` is in a figure: its letter in notes and slopes, and its axis label."""

    letter: str
    label: str


SEQUENCE = Length("N", "Sequence length N")


def time_value(record: Record) -> tuple[float | None, float | None, float | None]:
    """Time per sample in ms with its 95% interval, which records give for the batch."""
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


def on_present_devices(records: list[Record]) -> tuple[list[Record], list[str]]:
    """The records without those of devices that the machine had not, and a note on each of these."""
    kept, texts = [], []
    for device in dict.fromkeys(record.get("device") for record in records):
        mine = [record for record in records if record.get("device") == device]
        if all(record.get("failure_kind") == "unsupported" for record in mine):
            reasons = dict.fromkeys(str(record.get("reason") or "not supported") for record in mine)
            texts.append(f"Nothing was measured on {device}: {'; '.join(reasons)}.")
        else:
            kept += mine
    return (kept, texts) if kept else (records, [])


def split_rows(records: list[Record]) -> list[Row]:
    """One row for each setting; its title says what sets it apart from the others."""
    axes = [*SPLIT]
    for axis in SPLIT_IF_REPEATED:
        seen: dict[str, object] = {}
        for record in records:
            place = json.dumps([record.get(a) for a in ("method", "query_len", *axes)])
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
            sorted(group, key=lambda r: (r["method"], r["query_len"])),
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
    value = record.get(axis)
    if axis == "causal":
        return "causal" if value else "not causal"
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
    return f"{axis.replace('_', ' ')} {value}"


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
    # nan where there is nothing to draw keeps the line from running across a failed length.
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
        # One point has no slope; growing with the length is the least that can be said.
        slope = math.log(y[b] / y[a]) / math.log(n[b] / n[a]) if a != b else 1.0
        at = stop["query_len"]
        end = End(at, y[b] * (at / n[b]) ** slope, END_WORDS[stop["failure_kind"]])
    return Curve(method, n[keep], y[keep], low[keep], high[keep], end)


def _positive(value: float | None) -> float:
    return value if value is not None and value > 0 else math.nan


def _stop(records: list[Record]) -> Record | None:
    """The first record beyond the last measured one that says why the method went no further."""
    measured = [r["query_len"] for r in records if r["outcome"] == "measured"]
    if not measured:
        return None
    beyond = (r for r in records if r["query_len"] > max(measured) and not _other(r))
    return next(beyond, None)


def _other(record: Record) -> bool:
    return record["outcome"] == "measured" or record.get("failure_kind") not in END_WORDS


def method_text(method: str) -> str:
    """A method's name as figures write it: options follow in brackets, lsh's rounds as in lsh-4."""
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
    """A length as axis and notes write it: 512, 1k, 64k."""
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
    """A sentence for each row on what was asked for and is not in its panels.

    `wanted` says what should be drawn of a measured record; `ends` that the panels have end
    marks, which speak for what lies beyond them.
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
        # A logarithmic axis has no place for zero.
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
