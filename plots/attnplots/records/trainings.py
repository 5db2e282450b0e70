"""Reads the folders that `attnbench train` writes: points of curves, and how trainings ended."""

from pathlib import Path

from attnplots.records import schema
from attnplots.records.records import Record, identity_of
from attnplots.records.text import RecordsError, json_lines, printable, short

FILE_NAME = "curves.jsonl"
ENDED_FILE_NAME = "trainings.jsonl"

FAILED = "failed"
# What says how good a trained model is; lower is better.
QUALITIES = ("training_loss", "validation_loss", "bits_per_dim", "phone_error_rate")
# The types of Python that the values of a column may have, by the type of the column.
TYPES: dict[str, tuple[type, ...]] = {"text": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}


def load_points(folder: Path) -> list[Record]:
    """The points of all curves in a folder, in their order.

    Raises RecordsError, which names the file and the line, if a point cannot be used, and if the file has none.
    """
    points = _load(folder, FILE_NAME, ("update",))
    if not points:
        path = folder / FILE_NAME
        raise RecordsError(f"{path}: no lines; expected at least one JSON object on a line")
    return points


def load_ended(folder: Path) -> list[Record]:
    """The last line of each training that has ended, maybe none.

    Raises RecordsError, which names the file and the line, if a line cannot be used.
    """
    return _load(folder, ENDED_FILE_NAME, ())


def curve_of(ended: Record, points: list[Record]) -> list[Record]:
    """The points of the training that ended with this line, in the order of their updates."""
    axes = schema.current().training_axes
    name = identity_of(ended, axes)
    return sorted((p for p in points if identity_of(p, axes) == name), key=lambda point: point["update"])


def equal_time(ended: list[Record]) -> float | None:
    """The time in which the fastest of these trainings ended, in seconds; None if none did."""
    return min((line["training_s"] for line in ended if line.get("outcome") == "measured" and line.get("training_s")), default=None)


def values_at(curve: list[Record], time: float | None) -> dict[str, float]:
    """The qualities at the last point of a curve that was reached in this time; none if there is no such point."""
    reached = [point for point in curve if time is not None and point.get("training_s") is not None and point["training_s"] <= time]
    return {name: reached[-1][name] for name in QUALITIES if reached and reached[-1].get(name) is not None}


def late_falls(curve: list[Record]) -> dict[str, float]:
    """For each quality, by how much the best value of the whole curve is below the best of its first three quarters of updates.
    Nothing for a curve without points in one of both parts."""
    if not curve:
        return {}
    early = [point for point in curve if point["update"] <= 0.75 * curve[-1]["update"]]
    if not early or len(early) == len(curve):
        return {}
    falls = {}
    for name in QUALITIES:
        before, after = ([p[name] for p in part if p.get(name) is not None] for part in (early, curve))
        if before and after:
            falls[name] = min(before) - min(after)
    return falls


def _load(folder: Path, file_name: str, more_axes: tuple[str, ...]) -> list[Record]:
    path = folder / file_name
    found: dict[str, Record] = {}
    for number, line in json_lines(path):
        wrong = _problem(line, more_axes)
        if wrong:
            raise RecordsError(f"{path}:{number}: {wrong}")
        line = {n: printable(v) if isinstance(v, str) else v for n, v in line.items()}
        # After a training was continued, the later one of two points at the same update counts.
        found[identity_of(line, (*schema.current().training_axes, *more_axes))] = line
    return list(found.values())


def _problem(line: object, counts: tuple[str, ...]) -> str | None:
    """What is wrong with the columns of a line, or None."""
    if not isinstance(line, dict):
        return f"expected a JSON object, found {short(line)}"
    known = schema.current()
    version = line.get("schema_version")
    if type(version) is int and version > known.version:
        return f"expected schema_version {known.version} or less, which this program understands, found {version}"
    for name in ("task", "method"):
        if not line.get(name):
            return f"expected a text in `{name}`, found {short(line.get(name))}"
    for name in counts:
        if type(line.get(name)) is not int or line[name] <= 0:
            return f"expected a positive integer in `{name}`, found {short(line.get(name))}"
    for name, value in line.items():
        column = known.training_columns.get(name)
        if column is None and value is not None:
            return f"unknown column `{name}`; expected one of the columns that `attnbench list schema` prints for trainings"
        if column and value is not None and type(value) not in TYPES[column.type]:
            return f"expected a value of the type {column.type}, or null, in `{name}`, found {short(value)}"
    return None
