"""Reading `records.jsonl`: one JSON object a line, the last record of a case wins."""

import json
from pathlib import Path
from typing import Any

Record = dict[str, Any]

FILE_NAME = "records.jsonl"

# Together these columns say which case a record is about.
AXES = (
    "method", "device", "dtype", "protocol", "batch", "heads", "query_len", "key_len",
    "head_dim", "value_dim", "causal", "key_lengths", "inputs", "threads", "cache", "allocation",
    "graph", "seed",
)  # fmt: skip

# What a column is in records from before it existed.
DEFAULTS = {"inputs": "normal", "allocation": "fresh", "graph": False}

# What was not measured by this program says so by its name, wherever that stands.
EXTERNAL = " (external)"

OUTCOMES = ("measured", "skipped", "failed")
TEXTS = ("method", "protocol")
TEXTS_OR_NULL = ("failure_kind", "implementation")
COUNTS = ("batch", "query_len")
NUMBERS = (
    "time_per_sample_ms", "time_median_ms", "time_ci_low_ms", "time_ci_high_ms",
    "peak_extra_bytes_per_sample", "approximation_error", "flops", "min_bytes",
)  # fmt: skip


class RecordsError(ValueError):
    """Records that cannot be used; the message is one line for the reader."""


def load(folder: Path) -> list[Record]:
    """The records of `folder`, one for each case, in the order the cases first appear."""
    path = folder / FILE_NAME
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise RecordsError(f"{path}: {problem}; expected a file with one JSON object a line")
    tail = lines.pop()
    cases: dict[str, Record] = {}
    for number, line in enumerate([*lines, tail] if tail else lines, start=1):
        try:
            record = json.loads(line.decode(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            if number > len(lines):
                break  # a killed sweep leaves a torn last line; its case is simply not there
            raise RecordsError(f"{path}:{number}: expected a JSON object: {error}")
        wrong = _problem(record)
        if wrong:
            raise RecordsError(f"{path}:{number}: {wrong}")
        record |= {name: value for name, value in DEFAULTS.items() if record.get(name) is None}
        if record.get("external_source"):
            record["method"] += EXTERNAL
        cases[_identity(record)] = record
    if not cases:
        raise RecordsError(f"{path}: no records; expected at least one JSON object on a line")
    return list(cases.values())


def _identity(record: Record) -> str:
    return json.dumps([record.get(axis) for axis in AXES], sort_keys=True)


def _problem(record: object) -> str | None:
    """What is wrong with a record's columns, or None."""
    if not isinstance(record, dict):
        return f"expected a JSON object, found {short(record)}"
    for name in TEXTS:
        if not isinstance(record.get(name), str) or not record[name]:
            return f"expected a text in `{name}`, found {short(record.get(name))}"
    if record.get("outcome") not in OUTCOMES:
        found = short(record.get("outcome"))
        return f"expected one of {', '.join(OUTCOMES)} in `outcome`, found {found}"
    for name in TEXTS_OR_NULL:
        if not isinstance(record.get(name), str | None):
            return f"expected a text or null in `{name}`, found {short(record[name])}"
    for name in COUNTS:
        value = record.get(name)
        if type(value) is not int or not 0 < value < 2**63:
            return f"expected a positive integer in `{name}`, found {short(value)}"
    for name in NUMBERS:
        value = record.get(name)
        if value is not None and (type(value) not in (int, float) or not abs(value) < 1e300):
            return f"expected a number or null in `{name}`, found {short(value)}"
    return None


def short(value: object) -> str:
    """A value as an error line shows it."""
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON; a number that is not finite is written as null")
