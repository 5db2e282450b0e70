"""Tests of `attnbench plot`: what it draws of sweeps and of trainings, and what it refuses."""

import importlib
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from test_cli_train import write_training
from test_plots import (
    MAGIC,
    PLOTS,
    clear_labels,
    every_outcome,
    figure_of,
    measured,
    missing,
    refusal,
    run,
    sheet,
    style,
    texts,
    write,
)

chart, columns = (importlib.import_module(f"attnplots.{name}") for name in ("figures.chart", "records.columns"))
SCRIPT = "plot"
ENVIRONMENT = {
    "revision": "0123456789ab", "dirty": True, "build": "CPU Release", "compiler": "GNU 12.2.0",
    "torch_version": "2.11.0", "cpu_model": "Some CPU", "processors": 2,
}  # fmt: skip


def point(method="linear", seed=0, update=10, loss=1.0, seconds=2.0, **other):
    """One point of a curve; `other` replaces columns of it."""
    return {
        "schema_version": 5, "task": "copy", "method": method, "seed": seed, "device": "cpu",
        "threads": 2, "layers": 4, "heads": 8, "batch": 64, "optimizer": "radam",
        "learning_rate": 1e-3, "update": update, "training_s": seconds, "validation_loss": loss,
        "training_loss": 2 * loss,
    } | other  # fmt: skip


def points(method="linear", seed=0, factor=1.0, pace=1.0):
    """A curve of five points whose loss falls from 2 to 0.1."""
    losses = np.geomspace(2.0, 0.1, 5) * factor
    return [
        point(method, seed, 10 * (k + 1), loss, pace * (k + 1)) for k, loss in enumerate(losses)
    ]


def write_curves(folder, rows, environment=ENVIRONMENT):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "curves.jsonl").write_text("".join(f"{line}\n" for line in lines))
    if environment:
        (folder / "environment.json").write_text(json.dumps({"environment": environment}))
    return folder


def drawn(folder, conditions=(), **wanted):
    """The figure of a folder; `wanted` replaces what is drawn by default."""
    table = columns.filtered(columns.load(folder), conditions)
    usual = chart.default_request(table)
    with sheet.context():
        figure = figure_of(chart.describe(table, chart.Request(**(vars(usual) | wanted))))
        figure.draw_without_rendering()
    return figure


def lines_of(axes):
    """The curves of a panel: x and y of each line that joins several points."""
    lines = [line.get_data() for line in axes.get_lines() if line.get_linestyle() != "None"]
    return [(np.array(x, float), np.array(y, float)) for x, y in lines if len(x) > 1]


def band(axes):
    """The lowest and the highest y of the bands of a panel, at each x."""
    ends = {}
    for collection in axes.collections:
        for path in collection.get_paths():
            for x, y in path.vertices:
                low, high = ends.get(float(x), (np.inf, -np.inf))
                ends[float(x)] = (min(low, y), max(high, y))
    return ends


# ---------------------------------------------------------------- trainings


def test_a_training_is_drawn_against_updates_and_against_wall_time(tmp_path):
    rows = points("softmax", pace=2.0) + points("linear", factor=1.5)
    figure = drawn(write_curves(tmp_path, rows))
    updates, time = figure.axes
    assert {"Updates", "Wall time of the updates (s)", "Validation loss", "Task copy"} <= set(texts(figure))
    for axes, ends in ((updates, (50, 50)), (time, (5, 10))):
        linear, softmax = lines_of(axes)
        assert (linear[0][-1], softmax[0][-1]) == ends
        assert np.allclose(linear[1], np.geomspace(3.0, 0.15, 5))
        assert np.allclose(softmax[1], np.geomspace(2.0, 0.1, 5))
    assert updates.get_yscale() == "log" and updates.get_xscale() == "linear"
    assert updates.get_xlim()[0] == 0
    assert texts(figure).count("linear") == 2 and texts(figure).count("softmax") == 2
    clear_labels(figure)


