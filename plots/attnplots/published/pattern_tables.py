"""The table of docs/patterns.md: how fast softmax attention with patterns is, each case in comparison with its baseline, which took
turns with it."""

from pathlib import Path

from attnplots.published import verdicts
from attnplots.published.choosing import TIME, series_name
from attnplots.published.quoted import NOTHING, linked_provenance, load_measured
from attnplots.records import ratios
from attnplots.records.records import Record
from attnplots.records.words import time_text, times_as_fast

SWEEP = "patterns"
PROTOCOLS = {"forward": "forward", "forward_backward": "with gradients", "decode": "a decoded token"}


def _case(record: Record) -> str:
    """The method with its pattern, and in what the case differs from one sequence with as many heads of keys as of queries."""
    parts = [series_name(record)]
    if record["kv_heads"] != record["heads"]:
        parts.append(f"{record['heads']} heads, {record['kv_heads']} of keys")
    if record["packed"] != "none":
        parts.append("packed sequences")
    if record["sinks"]:
        parts.append("sinks")
    return ", ".join(parts)


def _against(record: Record) -> str:
    """The baseline with its pattern. A baseline that names no pattern has that of the case."""
    method, *axes = record["baseline"].split()
    named = dict(axis.split("=", 1) for axis in axes)
    return series_name({"method": method, "pattern": named.get("pattern", record["pattern"])})


def speed_table(root: Path) -> list[str]:
    """A row for each case and length; a column for each protocol."""
    folder, own = load_measured(root, SWEEP)
    if not folder or not own:
        return NOTHING
    rows: dict[tuple[str, int, str], dict[str, str]] = {}
    for record in own:
        if record.get("ratio_median") and not ratios.is_its_own(record):
            key = (_case(record), record["query_len"], _against(record))
            text = f"{time_text(record[TIME])}, {times_as_fast(1 / record['ratio_median'])}"
            rows.setdefault(key, {})[record["protocol"]] = text
    shown = [protocol for protocol in PROTOCOLS if any(protocol in cells for cells in rows.values())]
    return [
        *verdicts.table(
            ["case", "N", "against", *(PROTOCOLS[protocol] for protocol in shown)],
            [[case, f"{length:,}", against, *(cells.get(p, "–") for p in shown)] for (case, length, against), cells in rows.items()],
        ),
        f"One causal sequence of 8 heads of 64 where nothing else is said, float32. Measured on {linked_provenance(root, folder, own)}.",
    ]


BLOCKS = {"patterns": speed_table}
