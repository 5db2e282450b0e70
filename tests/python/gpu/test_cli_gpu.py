"""Tests of cases on a GPU, without one: a fake module (tests/gpu/fake_gpu.cpp) takes its place, or
the case is skipped with the reason why there is no GPU."""

import os

import pytest
from conftest import records_in, small, strict_json, write_sweep

NAME = "a fake GPU"


@pytest.fixture
def on(attnbench, build):
    """Runs attnbench with the fake GPU; `fault` names how the GPU fails."""

    def run(*arguments, fault="", **options):
        module = build / "tests/fake-gpu.so"
        assert module.exists(), f"{module} is missing: build the tests"
        env = os.environ | {"ATTNBENCH_GPU_MODULE": str(module), "ATTNBENCH_FAKE_GPU": fault}
        return attnbench(*arguments, env=env, **options)

    return run


def record(done):
    return strict_json(done.stdout)


def test_time_is_that_of_the_gpus_clock_and_wall_time_is_recorded_too(on):
    r = record(on("measure", "linear", "--format=json", *small(device="cuda")))
    assert r["outcome"] == "measured", r["reason"]
    assert r["gpu"] == NAME and r["gpu_driver"] == "0.0"
    assert r["gpu_clock_mhz"] == 1000 and r["gpu_throttle_reasons"] == "none"
    assert len(r["wall_samples_ms"]) == len(r["time_samples_ms"])
    for time, wall in zip(r["time_samples_ms"], r["wall_samples_ms"], strict=True):
        assert wall >= 2 * time  # The host also sees what lies around the work.
    assert r["wall_median_ms"] >= 2 * r["time_median_ms"]
    assert r["samples_with_launches"] == 0
    assert r["peak_reserved_bytes"] == 3 * 2**20
    assert r["largest_allocation_bytes"] is None


def test_the_memory_budget_is_by_default_that_of_the_gpu(on):
    default, given = (
        record(on("measure", "linear", "--format=json", *small(device="cuda", **budget)))
        for budget in ({}, {"memory_limit_bytes": "1 GiB"})
    )
    assert default["memory_limit_bytes"] == 11 * 2**30
    assert given["memory_limit_bytes"] == 2**30


def test_a_case_beyond_the_memory_budget_is_skipped(on):
    longer = small(device="cuda", query_len=65536, memory_limit_bytes="11 GiB", heads=8)
    r = record(on("measure", "softmax", "--format=json", *longer))
    assert r["outcome"] == "skipped" and r["failure_kind"] == "predicted_oom"
    assert "its memory budget is 11.0 GiB" in r["reason"]


@pytest.mark.parametrize("protocol", ["forward", "forward_backward", "prefill", "decode"])
def test_every_protocol_runs_in_a_cuda_graph(on, protocol):
    options = small(device="cuda", protocol=protocol)
    r = record(on("measure", "linear", "--graph", "--format=json", *options))
    assert r["outcome"] == "measured", r["reason"]
    assert r["graph"] is True and r["rows_checked"] > 0
    if protocol == "decode":
        assert r["calls_per_sample"] % 32 == 0
        assert r["time_median_ms"] < 0.020  # A replay takes 20 µs and makes 32 steps.


def test_a_cold_cache_is_flushed_before_each_step_of_a_cuda_graph(on):
    cold = small(device="cuda", protocol="decode", cache="cold", min_samples=7, noise_target=1e9)
    r = record(on("measure", "linear", "--graph", "--format=json", *cold))
    assert r["outcome"] == "measured", r["reason"]
    assert r["calls_per_sample"] == 1  # A replay makes one step, and takes 20 µs.
    assert min(r["time_samples_ms"]) >= 0.010
    r = record(on("measure", "linear", "--graph", "--format=json", *small(device="cuda", cache="cold")))
    assert r["outcome"] == "measured" and r["calls_per_sample"] == 1


@pytest.mark.parametrize("protocol", ["forward", "decode"])
def test_times_that_include_launches_are_counted(on, protocol):
    options = small(device="cuda", protocol=protocol)
    r = record(on("measure", "linear", "--format=json", *options, fault="synchronising"))
    assert r["outcome"] == "measured", r["reason"]
    assert r["samples_with_launches"] == r["samples"] > 0


def test_samples_of_a_throttled_gpu_are_marked(on):
    options = small(device="cuda", max_disturbance=0.25)
    r = record(on("measure", "linear", "--format=json", *options, fault="throttled"))
    assert r["disturbed_samples"] == r["samples"] and r["disturbed_processes"] == 1
    assert min(r["sample_disturbances"]) >= 1
    assert r["gpu_throttle_reasons"] == "sw_power_cap"


