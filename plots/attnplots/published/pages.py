"""Writes numbers and sentences from the records into the project's pages, so that none is copied by hand.

The pages of PAGES_WITH_BLOCKS have blocks between the lines `<!-- results: NAME -->` and
`<!-- results end -->`; docs/claims.md is written as a whole.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from attnplots.published import choosing, experiment_tables, pattern_tables, recurrent_tables, verdicts
from attnplots.published.choosing import GATES, TIME
from attnplots.published.quoted import NOTHING, linked_provenance, machine_folder
from attnplots.records import certainty, crossovers, driver, records
from attnplots.records.crossovers import CROSSES, NEVER, RIVAL, Crossover
from attnplots.records.ratios import Speedups, is_its_own
from attnplots.records.records import Record, RecordsError
from attnplots.records.words import amount, listed, span, times_as_fast

PAGES_WITH_BLOCKS = ("README.md", "docs/numbers.md", "docs/experiments.md", "docs/choosing.md", "docs/recurrent.md", "docs/patterns.md")
CLAIMS = "docs/claims.md"
BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- results end -->\n)", re.DOTALL)
# A link to the figure of a sweep, which is in the folder of a machine.
PICTURE = re.compile(r"\(((?:\.\./)*)results/([\w-]+)/[\w-]+/\2\.png\)")
# The lengths that the table of Figure 1 shows.
LENGTHS = (4096, 65536)
# Ratios of two runs that differ by at most so many percent are called equal.
WITHIN = 5
# The files in rivals/ that run another package, and the name of the package.
PACKAGES = {
    "rivals/transformers-recurrent.py": "transformers",
    "rivals/onnxruntime-recurrent.py": "onnxruntime",
    "rivals/fast-transformers.py": "pytorch-fast-transformers",
    "rivals/reformer-pytorch.py": "reformer-pytorch",
    "rivals/performer-pytorch.py": "performer-pytorch",
}
# The protocols that are compared with rivals, in words.
PASSES = {"forward": "forward", "forward_backward": "with gradients"}
# PyTorch's flexible attention, which is compared with PyTorch's own RIVAL.
FLEX = "rivals/flex-attention.py"


def _time(record: Record | None) -> str:
    """The time of one sequence and how far its interval reaches to the farther side, or why there is no time."""
    if record is None:
        return "not measured"
    if record["outcome"] != "measured":
        kind = str(record.get("failure_kind") or record["outcome"])
        return {"predicted_oom": "out of memory", "oom": "out of memory"}.get(
            kind, "over the time limit" if "timeout" in kind else kind
        )
    middle = record["time_median_ms"]
    ends = (record.get("time_ci_low_ms"), record.get("time_ci_high_ms"))
    shown = f"{amount(record[TIME])} ms"
    if None in ends:
        return shown
    return f"{shown} ± {100 * certainty.reach(middle, ends):.1f} %"


def _against_baseline(found: Crossover | None) -> str:
    """From which length on a method is faster than the baseline, with the interval."""
    if found is None:
        return "not compared"
    word = "faster" if found.faster else "slower"
    if found.verdict == NEVER:
        return f"{word} at every N from {found.first:,.0f} on"
    if found.verdict == CROSSES:
        return f"{word} from N = {found.length:,.0f} on (95 %: {found.low:,.0f} to {found.high:,.0f})"
    return "cannot tell which is faster"


def _speedup(own: Sequence[Record], speedups: Speedups, method: str) -> str:
    """How many times as fast as the baseline a method is at the longest length at which both have times; an empty text
    if there is none."""
    found = {r["query_len"]: speedup for r in own if r["method"] == method and (speedup := speedups(r))}
    return f"{times_as_fast(found[max(found)])} at {max(found):,}" if found else ""


def figure1_table(root: Path) -> list[str]:
    """A table of Figure 1 with gradients, on the CPU: by method, the times at two lengths, and how many times as fast as sdpa it is and
    from which length on."""
    folder = machine_folder(root, "figure1")
    if folder is None:
        return NOTHING
    own = records.load(folder).where(lambda r: r["protocol"] == "forward_backward" and r.get("device", "cpu") == "cpu")
    known = crossovers.select(crossovers.load(folder), own)
    speedups = Speedups(own, RIVAL)
    by_case = {(r["method"], r["query_len"]): r for r in own}
    fastest = {}
    for n in LENGTHS:
        of_length = [r for (_, k), r in by_case.items() if k == n and r["outcome"] == "measured"]
        if of_length:
            fastest[n] = min(of_length, key=lambda r: r[TIME])["method"]
    head = ["method", *(f"N = {n:,}" for n in LENGTHS), f"time against {RIVAL}"]
    rows = []
    for method in dict.fromkeys(r["method"] for r in own):
        cells = []
        for n in LENGTHS:
            text = _time(by_case.get((method, n)))
            cells.append(f"**{text}**" if fastest.get(n) == method else text)
        against = [_speedup(own, speedups, method), _against_baseline(known.get(method))] if method != RIVAL else ["–"]
        rows.append([f"`{method}`", *cells, "; ".join(filter(None, against))])
    measured = [r for r in own if r["outcome"] == "measured"]
    if not measured:
        return NOTHING
    count = span(len(r.get("process_medians_ms") or [None]) for r in measured)
    return [
        *verdicts.table(head, rows),
        "Time of one sequence, forward and backward. “± 2 %”: the 95 % interval of the time reaches at most 2 % to each side; "
        f"“not measured”: the sweep has no such case. Each case ran in {count} process{'' if count == '1' else 'es'}. Bold: the fastest that was "
        f"measured. Measured on {linked_provenance(root, folder, own)}.",
    ]


def rivals_table(root: Path) -> list[str]:
    """A table of the times of other packages, divided by those of this project's methods, with recurrent attention first; then a
    sentence that compares PyTorch's flex_attention with its sdpa."""
    rows, sources, flex = [], [], []
    for sweep in ("recurrent", "rivals"):
        folder = machine_folder(root, sweep)
        if folder is None:
            continue
        own = records.load(folder)
        if found := _rival_rows(own):
            rows += found
            sources.append(f"`sweeps/{sweep}.toml` on {linked_provenance(root, folder, own)}")
        flex += _flex_sentences(own)
    if not rows:
        return ["No other package is measured yet."]
    head = ["package", "our method", "N", *(f"their time / ours, {words}" for words in PASSES.values())]
    return [*verdicts.table(head, rows), " ".join([*flex, f"Measured by {'; '.join(sources)}."])]


