"""From which length on a method is faster than another, as `attnbench analyse` computes it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnplots.records import driver
from attnplots.records.records import Record, Records

# The method that others are compared with: PyTorch's fused softmax attention.
RIVAL = "sdpa"
CROSSES, NEVER = "crosses", "never crosses"


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


def find(records: Records) -> list[Crossover]:
    """load() of the folder of the records; empty if they have no folder or no case of RIVAL."""
    has_rival = any(r["method"] == RIVAL and r["outcome"] == "measured" for r in records)
    return load(records.folder) if records.folder and has_rival else []


def load(folder: Path) -> list[Crossover]:
    """The crossovers in time of each method with RIVAL in the records of a folder.

    Raises RecordsError if the driver is not there or refuses the folder.
    """
    return parse(driver.ask("analyse", folder))


def parse(analysis: dict[str, Any]) -> list[Crossover]:
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
        found.append(Crossover(axes["method"], axes, pair["verdict"], winner == own, pair.get("length"), low, high))
    return found


def select(crossovers: Iterable[Crossover], records: list[Record]) -> dict[str, Crossover]:
    """The crossovers of the setting that the records have in common, by method."""
    crossovers = list(crossovers)
    names = sorted({name for crossover in crossovers for name in crossover.axes})
    # One record for each setting, since there are many of the same setting.
    of_method: dict[str, dict[tuple[Any, ...], Record]] = {}
    for record in records:
        setting = tuple(record.get(name) for name in names)
        of_method.setdefault(record["method"], {})[setting] = record
    return {c.method: c for c in crossovers if any(map(c.fits, of_method.get(c.method, {}).values()))}
