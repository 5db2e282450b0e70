"""The table of the CPU kernels' rates as shares of the machine's multiply-add rate."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnplots.figures import ceilings
from attnplots.records import environment, records
from attnplots.records.records import Record, RecordsError

DEFAULT = Path("results/cpu-kernels")
PASSES = {"forward": "forward", "forward_backward": "with backward"}
MASKS = {True: "causal", False: "not causal"}
# The column of the ceilings that a method with this option is compared with.
AVX2_OPTION, AVX2_RATE = "implementation=avx2", "fma_float32_avx2_gflop_s"
RATE = "fma_float32_gflop_s"


@dataclass(frozen=True)
class Share:
    """A share of the multiply-add rate, and its interval across processes (None if unknown)."""

    middle: float
    low: float | None
    high: float | None

    def text(self) -> str:
        if self.low is None or self.high is None:
            return f"{100 * self.middle:.0f} %"
        return f"{100 * self.middle:.0f} % ({100 * self.low:.0f}–{100 * self.high:.0f})"


def rates(folder: Path) -> dict[str, float]:
    """The medians of the multiply-add rates (GFLOP/s) that the rounds of a sweep measured."""
    path, found = ceilings.read_environment(folder)
    rounds = found.get("ceilings_of_rounds")
    return {name: ceilings.rate_of_rounds(path, rounds, name) for name in (RATE, AVX2_RATE)}


def share(record: Record, limits: dict[str, float]) -> Share:
    """The rate of a measured record by its method's formula, as a share of the ceiling."""
    ceiling = limits[AVX2_RATE if AVX2_OPTION in record["method"] else RATE] * 1e6
    work = record["flops"] / ceiling
    low, high = record.get("time_ci_high_ms"), record.get("time_ci_low_ms")
    return Share(work / record["time_median_ms"], work / low if low else None, work / high if high else None)


def tables(folder: Path) -> str:
    """Both tables of a folder as Markdown: shares in float32, and what bfloat16 gains."""
    found = [r for r in records.load(folder) if r.get("outcome") == "measured"]
    limits = rates(folder)
    known = environment.load(folder)
    lengths = sorted({r["query_len"] for r in found})
    lines = [
        f"{environment.machine_text(known)}; build {known.get('revision')}. The limit is the "
        "multiply-add rate of float32 that the same rounds measured on all threads: "
        f"{limits[RATE]:.0f} GFLOP/s, and {limits[AVX2_RATE]:.0f} GFLOP/s with AVX2. "
        "In brackets: the interval across processes.",
        "",
        *_head("share of the limit", lengths),
    ]
    float32 = [r for r in found if r["dtype"] == "float32"]
    lines += _rows(float32, lengths, lambda r: share(r, limits).text())
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
    folders = folders or sorted(path.parent for path in DEFAULT.rglob(records.FILE_NAME))
    if not folders:
        raise RecordsError(f"{DEFAULT}: expected a folder with {records.FILE_NAME}, found none")
    print("\n".join(tables(folder) for folder in folders), end="")