def test_graphs_need_a_gpu_and_fresh_allocation_needs_the_cpu(attnbench, on):
    r = attnbench.json("measure", "linear", "--graph", *small())
    assert r["failure_kind"] == "unsupported" and "CUDA graphs need device = cuda" in r["reason"]
    r = record(on("measure", "linear", "--format=json", *small(device="cuda", allocation="fresh")))
    assert r["failure_kind"] == "unsupported" and "always kept" in r["reason"]


def test_without_a_gpu_its_cases_are_skipped_and_the_others_measured(on, tmp_path):
    sweep = write_sweep(tmp_path / "both.toml", method="linear", query_len=32, device=["cpu", "cuda"])
    on("sweep", sweep, "--out", "out", "-q", fault="absent")
    outcomes = {r["device"]: (r["outcome"], r["reason"]) for r in records_in(tmp_path / "out")}
    assert outcomes == {"cpu": ("measured", None), "cuda": ("skipped", "no CUDA device is visible")}


def test_a_gpu_module_that_does_not_exist_is_named(attnbench):
    env = os.environ | {"ATTNBENCH_GPU_MODULE": "/nowhere/gpu.so"}
    r = record(attnbench("measure", "linear", "--format=json", *small(device="cuda"), env=env))
    assert r["outcome"] == "skipped" and r["failure_kind"] == "unsupported"
    assert r["reason"] == "ATTNBENCH_GPU_MODULE = /nowhere/gpu.so does not exist"
    assert r["memory_limit_bytes"] is None


def test_the_real_module_loads(attnbench, build):
    """Without a GPU it answers that there is none. It must have no unresolved symbol."""
    module = build / "libattnbench-gpu.so"
    if not module.exists():
        pytest.skip("a build without CUDA")
    env = os.environ | {"ATTNBENCH_GPU_MODULE": str(module)}
    r = record(attnbench("measure", "linear", "--format=json", *small(device="cuda"), env=env))
    assert r["outcome"] == "measured" or "CUDA" in r["reason"]
    assert "undefined symbol" not in (r["reason"] or "")


def test_running_out_of_gpu_memory_is_recorded(on, tmp_path):
    sweep = write_sweep(tmp_path / "oom.toml", method="linear", query_len=32, device=["cuda", "cpu"])
    on("sweep", sweep, "--out", "out", "-q", fault="out-of-memory", code=1)
    by_device = {r["device"]: r for r in records_in(tmp_path / "out")}
    assert by_device["cuda"]["failure_kind"] == "oom"
    assert "Tried to allocate 2.00 GiB" in by_device["cuda"]["reason"]
    assert by_device["cpu"]["outcome"] == "measured"


def test_an_illegal_memory_access_fails_its_own_case_only(on, tmp_path):
    sweep = write_sweep(tmp_path / "poison.toml", query_len=32, device=["cuda", "cpu"])
    on("sweep", sweep, "--out", "out", "-q", fault="poisoned", code=1)
    for r in records_in(tmp_path / "out"):
        if r["device"] == "cpu":
            assert r["outcome"] == "measured"
        else:
            assert r["failure_kind"] == "error"
            assert "an illegal memory access was encountered" in r["reason"]
            assert r["time_median_ms"] is None


def test_the_ceilings_of_the_gpu_apply_to_its_cases_only(on, tmp_path):
    sweep = write_sweep(tmp_path / "fast.toml", method="linear", query_len=256, device=["cuda", "cpu"])
    on("sweep", sweep, "--out", "out", "-q", fault="slow-ceilings")
    implausible = {r["device"]: r["implausible"] for r in records_in(tmp_path / "out")}
    assert "the measured arithmetic rate" in implausible["cuda"]
    assert implausible["cpu"] is None


def test_records_of_another_gpu_are_not_mixed(on, tmp_path):
    sweep = write_sweep(tmp_path / "one.toml", method="linear", query_len=32, device="cuda")
    on("sweep", sweep, "--out", "out", "-q")
    on("sweep", sweep, "--out", "out", "-q")
    done = on("sweep", sweep, "--out", "out", "-q", fault="name=another", code=5)
    assert f'gpu: "{NAME}" there, "{NAME}, another" here' in done.stderr


def test_verify_runs_the_methods_on_the_gpu(on):
    rows = strict_json(on("verify", "linear", "softmax", "--device", "cuda", "--quick", "--format=json").stdout)
    assert {row["verdict"] for row in rows} == {"agrees"}
    # Nothing is verified where every case is refused, which is an error.
    done = on("verify", "linear", "--device", "cuda", "--quick", fault="absent", code=2)
    assert "nothing was verified on device cuda: no CUDA device is visible" in done.stderr
    assert done.stdout == ""


def test_doctor_shows_the_ceilings_of_the_gpu(on):
    shown = on("doctor").stdout
    assert NAME in shown and "matrix product, bfloat16" in shown
