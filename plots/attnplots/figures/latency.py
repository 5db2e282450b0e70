"""The latency figure: the time of a decoded token on the CPU and on the GPU, for each method."""

from matplotlib.figure import Figure

from attnplots.records import rows as data
from attnplots.figures import scaling, style, ticks
from attnplots.marks import dots, grid, sheet
from attnplots.records import environment
from attnplots.figures.decode import POSITION, TIME
from attnplots.marks.grid import Group, Panel
from attnplots.records.records import Record, Records
from attnplots.figures.style import DASH_DOT, DASHED, SOLID, Style

# How a panel calls the devices, and their looks, which differ in colour, marker and dash.
DEVICES: dict[str, Style] = {
    "CPU": Style("#0b4a91", "#0b4a91", "o", False, SOLID),
    "GPU": Style("#dd6418", "#b04c0d", "s", False, DASHED),
    "GPU, CUDA graph": Style("#2d8f63", "#20714d", "^", True, DASH_DOT),
}


def draw(records: Records) -> Figure:
    """A panel for each method and setting, with a curve for each device that measured any case."""
    present, absent = data.on_present_devices(records)
    # A CUDA graph exists only on the GPU; such cases of the CPU are not supported.
    shown = present.where(lambda r: not (device_text(r) == "CPU" and r.get("graph")))
    rows, titles = [], []
    for method in dict.fromkeys(record["method"] for record in shown):
        named = [{**r, "method": device_text(r), "device": None, "graph": None}
                 for r in shown if r["method"] == method]  # fmt: skip
        for row in data.split_rows(Records(named, records.schema)):
            rows.append(row)
            titles.append(" · ".join([data.method_text(method), *row.title.split(" · ")[1:]]))
    time = data.with_rare_rings(rows, TIME)
    panels = [data.curves(row, time) for row in rows]
    span = data.span([panels])
    y = grid.value_scale(TIME, ticks.times, panels)
    groups = [
        Group(title, [Panel(TIME.title, POSITION.label, grid.length_scale(span), y, curves,
                            scaling.reach_of(curves), growth=POSITION)])
        for title, curves in zip(titles, panels, strict=True)
    ]  # fmt: skip
    looks = style.styles(curve.method for curves in panels for curve in curves) | DEVICES
    notes = data.certainty_notes(rows, time) + data.left_out(rows, [TIME])
    header = f"{data.protocol_text(present[0]).lower()} · {sheet.setting(present)}"
    stamp = environment.stamp(present)
    return grid.draw(dots.of(grid.Sheet(groups, looks, header, [*notes, *absent], stamp)))


def device_text(record: Record) -> str:
    """How the figure calls the device of a record: one of DEVICES, or its own name."""
    device = str(record.get("device") or "cpu")
    if device.startswith("cpu"):
        return "CPU"
    if device == "cuda":
        return "GPU, CUDA graph" if record.get("graph") else "GPU"
    return device
