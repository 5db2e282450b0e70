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
    """An axis of panels: its limits, its ticks, and whether it is logarithmic. If `linear_to` is not 0, a logarithmic axis is linear
    from minus to plus this value, and ticks whose texts have no room are left out."""

    limits: Limits
    ticks: Ticks
    logarithmic: bool = True
    linear_to: float = 0.0


@dataclass(frozen=True)
class Marks:
    """Marks that no line joins. If `low` and `high` are given, the marks have bars between them: vertical ones, or horizontal ones
    with `sideways`. `kind` is the id of the marks in SVG files, and `size` a factor of their size. Marks with a higher `layer` are
    drawn over others."""

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
    """A horizontal line with its name. If it has a `method`, it has the look of the method and is as long as its curve."""

    value: float
    name: str = ""
    method: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel: the titles of its axes, their scales, and its curves.

    Attributes:
        reach: curves that end here or at a larger x have their names beside the panel.
        lines: horizontal lines. Their names are drawn where they hide the least.
        growth: the horizontal axis, if the panel shows the slopes of linear and quadratic growth along it.
        keyed: whether the names of curves have marks in place of leaders.
        empty: the text of a panel without curves.
        rules: vertical lines: the place on the horizontal axis, and the name whose look the line has.
        bands: horizontal areas from minus to plus a value, with their colours; the wider comes first.
        dots: curves that are shown by their last value alone, each with its place on the vertical axis.
        methods: the methods that the ticks of the vertical axis name, if there are dots.
        high: the height of the panel in points; 0 for the usual height.
        text: the function that writes a value in words.
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
    """All that a figure of panels shows.

    Attributes:
        looks: the look of each method, and of each other name that a curve or a line has.
        header: the line of text above the panels.
        notes: the lines of text below the panels.
        stamp: the machine, the revision and the date.
        dots: whether curves become dots if all of them have one value at the same place of the horizontal axis.
        key: whether the names of all curves are once above the panels instead of beside each panel.
    """

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
    """A figure of bars that consist of parts: the parts by their keys, the panels as pairs of a heading and its bars, and the rest as
    in Sheet."""

    parts: dict[str, Part]
    panels: list[tuple[str, list[Bar]]]
    looks: dict[str, Style]
    header: str
    notes: list[str]
    stamp: str


# The factors of `Marks.size` with which filled marks, which have a white edge, look as large as open ones.
FILLED_SIZE, OPEN_SIZE = 1.4, 1.13


def panel_of_names(title: str, names: list[str], values: Iterable[float], marks: Iterable[Marks]) -> Panel:
    """A panel with a row for each name, the first at the bottom, and marks in the rows. `values` are all values of the marks, which
    the logarithmic horizontal axis must include."""
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
