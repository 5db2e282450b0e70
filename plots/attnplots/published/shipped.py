"""Checks that the folders of results/ are consistent, and names the command that renews a folder that is not.

All sweeps of a machine must be measured by one revision, without uncommitted changes and with one schema, and each
measured case must have enough processes. Trainings take too long to be renewed with every build, so they may be of
other revisions. Cases that two sweeps share must agree.

Two times of a case disagree if the ranges of their processes do not overlap and their medians differ by more than
the factor `DRIFT`. If the true times were equal, the ranges of n processes each would not overlap with a probability
of 2 / C(2n, n), which is 1.6e-4 for 8 and 4.1e-5 for 9, so that over a hundred shared cases a false alarm has a
probability of at most 2 %. `DRIFT` is the factor by which times of a shared machine differ from one hour to another
(docs/numbers.md), and sweeps are measured hours apart. Memory is counted and does not drift, so it may differ by
the factor `MEMORY` only.
"""

import argparse
import math
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnplots.published import stamps
from attnplots.records import environment, records, trainings
from attnplots.records.options import add_results
from attnplots.records.records import Record, Records, RecordsError
from attnplots.records.results import GENERATIONS_FILE_NAME, is_quick_start
from attnplots.records.text import count_of, json_object, printable

DRIFT = 1.3
MEMORY = 1.01
# The fewest processes with which `attnbench compare` can decide 18 to 64 cases (docs/numbers.md).
MIN_PROCESSES = 8
# Sweeps that measure errors. Their times need not be exact, and so may come from fewer processes.
OF_ERRORS = ("quality",)
FIGURES_COMMAND = "make figures"
# The file of a prediction. Nothing in it comes from records, so it may be of another revision.
PREDICTION = "scaling.json"
PREDICTION_COMMAND = ".venv/bin/python -m attnbench.distributed simulate --backward --out {folder}"
# The columns of the interval of a time, which stands in for the range of the processes if there are too few.
INTERVAL = ("time_ci_low_ms", "time_ci_high_ms")


@dataclass(frozen=True)
class Problem:
    """What is wrong with a folder or a file, and the command that renews it."""

    where: str
    what: str
    command: str

    def text(self) -> str:
        """One line for the user."""
        return f"{self.where}: {self.what}; renew with: {self.command}"


@dataclass(frozen=True)
class Folder:
    """A folder of a sweep: where it is, the name of the sweep, the machine, and its records."""

    path: Path
    name: str
    machine: str
    records: Records

    def newest(self) -> str:
        """When the last record was finished."""
        return max((record.get("finished_at") or "" for record in self.records), default="")


def _own_folders(root: Path) -> Iterator[Path]:
    """The folders results/NAME/MACHINE and, of two runs, results/NAME/MACHINE/RUN."""
    for machine in sorted(root.glob("*/*")):
        if machine.is_dir() and not is_quick_start(machine.relative_to(root)):
            yield machine
            yield from sorted(path for path in machine.iterdir() if path.name.startswith("run-"))


def sweeps(root: Path) -> list[Folder]:
    """The folders of sweeps in a folder of results."""
    found = []
    for path in _own_folders(root):
        if (path / records.FILE_NAME).exists():
            name, machine = path.relative_to(root).parts[:2]
            found.append(Folder(path, name, machine, records.load(path)))
    return found


