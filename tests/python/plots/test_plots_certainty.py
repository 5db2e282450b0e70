"""Tests of what figures say about how sure their numbers are: rings, bands and ratios."""

import importlib

import numpy as np
import pytest
from test_plots import (
    certainty,
    clear_labels,
    complete,
    curves,
    drawn,
    measured,
    missing,
    refusal,
    run,
    scaling,
    sheet,
    split,
    texts,
    write,
)

decode, ratios = (
    importlib.import_module(f"attnplots.{name}") for name in ("figures.decode", "records.ratios")
)

LENGTHS = (512, 1024, 2048, 4096)
QUIET = {"noise_target": 0.02, "time_ci_scope": "across processes", "processes": 9}


def quiet(method="linear", n=512, ms=1.0, reach=0.01, **other):
    """A record of nine processes whose interval reaches `reach` to both sides, relatively."""
    record = complete(measured(method, n, ms, **(QUIET | {"schema_version": 6})))
    whole = record["time_median_ms"]
    bounds = {"time_ci_low_ms": whole * (1 - reach), "time_ci_high_ms": whole * (1 + reach)}
    return record | bounds | other


def with_ratio(method, n, ratio, baseline="sdpa", **other):
    """A record with a ratio to a baseline, from nine processes."""
    columns = {
        "baseline": baseline, "ratio_pairing": "turns", "ratio_median": ratio,
        "ratio_ci_low": 0.99 * ratio, "ratio_ci_high": 1.01 * ratio,
        "process_ratios": [ratio] * 9, "baseline_median_ms": 1.0,
    }  # fmt: skip
    return quiet(method, n, ratio * n, **(columns | other))


def baseline_itself(n, **other):
    """A record of sdpa in a sweep whose baseline is sdpa: it has a time and no ratio."""
    return quiet("sdpa", n, n, baseline="sdpa", **other)


def with_ratios():
    rows = [with_ratio("linear", n, 512 / n) for n in LENGTHS]
    rows += [with_ratio("softmax", n, 3.0) for n in LENGTHS[:2]]
    rows += [complete(missing("softmax", n, "predicted_oom", "skipped")) for n in LENGTHS[2:]]
    return rows + [baseline_itself(n) for n in LENGTHS]


def rings(figure):
    """The coordinates of the ringed points of each panel."""
    return [
        {(float(x), float(y)) for line in axes.get_lines() if line.get_gid() == "ring"
         for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)}
        for axes in figure.axes
    ]  # fmt: skip


def said(figure, start):
    """The notes of the figure that begin with `start`, without line breaks."""
    return " ".join(texts(figure)).partition(start)[2]


def bands(axes):
    return [part for part in axes.collections if hasattr(part, "get_data")]


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"reach": 0.13}, "noisier than usual (beyond ±10 %)"),
        ({"time_ci_low_ms": 0.1}, "noisier than usual (beyond ±10 %)"),
        ({"disturbed_processes": 1}, "disturbed"),
        ({"suspect": "page faults"}, "suspect"),
        ({"implausible": "too short"}, "implausible"),
    ],
)
def test_a_doubtful_point_is_ringed_and_the_note_says_why(columns, name):
    rows = [quiet(n=n, ms=n) for n in LENGTHS[:3]] + [quiet(n=4096, ms=7.0, **columns)]
    figure = drawn(rows)
    assert rings(figure) == [{(4096.0, 7.0)}, set()], "memory is counted, so it is not doubtful"
    assert f"Ringed: {name} (1 of 4 points)." in " ".join(texts(figure))


def test_a_figure_without_doubtful_points_has_no_ring_and_no_note():
    figure = drawn([quiet(n=n, ms=n, disturbed_processes=0) for n in LENGTHS])
    assert not any(rings(figure)) and "Ringed" not in " ".join(texts(figure))


def test_the_note_lists_the_doubts_that_occur_and_counts_each_point_once():
    rows = [quiet(n=512, reach=0.5, suspect="page faults"), quiet(n=1024, disturbed_processes=2)]
    rows += [quiet(n=n, ms=3.0) for n in (256, 2048)] + [missing("linear", 4096, "oom", suspect="page faults")]
    note = (
        "Ringed: noisier than usual (beyond ±10 %), disturbed or suspect (2 of 4 points). "
        "A small difference from a noisy point may be noise."
    )
    assert note in " ".join(texts(drawn(rows)))
    rows[1] |= {"noise_target": 0.3, "time_ci_low_ms": 0.1}
    assert "Ringed: noisier than usual, disturbed or" in " ".join(texts(drawn(rows)))


