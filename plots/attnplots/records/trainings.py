"""Reads the folders that `attnbench train` writes: points of curves, and how trainings ended."""

from pathlib import Path

from attnplots.records import schema as schemas
from attnplots.records.records import (
    MAX_TEXT, Record, RecordsError, identity_of, json_lines, short, type_problem, version_problem,
)
from attnplots.records.schema import Schema
from attnplots.records.text import printable

FILE_NAME = "curves.jsonl"
ENDED_FILE_NAME = "trainings.jsonl"

FAILED = "failed"


def load_points(folder: Path) -> tuple[list[Record], Schema]:
    """The points of all curves in a folder, in their order, and the schema of their columns.

    Raises RecordsError, which names the file and the line, if a point cannot be used, and if the file has none.
    """
    points, schema = _load(folder, FILE_NAME, ("update",))
    if not points:
        path = folder / FILE_NAME
        raise RecordsError(f"{path}: no lines; expected at least one JSON object on a line")
    return points, schema


def load_ended(folder: Path) -> tuple[list[Record], Schema]:
    """The last line of each training that has ended, maybe none, and the schema of the columns.

    Raises RecordsError, which names the file and the line, if a line cannot be used.
    """
    return _load(folder, ENDED_FILE_NAME, ())


def _load(folder: Path, file_name: str, more_axes: tuple[str, ...]) -> tuple[list[Record], Schema]:
    path = folder / file_name
    lines = json_lines(path)
    schema = schemas.load(folder)
    if not schema.training_columns:
        schema = schemas.read(schemas.COPY)
    found: dict[str, Record] = {}
    for number, line in lines:
        wrong = _problem(line, schema, more_axes)
        if wrong:
            raise RecordsError(f"{path}:{number}: {wrong}")
        line = {n: printable(v) if isinstance(v, str) else v for n, v in line.items()}
        # After a training was continued, the later one of two points at the same update counts.
        found[identity_of(line, (*schema.training_axes, *more_axes))] = line
    return list(found.values()), schema


def _problem(line: object, schema: Schema, counts: tuple[str, ...]) -> str | None:
    """What is wrong with the columns of a line, or None."""
    if not isinstance(line, dict):
        return f"expected a JSON object, found {short(line)}"
    if wrong := version_problem(line):
        return wrong
    for name in ("task", "method"):
        if not isinstance(line.get(name), str) or not 0 < len(line[name]) <= MAX_TEXT:
            expected = f"a text of at most {MAX_TEXT} characters"
            return f"expected {expected} in `{name}`, found {short(line.get(name))}"
    for name in counts:
        if type(line.get(name)) is not int or not 0 < line[name] < 2**63:
            return f"expected a positive integer in `{name}`, found {short(line.get(name))}"
    types = {column.name: column.type for column in schema.training_columns.values()}
    problems = (type_problem(name, value, types, schema.path) for name, value in line.items())
    return next((wrong for wrong in problems if wrong), None)