def _rival_rows(found: Iterable[Record]) -> list[list[str]]:
    """A row for each package, method of this project, and number and size of the heads."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in found:
        package = record["method"].rpartition(":")[0]
        if package in PACKAGES and record.get("ratio_median"):
            sizes = [record[axis] for axis in ("kv_heads", "value_heads", "head_dim")]
            groups.setdefault((PACKAGES[package], record["baseline"], bool(record["causal"]), *sizes), []).append(record)
    rows = []
    for (package, baseline, causal, kv_heads, value_heads, dim), of in groups.items():
        ratios = [[r["ratio_median"] for r in of if r["protocol"] == name] for name in PASSES]
        # A recurrent method is always causal, so that only its heads are named.
        heads = f"{kv_heads} heads of {dim}" if kv_heads == value_heads else f"{kv_heads} heads of keys and {value_heads} of values of {dim}"
        method = f"`{baseline}`, {heads}" if baseline in GATES else f"{'causal ' if causal else ''}`{baseline}`"
        unverified = any(record.get("unverified") for record in of)
        rows.append([
            f"{package} (its results are not compared)" if unverified else package, method, span(sorted({r["query_len"] for r in of}), "{:,}".format),
            *(span(values, "{:.1f}".format) if values else "not measured" for values in ratios),
        ])  # fmt: skip
    return rows


def _flex_sentences(records: Iterable[Record]) -> list[str]:
    """A line that compares the time of FLEX with that of PyTorch's sdpa, and says where it is faster; no line without records."""
    found = [r for r in records if r["method"].rpartition(":")[0] == FLEX and r.get("baseline") == RIVAL]
    found = [r for r in found if r["protocol"] == "forward" and r.get("ratio_median")]
    if not found:
        return []
    parts, faster = [], []
    for causal, mask in ((True, "with a causal mask"), (False, "without a mask")):
        own = sorted((r for r in found if bool(r.get("causal")) == causal), key=lambda r: r["query_len"])
        if own:
            ratios = span([r["ratio_median"] for r in own], "{:.2g}".format)
            parts.append(f"{ratios} × the time of `sdpa` {mask} (N = {span([r['query_len'] for r in own], '{:,}'.format)})")
        lengths = [f"{r['query_len']:,}" for r in own if (r.get("ratio_ci_high") or math.inf) < 1]
        if lengths:
            faster.append(f"{mask} at N = {listed(lengths)}")
    where = f"It is faster {listed(faster)}" if faster else "It is nowhere certain to be faster"
    return [
        "Of PyTorch's own functions, in the forward pass, `flex_attention` takes "
        f"{listed(parts)}. {where}, by the 95 % intervals of these ratios."
    ]


