"""The figures of quality: how far the rows of the output are from exact attention, against the time
of a call and against how peaked the attention is."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from attnplots.figures import scaling, style, ticks
from attnplots.figures.description import Group, Line, Panel, Scale, Sheet, needs_key
from attnplots.figures.style import Style
from attnplots.records import environment, words
from attnplots.records import rows as data
from attnplots.records.records import Record, Records, RecordsError
from attnplots.records.rows import Curve, Measure, Row

# The columns of the error of a row: its median, 5 and 95 %.
ERROR_COLUMNS = ("quality_row_error_median", "quality_row_error_p5", "quality_row_error_p95")
# Outputs that need no queries, by the column of their error, and how figures call them.
REFERENCES = {"quality_of_mean_row_error_median": "mean of v", "quality_of_zero_row_error_median": "zero"}
KEYS_COLUMN = "quality_effective_keys"
NOT_SCORED = "quality_not_scored"
# The axis whose values the second figure has beside each other.
CONCENTRATION = "concentration"
# A method whose errors are all below this is exact, and its errors are rounding.
ROUNDING = 1e-3


def _error(record: Record) -> tuple[float | None, float | None, float | None]:
    median, low, high = (record.get(name) for name in ERROR_COLUMNS)
    return median, low, high


ERROR = Measure(
    "error of rows", "Relative error of rows", _error,
    missing=lambda record: "not scored" if record.get(NOT_SCORED) else "not recorded",
)  # fmt: skip
KEYS_LABEL = "Effective number of keys of a row"
NOTE = (
    "Marks: medians over rows and seeds; bars: 5 to 95 % of the rows. Lines: outputs that ignore "
    "the queries, of which zero has the error 1."
)


def describe(records: Records) -> dict[str, Sheet]:
    """For each setting, such as N = 512 with a causal mask, the errors against the times, with a panel
    for each concentration, as the sheet "time-SETTING"; and the sheet "keys" of the errors against
    the effective number of keys, if the records have several concentrations.

    Raises RecordsError if no record has an error of rows.
    """
    records, absent = data.select_present_devices(records)
    if not any(_is_scored(r) for r in records):
        wanted = f"one measured record with `{ERROR_COLUMNS[0]}`"
        raise RecordsError(f"expected at least {wanted}, found none")
    # The error of the forward pass is that of every pass.
    forward = records.where(lambda r: r["protocol"] == "forward")
    if any(_is_scored(record) for record in forward):
        records = forward
    exact = exact_methods(records)
    settings = _group_settings(records)
    drawn = {}
    for title, found in settings.items():
        if any(_is_scored(r) and r["method"] not in exact for r in found):
            name = f"time-{scaling.file_part(title)}"
            drawn[name] = _against_time(Records(found), title, exact, absent)
    peaked = _select_peaked(settings)
    if peaked:
        drawn["keys"] = _against_keys(records, settings, peaked, exact, absent)
    return drawn


WINDOW = re.compile(r"window:(\d+)")


def describe_windows(records: Records) -> Sheet | None:
    """The errors of windows of visible keys against the sizes of the windows, at the length at which most of them were scored; None if
    no two of them were."""
    scored: dict[int, dict[int, Record]] = {}
    for record in records:
        window = WINDOW.fullmatch(record["pattern"])
        if window and _is_scored(record) and record["protocol"] == "forward":
            scored.setdefault(record[data.LENGTH_AXIS], {})[int(window[1])] = record
    length, found = max(scored.items(), key=lambda item: len(item[1]), default=(0, {}))
    if len(found) < 2:
        return None
    limits = ticks.length_limits((min(found), max(found)))
    # One curve for all windows.
    shown = Records([record | {"pattern": "window"} for record in found.values()], records.folder)
    (method,) = {record["method"] for record in shown}
    curve = _curve(method, [(float(window), record) for window, record in found.items()])
    panel = Panel(
        ERROR.title, "Keys in the window", Scale(limits, ticks.times(limits)), _error_scale(shown), [curve], 0.0, _lines(list(shown)),
    )  # fmt: skip
    title = f"N = {data.size_text(length)}"
    return _sheet([Group(title, [panel])], style.styles([method]), "", [Row(title, list(shown))], shown, [])


def _is_scored(record: Record) -> bool:
    return record["outcome"] == "measured" and bool(_error(record)[0])


def _keys(record: Record) -> float | None:
    keys: float | None = record.get(KEYS_COLUMN)
    return keys


def exact_methods(records: Iterable[Record]) -> set[str]:
    """The methods whose errors are all rounding."""
    largest: dict[str, float] = {}
    for record in filter(_is_scored, records):
        largest[record["method"]] = max(largest.get(record["method"], 0.0), _error(record)[0] or 0.0)
    return {method for method, error in largest.items() if error < ROUNDING}


def names_text(methods: Iterable[str]) -> str:
    """The names of methods as figures show them, in the order of the alphabet."""
    return ", ".join(data.method_text(method) for method in sorted(methods))


def _against_time(records: Records, setting: str, exact: set[str], absent: list[str]) -> Sheet:
    """The figure of one setting. All panels share their axes."""
    looks = style.styles(record["method"] for record in records)
    rows = [row for row in data.split_rows(records) if any(map(_is_scored, row.records))]
    times = [_time(r) for row in rows for r in row.records if _is_scored(r)]
    x_limits = ticks.around(times)
    x = Scale(x_limits, ticks.times(x_limits, between=(3,)))
    y = _error_scale(records)
    groups = []
    for row in rows:
        scored = [r for r in row.records if _is_scored(r)]
        found = [r for r in scored if r["method"] not in exact]
        curves = [_curve(r["method"], [(_time(r), r)]) for r in found]
        # The heading of the figure names what the panels have in common.
        names = [part for part in row.title.split(" · ")[1:] if part not in setting.split(" · ")]
        rules = tuple((_time(r), r["method"]) for r in scored if r["method"] in exact)
        groups.append(Group(" · ".join(names), [
            Panel(ERROR.title, data.TIME.title, x, y, curves, 0.0, _lines(found), keyed=True, rules=rules)
        ]))  # fmt: skip
    note = _exact_note(records, exact)
    return _sheet(groups, looks, setting, data.split_rows(records), records, [*note, *absent])


def _time(record: Record) -> float:
    return float(data.TIME.value(record)[0] or np.nan)


def _exact_note(records: Records, exact: set[str]) -> list[str]:
    names = names_text(exact & {record["method"] for record in records})
    return [f"Vertical lines: times of exact methods, whose errors are rounding ({names})."] if names else []


def _against_keys(
    records: Records, settings: dict[str, list[Record]], shown: dict[str, list[Record]], exact: set[str],
    absent: list[str],
) -> Sheet:  # fmt: skip
    """The figure of the settings in `shown`; the notes count the cases of all settings."""
    keys = [float(_keys(r) or 0.0) for found in shown.values() for r in found]
    limits = ticks.length_limits((min(keys), max(keys)))
    x = Scale(limits, ticks.times(limits))
    y = _error_scale(r for found in shown.values() for r in found)
    looks = style.styles(record["method"] for record in records)
    groups = []
    for title, found in shown.items():
        curves = [
            _curve(method, [(float(_keys(r) or 0.0), r) for r in found if r["method"] == method])
            for method in dict.fromkeys(r["method"] for r in found)
            if method not in exact
        ]
        curves += _reference_lines(found)
        groups.append(Group(title, [Panel(ERROR.title, KEYS_LABEL, x, y, curves, 0.0, keyed=True)]))
    looks |= {name: Style(style.QUIET, style.QUIET, None, False, style.DOTTED) for name in REFERENCES.values()}
    rows = [Row(title, found) for title, found in settings.items()]
    return _sheet(groups, looks, "", rows, records, absent)


def _select_peaked(settings: dict[str, list[Record]]) -> dict[str, list[Record]]:
    """The settings in which a method was scored at several numbers of keys, with their scored records;
    the others have nothing to show against that number."""
    shown = {}
    for title, found in settings.items():
        scored = [r for r in found if _is_scored(r) and _keys(r)]
        if len({(r["method"], _keys(r)) for r in scored}) > len({r["method"] for r in scored}):
            shown[title] = scored
    return shown


def _reference_lines(found: list[Record]) -> list[Curve]:
    """The errors of outputs that ignore the queries, against the number of keys."""
    lines = []
    for column, name in REFERENCES.items():
        values = {_keys(r): r[column] for r in found if r.get(column) and _keys(r)}
        if values:
            lines.append(data.plain_curve(name, sorted(values), [values[keys] for keys in sorted(values)]))
    return lines


def _group_settings(records: Records) -> dict[str, list[Record]]:
    """The records of each setting, which differ in the method and in how peaked the attention is, by a
    title with the length."""
    hidden = Records({**r, CONCENTRATION: None, "_of": r} for r in records)
    groups: dict[str, list[Record]] = {}
    for row in data.split_rows(hidden):
        for record in row.records:
            title = f"{row.title} · N = {data.size_text(record[data.LENGTH_AXIS])}"
            groups.setdefault(title, []).append(record["_of"])
    return groups


def _curve(method: str, points: list[tuple[float, Record]]) -> Curve:
    points = sorted(points, key=lambda point: point[0])
    n = np.array([x for x, _ in points])
    y, low, high = (
        np.array([np.nan if _error(r)[k] is None else _error(r)[k] for _, r in points], dtype=float) for k in range(3)
    )
    return Curve(method, n, y, low, high, np.zeros(len(n), bool), band=False)


def _lines(found: list[Record]) -> tuple[Line, ...]:
    """The lines of outputs that ignore the queries, at the median over the methods."""
    lines = []
    for column, name in REFERENCES.items():
        values = [r[column] for r in found if r.get(column)]
        if values:
            lines.append(Line(float(np.median(values)), name))
    return tuple(lines)


def _error_scale(records: Iterable[Record]) -> Scale:
    found = [r for r in records if (_error(r)[0] or 0.0) >= ROUNDING]
    values = [v for r in found for v in _error(r) if v and v >= ROUNDING / 10]
    values += [r[column] for r in found for column in REFERENCES if r.get(column)]
    limits = ticks.around(values)
    return Scale(limits, ticks.times(limits))


def _sheet(
    groups: list[Group], looks: dict[str, Style], setting: str, rows: list[Row], records: Records, more: list[str],
) -> Sheet:
    reasons = dict.fromkeys(str(r[NOT_SCORED]) for r in records if r.get(NOT_SCORED))
    notes = [NOTE, *more]
    if reasons:
        notes.append(f"Not scored: {'; '.join(reasons)}.")
    notes += data.left_out(rows, [ERROR])
    key = len(groups) > 1 and needs_key(shown.curves for group in groups for shown in group.panels)
    header = " · ".join(part for part in (setting, words.setting(records)) if part)
    stamp = environment.stamp(records)
    return Sheet(groups, looks, header, notes, stamp, dots=False, key=key)
