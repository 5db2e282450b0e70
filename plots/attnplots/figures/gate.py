"""The power curves of the gate: how often it reaches each verdict on a case, by its true slowdown.

The data is the file calibration.json that `attnbench gate --calibrate --out FOLDER` writes.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from attnplots.figures import style
from attnplots.marks import sheet
from attnplots.records import environment
from attnplots.marks.labels import Box
from attnplots.records.methods import case_text
from attnplots.records.records import RecordsError
from attnplots.marks.sheet import LEFT, RIGHT
from attnplots.figures.style import Style
from attnplots.records.text import count_of, drawable

FILE_NAME = "calibration.json"
VERDICTS = ("regression", "pass", "inconclusive")

TOP = 16.0
HEADING = 24.0
PANEL = 110.0
TICKS = 26.0
BETWEEN = 14.0
KEY_LINE = 10.0
# The columns of the key on a page; a column has one.
KEY_COLUMNS = 3
HEAD_LINE = 11.0


@dataclass(frozen=True)
class Case:
    """The curves of one case: a share in percent for each slowdown in percent, by verdict."""

    name: str
    slowdowns: list[float]
    shares: dict[str, list[float]]

    @property
    def method(self) -> str:
        """The method, with which the name of a case begins."""
        return self.name.split(" ")[0]


@dataclass(frozen=True)
class Calibration:
    """What the figure shows of a calibration: the settings of the gate, and a curve per case."""

    min_shift: float
    margin: float
    note: str
    stamp: str
    cases: list[Case]


def load(folder: Path) -> Calibration:
    """Reads the calibration in a folder. Raises RecordsError if it is not one."""
    path = folder / FILE_NAME
    try:
        data = json.loads(path.read_text("utf-8"))
        cases = [_case(item) for item in data["cases"]]
        if not cases:
            raise RecordsError(f"{path}: no cases, expected at least one")
        looks = ", ".join(f"{look:d}" for look in data["looks"])
        note = (
            f"{count_of(data['recordings'], 'recorded pair')} of equal builds for each case, with their log "
            f"ratios shifted by the slowdown; {count_of(data['trials'], 'resampled gate')} for each point; "
            f"looks after {looks} pairs, alpha {data['alpha']:g}, pass alpha {data['pass_alpha']:g}."
        )
        stamp = environment.stamp([{**data["environment"], "finished_at": data.get("finished_at")}])
        min_shift, margin = (100 * float(data[name]) for name in ("min_shift", "margin"))
        return Calibration(min_shift, margin, drawable(note), drawable(stamp), cases)
    except KeyError as error:
        raise RecordsError(
            f"{path}: no {error.args[0]}; `attnbench gate --calibrate --from FILE --out FOLDER` "
            "computes an older calibration again"
        )
    except (ValueError, TypeError) as error:
        raise RecordsError(f"{path}: not a calibration: {error}")


def _case(item: dict[str, Any]) -> Case:
    power = item["power"]
    slowdowns = [float(x) for x in power["slowdown_percent"]]
    shares = {verdict: [100 * float(x) for x in power[verdict]] for verdict in VERDICTS}
    if any(len(values) != len(slowdowns) for values in shares.values()):
        raise ValueError(f"the curves of {item['name']} differ in length")
    return Case(drawable(item["name"]), slowdowns, shares)


def draw(calibration: Calibration) -> Figure:
    """Draws a panel for each verdict, with a curve for each case."""
    cases = calibration.cases
    looks = _looks(cases)
    names, common = _short_names([case_text(case.name) for case in cases])
    figure = sheet.figure()
    footer = sheet.footer(figure, [calibration.note], calibration.stamp)
    narrow = sheet.is_narrow(figure)
    columns, key_columns = (1, 1) if narrow else (len(VERDICTS), KEY_COLUMNS)
    rows = -(-len(cases) // key_columns)
    lines = -(-len(VERDICTS) // columns)
    key = KEY_LINE * rows + 12
    title = f"Verdicts of the gate on a case that is slower{': ' + common if common else ''}"
    titles = sheet.wrapped(figure, title, style.HEAD_SIZE, "bold")
    head = TOP + (len(titles) - 1) * HEAD_LINE
    height = head + lines * (HEADING + PANEL + TICKS) + key + footer.height
    sheet.size(figure, height)
    for k, words in enumerate(titles):
        sheet.heading(figure, sheet.MARGIN, height - 12 - HEAD_LINE * k, words)
    between = BETWEEN * (columns - 1)
    wide = (sheet.width(figure) - LEFT - RIGHT - between) / columns
    for k, verdict in enumerate(VERDICTS):
        line, column = divmod(k, columns)
        left = LEFT + column * (wide + BETWEEN)
        bottom = height - head - line * (HEADING + PANEL + TICKS) - HEADING - PANEL
        frame = Box(left, bottom, left + wide, bottom + PANEL)
        sheet.subheading(figure, left, frame.y1 + 13, f"{verdict} (% of the gates)")
        axes = _axes(figure, frame, cases)
        axes.tick_params(labelleft=column == 0)
        for bound, words in ((calibration.min_shift, "min shift"), (calibration.margin, "margin")):
            _guide(axes, bound, words)
        for case, look in zip(cases, looks, strict=True):
            _curve(axes, case.slowdowns, case.shares[verdict], look)
        if line == lines - 1:
            sheet.centred(figure, frame, bottom - 21, "true slowdown (%)", style.TEXT)
    step = (sheet.width(figure) - LEFT) / key_columns
    for n, (name, look) in enumerate(zip(names, looks, strict=True)):
        y = footer.height + key - 6 - KEY_LINE * (n % rows + 1)
        _key(figure, LEFT / 2 + (n // rows) * step, y, name, look)
    footer.write(figure)
    return figure


def _looks(cases: list[Case]) -> list[Style]:
    """The method gives the colour and the marker; its further cases are dashed and hollow."""
    styles = style.styles(case.method for case in cases)
    chosen: list[Style] = []
    for n, case in enumerate(cases):
        look = styles[case.method]
        before = sum(other.method == case.method for other in cases[:n])
        dash = style.DASHES[before % len(style.DASHES)]
        chosen.append(Style(look.colour, look.text_colour, look.marker, before > 0, dash))
    return chosen


def _short_names(names: list[str]) -> tuple[list[str], str]:
    """The names without the words that end all of them, and these words."""
    words = [name.split(" ") for name in names]
    shared = 0
    while all(len(w) > shared + 1 and w[-1 - shared] == words[0][-1 - shared] for w in words):
        shared += 1
    if shared == 0 or len(names) == 1:
        return names, ""
    return [" ".join(w[:-shared]) for w in words], " ".join(words[0][-shared:])


def _axes(figure: Figure, frame: Box, cases: list[Case]) -> Axes:
    axes = sheet.axes(figure, frame)
    longest = max(max(case.slowdowns) for case in cases)
    axes.set_xlim(0, longest + 0.5)
    axes.set_ylim(-3, 103)
    axes.set_xticks([x for x in (0, 3, 5, 10, 15) if x <= longest])
    axes.set_yticks([0, 25, 50, 75, 100])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    return axes


def _guide(axes: Axes, x: float, words: str) -> None:
    axes.axvline(x, color=style.GUIDE, linewidth=0.9, linestyle=style.DASHED, zorder=1)
    axes.annotate(
        words, (x, 1), xycoords=("data", "axes fraction"), xytext=(0, 3),
        textcoords="offset points", ha="center", fontsize=style.SMALL_SIZE, color=style.QUIET,
    )  # fmt: skip


def _marks(look: Style) -> dict[str, Any]:
    """The arguments of Matplotlib for a line of this look."""
    return {
        "color": look.colour, "linewidth": look.width, "linestyle": look.dash,
        "marker": look.marker, "markersize": style.MARKERS[look.marker or "o"] * 0.8,
        "markerfacecolor": "white" if look.hollow else look.colour, "markeredgewidth": 0.9,
    }  # fmt: skip


def _curve(axes: Axes, x: list[float], y: list[float], look: Style) -> None:
    axes.plot(x, y, clip_on=False, **_marks(look))


def _key(figure: Figure, x: float, y: float, name: str, look: Style) -> None:
    """A short piece of the curve, with the name of its case beside it; y is the baseline."""
    middle = y + 2.5
    marks = _marks(look) | {"marker": None}
    sheet.line(figure, (x, middle), (x + 20, middle), marks.pop("color"), **marks)
    dot = _marks(look) | {"linewidth": 0}
    sheet.line(figure, (x + 10, middle), (x + 10, middle), dot.pop("color"), **dot)
    sheet.text(figure, x + 25, y, name, style.NAME_SIZE, look.text_colour)