def test_several_seeds_are_a_line_through_medians_with_their_range_as_band(tmp_path):
    factors, paces = (1.0, 4.0, 2.0), (1.0, 5.0, 3.0)
    rows = [p for k in range(3) for p in points("linear", k, factors[k], paces[k])]
    rows += points("softmax")
    figure = drawn(write_curves(tmp_path, rows))
    (x, y), _ = lines_of(figure.axes[1])
    assert np.allclose(y, 2 * np.geomspace(2.0, 0.1, 5)) and np.allclose(x, 3.0 * np.arange(1, 6))
    ends = band(figure.axes[0])
    assert ends[50.0] == pytest.approx((0.1, 0.4))
    said = " ".join(texts(figure))
    assert "Lines: medians of 3 seeds (softmax: 1). Bands: the ranges of the seeds." in said


def test_a_single_seed_has_no_band_and_the_note_says_so(tmp_path):
    figure = drawn(write_curves(tmp_path, points()))
    assert not band(figure.axes[0])
    assert "No bands: one seed for each line." in " ".join(texts(figure))


def test_the_corner_names_the_machine_and_the_build_and_the_notes_failed_trainings(tmp_path):
    folder = write_curves(tmp_path, points())
    failed = {"task": "copy", "method": "lsh-1", "seed": 3, "outcome": "failed", "failure_kind": "oom"}
    (folder / "trainings.jsonl").write_text(json.dumps(failed) + "\n")
    said = " ".join(texts(drawn(folder)))
    assert "Some · torch 2.11.0 · 0123456789ab with uncommitted changes" in said
    assert "Failed trainings: lsh-1 with seed 3 failed: oom." in said
    assert "2 threads · 4 layers · 8 heads · batch 64 · radam · learning rate 0.001" in said


def test_a_point_that_was_recorded_again_counts_once(tmp_path):
    rows = [*points(), point(update=50, loss=0.5, seconds=9.0)]
    x, y = lines_of(drawn(write_curves(tmp_path, rows)).axes[1])[0]
    assert (x[-1], y[-1]) == (9.0, 0.5) and len(x) == 5


def test_other_axes_of_trainings_get_panels(tmp_path):
    rows = [p | {"task": task} for task in ("copy", "speech") for p in points()]
    figure = drawn(write_curves(tmp_path, rows))
    assert len(figure.axes) == 4
    assert {"Task copy", "Task speech"} <= set(texts(figure))


def test_a_curve_of_one_point_is_visible(tmp_path):
    figure = drawn(write_curves(tmp_path, [point()]))
    assert [line.get_marker() for line in figure.axes[0].get_lines() if line.get_marker() != "None"]


def test_training_loss_is_drawn_where_there_is_no_validation(tmp_path):
    rows = [{k: v for k, v in p.items() if k != "validation_loss"} for p in points()]
    assert "Training loss" in texts(drawn(write_curves(tmp_path, rows)))


# ---------------------------------------------------------------- sweeps


def test_a_sweep_is_drawn_as_time_against_length_with_a_panel_for_each_protocol(tmp_path):
    figure = drawn(write(tmp_path / "set", every_outcome() + every_outcome("forward_backward")))
    assert len(figure.axes) == 2
    assert {"Forward", "Forward + backward", "Time per sequence (ms)"} <= set(texts(figure))
    x, y = lines_of(figure.axes[0])[0]
    assert list(x) == [512, 1024, 4096, 8192] and np.allclose(y, x / 1e3)
    said = " ".join(texts(figure))
    assert "OOM, predicted" in said and "no curve: window" in said
    clear_labels(figure)


