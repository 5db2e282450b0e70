"""The sheet of a figure: its size, the text and lines on it, and the line that names the setting.

All positions are in points (1/72 inch), so that labels have the same places in every output format.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font
from matplotlib.lines import Line2D

from attnplots.figures import style
from attnplots.marks.labels import Box
from attnplots.records.text import escaped

# Every figure is drawn with it, in two weights. It comes with Matplotlib.
FONT = "DejaVu Sans"

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


@contextmanager
def context(width: str = style.DEFAULT_WIDTH) -> Iterator[None]:
    """Draws and saves figures with these settings of Matplotlib instead of the user's own.

    `width` is a key of style.WIDTHS. figure() makes sheets of this width.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "figure.figsize": (style.WIDTHS[width] / 72, 1.0),
                # Text of SVG files stays text, so browsers without the font use another one.
                "font.family": [FONT, "sans-serif"],
                "font.size": style.NAME_SIZE,
                "text.color": style.TEXT,
                # A `$` in a name from a file is a dollar sign and does not begin a formula.
                "text.parse_math": False,
                "text.hinting": "none",
                "axes.edgecolor": style.GUIDE,
                "axes.linewidth": 0.7,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.axisbelow": True,
                "axes.grid": True,
                "grid.color": style.GRID,
                "grid.linewidth": 0.6,
                "xtick.color": style.GUIDE,
                "ytick.color": style.GUIDE,
                "xtick.labelcolor": style.TEXT,
                "ytick.labelcolor": style.TEXT,
                "xtick.labelsize": style.NAME_SIZE,
                "ytick.labelsize": style.NAME_SIZE,
                "xtick.major.size": 2.5,
                "ytick.major.size": 0,
                "xtick.major.width": 0.7,
                "pdf.fonttype": 42,
                "svg.fonttype": "none",
                "svg.hashsalt": "attnplots",
            }
        )
        yield


def figure() -> Figure:
    """An empty sheet, as wide as context() says. Text can be measured on it before its height is known."""
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


def text(figure: Figure, x: float, y: float, text: str, size: float, colour: str, **more: Any) -> None:
    """Writes text whose baseline begins at (x, y), in points."""
    where = (x * POINT, y * POINT)
    inches = figure.dpi_scale_trans
    figure.text(*where, drawable(text), fontsize=size, color=colour, transform=inches, **more)


def line(figure: Figure, start: Sequence[float], stop: Sequence[float], colour: str, **more: Any) -> None:
    """Draws a straight line between two places, in points."""
    x, y = ([start[i] * POINT, stop[i] * POINT] for i in (0, 1))
    inches = figure.dpi_scale_trans
    figure.add_artist(Line2D(x, y, transform=inches, color=colour, **more))


@cache
def _characters() -> frozenset[int]:
    """The characters that the font has in both weights."""
    files = (findfont(FontProperties(family=FONT, weight=weight)) for weight in ("normal", "bold"))
    return frozenset.intersection(*(frozenset(FT2Font(file).get_charmap()) for file in files))


def drawable(text: str) -> str:
    """The text with escapes such as \\u4e2d for characters that the font lacks, since Matplotlib would warn about each of
    them."""
    return "".join(c if ord(c) in _characters() else escaped(c) for c in text)


def text_width(figure: Figure, text: str, size: float, weight: str = "normal") -> float:
    """The width of a line of text, in points."""
    font = FontProperties(family=FONT, size=size, weight=weight)
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    return canvas.get_renderer().get_text_width_height_descent(drawable(text), font, False)[0]


def heading(figure: Figure, x: float, y: float, title: str) -> None:
    """Writes the title of a row of panels."""
    text(figure, x, y, title, style.HEAD_SIZE, style.TEXT, weight="bold")


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
    stamp, which says what machine, torch and revision the numbers come from, and of what date. They have a `shared`
    line if there is room for both in it."""

    notes: list[str]
    stamp: list[str]
    shared: bool = False

    @property
    def height(self) -> float:
        """The height of the footer, in points."""
        return SMALL_LINE * (len(self.notes) + len(self.stamp) - self.shared) + BOTTOM

    def write(self, figure: Figure) -> None:
        """Writes the footer at the bottom of a sheet whose height is known."""
        small_lines(figure, self.height - SMALL_LINE + (0 if self.shared else 2), self.notes)
        for k, words in enumerate(reversed(self.stamp)):
            place = (width(figure) - MARGIN, BOTTOM + SMALL_LINE * k)
            text(figure, *place, words, style.SMALL_SIZE, style.QUIET, ha="right", gid="stamp")


def footer(figure: Figure, notes: list[str], stamp: str) -> Footer:
    """The footer of a sheet, with lines that fit its width."""
    flowing = " ".join(note if note.endswith(".") else f"{note}." for note in notes)
    above, below = (wrapped(figure, words) if words else [] for words in (flowing, stamp))
    used = sum(text_width(figure, words[k], style.SMALL_SIZE) for words, k in ((above, -1), (below, 0)) if words)
    return Footer(above, below, bool(above and below) and used + 4 * MARGIN <= width(figure))


def wrapped(
    figure: Figure, text: str, size: float = style.SMALL_SIZE, weight: str = "normal", room: float | None = None,
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
