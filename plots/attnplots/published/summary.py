"""The results of a sweep as a short table in Markdown: which method is the fastest at some lengths, and
from which length on methods are faster than sdpa."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from attnplots.records import crossovers, environment, records
from attnplots.records import rows as data
from attnplots.records.crossovers import CROSSES, NEVER, RIVAL, Crossover
from attnplots.records.options import add_methods, select_methods
from attnplots.records.records import Record, Records
from attnplots.records.rows import Row

LENGTHS = (4096, 65536)


def summary_table(found: Records, known: Iterable[Crossover] | None = None) -> str:
    """The table of records, with the machine, the revision and the date below it.

    `known` are the crossovers; if they are None, `attnbench analyse` computes them for the folder of
    the records. Raises RecordsError if they cannot be computed.
    """
    present, absent = data.select_present_devices(found)
    if known is None:
        known = crossovers.find(present)
    known = list(known)
    heads = [f"fastest at N = {data.size_text(n)}" for n in LENGTHS]
    lines = [f"| | {' | '.join(heads)} | faster than `{RIVAL}` from N (95 % interval) |"]
    lines.append("|---" * (len(LENGTHS) + 2) + "|")
    for row in data.split_rows(present):
        cells = [_fastest(row, n) for n in LENGTHS]
        lines.append(f"| {' | '.join([row.title, *cells, _crossings(row, known)])} |")
    lines += ["", " ".join([f"{environment.stamp(present)}.", *absent])]
    return "\n".join(lines) + "\n"


def _has_rival(found: Sequence[Record]) -> bool:
    return any(record["method"] == RIVAL for record in found)


def _fastest(row: Row, n: int) -> str:
    """The fastest method at a length, and how much slower the next one is."""
    times = {
        r["method"]: data.TIME.value(r)
        for r in row.records
        if r["query_len"] == n and r["outcome"] == "measured" and data.TIME.value(r)[0]
    }
    ordered = sorted(times, key=lambda method: times[method][0] or 0.0)
    if not ordered:
        return "not measured"
    first = ordered[0]
    time, low, high = times[first]
    assert time
    interval = f" ({low:.3g}–{high:.3g})" if low is not None and high is not None else ""
    text = f"`{first}`, {time:.3g}{interval} ms"
    if len(ordered) > 1:
        text += f"; `{ordered[1]}` takes {(times[ordered[1]][0] or 0.0) / time:.2g} times as long"
    return text


def _crossings(row: Row, known: list[Crossover]) -> str:
    """From which length on each method is faster than RIVAL."""
    if not _has_rival(row.records):
        return f"`{RIVAL}` was not measured"
    mine = crossovers.select(known, row.records)
    parts = []
    for method in data.group_methods(row):
        if method != RIVAL and method in mine:
            parts.append(f"`{method}`: {_crossing(mine[method])}")
    return "; ".join(parts) or "cannot tell"


def _crossing(crossover: Crossover) -> str:
    if crossover.verdict == CROSSES:
        if not crossover.faster:
            return f"slower from {crossover.length:,.0f} on"
        return f"{crossover.length:,.0f} ({crossover.low:,.0f}–{crossover.high:,.0f})"
    if crossover.verdict == NEVER:
        return "at every N" if crossover.faster else "at no N"
    return "cannot tell"


def main(root: Path, parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Prints the table of a folder."""
    parser.add_argument("folder", type=Path, metavar="RESULT_DIR", help="folder of a sweep")
    add_methods(parser)
    options = parser.parse_args(arguments)
    print(summary_table(select_methods(records.load(options.folder), options.methods)), end="")
