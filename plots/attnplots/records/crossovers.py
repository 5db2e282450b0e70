"""From which length on a series is faster than another, as `attnbench analyse` computes it."""

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
    """How the time of a series compares with that of another: a method with RIVAL, or a method on the GPU with the same on
    the CPU.

    `verdict` is CROSSES or NEVER, or says that the records cannot tell, for this `reason`. `length` is where both take
    the same time, with a 95 % interval, and `faster` says whether the series is the faster one at the longest common
    length. The common lengths are those from `first` to `last`. `axes` are the values of the axes of the series, and
    `other` those of the other.
    """

    axes: dict[str, Any]
    other: dict[str, Any]
    verdict: str
    faster: bool
    length: float | None
    low: float | None
    high: float | None
    first: float
    last: float
    reason: str

    @property
    def method(self) -> str:
        """The method of the series."""
        return str(self.axes["method"])

    def fits(self, record: Record) -> bool:
        """Whether a record belongs to the series."""
        return is_of_series(record, self.axes)


def is_of_series(record: Record, axes: dict[str, Any]) -> bool:
    """Whether a record belongs to the series with these axes. One that was made in memory may lack some."""
    return all(record.get(name) in (None, value) for name, value in axes.items())


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
    """The crossovers of methods with RIVAL in the output of `attnbench analyse --format json`."""
    pairs = [pair for pair in analysis["crossovers"] if pair["quantity"] == "time" and pair["differs"] == ["method"]]
    of_rival = [pair for pair in pairs if RIVAL in (pair["one"]["method"], pair["other"]["method"])]
    return [_of_side(pair, "other" if pair["one"]["method"] == RIVAL else "one") for pair in of_rival]


def of_patterns(analysis: dict[str, Any]) -> list[Crossover]:
    """The crossovers in time of each method and pattern with RIVAL that sees all keys."""
    pairs = [pair for pair in analysis["crossovers"] if pair["quantity"] == "time" and {"method", "pattern"}.issuperset(pair["differs"])]

    def is_rival(side: dict[str, Any]) -> bool:
        return bool(side["method"] == RIVAL and side["pattern"] == "all")

    return [_of_side(pair, "other" if is_rival(pair["one"]) else "one") for pair in pairs if is_rival(pair["one"]) or is_rival(pair["other"])]


def of_devices(analysis: dict[str, Any]) -> list[Crossover]:
    """The crossovers of methods on the GPU, which may replay a CUDA graph, with the same methods on the CPU."""
    pairs = [pair for pair in analysis["crossovers"] if pair["quantity"] == "time"]
    pairs = [pair for pair in pairs if "device" in pair["differs"] and {"device", "graph"}.issuperset(pair["differs"])]
    pairs = [pair for pair in pairs if {pair["one"]["device"], pair["other"]["device"]} == {"cpu", "cuda"}]
    return [_of_side(pair, "one" if pair["one"]["device"] == "cuda" else "other") for pair in pairs]


def _of_side(pair: dict[str, Any], own: str) -> Crossover:
    """A comparison as one of its sides sees it."""
    length = pair.get("length")
    # The winner at long lengths is the one that is slower before the crossover.
    winner = "one" if pair["other_needs_less_at_first"] == (length is not None) else "other"
    low, high = pair.get("interval") or (None, None)
    return Crossover(
        pair[own], pair["other" if own == "one" else "one"], pair["verdict"], winner == own, length, low, high,
        pair["from_length"], pair["to_length"], pair.get("reason") or "",
    )  # fmt: skip


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
