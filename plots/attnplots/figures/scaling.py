"""The scaling figures: time and peak memory per sequence against the sequence length, of some methods or of all."""

import re
from collections.abc import Sequence
from dataclasses import replace

from attnplots.figures import style, ticks
from attnplots.figures.description import Group, Line, Panel, Sheet, length_scale, value_scale
from attnplots.records import crossovers, environment, ratios
from attnplots.records import rows as data
from attnplots.records.crossovers import RIVAL, Crossover
from attnplots.records.methods import PYTHON
from attnplots.records.records import Record, Records, RecordsError
from attnplots.records.rows import Curve, Length, Measure, Row
from attnplots.records.words import amount, bytes_text, listed, setting

# The functions that return the ticks of an axis of time and of an axis of memory.
TICK_FUNCTIONS = (ticks.times, ticks.sizes)
# The families of methods in each row, by the title of the row. The last row has all other families.
KINDS: dict[str, tuple[str, ...]] = {
    "Linear attention": ("linear", "efficient"),
    "Approximations of the softmax kernel": ("kernel",),
    "Exact attention, hashing and others": (),
}
# These methods are drawn in every row for comparison.
REFERENCES = ("sdpa", "linear")
# The functions that write the value beside a dot, for time and for memory.
VALUE_TEXTS = (amount, bytes_text)


def describe(
    records: Records, time: Measure = data.TIME, memory: Measure = data.MEMORY, length: Length = data.SEQUENCE,
    known: Sequence[Crossover] = (),
) -> Sheet:
    """A row of panels for each setting, with time on the left and memory on the right. The panels of time show the crossovers in
    `known`."""
    records, absent = data.select_present_devices(records)
    return describe_rows(data.split_rows(records), (time, memory), length, absent, known=known)


def describe_crossovers(records: Records) -> Sheet:
    """The figure of describe(), also with the lengths from which on methods are faster than sdpa.

    Raises RecordsError if the program attnbench, which computes these lengths, is not built.
    """
    known = crossovers.find(records)
    records, absent = data.select_present_devices(records)
    rows = data.split_rows(records)
    return describe_rows(rows, (data.TIME, data.MEMORY), data.SEQUENCE, absent, known=known)


def describe_recurrent(records: Records) -> Sheet:
    """The figure of describe() of recurrent attention beside linear and softmax attention.

    Decoding steps, other packages, and cases with fewer heads of keys than of values or with a different dimension of values are
    left out. Tables show them.
    """
    shown = records.where(
        lambda r: r["protocol"] != "decode" and PYTHON not in r["method"] and r["kv_heads"] == r["value_heads"] and r["head_dim"] == r["value_dim"]
    )
    if not shown:
        raise RecordsError("no records of whole sequences with as many heads of values as of keys")
    return describe(shown)


def describe_rows(
    rows: list[Row],
    measures: tuple[Measure, Measure],
    length: Length = data.SEQUENCE,
    more_notes: Sequence[str] = (),
    apart: bool = False,
    known: Sequence[Crossover] = (),
) -> Sheet:
    """A row of panels for each of `rows`, with a panel for each of `measures`, of which the first is the time or a ratio of times.
    The rows share their axes, so that they can be compared by eye; with `apart`, each row has vertical axes of its own. The panels
    of the first measure show the crossovers in `known`."""
    records = [record for row in rows for record in row.records]
    measures = (data.drop_common_rings(rows, measures[0]), measures[1])
    columns = [[data.curves(row, measure) for row in rows] for measure in measures]
    columns[0] = [_add_crossings(row, curves, known) for row, curves in zip(rows, columns[0], strict=True)]
    span = data.span(columns)
    groups = []
    for i, row in enumerate(rows):
        panels = [
            _panel(measure, k, column if not apart else [column[i]], column[i], span, length)
            for k, (measure, column) in enumerate(zip(measures, columns, strict=True))
        ]
        groups.append(Group(row.title, panels))
    looks = style.styles(record["method"] for record in records)
    texts = [*notes(rows, measures), *_crossing_notes(rows, known), *more_notes]
    stamp = environment.stamp(records)
    return Sheet(groups, looks, setting(records), texts, stamp)


