"""Tests of the figure of patterns, in which each pattern of visible keys is a curve."""

import importlib
import re

import pytest
from test_plots import figure_of, measured, run, texts, write

patterns = importlib.import_module("attnplots.figures.patterns")
records = importlib.import_module("attnplots.records.records")


def cases():
    """The records of methods with and without patterns; packed sequences and shared heads are cases of their own."""
    rows = []
    for n in (512, 1024):
        rows += [measured("sdpa", n), measured("sparse-sdpa", n)]
        rows += [measured("sparse-sdpa", n, pattern=pattern) for pattern in ("window:128", "strided:32")]
        rows.append(measured("sdpa", n, pattern="window:128"))
    return [*rows, measured("sparse-sdpa", 512, packed="uniform:16"), measured("gated-delta", 512, value_heads=32)]


def test_each_pattern_is_a_curve_of_one_panel(tmp_path):
    write(tmp_path, cases())
    (sheet,) = patterns.describe(records.load(tmp_path)).values()
    (group,) = sheet.groups
    assert [sorted(curve.method for curve in panel.curves) for panel in group.panels] == [
        ["sdpa", "sdpa, window 128", "sparse-sdpa", "strided 32", "window 128"]
    ] * 2
    assert {"window 128", "strided 32", "sdpa, window 128"} <= set(texts(figure_of(sheet)))


def test_records_of_other_cases_alone_are_refused(tmp_path):
    write(tmp_path, [measured("sparse-sdpa", 512, packed="uniform:16")])
    with pytest.raises(records.RecordsError, match="no records of sequences that are not packed"):
        patterns.describe(records.load(tmp_path))


def test_windows_and_linear_attention_are_compared_with_all_keys(tmp_path):
    """The crossovers are those that `attnbench analyse` finds, and the curves have the names that the figure gives them."""
    rows = []
    for n in (512, 1024, 2048, 4096):
        rows += [measured("sdpa", n, n * n / 1e6), measured("linear", n, n / 500), measured("sparse-sdpa", n, n / 1000, pattern="window:128")]
    write(tmp_path, rows)
    (sheet,) = patterns.describe(records.load(tmp_path)).values()
    notes = " ".join(sheet.notes)
    assert "Faster than sdpa" in notes
    for name, length in (("linear", "2,000"), ("window 128", "1,000")):
        assert re.search(rf"{name} from N = {length} on", notes), notes


def test_the_errors_of_windows_are_drawn_against_their_sizes(tmp_path):
    quality = {name: 0.5 for name in ("quality_of_mean_row_error_median", "quality_of_zero_row_error_median")}
    errors = {64: 0.4, 256: 0.2, 1024: 0.05}
    scored = [
        measured(
            "sparse-sdpa", 4096, pattern=f"window:{window}", quality_row_error_median=error, quality_row_error_p5=error / 2,
            quality_row_error_p95=error * 2, **quality,
        )
        for window, error in errors.items()
    ]  # fmt: skip
    write(tmp_path, [*cases(), *scored])
    sheet = patterns.describe(records.load(tmp_path))["quality"]
    ((curve,),) = ([*panel.curves] for group in sheet.groups for panel in group.panels)
    assert dict(zip(curve.n, curve.y, strict=True)) == errors
    done = run("patterns", tmp_path, "--out", tmp_path / "figures")
    assert done.returncode == 0, done.stderr
    assert {"patterns.svg", "patterns-quality.svg"} <= {path.name for path in (tmp_path / "figures").iterdir()}


def test_the_script_writes_the_figure(tmp_path):
    write(tmp_path, cases())
    done = run("patterns", tmp_path, "--out", tmp_path / "figure.svg")
    assert done.returncode == 0, done.stderr
    assert "window 128" in (tmp_path / "figure.svg").read_text("utf-8")
