"""The figure of what the peak memory of a call consists of: inputs, output, decoding state, what
forward keeps for backward, and workspace."""

from collections.abc import Sequence

from attnplots.figures import style
from attnplots.figures.description import Bar, Bars, Part
from attnplots.records import environment
from attnplots.records import rows as data
from attnplots.records.records import Record, Records, RecordsError
from attnplots.records.rows import Row
from attnplots.records.words import setting


# From the left to the right. Each part is darker than the one before it, so that they can be told apart in grey.
PARTS = {
    "input_bytes": Part("inputs", "#e2e6eb"),
    "output_bytes": Part("output", "#b3bdc9"),
    "state_bytes": Part("decoding state", "#8694a6"),
    "saved_bytes": Part("kept for backward", "#5b6a7e"),
    "workspace": Part("workspace", "#2a3442"),
}
WORKSPACE = "workspace"

def parts_of(record: Record) -> dict[str, float]:
    """The bytes of each part of the peak of a record, for one sequence; their sum is the peak.

    Records have the size of each part, but not which parts are alive at the moment of the peak:
    backward frees what forward kept while it makes the gradients. So a part counts as far as the peak
    has room for it beside the parts before it, and the workspace is the rest.
    """
    left = float(record["peak_allocated_bytes"])
    found = {}
    for name in PARTS:
        size = left if name == WORKSPACE else min(float(record.get(name) or 0), left)
        found[name] = size / record["batch"]
        left -= size
    return found


def describe(*folders: Records) -> Bars:
    """Bars for each setting of each folder, at the longest length that most methods have."""
    rows: list[Row] = []
    absent: list[str] = []
    for folder in folders:
        present, notes = data.select_present_devices(folder)
        rows += [row for row in data.split_rows(present) if _shown(row)]
        absent += notes
    if not rows:
        raise RecordsError("expected measured records with peak_allocated_bytes, found none")
    shown = [record for row in rows for record in _shown(row)]
    panels = [
        (f"{row.title} · N = {_at_longest(row):,}", [Bar(r["method"], parts_of(r)) for r in _shown(row)])
        for row in rows
    ]
    looks = style.styles(record["method"] for record in shown)
    notes = [*_notes(rows), *dict.fromkeys(absent)]
    return Bars(PARTS, panels, looks, setting(shown), notes, environment.stamp(shown))


def _at_longest(row: Row) -> int | None:
    """The longest length that most methods have a peak at; None if there is none."""
    methods: dict[int, set[str]] = {}
    for record in row.records:
        if record["outcome"] == "measured" and record.get("peak_allocated_bytes"):
            methods.setdefault(record["query_len"], set()).add(record["method"])
    most = max((len(found) for found in methods.values()), default=0)
    return max((n for n, found in methods.items() if len(found) == most), default=None)


def _shown(row: Row) -> list[Record]:
    """The records that have bars, largest peak first."""
    length = _at_longest(row)
    found = [
        record for record in row.records
        if record["outcome"] == "measured" and record.get("peak_allocated_bytes") and record["query_len"] == length
    ]  # fmt: skip
    return sorted(found, key=lambda record: -record["peak_allocated_bytes"] / record["batch"])


def _notes(rows: Sequence[Row]) -> list[str]:
    """What the bars are, and which methods have none."""
    notes = ["Bars: shares of the peak memory that the allocator counts. Sizes are of one sequence."]
    if any(record.get("saved_bytes") for row in rows for record in _shown(row)):
        notes.append(
            "With backward, the output includes the gradients of q, k and v. What forward keeps for backward is freed "
            "while these are made, so it counts as far as the peak has room for it beside inputs and output. "
            "Workspace is the rest."
        )
    else:
        notes.append("Workspace is what remains of the peak.")
    for row in rows:
        length, shown = _at_longest(row), {record["method"] for record in _shown(row)}
        why: dict[str, str] = {}
        for record in row.records:
            if record["method"] not in shown:
                why.setdefault(record["method"], "not measured there")
                if record["query_len"] == length and record["outcome"] != "measured":
                    why[record["method"]] = data.reason_of(record).text
        if why:
            listed = ", ".join(f"{data.method_text(method)} ({reason})" for method, reason in why.items())
            notes.append(f"No bar in {row.title}, N = {length:,}: {listed}.")
    return notes
