"""Tests of plots/quality.py, which draws errors of rows against time and against effective keys."""

import importlib

import numpy as np
import pytest
from test_plots import clear_labels, figure_of, measured, records, refusal, run, texts, write, sheet

quality = importlib.import_module("attnplots.figures.quality")


def scored(method, error, concentration=1, n=512, ms=2.0, **other):
    more = {
        quality.CONCENTRATION: concentration, "quality_row_error_median": error,
        "quality_row_error_p5": error and error / 2, "quality_row_error_p95": error and error * 3,
        "quality_effective_keys": n / concentration, "quality_of_mean_row_error_median": 0.7,
        "quality_of_zero_row_error_median": 1.0, "quality_not_scored": None,
    }  # fmt: skip
    return measured(method, n, ms, **(more | other))


def cases(concentrations=(1, 2)):
    rows = []
    for c in concentrations:
        rows += [scored("linear", 0.5 * c, c), scored("favor", 0.2 * c, c, ms=5.0)]
        rows += [scored("softmax", 2e-7, c, ms=9.0)]
        rows += [scored("linformer", None, c, quality_not_scored="linformer has parameters that a model trains")]
    return rows


def sheets(rows, width="page"):
    with sheet.context(width):
        drawn = figure_of(quality.describe(records.Records(rows)))
        for figure in drawn.values():
            figure.draw_without_rendering()
    return drawn


def bars(axes):
    """The ends of the vertical bars of a panel, by their x."""
    found = [s for part in axes.collections for s in part.get_segments()]
    return {float(s[0][0]): (float(s[0][1]), float(s[1][1])) for s in found}


def level_lines(axes):
    return {line.get_ydata()[0] for line in axes.get_lines() if list(line.get_xdata()) == [0, 1]}


def test_errors_are_drawn_against_times_with_a_panel_for_each_concentration():
    found = sheets(cases())
    assert sorted(found) == ["keys", "time-forward-n-512"]
    figure = found["time-forward-n-512"]
    assert [t for t in texts(figure) if t.startswith("concentration")] == ["concentration 1", "concentration 2"]
    for axes, c in zip(figure.axes, (1, 2), strict=True):
        places = {(float(x), float(y)) for line in axes.get_lines() if line.get_linestyle() == "None"
                  for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)}  # fmt: skip
        assert places == {(2.0, 0.5 * c), (5.0, 0.2 * c)}
        assert bars(axes)[2.0] == (0.25 * c, 1.5 * c)
        assert level_lines(axes) == {0.7, 1.0}
        (exact,) = [line for line in axes.get_lines() if list(line.get_ydata()) == [0, 1]]
        assert exact.get_xdata()[0] == 9.0, "an exact method is a line at its time"
    shown = texts(figure)
    assert shown.count("mean of v") == shown.count("zero") == 2
    said = " ".join(shown)
    assert "Not scored: linformer has parameters that a model trains." in said
    assert "errors are rounding (softmax)" in said
    assert "2 of 8 cases (error of rows not scored); no curve: linformer." in said
    assert clear_labels(figure).count("linear") == 2


def test_errors_are_drawn_against_the_effective_number_of_keys():
    figure = sheets(cases((1, 2, 4)))["keys"]
    (axes,) = figure.axes
    lines = {tuple(line.get_xdata()): list(line.get_ydata()) for line in axes.get_lines()
             if len(line.get_xdata()) == 3 and line.get_linestyle() != "None"}  # fmt: skip
    assert list(lines) == [(128.0, 256.0, 512.0)]
    drawn = [list(line.get_ydata()) for line in axes.get_lines() if len(line.get_xdata()) == 3]
    assert [2.0, 1.0, 0.5] in drawn and [0.7] * 3 in drawn and [1.0] * 3 in drawn
    assert quality.KEYS_LABEL in texts(figure)
    assert {"mean of v", "zero"} <= set(clear_labels(figure))


def test_each_length_and_mask_has_a_sheet():
    rows = cases() + [r | {"causal": True} for r in cases()] + [scored("linear", 0.4, n=4096)]
    assert sorted(sheets(rows)) == [
        "keys", "time-forward-causal-n-512", "time-forward-not-causal-n-4k", "time-forward-not-causal-n-512",
    ]  # fmt: skip


def test_settings_with_one_number_of_keys_are_not_on_the_sheet_of_keys():
    clustered = [scored(m, 0.5, inputs="clustered", quality_effective_keys=k) for m, k in (("linear", 40), ("favor", 41))]
    normal = [row | {"inputs": "normal"} for row in cases((1, 2, 4))]
    shown = texts(sheets([*normal, *clustered])["keys"])
    assert any("normal inputs" in t for t in shown) and not any("clustered" in t for t in shown)


def test_methods_with_different_numbers_of_keys_make_no_sheet_of_keys():
    rows = [scored(m, 0.5, quality_effective_keys=k) for m, k in (("linear", 40), ("lsh-1", 41))]
    assert list(sheets(rows)) == ["time-forward-n-512"]


@pytest.mark.parametrize(("lowest", "above"), [(0.2, False), (0.002, True)])
def test_the_names_of_exact_methods_do_not_hide_low_errors(lowest, above):
    rows = [scored("linear", 0.5), scored("favor", lowest, ms=5.0), scored("softmax", 2e-7, ms=9.0)]
    figure = sheets(rows)["time-forward-n-512"]
    (name,) = [t for t in figure.texts if t.get_text() == "softmax"]
    box = figure.axes[0].get_window_extent()
    assert (72 * name.get_position()[1] > (box.y0 + box.y1) / 2) == above


def test_one_concentration_has_no_sheet_of_keys():
    assert list(sheets(cases((1,)))) == ["time-forward-n-512"]


def test_columns_that_are_absent_are_left_out():
    rows = [scored("linear", 0.5, quality_effective_keys=None, quality_of_mean_row_error_median=None,
                   quality_row_error_p5=None, quality_row_error_p95=None)]  # fmt: skip
    (figure,) = sheets(rows).values()
    assert level_lines(figure.axes[0]) == {1.0} and not bars(figure.axes[0])


@pytest.mark.parametrize("width", ["column", "page"])
def test_labels_stay_inside_and_text_is_readable(width):
    for figure in sheets(cases(), width).values():
        clear_labels(figure)
        assert min(t.get_fontsize() for t in figure.findobj() if hasattr(t, "get_fontsize") and t.get_text()) >= 7


def test_the_script_refuses_records_without_errors_of_rows(tmp_path):
    folder = write(tmp_path / "set", [measured()])
    assert "`quality_row_error_median`" in refusal("quality", folder)


def test_the_script_draws_a_folder(tmp_path):
    folder = write(tmp_path / "set", cases())
    result = run("quality", folder)
    assert result.returncode == 0, result.stderr
    assert (folder / "quality-keys.svg").exists() and (folder / "quality-time-forward-n-512.svg").exists()


def test_methods_whose_errors_are_rounding_are_exact():
    found = records.Records(cases())
    assert quality.exact_methods(found) == {"softmax"}
    assert np.isfinite(quality.ROUNDING)
