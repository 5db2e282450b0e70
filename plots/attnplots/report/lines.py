"""The lines of a report's table and charts, as plain values for the page.

The page gets columns and rows instead of an object for each line, so that thousands of lines stay
small. Besides the columns of the records there are some that a chart needs, whose names begin with
an underscore: they are never names of recorded columns.
"""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attnplots.records import certainty, ratios, schema
from attnplots.records import rows as data
from attnplots.records.columns import LIST_TYPES
from attnplots.records.crossovers import RIVAL
from attnplots.records.records import Record, Records, identity
from attnplots.records.text import printable
from attnplots.records.words import CaseTexts, varying
from attnplots.report.folders import Folder
from attnplots.report.gates import Gate

# The columns of a table before the reader asks for all of them; axes with several values follow the first two.
FIRST = ("method", "protocol")
USUAL = ("query_len", "time_median_ms", "_interval", "_factor", "ratio_median", "peak_extra_bytes",
         "quality_row_error_median", "max_row_error", "implementation", "outcome")  # fmt: skip
# What a chart needs of a line beside the recorded columns.
DERIVED = {
    "_folder": "label of the folder",
    "_panel": "the setting, as the title of a panel",
    "_name": "the method, as figures show it",
    "_factor": "how many times as fast as the reference, which the head of the column names, by `attnbench compare --baseline`; below 1, slower",
    "_interval": "how far the interval of the time reaches from it, to the side on which it reaches farther, over the time",
    "_time_low": "low end of the interval of the time, in ms",
    "_time_high": "high end of the interval of the time, in ms",
    "_rate": "floating-point operations by the method's formula in a second, in GFLOP/s",
    "_doubts": "why the time is doubtful",
    "_missing": "why there is no value",
    "_run": "number of the run, in the order of their dates",
    "_relative": "the time over that of the same case in the first run",
    "_relative_low": "low end of the interval of the time, over the time in the first run",
    "_relative_high": "high end of the interval of the time, over the time in the first run",
    "_command": "the command that measures the case again",
}
# The columns of the lines of runs of the gate.
OF_GATES = {
    "method": "the method",
    "_name": "the method, as figures show it",
    "_panel": "the case without its method",
    "_run": DERIVED["_run"],
    "_label": "the run",
    "_ratio": "time of the candidate over that of the base",
    "_low": "low end of the interval of the ratio",
    "_high": "high end of the interval of the ratio",
    "_verdict": "what the gate decided",
}


@dataclass(frozen=True)
class Lines:
    """Columns with their descriptions and units, and the rows of values."""

    columns: list[dict[str, str]]
    usual: list[str]
    rows: list[list[Any]]


def sweep_lines(folders: Sequence[Folder]) -> Lines:
    """The lines of the records of some folders of one sweep."""
    everything: list[tuple[Folder, Record]] = [(f, r) for f in folders for r in f.records]
    together = Records(record for _, record in everything)
    names = _names(together)
    columns = [_column(name) for name in names]
    # Devices on which nothing could run do not count when panels get their titles.
    present, _ = data.select_present_devices(together)
    speedups = {folder.path: ratios.Speedups(folder.records, RIVAL) for folder in folders}
    panels = {id(r): row.title for row in data.split_rows(present) for r in row.records}
    # Cases without a number stand below the others.
    everything.sort(key=lambda found: found[1]["outcome"] != "measured")
    rows = []
    first: dict[str, float] = {}
    for folder, record in everything:
        derived = _derived(folder, record, panels.get(id(record), str(record.get("device"))))
        derived["_factor"] = speedups[folder.path](record)
        if len(folders) > 1:
            derived |= _over_runs(folders.index(folder), record, derived, first)
        rows.append([plain(derived.get(name, record.get(name))) for name in names])
    reference = next((one.name for one in speedups.values() if one.name), "")
    for column in columns:
        if column["name"] == "_factor":
            column["head"] = f"× as fast as {data.method_text(reference)}" if reference else ""
    axes = varying(together)
    usual = [*FIRST, *(name for name in axes if name != "key_len"), *USUAL]
    # A recorded ratio to the reference itself would be about the reciprocal of the factor.
    baselines = {r["baseline"] for _, r in everything if r.get("baseline")}
    left_out = {"_factor"} if not reference else {"ratio_median"} if baselines == {reference} else set()
    usual = [name for name in usual if name not in left_out]
    several = ["_folder"] if len(folders) > 1 else []
    return Lines(columns, [name for name in (*several, *usual) if name in names], rows)


