"""From which length on a method is faster than another, as `attnbench analyse` computes it."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnplots.records import Record, Records, RecordsError

# The method that others are compared with: PyTorch's fused softmax attention.
RIVAL = "sdpa"
CROSSES, NEVER = "crosses", "never crosses"
# What a driver that was built, or installed with the Python package, is called.
PROGRAM = "attnbench"


@dataclass(frozen=True)
class Crossover:
    """How a method compares with RIVAL in one setting.

    `verdict` is CROSSES or NEVER, or says that the records cannot tell. `length` is where both take
    the same time, with a 95 % interval, and `faster` says whether the method is the faster one at
    the longest common length. `axes` are the values of the axes of the method's records.
    """

    method: str
    axes: dict[str, Any]
    verdict: str
    faster: bool
    length: float | None
    low: float | None
    high: float | None

    def fits(self, record: Record) -> bool:
        """Whether a record belongs to the setting of the crossover. Records of an older schema lack
        axes that are newer."""
        return all(record.get(name) in (None, value) for name, value in self.axes.items())


def program() -> Path | None:
    """The driver of this checkout or this installed package, else one in PATH; None if there is
    none."""
    here = Path(__file__).resolve()
    build = Path(os.environ.get("ATTNBENCH_BUILD") or here.parents[2] / "build")
    # An installed package has bin/ beside share/attnbench/plots/attnplots.
    places = [build / PROGRAM, here.parents[4] / "bin" / PROGRAM]
    found = next((str(path) for path in places if path.is_file()), shutil.which(PROGRAM))
    return Path(found) if found else None


def of_folder(records: Records) -> list[Crossover]:
    """load() of the folder of the records; empty if they have no folder or no case of RIVAL."""
    has_rival = any(r["method"] == RIVAL and r["outcome"] == "measured" for r in records)
    return load(records.folder) if records.folder and has_rival else []


def load(folder: Path) -> list[Crossover]:
    """The crossovers in time of each method with RIVAL in the records of a folder.

    Raises RecordsError if the program is not there or refuses the folder.
    """
    found = program()
    if found is None:
        raise RecordsError(
            f"{folder}: the crossovers need the program {PROGRAM}; build it with `make build`"
        )
    command = [str(found), "analyse", str(folder), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise RecordsError(f"{folder}: `attnbench analyse` failed: {said[-1] if said else ''}")
    return of_analysis(json.loads(done.stdout))


def of_analysis(analysis: dict[str, Any]) -> list[Crossover]:
    """The crossovers in the output of `attnbench analyse --format json`."""
    found = []
    for pair in analysis["crossovers"]:
        methods = [pair[side]["method"] for side in ("one", "other")]
        if pair["quantity"] != "time" or pair["differs"] != ["method"] or RIVAL not in methods:
            continue
        own = "other" if methods[0] == RIVAL else "one"
        # The winner at long lengths is the one that is slower before the crossover.
        first = pair["other_needs_less_at_first"]
        winner = "one" if first == (pair.get("length") is not None) else "other"
        low, high = pair.get("interval") or (None, None)
        axes = pair[own]
        found.append(
            Crossover(
                axes["method"], axes, pair["verdict"], winner == own, pair.get("length"), low, high
            )
        )
    return found


def of_records(crossovers: Iterable[Crossover], records: list[Record]) -> dict[str, Crossover]:
    """The crossovers of the setting that the records have in common, by method."""
    return {c.method: c for c in crossovers if any(c.fits(record) for record in records)}
