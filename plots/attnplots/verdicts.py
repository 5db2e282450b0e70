"""Prints published numbers beside those in results/, and which claims hold here, as Markdown."""

import argparse
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from attnplots import cli, environment, results
from attnplots.curves import size_text
from attnplots.records import RecordsError
from attnplots.results import GENERATIONS, PUBLISHED, TRAININGS, Results, Row, method_name
from attnplots.text import printable

HOLDS, FAILS, UNKNOWN = "reproduced", "not reproduced", "cannot tell"
NEEDS_GPU = "needs a GPU"
# Stands in tables for a number that the results lack.
MISSING = "not measured"

# The quantities of tables: their names, and how numbers are written; sizes of memory have units.
QUANTITIES = {
    "training_loss": ("training loss", "{:.4g}"),
    "validation_loss": ("validation loss", "{:.4g}"),
    "bits_per_dim": ("bits/dim", "{:.3f}"),
    "images_per_s": ("images/s", "{:.4g}"),
    "s_per_image": ("s/image", "{:.4g}"),
    "phone_error_rate": ("phone error rate", "{:.2%}"),
    "epoch_s": ("s/epoch", "{:.4g}"),
    "time_per_sample_ms": ("time (ms)", "{:.4g}"),
    "quality_row_error_median": ("error of a row", "{:.3f}"),
    "peak_allocated_bytes": ("peak memory", None),
    "peak_extra_bytes_per_sample": ("peak memory above the inputs", None),
}
# Quantities of which the largest of several batches counts; of the others it is the smallest.
LARGEST_COUNTS = ("images_per_s",)
# Columns that say whether a quantity of a training is extrapolated.
EXTRAPOLATED = {"epoch_s": "epoch_extrapolated"}
# The failures that mean that a case did not fit into memory.
OUT_OF_MEMORY = ("oom", "predicted_oom")


@dataclass(frozen=True)
class Value:
    """A number with the rows that it comes from, and the range of several seeds."""

    number: float
    rows: list[Row]
    spread: tuple[float, float] | None = None

    def ends(self) -> tuple[float, float]:
        """The range of the seeds, or the number twice if there are not several."""
        return self.spread or (self.number, self.number)

    def text(self, quantity: str) -> str:
        """The number as tables show it, with the range of the seeds and whether it is estimated."""
        shown = number_text(quantity, self.number)
        if self.spread:
            bounds = "–".join(number_text(quantity, v) for v in self.spread)
            shown += f" ({bounds}, {len(self.rows)} seeds)"
        if any(
            row.get("extrapolated") or row.get(EXTRAPOLATED.get(quantity, "")) for row in self.rows
        ):
            shown += " (extrapolated)"
        return shown


@dataclass(frozen=True)
class Answer:
    """What some rows say about a claim: the verdict and the numbers that decide it."""

    verdict: str
    numbers: str
    where: str = ""


@dataclass
class Claims:
    """The content of the file of claims."""

    claims: list[dict[str, Any]]
    stand_ins: dict[str, list[str]] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)


def number_text(quantity: str, number: float) -> str:
    """A number of a quantity as tables show it."""
    form = QUANTITIES[quantity][1] if quantity in QUANTITIES else "{:.4g}"
    if form is None:
        unit, scale = ("GiB", 2**30) if number >= 2**30 else ("MiB", 2**20)
        return f"{number / scale:.4g} {unit}"
    return form.format(number)


def quantity_name(quantity: str) -> str:
    """The name of a quantity in tables."""
    return QUANTITIES[quantity][0] if quantity in QUANTITIES else quantity.replace("_", " ")


# ---------------------------------------------------------------- values


def matching(rows: Sequence[Row], wanted: dict[str, Any]) -> list[Row]:
    """The rows whose columns have the wanted values. A method matches with any options. A column
    that a row lacks matches any value, since published rows have few columns."""

    def fits(row: Row) -> bool:
        for name, value in wanted.items():
            found = row.get(name)
            if name == "method" and found is not None and ":" not in value:
                found = method_name(found)
            if found is not None and found != value:
                return False
        return True

    return [row for row in rows if fits(row)]


