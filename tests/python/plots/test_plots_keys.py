"""Tests of what keeps figures with many curves readable: the key above the panels, lines of single methods, and notes."""

import importlib

import numpy as np
import pytest
from test_plots import MANY, clear_labels, figure_of, measured, records, scaling, sheet, texts

description, rows = (importlib.import_module(f"attnplots.{name}") for name in ("figures.description", "records.rows"))
CASES = [measured(method, n, 1.0 + k) for k, method in enumerate(MANY) for n in (512, 1024)]


def sheet_of(names, panels=2, **more):
    """A sheet of panels with a curve for each name."""
    chosen = records.Records([case for case in CASES if case["method"] in names])
    (row,) = rows.split_rows(chosen)
    curves = rows.curves(row, rows.TIME)
    x, y = description.length_scale((512, 1024)), description.Scale((0.5, 30.0), ([1.0, 10.0], ["1", "10"]))
    panel = description.Panel("Time", "N", x, y, curves, 1024.0, **more.pop("panel", {}))
    looks = scaling.style.styles(names)
    return description.Sheet([description.Group(f"panel {k}", [panel]) for k in range(panels)], looks, "", ["A note."], "a stamp", **more)


def leaders(figure):
    return [line for line in figure.artists if line.get_gid() == "leader"]


@pytest.mark.parametrize("width", ["page", "column"])
def test_a_key_names_each_curve_once_and_leaves_the_width_to_the_panels(width):
    with sheet.context(width):
        keyed, beside = (figure_of(sheet_of(MANY, key=key)) for key in (True, False))
        assert sorted(clear_labels(keyed)) == sorted(rows.method_text(name) for name in MANY)
    assert not leaders(keyed) and leaders(beside)
    assert keyed.axes[0].bbox.width > 1.3 * beside.axes[0].bbox.width


def test_only_panels_with_many_curves_need_a_key():
    assert not description.needs_key([range(description.MOST_NAMES)])
    assert description.needs_key([[], range(description.MOST_NAMES + 1)])
    assert not description.needs_key([])


def test_the_line_of_a_method_is_as_wide_as_its_curve():
    line = description.Line(4.0, "limit", "softmax")
    with sheet.context():
        figure = figure_of(sheet_of(("softmax", "linear"), panel={"lines": (line, description.Line(9.0, "all"))}))
    spans = {line.get_ydata()[0]: tuple(line.get_xdata()) for line in figure.axes[0].get_lines() if len(set(line.get_ydata())) == 1
             and len(line.get_xdata()) == 2}  # fmt: skip
    assert spans[4.0] == (512.0, 1024.0) and spans[9.0] == (0, 1)
    names = {text.get_text(): text.get_color() for text in figure.texts if text.get_gid() == "line"}
    assert names == {"limit": scaling.style.styles(["softmax"])["softmax"].text_colour, "all": scaling.style.QUIET}


def test_notes_follow_each_other_and_share_a_line_with_a_short_stamp():
    with sheet.context():
        figure = sheet.figure()
        footer = sheet.footer(figure, ["One.", "Two", "Three."], "a stamp")
        longer = sheet.footer(figure, ["word " * 18 + "end."], "a stamp " * 6)
        longest = sheet.footer(figure, ["word " * 100], "stamp")
    assert footer.notes == ["One. Two. Three."] and footer.shared
    assert footer.height == pytest.approx(sheet.SMALL_LINE + sheet.BOTTOM)
    assert not longer.shared and longer.height == pytest.approx(2 * sheet.SMALL_LINE + sheet.BOTTOM)
    assert len(longest.notes) > 3 and np.all([len(line) < 130 for line in longest.notes])
    assert "A note." in texts(figure_of(sheet_of(("softmax", "linear"))))
