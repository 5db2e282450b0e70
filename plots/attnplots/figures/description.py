"""What a figure shows, as data: panels with their scales, curves, marks and lines, and notes below them.

The folder `marks` draws it. Lengths are in points (1/72 inch).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from attnplots.figures import ticks
from attnplots.figures.style import Style
from attnplots.figures.ticks import Limits, Ticks
from attnplots.records.rows import Curve, Length, Measure


@dataclass(frozen=True)
class Scale:
    """An axis of panels: its limits, its ticks, and whether it is logarithmic. A logarithmic axis with `linear_to` is linear
    from minus to plus this value; its ticks are left out where their texts have no room."""

    limits: Limits
    ticks: Ticks
    logarithmic: bool = True
    linear_to: float = 0.0


@dataclass(frozen=True)
class Marks:
    """Marks that no line joins. They have bars from `low` to `high`, if these are given, along the horizontal axis if
    they are `sideways`. `kind` is their id in SVG files, and `size` a factor. Those with a higher `layer` hide others."""

    x: Sequence[float]
    y: Sequence[float]
    look: Style
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    sideways: bool = False
    kind: str = ""
    size: float = 1.0
    layer: float = 4.0


@dataclass(frozen=True)
class Line:
    """A horizontal line with its name. A line of a `method` has the look of the method and the span of its curve."""

    value: float
    name: str = ""
    method: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel: the titles of its axes, their scales, and its curves.

    Curves that end at `reach` or later have their names beside the panel. The names of `lines` stand where they hide the
    least. `rules` are vertical lines with the methods that name them. `bands` are
    horizontal areas from minus to plus a value, with their colours, the wider first. `growth` is the letter of the axis
    if the panel shows the slopes of linear and quadratic growth. If the names are `keyed`, they have marks and no
    leaders. A panel without curves says `empty`. A panel is `high` points high if that is given. `text` writes a value
    where a figure shows it in words. `dots` are curves that are shown by their last value alone, each with its place on
    the vertical axis, whose ticks belong to `methods`.
    """

    title: str
    x_label: str
    x: Scale
    y: Scale
    curves: list[Curve]
    reach: float
    lines: tuple[Line, ...] = ()
    growth: Length | None = None
    keyed: bool = False
    empty: str = "nothing measured"
    rules: tuple[tuple[float, str], ...] = ()
    bands: tuple[tuple[float, str], ...] = ()
    marks: tuple[Marks, ...] = ()
    dots: tuple[tuple[float, Curve], ...] = ()
    methods: tuple[str, ...] = ()
    high: float = 0.0
    text: Callable[[float], str] = lambda value: f"{value:,.4g}"


@dataclass(frozen=True)
class Group:
    """Panels under a common heading, which are side by side on a page."""

    heading: str
    panels: list[Panel]


@dataclass(frozen=True)
class Sheet:
    """All that a figure of panels shows: `header` is the line above the panels. Where all curves have the same single place
    on the horizontal axis, they become dots, unless it is without `dots`. With a `key` the names of all curves are once
    above the panels instead of beside each."""

    groups: list[Group]
    looks: dict[str, Style]
    header: str
    notes: list[str]
    stamp: str
    dots: bool = True
    key: bool = False


@dataclass(frozen=True)
class Part:
    """A part of a bar: its name, and its colour, which no method has."""

    name: str
    colour: str


@dataclass(frozen=True)
class Bar:
    """A bar of a method: the size of each part, by the key of the part."""

    method: str
    sizes: dict[str, float]


@dataclass(frozen=True)
class Bars:
    """A figure of bars that consist of parts: the parts by their keys, and the bars under each heading."""

    parts: dict[str, Part]
    panels: list[tuple[str, list[Bar]]]
    looks: dict[str, Style]
    header: str
    notes: list[str]
    stamp: str


# Filled marks have a white edge, and look as large as open ones of the other size.
FILLED_SIZE, OPEN_SIZE = 1.4, 1.13


def panel_of_names(title: str, names: list[str], values: Iterable[float], marks: Iterable[Marks]) -> Panel:
    """A panel with a line for each name, from below, whose marks have these values on a logarithmic axis."""
    limits = ticks.around(values)
    y = Scale((-0.6, len(names) - 0.4), ([float(k) for k in range(len(names))], names), False)
    return Panel(title, "", Scale(limits, ticks.times(limits)), y, [], 0.0, empty="", marks=tuple(marks))


# Panels with more curves than this have a key above them, because that many names beside a panel are taller than it.
MOST_NAMES = 8


def needs_key(panels: Iterable[Sequence[Curve]]) -> bool:
    """Whether a panel has too many curves for their names to be beside it."""
    return max((len(curves) for curves in panels), default=0) > MOST_NAMES


def length_scale(span: Limits) -> Scale:
    """The axis of lengths from the shortest to the longest of them."""
    return Scale(ticks.length_limits(span), ticks.lengths(span))


def value_scale(measure: Measure, find_ticks: Callable[[Limits], Ticks], panels: list[list[Curve]]) -> Scale:
    """The logarithmic axis that fits the curves of all of these panels."""
    limits = ticks.limits(panels, measure.line)
    return Scale(limits, find_ticks(limits) if any(panels) else ([], []))
