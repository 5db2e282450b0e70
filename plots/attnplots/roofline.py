"""The roofline figure: the rates of methods compared with the ceilings of the machine."""

import math
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from attnplots import curves as data
from attnplots import panel, sheet, style, ticks
from attnplots.ceilings import Ceilings, GpuCeilings
from attnplots.curves import Measure, Row
from attnplots.labels import Box, Wish, arrange
from attnplots.panel import Label
from attnplots.records import Record, Records, RecordsError
from attnplots.sheet import LEFT, POINT, RIGHT, SMALL_LINE, WIDTH
from attnplots.style import Style
from attnplots.ticks import Limits

# The names of the project's own kernels begin with this; other implementations are baselines.
OWN = "kernel/"
# Panels are ordered by dtype; within one, causal comes first and passes are side by side.
DTYPES = ("float32", "float64", "bfloat16", "float16")
COLUMNS = 2
INTENSITY = "Arithmetic intensity (operations per byte of minimum traffic)"

TOP = 50.0
TITLE = 14.0
HEADING = 22.0
PANEL = 200.0
TICKS = 20.0
APART = 10.0
X_LABEL = 14.0
FOOT = 12.0
BETWEEN = 18.0
WIDE = (WIDTH - LEFT - RIGHT - BETWEEN * (COLUMNS - 1)) / COLUMNS

# The sizes of the marks of the shortest and the longest length, relative to other figures.
SCALES = (0.7, 1.3)
# Marks are moved sideways by up to STEPS steps of STEP points, so that none hides another.
STEP = 2.0
STEPS = 14
# The intensity at which the roof becomes flat is at least this factor above the left limit, so that
# the slope is visible.
SLOPE = 8.0
ROOF = "#3c3c3c"
BEYOND = "#f4f4f4"
# Names may cross trails. A white halo keeps their letters readable.
HALO = withStroke(linewidth=2.0, foreground="white")


@dataclass(frozen=True)
class Point:
    """A method at length `n`: `intensity` in operations per byte, `rate` in GFLOP/s, of a
    GPU in TFLOP/s."""

    n: int
    intensity: float
    rate: float


@dataclass(frozen=True)
class Trail:
    """The points of one method in one panel, by length; `own` is true for the project's kernels."""

    method: str
    own: bool
    points: list[Point]


@dataclass(frozen=True)
class Plan:
    """What all panels share; `scales` has the size of the marks of each length."""

    ceilings: Ceilings | GpuCeilings
    x_limits: Limits
    y_limits: Limits
    looks: dict[str, Style]
    scales: dict[int, float]

    def look(self, trail: Trail) -> Style:
        """The style of a method; the project's kernels have full marks, baselines hollow ones."""
        return replace(self.looks[trail.method], hollow=not trail.own)

    def radius(self, trail: Trail, point: Point) -> float:
        """The radius of a mark, in points."""
        marker = self.looks[trail.method].marker
        assert marker
        return style.MARKERS[marker] * self.scales[point.n] / 2

    def place(self, point: Point) -> tuple[float, float]:
        """The place of a point in a panel, in points from the lower left corner."""
        (left, right), (low, high) = self.x_limits, self.y_limits
        x = math.log(point.intensity / left) / math.log(right / left) * WIDE
        return x, math.log(point.rate / low) / math.log(high / low) * PANEL


def _attained(record: Record) -> float | None:
    """The rate in GFLOP/s; 0 if a value is not above 0, None if a value is missing."""
    values = [record.get(name) for name in ("flops", "min_bytes", "time_median_ms")]
    if any(value is None for value in values):
        return None
    flops, _, ms = values
    return flops / ms / 1e6 if min(values) > 0 else 0.0


RATE = Measure("rate", "Attained GFLOP/s", lambda record: (_attained(record), None, None))