def value_of(rows: Sequence[Row], quantity: str) -> Value | None:
    """The number that counts of rows of one method: of generations the best batch, of trainings the
    median over the seeds, otherwise the median. None if no row has the quantity."""
    with_number = [r for r in rows if r.get(quantity) is not None]
    measured = [r for r in with_number if r.get("outcome", "measured") == "measured"]
    # A training that only timed some updates of an epoch was too short to learn anything.
    if quantity != "epoch_s":
        measured = [r for r in measured if not r.get("epoch_extrapolated")]
    if not measured:
        return None
    # Methods that differ only in their options are not mixed: one of them counts.
    variants = sorted({row["method"] for row in measured}, key=lambda name: (":" in name, name))
    measured = [row for row in measured if row["method"] == variants[0]]
    if measured[0]["source"] == GENERATIONS:
        best = max if quantity in LARGEST_COUNTS else min
        row = best(measured, key=lambda r: r[quantity])
        return Value(float(row[quantity]), [row])
    numbers = [float(row[quantity]) for row in measured]
    if len(numbers) > 1 and measured[0]["source"] == TRAININGS:
        return Value(median(numbers), measured, (min(numbers), max(numbers)))
    return Value(median(numbers), measured)


def _setting(row: Row) -> str:
    """The batch, the device and the threads of a generation in words."""
    parts = [str(row["device"])] if row.get("device") else []
    if row.get("batch") is not None:
        parts.append(f"batch {row['batch']}")
    if row.get("threads") and row.get("device") == "cpu":
        parts.append(f"{row['threads']} thread{'' if row['threads'] == 1 else 's'}")
    return ", ".join(parts)


# ---------------------------------------------------------------- rules
#
# A rule takes a claim and the rows that it is about. It returns an answer, or the words that say
# what is missing.