def test_cases_without_a_point_are_marked_above_the_panel_if_x_is_the_length(tmp_path):
    rows = [measured("softmax", n, ms=n * n / 1e5, quality_row_error_median=0.0) for n in (512, 1024)]
    rows += [missing("softmax", 65536, "oom"), measured("linear", 512), measured("linear", 1024)]
    folder = write(tmp_path / "set", rows)
    for y in ("time_per_sample_ms", "quality_row_error_median"):
        figure = drawn(folder, y=y)
        (axes,) = figure.axes
        (mark,) = [artist for artist in figure.artists if artist.get_gid() == "gap"]
        assert axes.get_xlim()[1] > 65536
        assert 72 * mark.get_ydata()[0] > axes.get_window_extent().y1
        assert "OOM" in texts(figure)
    figure = drawn(folder, x=("time_per_sample_ms",), y="quality_row_error_median")
    assert not [artist for artist in figure.artists if artist.get_gid() == "gap"]
    assert "1 out of memory" in " ".join(texts(figure))


def test_exact_methods_do_not_take_the_scale_of_errors(tmp_path):
    errors = {"softmax": 2e-7, "sdpa": 3e-7, "linear": 0.5, "lsh-1": 2.0}
    rows = [measured(method, n, quality_row_error_median=error) for method, error in errors.items() for n in (512, 1024)]
    folder = write(tmp_path / "set", rows)
    figure = drawn(folder, y="quality_row_error_median")
    (axes,) = figure.axes
    assert axes.get_ylim()[0] > 0.01 and len(lines_of(axes)) == 2
    assert "Left out: exact methods, whose errors are rounding (sdpa, softmax)." in " ".join(texts(figure))
    (axes,) = drawn(folder, ["method=sdpa"], y="quality_row_error_median").axes
    assert axes.get_ylim()[1] < 1e-5, "where all methods are exact, their rounding is shown"


def test_lengths_and_times_of_sweeps_have_logarithmic_axes_and_shares_linear_ones(tmp_path):
    rows = [measured(n=n, ms=n / 512, system_share=n / 1e4) for n in (512, 1024)]
    folder = write(tmp_path / "set", rows)
    (axes,) = drawn(folder).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    (axes,) = drawn(folder, y="system_share").axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")


def test_ratios_are_drawn_where_there_is_no_time(tmp_path):
    rows = [measured(n=n, ratio_median=2.0, time_per_sample_ms=None) for n in (512, 1024)]
    assert "Ratio median" in texts(drawn(write(tmp_path / "set", rows)))


def test_facets_without_measurements_are_named_and_not_drawn(tmp_path):
    rows = [measured(), missing("softmax", 512, "unsupported", "skipped", device="cuda")]
    figure = drawn(write(tmp_path / "set", rows))
    assert len(figure.axes) == 1
    assert "Nothing was measured: Forward · cuda." in " ".join(texts(figure))


def test_a_batch_that_follows_the_length_makes_no_panels(tmp_path):
    rows = [measured(n=n) for n in (512, 1024)]
    assert len({row["batch"] for row in rows}) == 2
    assert len(drawn(write(tmp_path / "one", rows)).axes) == 1
    rows += [measured(n=n, batch=3) for n in (512, 1024)]
    assert len(drawn(write(tmp_path / "two", rows)).axes) == 3


def test_any_columns_can_be_chosen(tmp_path):
    rows = [measured(method, 512, ms=t, threads=t) for method in ("softmax", "linear") for t in (1, 2, 4)]
    folder = write(tmp_path / "set", rows)
    figure = drawn(folder, ["method=linear"], x=("threads",), y="peak_extra_bytes_per_sample")
    (x, y), *others = lines_of(figure.axes[0])
    assert list(x) == [1, 2, 4] and set(y) == {2**20} and not others
    assert {"Threads", "Peak memory per sequence, above inputs"} <= set(texts(figure))
    figure = drawn(folder, series="threads", facets=("method",))
    assert {"Forward · method linear", "Forward · method softmax", "threads 4"} <= set(texts(figure))


def test_the_interval_of_a_record_is_its_band(tmp_path):
    figure = drawn(write(tmp_path / "set", [measured(n=512), measured(n=1024)]))
    assert band(figure.axes[0])[512.0] == pytest.approx((0.9, 1.1))
    assert "Bands: 95 % intervals within one process" in " ".join(texts(figure))
    figure = drawn(write(tmp_path / "set", [measured(n=512), measured(n=1024)]), y="query_len")
    assert not band(figure.axes[0])


