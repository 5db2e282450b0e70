"""Tests of plots/repeat.py, which lays two runs of one sweep over each other."""

import hashlib
import importlib
import math

import numpy as np
import pytest
from test_plots import MAGIC, clear_labels, files, missing, records, refusal, run, sheet, starter, texts, write
from test_plots_certainty import baseline_itself, quiet, with_ratio

repeat = importlib.import_module("attnplots.figures.repeat")
SCRIPT = "repeat"
LENGTHS = tuple(2**k for k in range(9, 15))
# By method: its ratio to sdpa at N = 512, and the power of N with which the ratio changes.
METHODS = {"softmax": (2.6, 0.05), "linear": (0.9, -0.9), "lsh-1": (4.0, -0.85),
           "linear-einsum": (1.1, -0.8)}  # fmt: skip
STEP = "linear query_len=512"


def noise(*what):
    """A fixed number between -1 and 1 for these words."""
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**31 - 1


def a_run(number=1, spread=0.03, drift=0.25):
    """The records of the sweep: ratios vary by `spread`, times by `drift` from run to run."""
    rows = []
    common = {"heads": 4, "finished_at": f"2026-11-23T0{number}:15:00Z"}
    for n in LENGTHS:
        slow = 1 + drift * noise("time", n, number)
        rows.append(baseline_itself(n, batch=1, **common))
        rows[-1] |= {"time_median_ms": n * n / 1e5 * slow}
        for method, (at_512, power) in METHODS.items():
            if method == "softmax" and n > 4096:
                continue
            ratio = at_512 * (n / 512) ** power * (1 + spread * noise(method, n, number))
            wide = 1 + 0.02 + 0.04 * abs(noise("wide", method, n, number))
            more = {"ratio_ci_low": ratio / wide, "ratio_ci_high": ratio * wide, "batch": 1}
            more["time_median_ms"] = n * n / 1e5 * ratio * slow
            rows.append(with_ratio(method, n, ratio, **common, **more))
        more = {"protocol": "decode", "baseline": STEP, "batch": 1, "causal": True, **common}
        if n == 512:
            rows.append(quiet("linear", n, 0.02, **more))
        else:
            ratio = 1 + spread * noise("decode", n, number)
            rows.append(with_ratio("linear", n, ratio, **more))
        rows[-1]["time_median_ms"] = 0.02 * (1 + drift * noise("step", n, number))
    return rows


def scaled(rows, ratio=1.0, time=1.0):
    """The records with ratios and times multiplied by these factors."""
    factors = dict.fromkeys(("ratio_median", "ratio_ci_low", "ratio_ci_high"), ratio)
    factors["time_median_ms"] = time
    return [
        record | {name: record[name] * f for name, f in factors.items() if record.get(name)}
        for record in rows
    ]


def figure_of(first, second):
    with sheet.context():
        figure = files.draw(repeat.describe(records.Records(first), records.Records(second)))
        figure.draw_without_rendering()
    return figure


def points(axes, hollow=None):
    """The marks of a panel as (x, y), all or those of one kind."""
    found = []
    for line in axes.get_lines():
        if line.get_linestyle() == "None" and line.get_gid() != "ring":
            if hollow is None or (line.get_markerfacecolor() == "white") == hollow:
                found += zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True)
    return [(x, y) for x, y in found if math.isfinite(y)]


def two_runs(folder, first=None, second=None):
    write(folder / "run-1", first or a_run(1))
    write(folder / "run-2", second or a_run(2))
    return folder / "run-1", folder / "run-2"


def test_the_figure_is_written_above_the_two_runs(tmp_path):
    one, two = two_runs(tmp_path / "machine")
    result = run(SCRIPT, one, two)
    assert result.returncode == 0, result.stderr
    paths = [tmp_path / "machine" / f"repeat.{kind}" for kind in ("pdf", "svg", "png")]
    assert result.stdout.splitlines() == [str(path) for path in paths]
    for path in paths:
        assert path.read_bytes().startswith(MAGIC[path.suffix[1:]])
    assert run(SCRIPT, one, two, "--out", tmp_path / "out").returncode == 0
    assert (tmp_path / "out" / "repeat.png").read_bytes() == paths[2].read_bytes()


def test_without_folders_the_two_runs_of_the_only_machine_are_drawn(tmp_path):
    start = starter(tmp_path, "repeat")
    assert "results/repeat: 0 folders in it have run-1 and run-2" in start().stderr
    two_runs(tmp_path / "results/repeat/a")
    write(tmp_path / "results/repeat/b/run-1", a_run(1))
    assert start().returncode == 0
    assert (tmp_path / "results/repeat/a/repeat.svg").exists()
    write(tmp_path / "results/repeat/b/run-2", a_run(2))
    assert "2 folders in it have run-1 and run-2" in start().stderr


