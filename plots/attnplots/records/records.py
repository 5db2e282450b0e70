"""Reads `records.jsonl`, one JSON object on each line. The last record of a case counts."""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from attnplots.records import methods
from attnplots.records import schema as schemas
from attnplots.records.methods import EXTERNAL
from attnplots.records.schema import RecordsError, Schema
from attnplots.records.text import printable

Record = dict[str, Any]

FILE_NAME = "records.jsonl"

OUTCOMES = ("measured", "skipped", "failed")
# Columns that every record must have: not empty texts, and positive integers.
TEXTS = ("method", "protocol")
COUNTS = ("batch", "query_len")
MAX_TEXT = 200
# The value of `ratio_pairing` where the baseline was not measured, in records from before `ratio_reason`: a kind of failure, a
# reason, and how it was measured beside other processes of the case.
FORMER_PAIRING = re.compile(r"none: (?:(\w+): )?(.*?)(?:; ((?:processes; )?turns|processes))?", re.DOTALL)


class Records(list[Record]):
    """Records, their schema, and the folder that they were read from, if any; records whose axes
    have equal values belong to the same case."""

    def __init__(self, records: Iterable[Record], schema: Schema, folder: Path | None = None) -> None:
        super().__init__(records)
        self.schema = schema
        self.folder = folder

    def where(self, wanted: Callable[[Record], bool]) -> "Records":
        """The records for which `wanted` is true."""
        return Records((record for record in self if wanted(record)), self.schema, self.folder)


def load(folder: Path) -> Records:
    """read(), with texts that can be drawn."""
    found = _read(folder)
    for record in found:
        record.update({n: printable(v) for n, v in record.items() if isinstance(v, str)})
    _name_methods(found)
    return found


def read(folder: Path) -> Records:
    """The records of `folder`, one for each case, in the order in which the cases first appear.
    From then on methods.method_text() knows the labels of their methods.

    Raises RecordsError, which names the file and the line, if a record cannot be used.
    """
    found = _read(folder)
    _name_methods(found)
    return found


def _name_methods(found: Records) -> None:
    methods.add_labels((record["method"], record.get("method_label") or "") for record in found)


def _read(folder: Path) -> Records:
    path = folder / FILE_NAME
    lines = json_lines(path)
    schema = schemas.load(folder)
    cases: dict[str, Record] = {}
    for number, record in lines:
        if isinstance(record, dict):
            record = _rename_former(record, schema)
        wrong = _problem(record, schema)
        if wrong:
            raise RecordsError(f"{path}:{number}: {wrong}")
        for axis in schema.axes:
            if record.get(axis.name) is None:
                record[axis.name] = record.get(axis.follows) if axis.before is None and axis.follows else axis.before
        _split_former_pairing(record)
        for name in ("method", "baseline"):
            if record.get(name):
                record[name] = methods.with_current_options(record[name])
        if record.get("external_source"):
            record["method"] += EXTERNAL
        cases[identity(record, schema)] = record
    if not cases:
        raise RecordsError(f"{path}: no records; expected at least one JSON object on a line")
    return Records(cases.values(), schema, folder)


def json_lines(path: Path) -> list[tuple[int, Any]]:
    """The number and the JSON value of each line; raises RecordsError for a line that is no JSON.

    A program that was killed can leave an incomplete last line, which is left out.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise RecordsError(f"{path}: {problem}; expected a file with one JSON object on each line")
    tail = lines.pop()
    found = []
    for number, line in enumerate([*lines, tail] if tail else lines, start=1):
        try:
            found.append((number, json.loads(line.decode(), parse_constant=_refuse_constant)))
        except (ValueError, RecursionError) as error:
            if number > len(lines):
                break
            raise RecordsError(f"{path}:{number}: expected a JSON object: {error}")
    return found


def _rename_former(record: Record, schema: Schema) -> Record:
    """The record with its columns under their current names.

    Diagnostics that had columns of their own move into the column `diagnostics`.
    """
    if schema.former_names.keys().isdisjoint(record):
        return record
    current: Record = {}
    diagnostics: dict[str, Any] = {}
    for name, value in record.items():
        name = schema.former_names.get(name, name)
        diagnostic = name.removeprefix("diagnostics.")
        if diagnostic == name:
            current[name] = value
        elif value is not None:
            diagnostics[diagnostic] = value
    if diagnostics:
        current["diagnostics"] = diagnostics | (current.get("diagnostics") or {})
    return current


def _split_former_pairing(record: Record) -> None:
    """Moves the reason out of `ratio_pairing`, which held it once, as in "none: crashed: the worker
    died; turns" if another process of the case had a ratio."""
    found = FORMER_PAIRING.fullmatch(record.get("ratio_pairing") or "")
    if found:
        kind, reason, pairing = found.groups()
        record |= {"ratio_pairing": pairing, "ratio_failure_kind": kind, "ratio_reason": reason}


def identity(record: Record, schema: Schema) -> str:
    """A text that is the same for records of the same case."""
    return identity_of(record, [axis.name for axis in schema.axes])


def identity_of(record: Record, columns: Iterable[str]) -> str:
    """A text that is the same for records with equal values in these columns."""
    return json.dumps([record.get(name) for name in columns], sort_keys=True)


def _problem(record: object, schema: Schema) -> str | None:
    """What is wrong with a record's columns, or None."""
    if not isinstance(record, dict):
        return f"expected a JSON object, found {short(record)}"
    if wrong := version_problem(record):
        return wrong
    for name in TEXTS:
        if not isinstance(record.get(name), str) or not 0 < len(record[name]) <= MAX_TEXT:
            expected = f"a text of at most {MAX_TEXT} characters"
            return f"expected {expected} in `{name}`, found {short(record.get(name))}"
    if record.get("outcome") not in OUTCOMES:
        found = short(record.get("outcome"))
        return f"expected one of {', '.join(OUTCOMES)} in `outcome`, found {found}"
    for name in COUNTS:
        value = record.get(name)
        if type(value) is not int or not 0 < value < 2**63:
            return f"expected a positive integer in `{name}`, found {short(value)}"
    for name, value in record.items():
        wrong = type_problem(name, value, schema.types, schema.path)
        if wrong:
            return wrong
    return None


def version_problem(record: Record) -> str | None:
    """What is wrong with the version of a record's set of columns, or None."""
    version = record.get("schema_version")
    if type(version) is int and version > schemas.KNOWN_VERSION:
        understood = f"{schemas.KNOWN_VERSION} or less, which these scripts understand"
        return f"expected schema_version {understood}, found {short(version)}"
    return None


def type_problem(name: str, value: object, types: dict[str, schemas.ColumnType], path: Path) -> str | None:
    """What is wrong with a value, given the types of all columns from the schema at `path`."""
    if value is None:
        return None
    if name not in types:
        # An unknown column might be an axis, and ignoring an axis would merge different cases.
        return f"unknown column `{name}`; expected one of the columns in {path}"
    if not types[name].accepts(value):
        return f"expected {types[name].name} or null in `{name}`, found {short(value)}"
    return None


def short(value: object) -> str:
    """A value as JSON for an error message, cut to 40 characters."""
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON; expected null for a number that is not finite")