def _where(claim: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {k: v for k, v in claim.get("where", {}).items() if k != "dataset"} | more


def _ratio(claim: dict[str, Any], rows: Sequence[Row]) -> Answer | str:
    quantity = claim["quantity"]
    sides = []
    for side in ("top", "bottom"):
        value = value_of(matching(rows, _where(claim, **claim[side])), quantity)
        if value is None:
            return _side_text(claim[side])
        sides.append(value)
    top, bottom = sides
    if bottom.number <= 0:
        return f"a number above 0 of {_side_text(claim['bottom'])}"
    ratio = top.number / bottom.number
    text = _ratio_text(ratio)
    shown = [f"{_side_text(claim[side])} {value.text(quantity)}{_in_setting(value)}"
             for side, value in zip(("top", "bottom"), sides, strict=True)]  # fmt: skip
    numbers = f"{text} ({shown[0]}; {shown[1]}){_equal_batch(claim, rows)}"
    (top_low, top_high), (low, high) = top.ends(), bottom.ends()
    if top_low > claim["above"] * high:
        return Answer(HOLDS, numbers)
    return Answer(FAILS if top_high <= claim["above"] * low else UNKNOWN, numbers)


def _ratio_text(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 1000 else f"{ratio:.3g}×"


def _in_setting(value: Value) -> str:
    row = value.rows[0]
    is_ours = row["source"] == GENERATIONS and row["folder"] != PUBLISHED
    return f" [{_setting(row)}]" if is_ours else ""


def _equal_batch(claim: dict[str, Any], rows: Sequence[Row]) -> str:
    """The ratio at the largest batch that both sides were measured with, in words; empty if each
    side's batch is given or there is none."""
    if claim["source"] != GENERATIONS or "batch" in claim.get("where", {}):
        return ""
    sides = [matching(rows, _where(claim, **claim[side])) for side in ("top", "bottom")]
    top, bottom = (
        {row["batch"]: row[claim["quantity"]] for row in side if isinstance(row.get("batch"), int)}
        for side in sides
    )
    common = sorted(set(top) & set(bottom))
    if not common or bottom[common[-1]] <= 0:
        return ""
    return f"; at equal batch {common[-1]}: {_ratio_text(top[common[-1]] / bottom[common[-1]])}"


def _side_text(side: dict[str, Any]) -> str:
    on = {"cpu": " on the CPU", "cuda": " on the GPU"}.get(side.get("device", ""), "")
    return f"{side['method']}{on}"


def _values(
    claim: dict[str, Any], rows: Sequence[Row], methods: Sequence[str]
) -> dict[str, Value] | str:
    quantity = claim["quantity"]
    found = {m: value_of(matching(rows, _where(claim, method=m)), quantity) for m in methods}
    missing = [method for method, value in found.items() if value is None]
    if missing:
        return ", ".join(missing)
    return {method: value for method, value in found.items() if value}


def _order(claim: dict[str, Any], rows: Sequence[Row]) -> Answer | str:
    methods = claim["methods"]
    values = _values(claim, rows, methods)
    if isinstance(values, str):
        return values
    shown = [f"{m} {values[m].text(claim['quantity'])}" for m in methods]
    pairs = list(zip(methods, methods[1:], strict=False))
    return Answer(_all_below(values, pairs), ", ".join(shown) + _overlaps(values, pairs))


def _all_below(values: dict[str, Value], pairs: Iterable[tuple[str, str]]) -> str:
    """Whether the first value of each pair is below the second, for all seeds. Unknown if ranges of
    seeds overlap, unless another pair decides."""
    answers = set()
    for a, b in pairs:
        (low_a, high_a), (low_b, high_b) = values[a].ends(), values[b].ends()
        answers.add(HOLDS if high_a < low_b else FAILS if low_a >= high_b else UNKNOWN)
    return FAILS if FAILS in answers else UNKNOWN if UNKNOWN in answers else HOLDS


def _overlaps(values: dict[str, Value], pairs: Iterable[tuple[str, str]]) -> str:
    """Says which of the pairs of methods have ranges of seeds that overlap; empty if none has."""
    found = []
    for a, b in pairs:
        one, other = values[a].spread, values[b].spread
        if one and other and max(one[0], other[0]) <= min(one[1], other[1]):
            found.append(f"{a} and {b}")
    return f"; the ranges of the seeds overlap for {', '.join(found)}" if found else ""


def _lowest(claim: dict[str, Any], rows: Sequence[Row]) -> Answer | str:
    methods = [claim["method"], *claim["others"]]
    values = _values(claim, rows, methods)
    if isinstance(values, str):
        return values
    shown = [f"{m} {values[m].text(claim['quantity'])}" for m in methods]
    pairs = [(claim["method"], other) for other in claim["others"]]
    return Answer(_all_below(values, pairs), ", ".join(shown) + _overlaps(values, pairs))


def _by_length(claim: dict[str, Any], rows: Sequence[Row], method: str) -> dict[int, float]:
    """The quantity of a method at each length that was measured."""
    mine = matching(rows, _where(claim, method=method))
    lengths = sorted({row["query_len"] for row in mine if row.get("query_len")})
    values = {
        n: value_of([row for row in mine if row["query_len"] == n], claim["quantity"])
        for n in lengths
    }
    return {n: value.number for n, value in values.items() if value and value.number > 0}


def _growth(claim: dict[str, Any], rows: Sequence[Row]) -> Answer | str:
    found = {
        n: v for n, v in _by_length(claim, rows, claim["method"]).items() if n >= claim["from"]
    }
    if len(found) < 3:
        return f"{claim['method']} at three lengths or more from {claim['from']} on"
    slope = float(np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0])
    low, high = claim["between"]
    ends = [
        f"N = {size_text(n)}: {number_text(claim['quantity'], found[n])}"
        for n in (min(found), max(found))
    ]
    holds = low <= slope <= high
    numbers = f"e = {slope:.2f} ({len(found)} lengths; {'; '.join(ends)})"
    return Answer(HOLDS if holds else FAILS, numbers)


def _everywhere(claim: dict[str, Any], rows: Sequence[Row]) -> Answer | str:
    own = _by_length(claim, rows, claim["method"])
    compared, lost = 0, []
    for other in claim["others"]:
        for n, number in _by_length(claim, rows, other).items():
            if n in own:
                compared += 1
                if own[n] >= number:
                    texts = [number_text(claim["quantity"], v) for v in (own[n], number)]
                    lost.append(f"{other} at N = {size_text(n)}: {texts[0]} against {texts[1]}")
    if not compared:
        return f"{claim['method']} and another method at the same length"
    numbers = f"lower in {compared - len(lost)} of {compared} comparisons"
    if lost:
        numbers += f"; not against {', '.join(lost[:3])}{' and others' if len(lost) > 3 else ''}"
    return Answer(FAILS if lost else HOLDS, numbers)


def _outcomes(claim: dict[str, Any], rows: Sequence[Row]) -> Answer | str:
    mine = [
        r
        for r in matching(rows, _where(claim, method=claim["method"]))
        if r.get("published_outcome")
    ]
    shown, holds, known = [], True, 0
    for row in sorted(mine, key=lambda row: row["query_len"]):
        failure = row.get("failure_kind")
        if row["outcome"] == "measured":
            found = "measured"
        elif failure in OUT_OF_MEMORY:
            found = "oom"
        else:
            shown.append(
                f"N = {size_text(row['query_len'])}: {failure or row['outcome']}, so not known"
            )
            continue
        known += 1
        holds = holds and found == row["published_outcome"]
        words = {"measured": "runs", "oom": "out of memory"}
        shown.append(f"N = {size_text(row['query_len'])}: {words[found]}")
    if not known or known < len(mine):
        so_far = f" ({'; '.join(shown)})" if shown else ""
        return f"{claim['method']} at the published lengths{so_far}"
    return Answer(HOLDS if holds else FAILS, ", ".join(shown))


def _open(claim: dict[str, Any], rows: Sequence[Row]) -> Answer | str:
    """A claim that no record decides, with the reason."""
    return Answer(UNKNOWN, claim["why"])


Rule = Callable[[dict[str, Any], Sequence[Row]], Answer | str]
RULES: dict[str, tuple[Rule, tuple[str, ...]]] = {
    "ratio": (_ratio, ("quantity", "top", "bottom", "above")),
    "order": (_order, ("quantity", "methods")),
    "lowest": (_lowest, ("quantity", "method", "others")),
    "growth": (_growth, ("quantity", "method", "from", "between")),
    "everywhere": (_everywhere, ("quantity", "method", "others")),
    "outcomes": (_outcomes, ("method",)),
    "open": (_open, ("why",)),
}


def rule_text(claim: dict[str, Any]) -> str:
    """The rule of a claim in words."""
    kind = claim["kind"]
    if kind == "open":
        return "none"
    name = quantity_name(claim.get("quantity", ""))
    if kind == "ratio":
        sides = [_side_text(claim[side]) for side in ("top", "bottom")]
        return f"{name} of {sides[0]} ÷ that of {sides[1]} > {claim['above']:g}"
    if kind == "order":
        return f"{name}: {' < '.join(claim['methods'])}"
    if kind == "lowest":
        return f"{name} of {claim['method']} < that of each of {', '.join(claim['others'])}"
    if kind == "growth":
        low, high = claim["between"]
        growth = f"{name} of {claim['method']} ∝ N^e from N = {claim['from']} on"
        return f"{growth}, {low:g} ≤ e ≤ {high:g}"
    if kind == "everywhere":
        return f"{name} of {claim['method']} < that of {', '.join(claim['others'])} at every N"
    return f"{claim['method']} runs, or is out of memory, at the same N"


# ---------------------------------------------------------------- answers


def in_paper(claim: dict[str, Any], published: Sequence[Row]) -> Answer | None:
    """What the published numbers say about a claim; None if there are none for it."""
    if claim["kind"] in ("growth", "everywhere", "outcomes", "open"):
        return None
    where = {"source": claim["source"]}
    if "dataset" in claim.get("where", {}):
        where["dataset"] = claim["where"]["dataset"]
    rows = [row for row in matching(published, where) if row.get(claim["quantity"]) is not None]
    own = [row for row in rows if claim["part"] == f"Table {row.get('table')}"]
    # A claim may compare with a number of another table, as Table 4 does with Table 1.
    for chosen in (own, rows):
        answer = RULES[claim["kind"]][0](claim, chosen)
        if isinstance(answer, Answer):
            return answer
    return None


def here(claim: dict[str, Any], found: Results, stand_ins: dict[str, list[str]]) -> list[Answer]:
    """An answer for each folder that has all numbers of a claim, or one that says what is missing.

    The numbers of a claim about both devices may come from several folders of one machine or run.
    """
    if claim["kind"] == "open":
        return [Answer(UNKNOWN, claim["why"])]
    rows = [row for row in found.rows if row["source"] == claim["source"]]
    dataset = claim.get("where", {}).get("dataset")
    answers: list[Answer] = []
    missing: list[str] = []
    for name in [dataset, *stand_ins.get(dataset, [])] if dataset else [None]:
        of_data = [row for row in rows if name is None or row.get("dataset") == name]
        across = {claim.get(side, {}).get("device") for side in ("top", "bottom")} == {
            "cpu",
            "cuda",
        }
        groups: dict[str, list[Row]] = {}
        for row in of_data:
            folder = Path(row["folder"])
            groups.setdefault(str(folder.parent if across else folder), []).append(row)
        for folder, group in groups.items():
            # A claim that names no device is answered for each one.
            devices = {None} if _names_device(claim) else {row.get("device") for row in group}
            for device in sorted(devices, key=str):
                chosen = [row for row in group if device is None or row.get("device") == device]
                answer = RULES[claim["kind"]][0](claim, chosen)
                if isinstance(answer, str):
                    missing.append(f"{folder} lacks {answer}")
                    continue
                on = f", {device}" if device else ""
                stand_in = f" on {name}, not {dataset}" if name != dataset else ""
                where = f"{folder}{on}"
                answers.append(Answer(answer.verdict + stand_in, answer.numbers, where))
    if answers:
        return answers
    why = "; ".join(dict.fromkeys(missing)) or _nothing(claim, dataset)
    return [Answer(NEEDS_GPU if _names_gpu(claim) else UNKNOWN, why)]


def _names_gpu(claim: dict[str, Any]) -> bool:
    return any(claim.get(part, {}).get("device") == "cuda" for part in ("where", "top", "bottom"))


def _names_device(claim: dict[str, Any]) -> bool:
    return any("device" in claim.get(part, {}) for part in ("where", "top", "bottom"))


def command_of(claim: dict[str, Any], claims: Claims) -> str:
    """The command that measures the numbers of a claim."""
    if claim["kind"] == "open":
        return "–"
    source, where = claim["source"], claim.get("where", {})
    if source in (TRAININGS, GENERATIONS):
        key = f"{source} {where.get('dataset')}{' batch 1' if where.get('batch') == 1 else ''}"
        command = claims.commands.get(claim.get("command", key), "none")
    else:
        command = f"build/attnbench sweep {source}"
    return f"`{command}`"


def _nothing(claim: dict[str, Any], dataset: str | None) -> str:
    of = f" of {dataset}" if dataset else ""
    if claim["source"] in (TRAININGS, GENERATIONS):
        return f"no {claim['source']}{of} in the results"
    return f"no records of the sweep {claim['source']} in the results"


# ---------------------------------------------------------------- Markdown


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], "|" + " --- |" * len(header), *lines[1:], ""]