def test_each_row_has_the_ratios_of_both_runs_and_their_differences():
    first, second = a_run(1), scaled(a_run(1), ratio=1.02, time=1.5)
    figure = figure_of(first, second)
    assert len(figure.axes) == 4, "the forward pass and decoding have baselines of their own"
    left, right, steps, step_changes = figure.axes
    forward = [r for r in first if r["protocol"] == "forward"]
    wanted = sorted(r["ratio_median"] for r in forward if r.get("ratio_median"))
    assert sorted(y for _, y in points(left, hollow=True)) == pytest.approx(
        [1.02 * ratio for ratio in wanted]
    )
    baseline = [1.0] * len(LENGTHS)
    assert sorted(y for _, y in points(left, hollow=False)) == pytest.approx(
        sorted(wanted + baseline)
    )
    assert sorted(y for _, y in points(right, hollow=False)) == pytest.approx([2.0] * len(wanted))
    assert sorted(y for _, y in points(right, hollow=True)) == pytest.approx([50.0] * len(forward))
    assert len(points(steps, hollow=True)) == len(points(step_changes, hollow=False)) == 5
    assert len(points(step_changes, hollow=True)) == 6
    shown = " ".join(texts(figure))
    assert "Time per token / that of linear at N = 512" in shown
    assert "Time per sequence / that of sdpa" in shown
    assert "Bands: 95 % intervals across processes" in shown
    assert "runs ended 2026-11-23 01:15" in shown


def test_the_difference_of_a_case_is_at_its_length():
    first = a_run(1)
    second = [r | {"ratio_median": 1.3 * r["ratio_median"]}
              if (r["method"], r["query_len"]) == ("lsh-1", 2048) else r for r in first]  # fmt: skip
    ((x, y),) = (point for point in points(figure_of(first, second).axes[1], False) if point[1] > 1)
    assert y == pytest.approx(30.0)
    assert 2048 / 2**0.5 < x < 2048 * 2**0.5


def test_the_summary_counts_ratios_and_times():
    first = a_run(1)
    cases = sum(1 for r in first if r.get("ratio_median"))
    assert (len(first), cases) == (34, 27)
    second = scaled(first, ratio=1.04, time=0.7)
    said = "ratios: 100 % of 27 cases within 5 %, worst 4.0 % · times: 0 % of 34 cases within 5 %, worst 30.0 %"
    assert said in " ".join(texts(figure_of(first, second)))
    change = repeat.Changes([({}, 0.0)] * 999 + [({}, -8.0)], [({}, 5.0), ({}, 5.01)])
    assert repeat.summary([change]) == (
        "ratios: 99 % of 1000 cases within 5 %, worst 8.0 % · "
        "times: 50 % of 2 cases within 5 %, worst 5.0 %"
    )


def test_large_differences_stay_inside_the_panel():
    first = a_run(1)
    for factor in (1.0, 40.0, 0.01):
        figure = figure_of(first, scaled(first, time=factor))
        axes = figure.axes[1]
        low, high = axes.get_ylim()
        assert all(low < y < high for _, y in points(axes))
        assert low < -10 and high > 10, "both bands are visible"
        for changes in figure.axes[1], figure.axes[3]:
            places = changes.transData.transform([(512, y) for y in changes.get_yticks()])[:, 1]
            assert min(np.diff(places)) >= 10.9, "the texts of the ticks do not overlap"
    clear_labels(figure_of(first, a_run(2)))


def test_cases_of_one_run_alone_are_noted():
    first, second = a_run(1), a_run(2)
    gone = next(r for r in first if (r["method"], r["query_len"]) == ("linear", 1024))
    failed = missing("lsh-1", 2048, "timeout", heads=4, batch=1, baseline="sdpa")
    figure = figure_of(
        [r for r in first if r is not gone],
        [failed if (r["method"], r["query_len"]) == ("lsh-1", 2048) else r for r in second],
    )
    shown = " ".join(texts(figure))
    assert "Measured in the first run alone: lsh-1 at N = 2k." in shown
    assert "Measured in the second run alone: linear at N = 1k." in shown


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ([r | {"ratio_median": None} for r in a_run(2)], "`ratio_median`"),
        ([r | {"baseline": "softmax"} for r in a_run(2)], "same baseline in both runs"),
        ([r | {"seed": 1} for r in a_run(2)], "second run has no case of the row Forward"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(tmp_path, second, said):
    one, two = two_runs(tmp_path, second=second)
    error = refusal(SCRIPT, one, two)
    assert str(one) in error and str(two) in error and said in error
    assert not list(tmp_path.glob("repeat.*"))


def test_two_folders_are_needed(tmp_path):
    one, _ = two_runs(tmp_path / "a")
    other, _ = two_runs(tmp_path / "b")
    assert "expected the folders of two runs, found 1" in refusal(SCRIPT, one)
    assert "expected --out" in refusal(SCRIPT, one, other)
    assert "records.jsonl" in refusal(SCRIPT, one, tmp_path / "a" / "run-3")
