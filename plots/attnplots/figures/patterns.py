"""The figures of patterns: attention with each pattern of visible keys as a curve of its own, against the sequence length, and how far
the outputs of windows are from attention to all keys."""

from dataclasses import replace
from typing import Any

from attnplots.figures import quality, scaling
from attnplots.figures.description import Sheet
from attnplots.records import crossovers, driver
from attnplots.records.crossovers import Crossover
from attnplots.records.records import Record, Records, RecordsError

ALL, OWN = "all", "sparse-sdpa"


def describe(records: Records) -> dict[str, Sheet]:
    """Time and memory per sequence, with the lengths from which on methods and patterns are faster than sdpa, as the sheet without a
    name: a curve of sparse-sdpa has the name of its pattern, others have both names. If several windows were scored, also their errors
    against their sizes, as the sheet "quality"."""
    shown = Records([_named(record) for record in records if _has_one_text_and_all_heads(record)], records.folder)
    if not shown:
        raise RecordsError("no records of sequences that are not packed, with as many heads of keys as of queries")
    sheets = {"": scaling.describe(shown, known=_crossovers(records))}
    windows = quality.describe_windows(
        Records([r for r in records if r["method"] == OWN and _has_one_text_and_all_heads(r)], records.folder)
    )
    return sheets if windows is None else sheets | {"quality": windows}


def _crossovers(records: Records) -> list[Crossover]:
    if not records.folder or not any(r["method"] == crossovers.RIVAL for r in records):
        return []
    found = crossovers.of_patterns(driver.ask("analyse", records.folder))
    return [replace(crossover, axes=_named(crossover.axes)) for crossover in found]


def _has_one_text_and_all_heads(record: Record) -> bool:
    """Whether the case differs from others in the method, the pattern and the length alone."""
    return record["packed"] == "none" and record["kv_heads"] == record["heads"] == record["value_heads"]


def _named(record: dict[str, Any]) -> dict[str, Any]:
    if record["pattern"] == ALL:
        return record
    pattern = record["pattern"].replace(":", " ")
    # What has its own kernels for patterns needs no other name; sdpa with a mask does.
    name = pattern if record["method"] == OWN else f"{record['method']}, {pattern}"
    return record | {"method": name, "pattern": ALL}
