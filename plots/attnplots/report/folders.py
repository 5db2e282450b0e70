"""Finds what a report shows: folders of sweeps, grouped by the name of the sweep, folders of
experiments, and folders with the result of a run of the gate."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnplots.figures.experiments import images
from attnplots.records import environment, records, results, trainings
from attnplots.records.environment import Environment
from attnplots.records.records import Record, Records, RecordsError
from attnplots.records.text import printable
from attnplots.report import gates
from attnplots.report.gates import Gate

# A folder that has one of these files is a folder of results.
EXPERIMENT_FILES = (trainings.FILE_NAME, trainings.ENDED_FILE_NAME, results.GENERATIONS_FILE_NAME)
FILES = (records.FILE_NAME, *EXPERIMENT_FILES, gates.FILE_NAME)


@dataclass(frozen=True)
class Folder:
    """A folder of a sweep. `label` tells it from the other folders of the report, `commands`
    measured what is in it, and `machine` is what environment.json says of the machine besides the environment."""

    label: str
    path: Path
    sweep: str
    description: str
    settings: dict[str, Any]
    commands: list[str]
    machine: dict[str, Any]
    records: Records
    environment: Environment

    def finished(self) -> str:
        """When the last record was finished; folders are in the order of these times."""
        return max((str(r["finished_at"]) for r in self.records if r.get("finished_at")), default="")


@dataclass(frozen=True)
class Experiment:
    """A folder of trainings or of generated images. `points` are those of the curves, `ended` the
    last line of each training, and `generations` the rows of the speed of generation."""

    label: str
    path: Path
    points: list[Record]
    ended: list[Record]
    generations: list[results.Row]
    has_images: bool
    environment: Environment


@dataclass(frozen=True)
class Found:
    """All that a report shows: the folders of each sweep in the order of their times, the experiments,
    and the runs of the gate in the order of their times."""

    sweeps: dict[str, list[Folder]]
    experiments: list[Experiment]
    gates: list[Gate]


def load(paths: Sequence[Path]) -> Found:
    """What is in these folders and below them.

    Raises RecordsError if a path has no results, or if a file cannot be used.
    """
    found = list(dict.fromkeys(folder for path in paths for folder in _below(path)))
    labels = _labels(found)
    sweeps: dict[str, list[Folder]] = {}
    experiments, runs = [], []
    for folder in found:
        if (folder / gates.FILE_NAME).exists():
            runs.append(gates.load(folder, labels[folder]))
        if (folder / records.FILE_NAME).exists():
            one = _sweep(folder, labels[folder])
            sweeps.setdefault(one.sweep, []).append(one)
        if any((folder / name).exists() for name in EXPERIMENT_FILES):
            experiments.append(_experiment(folder, labels[folder]))
    for folders in sweeps.values():
        folders.sort(key=Folder.finished)
    runs.sort(key=lambda run: run.finished)
    return Found(sweeps, experiments, runs)


def _below(path: Path) -> list[Path]:
    """The folders of results at or below a path."""
    if not path.is_dir():
        problem = "not a folder" if path.exists() else "no such folder"
        raise RecordsError(f"{path}: {problem}; expected a folder of results")
    found = sorted({file.parent for name in FILES for file in path.rglob(name)})
    if not found:
        raise RecordsError(f"{path}: no results; expected {' or '.join(FILES)} in it or below it")
    return found


def _labels(folders: Sequence[Path]) -> dict[Path, str]:
    """For each folder the part of its path that tells it from the others."""
    if len(folders) == 1:
        return {folders[0]: printable(str(folders[0]))}
    absolute = {folder: folder.resolve() for folder in folders}
    common = Path(os.path.commonpath(list(absolute.values())))
    return {folder: printable(str(path.relative_to(common))) for folder, path in absolute.items()}


def _sweep(folder: Path, label: str) -> Folder:
    found = records.load(folder)
    said = environment.told(folder)
    # The file is named after the folder if environment.json does not say so: results/SWEEP/MACHINE.
    name = str(said.get("sweep") or folder.resolve().parent.name)
    return Folder(
        label,
        folder,
        printable(name),
        printable(str(said.get("description") or "")),
        {k: v for k, v in (said.get("settings") or {}).items() if not isinstance(v, dict | list)},
        [printable(str(c)) for c in said.get("commands") or [f"attnbench sweep {shlex.quote(str(name))}"]],
        _object(said.get("machine")),
        found,
        environment.load(folder, found),
    )


def _object(value: Any) -> dict[str, Any]:
    """The members of an object, whose texts are safe to show; none if it is no object."""
    members = value.items() if isinstance(value, dict) else ()
    return {name: printable(member) if isinstance(member, str) else member for name, member in members}


def _experiment(folder: Path, label: str) -> Experiment:
    points = trainings.load_points(folder) if (folder / trainings.FILE_NAME).exists() else []
    ended = trainings.load_ended(folder) if (folder / trainings.ENDED_FILE_NAME).exists() else []
    rows = results.generations(folder) if (folder / results.GENERATIONS_FILE_NAME).exists() else []
    has_images = any(True for kind in images.KINDS for _ in folder.glob(f"{kind}-*.npy"))
    lines = [*points, *ended, *rows]
    known = environment.load(folder, lines or None)
    return Experiment(label, folder, points, ended, rows, has_images, known)
