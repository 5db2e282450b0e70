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

ROOT = Path(__file__).resolve().parents[3]
PLOTS = ROOT / "plots"
# By script that draws several sheets: the ends of their names for every_outcome() in both passes.
SHEETS = {
    "methods": ("-forward", "-forward-backward"),
    "cpu-kernels": ("-forward-float32", "-forward-backward-float32"),
}
# By script: how many sheets the results of the project have.
COMMITTED_SHEETS = {"methods": 3, "cpu-kernels": 4}
sys.path.insert(0, str(PLOTS))

certainty, curves, entry, files, labels, records, scaling, schema, sheet, style, ticks = (
    importlib.import_module(f"attnplots.{name}")
    for name in ("records.certainty", "records.rows", "entry", "marks.files", "marks.labels", "records.records", "figures.scaling", "records.schema", "marks.sheet", "figures.style", "figures.ticks")
)
# The figures of the times and rates of records; the others have tests of their own.
SCRIPTS = ("cpu-kernels", "decode", "figure1", "latency", "methods", "quickstart")

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
    """The record of a case with this time and memory per sequence; `other` replaces columns of it."""
    batch = max(1, 4096 // n)
    record = {
        "schema_version": 6, "method": method, "device": "cpu", "dtype": "float32",
        "protocol": "forward", "batch": batch, "heads": 8, "query_len": n, "key_len": n,
        "head_dim": 64, "value_dim": 64, "causal": False, "key_lengths": "full", "threads": 4,
        "inputs": "normal", "concentration": 1.0, "cache": "warm", "allocation": "kept", "graph": False, "seed": 0,
        "outcome": "measured", "failure_kind": None, "reason": None,
        "time_per_sample_ms": ms, "time_median_ms": ms * batch,
        "time_ci_low_ms": 0.9 * ms * batch, "time_ci_high_ms": 1.1 * ms * batch,
        "peak_extra_bytes_per_sample": memory, "cpu_model": "Some(R) CPU @ 2.00GHz", "gpu": None,
        "flops": 1e9, "min_bytes": 1e6,
    }  # fmt: skip
    return record | other


def complete(record):
    """The record with the defaults of the axes that it lacks, which the driver insists on in records of the current schema."""
    axes = schema.current().axes
    whole = {axis.name: axis.default for axis in axes} | record
    for axis in axes:
        if whole[axis.name] is None and axis.follows:
            whole[axis.name] = whole[axis.follows]
    return whole


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
    command = [sys.executable, str(PLOTS / "run.py"), script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


def starter(root, name):
    """A function that draws the figure `name` in a project of its own at `root`."""
    plots = root / "plots"
    plots.mkdir(parents=True)
    (plots / "attnplots").symlink_to(PLOTS / "attnplots")
    (plots / "run.py").write_text((PLOTS / "run.py").read_text())
    command = [sys.executable, plots / "run.py", name]
    return lambda: subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


def split(rows):
    return curves.split_rows(records.Records(rows))


def figure_of(described):
    """The figure of a description, or those of several by their names."""
    if isinstance(described, dict):
        return {name: files.draw(one) for name, one in described.items()}
    return files.draw(described)


def drawn(rows, describe=scaling.describe):
    """The figure of what `describe` makes of the records."""
    with sheet.context():
        figure = figure_of(describe(records.Records(rows)))
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
    # Outside this context the letters of a text have other distances.
    with sheet.context():
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


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_figure_is_written_as_three_files_beside_the_records(script, tmp_path):
    folder = write(tmp_path / "set", every_outcome() + every_outcome("forward_backward"))
    if script == "cpu-kernels":
        (folder / "environment.json").write_text(json.dumps({"ceilings": CEILINGS}))
    result = run(script, folder)
    assert result.returncode == 0, result.stderr
    stems = [f"{script}{end}" for end in SHEETS.get(script, ("",))]
    paths = [folder / f"{stem}.{kind}" for stem in stems for kind in ("pdf", "svg", "png")]
    assert result.stdout.splitlines() == [str(path) for path in paths]
    for path in paths:
        content = path.read_bytes()
        assert content.startswith(MAGIC[path.suffix[1:]])
        assert len(content) > 5000


def test_drawing_twice_gives_the_same_bytes(tmp_path):
    folder = write(tmp_path / "set", every_outcome())
    for out in ("one", "two"):
        assert run("figure1", folder, "--out", tmp_path / out).returncode == 0
    for kind in MAGIC:
        one, two = (tmp_path / out / f"figure1.{kind}" for out in ("one", "two"))
        assert one.read_bytes() == two.read_bytes(), kind
        assert not (folder / f"figure1.{kind}").exists()


def test_other_records_give_other_bytes(tmp_path):
    for name, ms in (("one", 1.0), ("two", 3.0)):
        folder = write(tmp_path / name, [measured(ms=ms), measured(n=1024, ms=4.0)])
        assert run("quickstart", folder).returncode == 0
    for kind in MAGIC:
        one, two = (tmp_path / name / f"quickstart.{kind}" for name in ("one", "two"))
        assert one.read_bytes() != two.read_bytes(), kind


def test_several_folders_share_an_out_folder(tmp_path):
    folders = [write(tmp_path / name, [measured()]) for name in ("a", "b")]
    out = tmp_path / "out"
    assert run("figure1", *folders, "--out", out).returncode == 0
    assert sorted(p.name for p in out.iterdir()) == ["a", "b"]
    assert len(list(out.glob("*/figure1.*"))) == 6
    same = write(tmp_path / "other" / "a", [measured()])
    assert "different names" in refusal("figure1", folders[0], same, "--out", out)


def test_without_folders_the_results_of_the_name_are_drawn(tmp_path):
    start = starter(tmp_path / "repo", "quickstart")
    assert "results/quickstart/*/records.jsonl" in start().stderr
    for name in ("quickstart/x", "quickstart/y", "figure1/z"):
        write(tmp_path / "repo" / "results" / name, [measured()])
    (tmp_path / "repo" / "results" / "quickstart" / "empty").mkdir()
    result = start()
    assert result.returncode == 0, result.stderr
    found = sorted(p.parent.name for p in (tmp_path / "repo").glob("results/*/*/quickstart.png"))
    assert found == ["x", "y"]


def test_an_incomplete_last_line_is_ignored(tmp_path):
    incomplete = json.dumps(measured(n=2048))[:-20]
    folder = write(tmp_path / "set", [measured(), measured(n=1024), incomplete], end="")
    assert [r["query_len"] for r in records.load(folder)] == [512, 1024]
    result = run("figure1", folder)
    assert (result.returncode, result.stderr) == (0, "")
    with (folder / "records.jsonl").open("ab") as file:
        file.write(b"\n")
    assert "records.jsonl:3:" in refusal("figure1", folder)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"method": "softmax", ', "not a record: syntax error"),
        ("[1]", "not a record: a record is array"),
        (json.dumps(measured(time_per_sample_ms="1")), "time_per_sample_ms"),
        (json.dumps(measured(time_samples_ms=[1, "2"])), "time_samples_ms"),
        (json.dumps(measured(window=64)), "a record has no column 'window'"),
    ],
)
def test_a_malformed_line_is_an_error_that_names_its_place(tmp_path, line, said):
    folder = write(tmp_path / "set", [measured(), line, measured(n=1024)])
    error = refusal("quickstart", folder)
    assert f"{folder / 'records.jsonl'}:2:" in error
    assert said in error
    assert not list(folder.glob("quickstart.*"))