def test_filters_on_one_column_are_alternatives_and_on_two_are_joined(tmp_path):
    rows = [measured(m, causal=c) for m in ("softmax", "linear", "lsh-1") for c in (True, False)]
    table = columns.load(write(tmp_path / "set", rows))

    def left(*conditions):
        return [(line["method"], line["causal"]) for line in columns.filtered(table, conditions).lines]

    assert left("method=linear", "causal=true") == [("linear", True)]
    assert left("method=linear", "method=lsh-1", "causal=false") == [("linear", False), ("lsh-1", False)]
    assert len(left("time_per_sample_ms=1.0")) == 6


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--y", "tim_per_sample_ms"], "unknown column `tim_per_sample_ms`; expected a column such as time_per_sample_ms"),
        (["--x", "qery_len"], "query_len"),
        (["--series", "metod"], "unknown column `metod`; expected a column such as method"),
        (["--facet", "divice"], "device"),
        (["--y", "outcome"], "column `outcome` holds values of the type text, no numbers to draw"),
        (["--y", "gpu_power_w"], "column `gpu_power_w` has no numbers; there are numbers in time_"),
        (["--facet", "gpu"], "column `gpu` has no values"),
        (["--filter", "method"], "expected COLUMN=VALUE"),
        (["--filter", "method=softmx"], "no line has method=softmx; method is softmax"),
        (["--filter", "metod=softmax"], "unknown column `metod`"),
        (["--filter", "method=softmax", "--filter", "query_len=8192"], "no line fulfils all of"),
        (["--out", "figure.jpg"], "expected a folder, or a file that ends in .pdf, .svg, .png"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_by_name(tmp_path, words, said):
    rows = [measured("softmax", 512), measured("linear", 8192)]
    error = refusal(SCRIPT, write(tmp_path / "set", rows), *words)
    assert said in error
    assert not list((tmp_path / "set").glob("plot.*"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "curves.jsonl:2: expected a JSON object"),
        ("[]", "curves.jsonl:2: expected a JSON object, found []"),
        (json.dumps(point(update=0)), "curves.jsonl:2: expected a positive integer in `update`"),
        (json.dumps(point(validation_loss="low")), 'expected a value of the type number, or null, in `validation_loss`, found "low"'),
        (json.dumps(point(method="")), "in `method`"),
        (json.dumps(point(lose=1.0)), "unknown column `lose`"),
        (json.dumps(point(schema_version=999)), "schema_version"),
    ],
)  # fmt: skip
def test_a_malformed_point_is_an_error_that_names_the_line(tmp_path, line, said):
    folder = write_curves(tmp_path / "set", [point(), line, point()])
    assert said in refusal(SCRIPT, folder)


def test_columns_that_never_occur_together_are_refused(tmp_path):
    rows = [point(epoch=1.0, validation_loss=None), point(update=20)]
    error = refusal(SCRIPT, write_curves(tmp_path / "set", rows), "--x", "update", "--x", "epoch")
    assert "no measured line has numbers in both `validation_loss` and `epoch`" in error
    error = refusal(SCRIPT, tmp_path / "set", "--x", "update", "--x", "epoch", "--x", "training_s")
    assert "3 columns for --x; expected at most 2" in error


def test_an_incomplete_last_line_is_left_out(tmp_path):
    folder = write_curves(tmp_path, points())
    with (folder / "curves.jsonl").open("a") as file:
        file.write('{"task": "co')
    assert len(columns.load(folder).lines) == 5


