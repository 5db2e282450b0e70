"""Tests of plots/limits.py, which prints rates of the CPU kernels as shares of the machine's multiply-add rate."""

import json

import pytest
from test_plots import ROOT, measured, refusal, run, write

SCRIPT = "limits"
RATES = [
    {"fma_float32_gflop_s": 480.0, "fma_float32_avx2_gflop_s": 240.0},
    {"fma_float32_gflop_s": 500.0, "fma_float32_avx2_gflop_s": 250.0},
    {"fma_float32_gflop_s": 100.0, "fma_float32_avx2_gflop_s": 50.0},  # the median is not moved by it
]


def record(method, n, time_ms, **more):
    times = {"time_median_ms": time_ms, "time_ci_low_ms": time_ms * 0.8, "time_ci_high_ms": time_ms * 1.25}
    return measured(method, n, time_ms, 1e6, flops=1.2e9, causal=True, batch=1, **times | more)


def folder_of(path, rows, ceilings=RATES):
    write(path, rows)
    machine = {"cpu_model": "Some Processor", "processors": 2, "revision": "0123456789ab"}
    found = {"sweep": "cpu-kernels", "environment": machine, "ceilings_of_rounds": ceilings}
    (path / "environment.json").write_text(json.dumps(found))
    return path


def test_a_rate_is_divided_by_the_rate_of_its_instruction_set(tmp_path):
    rows = [
        record("linear", 512, 5.0),
        record("linear", 2048, 10.0, protocol="forward_backward", time_ci_low_ms=None, time_ci_high_ms=None),
        record("linear:implementation=avx2", 512, 10.0),
    ]
    done = run(SCRIPT, folder_of(tmp_path, rows))
    assert done.returncode == 0, done.stderr
    assert "Some Processor, 2 processors; build 0123456789ab." in done.stdout
    assert "480 GFLOP/s, and 240 GFLOP/s with AVX2" in done.stdout
    assert done.stdout.splitlines()[2:] == [
        "| share of the limit | N = 512 | N = 2048 |",
        "|---|---:|---:|",
        "| `linear`, causal, forward | 50 % (40–62) |  |",
        "| `linear`, causal, with backward |  | 25 % |",
        "| `linear:implementation=avx2`, causal, forward | 50 % (40–62) |  |",
    ]


def test_bfloat16_is_compared_with_float32(tmp_path):
    rows = [record("linear", 512, 5.0), record("linear", 512, 2.0, dtype="bfloat16")]
    done = run(SCRIPT, folder_of(tmp_path, rows))
    assert done.stdout.splitlines()[-3:] == [
        "| time of float32 / time of bfloat16 | N = 512 |",
        "|---|---:|",
        "| `linear`, causal, forward | 2.50 |",
    ]


@pytest.mark.parametrize(
    ("ceilings", "said"),
    [
        (None, "expected a list in `ceilings_of_rounds`, found null"),
        ([], "expected a list in `ceilings_of_rounds`, found []"),
        (
            [{"fma_float32_gflop_s": 480.0}],
            "expected a positive number in `ceilings_of_rounds[0].fma_float32_avx2_gflop_s`, found null",
        ),
        ("fast", 'expected a list in `ceilings_of_rounds`, found "fast"'),
    ],
)
def test_a_folder_without_rates_is_refused(tmp_path, ceilings, said):
    folder = folder_of(tmp_path / "set", [record("linear", 512, 5.0)], ceilings)
    assert f"environment.json: {said}" in refusal(SCRIPT, folder)


def test_the_page_of_the_kernels_shows_the_committed_records(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(SCRIPT)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "attn/cpu/README.md").read_text("utf-8")
    for line in done.stdout.splitlines():
        if line.startswith("|"):
            assert line in page
