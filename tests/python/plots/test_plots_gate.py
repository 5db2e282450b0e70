"""Tests of the figure `gate`, which shows the power curves of a calibration of the gate."""

import importlib
import json
import subprocess
import sys

import pytest
from conftest import HANG_S, ROOT

PLOTS = ROOT / "plots"
sys.path.insert(0, str(PLOTS))
files, gate, sheet, style = (
    importlib.import_module(f"attnplots.{name}") for name in ("marks.files", "figures.gate", "marks.sheet", "figures.style")
)

FOLDERS = sorted(path.parent for path in (ROOT / "results/gate").glob("*/calibration.json"))


def run(*arguments):
    return subprocess.run(
        [sys.executable, PLOTS / "run.py", "gate", *arguments],
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip


def calibration(names=("linear forward N=8", "linear decode N=8"), **other):
    power = {
        "slowdown_percent": [1, 2, 3], "regression": [0, 0.25, 1], "pass": [1, 0.5, 0],
        "inconclusive": [0, 0.25, 0],
    }  # fmt: skip
    return {
        "recordings": 20, "trials": 50, "alpha": 0.01, "pass_alpha": 0.025, "min_shift": 0.03,
        "margin": 0.1, "looks": [8, 12], "environment": {"cpu_model": "Some CPU"},
        "cases": [{"name": name, "power": power} for name in names],
    } | other  # fmt: skip


def write(folder, data):
    folder.mkdir(exist_ok=True)
    (folder / "calibration.json").write_text(json.dumps(data))
    return folder


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_committed_calibrations_can_be_drawn(folder, tmp_path):
    result = run(folder, "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [str(tmp_path / f"gate.{kind}") for kind in ("pdf", "svg", "png")]
    for path in tmp_path.iterdir():
        assert path.stat().st_size > 5000
        assert (folder / path.name).exists(), "the figure is committed beside the calibration"


def test_each_verdict_has_a_panel_with_the_curves_of_all_cases(tmp_path):
    with sheet.context():
        figure = files.draw(gate.describe(gate.load(write(tmp_path / "one", calibration()))))
    assert len(figure.axes) == 3
    for axes, shares in zip(figure.axes, ([0, 25, 100], [100, 50, 0], [0, 25, 0]), strict=True):
        curves = [line for line in axes.lines if len(line.get_xdata()) == 3 and line.get_marker() != "None"]
        assert [list(curve.get_ydata()) for curve in curves] == [shares, shares]
        assert len({curve.get_markerfacecolor() for curve in curves}) == 2, "they can be told apart"
        guides = sorted(line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 2)
        assert guides == pytest.approx([3, 10])
    texts = [text.get_text() for text in figure.texts]
    assert "linear forward" in texts and "linear decode" in texts
    assert any(text.endswith(": N=8") for text in texts), "what all names end in is in the heading"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"cases": [{"name": "linear"}]}, "no power; `attnbench gate --calibrate --from FILE"),
        (calibration(cases=[]), "no cases, expected at least one"),
        (calibration(margin="wide"), "not a calibration: could not convert string to float"),
        ([], "not a calibration"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused(tmp_path, data, said):
    result = run(write(tmp_path / "one", data))
    assert result.returncode == 2 and result.stdout == ""
    assert "calibration.json" in result.stderr and said in result.stderr