def test_nothing_is_drawn_if_any_folder_is_invalid(tmp_path):
    good, bad = write(tmp_path / "good", [measured()]), write(tmp_path / "bad", ["{"])
    assert "bad" in refusal("figure1", good, bad)
    assert not list(good.glob("figure1.*"))


def test_folders_without_a_measured_record_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    error = refusal("figure1", tmp_path / "empty")
    assert str(tmp_path / "empty" / "records.jsonl") in error and "expected" in error
    error = refusal("figure1", write(tmp_path / "blank", [], end=""))
    assert "no records" in error and "expected" in error
    error = refusal("figure1", write(tmp_path / "torn", ['{"met'], end=""))
    assert "no records" in error
    nothing = [missing("softmax", 512, "predicted_oom", "skipped")]
    error = refusal("figure1", write(tmp_path / "nothing", nothing))
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
    # In records from before the axis `decay_positions` existed it was 20.
    rows = [measured(), measured(decay_positions=20.0), measured(decay_positions=5)]
    loaded = records.load(write(tmp_path / "set", rows))
    assert [r["decay_positions"] for r in loaded] == [20, 5]


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
    result = run("figure1", folder)
    assert result.returncode == 0, result.stderr
    figure = drawn(records.load(folder))
    named = [text for text in figure.findobj(Text) if text.get_text() == name]
    assert len(named) == 2 and not any(text.get_parse_math() for text in named)


