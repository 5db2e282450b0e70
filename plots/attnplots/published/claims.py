"""The claims of published texts: the rules that decide them, and what the results say about each."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from attnplots.published.quantities import Value, matching, number_text, quantity_name, setting_text, value_of
from attnplots.records.records import RecordsError
from attnplots.records.results import GENERATIONS, PUBLISHED, TRAININGS, Results, Row
from attnplots.records.rows import size_text
from attnplots.records.trainings import QUALITIES
from attnplots.records.words import amount, span

HOLDS, FAILS, UNKNOWN = "reproduced", "not reproduced", "cannot tell"
NEEDS_GPU = "needs a GPU"
# `at` of a claim about trainings that take equal time.
EQUAL_TIME = "equal time"
# The failures that mean that a case did not fit into memory.
OUT_OF_MEMORY = ("oom", "predicted_oom")


@dataclass(frozen=True)
class Answer:
    """The answer of some rows to a claim, in words.

    Attributes:
        verdict: HOLDS, FAILS, UNKNOWN or NEEDS_GPU.
        numbers: the numbers that decide it.
        where: the folder of the rows, and their device if the claim names none.
        stand_in: the data that the rows have in place of the published data; empty if they are the published data.
        budget: the updates and the time of the trainings that decide the claim; empty for other claims.
    """

    verdict: str
    numbers: str
    where: str = ""
    stand_in: str = ""
    budget: str = ""


@dataclass
class Claims:
    """The content of the file of claims.

    Attributes:
        claims: the tables [[claim]], whose keys depend on their `kind` (RULES).
        stand_ins: the data sets that may replace one of the paper's, by its name or by "DATASET QUANTITY".
        machines: the machine that a published table was measured on, by its key in the file.
        commands: the command that measures the numbers of a source and a data set, by "SOURCE DATASET".
    """

    claims: list[dict[str, Any]]
    stand_ins: dict[str, list[str]] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------- rules
#
# A rule takes a claim and the rows that it is about. It returns an answer or, if the rows lack a number, words that say what they
# lack, such as the name of a method.


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
    shown = [f"{_side_text(claim[side])} {value.text(quantity)}{_setting_suffix(value)}"
             for side, value in zip(("top", "bottom"), sides, strict=True)]  # fmt: skip
    numbers = f"{text} ({shown[0]}; {shown[1]}){_equal_batch(claim, rows)}"
    (top_low, top_high), (low, high) = top.ends(), bottom.ends()
    budget = _budget(claim, sides)
    if top_low > claim["above"] * high:
        return Answer(HOLDS, numbers, budget=budget)
    return Answer(FAILS if top_high <= claim["above"] * low else UNKNOWN, numbers, budget=budget)


def _ratio_text(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 1000 else f"{ratio:.3g}×"


def _setting_suffix(value: Value) -> str:
    row = value.rows[0]
    is_ours = row["source"] == GENERATIONS and row["folder"] != PUBLISHED
    return f" [{setting_text(row)}]" if is_ours else ""


def _compares_best_batches(claim: dict[str, Any]) -> bool:
    return claim["source"] == GENERATIONS and "batch" not in claim.get("where", {})


def _equal_batch(claim: dict[str, Any], rows: Sequence[Row]) -> str:
    """The ratio at the largest batch that both sides were measured with, in words, and whether the
    rule would hold for it; empty if each side's batch is given or there is none."""
    if not _compares_best_batches(claim):
        return ""
    top, bottom = (_by_batch(matching(rows, _where(claim, **claim[side])), claim["quantity"]) for side in ("top", "bottom"))
    common = sorted(set(top) & set(bottom))
    if not common or bottom[common[-1]] <= 0:
        return ""
    ratio = top[common[-1]] / bottom[common[-1]]
    comparison = "" if ratio > claim["above"] else f", not above {claim['above']:,g}"
    return f"; at equal batch {common[-1]}: {_ratio_text(ratio)}{comparison}"


def _by_batch(rows: Sequence[Row], quantity: str) -> dict[int, float]:
    """The best number at each batch; several rows of a batch may differ in the device."""
    batches = {row["batch"] for row in rows if isinstance(row.get("batch"), int)}
    values = {batch: value_of([row for row in rows if row.get("batch") == batch], quantity) for batch in batches}
    return {batch: value.number for batch, value in values.items() if value}


def _side_text(side: dict[str, Any]) -> str:
    on = {"cpu": " on the CPU", "cuda": " on the GPU"}.get(side.get("device", ""), "")
    pattern = f" with {side['pattern']}" if side.get("pattern", "all") != "all" else ""
    return f"{side['method']}{pattern}{on}"