def gate_lines(gates: Sequence[Gate]) -> Lines:
    """The lines of all cases of some runs of the gate."""
    rows = []
    for number, gate in enumerate(gates, 1):
        for case in gate.cases:
            method, _, setting = case.name.partition(" ")
            ratio = [plain(value) for value in case.ratio]
            rows.append([method, data.method_text(method), setting, number, gate.label, *ratio, case.verdict_text()])
    return Lines([{"name": name, "unit": "", "about": about} for name, about in OF_GATES.items()], [], rows)


def _names(lines: Sequence[Record]) -> list[str]:
    """The columns that have a value in any line and are no lists, and the derived ones."""
    scalars = [c.name for c in schema.current().columns.values() if c.type not in LIST_TYPES]
    present = [name for name in scalars if any(line.get(name) is not None for line in lines)]
    return [*DERIVED, *present]


def _column(name: str) -> dict[str, str]:
    if name in DERIVED:
        return {"name": name, "unit": "", "about": DERIVED[name]}
    column = schema.current().columns[name]
    return {"name": name, "unit": column.unit, "about": column.description}


def _derived(folder: Folder, record: Record, panel: str) -> dict[str, Any]:
    middle = record.get(data.TIME_COLUMNS[0])
    low, high = certainty.interval(record, *data.TIME_COLUMNS[1:])
    found: dict[str, Any] = {
        "_folder": folder.label,
        "_panel": panel,
        "_name": data.method_text(record["method"]),
        "_doubts": ", ".join(data.time_doubts(record)) or None,
        "_command": command_of(record),
    }
    if middle and low is not None and high is not None:
        found |= {"_time_low": low, "_time_high": high}
        found["_interval"] = certainty.reach(middle, (low, high))
    if middle and record.get("flops"):
        found["_rate"] = record["flops"] / middle / 1e6
    if record["outcome"] != "measured":
        found["_missing"] = data.reason_of(record).text
    return found


def _over_runs(run: int, record: Record, derived: dict[str, Any], first: dict[str, float]) -> dict[str, Any]:
    """The columns that show how a case changes from run to run; `first` holds the times of the first runs by case."""
    middle = record.get(data.TIME_COLUMNS[0])
    if not middle:
        return {"_run": run + 1}
    before = first.setdefault(identity(record), middle)
    ends = (derived.get("_time_low"), derived.get("_time_high"))
    low, high = (None if end is None else end / before for end in ends)
    return {"_run": run + 1, "_relative": middle / before, "_relative_low": low, "_relative_high": high}


def plain(value: Any) -> Any:
    """A value as the page gets it: texts that are safe to show, numbers with six digits."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def command_of(record: Record) -> str:
    """The command that measures the case of a record again: `attnbench measure` with the axes that
    differ from their defaults."""
    words = ["attnbench measure", shlex.quote(record["method"])]
    for axis in schema.current().axes:
        value = record.get(axis.name)
        follows = axis.follows and value == record.get(axis.follows)
        if axis.name == "method" or value is None or value == axis.default or follows:
            continue
        option = f"--{axis.name.replace('_', '-')}"
        words.append(option if value is True else f"{option} {shlex.quote(str(value))}")
    return " ".join(words)


@dataclass(frozen=True)
class Absent:
    """Cases without a number: why, how many, and some of them in words."""

    what: str
    count: int
    cases: list[str]
    reasons: list[str]


def absent(folder: Folder) -> list[Absent]:
    """The cases of a folder that were skipped or failed, by the kind of the reason."""
    case_text = CaseTexts(folder.records)
    groups: dict[str, list[Record]] = {}
    for record in folder.records:
        if record["outcome"] != "measured":
            kind = f"{record['outcome']}: {data.reason_of(record).text}"
            groups.setdefault(kind, []).append(record)
    return [
        Absent(
            kind,
            len(found),
            [case_text(record) for record in found],
            list(dict.fromkeys(printable(str(r["reason"])) for r in found if r.get("reason"))),
        )
        for kind, found in groups.items()
    ]
