"""The figure of any two columns of a folder: a panel for each facet, a line for each series."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import numpy as np

from attnplots.figures import quality, style, ticks
from attnplots.figures.description import Group, Panel, Scale, Sheet, length_scale, needs_key
from attnplots.figures.style import Style
from attnplots.records import certainty, environment, ratios
from attnplots.records import columns as tables
from attnplots.records import rows as data
from attnplots.records.certainty import Doubts
from attnplots.records.columns import Table
from attnplots.records.records import Record, RecordsError
from attnplots.records.rows import FIRST_IN_TITLE, LENGTH_AXIS, Curve, Measure, Row, Value
from attnplots.records.schema import Column
from attnplots.records.text import count_of
from attnplots.records.words import amount, bytes_text, setting

# The column that tells repetitions of the same line apart. They become one point with a band.
REPETITION = "seed"
# Points of several trainings belong together if they have the same value in this column.
UPDATE = "update"
# The axis of a column that is not in LINEAR is logarithmic if its values are positive and span at least this factor.
LOGARITHMIC = 10.0
# Columns whose axes are always linear, and units of the columns of sweeps whose axes are logarithmic even if they span less.
LINEAR = (UPDATE, "training_s", "epoch")
FACTORS = ("ms", "s", "us", "B")
# Curves with more points than this are drawn without marks.
MAX_MARKS = 24
FEW_MARKS = 5
MAX_PANELS = 40
# Panels side by side, one for each x.
MAX_X = 2
MAX_SERIES = 26

TITLES = {
    "time_per_sample_ms": data.TIME.title,
    "peak_extra_bytes_per_sample": data.MEMORY.title,
    LENGTH_AXIS: data.SEQUENCE.label,
    UPDATE: "Updates",
    "training_s": "Wall time of the updates (s)",
    "bits_per_dim": "Bits per dimension",
}


@dataclass(frozen=True)
class Request:
    """What to draw: the column `y` against each of the columns `x`, a line for each value of the column `series`, and
    a panel for each combination of values of the columns `facets`. Lines with too many points for a mark at each have
    no marks or, with `marked`, FEW_MARKS of them; their names are then all beside the panels and have marks as well."""

    x: tuple[str, ...]
    y: str
    series: str
    facets: tuple[str, ...]
    marked: bool = False


@dataclass(frozen=True)
class Facet:
    """The lines that one panel shows, and its title."""

    title: str
    lines: list[Record]


def default_request(table: Table) -> Request:
    """What is drawn of a folder if the user does not choose it.

    Of trainings, the loss against updates and against wall time; of a sweep, the time against the
    length, or the ratio of times where there are only ratios.
    """
    if table.is_training:
        y = _first_numeric(table, ("validation_loss", "training_loss"))
        return Request((UPDATE, "training_s"), y, data.CURVE_AXIS, ())
    y = _first_numeric(table, ("time_per_sample_ms", "ratio_median"))
    return Request((LENGTH_AXIS,), y, data.CURVE_AXIS, ())


def _first_numeric(table: Table, names: Sequence[str]) -> str:
    found = [n for n in names if any(line.get(n) is not None for line in table.lines)]
    return (found or list(names))[0]


def check(table: Table, request: Request) -> None:
    """Raises RecordsError if a column is unknown or cannot be drawn, or if there are too many."""
    if len(request.x) > MAX_X:
        raise RecordsError(f"{len(request.x)} columns for --x; expected at most {MAX_X}")
    for name in (*request.x, request.y):
        tables.known_number(table, name)
    for name in (request.series, *request.facets):
        tables.known(table, name)
    count = len({tables.value_text(line.get(request.series)) for line in table.lines})
    if count > MAX_SERIES:
        advice = "expected at most {}; choose another --series, or fewer lines with --filter"
        raise RecordsError(
            f"{table.path}: `{request.series}` has {count_of(count, 'value')}; {advice.format(MAX_SERIES)}"
        )


def describe(table: Table, request: Request) -> Sheet:
    """The panels. If there are several x, each facet is a row of panels, one for each x."""
    check(table, request)
    table, left_out = _without_exact(table, request)
    facets = split(table, request)
    if len(facets) > MAX_PANELS:
        names = ", ".join(facet_columns(table, request))
        raise RecordsError(
            f"{table.path}: {len(facets)} panels, one for each combination of {names}; expected "
            f"at most {MAX_PANELS}; choose fewer lines with --filter"
        )
    doubts, common = _rare_doubts(table, request)
    whole = [[_curves(table, request, facet, x, doubts) for x in request.x] for facet in facets]
    for k, x in enumerate(request.x):
        if not any(row[k] for row in whole):
            both = f"`{request.y}` and `{x}`"
            raise RecordsError(f"{table.path}: no measured line has numbers in both {both}")
    present = [k for k, row in enumerate(whole) if any(row)]
    absent = [facet for k, facet in enumerate(facets) if k not in present]
    facets, drawn = [facets[k] for k in present], [whole[k] for k in present]
    x_scales = [_scale(table.columns[x], _x_values(drawn, k), is_x=True) for k, x in enumerate(request.x)]
    y_scale = _scale(table.columns[request.y], _y_values(drawn), is_x=False)
    y_title = column_title(table.columns[request.y])
    groups = []
    for facet, row in zip(facets, drawn, strict=True):
        panels = [
            Panel(
                y_title, column_title(table.columns[x]), scale, y_scale, curves,
                0.0 if request.marked else _reach(scale, curves), keyed=request.marked,
                text=bytes_text if table.columns[request.y].unit == "B" else amount,
            )
            for x, scale, curves in zip(request.x, x_scales, row, strict=True)
        ]
        groups.append(Group(facet.title, panels))
    looks = _looks(table, request, facets, drawn)
    texts = [*left_out, *_notes(table, request, facets, absent, doubts, common)]
    key = not request.marked and needs_key(curves for row in drawn for curves in row)
    stamp = environment.stamp(table.lines, table.environment)
    return Sheet(groups, looks, _setting(table), texts, stamp, key=key)


def _without_exact(table: Table, request: Request) -> tuple[Table, list[str]]:
    """The table without exact methods if errors are drawn, and a note on them: their rounding would take most of the scale. The same
    table if no other method was scored."""
    exact = quality.exact_methods(table.lines) if request.y == quality.ERROR_COLUMNS[0] else set()
    others = table.where(lambda line: line["method"] not in exact)
    if not exact or not any(line.get(request.y) for line in others.lines):
        return table, []
    return others, [f"Left out: exact methods, whose errors are rounding ({quality.names_text(exact)})."]


def column_title(column: Column) -> str:
    """The title of an axis: the name of the column in words, with its unit."""
    if column.name in TITLES:
        return TITLES[column.name]
    name, unit = column.name, column.unit
    if unit and unit != "B":
        name = name.removesuffix("_" + unit.replace("/", "_per_"))
    words = name.replace("_bytes", "").replace("_", " ")
    shown = f" ({unit})" if unit not in ("", "B", "1/s") else ""
    return words[:1].upper() + words[1:].replace(" per s", " per second") + shown


def facet_columns(table: Table, request: Request) -> list[str]:
    """The columns whose combinations of values are the facets.

    These are those that the user wants, then other axes with several values. An axis of kind
    "length", such as the batch size, usually follows from x. It is one of these columns only if
    lines that differ in it would otherwise share an x.
    """
    own = {*request.x, request.series, REPETITION}
    chosen = list(request.facets)
    lengths = []
    for axis in table.axes:
        values = {_key(line, [axis.name]) for line in table.lines}
        if axis.name in own or axis.name in chosen or len(values) < 2:
            continue
        if axis.kind == "length":
            lengths.append(axis.name)
        else:
            chosen.append(axis.name)
    is_axis = request.x[0] in {axis.name for axis in table.axes}
    for name in lengths if is_axis else []:
        seen: dict[str, str] = {}
        place = [*chosen, request.series, *request.x, REPETITION]
        if any(
            seen.setdefault(_key(line, place), _key(line, [name])) != _key(line, [name])
            for line in table.lines
        ):
            chosen.append(name)
    return chosen


def split(table: Table, request: Request) -> list[Facet]:
    """The facets, in the order of the values of their columns."""
    names = sorted(facet_columns(table, request), key=lambda name: name not in FIRST_IN_TITLE)
    groups: dict[str, list[Record]] = {}
    for line in table.lines:
        groups.setdefault(_key(line, names), []).append(line)
    ordered = sorted(groups.values(), key=lambda group: [data.sort_key(group[0], n) for n in names])
    return [Facet(_title(table, names, group[0]), group) for group in ordered]


def _title(table: Table, names: Sequence[str], line: Record) -> str:
    first = "task" if table.is_training else "protocol"
    words = [data.setting_text(line, name) for name in names if name != first]
    trained_on = f", data {PurePath(line['data']).name}" if line.get("data") else ""
    begin = f"Task {line['task']}{trained_on}" if table.is_training else data.protocol_text(line)
    return " · ".join([begin, *words])


def _key(line: Record, names: Sequence[str]) -> str:
    return json.dumps([line.get(name) for name in names])


# The columns whose intervals are in the records, each with the function that returns the value with its interval, and the function
# that returns the reasons why the value is doubtful.
INTERVALS: dict[str, tuple[Value, Callable[[Record], list[str]]]] = {
    "time_per_sample_ms": (data.time_value, data.time_doubts),
    "time_median_ms": (
        lambda record: (
            record.get("time_median_ms"),
            *certainty.interval(record, "time_ci_low_ms", "time_ci_high_ms"),
        ),
        data.time_doubts,
    ),
    "ratio_median": (ratios.value, ratios.doubts),
}


# The column of the published values of a quantity, by the column of the measured ones.
PUBLISHED = {"time_per_sample_ms": data.TIME.published}


def _value(request: Request) -> Value:
    return INTERVALS[request.y][0] if request.y in INTERVALS else _plain(request.y)


def _plain(name: str) -> Value:
    return lambda record: (record.get(name), None, None)


def _is_shown(line: Record) -> bool:
    """Whether the line is of a measured case or a point of a training, which has no outcome."""
    return line.get("outcome") in (None, "measured")


def _rare_doubts(table: Table, request: Request) -> tuple[Doubts, str]:
    """The doubts of a line that deserve a ring, and the note on those that too many lines share to have rings: the result of
    certainty.rare() for the lines with a value of the vertical axis."""
    if request.y not in INTERVALS:
        return lambda line: [], ""
    value, doubts = INTERVALS[request.y]
    return certainty.rare([x for x in table.lines if _is_shown(x) and value(x)[0] is not None], doubts)


def _curves(table: Table, request: Request, facet: Facet, x: str, doubts: Doubts) -> list[Curve]:
    value = _value(request)
    found = []
    for name, lines in _group_series(request, facet).items():
        points = [line for line in lines if _is_shown(line) and line.get(x) is not None]
        groups: dict[Any, list[Record]] = {}
        for line in points:
            groups.setdefault(line[UPDATE] if table.is_training else line[x], []).append(line)
        rows = [_point(group, x, value) for group in groups.values()]
        rows = sorted(row for row in rows if np.isfinite(row[1]))
        if rows:
            n, y, low, high = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
            doubtful = {line[x] for line in points if doubts(line)}
            ringed = np.array([place in doubtful for place in n])
            gaps = _gaps(table, x, lines, float(n[-1]))
            column = PUBLISHED.get(request.y, "") if x == LENGTH_AXIS else ""
            published = data.published_of(lines, column)
            found.append(Curve(name, n, y, low, high, ringed, gaps, published))
    return found


def _group_series(request: Request, facet: Facet) -> dict[str, list[Record]]:
    """The lines of each series, by its name in the figure."""
    series: dict[str, list[Record]] = {}
    for line in facet.lines:
        text = tables.value_text(line.get(request.series))
        name = text if request.series == data.CURVE_AXIS else f"{request.series} {text}"
        series.setdefault(name, []).append(line)
    return dict(sorted(series.items()))


def _point(group: list[Record], x: str, value: Value) -> tuple[float, float, float, float]:
    """The point of lines that differ in the seed alone: the medians of x and y, and the range of y.

    A single line has its own interval in place of the range.
    """
    triples = [value(line) for line in group]
    numbers = [y for y, _, _ in triples if y is not None]
    if not numbers:
        return float(group[0][x]), np.nan, np.nan, np.nan
    place = float(np.median([line[x] for line in group]))
    if len(group) == 1:
        _, low, high = triples[0]
        return place, numbers[0], *(np.nan if bound is None else bound for bound in (low, high))
    if len(numbers) == 1:
        return place, numbers[0], np.nan, np.nan
    return place, float(np.median(numbers)), min(numbers), max(numbers)


def _gaps(table: Table, x: str, lines: list[Record], last: float) -> tuple[data.Gap, ...]:
    """The gaps of the curve of a sweep, if x is the length."""
    if table.is_training or x != LENGTH_AXIS:
        return ()
    return data.gaps_of(sorted(lines, key=lambda line: line[LENGTH_AXIS]), last)


def _x_values(drawn: list[list[list[Curve]]], k: int) -> list[float]:
    return [float(n) for row in drawn for curve in row[k] for n in curve.lengths]


def _y_values(drawn: list[list[list[Curve]]]) -> list[float]:
    every = (curve for row in drawn for curves in row for curve in curves)
    numbers = [float(v) for c in every for v in (*c.y, *c.low, *c.high, *(y for _, y in c.published))]
    return [v for v in numbers if np.isfinite(v)]


def _is_logarithmic(column: Column, values: list[float]) -> bool:
    """Whether an axis of these values is logarithmic. Updates and times of a training never are;
    lengths always are, and so are times and sizes of sweeps, which grow by factors."""
    low, high = min(values), max(values)
    if low <= 0 or column.name in LINEAR:
        return False
    by_factors = column.name == LENGTH_AXIS or (column.unit in FACTORS and column.group != "curve")
    return high / low >= LOGARITHMIC or (by_factors and high > low)


def _scale(column: Column, values: list[float], is_x: bool) -> Scale:
    low, high = min(values), max(values)
    # The axis of updates or of time of a training begins at 0.
    grows = is_x and column.name in LINEAR
    if _is_logarithmic(column, values):
        if is_x and column.name == LENGTH_AXIS:
            return length_scale((low, high))
        limits = ticks.length_limits((low, high)) if is_x else ticks.around(values)
        texts = ticks.sizes(limits) if column.unit == "B" else ticks.times(limits)
        return Scale(limits, texts)
    slack = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    limits = (0.0 if grows else low - slack, high + slack)
    return Scale(limits, ticks.linear(limits), logarithmic=False)


def _reach(scale: Scale, curves: list[Curve]) -> float:
    """The x from which on the end of a curve is so near the panel's edge that its name is beside the panel."""
    longest = max((curve.tip[0] for curve in curves), default=0.0)
    return longest if scale.logarithmic else longest - 0.03 * (scale.limits[1] - scale.limits[0])


