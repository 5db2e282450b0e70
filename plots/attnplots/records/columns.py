"""The columns of any folder that `attnbench` writes, and the choice of some of them by name."""

import difflib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnplots.records import environment, records, schema, trainings
from attnplots.records.environment import Environment
from attnplots.records.records import Record, RecordsError
from attnplots.records.schema import Axis, Column

# The types of columns that can be drawn, and of those that hold several numbers for each record.
NUMBERS = ("integer", "number")
LIST_TYPES = ("numbers", "numbers by name")
# The groups of columns that hold what the user asked for.
ASKED = ("case", "setting", "training", "process")
# How many names an error lists.
LISTED = 12


@dataclass(frozen=True)
class Table:
    """The lines of a folder: records of a sweep, or points of the curves of trainings.

    Lines that differ only in the axis `seed` are repetitions of each other.
    """

    path: Path
    is_training: bool
    lines: list[Record]
    axes: tuple[Axis, ...]
    columns: dict[str, Column]
    environment: Environment
    notes: tuple[str, ...] = ()

    def where(self, wanted: Callable[[Record], bool]) -> "Table":
        """The same table with only the lines for which `wanted` is true."""
        lines = [line for line in self.lines if wanted(line)]
        return Table(self.path, self.is_training, lines, self.axes, self.columns, self.environment, self.notes)


def load(folder: Path) -> Table:
    """The table of a folder; raises RecordsError if it has none or if a line cannot be used."""
    found = [name for name in (records.FILE_NAME, trainings.FILE_NAME) if (folder / name).exists()]
    if not found:
        raise RecordsError(f"{folder}: {_contents(folder)}")
    if found[0] == records.FILE_NAME:
        return _sweep(folder)
    return _training(folder)


def only_folder(path: Path) -> Path:
    """The folder to draw at a path: the only one below it that has records or trainings, such as that
    of the only machine in results/figure1, or else the path itself."""
    names = (records.FILE_NAME, trainings.FILE_NAME)
    if any((path / name).exists() for name in names):
        return path
    inside = {file.parent for name in names for file in path.glob(f"*/**/{name}")}
    return inside.pop() if len(inside) == 1 else path


def _contents(folder: Path) -> str:
    """What is in a folder that has nothing to draw, as the end of an error message."""
    expected = f"expected {records.FILE_NAME} or {trainings.FILE_NAME}"
    if not folder.exists():
        return f"no such folder; {expected} in it"
    if not folder.is_dir():
        return f"not a folder; expected a folder with {expected.removeprefix('expected ')}"
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if not names:
        return f"an empty folder; {expected}"
    inside = sorted(
        str(path.parent.relative_to(folder))
        for name in (records.FILE_NAME, trainings.FILE_NAME)
        for path in folder.glob(f"*/**/{name}")
    )
    hint = f"; there are some in {listed(inside)}" if inside else ""
    return f"{expected}, found {listed(names)}{hint}"


def _sweep(folder: Path) -> Table:
    loaded = records.load(folder)
    columns = dict(schema.current().columns)
    for line in loaded:
        for name, value in (line.get("diagnostics") or {}).items():
            columns.setdefault(name, Column(name, "number", "", "diagnostics"))
            line.setdefault(name, value)
    found = environment.load(folder, loaded)
    path = folder / records.FILE_NAME
    return Table(path, False, list(loaded), schema.current().axes, columns, found)


def _training(folder: Path) -> Table:
    points = trainings.load_points(folder)
    axes = tuple(Axis(name, "execution") for name in schema.current().training_axes)
    notes = []
    if (folder / trainings.ENDED_FILE_NAME).exists():
        for line in trainings.load_ended(folder):
            if line.get("outcome") == trainings.FAILED:
                why = line.get("failure_kind") or "for no recorded reason"
                notes.append(f"{line['method']} with seed {line.get('seed')} failed: {why}")
    found = environment.load(folder, points)
    told = (f"Failed trainings: {'; '.join(notes)}.",) if notes else ()
    path = folder / trainings.FILE_NAME
    return Table(path, True, points, axes, schema.current().training_columns, found, told)


