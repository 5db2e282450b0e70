"""The figures of decoding: time per token and memory against the position in the sequence, and the time of a token on each
device."""

from attnplots.figures import scaling, style, ticks
from attnplots.figures.description import Group, Panel, Sheet, length_scale, value_scale
from attnplots.figures.style import DASHED, DASH_DOT, SOLID, Style
from attnplots.records import environment, ratios
from attnplots.records import rows as data
from attnplots.records.records import Record, Records
from attnplots.records.rows import Length, Measure, Row
from attnplots.records.words import setting

POSITION = Length("P", "Position P (tokens before)")
# A call decodes one token of every sequence in the batch, so the time per sequence is per token.
TIME = Measure("time", "Time per token (ms)", data.time_value, data.time_doubts)
# Unlike the size of the state, this includes the memory that a step needs to recompute or copy.
MEMORY = Measure("memory", "Peak memory: state and one step", data.memory_value)

# How a panel calls the devices, and their looks, which differ in colour, marker and dash.
DEVICES: dict[str, Style] = {
    "CPU": Style("#0b4a91", "#0b4a91", "o", False, SOLID),
    "GPU": Style("#dd6418", "#b04c0d", "s", False, DASHED),
    "GPU, CUDA graph": Style("#2d8f63", "#20714d", "^", True, DASH_DOT),
}

# What the implementations of exact methods that compute the whole prefix again in every step are
# called. Those of LSH attention, which has no decoding state, have the names of its kernels.
RECOMPUTED = "recomputed-prefix"
WITHOUT_DECODING_STATE = "lsh"
WITH_STATE = "each step continues from a state"
WITHOUT_STATE = "each step computes the prefix again"


def describe(records: Records) -> Sheet:
    """The scaling figure with time per token and the memory of decoding.

    Methods that compute the prefix again in every step have panels with axes of their own, because
    they are slower by orders of magnitude.
    """
    return _describe(records, TIME)


def describe_ratio(records: Records) -> Sheet:
    """The figure of describe() with the ratio of the time to that of the baseline."""
    return _describe(records, ratios.measure(records, TIME, POSITION))


def _describe(records: Records, time: Measure) -> Sheet:
    records, absent = data.select_present_devices(records)
    again = {r["method"] for r in records if _recomputes(r)}
    rows = [part for row in data.split_rows(records) for part in _parts(row, again)]
    return scaling.describe_rows(rows, (time, MEMORY), POSITION, absent, apart=bool(again))


def _recomputes(record: Record) -> bool:
    is_lsh = style.family(record["method"]) == WITHOUT_DECODING_STATE
    return is_lsh or RECOMPUTED in str(record.get("implementation"))


def _parts(row: Row, again: set[str]) -> list[Row]:
    """The row without and with the methods that compute the prefix again."""
    if not again:
        return [row]

    def part(title: str, records: list[Record]) -> list[Row]:
        return [Row(f"{row.title}: {title}", records)] if records else []

    state = [r for r in row.records if r["method"] not in again]
    recomputed = [r for r in row.records if r["method"] in again]
    return part(WITH_STATE, state) + part(WITHOUT_STATE, recomputed)


def describe_devices(records: Records) -> Sheet:
    """A panel for each method and setting, with a curve for each device that measured any case."""
    present, absent = data.select_present_devices(records)
    # A CUDA graph exists only on the GPU; such cases of the CPU are not supported.
    shown = present.where(lambda r: not (device_text(r) == "CPU" and r.get("graph")))
    rows, titles = [], []
    for method in dict.fromkeys(record["method"] for record in shown):
        named = [{**r, "method": device_text(r), "device": None, "graph": None}
                 for r in shown if r["method"] == method]  # fmt: skip
        for row in data.split_rows(Records(named)):
            rows.append(row)
            titles.append(" · ".join([data.method_text(method), *row.title.split(" · ")[1:]]))
    time = data.drop_common_rings(rows, TIME)
    panels = [data.curves(row, time) for row in rows]
    span = data.span([panels])
    y = value_scale(TIME, ticks.times, panels)
    groups = [
        Group(title, [Panel(TIME.title, POSITION.label, length_scale(span), y, curves,
                            scaling.reach_of(curves), growth=POSITION)])
        for title, curves in zip(titles, panels, strict=True)
    ]  # fmt: skip
    looks = style.styles(curve.method for curves in panels for curve in curves) | DEVICES
    notes = data.certainty_notes(rows, time) + data.left_out(rows, [TIME])
    header = f"{data.protocol_text(present[0]).lower()} · {setting(present)}"
    stamp = environment.stamp(present)
    return Sheet(groups, looks, header, [*notes, *absent], stamp)


def device_text(record: Record) -> str:
    """How the figure calls the device of a record: one of DEVICES, or its own name."""
    device = str(record.get("device") or "cpu")
    if device.startswith("cpu"):
        return "CPU"
    if device == "cuda":
        return "GPU, CUDA graph" if record.get("graph") else "GPU"
    return device