def _panel(
    measure: Measure, k: int, together: list[list[Curve]], shown: list[Curve],
    span: tuple[float, float], length: Length,
) -> Panel:  # fmt: skip
    lines = (Line(measure.line),) if measure.line is not None else ()
    return Panel(
        measure.title, length.label, length_scale(span),
        value_scale(measure, TICK_FUNCTIONS[k], together), shown, reach_of(shown),
        lines, None if lines else length, text=VALUE_TEXTS[k],
    )  # fmt: skip


def _add_crossings(row: Row, curves: list[Curve], known: Sequence[Crossover]) -> list[Curve]:
    mine = crossovers.select(known, row.records)
    return [replace(curve, crossing=_crossing(mine.get(curve.method))) for curve in curves]


def _crossing(found: Crossover | None) -> tuple[float, float, float] | None:
    if not found or found.verdict != crossovers.CROSSES or not found.faster:
        return None
    assert found.length and found.low and found.high
    return found.length, found.low, found.high


def _crossing_notes(rows: list[Row], known: Sequence[Crossover]) -> list[str]:
    """Notes on the methods that are faster than RIVAL at every length, or from which length on."""
    if not any(record["method"] == RIVAL for row in rows for record in row.records):
        return []
    titles: dict[str, list[str]] = {}
    for row in rows:
        mine = crossovers.select(known, row.records)
        always, later = [], []
        for method, found in mine.items():
            name = data.method_text(method)
            if at := _crossing(found):
                later.append(f"{name} from N = {at[0]:,.0f} on (95 %: {at[1]:,.0f} to {at[2]:,.0f})")
            elif found.verdict == crossovers.NEVER and found.faster:
                always.append(name)
        said = [f"at every N: {', '.join(always)}"] if always else []
        said += [", ".join(later)] if later else []
        if said:
            titles.setdefault("; ".join(said), []).append(row.title)
    return [
        f"Faster than {RIVAL}{'' if len(of) == len(rows) else f' ({listed(of)})'} {said}."
        for said, of in titles.items()
    ]


def reach_of(curves: Sequence[Curve]) -> float:
    """The longest length at which a curve has a value. Curves that end there have their names beside the panel."""
    return max((curve.tip[0] for curve in curves), default=0.0)


def describe_ratio(records: Records) -> Sheet:
    """The figure of describe() with the ratio of the time to that of the baseline."""
    return describe(records, ratios.measure(records, data.TIME, data.SEQUENCE))


def notes(rows: list[Row], measures: Sequence[Measure]) -> list[str]:
    """The notes below the figure; the first measure is the time, or a ratio of times."""
    texts = data.certainty_notes(rows, measures[0])
    texts += data.left_out(rows, measures)
    return texts + data.source_notes(rows, measures)


def describe_kinds_ratio(records: Records) -> dict[str, Sheet]:
    """The figures of describe_kinds() with the ratio of the time to that of the baseline."""
    return describe_kinds(records, ratios.measure(records, data.TIME, data.SEQUENCE))


def describe_kinds(records: Records, time: Measure = data.TIME) -> dict[str, Sheet]:
    """A sheet for each setting, by a name such as "forward-causal"."""
    records, absent = data.select_present_devices(records)
    measures = (time, data.MEMORY)
    settings = data.split_rows(records)
    drawn = {}
    for setting in settings:
        rows = [_kind_row(setting, kind) for kind in KINDS]
        rows = [row for row in rows if row.records]
        if any(data.curves(row, time) for row in rows):
            drawn[file_part(setting.title)] = describe_rows(rows, measures, more_notes=absent)
    if not drawn:
        raise RecordsError("expected at least one measured record with a time, found none")
    return drawn


def _kind_row(setting: Row, kind: str) -> Row:
    shown = [r for r in setting.records if kind_of(r["method"]) == kind]
    others = [r for r in setting.records if r["method"] in REFERENCES and r not in shown]
    return Row(f"{setting.title}: {kind[0].lower()}{kind[1:]}", _sorted(shown + others) if shown else [])


def _sorted(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda r: (r["method"], r[data.LENGTH_AXIS]))


def file_part(title: str) -> str:
    """The title of a setting as a part of a file name: "Forward · not causal" is "forward-not-causal"."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def kind_of(method: str) -> str:
    """The key of KINDS that a method belongs to."""
    family = style.family(method)
    return next((kind for kind in KINDS if family in KINDS[kind]), list(KINDS)[-1])