def _runs(root: Path) -> list[str]:
    """The folders of the two runs of the sweep `repeat`, relative to the project; empty unless both exist."""
    first = machine_folder(root, "repeat", f"run-1/{records.FILE_NAME}")
    second = first.parent / "run-2" if first else None
    if first is None or second is None or not (second / records.FILE_NAME).exists():
        return []
    return [str(folder.relative_to(root)) for folder in (first, second)]


def _compared(root: Path, runs: Sequence[str], quantity: str) -> list[dict[str, Any]]:
    """The comparisons of `attnbench compare` of the cases of both runs, in "ratio" or "time"."""
    words = ["compare", *runs, "--within", str(WITHIN)]
    words += ["--quantity", "time"] if quantity == "time" else []
    cases = driver.ask(*words, folder=root)["cases"]
    # A case that was its own baseline has the ratio 1 except for noise.
    left_out = {records.identity(r) for r in records.load(root / runs[0]) if quantity == "ratio" and is_its_own(r)}
    return [
        case for case in cases
        if case.get("quantity") == quantity and case.get("b_value") and records.identity(case["case"]) not in left_out
    ]  # fmt: skip


def _changes(cases: Sequence[dict[str, Any]]) -> list[tuple[float, dict[str, Any]]]:
    """By how many percent the second run differs from the first, with the case, for each case; the largest difference first."""
    changes = [(abs(math.exp(case["log_ratio"]) - 1) * 100, case["case"]) for case in cases if case.get("log_ratio") is not None]
    return sorted(changes, key=lambda pair: -pair[0])


def _ratio_changes(root: Path, runs: Sequence[str], cases: Sequence[dict[str, Any]]) -> list[tuple[float, dict[str, Any]]]:
    """The same for the recorded ratios of these cases, which the figure of the two runs shows; `attnbench compare` estimates the change
    of a ratio from the processes of both runs, which can differ a little."""
    before, after = ({records.identity(r): r["ratio_median"] for r in records.load(root / run) if r.get("ratio_median")} for run in runs)
    keyed = [(records.identity(case["case"]), case["case"]) for case in cases]
    changes = [(abs(after[key] / before[key] - 1) * 100, case) for key, case in keyed if key in before and key in after]
    return sorted(changes, key=lambda pair: -pair[0])


def repeat_sentences(root: Path) -> list[str]:
    """A paragraph on how much the ratios of two runs of one sweep differ."""
    compared = _compared(root, runs, "ratio") if (runs := _runs(root)) else []
    if not compared:
        return ["Two runs are not measured yet."]
    changes = _ratio_changes(root, runs, compared)
    close = sum(change <= WITHIN for change, _ in changes)
    worst, case = changes[0]
    equivalent = sum(c["verdict"] == "equivalent" for c in compared)
    different = sum(c["verdict"] in ("regression", "improvement") for c in compared)
    undecided = len(compared) - equivalent - different
    return [
        "`sweeps/repeat.toml` ran twice. A ratio is the time of a case divided by that of its baseline, which took turns with it. "
        f"From run to run, {close} of {len(compared)} ratios changed by at most {WITHIN} %; the worst, of `{case['method']}` at "
        f"N = {case['query_len']}, changed by {worst:.1f} %. By the intervals of the changes, `attnbench compare` finds "
        f"{equivalent} equivalent within {WITHIN} % and {different or 'none'} different; "
        f"{undecided} {'interval is' if undecided == 1 else 'intervals are'} too wide to tell.",
    ]


