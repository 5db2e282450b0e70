"""Tests of plots/cpu-kernels.py, which draws rates below what the machine can do."""

import importlib
import json

import numpy as np
import pytest
from test_plots import MAGIC, figure_of, measured, missing, records, refusal, run, style, texts, write, sheet

ceilings, rates = (importlib.import_module(f"attnplots.{name}") for name in ("figures.ceilings", "figures.rates"))

SCRIPT = "cpu-kernels"
ROUND = {
    "read_gb_s": 29.0, "copy_gb_s": 45.0, "fma_float32_gflop_s": 456.0, "fma_float64_gflop_s": 228.0,
    "fma_float32_avx2_gflop_s": 250.0, "threads": 2,
}  # fmt: skip
LENGTHS = (512, 2048, 8192)


def cases(methods=("linear", "lsh-1", "favor"), causal=(False, True), **other):
    return [
        measured(m, n, n / 512, batch=1, flops=200e6 * n / 512, time_median_ms=n / 512,
                 time_ci_low_ms=0.8 * n / 512, time_ci_high_ms=2.0 * n / 512, causal=c, **other)
        for m in methods for c in causal for n in LENGTHS
    ]  # fmt: skip


def folder_of(path, rows, rounds=(ROUND,)):
    write(path, rows)
    found = {"ceilings": ROUND, "ceilings_of_rounds": list(rounds)}
    (path / "environment.json").write_text(json.dumps(found))
    return path


def sheets(path, rows, rounds=(ROUND,)):
    folder = folder_of(path, rows, rounds)
    with sheet.context():
        drawn = figure_of(rates.describe(records.load(folder), ceilings.load(folder)))
        for figure in drawn.values():
            figure.draw_without_rendering()
    return drawn


def test_a_panel_has_methods_of_one_formula_and_the_heading_names_it(tmp_path):
    (figure,) = sheets(tmp_path, cases(("linear", "linear-elu0.1", "lsh-1", "lsh-4", "favor"))).values()
    assert len(figure.axes) == 6
    headings = [t for t in texts(figure) if t.endswith(("· causal", "· not causal"))]
    assert sorted(headings) == sorted(
        f"{name} · {mask}" for name in ("Linear attention", "LSH attention", "Kernel features")
        for mask in ("causal", "not causal")
    )  # fmt: skip
    assert "Rates by different formulas do not say which method is faster" in " ".join(texts(figure))
    looks = style.styles(["linear", "linear-elu0.1", "lsh-1", "lsh-4", "favor"])
    for axes in figure.axes:
        colours = {line.get_color() for line in axes.get_lines()}
        shown = {m for m, look in looks.items() if look.colour in colours}
        assert len({rates._formula({"method": m}) for m in shown}) == 1


def test_rates_and_their_intervals_follow_from_operations_and_times(tmp_path):
    (figure,) = sheets(tmp_path, cases(("linear",), (True,))).values()
    curve = next(line for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 3)
    assert list(curve.get_xdata()) == list(LENGTHS)
    assert np.allclose(curve.get_ydata(), 200.0)
    assert rates.RATE.value(cases()[0]) == pytest.approx((200.0, 100.0, 250.0))
    assert figure.axes[0].get_yscale() == "linear" and figure.axes[0].get_ylim()[0] == 0


def test_a_line_shows_the_ceiling_of_the_same_rounds(tmp_path):
    rounds = [ROUND | {"fma_float32_gflop_s": v} for v in (400.0, 450.0, 480.0)]
    (figure,) = sheets(tmp_path, cases(("linear",), (True,)), rounds).values()
    (line,) = [line for line in figure.axes[0].get_lines() if list(line.get_ydata()) == [450, 450]]
    assert figure.axes[0].get_ylim()[1] > 450
    assert "machine: 450" in texts(figure) and "machine with AVX2: 250" not in texts(figure)
    assert "measured in the same 3 rounds on 2 threads (400 to 480 GFLOP/s)" in " ".join(texts(figure))
    (figure,) = sheets(tmp_path, cases(("linear:implementation=avx2",), (True,)), rounds).values()
    assert "machine with AVX2: 250" in texts(figure)
    assert ceilings.load(folder_of(tmp_path, cases())).words("float32").startswith("measured once")


