"""The table of the CPU kernels' rates as shares of the machine's multiply-add rate."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from attnplots.figures import ceilings
from attnplots.figures.ceilings import AVX2, FLOAT32
from attnplots.figures.rates import AVX2_OPTION
from attnplots.records import environment, records
from attnplots.records.records import Record, RecordsError

# The folder of results, in that of the project, whose tables are printed unless others are given.
DEFAULT = Path("results/cpu-kernels")
PASSES = {"forward": "forward", "forward_backward": "with backward"}
MASKS = {True: "causal", False: "not causal"}


def rates(folder: Path) -> dict[str, float]:
    """The medians of the multiply-add rates (GFLOP/s) that the rounds of a sweep measured."""
    path, rounds = folder / environment.FILE_NAME, environment.read(folder).get("ceilings_of_rounds")
    return {name: median(ceilings.values_of_rounds(path, rounds, name)) for name in (FLOAT32, AVX2)}


def share(record: Record, limits: dict[str, float]) -> str:
    """The rate of a measured record by its method's formula, as a percentage of the ceiling, with the interval across processes.

    `limits` has the ceilings in GFLOP/s, as rates() returns them.
    """
    work = record["flops"] / (limits[AVX2 if AVX2_OPTION in record["method"] else FLOAT32] * 1e6)
    low, high = record.get("time_ci_high_ms"), record.get("time_ci_low_ms")
    interval = f" ({100 * work / low:.0f}–{100 * work / high:.0f})" if low and high else ""
    return f"{100 * work / record['time_median_ms']:.0f} %{interval}"


def tables(folder: Path) -> str:
    """Both tables of a folder as Markdown: the shares in float32, and the times of float32 divided by those of bfloat16."""
    found = [r for r in records.load(folder) if r.get("outcome") == "measured"]
    limits = rates(folder)
    known = environment.load(folder)
    lengths = sorted({r["query_len"] for r in found})
    lines = [
        f"{environment.machine_text(known)}; build {known.get('revision')}. The limit is the "
        "multiply-add rate of float32 that the same rounds measured on all threads: "
        f"{limits[FLOAT32]:.0f} GFLOP/s, and {limits[AVX2]:.0f} GFLOP/s with AVX2. "
        "In brackets: the interval across processes.",
        "",
        *_head("share of the limit", lengths),
    ]
    float32 = [r for r in found if r["dtype"] == "float32"]
    lines += _rows(float32, lengths, lambda r: share(r, limits))
    others = {_case(r): r for r in float32}
    narrow = [r for r in found if r["dtype"] == "bfloat16" and _case(r) in others]
    if narrow:
        lines += ["", *_head("time of float32 / time of bfloat16", lengths)]
        lines += _rows(narrow, lengths, lambda r: f"{others[_case(r)]['time_median_ms'] / r['time_median_ms']:.2f}")
    return "\n".join(lines) + "\n"


def _case(record: Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in ("method", "protocol", "causal", "query_len"))


def _head(what: str, lengths: Sequence[int]) -> list[str]:
    names = [what, *(f"N = {n}" for n in lengths)]
    return ["| " + " | ".join(names) + " |", "|---" + "|---:" * len(lengths) + "|"]


def _rows(found: Sequence[Record], lengths: Sequence[int], text: Any) -> list[str]:
    lines = []
    for method in dict.fromkeys(r["method"] for r in found):
        for causal, mask in MASKS.items():
            for protocol, name in PASSES.items():
                cells = {
                    r["query_len"]: text(r)
                    for r in found
                    if (r["method"], r["causal"], r["protocol"]) == (method, causal, protocol)
                }
                if cells:
                    row = (f"`{method}`, {mask}, {name}", *(cells.get(n, "") for n in lengths))
                    lines.append("| " + " | ".join(row) + " |")
    return lines


def main(root: Path, parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Prints the tables of each folder."""
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="RESULT_DIR",
        help=f"folder of a sweep with rounds (default: every folder in {DEFAULT}/)",
    )  # fmt: skip
    folders = parser.parse_args(arguments).folders
    folders = folders or sorted(path.parent for path in (root / DEFAULT).rglob(records.FILE_NAME))
    if not folders:
        raise RecordsError(f"{root / DEFAULT}: expected a folder with {records.FILE_NAME}, found none")
    print("\n".join(tables(folder) for folder in folders), end="")