def _looks(table: Table, request: Request, facets: list[Facet], drawn: list[list[list[Curve]]]) -> dict[str, Style]:
    """The styles of the series. Curves of trainings, and curves with many points, have few marks or none,
    unless one of the curves is a single point."""
    names = {name for facet in facets for name in _group_series(request, facet)}
    looks = style.styles(names)
    lengths = [len(curve.n) for row in drawn for curves in row for curve in curves]
    if min(lengths) > 1 and (table.is_training or max(lengths) > MAX_MARKS):
        few = {"every": -(-max(lengths) // FEW_MARKS)} if request.marked else {"marker": None}
        looks = {name: replace(look, **few) for name, look in looks.items()}
    return looks


def _setting(table: Table) -> str:
    """The line above the panels: what all lines have in common."""
    if not table.is_training:
        return setting(table.lines)
    lines = table.lines
    parts = [
        _common(lines, "threads", "thread"),
        _common(lines, "layers", "layer"),
        _common(lines, "heads", "head"),
        _common(lines, "batch", "", "batch "),
        _common(lines, "optimizer", ""),
        _common(lines, "learning_rate", "", "learning rate "),
    ]
    return " · ".join(part for part in parts if part)


def _common(lines: list[Record], name: str, unit: str, before: str = "") -> str:
    """The values of a column in words, such as "2 threads" or "batch 16 or 64"."""
    values = list(dict.fromkeys(line[name] for line in lines if line.get(name) is not None))
    if not values:
        return ""
    shown = " or ".join(tables.value_text(value) for value in values)
    return f"{before}{shown} {unit}{'' if values == [1] or not unit else 's'}".rstrip()


def _notes(
    table: Table, request: Request, facets: list[Facet], absent: list[Facet], doubts: Doubts, common: str
) -> list[str]:
    """The notes below the panels: what lines and bands are, and what is not drawn. `doubts` says which
    lines have rings, and `common` is the note on doubts that have none."""
    value = _value(request)
    shown = [line for line in table.lines if _is_shown(line) and value(line)[0] is not None]
    texts = _repetition_notes(table, request, shown)
    if request.y in INTERVALS:
        texts += certainty.band_notes(shown, lambda line: None not in value(line)[1:])
        texts += [common] if common else []
        texts += certainty.ring_notes([(line, doubts(line)) for line in shown])
    elif not texts:
        texts.append("No bands: a single line of the records for each point.")
    if not table.is_training:
        own = Measure(request.y, "", value, missing=lambda line: "not recorded")
        rows = [Row(facet.title, facet.lines) for facet in facets]
        texts += data.left_out(rows, [own], positive=False)
    if absent:
        texts.append(f"Nothing was measured: {'; '.join(facet.title for facet in absent)}.")
    if table.is_training and (without := len(table.lines) - len(shown)):
        texts.append(f"Not drawn: {count_of(without, 'line')} without `{request.y}`.")
    rows = [Row(facet.title, facet.lines) for facet in facets]
    own = Measure(request.y, "", value, published=PUBLISHED.get(request.y, ""))
    texts += data.source_notes(rows, [own]) if not table.is_training else []
    return [*texts, *table.notes]


def _repetition_notes(table: Table, request: Request, shown: list[Record]) -> list[str]:
    """The note on what lines and bands are if the points are medians over several seeds, or that a training has one seed."""
    counts: dict[str, set[Any]] = {}
    for line in shown:
        counts.setdefault(tables.value_text(line.get(request.series)), set()).add(line.get(REPETITION))
    most = max((len(seeds) for seeds in counts.values()), default=0)
    if most < 2:
        return ["No bands: one seed for each line."] if table.is_training else []
    fewer = [f"{name}: {len(seeds)}" for name, seeds in counts.items() if len(seeds) < most]
    but = f" ({', '.join(fewer)})" if fewer else ""
    return [f"Lines: medians of {most} seeds{but}. Bands: the ranges of the seeds."]
