"""How the records of one folder differ from those of another: what `attnbench compare` says."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from attnplots.records import driver
from attnplots.records.records import identity_of
from attnplots.records.words import CaseTexts, amount, change_text, share, time_text
from attnplots.report.folders import Folder

# The verdicts of `attnbench compare`, those first that a reader looks for.
VERDICTS = ("regression", "improvement", "cannot tell", "equivalent")
# The digits of values, of which one divided by the other gives the ratio.
DIGITS = 4
WORDS = {"regression": "slower", "improvement": "faster"}


@dataclass(frozen=True)
class Change:
    """One case, all of which `attnbench compare` computes: its values in both folders, the second divided by the first,
    the same in percent with its interval, and the verdict."""

    case: str
    identity: str
    one: str
    other: str
    ratio: str
    change: str
    interval: str
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """Two folders: what of a case is compared, how many cases have each verdict, in what the builds and machines differ,
    and the changes, those first that are certain."""

    one: str
    other: str
    what: str
    counts: dict[str, int]
    differences: list[str]
    changes: list[Change]


def between(one: Folder, other: Folder) -> Comparison | None:
    """The comparison of two folders; None if they have no case in common."""
    said = driver.ask("compare", one.path, other.path)
    case_text = CaseTexts(other.records)
    changes = [_change(case, case_text) for case in said["cases"] if case.get("log_ratio") is not None]
    if not changes:
        return None
    changes.sort(key=lambda change: VERDICTS.index(change[0]) if change[0] in VERDICTS else len(VERDICTS))
    return Comparison(
        one.label,
        other.label,
        _what({case["quantity"] for case in said["cases"] if case.get("log_ratio") is not None}),
        {WORDS.get(name, name): count for name, count in said["counts"].items() if count},
        [f"{d['column'].replace('_', ' ')}: {d['a']} and {d['b']}" for d in said["differences"]],
        [change for _, change in changes],
    )


def _what(quantities: set[str]) -> str:
    """What of a case is compared, in words."""
    words = {"time": "time", "ratio": "time / that of the baseline"}
    text = " or ".join(words.get(name, name) for name in sorted(quantities))
    return text[:1].upper() + text[1:]


def _change(case: dict[str, Any], case_text: CaseTexts) -> tuple[str, Change]:
    # The values that the estimate relates, and the interval from which the verdict follows.
    one, other = (case.get(f"{side}_estimate", case.get(f"{side}_value")) for side in ("a", "b"))
    low, high = case.get("decisive_interval", case.get("interval")) or (None, None)
    level = case.get("decisive_level")
    shown = amount if case.get("quantity") == "ratio" else time_text
    ends = "" if low is None else f"{change_text(low)} to {change_text(high)}"
    verdict = case["verdict"]
    return verdict, Change(
        case_text(case["case"]),
        identity_of(case["case"], sorted(case["case"])),
        shown(one, DIGITS) if one is not None else "–",
        shown(other, DIGITS) if other is not None else "–",
        amount(math.exp(case["log_ratio"]), DIGITS),
        change_text(case["log_ratio"]),
        f"{share(level)}: {ends}" if ends and level else ends,
        WORDS.get(verdict, verdict),
    )


@dataclass(frozen=True)
class Step:
    """A case in a history: its verdict at each run after the first."""

    case: str
    verdicts: list[str]


@dataclass(frozen=True)
class History:
    """The comparisons of each run with the one before it, and the cases that ever changed."""

    comparisons: list[Comparison]
    changed: list[Step]
    unchanged: int


def over_time(folders: Sequence[Folder]) -> History:
    """The history of folders in the order of their times."""
    pairs = zip(folders, folders[1:], strict=False)
    comparisons = [c for one, other in pairs if (c := between(one, other))]
    verdicts: dict[str, dict[int, Change]] = {}
    for k, comparison in enumerate(comparisons):
        for change in comparison.changes:
            verdicts.setdefault(change.identity, {})[k] = change
    steps, unchanged = [], 0
    for by_run in verdicts.values():
        if not _has_changed(by_run.values()):
            unchanged += 1
            continue
        cells = [f"{by_run[k].verdict} ({by_run[k].change})" if k in by_run else "–" for k in range(len(comparisons))]
        steps.append(Step(next(iter(by_run.values())).case, cells))
    return History(comparisons, steps, unchanged)


def _has_changed(changes: Iterable[Change]) -> bool:
    return any(change.verdict in WORDS.values() for change in changes)