def test_a_folder_without_records_is_an_error_that_names_what_is_there(tmp_path):
    assert "no such folder" in refusal(SCRIPT, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "an empty folder; expected records.jsonl or curves.jsonl" in refusal(SCRIPT, tmp_path / "empty")
    for machine in ("machine", "other"):
        write_curves(tmp_path / "some" / machine, points())
    error = refusal(SCRIPT, tmp_path / "some")
    assert "found machine, other" in error and "there are some in machine, other" in error
    assert "not a folder" in refusal(SCRIPT, tmp_path / "some/machine/curves.jsonl")


def test_a_folder_of_skipped_cases_alone_says_why_nothing_is_drawn(tmp_path):
    rows = [missing("linear", n, "unsupported", "skipped", reason="it has no causal form") for n in (512, 1024)]
    said = refusal(SCRIPT, write(tmp_path / "set", rows))
    assert "no case was measured (2 skipped: unsupported)" in said and "it has no causal form" in said


def test_too_many_series_and_panels_are_refused(tmp_path):
    rows = [measured(n=512 + k, ms=1.0 + k) for k in range(50)]
    folder = write(tmp_path / "set", rows)
    assert "has 50 values; expected at most 26" in refusal(SCRIPT, folder, "--series", "query_len")
    assert "50 panels" in refusal(SCRIPT, folder, "--facet", "time_per_sample_ms")


def test_an_environment_that_cannot_be_read_is_an_error(tmp_path):
    folder = write_curves(tmp_path / "set", points())
    (folder / "environment.json").write_text('{"environment": 3}')
    assert "environment.json: expected an object" in refusal(SCRIPT, folder)


# ---------------------------------------------------------------- files and the driver


def test_the_folder_of_a_single_machine_is_drawn_into_that_folder(tmp_path):
    write_curves(tmp_path / "some" / "machine", points())
    assert run(SCRIPT, tmp_path / "some").returncode == 0
    assert (tmp_path / "some/machine/curves.svg").is_file()


def test_out_is_a_folder_for_three_files_or_one_file(tmp_path):
    folder = write_curves(tmp_path / "set", points())
    assert run(SCRIPT, folder, "--out", tmp_path / "figures").returncode == 0
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"curves.pdf", "curves.svg", "curves.png"}
    assert run(SCRIPT, folder, "--out", tmp_path / "one" / "loss.svg").returncode == 0
    (file,) = (tmp_path / "one").iterdir()
    assert file.name == "loss.svg" and file.read_bytes().startswith(MAGIC["svg"])


def test_the_command_draws_with_its_options(attnbench, tmp_path):
    folder = write(tmp_path / "set", every_outcome() + every_outcome("forward_backward"))
    done = attnbench(
        "plot", folder, "--y", "peak_extra_bytes_per_sample", "--filter", "protocol=forward",
        "--filter", "method=linear", "--series", "method", "--facet", "device", "--x", "query_len", "--out", "here.svg",
    )  # fmt: skip
    assert done.stdout == "here.svg\n"
    assert (tmp_path / "here.svg").read_bytes().startswith(MAGIC["svg"])
    error = attnbench("plot", folder, "--y", "tim_per_sample_ms", code=2).stderr
    assert error.startswith(f"attnbench: {folder}/records.jsonl: unknown column `tim_per_sample_ms`")


def test_a_folder_whose_name_begins_with_a_dash_is_drawn(attnbench, tmp_path):
    write_curves(tmp_path / "-x", points())
    attnbench("plot", "--out", "here.svg", "--", "-x")
    assert (tmp_path / "here.svg").exists()


def fake_python(path, body):
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_the_script_gets_every_option(attnbench, tmp_path):
    python = fake_python(tmp_path / "python", 'printf "%s\\n" "$@"')
    options = ["x=a", "x=b", "y=c", "series=d", "facet=e", "facet=f", "filter=g=1", "filter=h=i j", "out=k"]
    done = attnbench("plot", "folder", "--python", python, *[f"--{option}" for option in options])
    assert done.stdout.splitlines() == [f"{ROOT}/plots/run.py", "plot", *[f"--{option}" for option in options], "--", "folder"]
    done = attnbench("verdicts", "folder", "--python", python, "--claims=a")
    assert done.stdout.splitlines() == [f"{ROOT}/plots/run.py", "verdicts", "--claims=a", "--format=text", "--", "folder"]


