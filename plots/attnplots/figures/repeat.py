"""The figure of two runs of one sweep: the ratios of both, and by how much the runs differ."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnplots.figures import decode, scaling, style, ticks
from attnplots.figures.description import Group, Line, Marks, Panel, Scale, Sheet, length_scale
from attnplots.figures.style import Style
from attnplots.records import certainty, environment, ratios
from attnplots.records import rows as data
from attnplots.records.records import Record, Records, RecordsError, identity
from attnplots.records.rows import Curve, Measure, Row
from attnplots.records.text import count_of
from attnplots.records.words import setting

# The marks of the second run are this many octaves to the right of those of the first, and the
# methods of a panel of differences this many apart, so that none hides another.
ASIDE = 0.11
SLOT = 0.15
# Differences of this many percent have bands, each with its colour; the wider band comes first.
BANDS = {10: "#f4f4f4", 5: "#e6e6e6"}
# The scale of differences is linear up to this many percent, and logarithmic beyond.
LINEAR = 10.0
KEYS = (
    "Ratios: the first run has filled marks, the second one open marks beside them.",
    "Differences: those of ratios have the colours of the methods, those of times are grey.",
)
PERCENT_TICKS = (0, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
MARK_SIZE = 0.85
WITHIN = 5.0
TIME_GREY = "#8c8c8c"


@dataclass(frozen=True)
class Changes:
    """By how many percent each case of a row differs between the runs: its ratio and its time."""

    ratio: list[tuple[Record, float]]
    time: list[tuple[Record, float]]


def describe(first: Records, second: Records) -> Sheet:
    """A row for each setting: ratios of both runs on the left, differences on the right.

    Raises RecordsError if the runs have no ratios, different baselines or no case in common.
    """
    rows = data.split_rows(first)
    others = {identity(record): record for record in second}
    again = [_matching(row, others) for row in rows]
    _check_baselines(rows, again)
    measures = [_measure(row) for row in rows]
    for row in again:
        _measure(row)  # which refuses a second run without ratios
    changes = [_changes(row, other) for row, other in zip(rows, again, strict=True)]
    panels = [data.curves(row, measure) for row, measure in zip(rows, measures, strict=True)]
    repeated = [data.curves(_own(row), m) for row, m in zip(again, measures, strict=True)]
    span = data.span([panels])
    looks = style.styles(record["method"] for record in first)
    looks = {method: replace(look, hollow=False) for method, look in looks.items()}
    reach = max(abs(v) for change in changes for part in (change.ratio, change.time) for _, v in part)
    groups = []
    for i, row in enumerate(rows):
        limits = ticks.limits([panels[i], repeated[i]], 1.0)
        ratio = Panel(
            measures[i].title, data.SEQUENCE.label, length_scale(span),
            Scale(limits, ticks.times(limits)), panels[i], scaling.reach_of(panels[i]), (Line(1.0),),
            marks=tuple(_second(curve, looks[curve.method]) for curve in repeated[i]),
        )  # fmt: skip
        groups.append(Group(row.title, [ratio, _difference_panel(changes[i], looks, span, reach)]))
    header = " · ".join([setting(first), *_dates(first, second)])
    notes = [summary(changes), *KEYS, *_notes(rows, measures, first, second)]
    stamp = environment.stamp([*first, *second])
    return Sheet(groups, looks, header, notes, stamp, dots=False)


def _difference_panel(changes: Changes, looks: dict[str, Style], span: tuple[float, float], widest: float) -> Panel:
    """The panel of the differences of times and ratios in percent, over bands of small differences."""
    x = length_scale(span)
    aside = 2 ** (SLOT * len(looks) / 2)
    wider = Scale((x.limits[0] / aside, x.limits[1] * aside), x.ticks)
    reach = 1.25 * max(widest, LINEAR)
    places = [float(place) for place in PERCENT_TICKS if place <= reach]
    places = [-place for place in reversed(places[1:])] + places
    texts = [f"{place:+.0f}".replace("-", "−") if place else "0" for place in places]
    y = Scale((-reach, reach), (places, texts), linear_to=LINEAR)
    return Panel(
        "Second run / first run − 1 (%)", data.SEQUENCE.label, wider, y, [], 0.0, (Line(0.0),), empty="",
        bands=tuple(BANDS.items()), marks=tuple(_differences(changes, looks)),
    )  # fmt: skip


def summary(changes: Sequence[Changes]) -> str:
    """How many ratios and times differ by at most WITHIN percent, and the worst of each."""
    parts = []
    for name in ("ratio", "time"):
        values = [abs(v) for change in changes for _, v in getattr(change, name)]
        share = 100 * sum(v <= WITHIN for v in values) / len(values)
        # Rounding must not say that all cases are within the bound where one is not.
        text = f"{min(share, 99) if share < 100 else 100:.0f} % of {count_of(len(values), 'case')}"
        parts.append(f"{name}s: {text} within {WITHIN:g} %, worst {max(values):.1f} %")
    return " · ".join(parts)


def _measure(row: Row) -> Measure:
    decoding = all(record["protocol"] == "decode" for record in row.records)
    ratio = ratios.measure(row.records, decode.TIME if decoding else data.TIME, data.SEQUENCE)
    # Rings would hide the marks of the second run, which are beside those of the first.
    return replace(ratio, doubts=lambda record: [])


def _matching(row: Row, others: dict[str, Record]) -> Row:
    """The records of the other run that have the cases of a row."""
    keys = [identity(record) for record in row.records]
    return Row(row.title, [others[key] for key in keys if key in others])


def _check_baselines(rows: list[Row], again: list[Row]) -> None:
    for row, other in zip(rows, again, strict=True):
        if not other.records:
            raise RecordsError(f"the second run has no case of the row {row.title}, expected some")
        before, after = ({r.get("baseline") for r in run.records} for run in (row, other))
        if before != after:
            texts = (", ".join(sorted(str(b) for b in found)) for found in (before, after))
            raise RecordsError(
                "expected the same baseline in both runs, found {} in the first and {} in the "
                "second ({})".format(*texts, row.title)
            )


def _changes(row: Row, other: Row) -> Changes:
    before = {identity(record): record for record in row.records}
    pairs = [(before[identity(record)], record) for record in other.records]

    def percent(column: str) -> list[tuple[Record, float]]:
        both = [(a, a.get(column), b.get(column)) for a, b in pairs if a["outcome"] == b["outcome"] == "measured"]
        return [(a, 100 * (y / x - 1)) for a, x, y in both if x and y]

    found = Changes(percent("ratio_median"), percent("time_median_ms"))
    if not found.ratio:
        raise RecordsError(f"{row.title}: no case has a ratio in both runs, expected at least one")
    return found


def _own(row: Row) -> Row:
    """The row without cases that are their own baseline, whose ratio is 1 in every run."""
    return Row(row.title, [r for r in row.records if not ratios.is_baseline(r)])


def _dates(first: Records, second: Records) -> list[str]:
    """When the runs ended, if their records say so."""
    ends = [max(str(r.get("finished_at") or "") for r in run) for run in (first, second)]
    texts = [end[:16].replace("T", " ") for end in ends]
    return [f"runs ended {texts[0]} and {texts[1]} UTC"] if all(ends) else []


def _second(curve: Curve, look: Style) -> Marks:
    """The second run beside the first: open marks with bars, which no line joins."""
    return Marks(curve.n * 2**ASIDE, curve.y, replace(look, hollow=True), curve.low, curve.high, size=MARK_SIZE)


def _differences(changes: Changes, looks: dict[str, Style]) -> Iterator[Marks]:
    """The marks of the differences, those of each method aside from those of the others."""
    methods = list(dict.fromkeys(r["method"] for r, _ in changes.time))
    for k, method in enumerate(methods):
        aside = 2 ** (SLOT * (k - (len(methods) - 1) / 2))
        look = looks[method]
        grey = replace(look, colour=TIME_GREY, hollow=True)
        for part, how, layer in ((changes.time, grey, 3.0), (changes.ratio, look, 4.0)):
            own = [(r["query_len"] * aside, v) for r, v in part if r["method"] == method]
            x, y = np.array(own).reshape(-1, 2).T
            yield Marks(x, y, how, size=MARK_SIZE, layer=layer)


def _notes(rows: list[Row], measures: list[Measure], first: Records, second: Records) -> list[str]:
    points: list[Record] = []
    for row, measure in zip(rows, measures, strict=True):
        points += data.points([_own(row)], measure)
    notes = certainty.band_notes(points, lambda r: None not in ratios.value(r)[1:])
    notes.append(
        f"Differences: linear scale up to {LINEAR:g} %, logarithmic beyond; grey areas at "
        + " and ".join(f"±{bound} %" for bound in sorted(BANDS)) + "."
    )  # fmt: skip
    for row, measure in zip(rows, measures, strict=True):
        notes += data.left_out([row], [measure])
    return notes + _alone(first, second)


def _alone(first: Records, second: Records) -> list[str]:
    """A note on the cases that were measured in one run but not in the other."""
    runs = [{identity(r): r for r in run if r["outcome"] == "measured"} for run in (first, second)]
    texts = []
    for name, own, other in (("first", *runs), ("second", *reversed(runs))):
        missing: list[Any] = [record for key, record in own.items() if key not in other]
        cases = [f"{data.method_text(r['method'])} at N = {data.size_text(r['query_len'])}" for r in missing]
        if cases:
            texts.append(f"Measured in the {name} run alone: {', '.join(cases)}.")
    return texts