@pytest.mark.parametrize("draw", [scaling.describe, decode.describe])
def test_a_doubt_of_most_points_is_in_a_note_and_has_no_rings(draw):
    rows = [quiet(n=n, ms=n, reach=0.5) for n in LENGTHS[:3]] + [quiet(n=4096, ms=7.0, suspect="page faults")]
    figure = drawn(rows, draw)
    assert [ring for ring in rings(figure) if ring] == [{(4096.0, 7.0)}]
    shown = " ".join(texts(figure))
    assert "Most points are noisier than usual (beyond ±10 %) (3 of 4 points), and have no rings for it." in shown
    assert "Ringed: suspect (1 of 4 points)." in shown


def only(draw):
    """A function that draws records whose figure has one sheet."""

    def drawn_sheet(found):
        result = draw(found)
        return result if not isinstance(result, dict) else next(iter(result.values()))

    return drawn_sheet


@pytest.mark.parametrize("draw", [scaling.describe, decode.describe, only(scaling.describe_kinds)])
def test_every_figure_of_curves_rings_a_point_once(draw):
    rows = [quiet(m, n, n, protocol="decode") for m in ("favor", "lsh-1") for n in LENGTHS]
    rows[2] |= {"suspect": "page faults"}
    figure = drawn(rows, draw)
    assert [ring for ring in rings(figure) if ring] == [{(2048.0, 2048.0)}]
    assert "(1 of 8 points)" in " ".join(texts(figure))


def test_records_of_older_schemas_are_ringed_by_their_interval_alone():
    old = {"schema_version": 6, "time_ci_scope": None, "processes": 1, "noise_target": 0.02}
    figure = drawn([measured(n=512, **old), measured(n=1024, ms=2.0, **(old | {"noise_target": 0.2}))])
    assert rings(figure)[0] == {(512.0, 1.0)}


def test_imported_values_are_not_ringed():
    rows = [quiet(), quiet("softmax", reach=0.5, external_source="a paper")]
    assert not any(rings(drawn(rows)))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "95 % intervals across processes, often narrower"),
        ({"time_ci_scope": "range of processes"}, "ranges of the medians of two to five processes, often narrower"),
        ({"time_ci_scope": "within process"}, "95 % intervals within one process, which leave out"),
        ({"time_ci_scope": None, "processes": 1}, "95 % intervals within one process,"),
        ({"time_ci_scope": None, "processes": 8}, "95 % intervals across processes, often narrower"),
    ],
)
def test_the_note_says_what_the_bands_are(columns, words):
    figure = drawn([quiet(n=n, **columns) for n in LENGTHS])
    assert said(figure, "Bands: ").startswith(words)
    assert "No bands" not in " ".join(texts(figure))
    assert figure.axes[0].collections


def test_the_quartiles_of_one_process_are_no_band():
    one = {"time_ci_scope": "spread within process", "processes": 1}
    figure = drawn([quiet(n=n, **one) for n in LENGTHS])
    assert not figure.axes[0].collections
    assert said(figure, "No bands: ").startswith("every point is of a single process")
    assert "Bands:" not in " ".join(texts(figure))
    figure = drawn([quiet(n=n, **(one if n == 512 else {})) for n in LENGTHS])
    assert said(figure, "No bands: ").startswith("points of a single process")
    assert "Bands: 95 % intervals across processes" in " ".join(texts(figure))
    (curve,) = curves.curves(split([quiet(n=n, **one) for n in LENGTHS])[0], curves.TIME)
    assert np.isnan(curve.low).all() and np.isnan(curve.high).all()


