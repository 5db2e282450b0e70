"""The sheet of a figure: its size, the text and lines on it, and the line that names the setting.

All positions are in points (1/72 inch), so that labels have the same places in every output format.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D

from attnplots.figures import style
from attnplots.marks.labels import Box
from attnplots.records.records import Record
from attnplots.records.text import count_of

POINT = 1 / 72

# The margin beside notes and the stamp, and the larger one beside panels, for the texts of ticks.
MARGIN = 6.0
LEFT = 36.0
RIGHT = 5.0
SMALL_LINE = 9.6
# The space below the last line of text.
BOTTOM = 5.0
# Sheets that are narrower than this have one column of panels.
NARROW = 360.0


def figure() -> Figure:
    """An empty sheet, as wide as style.context() says. Text can be measured on it before its height
    is known."""
    empty = Figure(dpi=72)
    FigureCanvasAgg(empty)
    return empty


def width(figure: Figure) -> float:
    """The width of the sheet, in points."""
    return float(figure.get_figwidth()) / POINT


def is_narrow(figure: Figure) -> bool:
    """Whether the sheet has space for one column of panels only."""
    return width(figure) < NARROW


def size(figure: Figure, height: float) -> None:
    """Sets the height of the sheet, in points."""
    figure.set_size_inches(figure.get_figwidth(), height * POINT)


def axes(figure: Figure, frame: Box) -> Axes:
    """Adds axes to a sheet whose height is known; `frame` is their place in points."""
    high, wide = figure.get_figheight() / POINT, width(figure)
    place = (frame.x0 / wide, frame.y0 / high)
    return figure.add_axes((*place, (frame.x1 - frame.x0) / wide, (frame.y1 - frame.y0) / high))


def text(
    figure: Figure, x: float, y: float, text: str, size: float, colour: str, **more: Any
) -> None:
    """Writes text whose baseline begins at (x, y), in points."""
    where = (x * POINT, y * POINT)
    inches = figure.dpi_scale_trans
    figure.text(*where, text, fontsize=size, color=colour, transform=inches, **more)


def line(
    figure: Figure, start: Sequence[float], stop: Sequence[float], colour: str, **more: Any
) -> None:
    """Draws a straight line between two places, in points."""
    x, y = ([start[i] * POINT, stop[i] * POINT] for i in (0, 1))
    inches = figure.dpi_scale_trans
    figure.add_artist(Line2D(x, y, transform=inches, color=colour, **more))


def text_width(figure: Figure, text: str, size: float, weight: str = "normal") -> float:
    """The width of a line of text, in points."""
    font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    return canvas.get_renderer().get_text_width_height_descent(text, font, False)[0]


def heading(figure: Figure, x: float, y: float, title: str) -> None:
    """Writes the title of a row of panels."""
    text(figure, x, y, title, style.HEAD_SIZE, style.TEXT, weight="bold")


def subheading(figure: Figure, x: float, y: float, title: str) -> None:
    """Writes the title of a panel among several in a row."""
    text(figure, x, y, title, style.NAME_SIZE, style.TEXT, weight="bold")


def centred(figure: Figure, frame: Box, y: float, words: str, colour: str) -> None:
    """Writes text in the middle of a frame's width."""
    text(figure, (frame.x0 + frame.x1) / 2, y, words, style.NAME_SIZE, colour, ha="center")


def small_lines(figure: Figure, top: float, lines: list[str]) -> None:
    """Writes lines of small text; `top` is the baseline of the first line."""
    for k, words in enumerate(lines):
        text(figure, MARGIN, top - SMALL_LINE * k, words, style.SMALL_SIZE, style.QUIET)


@dataclass(frozen=True)
class Footer:
    """What every figure has below its panels: notes at the left, and in the lower right corner the
    stamp, which says what machine, torch and revision the numbers come from, and of what date."""

    notes: list[str]
    stamp: list[str]

    @property
    def height(self) -> float:
        """The height of the footer, in points."""
        return SMALL_LINE * (len(self.notes) + len(self.stamp)) + BOTTOM

    def write(self, figure: Figure) -> None:
        """Writes the footer at the bottom of a sheet whose height is known."""
        small_lines(figure, self.height - SMALL_LINE + 2, self.notes)
        for k, words in enumerate(reversed(self.stamp)):
            place = (width(figure) - MARGIN, BOTTOM + SMALL_LINE * k)
            text(figure, *place, words, style.SMALL_SIZE, style.QUIET, ha="right", gid="stamp")


def footer(figure: Figure, notes: list[str], stamp: str) -> Footer:
    """The footer of a sheet, with lines that fit its width."""
    return Footer(wrapped_all(figure, notes), wrapped(figure, stamp) if stamp else [])


def wrapped_all(figure: Figure, texts: list[str]) -> list[str]:
    """Breaks texts into lines that fit the sheet; each text starts on a new line."""
    return [line for paragraph in texts for line in wrapped(figure, paragraph)]


def wrapped(
    figure: Figure,
    text: str,
    size: float = style.SMALL_SIZE,
    weight: str = "normal",
    room: float | None = None,
) -> list[str]:
    """Breaks a text into lines that fit a width of `room` points, or the sheet."""
    room = width(figure) - 2 * MARGIN if room is None else room
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and text_width(figure, longer, size, weight) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def wrapped_parts(figure: Figure, text: str) -> list[str]:
    """wrapped(), with breaks only between parts that " · " separates, unless a part is too long."""
    joined = [part.replace(" ", "\u00a0") for part in text.split(" · ")]
    room = width(figure) - 2 * MARGIN
    if any(text_width(figure, part + " ·", style.SMALL_SIZE) > room for part in joined):
        return wrapped(figure, text)
    lines = wrapped(figure, "\u00a0· ".join(joined))
    return [line.replace("\u00a0", " ") for line in lines]


def setting(records: list[Record]) -> str:
    """The sizes that all records have in common, as one line; the stamp names the machines."""
    on_cpu = any(str(r.get("device") or "cpu").startswith("cpu") for r in records)
    parts = []
    if on_cpu:
        parts.append(_joined(records, "threads", lambda n: count_of(n, "thread")))
    parts.append(_joined(records, "dtype", str))
    heads, dim, value = (_shared(records, a) for a in ("heads", "head_dim", "value_dim"))
    if heads is not None and dim is not None:
        more = f" (values {value})" if value not in (None, dim) else ""
        parts.append(f"{count_of(heads, 'head')} × {dim} dimensions{more}")
    if _shared(records, "causal") is True:
        parts.append("causal")
    batches = [record["batch"] for record in records]
    low, high = min(batches), max(batches)
    parts.append(f"batch {low}" if low == high else f"batch {low} to {high}")
    return " · ".join(part for part in parts if part)


def _shared(records: list[Record], column: str) -> Any:
    """The value of a column if it is the same in all records, otherwise None."""
    values = [record.get(column) for record in records]
    return values[0] if all(value == values[0] for value in values) else None


def _joined(records: list[Record], column: str, say: Callable[[Any], str]) -> str:
    values = (record.get(column) for record in records)
    return " / ".join(dict.fromkeys(say(value) for value in values if value is not None))
