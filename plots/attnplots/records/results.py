"""Reads every number in a folder of results, and the published ones, as rows of columns.

A row has the columns of its line, and these: `folder`, where it was found; `source`, which is
"trainings", "generations" or the name of a sweep; and `dataset`, if it is of one.
"""

import csv
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from attnplots.records import environment, records, trainings
from attnplots.records.environment import Environment
from attnplots.records.records import Record
from attnplots.records.text import RecordsError, json_lines, printable, short

Row = dict[str, Any]

TRAININGS, GENERATIONS = "trainings", "generations"
GENERATIONS_FILE_NAME = "generations.jsonl"
# The columns of generations.jsonl that every line must have, and their types in words.
GENERATION_COLUMNS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "dataset": (str, "a text"),
    "method": (str, "a text"),
    "device": (str, "a text"),
    "batch": (int, "an integer"),
    "images_per_s": ((int, float), "a number"),
    "s_per_image": ((int, float), "a number"),
}
# Lines with equal values in these columns are of processes of the same case.
GENERATION_AXES = ("dataset", "method", "device", "batch", "threads", "weights")
# The names of the data sets that tasks make themselves.
MADE_DATA = {"copy": "copy", "speech": "made-speech"}

# The columns that hold numbers in the published files, and the columns of results that they become.
PUBLISHED_NUMBERS = {
    "bits_per_dim": "bits_per_dim",
    "images_per_s": "images_per_s",
    "s_per_image": "s_per_image",
    "phone_error_rate": "phone_error_rate",
    "epoch_s": "epoch_s",
    "time_ms": "time_per_sample_ms",
    "memory_bytes": "peak_allocated_bytes",
}
# The quantities of generations; those of the other columns with a data set are of trainings.
SPEEDS = ("images_per_s", "s_per_image")
# What published rows have in place of a folder.
PUBLISHED = "published"
INTEGERS = ("batch", "query_len", "head_dim")


@dataclass(frozen=True)
class Results:
    """All rows, and the environment of each folder that has some."""

    rows: list[Row]
    environments: dict[str, Environment]


def is_quick_start(path: Path) -> bool:
    """Whether a path in a folder of results leads into what `make quickstart` measured, which is no part of the results."""
    return path.parts[0] == "quickstart"


def load(root: Path) -> Results:
    """The rows of all folders in `root` but those of the quick start; raises RecordsError if a file cannot be used."""
    if not root.is_dir():
        raise RecordsError(f"{root}: no such folder; expected a folder of results")
    rows: list[Row] = []
    environments: dict[str, Environment] = {}
    for file_name in _readers():
        for path in sorted(root.rglob(file_name)):
            if is_quick_start(path.relative_to(root)):
                continue
            found = _read(path.parent, file_name)
            rows += found
            environments[str(path.parent)] = environment.load(path.parent, found)
    return Results(rows, environments)


def read_folder(folder: Path) -> list[Row]:
    """The rows of one folder; raises RecordsError if a file cannot be used."""
    present = [name for name in _readers() if (folder / name).exists()]
    return [row for name in present for row in _read(folder, name)]


def _readers() -> dict[str, Callable[[Path], list[Row]]]:
    """The functions that read a folder, by the file that they read."""
    return {records.FILE_NAME: _sweep, trainings.ENDED_FILE_NAME: _trainings, GENERATIONS_FILE_NAME: generations}


def _read(folder: Path, file_name: str) -> list[Row]:
    return [row | {"folder": str(folder)} for row in _readers()[file_name](folder)]


def _sweep(folder: Path) -> list[Row]:
    """The records of a sweep, whose name is in environment.json."""
    name = str(environment.told(folder).get("sweep") or folder.parent.name)  # of results/SWEEP/MACHINE
    return [record | {"source": name} for record in records.load(folder)]