def test_methods_with_a_single_length_have_a_dot_each_with_its_name_and_its_value():
    rows = [measured("softmax", 1000, 2.0), measured("linear", 1000, 1.0, 3 * 2**20), measured("sdpa", 1000, 40.0)]
    figure = drawn(rows)
    time, memory = figure.axes
    dots = {tuple(float(v) for v in (line.get_xdata()[0], line.get_ydata()[0])) for line in time.get_lines() if line.get_marker() != "None"}
    assert dots == {(1.0, 2.0), (2.0, 1.0), (40.0, 0.0)}, "the fastest is at the top"
    names = [text.get_text() for text in sorted(time.get_yticklabels(), key=lambda text: -text.get_position()[1])]
    assert names == ["linear", "softmax", "sdpa"]
    assert [text.get_text() for text in memory.get_yticklabels()] == [""] * 3, "a row has the names once"
    assert {"1", "2", "40", "3 MiB", "1 MiB"} <= set(texts(figure))
    assert "sequence length N = 1,000" in " ".join(texts(figure))
    assert not [line for line in time.get_lines() if len(line.get_xdata()) > 1], "no line joins anything"
    bars = [segment[:, 0].tolist() for bar in time.collections for segment in bar.get_segments()]
    assert [pytest.approx([1.8, 2.2])] == [bar for bar in bars if 1.5 < bar[0] < 2]
    lengths = drawn([*rows, measured("linear", 2000, 2.0)])
    assert "sequence length N = 1,000" not in " ".join(texts(lengths)), "several lengths have lines"


def lane_texts(figure):
    return [text.get_text() for text in figure.texts if text.get_gid() == "lane"]


def strip_marks(figure):
    """The places of the marks in strips, in points."""
    marks = [artist for artist in figure.artists if artist.get_gid() == "gap"]
    return [(72 * mark.get_xdata()[0], 72 * mark.get_ydata()[0]) for mark in marks]


@pytest.mark.parametrize(
    ("kind", "outcome", "words"),
    [
        ("oom", "failed", "OOM"),
        ("predicted_oom", "skipped", "OOM, predicted"),
        ("timeout", "failed", "time limit"),
        ("predicted_timeout", "skipped", "time limit, predicted"),
        ("invalid", "failed", "wrong result"),
        ("worker_crash", "failed", "worker crash"),
    ],
)
def test_cases_without_a_point_are_marked_in_a_strip_above_the_axes(kind, outcome, words):
    rows = [measured("softmax", n, n, n) for n in (512, 1024)]
    rows += [missing("softmax", n, kind, outcome) for n in (2048, 4096)]
    figure = drawn(rows)
    assert lane_texts(figure) == [words, words], "predicted failures are told from real ones"
    marks = strip_marks(figure)
    assert len(marks) == 2, "one in each panel, at the first length after the curve"
    for (x, y), axes in zip(marks, figure.axes, strict=True):
        assert y > axes.get_window_extent().y1, "no point has a height that was not measured"
        assert x == pytest.approx(axes.transData.transform((2048, 1))[0], abs=0.01)
        assert axes.get_xlim()[1] > 2048
        assert max(x for line in axes.get_lines() for x in line.get_xdata()) == 1024


def test_a_gap_between_points_is_marked_in_the_strip():
    figure = drawn([r for r in every_outcome() if r["method"] == "linear"])
    assert lane_texts(figure) == ["wrong result"] * 2
    assert 7.0 not in values(figure.axes[0])
    lines = [line for line in figure.axes[0].get_lines() if np.isnan(line.get_ydata()).any()]
    assert lines, "a line ran across the length that failed"
    for (x, _), axes in zip(strip_marks(figure), figure.axes, strict=True):
        assert x == pytest.approx(axes.transData.transform((2048, 1))[0], abs=0.01)


def test_marks_at_one_length_are_side_by_side():
    rows = [measured(m, 512, k) for k, m in enumerate(("softmax", "sdpa"), 1)]
    rows += [missing(m, 1024, "oom") for m in ("softmax", "sdpa")]
    (a, y), (b, z) = strip_marks(drawn(rows))[:2]
    assert y == z and abs(a - b) >= 4


def test_what_has_no_point_is_one_sentence_with_counts():
    figure = drawn(every_outcome())
    shown = " ".join(texts(figure))
    assert shown.count("Without a point:") == 1
    assert "Without a point: 11 of 25 cases (5 not supported, 3 predicted to be out of memory, " in shown
    assert "no curve: window." in shown and "`attnbench table FOLDER` lists them." in shown
    assert "window" not in texts(figure)