def _pairs(claim: dict[str, Any]) -> list[tuple[str, str]]:
    """The pairs of methods that the claim compares: it says that the first of each pair has the lower quantity."""
    if claim["kind"] == "order":
        return list(zip(claim["methods"], claim["methods"][1:], strict=False))
    return [(claim["method"], other) for other in claim["others"]]


def _below(claim: dict[str, Any], rows: Sequence[Row]) -> Answer | str:
    """Whether the first value of each pair is below the second. The claim fails if a pair contradicts it for all seeds; otherwise the
    verdict is UNKNOWN if the ranges of the seeds of a pair overlap."""
    quantity, pairs = claim["quantity"], _pairs(claim)
    methods = dict.fromkeys(method for pair in pairs for method in pair)
    found = {method: value_of(matching(rows, _where(claim, method=method)), quantity) for method in methods}
    values = {method: value for method, value in found.items() if value}
    if missing := [method for method in methods if method not in values]:
        return ", ".join(missing)
    verdicts, overlaps, falling = set(), [], dict[str, None]()
    for a, b in pairs:
        (low_a, high_a), (low_b, high_b) = values[a].ends(), values[b].ends()
        verdict = {True: HOLDS, False: FAILS, None: UNKNOWN}[values[a].is_below(values[b])]
        if claim.get("settled") and verdict != UNKNOWN:
            gap = max(low_b - high_a, low_a - high_b)
            # A curve may fall in further training by as much as it fell in its last quarter, and so close a smaller gap.
            late = [method for method in (a, b) if values[method].late_fall(quantity) > gap]
            verdict = UNKNOWN if late else verdict
            falling |= dict.fromkeys(late)
        verdicts.add(verdict)
        if values[a].spread and values[b].spread and max(low_a, low_b) <= min(high_a, high_b):
            overlaps.append(f"{a} and {b}")
    numbers = ", ".join(f"{method} {value.text(quantity)}" for method, value in values.items())
    numbers += f"; the ranges of the seeds overlap for {', '.join(overlaps)}" if overlaps else ""
    if falling:
        numbers += f"; still falling by more than what is between: {', '.join(falling)}"
    budget = _budget(claim, list(values.values()))
    return Answer(next(v for v in (FAILS, UNKNOWN, HOLDS) if v in verdicts), numbers, budget=budget)


def _budget(claim: dict[str, Any], values: Sequence[Value]) -> str:
    """The updates and the minutes of the trainings whose quality a claim is about, in words; empty for other claims."""
    rows = [row for value in values for row in value.rows]
    if claim["source"] != TRAININGS or claim["quantity"] not in QUALITIES or not all(row.get("update") for row in rows):
        return ""
    batches = " or ".join(map(str, sorted({row["batch"] for row in rows if row.get("batch")})))
    items = f" of {batches}" if batches else ""
    minutes = [row["training_s"] / 60 for row in rows if row.get("training_s")]
    times = f", {span(minutes, amount)} minutes each" if minutes else ""
    if claim.get("at") == EQUAL_TIME:
        shortest = amount(min(minutes)) if minutes else "equal"
        return f"{shortest} minutes of training each"
    return f"{span((row['update'] for row in rows), '{:,.0f}'.format)} updates{items}{times}"


def _group_lengths(claim: dict[str, Any], rows: Sequence[Row], method: str) -> dict[int, Value]:
    """The quantity of a method at each length that was measured."""
    mine = matching(rows, _where(claim, method=method))
    lengths = sorted({row["query_len"] for row in mine if row.get("query_len")})
    values = {n: value_of([row for row in mine if row["query_len"] == n], claim["quantity"]) for n in lengths}
    return {n: value for n, value in values.items() if value and value.ends()[0] > 0}


def _exponent(values: dict[int, Value]) -> tuple[float, float, float]:
    """The exponent e of value ∝ N^e, fitted to the logarithms of three values or more, and the least and the largest exponent that the
    values allow: with each value anywhere between its ends, and without the shortest or without the longest length, because the
    points need not lie on a line. `attnbench analyse` fits other lengths: those of one batch, from an eighth of the longest on."""
    x = np.log(list(values))
    y, low, high = np.log([[value.number, *value.ends()] for value in values.values()]).T

    def slope(part: slice = slice(None)) -> float:
        return float(np.polyfit(x[part], y[part], 1)[0])

    # The slope is the sum of the products of these weights with the logarithms of the values.
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    least = float(np.sum(weights * np.where(weights > 0, low, high)))
    largest = float(np.sum(weights * np.where(weights > 0, high, low)))
    others = (slope(slice(1, None)), slope(slice(-1)))
    return slope(), min(least, *others), max(largest, *others)


