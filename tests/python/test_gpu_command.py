"""Tests of `make gpu` (tools/gpu.py) with a stand-in for the GPU: fake NVML and GPU modules, and fake
nvcc, cmake and compute-sanitizer. The pack that it writes is imported again."""

import json
import os
import subprocess
import sys
import tarfile

import pytest
from conftest import HANG_S, ROOT, records_in, strict_json

SCRIPT = ROOT / "tools/gpu.py"
GPU = "a fake GPU"
# Cases so small that the whole path takes less than a minute.
SMALL = ["query_len=64", "batch=1", "heads=2", "head_dim=16", "threads=1", "timing.warmup_s=0", "timing.time_budget_s=0.02"]


@pytest.fixture
def machine(build, tmp_path):
    """Runs tools/gpu.py as on a machine with a GPU; `nvcc` is the version of its CUDA toolkit, `nvml` and `gpu` choose the
    faults of the driver and of the GPU."""
    programs = tmp_path / "programs"
    programs.mkdir()

    def program(name, body):
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)

    program("cmake", f'echo "$@" >> "{tmp_path}/cmake.log"')
    program("compute-sanitizer", 'while case "$1" in --*) true ;; all|1) true ;; *) false ;; esac; do shift; done; exec "$@"')

    def run(*arguments, code=0, nvcc="13.0", nvml="", gpu="", driver=True):
        program("nvcc", f'echo "Cuda compilation tools, release {nvcc}, V{nvcc}.88"')
        environment = {name: value for name, value in os.environ.items() if name not in ("CUDA_HOME", "CUDA_VISIBLE_DEVICES")} | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(build / "tests/fake-nvml") if driver else "",
            "ATTNBENCH_GPU_MODULE": str(build / "tests/fake-gpu.so"),
            "ATTNBENCH_FAKE_NVML": nvml, "ATTNBENCH_FAKE_GPU": gpu, "OMP_WAIT_POLICY": "passive",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, SCRIPT, "--build", build, *arguments], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=HANG_S, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"exit code {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture
def small(machine):
    """Runs the quick form with even smaller cases."""
    return lambda *arguments, **options: machine("--quick", *(w for s in SMALL for w in ("--set", s)), *arguments, **options)


def contents(archive):
    """The manifest of a pack, and its other files as bytes."""
    with tarfile.open(archive) as tar:
        files = {m.name.removeprefix("attnbench-gpu/"): tar.extractfile(m).read() for m in tar}
    return strict_json(files.pop("manifest.json")), files


def test_the_whole_path_from_the_checks_to_the_imported_records(small, attnbench, tmp_path):
    # Torch finds no GPU here, so that the tests of the operators fail, which must not keep the other steps from running.
    done = small(code=1)
    archive = next(tmp_path.glob("attnbench-gpu-a-fake-gpu-*.tar.gz"))
    manifest, files = contents(archive)
    steps = {step["name"]: step for step in manifest["steps"]}
    assert {name for name, step in steps.items() if step["outcome"] != "passed"} == {"operators"}, done.stdout + done.stderr
    assert steps["operators"]["exit_code"] == 1 and "gpu: operators: failed, exit code 1" in done.stderr
    assert b"ATTNBENCH_REQUIRE_GPU" in files["logs/operators.txt"]
    assert manifest["gpu"] == GPU and manifest["gpu_capability"] == "9.0" and manifest["quick"] is True
    assert manifest["versions"]["driver"] == "580.95.05" and manifest["versions"]["nvcc"] == "13.0"
    built = (tmp_path / "cmake.log").read_text()
    assert "-DATTNBENCH_CUDA=ON" in built and "-DCMAKE_CUDA_ARCHITECTURES=90" in built and "--target attnbench cuda" in built
    assert json.loads(files["environment/doctor.json"])["ceilings"]["gpu"]["name"] == GPU
    for sweep in ("figure1", "latency", "decode", "gpu-grid"):
        assert f"tables/{sweep}.md" in files and f"results/{sweep}/records.jsonl" in files
        assert any(name.startswith(f"figures/{sweep}/") and name.endswith(".png") for name in files), sweep

    imported = attnbench("import", archive).stdout
    assert "on that machine, operators: failed, exit code 1" in imported
    for sweep in ("figure1", "latency", "decode", "gpu-grid"):
        folder = tmp_path / "results" / sweep / "a-fake-gpu"
        assert f"results/{sweep}/a-fake-gpu: " in imported
        assert records_in(folder) == [strict_json(line) for line in files[f"results/{sweep}/records.jsonl"].splitlines()]
        assert (folder / "records.csv").exists() and (folder / "schema.json").exists()
    records = records_in(tmp_path / "results/gpu-grid/a-fake-gpu")
    assert {(r["gpu"], r["revision"], r["external_source"]) for r in records} == {(GPU, manifest["revision"], None)}
    assert {r["outcome"] for r in records} == {"measured"}
    origin = strict_json((tmp_path / "results/gpu-grid/a-fake-gpu/environment.json").read_text())["imported_from"]
    assert origin["file"] == archive.name and origin["versions"] == manifest["versions"]
    assert GPU not in attnbench("table", "results/gpu-grid/a-fake-gpu").stderr
    # A second import would mix with the first.
    assert "already holds records" in attnbench("import", archive, code=2).stderr
    attnbench("import", archive, "--out", "again", "-q")
    assert (tmp_path / "again/gpu-grid/records.jsonl").exists()


