"""Reads the schema of records, their axes and columns, from the `schema.json` beside them.

Result folders from before that file existed are read with the copy in this package.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

FILE_NAME = "schema.json"
COPY = Path(__file__).with_name(FILE_NAME)
# The schema version of the records that these scripts were written for.
KNOWN_VERSION: int = json.loads(COPY.read_bytes())["schema_version"]
# How far from a time or ratio its interval usually reaches at most, divided by the value.
USUAL_REACH: float = json.loads(COPY.read_bytes())["usual_reach"]
# The current name of each option of a method that had another name, by the method and the former name.
CURRENT_OPTIONS: dict[tuple[str, str], str] = {
    (option["method"], option["former"]): option["current"]
    for option in json.loads(COPY.read_bytes())["former_options"]
}


class RecordsError(ValueError):
    """Records or other input files that cannot be used; the message is one line for the user."""


@dataclass(frozen=True)
class Axis:
    """One of the columns that together identify the case of a record.

    Records of one curve differ only in axes of kind "length". `before` is the value that the axis has in records from
    before it existed, or None if that is the value of the axis `follows`, or if all records have the axis. `default`
    is its value unless the user says another; where that is None, it is the value of the axis `follows`, if there is
    one.
    """

    name: str
    kind: str
    before: Any
    default: Any = None
    follows: str | None = None


@dataclass(frozen=True)
class ColumnType:
    """The type of a column: its name in messages, and a function that says if a value has it."""

    name: str
    accepts: Callable[[Any], bool]


@dataclass(frozen=True)
class Column:
    """One column: its type, its unit (empty if it has none), the group that it belongs to, and what it holds."""

    name: str
    type: ColumnType
    unit: str
    group: str
    description: str = ""


@dataclass(frozen=True)
class Schema:
    """The axes in their order, the types of columns by name, and current names by former names.

    A diagnostic that formerly had a column of its own has the current name "diagnostics.NAME".
    `training_axes` and `training_columns` describe the points of trainings instead of records; they
    are empty in schemas from before these existed.
    """

    path: Path
    axes: tuple[Axis, ...]
    types: dict[str, ColumnType]
    former_names: dict[str, str]
    columns: dict[str, Column]
    training_axes: tuple[str, ...]
    training_columns: dict[str, Column]


# Numbers in records are smaller than this.
_LIMIT = 1e300


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < _LIMIT


def _are_numbers(values: Iterable[Any], types: set[type]) -> bool:
    """Whether all values have one of these types, and are numbers if they are not None. Records hold
    hundreds of numbers, so the loops are those of the interpreter."""
    return types.issuperset(map(type, values)) and max(map(abs, filter(None, values)), default=0) < _LIMIT


TYPES = {
    "text": ColumnType("a text", lambda value: isinstance(value, str)),
    "integer": ColumnType("an integer", lambda value: type(value) is int),
    "number": ColumnType("a number", _is_number),
    "boolean": ColumnType("true or false", lambda value: isinstance(value, bool)),
    "numbers": ColumnType(
        "a list of numbers",
        lambda value: isinstance(value, list) and _are_numbers(value, {int, float, NoneType}),
    ),
    "numbers by name": ColumnType(
        "an object of numbers",
        lambda value: isinstance(value, dict) and _are_numbers(value.values(), {int, float}),
    ),
}


def load(folder: Path) -> Schema:
    """The schema in `folder`, or the copy in this package if the folder has none."""
    path = folder / FILE_NAME
    return read(path if path.exists() else COPY)


def read(path: Path) -> Schema:
    """The schema in a file; raises RecordsError if the file cannot be read or is no schema."""
    try:
        data = json.loads(path.read_bytes().decode())
        axes = tuple(Axis(a["name"], a["kind"], a["before"], a.get("default"), a.get("follows")) for a in data["axes"])
        columns = _columns(data["columns"])
        former_names = dict(data["former_names"])
        training = data.get("training", {"axes": [], "columns": []})
        training_axes, training_columns = tuple(training["axes"]), _columns(training["columns"])
    except OSError as error:
        raise RecordsError(f"{path}: {error.strerror or type(error).__name__}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        expected = "expected a schema as `attnbench list schema` prints it"
        raise RecordsError(f"{path}: {expected}: {type(error).__name__}: {error}")
    missing = {"method", "query_len"} - {axis.name for axis in axes}
    if missing:
        raise RecordsError(f"{path}: expected an axis `{min(missing)}`, found none")
    types = {column.name: column.type for column in columns.values()}
    return Schema(path, axes, types, former_names, columns, training_axes, training_columns)


def _columns(items: list[dict[str, Any]]) -> dict[str, Column]:
    columns = (Column(c["name"], TYPES[c["type"]], c["unit"], c["group"], c.get("description", "")) for c in items)
    return {column.name: column for column in columns}
