"""Tests of the figure of patterns, in which each pattern of visible keys is a curve."""

import importlib

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
    sheet = patterns.describe(records.load(tmp_path))
    (group,) = sheet.groups
    assert [sorted(curve.method for curve in panel.curves) for panel in group.panels] == [
        ["sdpa", "sdpa, window 128", "sparse-sdpa", "strided 32", "window 128"]
    ] * 2
    assert {"window 128", "strided 32", "sdpa, window 128"} <= set(texts(figure_of(sheet)))


def test_records_of_other_cases_alone_are_refused(tmp_path):
    write(tmp_path, [measured("sparse-sdpa", 512, packed="uniform:16")])
    with pytest.raises(records.RecordsError, match="no records of sequences that are not packed"):
        patterns.describe(records.load(tmp_path))


def test_the_script_writes_the_figure(tmp_path):
    write(tmp_path, cases())
    done = run("patterns", tmp_path, "--out", tmp_path / "figure.svg")
    assert done.returncode == 0, done.stderr
    assert "window 128" in (tmp_path / "figure.svg").read_text("utf-8")