def _growth(claim: dict[str, Any], rows: Sequence[Row]) -> Answer | str:
    found = {n: v for n, v in _group_lengths(claim, rows, claim["method"]).items() if n >= claim["from"]}
    if len(found) < 3:
        return f"{claim['method']} at three lengths or more from {claim['from']} on"
    exponent, least, largest = _exponent(found)
    low, high = claim["between"]
    ends = [f"N = {size_text(n)}: {number_text(claim['quantity'], found[n].number)}" for n in (min(found), max(found))]
    # Adding 0 turns a rounded −0 into 0.
    texts = [f"{round(e, 2) + 0.0:.2f}" for e in (exponent, least, largest)]
    numbers = f"e = {texts[0]} ({texts[1]} to {texts[2]}; {len(found)} lengths; {'; '.join(ends)})"
    if low <= least and largest <= high:
        return Answer(HOLDS, numbers)
    return Answer(FAILS if largest < low or least > high else UNKNOWN, numbers)


def _everywhere(claim: dict[str, Any], rows: Sequence[Row]) -> Answer | str:
    own = _group_lengths(claim, rows, claim["method"])
    lower, lost, unclear = 0, [], []
    for other in claim["others"]:
        for n, value in _group_lengths(claim, rows, other).items():
            if n not in own:
                continue
            is_below = own[n].is_below(value)
            if is_below:
                lower += 1
                continue
            texts = [number_text(claim["quantity"], v.number) for v in (own[n], value)]
            (unclear if is_below is None else lost).append(f"{other} at N = {size_text(n)}: {texts[0]} against {texts[1]}")
    compared = lower + len(lost) + len(unclear)
    if not compared:
        return f"{claim['method']} and another method at the same length"
    numbers = f"lower in {lower} of {compared} comparisons"
    for what, texts in (("not against", lost), ("cannot tell against", unclear)):
        if texts:
            numbers += f"; {what} {', '.join(texts[:3])}{' and others' if len(texts) > 3 else ''}"
    return Answer(FAILS if lost else UNKNOWN if unclear else HOLDS, numbers)


def _outcomes(claim: dict[str, Any], rows: Sequence[Row]) -> Answer | str:
    mine = [r for r in matching(rows, _where(claim, method=claim["method"])) if r.get("published_outcome")]
    shown, holds, known = [], True, 0
    for row in sorted(mine, key=lambda row: row["query_len"]):
        failure = row.get("failure_kind")
        if row["outcome"] == "measured":
            found = "measured"
        elif failure in OUT_OF_MEMORY:
            found = "oom"
        else:
            shown.append(f"N = {size_text(row['query_len'])}: {failure or row['outcome']}, so not known")
            continue
        known += 1
        holds = holds and found == row["published_outcome"]
        words = {"measured": "runs", "oom": "out of memory"}
        shown.append(f"N = {size_text(row['query_len'])}: {words[found]}")
    if not known or known < len(mine):
        so_far = f" ({'; '.join(shown)})" if shown else ""
        return f"{claim['method']} at the published lengths{so_far}"
    return Answer(HOLDS if holds else FAILS, ", ".join(shown))


# By kind: the function that decides a claim (none for an open claim, which no record decides), and the keys that it needs.
Rule = Callable[[dict[str, Any], Sequence[Row]], Answer | str]
RULES: dict[str, tuple[Rule | None, tuple[str, ...]]] = {
    "ratio": (_ratio, ("quantity", "top", "bottom", "above")),
    "order": (_below, ("quantity", "methods")),
    "lowest": (_below, ("quantity", "method", "others")),
    "growth": (_growth, ("quantity", "method", "from", "between")),
    "everywhere": (_everywhere, ("quantity", "method", "others")),
    "outcomes": (_outcomes, ("method",)),
    "open": (None, ("why",)),
}


def rule_text(claim: dict[str, Any]) -> str:
    """The rule of a claim in words."""
    kind = claim["kind"]
    if kind == "open":
        return "none"
    name = quantity_name(claim.get("quantity", "")) + (f" after {EQUAL_TIME}" if "at" in claim else "")
    if kind == "ratio":
        sides = [_side_text(claim[side]) for side in ("top", "bottom")]
        # The paper compares throughput so in its Tables 1, 2 and 4, and at batch 1 in its Section C.2.
        at = ", each at its own best batch, as in the paper" if _compares_best_batches(claim) else ""
        return f"{name} of {sides[0]} ÷ that of {sides[1]} > {claim['above']:,g}{at}"
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