def test_without_python_the_command_to_run_is_printed(attnbench, tmp_path):
    folder = write_curves(tmp_path / "a set", points())
    error = attnbench("plot", folder, "--python", tmp_path / "none", code=2).stderr
    assert f"no Python at {tmp_path}/none" in error
    assert f"{tmp_path}/none {ROOT}/plots/run.py plot -- '{folder}'" in error


def test_without_matplotlib_the_command_to_run_is_printed(attnbench, tmp_path):
    folder = write_curves(tmp_path / "it's", points())
    python = fake_python(tmp_path / "python", 'echo "run.py plot: No module named matplotlib" >&2; exit 3')
    error = attnbench("plot", folder, "--python", python, code=2).stderr
    assert "No module named matplotlib" in error and "requirements.txt" in error
    assert f"{python} {ROOT}/plots/run.py plot -- '{tmp_path}/it'\\''s'" in error


def test_the_script_says_with_its_exit_code_that_a_package_is_missing(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('No module named matplotlib', name='matplotlib')")
    for name in ("plot", "images"):
        done = subprocess.run(
            [sys.executable, PLOTS / "run.py", name, tmp_path], capture_output=True, text=True, check=False,
            env={"PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (3, f"run.py {name}: No module named matplotlib\n")


def test_a_script_that_breaks_is_an_error_that_says_how(attnbench, tmp_path):
    folder = write_curves(tmp_path / "set", points())
    python = fake_python(tmp_path / "python", "echo broken >&2; exit 5")
    assert "run.py ended with exit code 5; it said: broken" in attnbench("plot", folder, "--python", python, code=2).stderr
    python = fake_python(tmp_path / "python", "kill -9 $$")
    assert "ended by signal 9; it said: nothing" in attnbench("plot", folder, "--python", python, code=2).stderr


def test_a_training_ends_with_its_curves(attnbench, tmp_path):
    file = write_training(tmp_path / "small.toml")
    done = attnbench("train", file, "--out", "out")
    assert "out: drawn as curves.svg, curves.png and curves.pdf" in done.stderr
    for kind, magic in MAGIC.items():
        assert (tmp_path / f"out/curves.{kind}").read_bytes().startswith(magic)
    (tmp_path / "out/curves.pdf").unlink()
    (tmp_path / "out/curves.pdf").mkdir()
    done = attnbench("train", file, "--out", "out", "--quiet")
    assert "drawn" not in done.stderr
    done = attnbench("train", file, "--out", "out")
    assert "out: the curves were not drawn:" in done.stderr and "curves.pdf" in done.stderr


def test_the_command_draws_only_the_methods_and_in_the_width_that_are_asked_for(attnbench, tmp_path):
    rows = [measured(method, n) for method in ("softmax", "linear", "lsh:rounds=4,chunk=8") for n in (512, 1024)]
    folder = write(tmp_path / "set", rows)

    def drawn(*options):
        attnbench("plot", folder, "--out", tmp_path / "figure.svg", *options)
        return (tmp_path / "figure.svg").read_text()

    page, column = drawn(), drawn("--width", "column", "--methods", "softmax,lsh:rounds=4,chunk=8")
    assert ">linear</text>" in page and ">linear</text>" not in column and ">softmax</text>" in column
    widths = [float(re.search(r'width="([\d.]+)pt"', svg)[1]) for svg in (page, column)]
    assert widths == [style.WIDTHS["page"], style.WIDTHS["column"]]
    assert ">softmax</text>" not in drawn("--methods", "linear", "--methods", "lsh")
    message = attnbench("plot", folder, "--methods", "linaer", code=2).stderr
    assert "--methods: no record of linaer; there are softmax, linear, lsh:rounds=4,chunk=8" in message
    assert "--width = 'wide', expected one of column, page" in attnbench("plot", folder, "--width", "wide", code=2).stderr