def repeat_times(root: Path) -> list[str]:
    """A list of how much the times of two runs of one sweep differ, how wide the intervals of their exponents are, and how a decoding
    step grows with the position."""
    compared = _compared(root, runs, "time") if (runs := _runs(root)) else []
    if not compared:
        return ["Two runs are not measured yet."]
    changes = [change for change, _ in _changes(compared)]
    ratios = [case["b_value"] / case["a_value"] for case in compared]
    longer = sum(ratio > 1 for ratio in ratios)
    steps = [
        value
        for case in _compared(root, runs, "ratio")
        if case["case"]["protocol"] == "decode"
        for value in (case["a_value"], case["b_value"])
    ]
    reach: dict[str, float] = {}
    for run in runs:
        for order in driver.ask("analyse", run, folder=root)["orders"]:
            if order["quantity"] == "time" and order["interval"]:
                middle, (low, high) = order["exponent"], order["interval"]
                name = order["series"]["method"]
                reach[name] = max(reach.get(name, 0), high - middle, middle - low)
    exponents = ", ".join(f"`{name}` {value:.2f}" for name, value in reach.items())
    lines = [
        f"- Of the times, {sum(c <= WITHIN for c in changes)} of {len(changes)} differ by at most "
        f"{WITHIN} %, and {sum(c <= 2 * WITHIN for c in changes)} by at most {2 * WITHIN} %; "
        f"{longer} were longer in the second run. The largest difference is {max(changes):.0f} %.",
        f"- How far the interval of each exponent of time reaches to its farther end: {exponents}.",
    ]
    if steps:
        lines.append(
            f"- A decoding step of `linear` takes {min(steps):.3f} to {max(steps):.3f} times as long as a step at the "
            "shortest length."
        )
    return lines


BLOCKS: dict[str, Callable[[Path], list[str]]] = {
    "figure1": figure1_table,
    "repeat": repeat_sentences,
    "repeat-times": repeat_times,
    "rivals": rivals_table,
    "copy-task-short": experiment_tables.copy_table,
    "image-speed": experiment_tables.image_speed_table,
    "fashion-short": experiment_tables.fashion_table,
    "long-text": experiment_tables.long_text_table,
    "long-copy": experiment_tables.long_copy_table,
    "speech-short": experiment_tables.speech_table,
    "speech-epoch": experiment_tables.epoch_table,
    **choosing.BLOCKS,
    **recurrent_tables.BLOCKS,
    **pattern_tables.BLOCKS,
}


def insert_pictures(text: str, root: Path) -> str:
    """The text of a page whose links to figures of sweeps point at the first machine, by name, that has the figure."""

    def link(found: re.Match[str]) -> str:
        up, name = found[1], found[2]
        pictures = sorted((root / "results" / name).glob(f"*/{name}.png"))
        return f"({up}{pictures[0].relative_to(root)})" if pictures else found[0]

    return PICTURE.sub(link, text)


def insert_blocks(text: str, root: Path, page: str = "README.md") -> str:
    """The text of a page whose blocks are filled from the records. Links to results are made relative to the page. Raises RecordsError
    if a block has an unknown name."""
    up = "../" * page.count("/")

    def filled(block: re.Match[str]) -> str:
        name = block[2]
        if name not in BLOCKS:
            raise RecordsError(f"unknown block '{name}', expected one of {', '.join(BLOCKS)}")
        return block[1] + "\n".join(BLOCKS[name](root)).replace("](results/", f"]({up}results/") + "\n" + block[3]

    return BLOCK.sub(filled, text)


def made(root: Path) -> dict[str, str]:
    """The contents of each page that quotes the results, by its path."""
    texts = {name: (root / name).read_text("utf-8") for name in PAGES_WITH_BLOCKS}
    return {name: insert_pictures(insert_blocks(text, root, name), root) for name, text in texts.items()} | {
        CLAIMS: verdicts.page(root)
    }


def outdated(root: Path) -> list[str]:
    """The paths of the pages whose content differs from what the records give."""
    return [
        name
        for name, text in made(root).items()
        if not (root / name).exists() or (root / name).read_text("utf-8") != text
    ]
