"""Tests of the plotting scripts: the records that they read or refuse, and what they draw."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import HANG_S
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D
from matplotlib.text import Text

ROOT = Path(__file__).resolve().parents[2]
PLOTS = ROOT / "plots"
# The scripts that draw the records of a folder; gate.py draws a calibration, repeat.py two folders,
# images.py arrays, rivals.py ratios, gpu-grid.py the records of a GPU (test_plots_roofline.py), and limits.py and verdicts.py print
# tables.
OTHERS = ("gate", "repeat", "images", "rivals", "gpu-grid", "limits", "verdicts")
SCRIPTS = sorted(path for path in PLOTS.glob("*.py") if path.stem not in OTHERS)
# By script that draws several figures: their names.
STEMS = {"methods": ("methods", "methods-error")}
sys.path.insert(0, str(PLOTS))

certainty, curves, labels, records, scaling, schema, style, ticks = (
    importlib.import_module(f"attnplots.{name}")
    for name in ("certainty", "curves", "labels", "records", "scaling", "schema", "style", "ticks")
)
SCHEMA = schema.read(schema.COPY)

MAGIC = {"pdf": b"%PDF-", "svg": b"<?xml", "png": b"\x89PNG\r\n\x1a\n"}
CEILINGS = dict.fromkeys(
    ("read_gb_s", "copy_gb_s", "fma_float32_gflop_s", "fma_float64_gflop_s", "threads"), 4
)
LENGTHS = [512, 1024, 2048, 4096, 8192]
MANY = [
    "softmax", "sdpa", "linear", "linear-einsum", "linear:chunk=64", "linear:chunk=256",
    "lsh-1", "lsh-4", "lsh-8", "favor", "window", "sparse", "kernel", "pooled", "rank",
    "mixed", "hashed",
]  # fmt: skip


def measured(method="softmax", n=512, ms=1.0, memory=2**20, **other):
    """The record of a case with this time and memory per sample; `other` replaces columns of it."""
    batch = max(1, 4096 // n)
    record = {
        "schema_version": 1, "method": method, "device": "cpu", "dtype": "float32",
        "protocol": "forward", "batch": batch, "heads": 8, "query_len": n, "key_len": n,
        "head_dim": 64, "value_dim": 64, "causal": False, "key_lengths": None, "threads": 4,
        "cache": "warm", "seed": 0, "outcome": "measured", "failure_kind": None, "reason": None,
        "time_per_sample_ms": ms, "time_median_ms": ms * batch,
        "time_ci_low_ms": 0.9 * ms * batch, "time_ci_high_ms": 1.1 * ms * batch,
        "peak_extra_bytes_per_sample": memory, "cpu_model": "Some(R) CPU @ 2.00GHz", "gpu": None,
        "flops": 1e9, "min_bytes": 1e6,
    }  # fmt: skip
    return record | other


def missing(method, n, kind, outcome="failed", **other):
    """The record of a case without time and memory, and the kind of its failure."""
    empty = dict.fromkeys(
        ("time_per_sample_ms", "time_median_ms", "time_ci_low_ms", "time_ci_high_ms",
         "peak_extra_bytes_per_sample")
    )  # fmt: skip
    return measured(method, n, outcome=outcome, failure_kind=kind, **{**empty, **other})


def every_outcome(protocol="forward"):
    """Records of five methods at five lengths: measured, skipped and failed cases."""
    more = {"protocol": protocol}
    rows = []
    for n in LENGTHS:
        square, line = n * n / 2e5, n / 1e3
        if n < 2048:
            rows.append(measured("softmax", n, square, n * n, **more))
        else:
            rows.append(missing("softmax", n, "predicted_oom", "skipped", **more))
        if n < 8192:
            rows.append(measured("sdpa", n, square / 2, n * 900, **more))
        else:
            rows.append(missing("sdpa", n, "timeout", **more))
        if n == 2048:
            rows.append(missing("linear", n, "invalid", time_per_sample_ms=7.0, **more))
        else:
            rows.append(measured("linear", n, line, n * 1000, **more))
        rows.append(missing("window", n, "unsupported", "skipped", **more))
        if n < 8192:
            rows.append(measured("linear-einsum", n, line * 2, n * 1100, **more))
        else:
            rows.append(missing("linear-einsum", n, "oom", **more))
    return rows


def write(folder, rows, end="\n"):
    """Writes a folder of records; rows that are text become lines as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "records.jsonl").write_text("\n".join(lines) + end, encoding="utf-8")
    return folder