def _trainings(folder: Path) -> list[Row]:
    """The ends of trainings. Where their curves are there, `late_fall` has for each quality by how much the curve still fell in
    its last quarter, and `at_equal_time` its values at the time in which the fastest of the trainings ended."""
    ended = trainings.load_ended(folder)
    points = trainings.load_points(folder) if ended and (folder / trainings.FILE_NAME).exists() else []
    curves = [trainings.curve_of(line, points) for line in ended]
    time = trainings.equal_time(ended)
    return [
        line
        | {"source": TRAININGS, "dataset": _dataset(line)}
        | {"late_fall": trainings.late_falls(curve), "at_equal_time": trainings.values_at(curve, time)}
        for line, curve in zip(ended, curves, strict=True)
    ]


def _dataset(line: Record) -> str:
    """The name of the data that a model was trained with: that of their folder."""
    name = Path(line.get("data") or "").name or MADE_DATA.get(line["task"], line["task"])
    return re.sub(r"[^a-z0-9-]", "", name.lower()).replace("cifar-10", "cifar10")


def generations(folder: Path) -> list[Row]:
    """One row for each measured case of the speed of generation, with the medians of its processes,
    and in `range` their extremes by quantity. Raises RecordsError if a line cannot be used."""
    cases: dict[tuple[Any, ...], list[Row]] = {}
    for row in _generation_processes(folder):
        cases.setdefault(tuple(row.get(name) for name in GENERATION_AXES), []).append(row)
    rows = []
    for processes in cases.values():
        medians = {name: median(row[name] for row in processes) for name in SPEEDS}
        spans = {name: (min(row[name] for row in processes), max(row[name] for row in processes)) for name in SPEEDS}
        extrapolated = any(row.get("extrapolated") for row in processes)
        rows.append(processes[-1] | medians | {"extrapolated": extrapolated, "range": spans})
    return rows


def _generation_processes(folder: Path) -> list[Row]:
    path = folder / GENERATIONS_FILE_NAME
    rows = []
    for number, line in json_lines(path):
        if not isinstance(line, dict):
            raise RecordsError(f"{path}:{number}: expected a JSON object, found {short(line)}")
        if line.get("outcome", "measured") != "measured":
            continue
        for name, (kinds, words) in GENERATION_COLUMNS.items():
            value = line.get(name)
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise RecordsError(f"{path}:{number}: expected {words} in `{name}`, found {short(value)}")
        texts = {n: printable(v) if isinstance(v, str) else v for n, v in line.items()}
        rows.append(texts | {"source": GENERATIONS})
    return rows


def load_published(files: Iterable[Path]) -> list[Row]:
    """The rows of published files; raises RecordsError for a file that cannot be used.

    `source` is the sweep for a file of sweeps/published, and for the others what their quantities come from. `said_in`
    is the text that the numbers come from, and `as_printed` a number with the digits that the file has.
    """
    rows = []
    for path in files:
        try:
            with path.open(newline="", encoding="utf-8") as file:
                lines = list(csv.DictReader(file))
        except (OSError, ValueError, csv.Error) as error:
            raise RecordsError(f"{path}: expected a CSV file: {error}")
        for number, line in enumerate(lines, start=2):
            try:
                rows += _published(path, line)
            except (KeyError, ValueError, TypeError) as error:
                raise RecordsError(f"{path}:{number}: expected a published number: {error!r}")
    return rows


def _published(path: Path, line: dict[str, str]) -> list[Row]:
    """A row for each number of a line."""
    shared: Row = {"folder": PUBLISHED, "said_in": line["source"], "source": path.stem}
    for name, text in line.items():
        if text and name != "source" and name not in PUBLISHED_NUMBERS:
            shared[name] = int(text) if name in INTEGERS and text.isdecimal() else text
    rows = []
    for name, quantity in PUBLISHED_NUMBERS.items():
        if line.get(name):
            row = shared | {quantity: float(line[name]), "as_printed": line[name]}
            if "dataset" in row:
                row["source"] = GENERATIONS if quantity in SPEEDS else TRAININGS
            rows.append(row)
    return rows
