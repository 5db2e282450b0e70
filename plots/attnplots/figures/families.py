"""The figures of all methods: a sheet for each setting, with a row of panels for each kind of method."""

import re

from matplotlib.figure import Figure

from attnplots.records import rows as data
from attnplots.figures import scaling, style
from attnplots.records import ratios
from attnplots.records.rows import Measure, Row
from attnplots.records.records import Record, Records, RecordsError

# The titles of the rows and the families of methods in them; the last has all other families.
KINDS: dict[str, tuple[str, ...]] = {
    "Linear attention": ("linear", "efficient"),
    "Approximations of the softmax kernel": ("kernel",),
    "Exact attention, hashing and others": (),
}
# These methods are drawn in every row for comparison.
REFERENCES = ("sdpa", "linear")


def draw_ratio(records: Records) -> dict[str, Figure]:
    """The figures of draw() with the ratio of the time to that of the baseline."""
    return draw(records, ratios.measure(records, data.TIME, data.SEQUENCE))


def draw(records: Records, time: Measure = data.TIME) -> dict[str, Figure]:
    """A sheet for each setting, by a name such as "forward-causal"."""
    records, absent = data.on_present_devices(records)
    measures = (time, data.MEMORY)
    settings = data.split_rows(records)
    drawn = {}
    for setting in settings:
        rows = [_row(setting, kind) for kind in KINDS]
        rows = [row for row in rows if row.records]
        if any(data.curves(row, time) for row in rows):
            drawn[file_part(setting.title)] = scaling.draw_rows(rows, measures, more_notes=absent)
    if not drawn:
        raise RecordsError("expected at least one measured record with a time, found none")
    return drawn


def _row(setting: Row, kind: str) -> Row:
    shown = [r for r in setting.records if kind_of(r["method"]) == kind]
    others = [r for r in setting.records if r["method"] in REFERENCES and r not in shown]
    return Row(f"{setting.title}: {kind[0].lower()}{kind[1:]}", _sorted(shown + others) if shown else [])


def _sorted(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda r: (r["method"], r[data.LENGTH_AXIS]))


def file_part(title: str) -> str:
    """The title of a setting as a part of a file name: "Forward · not causal" is
    "forward-not-causal"."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def kind_of(method: str) -> str:
    """The key of KINDS that a method belongs to."""
    family = style.family(method)
    return next((kind for kind in KINDS if family in KINDS[kind]), list(KINDS)[-1])
