"""The table of docs/recurrent.md: how fast recurrent attention is, and the memory it takes."""

from collections.abc import Iterable
from pathlib import Path

from attnplots.published import verdicts
from attnplots.published.choosing import MEMORY, TIME
from attnplots.published.quoted import NOTHING, linked_provenance, load_measured
from attnplots.records.methods import PYTHON
from attnplots.records.records import Record
from attnplots.records.words import bytes_text, time_text

SWEEP, BASELINE = "recurrent", "linear"
# What all cases of the table have in common.
SETTING = {
    "device": "cpu", "dtype": "float32", "causal": True, "heads": 8, "kv_heads": 8, "value_heads": 8, "head_dim": 64, "value_dim": 64,
}  # fmt: skip
# The columns of the table: the protocol and the length, or the position of a decoded token.
LONGEST = 8192
PASSES = (("forward", 2048), ("forward_backward", 2048), ("forward_backward", LONGEST), ("decode", 4096))
HEADS = ("forward, N = 2,048", "with gradients, N = 2,048", f"with gradients, N = {LONGEST:,}", "a decoded token")


def _time(record: Record | None) -> str:
    """The time of a case and, in brackets, its tokens per second divided by those of the baseline that took turns with it."""
    if record is None:
        return "not measured"
    text = time_text(record[TIME])
    return text if not record.get("ratio_median") else f"{text} ({1 / record['ratio_median']:.2f})"


def _of_one_shape(found: Iterable[Record]) -> list[Record]:
    """The cases of this project's methods with the SETTING whose baseline is BASELINE."""
    return [
        r for r in found
        if PYTHON not in r["method"] and r.get("baseline") == BASELINE and all(r[name] == value for name, value in SETTING.items())
    ]  # fmt: skip


def speed_table(root: Path) -> list[str]:
    """Times of passes and of a decoded token, and the memory of the longest sequence, by method."""
    folder, found = load_measured(root, SWEEP)
    own = _of_one_shape(found)
    if not folder or not own:
        return NOTHING
    by_case = {(r["method"], r["protocol"], r["query_len"]): r for r in own}
    rows = []
    for method in dict.fromkeys(r["method"] for r in own):
        known = [by_case.get((method, protocol, length)) for protocol, length in PASSES]
        longest = known[2]
        rows.append([f"`{method}`", *map(_time, known), bytes_text(longest[MEMORY]) if longest else "not measured"])
    return [
        *verdicts.table(["method", *HEADS, f"memory, N = {LONGEST:,}"], rows),
        f"One sequence, 8 heads of 64, float32. In brackets: tokens a second divided by those of `{BASELINE}`, measured in turns. Memory: the peak above "
        f"the inputs, outputs and gradients included. Measured on {linked_provenance(root, folder, own)}.",
    ]


BLOCKS = {"recurrent": speed_table}