def test_values_that_are_missing_or_not_positive_are_counted():
    rows = [measured("softmax", 512), measured("softmax", 1024, memory=0)]
    rows += [measured("linear", n, time_per_sample_ms=None, memory=None) for n in (512, 1024)]
    shown = " ".join(texts(drawn(rows)))
    assert "Without a point: 3 of 4 cases (2 time not recorded, 1 memory not above 0)" in shown
    assert "no curve: linear." in shown


def test_a_device_without_any_case_is_named_without_the_message_of_a_loader():
    reason = "no NVIDIA driver here: libcuda.so.1: cannot open shared object file"
    rows = [measured(n=n) for n in (512, 1024)]
    rows += [missing("softmax", n, "unsupported", "skipped", device="cuda", reason=reason)
             for n in (512, 1024)]  # fmt: skip
    shown = " ".join(texts(drawn(rows)))
    assert "Nothing was measured on cuda, where all 2 cases could not run." in shown
    assert "libcuda" not in shown


def test_published_values_are_open_diamonds_and_published_failures_are_in_the_strip():
    source = "a paper, Figure 9: longest that fits"
    rows = [measured("linear", 512, 1.0, published_time_ms=3.0, published_source=source)]
    rows += [measured("linear", 1024, 2.0, published_outcome="oom", published_source=source)]
    figure = drawn(rows)
    points = [line for line in figure.axes[0].get_lines() if line.get_gid() == "published"]
    assert [(list(p.get_xdata()), list(p.get_ydata())) for p in points] == [([512], [3.0])]
    assert not [line for line in figure.axes[1].get_lines() if line.get_gid() == "published"]
    assert lane_texts(figure) == ["OOM, published"] * 2
    shown = texts(figure)
    assert "Published (diamonds): a paper, Figure 9." in " ".join(shown)
    assert "Published (strip): a paper, Figure 9." in " ".join(shown)


@pytest.mark.parametrize("width", ["column", "page"])
def test_figures_have_the_widths_of_papers_and_text_of_at_least_seven_points(width):
    rows = every_outcome() + every_outcome("forward_backward")
    with sheet.context(width):
        figure = figure_of(scaling.describe(records.Records(rows)))
        figure.draw_without_rendering()
        shown = [text for text in figure.findobj(Text) if text.get_text()]
        assert min(text.get_fontsize() for text in shown) >= 7
        for text in shown:
            box = text.get_window_extent()
            assert box.x0 >= 0 and box.x1 <= figure.bbox.x1, text.get_text()
    assert figure.get_figwidth() == {"column": 3.25, "page": 6.75}[width]
    lefts = {round(axes.get_position().x0, 3) for axes in figure.axes}
    assert len(lefts) == (1 if width == "column" else 2)
    clear_labels(figure)


def test_the_width_is_an_option_and_text_of_svg_files_is_text(tmp_path):
    folder = write(tmp_path / "set", every_outcome())
    assert run("quickstart", folder, "--width", "column").returncode == 0
    svg = (folder / "quickstart.svg").read_text()
    assert 'width="234pt"' in svg
    assert ">softmax</text>" in svg and "Time per sequence (ms)</text>" in svg
    assert run("quickstart", folder, "--width", "poster").returncode == 2


def test_methods_choose_the_curves(tmp_path):
    rows = every_outcome() + [measured(f"lsh:rounds={k},chunk=8", n) for k in (1, 2) for n in LENGTHS]
    folder = write(tmp_path / "set", rows)
    result = run("quickstart", folder, "--methods", "softmax,lsh:rounds=2,chunk=8")
    assert result.returncode == 0, result.stderr
    svg = (folder / "quickstart.svg").read_text()
    assert ">softmax<" in svg and ">lsh-2" in svg and ">lsh-1" not in svg and ">linear<" not in svg
    said = refusal("quickstart", folder, "--methods", "softmx")
    assert "--methods: no record of softmx; there are softmax, sdpa" in said