def test_each_pass_and_dtype_has_a_sheet(tmp_path):
    rows = cases(("linear",), dtype="bfloat16") + cases(("linear",), protocol="forward_backward")
    rows += cases(("linear",), device="cuda")
    drawn = sheets(tmp_path, rows)
    assert sorted(drawn) == ["forward-backward-float32", "forward-bfloat16"]
    assert "The line is that of float32, in which bfloat16 is computed." in " ".join(texts(drawn["forward-bfloat16"]))
    assert "6 cases on other devices" in " ".join(texts(drawn["forward-bfloat16"]))


def test_an_axis_that_varies_is_in_the_headings(tmp_path):
    (figure,) = sheets(tmp_path, cases(("linear",), (True,)) + cases(("linear",), (True,), threads=1)).values()
    assert {"Linear attention · causal · 4 threads", "Linear attention · causal · 1 thread"} <= set(texts(figure))


def test_the_script_writes_a_file_for_each_sheet(tmp_path):
    folder = folder_of(tmp_path / "set", cases())
    result = run(SCRIPT, folder, "--out", tmp_path / "out", "--width", "column", "--methods", "linear")
    assert result.returncode == 0, result.stderr
    for kind, magic in MAGIC.items():
        assert (tmp_path / f"out/cpu-kernels-forward-float32.{kind}").read_bytes().startswith(magic)


@pytest.mark.parametrize(
    ("rows", "environment", "said"),
    [
        ([missing("linear", 512, "oom")], {"ceilings": ROUND}, "at least one measured record of the device cpu"),
        ([measured(flops=None)], {"ceilings": ROUND}, "at least one measured record of the device cpu"),
        (cases(), {}, "expected an object in `ceilings`, found null"),
        (cases(), {"ceilings": {**ROUND, "threads": 0}}, "a positive integer in `ceilings.threads`"),
        (cases(), {"ceilings": ROUND, "ceilings_of_rounds": [{}]}, "`ceilings_of_rounds[0].fma_float32_gflop_s`"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_an_error_that_names_what_is_missing(tmp_path, rows, environment, said):
    folder = write(tmp_path / "set", rows)
    (folder / "environment.json").write_text(json.dumps(environment))
    assert said in refusal(SCRIPT, folder)
    assert not list(folder.glob("*.png"))


# ---------------------------------------------------------------- a GPU

GPU_SCRIPT = "gpu-grid"
GPU = {
    "name": "a GPU", "copy_gb_s": 3000.0, "matmul_float64_gflop_s": 60e3, "matmul_float32_gflop_s": 400e3,
    "matmul_float16_gflop_s": 700e3, "matmul_bfloat16_gflop_s": 750e3,
}  # fmt: skip


def gpu_folder(path, rows, gpu):
    write(path, rows)
    (path / "environment.json").write_text(json.dumps({"ceilings": ROUND | {"gpu": gpu}}))
    return path


def test_kernels_of_a_gpu_are_drawn_below_its_own_rate(tmp_path):
    rows = cases(("linear",), (True,), device="cuda", dtype="bfloat16") + cases(("linear",), (True,))
    folder = gpu_folder(tmp_path / "set", rows, GPU)
    with sheet.context():
        drawn = figure_of(rates.describe(records.load(folder), ceilings.load_gpu(folder)))
    assert list(drawn) == ["forward-bfloat16"]
    shown = " ".join(texts(drawn["forward-bfloat16"]))
    assert "machine: 750000" in shown and "large matrix products" in shown
    assert "3 cases on other devices" in shown and "The line is that of float32" not in shown
    result = run(GPU_SCRIPT, folder, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out/gpu-grid-forward-bfloat16.svg").exists()


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ({"unavailable": "no driver"}, "expected the ceilings of a GPU in `ceilings.gpu`: no driver"),
        (None, "expected the ceilings of a GPU in `ceilings.gpu`: found null"),
        (GPU | {"matmul_bfloat16_gflop_s": 0}, "matmul_bfloat16_gflop_s"),
    ],
)
def test_missing_ceilings_of_a_gpu_are_named(tmp_path, gpu, said):
    folder = gpu_folder(tmp_path / "set", cases(("linear",), (True,), device="cuda"), gpu)
    assert said in refusal(GPU_SCRIPT, folder)
