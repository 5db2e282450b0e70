"""Tests of the names beside and in the panels of figures: each belongs visibly to its own line, in every figure of the
project's results and in figures that are crowded."""

import importlib
import math
from dataclasses import dataclass

import numpy as np
import pytest
from conftest import ROOT
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D
from test_plots import LENGTHS, every_outcome, figure_of, measured, records, scaling, sheet

chart, columns, decode, grid, labels, panel, rates, repeat = (
    importlib.import_module(f"attnplots.{name}")
    for name in ("figures.chart", "records.columns", "figures.decode", "marks.grid", "marks.labels", "marks.panel", "figures.rates", "figures.repeat")
)
ceilings = importlib.import_module("attnplots.figures.ceilings")
# Ends of lines that are nearer to each other than this, in points, are at the same place for a reader.
SAME = labels.SAME


@dataclass
class Name:
    """The name of a line: its box, the end of the line, and whether a thin line joins the two."""

    text: str
    box: labels.Box
    tip: tuple[float, float]
    has_leader: bool

    @property
    def away(self):
        return math.dist(self.box.nearest(*self.tip), self.tip)


@pytest.fixture
def panels(monkeypatch):
    """What panel.draw() is called with while a figure is drawn."""
    called = []
    draw = panel.draw

    def spy(figure, axes, frame, shown, looks, gap, reach, keyed=False, names=0.0, named=True):
        called.append((figure, axes, frame, shown, looks, keyed or not named))
        return draw(figure, axes, frame, shown, looks, gap, reach, keyed, names, named)

    monkeypatch.setattr(grid.panel, "draw", spy)
    return called