def published_answer(claim: dict[str, Any], published: Sequence[Row]) -> Answer | None:
    """The answer of the published numbers to a claim; None if there are none for it, or if its kind needs more than a table."""
    rule = RULES[claim["kind"]][0]
    if rule not in (_ratio, _below):
        return None
    where = {name: value for name, value in claim.get("where", {}).items() if name == "dataset"} | {"source": claim["source"]}
    rows = [row for row in matching(published, where) if row.get(claim["quantity"]) is not None]
    own = [row for row in rows if claim["part"] == f"Table {row.get('table')}"]
    # A claim may compare with a number of another table, as Table 4 does with Table 1.
    answers = (rule(claim, chosen) for chosen in (own, rows))
    return next((answer for answer in answers if isinstance(answer, Answer)), None)


def stand_ins_of(stand_ins: dict[str, list[str]], dataset: str, quantity: str) -> list[str]:
    """The data sets that may replace a data set of the paper for this quantity."""
    return stand_ins.get(f"{dataset} {quantity}", stand_ins.get(dataset, []))


def _at_equal_time(rows: Sequence[Row], quantity: str) -> list[Row]:
    """The rows with the values that their trainings had at equal time."""
    return [row | {quantity: row.get("at_equal_time", {}).get(quantity)} for row in rows]


def here(claim: dict[str, Any], found: Results, stand_ins: dict[str, list[str]]) -> list[Answer]:
    """An answer for each folder that has all numbers of a claim; if none has, a single answer that says what is missing.

    The numbers of a claim that compares the CPU with the GPU may come from several folders with the same parent.
    """
    rule, _ = RULES[claim["kind"]]
    if rule is None:
        return [Answer(UNKNOWN, claim["why"])]
    dataset = claim.get("where", {}).get("dataset")
    named = {claim.get(part, {}).get("device") for part in ("where", "top", "bottom")} - {None}
    answers: list[Answer] = []
    missing: dict[str, None] = {}
    others = claim["stand_ins"] if "stand_ins" in claim else stand_ins_of(stand_ins, str(dataset), claim.get("quantity", ""))
    for name in [dataset, *others]:
        # A claim that names no device is answered for each one.
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in found.rows:
            if row["source"] == claim["source"] and (name is None or row.get("dataset") == name):
                folder = Path(row["folder"]).parent if len(named) > 1 else row["folder"]
                groups.setdefault((str(folder), "" if named else str(row.get("device") or "")), []).append(row)
        for (folder, device), group in groups.items():
            answer = rule(claim, _at_equal_time(group, claim["quantity"]) if claim.get("at") == EQUAL_TIME else group)
            if isinstance(answer, str):
                missing[f"{folder} lacks {answer}"] = None
                continue
            stand_in = f"on {name}, not {dataset}" if name != dataset else ""
            answers.append(replace(answer, where=f"{folder}, {device}" if device else str(folder), stand_in=stand_in))
    why = "; ".join(missing) or _nothing(claim, dataset)
    return answers or [Answer(NEEDS_GPU if "cuda" in named else UNKNOWN, why)]


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


@dataclass(frozen=True)
class Verdict:
    """A claim with its verdict, in words.

    Attributes:
        part: the part of the text that makes the claim, such as "Table 1".
        claim: what the text says.
        verdict, stand_in, budget: as in Answer.
        here: the numbers of the results that decide it, and where they are.
        published: the numbers of the text.
        rule: the rule that decides it.
        command: the command that measures the numbers.
    """

    part: str
    claim: str
    verdict: str
    here: str
    published: str
    rule: str
    command: str
    stand_in: str = ""
    budget: str = ""

    def text(self) -> str:
        """The verdict with the data that replace the published ones, if there are any, and with the budget of the trainings."""
        said = f"{self.verdict} {self.stand_in}" if self.stand_in else self.verdict
        return f"{said} at this budget ({self.budget})" if self.budget else said


def decided(published: Sequence[Row], found: Results, claims: Claims) -> list[Verdict]:
    """A verdict for each claim and each folder that decides it, in the order of the claims."""
    verdicts = []
    for claim in claims.claims:
        paper = published_answer(claim, published)
        for answer in here(claim, found, claims.stand_ins):
            shown = f"{answer.numbers} — {answer.where}" if answer.where else answer.numbers
            said = paper.numbers if paper else "no numbers"
            verdicts.append(
                Verdict(
                    claim["part"], claim["says"], answer.verdict, shown, said, rule_text(claim),
                    command_of(claim, claims), answer.stand_in, answer.budget,
                )
            )  # fmt: skip
    return verdicts


def load_claims(path: Path) -> Claims:
    """The claims in a file. Raises RecordsError if the file cannot be read, has no claims, or has a claim of an unknown kind or
    without a key that its kind needs."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise RecordsError(f"{path}: {error.strerror or type(error).__name__}; expected a file of claims")
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
                raise RecordsError(f"{where}: no `{name}`; a claim of kind {claim['kind']} needs it")
    tables = (data.get(name, {}) for name in ("stand_ins", "machines", "commands"))
    return Claims(claims, *tables)
