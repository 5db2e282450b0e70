"""The axes and columns of records and of trainings, as `attnbench list schema` describes them."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from attnplots.records import driver


@dataclass(frozen=True)
class Axis:
    """One of the columns that together identify the case of a record.

    Records of one curve differ only in axes of kind "length". `default` is the value of the axis unless the user says
    another; where that is None, it is the value of the axis `follows`, if there is one.
    """

    name: str
    kind: str
    default: Any = None
    follows: str | None = None


@dataclass(frozen=True)
class Column:
    """One column: its type, its unit (empty if it has none), the group that it belongs to, and what it holds."""

    name: str
    type: str
    unit: str
    group: str
    description: str = ""


@dataclass(frozen=True)
class Schema:
    """The version of the schema, the axes in their order, and the columns by name.

    `training_axes` and `training_columns` describe the points of trainings instead of records. `usual_reach` is how far
    from a time or ratio its interval usually reaches at most, divided by the value. `current_options` has the name of
    each option of a method that had another name, by the method and the former name.
    """

    version: int
    usual_reach: float
    axes: tuple[Axis, ...]
    columns: dict[str, Column]
    training_axes: tuple[str, ...]
    training_columns: dict[str, Column]
    current_options: dict[tuple[str, str], str]


@cache
def current() -> Schema:
    """The schema of the driver, in which it gives every record; raises RecordsError if there is no driver."""
    data = driver.ask("list", "schema")
    return Schema(
        data["schema_version"],
        data["usual_reach"],
        tuple(Axis(a["name"], a["kind"], a["default"], a["follows"]) for a in data["axes"]),
        _columns(data["columns"]),
        tuple(data["training"]["axes"]),
        _columns(data["training"]["columns"]),
        {(option["method"], option["former"]): option["current"] for option in data["former_options"]},
    )


def _columns(items: list[dict[str, Any]]) -> dict[str, Column]:
    return {c["name"]: Column(c["name"], c["type"], c["unit"], c["group"], c["description"]) for c in items}
