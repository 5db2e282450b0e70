"""The figures of quality: how far the rows of the output are from exact attention, against the time
of a call and against how peaked the attention is."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnplots import curves as data
from attnplots import environment, grid, panel, scaling, sheet, style, ticks
from attnplots.curves import Curve, Measure, Row
from attnplots.grid import Group, Panel, Scale
from attnplots.records import Record, Records, RecordsError

# The columns of the error of a row: its median, 5 and 95 %.
ERROR_COLUMNS = (
    "quality_row_error_median", "quality_row_error_p5", "quality_row_error_p95",
)  # fmt: skip
# Outputs that need no queries, by the column of their error, and how figures call them.
REFERENCES = {
    "quality_of_mean_row_error_median": "mean of v",
    "quality_of_zero_row_error_median": "zero",
}
KEYS_COLUMN = "quality_effective_keys"
NOT_SCORED = "quality_not_scored"
# The axis whose values the second figure has beside each other.
CONCENTRATION = "concentration"
# Errors below this are rounding, and their methods are drawn in a strip of exact methods.
ROUNDING = 1e-3


def _error(record: Record) -> tuple[float | None, float | None, float | None]:
    median, low, high = (record.get(name) for name in ERROR_COLUMNS)
    return median, low, high


ERROR = Measure(
    "error of rows", "Relative error of rows", _error,
    missing=lambda record: f"not scored ({record.get(NOT_SCORED) or 'not recorded'})",
)  # fmt: skip
KEYS_LABEL = "Effective number of keys of a row"
NOTE = (
    "Marks: medians over rows and seeds; bars: 5 to 95 % of the rows. Lines: outputs that ignore "
    "the queries, of which zero has the error 1."
)


def draw(records: Records) -> dict[str, Figure]:
    """The sheet "time", with a panel for each setting, and the sheet "keys" of the error against the
    effective number of keys, if the records have several concentrations.

    Raises RecordsError if no record has an error of rows.
    """
    records, absent = data.on_present_devices(records)
    scored = [r for r in records if _is_scored(r)]
    if not scored:
        wanted = f"one measured record with `{ERROR_COLUMNS[0]}`"
        raise RecordsError(f"expected at least {wanted}, found none")
    # The error of the forward pass is that of every pass.
    forward = records.where(lambda r: r["protocol"] == "forward")
    if any(_is_scored(record) for record in forward):
        records = forward
    drawn = {"time": _against_time(records, absent)}
    if any(len({_keys(r) for r in group} - {None}) > 1 for group in _by_setting(records).values()):
        drawn["keys"] = _against_keys(records, absent)
    return drawn


def _is_scored(record: Record) -> bool:
    return record["outcome"] == "measured" and bool(_error(record)[0])


def _keys(record: Record) -> float | None:
    keys: float | None = record.get(KEYS_COLUMN)
    return keys


def _is_exact(method: str, records: Sequence[Record]) -> bool:
    """Whether all errors of a method are rounding."""
    errors = [_error(r)[0] or 0.0 for r in records if r["method"] == method and _is_scored(r)]
    return bool(errors) and max(errors) < ROUNDING


def _against_time(records: Records, absent: list[str]) -> Figure:
    rows = _rows(records)
    approximate = [[r for r in row.records if _is_scored(r) and not _is_exact(r["method"], records)]
                   for row in rows]  # fmt: skip
    shown = [(row, found) for row, found in zip(rows, approximate, strict=True) if found]
    times = [
        float(data.TIME.value(r)[0] or np.nan)
        for row, _ in shown for r in row.records if _is_scored(r)
    ]  # fmt: skip
    x_limits = ticks.around(times)
    x = Scale(x_limits, ticks.times(x_limits, between=(3,) if len(shown) > 1 else (2, 5)))
    y = _error_scale(row for _, row in shown)
    groups = []
    for row, found in shown:
        curves = [_mark(r, data.TIME.value(r)[0]) for r in found if data.TIME.value(r)[0]]
        exact = [r for r in row.records if _is_scored(r) and _is_exact(r["method"], records)]
        groups.append(Group(row.title, [Panel(
            ERROR.title, data.TIME.title, x, y, curves, float("inf"), _lines(found),
            more=lambda figure, axes, frame, exact=exact: _exact_lines(figure, axes, frame, exact, looks),
        )]))  # fmt: skip
    looks = style.styles(record["method"] for record in records)
    return _sheet(groups, looks, rows, records, [*_exact_note(records), *absent])


def _exact_lines(figure: Figure, axes, frame, exact: list[Record], looks) -> None:  # type: ignore[no-untyped-def]
    """Draws the times of exact methods as vertical lines with their names at the lower end."""
    taken = frame.y0 + 2
    for record in sorted(exact, key=lambda r: data.TIME.value(r)[0] or 0.0):
        time, look = data.TIME.value(record)[0], looks[record["method"]]
        if time:
            axes.axvline(time, color=look.colour, linestyle=look.dash, linewidth=0.9, zorder=1.8)
            place = float(axes.transData.transform((time, axes.get_ylim()[0]))[0])
            label = panel.method_label(figure, record["method"])
            left = place + 2 if place + 2 + label.width < frame.x1 else place - 2 - label.width
            panel.write(figure, label, left, taken + panel.NAME_LINE, look)
            taken += panel.NAME_LINE


def _exact_note(records: Records) -> list[str]:
    methods = dict.fromkeys(r["method"] for r in records)
    exact = [data.method_text(m) for m in methods if _is_exact(m, records)]
    if not exact:
        return []
    return [f"Vertical lines: times of exact methods, whose errors are rounding ({', '.join(exact)})."]


def _against_keys(records: Records, absent: list[str]) -> Figure:
    groups_of = _by_setting(records)
    shown = {title: [r for r in found if _is_scored(r) and _keys(r)] for title, found in groups_of.items()}
    shown = {title: found for title, found in shown.items() if found}
    keys = [float(_keys(r) or 0.0) for found in shown.values() for r in found]
    limits = panel.length_limits((min(keys), max(keys)))
    x = Scale(limits, ticks.times(limits, between=(2, 5)))
    y = _error_scale(shown.values())
    looks = style.styles(record["method"] for record in records)
    groups = []
    for title, found in shown.items():
        curves = [
            _line(method, [r for r in found if r["method"] == method])
            for method in dict.fromkeys(r["method"] for r in found)
            if not _is_exact(method, records)
        ]
        curves += _reference_lines(found)
        reach = scaling.reach_of(curves) * 0.8
        groups.append(Group(title, [Panel(ERROR.title, KEYS_LABEL, x, y, curves, reach)]))
    looks |= {name: style.Style(style.QUIET, style.QUIET, None, False, style.DOTTED)
              for name in REFERENCES.values()}  # fmt: skip
    rows = [Row(title, found) for title, found in groups_of.items()]
    return _sheet(groups, looks, rows, records, absent)


def _reference_lines(found: list[Record]) -> list[Curve]:
    """The errors of outputs that ignore the queries, against the number of keys."""
    lines = []
    for column, name in REFERENCES.items():
        values = {_keys(r): r[column] for r in found if r.get(column) and _keys(r)}
        if values:
            n, y = np.array(sorted(values.items()), dtype=float).T
            nothing = np.full_like(n, np.nan)
            lines.append(Curve(name, n, y, nothing, nothing, np.zeros(len(n), bool)))
    return lines


def _rows(records: Records) -> list[Row]:
    """The rows of split_rows(), one for each length."""
    rows = []
    for row in data.split_rows(records):
        for n in dict.fromkeys(sorted(r["query_len"] for r in row.records)):
            at = [r for r in row.records if r["query_len"] == n]
            rows.append(Row(f"{row.title} · N = {data.size_text(n)}", at))
    return rows


def _by_setting(records: Records) -> dict[str, list[Record]]:
    """The records that differ in the method and in how peaked the attention is alone, by a title."""
    groups: dict[str, list[Record]] = {}
    hidden = Records(({**r, CONCENTRATION: None, "_record": r} for r in records), records.schema)
    for row in _rows(hidden):
        groups[row.title] = [r["_record"] for r in row.records]
    return groups


def _mark(record: Record, x: float | None) -> Curve:
    """A curve of one point."""
    return _curve(record["method"], [(float(x or np.nan), record)])


def _line(method: str, found: list[Record]) -> Curve:
    return _curve(method, sorted(((float(_keys(r) or 0.0), r) for r in found), key=lambda p: p[0]))


def _curve(method: str, points: list[tuple[float, Record]]) -> Curve:
    n = np.array([x for x, _ in points])
    y, low, high = (
        np.array([np.nan if _error(r)[k] is None else _error(r)[k] for _, r in points], dtype=float)
        for k in range(3)
    )
    return Curve(method, n, y, low, high, np.zeros(len(n), bool))


def _lines(found: list[Record]) -> tuple[tuple[float, str], ...]:
    """The lines of outputs that ignore the queries, at the median over the methods."""
    lines = []
    for column, name in REFERENCES.items():
        values = [r[column] for r in found if r.get(column)]
        if values:
            lines.append((float(np.median(values)), name))
    return tuple(lines)


def _error_scale(groups) -> Scale:  # type: ignore[no-untyped-def]
    found = [r for group in groups for r in group if (_error(r)[0] or 0.0) >= ROUNDING]
    values = [v for r in found for v in _error(r) if v and v >= ROUNDING / 10]
    values += [r[column] for r in found for column in REFERENCES if r.get(column)]
    limits = ticks.around(values)
    return Scale(limits, ticks.times(limits))


def _sheet(
    groups: list[Group], looks: dict[str, style.Style], rows: list[Row], records: Records,
    more: list[str],
) -> Figure:  # fmt: skip
    learned = sorted({data.method_text(r["method"]) for r in records if r.get(NOT_SCORED) == "learned"})
    notes = [NOTE, *more]
    if learned:
        notes.append(f"Not scored, because they are learned: {', '.join(learned)}.")
    notes += data.left_out(rows, [ERROR])
    header, stamp = sheet.setting(records), environment.stamp(records)
    return grid.draw(grid.Sheet(groups, looks, header, notes, stamp))