def names_of(figure, axes, frame, shown):
    """The names of the lines of a panel, from the texts and the thin lines of its figure."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    texts = [text for text in figure.texts if text.get_gid() == "label"]
    leaders = [72 * np.array(line.get_xydata()) for line in figure.artists
               if isinstance(line, Line2D) and line.get_gid() == "leader"]  # fmt: skip
    found = []
    for curve in shown:
        tip = tuple(float(v) for v in axes.transData.transform(curve.tip))
        with sheet.context():
            label = panel.method_label(figure, curve.method)
            places = {line: [t.get_window_extent(renderer) for t in texts if t.get_text() == line] for line in label.lines}
        # Several names may begin with the same line, so the lines below it count.
        boxes = [first for first in places[label.lines[0]]
                 if all(any(abs(b.x0 - first.x0) < 1 and abs(first.y0 - b.y0 - k * panel.NAME_LINE) < 3 for b in places[line])
                        for k, line in enumerate(label.lines))]  # fmt: skip
        # The first line of the name that is in or beside this panel, and not in another one.
        inside = [b for b in boxes if frame.x0 - 2 <= b.x0 <= frame.x1 + 30 and frame.y0 - 30 <= b.y0 <= frame.y1 + 30]
        assert inside, f"{curve.method} has no name in its panel"
        first = min(inside, key=lambda b: abs(b.y0 - tip[1]))
        box = labels.Box(first.x0, first.y1 - label.height, first.x0 + label.width, first.y1)
        has_leader = any(
            math.dist(line[0], tip) <= 6.5 and math.dist(box.nearest(*line[-1]), line[-1]) <= 4 for line in leaders
        )
        found.append(Name(curve.method, box, tip, has_leader))
    return found


def misleading(names):
    """What a reader would take wrongly, in words."""
    wrong = []
    for name in names:
        if not name.has_leader:
            nearer = [o.text for o in names if o is not name and math.dist(o.tip, name.tip) > SAME
                      and math.dist(name.box.nearest(*o.tip), o.tip) < name.away]  # fmt: skip
            wrong += [f"{name.text} is nearer to the end of {other}" for other in nearer]
            if name.away > labels.LEADER + 12:
                wrong.append(f"{name.text} is {name.away:.0f} points from its line and has no leader")
    for k, one in enumerate(names):
        for other in names[:k]:
            if labels.is_misordered(labels.Placed(one.tip, one.box), labels.Placed(other.tip, other.box)):
                wrong.append(f"{one.text} and {other.text} have the order of the other's line")
    return wrong


def check(called):
    assert called
    wrong = []
    for figure, axes, frame, shown, _, keyed in called:
        if not keyed and shown:
            wrong += misleading(names_of(figure, axes, frame, shown))
    assert wrong == []


def of_sweep(name, inside=""):
    # Without a folder, Figure 1 needs no program that computes crossovers.
    path = sorted((ROOT / "results" / name).glob(f"*/{inside}records.jsonl"))[0].parent
    found = records.load(path)
    return records.Records(found), path


def draw_sweep(name):
    if name == "repeat":
        return figure_of(repeat.describe(of_sweep(name, "run-1/")[0], of_sweep(name, "run-2/")[0]))
    found, path = of_sweep(name)
    if name == "cpu-kernels":
        return figure_of(rates.describe(found, ceilings.load(path)))
    draw = {"figure1": scaling.describe, "methods": scaling.describe_kinds, "decode": decode.describe, "latency": decode.describe_devices}
    return figure_of(draw[name](found))


@pytest.mark.parametrize("width", ["page", "column"])
@pytest.mark.parametrize("name", ["figure1", "methods", "decode", "latency", "cpu-kernels", "repeat"])
def test_each_name_in_the_figures_of_the_results_belongs_to_its_line(panels, name, width):
    with sheet.context(width):
        draw_sweep(name)
        check(panels)


@pytest.mark.parametrize("name", ["digits", "copy-task-short", "speech-short", "speech-epoch"])
def test_each_name_of_a_training_belongs_to_its_line(panels, name):
    table = columns.load(sorted((ROOT / "results" / name).glob("*/curves.jsonl"))[0].parent)
    with sheet.context():
        figure_of(chart.describe(table, chart.default_request(table)))
        check(panels)


def ending(method, last, ms):
    """Records of a method whose time grows with the length and that ends at a length."""
    return [measured(method, n, ms * n / 512, n * 1000) for n in LENGTHS if n <= last]


def test_names_of_lines_that_end_together_have_the_order_of_the_lines(panels):
    rows = ending("linear", 8192, 1.0) + ending("lsh-1", 8192, 1.5)
    for k, method in enumerate(("lsh-8", "lsh-4", "favor", "taylor")):
        rows += ending(method, 2048, 6.0 / 1.25**k)
    with sheet.context():
        figure_of(scaling.describe(records.Records(rows)))
        check(panels)


def test_names_of_every_outcome_belong_to_their_lines(panels):
    with sheet.context():
        figure_of(scaling.describe(records.Records(every_outcome())))
        check(panels)


def test_what_misleads_is_found():
    def name(text, x, y, tip):
        return Name(text, labels.Box(x, y - 5, x + 30, y + 5), tip, False)

    right = [name("upper", 108, 120, (100, 120)), name("lower", 108, 100, (100, 100))]
    assert misleading(right) == []
    swapped = [name("upper", 108, 100, (100, 120)), name("lower", 108, 120, (100, 100))]
    assert "upper is nearer to the end of lower" in misleading(swapped)
    assert "lower and upper have the order of the other's line" in misleading(swapped)
    assert "points from its line" in misleading([name("alone", 150, 100, (100, 100))])[0]


def test_the_names_of_horizontal_lines_hide_no_curve():
    figure_lines = []
    found, path = of_sweep("cpu-kernels")
    with sheet.context():
        for figure in figure_of(rates.describe(found, ceilings.load(path))).values():
            renderer = FigureCanvasAgg(figure).get_renderer()
            for text in (t for t in figure.texts if t.get_gid() == "line"):
                box = text.get_window_extent(renderer)
                for axes in figure.axes:
                    for line in axes.get_lines():
                        if line.get_linestyle() == "None" or len(line.get_xdata()) < 3:
                            continue
                        places = axes.transData.transform(np.column_stack([line.get_xdata(), line.get_ydata()]).astype(float))
                        along = np.concatenate([np.linspace(a, b, 60) for a, b in zip(places, places[1:], strict=False)])
                        hidden = (along[:, 0] > box.x0) & (along[:, 0] < box.x1) & (along[:, 1] > box.y0 + 1) & (along[:, 1] < box.y1 - 1)
                        assert not hidden.any(), (text.get_text(), line.get_color())
                figure_lines.append(text.get_text())
    assert any(text.startswith("machine with AVX2") for text in figure_lines)