class _Checker:
    """Collects the problems of a folder of results."""

    def __init__(self, root: Path, renewals: dict[str, str]) -> None:
        self.root, self.renewals = root, renewals
        self.problems: list[Problem] = []

    def add(self, path: Path, what: str, command: str | None = None) -> None:
        name = path.relative_to(self.root).parts[0]
        known = self.renewals.get(name, "none is known; experiments/parts.toml does not list it")
        where = str(Path(self.root.name) / path.relative_to(self.root))
        self.problems.append(Problem(where, what, command or known))

    def check_builds(self, folders: Sequence[Folder]) -> None:
        for machine in sorted({folder.machine for folder in folders}):
            mine = [folder for folder in folders if folder.machine == machine]
            newest = max(mine, key=Folder.newest)
            wanted = _revisions(newest)[-1:] or ["unknown"]
            for folder in mine:
                found = _revisions(folder)
                if found != wanted:
                    where = f"the newest records of this machine, in {newest.name}"
                    self.add(
                        folder.path,
                        f"measured by revision {' and '.join(found) or 'unknown'}, and {where}, by {wanted[0]}",
                    )

    def check_folder(self, folder: Folder) -> None:
        own = [record for record in folder.records if not record.get("external_source")]
        versions = sorted({record.get("schema_version", 0) for record in own})
        if len(versions) > 1:
            self.add(folder.path, f"schema versions {' and '.join(map(str, versions))}, expected one")
        if any(record.get("dirty") for record in own):
            self.add(folder.path, "measured by a build with uncommitted changes")
        few = [
            record
            for record in own
            if record["outcome"] == "measured"
            and len(record.get("process_medians_ms") or [None]) < MIN_PROCESSES
            and folder.path.parent.name not in OF_ERRORS
        ]
        if few:
            count = len(few[0].get("process_medians_ms") or [None])
            self.add(
                folder.path,
                f"{count_of(len(few), 'case')} with fewer than {MIN_PROCESSES} processes, such as "
                f"{_case_text(few[0])} with {count}",
            )

    def check_training(self, path: Path) -> None:
        if environment.load(path).get("dirty"):
            self.add(path, "made by a build with uncommitted changes")

    def check_prediction(self, path: Path) -> None:
        if json_object(path / PREDICTION).get("dirty") is not False:
            command = PREDICTION_COMMAND.format(folder=Path(self.root.name) / path.relative_to(self.root))
            self.add(path, "predicted by a build with uncommitted changes, or of an unknown revision", command)

    def check_shared_cases(self, folders: Sequence[Folder]) -> None:
        first: dict[tuple[str, str], tuple[Folder, Record]] = {}
        # Two runs of one sweep are compared by their figure.
        seen: set[tuple[str, str]] = set()
        for folder in folders:
            for record in folder.records:
                if record["outcome"] != "measured" or record.get("external_source"):
                    continue
                key = (folder.machine, records.identity(record))
                other, shared = first.setdefault(key, (folder, record))
                if other.name == folder.name:
                    continue
                what = disagreement(shared, record)
                if what and (other.name, folder.name) not in seen:
                    seen.add((other.name, folder.name))
                    older = min((other, folder), key=Folder.newest)
                    self.add(older.path, f"{_case_text(record)} has {what} in {other.name} and {folder.name}")

    def check_figures(self, path: Path) -> None:
        for what in stamps.problems(path):
            self.add(path, what, FIGURES_COMMAND)


def _revisions(folder: Folder) -> list[str]:
    return sorted({r["revision"] for r in folder.records if r.get("revision")})


def _case_text(record: Record) -> str:
    causal = " causal" if record.get("causal") else ""
    return f"{record['method']} {record['protocol']} N={record['query_len']}{causal}"


def _range(record: Record) -> tuple[float, float]:
    """The range of the processes of a case or, if it has too few, the interval of its record."""
    medians = record.get("process_medians_ms") or []
    if len(medians) >= MIN_PROCESSES:
        return min(medians), max(medians)
    low, high = (record.get(name) for name in INTERVAL)
    return (float(low if low is not None else -math.inf), float(high if high is not None else math.inf))


def disagreement(one: Record, other: Record) -> str:
    """In what two records of one case disagree, in words; empty if they agree."""
    times = [record["time_median_ms"] for record in (one, other)]
    (low_a, high_a), (low_b, high_b) = _range(one), _range(other)
    apart = high_a < low_b or high_b < low_a
    if apart and max(times) > DRIFT * min(times):
        return f"times of {times[0]:.3g} ms and {times[1]:.3g} ms"
    memory = [record.get("peak_extra_bytes") for record in (one, other)]
    if None not in memory and max(memory) > MEMORY * min(memory):
        return f"memory of {memory[0] / 2**20:.3g} MiB and {memory[1] / 2**20:.3g} MiB"
    return ""


def check(root: Path, renewals: dict[str, str]) -> list[Problem]:
    """Every problem of a folder of results; raises RecordsError if records cannot be read."""
    if not root.is_dir():
        raise RecordsError(f"{root}: no such folder; expected a folder of results")
    checker = _Checker(root, renewals)
    folders = sweeps(root)
    checker.check_builds(folders)
    for folder in folders:
        checker.check_folder(folder)
    checker.check_shared_cases(folders)
    for path in _own_folders(root):
        if any((path / n).exists() for n in (trainings.ENDED_FILE_NAME, GENERATIONS_FILE_NAME)):
            checker.check_training(path)
        if (path / PREDICTION).exists():
            checker.check_prediction(path)
        checker.check_figures(path)
    return checker.problems


def renewals_of(root: Path) -> dict[str, str]:
    """The command that renews each folder of results/, by the name of the folder: a part that `experiments/reproduce` runs."""
    lists = tomllib.loads((root / "experiments/parts.toml").read_text("utf-8"))
    names = [part["name"] for parts in lists.values() for part in parts]
    return {name: f"experiments/reproduce --only {name}" for name in names}


def main(root: Path, parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """Prints a line for each problem; returns 0 if there is none, and 1 if there is."""
    from attnplots.published import pages

    add_results(parser, root)
    options = parser.parse_args(arguments)
    found = check(options.results.resolve(), renewals_of(root))
    if options.results.resolve() == root / "results":
        for page in pages.outdated(root):
            found.append(Problem(page, "does not say what the records say", FIGURES_COMMAND))
    for problem in found:
        sys.stdout.write(printable(problem.text()) + "\n")
    count = len(sweeps(options.results.resolve()))
    summary = count_of(len(found), "problem") if found else "no problem"
    sys.stdout.write(f"{count_of(count, 'folder')} of sweeps checked: {summary}\n")
    return 1 if found else 0
