"""What a report shows of runs of `attnbench gate`: their results in the order of their times, and the
verdicts of each case from run to run. Each run compares two builds and left a file gate.json."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnplots.records import environment, methods
from attnplots.records.records import RecordsError
from attnplots.records.text import printable
from attnplots.records.words import change_text

FILE_NAME = "gate.json"


@dataclass(frozen=True)
class Case:
    """A case of a run: its name, the verdict, and by how much the candidate's median is longer, in
    words; `ratio` holds candidate over base and the ends of its interval."""

    name: str
    verdict: str
    change: str
    waived: str
    ratio: tuple[float | None, float | None, float | None]
    label: str = ""  # of the method, if it has one
    reason: str = ""  # of a case that was not compared

    def verdict_text(self) -> str:
        """The verdict with its reason."""
        return f"{self.verdict}: {self.reason}" if self.reason else self.verdict


@dataclass(frozen=True)
class Gate:
    """A run of the gate. `base` and `candidate` name the revisions."""

    label: str
    finished: str
    result: str
    base: str
    candidate: str
    machine: str
    cases: list[Case]

    def counts(self) -> str:
        """How many cases have each verdict, in words."""
        names = [case.verdict for case in self.cases]
        return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))


def load(folder: Path, label: str) -> Gate:
    """Reads the file of a run. Raises RecordsError if it is not what `attnbench gate` writes."""
    path = folder / FILE_NAME
    try:
        found = json.loads(path.read_bytes().decode())
        candidate = {k: v for k, v in found["candidate"].items() if isinstance(v, str | int)}
        cases = [_case(case) for case in found["cases"]]
        methods.add_labels((case.name.partition(" ")[0], case.label) for case in cases)
        return Gate(
            label,
            str(found.get("finished_at") or ""),
            printable(str(found["result"])),
            _revision(found["base"]),
            _revision(found["candidate"]),
            printable(environment.machine_text(candidate)) or "unknown",
            cases,
        )
    except OSError as error:
        raise RecordsError(f"{path}: {error.strerror or type(error).__name__}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordsError(f"{path}: expected what `attnbench gate --out` writes: {type(error).__name__}: {error}")


def _revision(side: dict[str, Any]) -> str:
    # Sides of a gate of a command have no build of attnbench, but a commit of the repository.
    source = side.get("source") or {}
    text = str(side.get("revision") or str(source.get("commit") or "")[:12] or "unknown")
    changed = side.get("dirty") or (not side.get("revision") and source.get("uncommitted_changes"))
    return printable(text + (" with uncommitted changes" if changed else ""))


def _case(found: dict[str, Any]) -> Case:
    middle = found["log_ratio"]
    low, high = found.get("interval") or (None, None)
    return Case(
        printable(str(found["name"])),
        printable(str(found["verdict"])),
        change_text(middle),
        printable(str(found.get("waived") or "")),
        (_ratio(middle), _ratio(low), _ratio(high)),
        printable(str(found.get("label") or "")),
        printable(str(found.get("reason") or "")),
    )


def _ratio(log_ratio: float | None) -> float | None:
    return None if log_ratio is None else math.exp(log_ratio)


def history(gates: Sequence[Gate]) -> list[tuple[str, list[str]]]:
    """For each case its verdicts, run by run; cases that did not pass in every run come first."""
    names = list(dict.fromkeys(case.name for gate in gates for case in gate.cases))
    by_run = [{case.name: case for case in gate.cases} for gate in gates]
    passed = {name for name in names if all(name not in cases or cases[name].verdict == "pass" for cases in by_run)}
    names.sort(key=lambda name: name in passed)
    return [(methods.case_text(name), [_cell(cases.get(name)) for cases in by_run]) for name in names]


def methods_of(gates: Sequence[Gate]) -> list[str]:
    """The methods of all cases, in the order in which they first appear."""
    return list(dict.fromkeys(case.name.split(" ")[0] for gate in gates for case in gate.cases))


def _cell(case: Case | None) -> str:
    if case is None:
        return "–"
    waived = f"; waived: {case.waived}" if case.waived else ""
    return f"{case.verdict_text()} ({case.change}){waived}"