def run(script, *arguments):
    command = [sys.executable, str(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


def split(rows):
    return curves.split_rows(records.Records(rows, SCHEMA))


def drawn(rows, draw=scaling.draw):
    """The figure that `draw` makes of the records."""
    with style.context():
        figure = draw(records.Records(rows, SCHEMA))
        figure.draw_without_rendering()
    return figure


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def values(axes):
    """The finite y values of all lines of a panel, rounded to six digits."""
    lines = [np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()]
    return {float(f"{y:.6g}") for line in lines for y in line if np.isfinite(y)}


def clear_labels(figure):
    """The texts of the labels; fails where one overlaps another or leaves the figure."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    names = [text for text in figure.findobj(Text) if text.get_gid() == "label"]
    boxes = [text.get_window_extent(renderer) for text in names]
    for i, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1
        for k, other in enumerate(boxes[:i]):
            wide = min(box.x1, other.x1) - max(box.x0, other.x0)
            high = min(box.y1, other.y1) - max(box.y0, other.y0)
            # The boxes include the space below the base line, by which neighbours may overlap.
            assert wide <= 0 or high <= 3.0, (names[i].get_text(), names[k].get_text())
    return [text.get_text() for text in names]


def refusal(script, *arguments):
    """Runs a script that must end with an error of one line, and returns that line."""
    result = run(script, *arguments)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_each_figure_is_written_as_three_files_beside_the_records(script, tmp_path):
    folder = write(tmp_path / "set", every_outcome() + every_outcome("forward_backward"))
    if script.stem == "cpu-kernels":
        (folder / "environment.json").write_text(json.dumps({"ceilings": CEILINGS}))
    result = run(script, folder)
    assert result.returncode == 0, result.stderr
    stems = STEMS.get(script.stem, (script.stem,))
    paths = [folder / f"{stem}.{kind}" for stem in stems for kind in ("pdf", "svg", "png")]
    assert result.stdout.splitlines() == [str(path) for path in paths]
    for path in paths:
        content = path.read_bytes()
        assert content.startswith(MAGIC[path.suffix[1:]])
        assert len(content) > 5000


def test_drawing_twice_gives_the_same_bytes(tmp_path):
    folder = write(tmp_path / "set", every_outcome())
    for out in ("one", "two"):
        assert run(PLOTS / "figure1.py", folder, "--out", tmp_path / out).returncode == 0
    for kind in MAGIC:
        one, two = (tmp_path / out / f"figure1.{kind}" for out in ("one", "two"))
        assert one.read_bytes() == two.read_bytes(), kind
        assert not (folder / f"figure1.{kind}").exists()


def test_other_records_give_other_bytes(tmp_path):
    for name, ms in (("one", 1.0), ("two", 3.0)):
        folder = write(tmp_path / name, [measured(ms=ms), measured(n=1024, ms=4.0)])
        assert run(PLOTS / "quickstart.py", folder).returncode == 0
    for kind in MAGIC:
        one, two = (tmp_path / name / f"quickstart.{kind}" for name in ("one", "two"))
        assert one.read_bytes() != two.read_bytes(), kind


def test_several_folders_share_an_out_folder(tmp_path):
    folders = [write(tmp_path / name, [measured()]) for name in ("a", "b")]
    out = tmp_path / "out"
    assert run(PLOTS / "figure1.py", *folders, "--out", out).returncode == 0
    assert sorted(p.name for p in out.iterdir()) == ["a", "b"]
    assert len(list(out.glob("*/figure1.*"))) == 6
    same = write(tmp_path / "other" / "a", [measured()])
    assert "different names" in refusal(PLOTS / "figure1.py", folders[0], same, "--out", out)


def test_without_folders_a_script_draws_the_results_of_its_own_name(tmp_path):
    plots = tmp_path / "repo" / "plots"
    plots.mkdir(parents=True)
    (plots / "attnplots").symlink_to(PLOTS / "attnplots")
    script = plots / "later.py"
    script.write_text((PLOTS / "figure1.py").read_text())
    error = refusal(script)
    assert "results/later/*/records.jsonl" in error
    for name in ("later/x", "later/y", "figure1/z"):
        write(tmp_path / "repo" / "results" / name, [measured()])
    (tmp_path / "repo" / "results" / "later" / "empty").mkdir()
    result = run(script)
    assert result.returncode == 0, result.stderr
    found = sorted(p.parent.name for p in (tmp_path / "repo").glob("results/*/*/later.png"))
    assert found == ["x", "y"]


def test_an_incomplete_last_line_is_ignored(tmp_path):
    incomplete = json.dumps(measured(n=2048))[:-20]
    folder = write(tmp_path / "set", [measured(), measured(n=1024), incomplete], end="")
    assert [r["query_len"] for r in records.load(folder)] == [512, 1024]
    result = run(PLOTS / "figure1.py", folder)
    assert (result.returncode, result.stderr) == (0, "")
    with (folder / "records.jsonl").open("ab") as file:
        file.write(b"\n")
    assert "records.jsonl:3:" in refusal(PLOTS / "figure1.py", folder)


def test_a_last_line_that_ends_inside_a_character_is_ignored(tmp_path):
    folder = write(tmp_path / "set", [measured()])
    with (folder / "records.jsonl").open("ab") as file:
        file.write('{"method": "é'.encode()[:-1])
    assert len(records.load(folder)) == 1


def test_a_complete_last_line_without_a_line_end_is_read(tmp_path):
    folder = write(tmp_path / "set", [measured(), measured(n=1024)], end="")
    assert len(records.load(folder)) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"method": "softmax", ', "JSON object"),
        ("", "JSON object"),
        ("[1]", "found [1]"),
        (json.dumps(measured(time_per_sample_ms=float("nan"))), "NaN"),
        (json.dumps(measured(time_per_sample_ms="1")), "`time_per_sample_ms`"),
        (json.dumps(measured(time_per_sample_ms=True)), "`time_per_sample_ms`"),
        (json.dumps(measured()).replace('_ms": 1.0', '_ms": 1e999', 1), "`time_per_sample_ms`"),
        (json.dumps(measured(outcome="done")), "`outcome`"),
        (json.dumps(measured(outcome="failed", failure_kind=["oom"])), "`failure_kind`"),
        (json.dumps(measured(query_len=0)), "`query_len`"),
        (json.dumps(measured(batch=None)), "`batch`"),
        (json.dumps({"outcome": "measured"}), "`method`"),
        (json.dumps(measured(causal=1)), "true or false or null in `causal`"),
        (json.dumps(measured(threads=1.5)), "an integer or null in `threads`"),
        (json.dumps(measured(time_samples_ms=[1, "2"])), "a list of numbers or null in"),
        (json.dumps(measured(diagnostics={"depth": None})), "an object of numbers or null in"),
    ],
)
def test_a_malformed_line_is_an_error_that_names_its_place(tmp_path, line, said):
    folder = write(tmp_path / "set", [measured(), line, measured(n=1024)])
    error = refusal(PLOTS / "quickstart.py", folder)
    assert f"{folder / 'records.jsonl'}:2: " in error
    assert said in error
    assert not list(folder.glob("quickstart.*"))


def test_nothing_is_drawn_if_any_folder_is_invalid(tmp_path):
    good, bad = write(tmp_path / "good", [measured()]), write(tmp_path / "bad", ["{"])
    assert "bad" in refusal(PLOTS / "figure1.py", good, bad)
    assert not list(good.glob("figure1.*"))


def test_folders_without_a_measured_record_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    error = refusal(PLOTS / "figure1.py", tmp_path / "empty")
    assert str(tmp_path / "empty" / "records.jsonl") in error and "expected" in error
    error = refusal(PLOTS / "figure1.py", write(tmp_path / "blank", [], end=""))
    assert "no records" in error and "expected" in error
    error = refusal(PLOTS / "figure1.py", write(tmp_path / "torn", ['{"met'], end=""))
    assert "no records" in error
    nothing = [missing("softmax", 512, "predicted_oom", "skipped")]
    error = refusal(PLOTS / "figure1.py", write(tmp_path / "nothing", nothing))
    assert "records.jsonl" in error and "at least one measured" in error


def test_only_the_last_record_of_a_case_is_drawn(tmp_path):
    rows = [measured(ms=5.0), measured(n=1024, ms=20.0), measured(ms=6.0)]
    loaded = records.load(write(tmp_path / "set", rows))
    assert [r["time_per_sample_ms"] for r in loaded] == [6.0, 20.0]
    rows += [missing("softmax", 512, "invalid")]
    loaded = records.load(write(tmp_path / "set", rows))
    assert values(drawn(loaded).axes[0]) == {20.0}
    other = records.load(write(tmp_path / "set", [measured(), measured(seed=1)]))
    assert len(other) == 2
    # Records from before the axis `inputs` existed were measured with normal inputs.
    inputs = [measured(), measured(inputs=None)]
    inputs += [measured(inputs="normal"), measured(inputs="repeated")]
    loaded = records.load(write(tmp_path / "set", inputs))
    assert [r.get("inputs") for r in loaded] == ["normal", "repeated"]


def test_cases_with_other_inputs_are_separate_rows_and_old_records_have_normal_inputs(tmp_path):
    rows = [measured(), measured(inputs="normal", ms=2.0), measured(inputs="clustered")]
    loaded = records.load(write(tmp_path / "set", rows))
    assert [(r["inputs"], r["time_per_sample_ms"]) for r in loaded] == [
        ("normal", 2.0), ("clustered", 1.0),
    ]  # fmt: skip
    titles = [row.title for row in split(loaded)]
    assert titles == ["Forward · clustered inputs", "Forward · normal inputs"]


def test_names_with_dollar_signs_are_not_drawn_as_formulas(tmp_path):
    name = r"a$\frac{b$_^{c"
    folder = write(tmp_path / "set", [measured(name, cpu_model="$x^{ CPU")])
    result = run(PLOTS / "figure1.py", folder)
    assert result.returncode == 0, result.stderr
    figure = drawn(records.load(folder))
    named = [text for text in figure.findobj(Text) if text.get_text() == name]
    assert len(named) == 2 and not any(text.get_parse_math() for text in named)


def test_methods_with_a_single_length_are_drawn_as_points():
    figure = drawn([measured("softmax", 1000, 2.0), measured("linear", 1000, 1.0)])
    assert values(figure.axes[0]) == {1.0, 2.0}
    assert texts(figure).count("softmax") == 2


def test_end_marks_continue_the_slope_and_name_the_reason():
    rows = [measured("softmax", n, n * n / 512**2, n) for n in (512, 1024)]
    rows += [missing("softmax", n, "predicted_oom", "skipped") for n in (2048, 4096)]
    (row,) = split(rows)
    for measure, y in ((curves.TIME, 16.0), (curves.MEMORY, 2048)):
        (curve,) = curves.curves(row, measure)
        assert (curve.end.n, curve.end.words) == (2048, "out of memory (predicted)")
        assert curve.end.y == pytest.approx(y)
    figure = drawn(rows)
    for axes in figure.axes:
        crosses = [line for line in axes.get_lines() if line.get_marker() == "x"]
        assert [list(line.get_xdata()) for line in crosses] == [[2048]]
        assert axes.get_xlim()[1] > 2048 and axes.get_ylim()[1] > crosses[0].get_ydata()[0]


@pytest.mark.parametrize(
    ("kind", "outcome", "words"),
    [
        ("oom", "failed", "out of memory"),
        ("predicted_oom", "skipped", "out of memory (predicted)"),
        ("timeout", "failed", "over the time limit"),
        ("predicted_timeout", "skipped", "over the time limit (predicted)"),
    ],
)
def test_end_marks_say_why_a_curve_ends(kind, outcome, words):
    rows = [measured("softmax"), missing("softmax", 1024, kind, outcome)]
    shown = " ".join(texts(drawn(rows)))
    assert words in shown
    assert ("(predicted)" in shown) == ("(predicted)" in words)


def test_other_failures_are_noted_and_not_drawn():
    figure = drawn(every_outcome())
    shown = " ".join(texts(figure))
    assert "linear at N = 2k: invalid" in shown
    assert "window: not supported" in shown
    assert "window" not in texts(figure)
    assert 7.0 not in values(figure.axes[0])
    lines = [line for line in figure.axes[0].get_lines() if np.isnan(line.get_ydata()).any()]
    assert lines, "a line ran across the length that failed"


def test_values_that_are_missing_or_not_positive_are_noted():
    rows = [measured("softmax", 512), measured("softmax", 1024, memory=0)]
    empty = {"time_per_sample_ms": None, "memory": None}
    rows += [measured("linear", n, **empty) for n in (512, 1024)]
    rows += [missing("sdpa", n, "oom") for n in (512, 1024)]
    shown = " ".join(texts(drawn(rows)))
    for said in (
        "softmax at N = 1k: memory is not above 0",
        "linear: time not recorded",
        "linear: memory not recorded",
        "sdpa: out of memory",
    ):
        assert said in shown


def test_intervals_are_divided_by_the_batch_size():
    record = measured(n=1024, ms=2.0, batch=4, time_ci_low_ms=7.0, time_ci_high_ms=9.0)
    assert curves.time_value(record) == (2.0, 1.75, 2.25)


def test_each_setting_has_a_row_of_panels():
    rows = every_outcome("forward_backward") + every_outcome()
    figure = drawn(rows)
    assert len(figure.axes) == 4
    titles = [t for t in texts(figure) if t in ("Forward", "Forward + backward")]
    assert titles == ["Forward", "Forward + backward"]
    rows = [measured(), measured(causal=True), measured(device="cuda", gpu="Some GPU")]
    titles = [row.title for row in split(rows)]
    assert titles == [
        "Forward · not causal · cpu",
        "Forward · not causal · cuda",
        "Forward · causal · cpu",
    ]
    assert any("Some GPU" in text for text in texts(drawn(rows)))
    seeds = split([measured(seed=0), measured(seed=1)])
    assert [row.title for row in seeds] == ["Forward · seed 0", "Forward · seed 1"]
    assert len(split([measured(n=512), measured(n=1024)])) == 1


def test_labels_do_not_overlap_and_stay_inside_the_figure():
    rows = every_outcome() + every_outcome("forward_backward")
    crowd = [
        measured(m, n, (n + 40 * k) / 1e3, n * (1000 + k))
        for k, m in enumerate(MANY)
        for n in LENGTHS
    ]
    for case in (rows, crowd):
        figure = drawn(case)
        names = clear_labels(figure)
        assert len(names) >= 2 * len({r["method"] for r in case if r["outcome"] == "measured"})


def test_moved_labels_have_leaders():
    def leaders(figure):
        return [artist for artist in figure.artists if isinstance(artist, Line2D)
                and artist.get_alpha()]  # fmt: skip

    apart = [measured(m, n, k * n, k * n) for m, k in (("softmax", 1), ("linear", 99))
             for n in LENGTHS]  # fmt: skip
    close = [record | {"time_per_sample_ms": record["query_len"]} for record in apart]
    assert not leaders(drawn(apart))
    assert len(leaders(drawn(close))) == 2


def test_spread_keeps_the_order_and_avoids_overlap():
    assert labels.spread([10, 50], [10, 10], 0, 100) == [10, 50]
    assert labels.spread([50, 50], [10, 10], 0, 100) == [45, 55]
    assert labels.spread([98, 99], [10, 20], 0, 100) == [75, 90]
    assert labels.spread([0, 1, 80], [10, 10, 10], 0, 100) == [5, 15, 80]


def test_place_avoids_lines_labels_and_edges():
    frame, size, tip = labels.Box(0, 0, 200, 200), (60, 10), (100, 100)
    nothing = np.empty((0, 2))
    _, free = labels.place(tip, [size], nothing, [], frame)
    assert free.nearest(*tip)[1] == tip[1], "with free space on all sides, it is level with the tip"
    line = np.array([(x, 100.0) for x in np.arange(0.0, 200.0)])
    _, box = labels.place(tip, [size], line, [], frame)
    assert not box.holds(line)
    _, box = labels.place(tip, [size], nothing, [free], frame)
    assert not box.overlap(free)
    for corner in ((199, 199), (1, 1), (1, 199)):
        _, box = labels.place(corner, [size], nothing, [], frame)
        assert box.overlap(frame) == pytest.approx(600), corner
    low = labels.Box(0, 88, 200, 112)
    assert labels.place(tip, [size, (40, 20)], nothing, [], low)[0] == 0
    assert labels.place(tip, [(190, 10), (40, 20)], nothing, [], low)[0] == 1


def test_long_names_leave_room_for_the_panels():
    rows = [measured("linear: " + "very " * 60 + "long", n, n, n) for n in LENGTHS]
    figure = drawn(rows)
    assert all(axes.get_position().width > 0.2 for axes in figure.axes)
    assert any(text.startswith("linear: very") and text.endswith("…") for text in texts(figure))


def test_ticks_have_round_readable_values():
    assert ticks.lengths((512, 65536))[1] == ["512", "1k", "2k", "4k", "8k", "16k", "32k", "64k"]
    assert ticks.times((0.05, 20_000))[1] == ["0.1", "1", "10", "100", "1,000", "10,000"]
    assert ticks.times((0.9, 11))[1] == ["1", "2", "5", "10"]
    sizes = ticks.sizes((2**15, 2**33))[1]
    assert sizes == ["64 KiB", "1 MiB", "16 MiB", "256 MiB", "4 GiB"]


def test_the_style_of_a_method_depends_on_its_name_alone_and_is_unique():
    everything = style.styles(MANY)
    assert len({(look.marker, look.hollow) for look in everything.values()}) == len(MANY)
    assert everything == style.styles(reversed(MANY))
    assert style.styles(["linear"])["linear"] == everything["linear"]
    for look in everything.values():
        assert 1.05 / (style.luminance(look.text_colour) + 0.05) >= 4.5


def test_the_main_methods_can_be_told_apart_in_greyscale():
    looks = style.styles(["softmax", "sdpa", "linear", "linear-einsum"])
    light = sorted(116 * style.luminance(v.colour) ** (1 / 3) - 16 for v in looks.values())
    assert min(np.diff(light)) > 10
    assert len({look.dash for look in looks.values()}) >= 3


def committed():
    """Parameters of a test: each plotting script with each folder of results of its name."""
    return [
        pytest.param(script, path.parent, id=f"{script.stem}-{path.parent.name}")
        for script in SCRIPTS
        for path in sorted((ROOT / "results" / script.stem).glob("*/records.jsonl"))
    ]


@pytest.mark.parametrize(
    ("script", "folder"),
    committed()
    or [pytest.param(None, None, marks=pytest.mark.skip(reason="no results/*/*/records.jsonl"))],
)
def test_the_results_of_the_project_can_be_drawn(script, folder, tmp_path):
    result = run(script, folder, "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    for stem in STEMS.get(script.stem, (script.stem,)):
        for kind, magic in MAGIC.items():
            assert (tmp_path / f"{stem}.{kind}").read_bytes().startswith(magic)
