"""The figure "against the others": how many times as long other packages take as the methods of this project."""

from dataclasses import replace

from attnplots.figures import style, ticks
from attnplots.figures.description import Group, Line, Panel, Sheet, length_scale, value_scale
from attnplots.records import environment, ratios
from attnplots.records import rows as data
from attnplots.records.methods import PYTHON
from attnplots.records.records import Record, Records
from attnplots.records.rows import Row
from attnplots.records.words import setting

def describe(records: Records) -> Sheet:
    """A panel for each protocol: the time of every other implementation, divided by the time of the
    method that took turns with it."""
    rows = [
        Row(row[0].title.partition(" · ")[0], [_named(r) for part in row for r in part.records])
        for row in _group_protocols(records)
    ]
    rows = [Row(row.title, sorted(row.records, key=_order)) for row in rows]
    measure = replace(
        ratios.measure(records, data.TIME, data.SEQUENCE),
        title="Time / time of the bracketed method",
        doubts=_doubts,
        note="Above 1, the method of attnbench that is named in brackets is faster.",
    )
    panels = [data.curves(row, measure) for row in rows]
    span = data.span([panels])
    y = value_scale(measure, ticks.times, panels)
    groups = [
        Group(row.title, [Panel(measure.title, data.SEQUENCE.label, length_scale(span), y,
                                curves, 0.0, (Line(1.0),))])
        for row, curves in zip(rows, panels, strict=True)
    ]  # fmt: skip
    notes = data.certainty_notes(rows, measure) + data.left_out(rows, [measure])
    looks = style.styles(curve.method for curves in panels for curve in curves)
    stamp = environment.stamp(records)
    return Sheet(groups, looks, setting(records), notes, stamp, key=True)


def _group_protocols(records: Records) -> list[list[Row]]:
    """The rows of the records of each protocol, without the records that are their own baseline."""
    others = records.where(lambda record: record["method"] != record.get("baseline"))
    found: dict[str, list[Row]] = {}
    for row in data.split_rows(others):
        found.setdefault(row.records[0]["protocol"], []).append(row)
    return list(found.values())


def _doubts(record: Record) -> list[str]:
    """The doubt "unverified", if no reference checked the results. Doubts about noise are left out, because the bands show it."""
    return ["unverified"] if record.get("unverified") else []


def _named(record: Record) -> Record:
    """The record with a name for its curve in place of its method, such as "fast-transformers (causal, vs linear)"."""
    method = data.method_text(record["method"]).partition(PYTHON)[0]
    causal = "causal, " if record["causal"] else ""
    return {**record, "method": f"{method} ({causal}vs {record.get('baseline')})"}


def _order(record: Record) -> tuple[str, int]:
    return record["method"], record["query_len"]