def draw(records: Records, ceilings: Ceilings | GpuCeilings) -> Figure:
    """Draws a panel for each setting; all of them have the roof of the same machine."""
    device = ceilings.device
    shown = records.where(lambda r: str(r.get("device") or "cpu").startswith(device))
    rows = sorted(data.split_rows(shown), key=_order)
    panels = [_trails(row, ceilings.in_gflop_s) for row in rows]
    points = [point for trails in panels for trail in trails for point in trail.points]
    if not points:
        name = "CPU" if device == "cpu" else "GPU"
        wanted = f"one measured record of the {name} with `flops`, `min_bytes` and `time_median_ms`"
        raise RecordsError(f"expected at least {wanted}, found none")
    looks = style.styles(record["method"] for record in shown)
    dtypes = {str(row.records[0].get("dtype")) for row in rows}
    plan = Plan(ceilings, *_limits(points, ceilings, dtypes), looks, _scales({p.n for p in points}))
    moved = [_moved(plan, trails) for trails in panels]

    figure = sheet.figure()
    header = sheet.wrapped(figure, sheet.setting(shown))
    max_shift = max(abs(shift) for shifts in moved for shift in shifts.values())
    notes = _notes(plan, rows, max_shift)
    if len(shown) < len(records):
        notes.append("Not drawn: cases on other devices, which have roofs of their own.")
    footer = sheet.wrapped_all(figure, notes)
    head = TOP + SMALL_LINE * (len(header) - 1)
    lines = -(-len(rows) // COLUMNS)
    height = head + TITLE + lines * (HEADING + PANEL + TICKS + APART)
    height += X_LABEL + FOOT + SMALL_LINE * len(footer)
    sheet.size(figure, height)

    sheet.small_lines(figure, height - 18, header)
    _key(figure, height - 22 - SMALL_LINE * len(header), plan)
    rate_title = f"Attained {ceilings.prefix}FLOP/s"
    sheet.text(figure, LEFT, height - head - 9, rate_title, style.NAME_SIZE, style.TEXT)
    x_ticks, y_ticks = ticks.times(plan.x_limits), ticks.times(plan.y_limits)
    letters = _letters(len(rows))
    for k, (row, trails) in enumerate(zip(rows, panels, strict=True)):
        line, column = divmod(k, COLUMNS)
        left = LEFT + column * (WIDE + BETWEEN)
        top = height - head - TITLE - HEADING - line * (HEADING + PANEL + TICKS + APART)
        frame = Box(left, top - PANEL, left + WIDE, top)
        axes = panel.empty_axes(figure, frame, plan.x_limits, plan.y_limits, x_ticks, y_ticks)
        axes.tick_params(labelleft=column == 0)
        title = f"{letters[k]}   {row.title}" if len(rows) > 1 else row.title
        sheet.heading(figure, left, top + 7, title)
        _panel(figure, axes, frame, plan, row, trails, moved[k])
        if k + COLUMNS >= len(rows):
            sheet.centred(figure, frame, frame.y0 - TICKS - 7, INTENSITY, style.TEXT)
    sheet.small_lines(figure, SMALL_LINE * len(footer), footer)
    return figure


def _order(row: Row) -> tuple[int, bool, str]:
    """The sort key of a panel; sorting is stable, so panels of equal keys stay ordered by pass."""
    dtype, causal = row.records[0].get("dtype"), row.records[0].get("causal")
    place = DTYPES.index(dtype) if dtype in DTYPES else len(DTYPES)
    return place, not causal, row.title.partition(" · ")[2]


def _trails(row: Row, unit: float) -> list[Trail]:
    """The trails of a panel, with rates in units of so many GFLOP/s; those of the project's kernels
    come first."""
    trails = []
    for method, records in data.by_method(row).items():
        shown = [r for r in records if r["outcome"] == "measured" and _attained(r)]
        points = [
            Point(r["query_len"], r["flops"] / r["min_bytes"], (_attained(r) or 0.0) / unit) for r in shown
        ]
        own = any((r.get("implementation") or "").startswith(OWN) for r in shown)
        if points:
            trails.append(Trail(method, own, points))
    return sorted(trails, key=lambda trail: not trail.own)


def _scales(lengths: set[int]) -> dict[int, float]:
    """The size of the marks of each length, relative to their size in other figures."""
    sizes = np.linspace(*SCALES, len(lengths)) if len(lengths) > 1 else [1.0]
    return {n: float(size) for n, size in zip(sorted(lengths), sizes, strict=True)}


def _limits(
    points: list[Point], ceilings: Ceilings | GpuCeilings, dtypes: set[str]
) -> tuple[Limits, Limits]:
    """Limits of x and y that contain all points, a part of the slopes and a part of the flat tops."""
    tops = [ceilings.rate("float32"), *(ceilings.rate(dtype) for dtype in dtypes if dtype in DTYPES)]
    tops = tops[:1] if ceilings.device == "cpu" else tops
    intensities, rates = [p.intensity for p in points], [p.rate for p in points]
    x_range = (
        min(min(tops) / ceilings.bandwidth / SLOPE, *intensities),
        max(4 * max(tops) / ceilings.bandwidth, *intensities),
    )
    y_range = min(rates), max(*tops, *rates)
    return (x_range[0] / 1.02, x_range[1] * 1.8), (y_range[0] / 1.8, y_range[1] * 1.7)


def _moved(plan: Plan, trails: list[Trail]) -> dict[str, float]:
    """By how many points the marks of each method are moved sideways, so that none is hidden.

    Marks would hide each other because methods of one family have nearly equal intensities.
    """
    placed = np.empty((0, 3))
    shifts: dict[str, float] = {}
    choices = [0.0] + [sign * k * STEP for k in range(1, STEPS + 1) for sign in (1, -1)]
    for trail in trails:
        here = np.array([(*plan.place(p), plan.radius(trail, p)) for p in trail.points])
        hidden = [_hidden(here + (shift, 0, 0), placed) for shift in choices]
        allowed = min(hidden) + 0.01
        shifts[trail.method] = next(s for s, h in zip(choices, hidden, strict=True) if h <= allowed)
        placed = np.concatenate([placed, here + (shifts[trail.method], 0, 0)])
    return shifts


def _hidden(here: np.ndarray, placed: np.ndarray) -> float:
    """The total overlap of marks with others, in points; a row of each array is x, y and radius."""
    gaps = here[:, None] - placed
    reach = here[:, None, 2] + placed[:, 2] + 1.0
    return float(np.maximum(reach - np.hypot(gaps[..., 0], gaps[..., 1]), 0.0).sum())


def _panel(
    figure: Figure,
    axes: Axes,
    frame: Box,
    plan: Plan,
    row: Row,
    trails: list[Trail],
    moved: dict[str, float],
) -> None:
    """Draws one panel: the roof, the trails and their names."""
    dtype = str(row.records[0].get("dtype"))
    ink = [_slopes(figure, axes, frame, plan.ceilings, dtype)]
    places: dict[str, np.ndarray] = {}
    for trail in trails:
        there = np.array([plan.place(p) for p in trail.points])
        places[trail.method] = there + (frame.x0 + moved[trail.method], frame.y0)
        ink.append(_trail(axes, plan, trail, places[trail.method]))
    taken = [_top(figure, axes, frame, plan.ceilings, dtype, np.concatenate(ink[1:] or ink))]
    if not trails:
        middle = (frame.y0 + frame.y1) / 2
        sheet.centred(figure, frame, middle, "nothing measured", style.QUIET)
        return
    ink.append(_beyond(axes, frame, plan.ceilings, dtype))
    longest = max(record["query_len"] for record in row.records)
    forms = [_forms(figure, plan, trail, dtype, longest) for trail in trails]
    wishes = []
    for trail, labels in zip(trails, forms, strict=True):
        others = [marks for method, marks in places.items() if method != trail.method]
        sizes = [(label.width, label.height) for label in labels]
        x, y = (float(v) for v in places[trail.method][-1])
        wishes.append(Wish((x, y), sizes, np.concatenate([np.empty((0, 2)), *others])))
    found = arrange(wishes, np.concatenate(ink), taken, frame)
    for trail, wish, labels, (which, box) in zip(trails, wishes, forms, found, strict=True):
        panel.name_in(figure, wish.tip, labels[which], plan.look(trail), box, towards=True)
    for text in figure.texts:
        if text.get_gid() == "label":
            text.set_path_effects([HALO])


def _trail(axes: Axes, plan: Plan, trail: Trail, places: np.ndarray) -> np.ndarray:
    """Draws a method's marks and the lines between neighbouring lengths; returns points on both."""
    look = plan.look(trail)
    x = axes.transData.inverted().transform(places)[:, 0]
    y = [point.rate for point in trail.points]
    z = 4.0 if trail.own else 3.0
    dash, width = (style.SOLID, 1.2) if trail.own else (style.DOTTED, 1.0)
    axes.plot(x, y, color=look.colour, linestyle=dash, linewidth=width, zorder=z)
    ink = [_between(a, b) for a, b in zip(places, places[1:], strict=False)]
    # The smallest mark is drawn last, so that no mark hides another of its method.
    for k, point in reversed(list(enumerate(trail.points))):
        panel.marks(axes, [x[k]], [point.rate], look, z + 0.5, plan.scales[point.n])
        r = plan.radius(trail, point)
        ink.append(places[k] + [(a * r, b * r) for a in (-1, 0, 1) for b in (-1, 0, 1)])
    return np.concatenate(ink)


def _between(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Points on the line from `start` to `stop`, about 3 points (1/72 inch) apart."""
    return np.linspace(start, stop, max(2, int(math.dist(start, stop) / 3)))


def _forms(figure: Figure, plan: Plan, trail: Trail, dtype: str, longest: int) -> list[Label]:
    """The labels that a method may have; the project's kernels show their share of the roof."""
    words = []
    if trail.own:
        point = trail.points[-1]
        share = 100 * point.rate / plan.ceilings.roof(point.intensity, dtype)
        at = "" if point.n == longest else f" at {data.size_text(point.n)}"
        words = [f"{share:.0f}% of roof{at}" if share >= 1 else f"below 1% of roof{at}"]
    weight = "bold" if trail.own else "normal"
    forms = [panel.method_label(figure, trail.method, words, narrow) for narrow in (False, True)]
    return [replace(form, weight=weight) for form in forms[: 1 if forms[0] == forms[1] else 2]]


def _slopes(
    figure: Figure, axes: Axes, frame: Box, ceilings: Ceilings | GpuCeilings, dtype: str
) -> np.ndarray:
    """Draws the roof, the area beyond it and the names of its slopes; returns points on them."""
    (left, right), top = axes.get_xlim(), axes.get_ylim()[1]
    rate = ceilings.rate(dtype)
    slopes = ceilings.bandwidths
    ink = []
    for name, bandwidth in slopes.items():
        x = [left, min(max(rate / bandwidth, left), right), right]
        y = [min(bandwidth * intensity, rate) for intensity in x]
        axes.plot(x, y, color=ROOF, linewidth=1.6 if name == "copy" else 0.7, zorder=2)
        if name == "copy":
            axes.fill_between(x, y, top, color=BEYOND, linewidth=0, zorder=0.5)
        start, ridge, end = axes.transData.transform(list(zip(x, y, strict=True)))
        ink += [_between(start, ridge), _between(ridge, end)]
        if start[1] < frame.y0 < ridge[1]:
            start = start + (ridge - start) * (frame.y0 - start[1]) / (ridge[1] - start[1])
        if ridge[0] - start[0] < 1:
            continue
        along = (ridge - start) / math.dist(start, ridge)
        out = np.array([-along[1], along[0]])
        # The name of the upper slope is above it, the name of the lower one below it.
        side = 1 if bandwidth == max(slopes.values()) else -1
        middle = (start + ridge) / 2 + side * 6.5 * out
        title = f"{name} {bandwidth:.3g} {ceilings.prefix}B/s"
        angle = math.degrees(math.atan2(along[1], along[0]))
        more = {"ha": "center", "va": "center", "rotation": angle, "rotation_mode": "anchor"}
        sheet.text(figure, *middle, title, style.SMALL_SIZE, ROOF, gid="roof", **more)
        half = sheet.text_width(figure, title, style.SMALL_SIZE) / 2 * along
        ink += [_between(middle + up * out - half, middle + up * out + half) for up in (-4, 0, 4)]
    return np.concatenate(ink)


def _top(
    figure: Figure, axes: Axes, frame: Box, ceilings: Ceilings | GpuCeilings, dtype: str, ink: np.ndarray
) -> Box:
    """Writes the name of the flat top where it hides the fewest points; returns the text's box."""
    rate = ceilings.rate(dtype)
    title = f"{rate:.3g} {ceilings.prefix}FLOP/s · {ceilings.rate_name(dtype)}"
    wide = sheet.text_width(figure, title, style.SMALL_SIZE)
    ridge, y = (float(v) for v in axes.transData.transform((rate / ceilings.bandwidth, rate)))
    lefts = (frame.x1 - 2 - wide, min(ridge + 2, frame.x1 - 2 - wide))
    boxes = [Box(x, y + up, x + wide, y + up + 12) for up in (1, -13) for x in lefts]
    box = min(boxes, key=lambda box: box.grown(1).holds(ink))
    sheet.text(figure, box.x0, box.y0 + 3, title, style.SMALL_SIZE, ROOF, gid="roof")
    return box


def _beyond(axes: Axes, frame: Box, ceilings: Ceilings | GpuCeilings, dtype: str) -> np.ndarray:
    """A grid of points in the area beyond the roof, which names should avoid."""
    x, y = np.arange(frame.x0, frame.x1, 6.0), np.arange(frame.y0, frame.y1, 6.0)
    every = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    values = axes.transData.inverted().transform(every)
    return every[[rate > ceilings.roof(intensity, dtype) for intensity, rate in values]]


def _key(figure: Figure, y: float, plan: Plan) -> None:
    """Draws the key: the meaning of full and hollow marks, and their size at each length."""
    x = LEFT
    kinds = ((plan.ceilings.kernels, True), ("baselines of PyTorch operators", False))
    for kind, own in kinds:
        weight = "bold" if own else "normal"
        _dot(figure, x + 4, y + 3, 1.2, hollow=not own)
        sheet.text(figure, x + 11, y, kind, style.SMALL_SIZE, style.TEXT, weight=weight)
        x += 11 + sheet.text_width(figure, kind, style.SMALL_SIZE, weight) + 22
    sheet.text(figure, x, y, "N =", style.SMALL_SIZE, style.TEXT)
    x += sheet.text_width(figure, "N =", style.SMALL_SIZE) + 6
    for n, scale in plan.scales.items():
        _dot(figure, x + 4, y + 3, scale)
        sheet.text(figure, x + 11, y, data.size_text(n), style.SMALL_SIZE, style.TEXT)
        x += 11 + sheet.text_width(figure, data.size_text(n), style.SMALL_SIZE) + 9


def _dot(figure: Figure, x: float, y: float, scale: float, hollow: bool = False) -> None:
    dot = Line2D(
        [x * POINT], [y * POINT], transform=figure.dpi_scale_trans, marker="o",
        markersize=style.MARKERS["o"] * scale, markeredgewidth=1.1 if hollow else 0,
        markerfacecolor="white" if hollow else style.TEXT, markeredgecolor=style.TEXT,
    )  # fmt: skip
    figure.add_artist(dot)


def _notes(plan: Plan, rows: list[Row], max_shift: float) -> list[str]:
    """Notes on how to read the roof and the marks, and on the methods that are not drawn."""
    texts = [
        plan.ceilings.how,
        "Operations are counted by each method's own formula; bytes are those of reading every "
        "input and writing every result once. A rate says how busy the machine is, not which "
        "method is the fastest.",
    ]
    dtypes = {str(row.records[0].get("dtype")) for row in rows} & {"bfloat16", "float16"}
    half = {dtype for dtype in dtypes if plan.ceilings.rate_dtype(dtype) != dtype}
    if half:
        verb = "is" if len(half) == 1 else "are"
        texts.append(f"{' and '.join(sorted(half))} {verb} drawn under the roof of float32.")
    if max_shift:
        factor = (plan.x_limits[1] / plan.x_limits[0]) ** (max_shift / WIDE)
        by = f"by a factor of {factor:.2g} at most"
        texts.append(f"Marks that would hide each other are set apart sideways, {by}.")
    return texts + _missing(rows)


def _missing(rows: list[Row]) -> list[str]:
    """A note on the methods that are not drawn, with reasons and the letters of the panels."""
    where: dict[str, list[str]] = {}
    for letter, row in zip(_letters(len(rows)), rows, strict=True):
        for note in data.notes([row], lambda _: [RATE], data.SEQUENCE, ends=False):
            for part in note.removeprefix("Not drawn: ").removesuffix(".").split("; "):
                where.setdefault(part, []).append(letter)
    several = len(rows) > 1
    parts = [f"{part} ({', '.join(at)})" if several else part for part, at in where.items()]
    return [f"Not drawn: {'; '.join(parts)}."] if parts else []


def _letters(count: int) -> list[str]:
    """The names of the panels in notes: a to z, then a1 to z1 and so on."""
    return [chr(ord("a") + k % 26) + (str(k // 26) if k >= 26 else "") for k in range(count)]