def _ours(row: Row, quantity: str, found: Results, stand_ins: dict[str, list[str]]) -> str:
    """Our numbers beside a published one, one for each folder and device that has some."""
    same = {name: row[name] for name in ("query_len", "head_dim", "protocol") if name in row}
    datasets = [row["dataset"], *stand_ins.get(row["dataset"], [])] if "dataset" in row else [None]
    if row.get("batch") == 1:
        same |= {"batch": 1, "device": row["device"]}
    shown = []
    for dataset in datasets:
        wanted = same | {"source": row["source"], "method": row["method"]}
        rows = [
            r
            for r in matching(found.rows, wanted)
            if dataset is None or r.get("dataset") == dataset
        ]
        for folder in dict.fromkeys(r["folder"] for r in rows):
            of_folder = [r for r in rows if r["folder"] == folder]
            for device in dict.fromkeys(r.get("device") for r in of_folder):
                value = value_of([r for r in of_folder if r.get("device") == device], quantity)
                if value:
                    data = [str(dataset)] if dataset not in (None, row.get("dataset")) else []
                    where = [
                        *data,
                        _setting(value.rows[0]) if row["source"] == GENERATIONS else str(device),
                    ]
                    shown.append(f"{value.text(quantity)} [{', '.join(where)}]")
    return "; ".join(shown) or MISSING