def known(table: Table, name: str) -> Column:
    """The column of this name. Raises RecordsError, which names the nearest columns, if there is
    none, or if no line has a value in it."""
    if name not in table.columns:
        near = difflib.get_close_matches(name, table.columns, 3, 0.5)
        names = listed(near) if near else listed(_select_valued(table, lambda column: True))
        raise RecordsError(f"{table.path}: unknown column `{name}`; expected a column such as {names}")
    if all(line.get(name) is None for line in table.lines):
        names = listed(_select_valued(table, lambda column: True))
        raise RecordsError(f"{table.path}: column `{name}` has no values; there are values in {names}")
    return table.columns[name]


def known_number(table: Table, name: str) -> Column:
    """The column of this name, which holds numbers; raises RecordsError as known() does."""
    column = table.columns.get(name)
    numeric = _select_valued(table, lambda c: c.type in NUMBERS)
    if column and column.type not in NUMBERS:
        near = difflib.get_close_matches(name, numeric, 3, 0.5) or numeric
        wrong = f"column `{name}` holds values of the type {column.type}, no numbers to draw"
        raise RecordsError(f"{table.path}: {wrong}; expected a column such as {listed(near)}")
    if column and name not in numeric:
        if why := _why_none_measured(table):
            raise RecordsError(f"{table.path}: {why}")
        near = difflib.get_close_matches(name, numeric, 3, 0.5) or numeric
        wrong = f"column `{name}` has no numbers"
        raise RecordsError(f"{table.path}: {wrong}; there are numbers in {listed(near)}")
    return known(table, name)


def _why_none_measured(table: Table) -> str:
    """What became of the cases, in words, if none of the lines was measured; empty otherwise."""
    outcomes = Counter(f"{line['outcome']}: {line.get('failure_kind')}" for line in table.lines if line.get("outcome"))
    if sum(outcomes.values()) < len(table.lines) or any(line.get("outcome") == "measured" for line in table.lines):
        return ""
    reason = next((str(line["reason"]) for line in table.lines if line.get("reason")), "")
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    return f"no case was measured ({counts}), so that there is nothing to draw; the first reason: {reason}"


def _select_valued(table: Table, wanted: Callable[[Column], bool]) -> list[str]:
    """The names of the columns that have values; what was measured comes before what was asked."""
    found = [
        name
        for name, column in table.columns.items()
        if wanted(column) and any(line.get(name) is not None for line in table.lines)
    ]
    return sorted(found, key=lambda name: table.columns[name].group in ASKED)


def filtered(table: Table, conditions: Sequence[str]) -> Table:
    """The lines that fulfil the conditions, each "COLUMN=VALUE". Of conditions on the same column
    one has to be fulfilled. Raises RecordsError for an unknown column or a value that no line has.
    """
    wanted: dict[str, list[str]] = {}
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not equals:
            raise RecordsError(f"--filter {condition}: expected COLUMN=VALUE")
        known(table, name)
        present = list(dict.fromkeys(value_text(line.get(name)) for line in table.lines))
        if _normal(value) not in map(_normal, present):
            near = difflib.get_close_matches(value, present, 3, 0.5) or present
            raise RecordsError(f"{table.path}: no line has {condition}; {name} is {listed(near)}")
        wanted.setdefault(name, []).append(_normal(value))
    chosen = table.where(lambda line: all(_normal(value_text(line.get(n))) in v for n, v in wanted.items()))
    if not chosen.lines:
        raise RecordsError(f"{table.path}: no line fulfils all of --filter {', '.join(conditions)}")
    return chosen


def value_text(value: Any) -> str:
    """A value as users write it: true, 0.5, linear; "none" for a missing value."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _normal(text: str) -> str:
    """The same text for all texts of the same number."""
    try:
        number = float(text)
    except ValueError:
        return text
    return repr(number) if math.isfinite(number) else text


def listed(names: Iterable[str]) -> str:
    """The names, separated by commas; only the first LISTED of many."""
    every = list(names)
    more = f" and {len(every) - LISTED} more" if len(every) > LISTED else ""
    return ", ".join(every[:LISTED]) + more