@pytest.mark.parametrize(
    ("former", "current"),
    [
        ("linear:kernel=avx2", "linear:implementation=avx2"),
        ("favor:chunk=7,kernel=composed", "favor:composed_chunk=7,implementation=composed"),
        ("linear", "linear"),
        ("linear-chunked:chunk=7", "linear-chunked:chunk=7"),
        ("mine.py:f:kernel=3", "mine.py:f:kernel=3"),
    ],
)
def test_methods_may_be_named_with_the_former_names_of_their_options(former, current):
    options = importlib.import_module("attnplots.records.options")
    found = records.Records([measured(current), measured("lsh-1")])
    assert options.select_methods(found, former) == [measured(current)]


def test_methods_may_be_named_without_their_options():
    options = importlib.import_module("attnplots.records.options")
    found = records.Records([measured(m) for m in ("lsh:rounds=2", "lsh:rounds=4", "linear")])
    assert [r["method"] for r in options.select_methods(found, "lsh")] == ["lsh:rounds=2", "lsh:rounds=4"]
    assert [r["method"] for r in options.select_methods(found, " linear ,")] == ["linear"]
    assert options.select_methods(found, None) is found


def stamp_of(figure):
    lines = [text for text in figure.texts if text.get_gid() == "stamp"]
    return " ".join(text.get_text() for text in sorted(lines, key=lambda t: -t.get_position()[1]))


def test_a_corner_names_the_machine_torch_the_revision_and_the_date():
    known = {"torch_version": "2.11.0", "revision": "0123456789ab"}
    rows = [measured(n=n, finished_at=f"2026-11-{day}T10:00:00Z", **known)
            for n, day in ((512, 21), (1024, 23))]  # fmt: skip
    rows += [measured("x (external)", finished_at="2020-01-01T00:00:00Z", external_source="a paper")]
    figure = drawn(rows)
    said = "Some @ 2.00GHz · torch 2.11.0 · 0123456789ab · 2026-11-21 to 2026-11-23"
    assert stamp_of(figure) == said
    rows[0] |= {"dirty": True, "gpu": "Some GPU"}
    assert "· Some GPU ·" in stamp_of(drawn(rows))
    assert "0123456789ab with uncommitted changes" in stamp_of(drawn(rows))
    stamps = [text for text in figure.texts if text.get_gid() == "stamp"]
    assert all(text.get_ha() == "right" for text in stamps)
    lowest = min(text.get_position()[1] for text in figure.texts)
    assert stamps[-1].get_position()[1] == lowest


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
    assert len(split([measured(n=512), measured(n=1024)])) == 1, "the batch follows from the length"
    batches = split([measured(n=512), measured(n=1024), measured(n=512, batch=1)])
    assert [row.title for row in batches] == ["Forward · batch 1", "Forward · batch 4", "Forward · batch 8"]


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
    free = labels.place(tip, size, nothing, [], frame)
    assert free.nearest(*tip)[1] == tip[1], "with free space on all sides, it is level with the tip"
    line = np.array([(x, 100.0) for x in np.arange(0.0, 200.0)])
    box = labels.place(tip, size, line, [], frame)
    assert not box.holds(line)
    box = labels.place(tip, size, nothing, [labels.Placed((0, 0), free)], frame)
    assert not box.overlap(free)
    for corner in ((199, 199), (1, 1), (1, 199)):
        box = labels.place(corner, size, nothing, [], frame)
        assert box.overlap(frame) == pytest.approx(600), corner


def test_long_names_leave_room_for_the_panels():
    rows = [measured("linear: " + "very " * 60 + "long", n, n, n) for n in LENGTHS]
    figure = drawn(rows)
    assert all(axes.get_position().width > 0.2 for axes in figure.axes)
    said = clear_labels(figure)
    assert said[0].startswith("linear: very") and said[2].endswith("…") and len(said) == 6


def test_ticks_have_round_readable_values():
    assert ticks.lengths((512, 65536))[1] == ["512", "2k", "8k", "32k"]
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
        pytest.param(script, path.parent, id=f"{script}-{path.parent.name}")
        for script in SCRIPTS
        for path in sorted((ROOT / "results" / script).glob("*/records.jsonl"))
    ]


@pytest.mark.parametrize(
    ("script", "folder"),
    committed()
    or [pytest.param(None, None, marks=pytest.mark.skip(reason="no results/*/*/records.jsonl"))],
)
def test_the_results_of_the_project_can_be_drawn(script, folder, tmp_path):
    result = run(script, folder, "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    for kind, magic in MAGIC.items():
        drawn_files = list(tmp_path.glob(f"{script}*.{kind}"))
        assert len(drawn_files) == COMMITTED_SHEETS.get(script, 1)
        assert all(path.read_bytes().startswith(magic) for path in drawn_files)