def numbers_section(published: Sequence[Row], found: Results, claims: Claims) -> list[str]:
    """Tables of each published number beside ours, by the text that it comes from."""
    lines = ["## Published numbers and ours", ""]
    parts: dict[str, list[Row]] = {}
    for row in sorted(published, key=lambda row: row["said_in"]):
        if any(row.get(quantity) is not None for quantity in QUANTITIES):
            parts.setdefault(row["said_in"], []).append(row)
    for said_in, rows in parts.items():
        short_name = (
            f"Table {rows[0]['table']}" if "table" in rows[0] else "Notes on kernelised attention"
        )
        machine = claims.machines.get(short_name, "not stated")
        lines += [f"### {said_in}", "", f"Published for: {machine}.", ""]
        body = []
        for row in rows:
            for quantity in QUANTITIES:
                if row.get(quantity) is not None:
                    published_text = number_text(quantity, row[quantity])
                    ours = _ours(row, quantity, found, claims.stand_ins)
                    what = [row.get("dataset") or f"N = {row['query_len']}, d = {row['head_dim']}"]
                    what += [row["method"], quantity_name(quantity) + _on(row)]
                    body.append([*what, published_text, ours])
        lines += table(["case", "method", "quantity", "published", "ours"], body)
    return lines


def _on(row: Row) -> str:
    device = {"cpu": " on the CPU", "cuda": " on the GPU"}.get(row.get("device", ""), "")
    return device if row.get("batch") == 1 else ""