@pytest.mark.parametrize(
    "describe", [scaling.describe_ratio, decode.describe_ratio, only(scaling.describe_kinds_ratio)]
)
def test_ratios_are_drawn_with_a_line_at_one(describe):
    figure = drawn(with_ratios(), describe)
    axes = figure.axes[0]
    drawn_lines = {tuple(line.get_ydata()) for panel in figure.axes for line in panel.get_lines()}
    assert (1, 1) in drawn_lines, "the line at 1"
    assert (1.0, 0.5, 0.25, 0.125) in drawn_lines
    assert (1.0,) * 4 in drawn_lines, "the baseline itself"
    assert axes.get_yscale() == "log" and axes.get_ylim()[0] < 0.125
    shown = " ".join(texts(figure))
    assert "/ that of sdpa" in shown and "(ms)" not in shown
    assert "Bands: 95 % intervals across processes" in shown and "not recorded" not in shown
    clear_labels(figure)


def test_the_axis_of_ratios_contains_one():
    rows = [with_ratio("linear", n, 100.0) for n in LENGTHS]
    low, high = drawn(rows, scaling.describe_ratio).axes[0].get_ylim()
    assert low < 1 < 100 < high


def test_a_ratio_is_ringed_by_its_own_interval():
    rows = [with_ratio("linear", n, 2.0, reach=0.5) for n in LENGTHS]
    assert not any(rings(drawn(rows, scaling.describe_ratio)))
    rows[1] |= {"ratio_ci_high": 2.2}
    rows.append(baseline_itself(512, suspect="page faults"))
    assert rings(drawn(rows, scaling.describe_ratio))[0] == {(1024.0, 2.0)}


def test_a_case_without_a_ratio_is_noted_with_the_reason():
    rows = [with_ratio("linear", 512, 2.0), quiet("lsh-1", 512, baseline="sdpa")]
    rows += [quiet("linear", 1024, baseline="sdpa", ratio_failure_kind="oom", ratio_reason="no memory")]
    shown = " ".join(texts(drawn(rows, scaling.describe_ratio)))
    assert "1 ratio not measured (oom: no memory)" in shown
    assert "1 ratio not recorded" in shown and "no curve: lsh-1." in shown


def test_a_baseline_may_differ_in_axes():
    text = "linear query_len=512"
    more = {"baseline": text, "protocol": "decode"}
    rows = [quiet("linear", 512, **more)]
    rows += [with_ratio("linear", n, 1.1, **more) for n in LENGTHS[1:]]
    assert [ratios.is_baseline(record) for record in rows] == [True, False, False, False]
    assert not ratios.is_baseline(quiet("linear", 1024, **more))
    shown = " ".join(texts(drawn(rows, decode.describe_ratio)))
    assert "Time per token / that of linear at P = 512" in shown
    rows += [with_ratio("favor", 512, 3.0, protocol="decode")]
    shown = texts(drawn(rows, decode.describe_ratio))
    assert "Time per token / that of its baseline" in shown
    assert "Baselines: linear at P = 512, sdpa." in " ".join(shown)


@pytest.mark.parametrize("name", ["figure1", "quickstart", "methods", "decode"])
def test_quantity_ratio_writes_a_figure_of_its_own(name, tmp_path):
    folder = write(tmp_path / "set", with_ratios())
    result = run(name, folder, "--quantity", "ratio")
    assert result.returncode == 0, result.stderr
    sheet = "-forward" if name == "methods" else ""
    paths = [str(folder / f"{name}-ratio{sheet}.{kind}") for kind in ("pdf", "svg", "png")]
    assert result.stdout.splitlines() == paths
    assert sorted(map(str, folder.glob("*.*g"))) == sorted(paths[1:])


def test_records_without_ratios_are_an_error_that_names_what_is_missing(tmp_path):
    folder = write(tmp_path / "set", [measured(), baseline_itself(512)])
    error = refusal("figure1", folder, "--quantity", "ratio")
    assert str(folder / "records.jsonl") in error
    assert "`ratio_median`" in error and "`baseline`" in error
    result = run("cpu-kernels", folder, "--quantity", "ratio")
    assert result.returncode == 2 and "--quantity" in result.stderr


def test_scopes_and_doubts_are_those_that_records_have():
    scopes = {*certainty.INTERVALS, certainty.SPREAD}
    assert scopes >= {certainty.scope(quiet()), certainty.scope(measured())}
    assert certainty.doubts(quiet(time_median_ms=0.0), *curves.TIME_COLUMNS) == []
