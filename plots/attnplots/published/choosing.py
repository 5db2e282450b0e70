"""The tables of docs/choosing.md: which attention suits a need, and the times, memory and errors that show it.

Each choice is computed from the records of the sweeps `today`, `decode` and `quality`, so that no recommendation
is older than its numbers. A choice whose records are missing is left out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnplots.published import verdicts
from attnplots.published.quoted import NOTHING, linked_provenance, load_measured
from attnplots.records import crossovers
from attnplots.records.crossovers import CROSSES, RIVAL
from attnplots.records.records import Record
from attnplots.records.words import amount, bytes_text, listed, span, time_text, times_as_fast

TRAINING, DECODING, QUALITY = "today", "decode", "quality"
TIME, MEMORY = "time_per_sample_ms", "peak_extra_bytes_per_sample"
# The methods of the sweep `today` by what they compute: exact softmax attention over all keys, attention without gates, and recurrent
# attention with gates.
EXACT = ("softmax", "sdpa", "sparse-sdpa")
NO_GATES, GATES = ("linear", "favor", "lsh-1"), ("simple-gla", "gated-delta", "kda")
# The methods that decode with a state of fixed size.
RECURRENT = ("linear", "taylor", "polynomial-2", "favor", *GATES)
# The methods of the sweep `today` that README.md shows, with their patterns.
SHORTLIST = ("softmax", "sdpa", "sparse-sdpa window:512", "lsh-1", "linear", "simple-gla", "gated-delta", "kda")
# The quoted setting of the sweep `quality`, in which attention is peaked on a few keys.
CONCENTRATION, QUALITY_LENGTH = 2, 4096
# A method whose median error is below this comes close to exact attention.
CLOSE = 0.2


@dataclass(frozen=True)
class Choice:
    """A row of the table of choices: the need, the method to use as tables show it, and the numbers that show that it suits."""

    need: str
    use: str
    measured: str


def series_name(record: Record) -> str:
    """A method with its pattern, as this page writes it: `sparse-sdpa window:512`."""
    pattern = record.get("pattern") or "all"
    return f"`{record['method']}`" if pattern == "all" else f"`{record['method']} {pattern}`"


def _of(found: Iterable[Record], methods: Sequence[str], pattern: str = "all") -> list[Record]:
    return [r for r in found if r["method"] in methods and (r.get("pattern") or "all") == pattern]


def _at(found: Iterable[Record], length: int) -> list[Record]:
    return [r for r in found if r["query_len"] == length]


def _longest(found: Sequence[Record]) -> int:
    return max((r["query_len"] for r in found), default=0)


def _least(found: Iterable[Record], column: str) -> Record | None:
    return min((r for r in found if r.get(column)), key=lambda r: r[column], default=None)


def _ranked(found: Sequence[Record], column: str, text: Callable[[float], str]) -> str:
    """All records that have the column, in words and in its order, the least first: "`a` 1 ms, `b` 2 ms"."""
    ordered = sorted((r for r in found if r.get(column)), key=lambda r: r[column])
    return ", ".join(f"{series_name(r)} {text(r[column])}" for r in ordered)


def training_choices(found: Sequence[Record], crosses: dict[str, float]) -> list[Choice]:
    """The choices about training; `crosses` are the lengths from which on methods are faster than RIVAL."""
    chosen = []
    exact = _of(found, EXACT)
    longest = _longest(_of(found, [RIVAL]))
    if best := _least(_at(exact, longest), TIME):
        chosen.append(Choice(
            "softmax attention over all keys, exactly", series_name(best),
            f"N = {longest:,}: {_ranked(_at(exact, longest), TIME, time_text)}",
        ))  # fmt: skip
    fixed = [*_of(found, [*NO_GATES, *GATES])]
    shortest = min((r["query_len"] for r in _of(found, [RIVAL])), default=0)
    short = _at([*exact, *fixed], shortest)
    if best := _least(short, TIME):
        ends = listed([f"`{method}` from N = {at:,.0f} on" for method, at in sorted(crosses.items(), key=lambda x: x[1])])
        faster = f"; faster than `{RIVAL}`: {ends}" if crosses else ""
        chosen.append(Choice(
            "sequences so short that all pairs cost little", series_name(best),
            f"N = {shortest:,}: {_ranked(short, TIME, time_text)}{faster}",
        ))  # fmt: skip
    windows = [r for r in found if (r.get("pattern") or "all") != "all"]
    if windows and (rival := _least(_at(_of(found, [RIVAL]), longest), TIME)) and (best := _least(_at(windows, longest), TIME)):
        chosen.append(Choice(
            "softmax where a token needs only what is near", series_name(best),
            f"N = {longest:,}: {time_text(best[TIME])}, {times_as_fast(rival[TIME] / best[TIME], RIVAL)}",
        ))  # fmt: skip
    last = _longest(fixed)
    for need, methods in (
        ("long sequences, and no softmax: the fastest", [*NO_GATES, *GATES]),
        ("the same with a state that forgets", GATES),
    ):
        if best := _least(_at(_of(found, methods), last), TIME):
            of = _ranked(_at(_of(found, methods), last), TIME, time_text)
            chosen.append(Choice(need, series_name(best), f"N = {last:,}: {of}"))
    everything = [*fixed, *windows]
    if best := _least(_at(everything, last), MEMORY):
        of = _ranked(_at(everything, last), MEMORY, bytes_text)
        chosen.append(Choice("the least memory in training", series_name(best), f"N = {last:,}: {of}"))
    return chosen


def decoding_choices(found: Sequence[Record]) -> list[Choice]:
    """The choice about generating long texts token by token."""
    last = _longest(_of(found, RECURRENT))
    best = _least(_at(_of(found, RECURRENT), last), "time_median_ms")
    rival = _least(_at(_of(found, ["stateful-sdpa", "stateful-softmax"]), last), "time_median_ms")
    if not best or not rival:
        return []
    speedup = rival["time_median_ms"] / best["time_median_ms"]
    return [Choice(
        "generating long texts", series_name(best),
        f"token {last:,}: {time_text(best['time_median_ms'])} and {bytes_text(best['state_bytes'])} of state, "
        f"{times_as_fast(speedup, rival['method'])}, which keeps {bytes_text(rival['state_bytes'])}",
    )]  # fmt: skip


def _scored(found: Iterable[Record]) -> list[Record]:
    """The records of the quoted quality: causal, of normal inputs and one length, without exact methods."""
    return [
        r for r in found
        if r["method"] not in EXACT and r.get("causal") and r["inputs"] == "normal" and r.get("quality_row_error_median") is not None
        and r["query_len"] == QUALITY_LENGTH
    ]  # fmt: skip


def quality_choices(found: Sequence[Record]) -> list[Choice]:
    """The choice about replacing the softmax attention of a trained model."""
    scored = [r for r in _scored(found) if r["concentration"] == CONCENTRATION]
    ordered = sorted(scored, key=lambda r: r["quality_row_error_median"])[:3]
    if not ordered:
        return []
    of = ", ".join(f"{series_name(r)} {r['quality_row_error_median']:.2f}" for r in ordered)
    return [Choice(
        "replacing the softmax of a trained model without training it again",
        series_name(ordered[0]) if ordered[0]["quality_row_error_median"] < CLOSE else "nothing: train it again",
        f"median error of a row relative to exact attention, N = {QUALITY_LENGTH:,}, peaked attention: {of}; "
        f"an output of zeros has the error {ordered[0]['quality_of_zero_row_error_median']:.0f}",
    )]  # fmt: skip


def decisions(root: Path) -> list[str]:
    """The table of needs and what suits them."""
    chosen, sources = [], []
    folder, found = load_measured(root, TRAINING)
    if folder and found:
        known = [c for c in crossovers.load(folder) if c.verdict == CROSSES and c.faster]
        chosen += training_choices(found, {c.method: c.length for c in known if c.length})
        sources.append(linked_provenance(root, folder, found))
    for name, choose in ((DECODING, decoding_choices), (QUALITY, quality_choices)):
        folder, found = load_measured(root, name)
        if folder and (more := choose(found)):
            chosen += more
            sources.append(linked_provenance(root, folder, found))
    if not chosen:
        return NOTHING
    rows = [[choice.need, choice.use, choice.measured] for choice in chosen]
    return [*verdicts.table(["you need", "use", "measured"], rows), f"Measured on {'; '.join(sources)}."]


def _by_series(found: Sequence[Record], column: str, values: Sequence[float]) -> Iterator[tuple[str, list[Record | None]]]:
    """The name of each series, and its records with these values of a column."""
    by_case = {(series_name(r), r[column]): r for r in found}
    for name in dict.fromkeys(series_name(r) for r in found):
        yield name, [by_case.get((name, value)) for value in values]


def _cells(of: Iterable[Record | None], text: Callable[[Record], str]) -> list[str]:
    return [text(record) if record else "not measured" for record in of]


def _size_at_longest(of: Sequence[Record | None], column: str) -> str:
    """The size of the last record that is there, with its length."""
    last = next((record for record in reversed(of) if record), None)
    return f"{bytes_text(last[column])} at {last['query_len']:,}" if last else "not measured"


def _heads(found: Sequence[Record]) -> str:
    """The heads of records, their dimensions and dtypes, in words."""
    dtypes = ", ".join(sorted({r["dtype"] for r in found}))
    return f"{span(r['heads'] for r in found)} heads of {span(r['head_dim'] for r in found)}, {dtypes}"


def training_table(root: Path, shown: Sequence[str] = ()) -> list[str]:
    """Time and memory of a training step by method and length: of the series that are `shown`, or of all."""
    folder, found = load_measured(root, TRAINING)
    found = [r for r in found if not shown or series_name(r).strip("`") in shown]
    if not folder or not found:
        return NOTHING
    lengths = sorted({r["query_len"] for r in found if r["method"] == "linear" and r["query_len"] >= 512})
    rows = [
        [name, *_cells(known, lambda r: time_text(r[TIME])), _size_at_longest(known, MEMORY)]
        for name, known in _by_series(found, "query_len", lengths)
    ]
    head = ["method", *(f"N = {n:,}" for n in lengths), "memory"]
    return [
        *verdicts.table(head, rows),
        f"Forward and backward of one causal sequence, {_heads(found)}. Measured on {linked_provenance(root, folder, found)}.",
    ]


def decoding_table(root: Path) -> list[str]:
    """Time of a token and size of the state by method and position."""
    folder, found = load_measured(root, DECODING)
    if not folder or not found:
        return NOTHING
    found = [r for r in found if r["protocol"] == "decode"]
    lengths = [n for n in (64, 4096, 65536) if _at(found, n)]
    rows = [
        [name, *_cells(known, lambda r: time_text(r["time_median_ms"])), _size_at_longest(known, "state_bytes")]
        for name, known in _by_series(found, "query_len", lengths)
        if any(known)
    ]
    head = ["method", *(f"token {n:,}" for n in lengths), "state"]
    return [*verdicts.table(head, rows), f"{_heads(found)}. Measured on {linked_provenance(root, folder, found)}."]


def quality_table(root: Path) -> list[str]:
    """The error of methods relative to exact attention, by how peaked the attention is."""
    folder, found = load_measured(root, QUALITY)
    own = _scored(found)
    if not folder or not own:
        return NOTHING
    levels = sorted({r["concentration"] for r in own})
    rows = [
        [name, *_cells(known, lambda r: f"{r['quality_row_error_median']:.2f}")]
        for name, known in _by_series(own, "concentration", levels)
    ]
    share = {r["concentration"]: r.get("quality_effective_share") for r in own}
    heads = [f"{level:g} ({100 * share[level]:.2g} % of the keys)" if share[level] else f"{level:g}" for level in levels]
    return [
        *verdicts.table(["method", *heads], rows),
        f"Median error of a row, relative to exact attention, causal, N = {QUALITY_LENGTH:,}; an output of zeros has the error 1. A column is a concentration, "
        f"the standard deviation of the scores, with the share of the keys to which a row attends. {_heads(own)}. Measured on {linked_provenance(root, folder, own)}.",
    ]


BLOCKS: dict[str, Callable[[Path], list[str]]] = {
    "choosing": decisions,
    "choosing-training": training_table,
    "today": lambda root: training_table(root, SHORTLIST),
    "choosing-decoding": decoding_table,
    "choosing-quality": quality_table,
}