@dataclass(frozen=True)
class Verdict:
    """A claim of a part of a text, the verdict on it, and the numbers here and in the text."""

    part: str
    claim: str
    verdict: str
    here: str
    published: str
    rule: str
    command: str


def decided(published: Sequence[Row], found: Results, claims: Claims) -> list[Verdict]:
    """A verdict for each claim and each folder that decides it, in the order of the claims."""
    verdicts = []
    for claim in claims.claims:
        paper = in_paper(claim, published)
        for answer in here(claim, found, claims.stand_ins):
            shown = f"{answer.numbers} — {answer.where}" if answer.where else answer.numbers
            said = paper.numbers if paper else "no numbers"
            verdicts.append(
                Verdict(
                    claim["part"], claim["says"], answer.verdict, shown, said, rule_text(claim),
                    command_of(claim, claims),
                )
            )  # fmt: skip
    return verdicts


def claims_section(published: Sequence[Row], found: Results, claims: Claims) -> list[str]:
    """Tables of the claims with their rules, the numbers that decide them, and the verdicts."""
    lines = ["## Claims", ""]
    verdicts = decided(published, found, claims)
    for part in dict.fromkeys(verdict.part for verdict in verdicts):
        lines += [
            f"### {part}",
            "",
            f"Published for: {claims.machines.get(part, 'not stated')}.",
            "",
        ]
        body = [
            [v.claim, f"**{v.verdict}**", v.here, v.published, v.rule, v.command]
            for v in verdicts
            if v.part == part
        ]
        lines += table(["claim", "verdict", "here", "published", "rule", "command"], body)
    return lines