# The steps beside building, verifying and the sweep gpu-grid.
OTHERS = [
    "operators", "sanitizer",
    *(f"{kind}-{sweep}" for sweep in ("figure1", "latency", "decode") for kind in ("sweep", "table", "figure")),
]  # fmt: skip
SKIPPED = [word for name in OTHERS for word in ("--skip", name)]


def test_steps_that_pass_end_with_exit_code_0_and_sweeps_that_are_left_out_are_not_failures(small, tmp_path):
    small(*SKIPPED, "--out", "pack.tar.gz")
    manifest, _ = contents(tmp_path / "pack.tar.gz")
    assert {s["name"] for s in manifest["steps"] if s["outcome"] == "not run"} == set(OTHERS)


def test_a_gpu_that_fails_in_the_worker_fails_the_steps_and_is_no_success(small, tmp_path):
    done = small(*SKIPPED, "--out", "pack.tar.gz", code=1, gpu="absent")
    manifest, files = contents(tmp_path / "pack.tar.gz")
    steps = {s["name"]: s for s in manifest["steps"]}
    assert steps["verify"]["exit_code"] == 2
    assert steps["sweep-gpu-grid"]["outcome"] == "failed"
    assert steps["sweep-gpu-grid"]["reason"] == "no case was measured: no CUDA device is visible"
    assert steps["figure-gpu-grid"]["reason"] == "the step sweep-gpu-grid did not pass"
    assert b"nothing was verified on device cuda: no CUDA device is visible" in files["logs/verify.txt"]
    assert "gpu: verify: failed, exit code 2" in done.stderr
    assert "gpu: figure-gpu-grid: not run, the step sweep-gpu-grid did not pass" in done.stderr


@pytest.mark.parametrize(
    ("machine_has", "said"),
    [
        ({"driver": False}, ["there is no NVIDIA driver", "libnvidia-ml.so.1", "expected", "580.65.06 or newer"]),
        ({"nvml": "broken-driver"}, ["the NVIDIA driver does not work: nvmlInit_v2 failed: Driver Not Loaded"]),
        ({"nvml": "no-gpu"}, ["the NVIDIA driver finds no GPU"]),
        (
            {"nvml": "old-driver"},
            ["the driver 550.54.14 supports CUDA up to 12.4, which is too old for torch", "for CUDA 13.0 or newer, which is 580.65.06"],
        ),
        ({"nvcc": "12.4"}, ["nvcc is of CUDA 12.4, but torch", "was built with CUDA 13.0; expected nvcc of CUDA 13"]),
        ({"nvcc": "nonsense"}, ["nvcc --version does not say its version"]),
    ],
)
def test_a_machine_that_is_not_fit_is_an_error_that_says_what_was_found_and_expected(machine, tmp_path, machine_has, said):
    done = machine("--quick", code=2, **machine_has)
    for words in said:
        assert words in done.stderr
    assert not list(tmp_path.glob("*.tar.gz")) and not (tmp_path / "cmake.log").exists()


def test_the_plan_takes_less_than_half_an_hour_and_the_quick_one_less_than_five_minutes():
    for options, most in (([], 30), (["--quick"], 5)):
        said = subprocess.run([SCRIPT, "--dry-run", *options], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        *steps, total = [line.split(maxsplit=1) for line in said.splitlines()[1:]]
        assert total[1] == "in all" and sum(float(minutes) for minutes, _ in steps) == pytest.approx(float(total[0]), abs=0.05)
        assert float(total[0]) < most
        assert {"build", "verify", "operators", "sweep-gpu-grid"} <= {name for _, name in steps}


def test_an_unknown_step_to_leave_out_is_refused(machine):
    assert "--skip sweeps, expected one of configure, build" in machine("--skip", "sweeps", code=2).stderr
