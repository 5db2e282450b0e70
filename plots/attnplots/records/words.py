"""Numbers and cases as reports and figures say them."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from attnplots.records import rows as data
from attnplots.records import schema
from attnplots.records.records import Record, Records
from attnplots.records.text import count_of

# The axes that the text of a case does not repeat.
NAMED = ("method", "protocol", "query_len")
# The axes that a reader must know even if they have their defaults.
COMMON = ("device", "dtype", "heads", "head_dim", "causal", "threads")


def amount(value: float, digits: int = 3) -> str:
    """So many significant digits without an exponent, and whole numbers from 1000 on."""
    text = f"{value:.{digits}g}"
    return f"{value:,.0f}" if "e" in text or abs(value) >= 1000 else text


def time_text(ms: float | None, digits: int = 3) -> str:
    """A time in µs, ms or s, with so many significant digits."""
    if ms is None:
        return "–"
    for unit, scale in (("s", 1e3), ("ms", 1.0)):
        if ms >= scale:
            return f"{amount(ms / scale, digits)} {unit}"
    return f"{amount(ms * 1e3, digits)} µs"


def bytes_text(count: float | None) -> str:
    """A size in B, KiB, MiB or GiB."""
    if count is None:
        return "–"
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{amount(count / scale)} {unit}"
    return f"{count:.0f} B"


def share(part: float) -> str:
    """A share in percent."""
    return f"{amount(100 * part)} %"


def change_text(log_ratio: float | None) -> str:
    """A ratio, given by its logarithm, as a change in percent with its sign."""
    if log_ratio is None:
        return "–"
    part = math.expm1(log_ratio)
    return f"{'+' if part >= 0 else '−'}{share(abs(part))}"


def varying(records: Records) -> list[str]:
    """The axes that have several values among records, other than those that are always named and
    those that have the value of the axis that they follow in every record."""
    axes = [axis for axis in schema.current().axes if axis.name not in NAMED]
    told = [axis for axis in axes if not data.only_follows(axis, records)]
    return [a.name for a in told if len({str(record.get(a.name)) for record in records}) > 1]


def common_text(records: Records) -> str:
    """What all cases have in common: the axes of COMMON with one value, and others whose only value
    is not the default."""
    varied = varying(records)
    axes = [a for a in schema.current().axes if a.name not in (*NAMED, *varied)]
    told = [a for a in axes if a.name in COMMON or (records[0].get(a.name) != a.default and not a.follows)]
    return ", ".join(data.setting_text(records[0], axis.name) for axis in told if records[0].get(axis.name) is not None)


class CaseTexts:
    """Names cases in words: the method, the protocol, the length, and the axes that vary among
    `records`, except those that the length determines, as it often does the batch size."""

    def __init__(self, records: Records) -> None:
        self._axes = [name for name in varying(records) if not _follows(name, records)]

    def __call__(self, record: Record) -> str:
        parts = [data.method_text(record["method"]), data.protocol_text(record).lower()]
        parts.append(f"N = {record['query_len']:,}")
        return " · ".join(parts + [data.setting_text(record, name) for name in self._axes])


def _follows(name: str, among: Iterable[Record]) -> bool:
    """Whether the value of an axis is determined by the length."""
    seen: dict[int, Any] = {}
    return all(seen.setdefault(r["query_len"], r.get(name)) == r.get(name) for r in among)


def factor(value: float) -> str:
    """A factor with two significant digits: "94", "5.6", "1.0"."""
    text = amount(float(f"{value:.2g}"))
    return f"{text}.0" if len(text) == 1 else text


def times_as_fast(speedup: float, than: str = "") -> str:
    """The time of another method over a time, in words such as "94 × as fast" or "takes 1.6 × as long"; with `than`, the
    name of the other method, "94 × as fast as sdpa" or "takes 1.6 × as long as sdpa"."""
    end = f" as {than}" if than else ""
    return f"{factor(speedup)} × as fast{end}" if speedup >= 1 else f"takes {factor(1 / speedup)} × as long{end}"


def span(values: Iterable[float], text: Callable[[float], str] = str) -> str:
    """The smallest and the largest of several numbers, such as "3 to 8"; one if both read the same."""
    found = list(values)
    return " to ".join(dict.fromkeys((text(min(found)), text(max(found)))))


def listed(texts: Sequence[str]) -> str:
    """Texts as a list in a sentence."""
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def setting(records: list[Record]) -> str:
    """The sizes that all records have in common, as one line; the stamp names the machines."""
    on_cpu = any(str(r.get("device") or "cpu").startswith("cpu") for r in records)
    parts = []
    if on_cpu:
        parts.append(_joined(records, "threads", lambda n: count_of(n, "thread")))
    parts.append(_joined(records, "dtype", str))
    heads, dim, value = (_shared(records, a) for a in ("heads", "head_dim", "value_dim"))
    if heads is not None and dim is not None:
        more = f" (values {value})" if value not in (None, dim) else ""
        parts.append(f"{count_of(heads, 'head')} × {dim} dimensions{more}")
    if _shared(records, "causal") is True:
        parts.append("causal")
    batches = [record["batch"] for record in records]
    low, high = min(batches), max(batches)
    parts.append(f"batch {low}" if low == high else f"batch {low} to {high}")
    return " · ".join(part for part in parts if part)


def _shared(records: list[Record], column: str) -> Any:
    """The value of a column if it is the same in all records, otherwise None."""
    values = [record.get(column) for record in records]
    return values[0] if all(value == values[0] for value in values) else None


def _joined(records: list[Record], column: str, say: Callable[[Any], str]) -> str:
    values = (record.get(column) for record in records)
    return " / ".join(dict.fromkeys(say(value) for value in values if value is not None))