def machines_section(found: Results) -> list[str]:
    """A table of the folders, with the machine and the build of each."""
    body = [
        [
            folder,
            environment.machine_text(known) or "unknown",
            environment.build_text(known) or "unknown",
        ]
        for folder, known in found.environments.items()
    ]
    if not body:
        return ["There are no results.", ""]
    return ["## Machines of our numbers", "", *table(["folder", "machine", "build"], body)]


def markdown(published: Sequence[Row], found: Results, claims: Claims) -> str:
    """The whole report."""
    lines = ["# The paper's claims", ""]
    lines += [
        "`make figures` writes this page from `experiments/published/claims.toml` and the records in "
        "`results/`; `build/attnbench verdicts` prints it. It lists what the paper Transformers are "
        "RNNs and four texts about it claim. Absolute numbers come from other machines and other "
        "software, so only orders, ratios and growth are claims. A claim is **reproduced** or **not "
        "reproduced** if our numbers decide its rule. We **cannot tell** if the numbers are missing, "
        "or if the ranges of several seeds overlap. It **needs a GPU** if our machines had none.",
        "",
    ]
    lines += claims_section(published, found, claims)
    lines += machines_section(found)
    lines += numbers_section(published, found, claims)
    return "\n".join(printable(line) for line in lines)


# ---------------------------------------------------------------- the command


def load_claims(path: Path) -> Claims:
    """The claims in a file; raises RecordsError, which names a claim that has no known rule."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise RecordsError(
            f"{path}: {error.strerror or type(error).__name__}; expected a file of claims"
        )
    except ValueError as error:
        raise RecordsError(f"{path}: expected a file of claims in TOML: {error}")
    claims = data.get("claim", [])
    if not claims:
        raise RecordsError(f"{path}: no claims; expected at least one [[claim]]")
    for number, claim in enumerate(claims, start=1):
        where = f"{path}: claim {number}"
        if claim.get("kind") not in RULES:
            known = ", ".join(RULES)
            raise RecordsError(f"{where}: kind = {claim.get('kind')!r}; expected one of {known}")
        for name in ("part", "says", "source", *RULES[claim["kind"]][1]):
            if name not in claim:
                raise RecordsError(
                    f"{where}: no `{name}`; a claim of kind {claim['kind']} needs it"
                )
    tables = (data.get(name, {}) for name in ("stand_ins", "machines", "commands"))
    return Claims(claims, *tables)


def page(root: Path, found_in: Path | None = None, claims_file: Path | None = None) -> str:
    """The report about a folder of results, by default that of the project, as Markdown. Paths are
    relative to the project."""
    published = root / "experiments" / "published"
    claims = load_claims(claims_file or published / "claims.toml")
    files = [*sorted(published.glob("*.csv")), *sorted((root / "sweeps/published").glob("*.csv"))]
    found = results.load(found_in or root / "results")
    return markdown(results.load_published(files), found, claims).replace(f"{root}/", "")


def main(script: str, arguments: Sequence[str] | None = None) -> int:
    """Prints the report; returns 0, or 2 after an error on stderr."""
    root = Path(script).resolve().parent.parent
    published = root / "experiments" / "published"
    parser = argparse.ArgumentParser(
        description="Prints the paper's numbers beside ours, and which of its claims hold here."
    )
    cli.add_results(parser, root)
    parser.add_argument(
        "--claims",
        type=Path,
        default=published / "claims.toml",
        metavar="FILE",
        help="file of claims (default: experiments/published/claims.toml)",
    )
    options = parser.parse_args(arguments)
    try:
        sys.stdout.write(page(root, options.results, options.claims))
    except (RecordsError, OSError) as error:
        return cli.refuse(script, error)
    return 0
