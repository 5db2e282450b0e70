"""Tests of what a process is started in: locales with decimal commas, control groups that limit its memory and processors, and
files of methods that change its settings."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import HANG_S, records_in, small, write_sweep

# ---------------------------------------------------------------- locales


@pytest.fixture
def comma(tmp_path):
    """The environment variables of a locale with decimal commas."""
    made = tmp_path / "locales/de_DE.UTF-8"
    made.parent.mkdir()
    command = ["localedef", "-i", "de_DE", "-f", "UTF-8", made]
    if shutil.which("localedef") is None or subprocess.run(command, capture_output=True, timeout=HANG_S, check=False).returncode not in (0, 1):
        pytest.skip("the system has no definitions of locales")
    variables = {"LOCPATH": str(made.parent), "LC_ALL": "de_DE.UTF-8"}
    if "," not in subprocess.run(["locale", "decimal_point"], env=os.environ | variables, capture_output=True, text=True, check=False).stdout:
        pytest.skip("the locale cannot be used")
    return os.environ | variables


def test_decimal_commas_of_a_locale_change_no_number(quick, comma, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import locale\n\nlocale.setlocale(locale.LC_ALL, '')\n\n\ndef f(q, k, v, *, scale=0.5):\n    return v * scale\n"
    )
    sweep = write_sweep(tmp_path / "s.toml", method=["linear", "mine.py:f:scale=0.25"], timing={"warmup_s": 0.001})
    quick("sweep", sweep, "--out", "out", env=comma)
    found = records_in(tmp_path / "out")
    assert {record["outcome"] for record in found} == {"measured"}
    assert all(0 < record["time_median_ms"] < 1e5 and record["warmup_s"] == 0.001 for record in found)
    here = quick("table", "out", "--format=csv").stdout
    assert quick("table", "out", "--format=csv", env=comma).stdout == here
    (tmp_path / "theirs.csv").write_text("method,query_len,time_median_ms,external_source\nx,512,.5,there\n")
    quick("import", "theirs.csv", "--out", "theirs", env=comma)
    assert records_in(tmp_path / "theirs")[0]["time_median_ms"] == 0.5


# ---------------------------------------------------------------- control groups


def own_group(controller):
    """The folder of the control group of this process that has the controller, and the version of its hierarchy."""
    paths = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= {name: path for name in controllers.split(",")}
    if controller in paths:
        return Path(f"/sys/fs/cgroup/{controller}{paths[controller]}"), 1
    return Path(f"/sys/fs/cgroup{paths.get('', '/')}"), 2


@pytest.fixture
def limited():
    """A function that makes a group below the own one with these limits, and returns a function that runs a program in it."""
    made = []

    def make(controller, **limits):
        parent, version = own_group(controller)
        group = parent / f"attnbench-test-{os.getpid()}"
        try:
            group.mkdir()
            made.append(group)
            for name, value in limits[f"v{version}"].items():
                (group / name).write_text(value)
        except OSError as error:
            pytest.skip(f"control groups cannot be limited here: {error}")
        return group, lambda: (group / "cgroup.procs").write_text(str(os.getpid()))

    yield make
    for group in made:
        group.rmdir()


def test_a_real_limit_of_memory_bounds_the_cases(attnbench, limited):
    size = 400 << 20
    group, enter = limited("memory", v1={"memory.limit_in_bytes": str(size)}, v2={"memory.max": str(size)})
    doctor = attnbench.json("doctor", preexec_fn=enter)
    assert 0 < doctor["available_memory_bytes"] < size
    assert doctor["memory_bound"].startswith("control group (memory.") and doctor["memory_limit_file"].startswith(str(group))
    record = attnbench.json("measure", "softmax", "--query-len=16384", "--heads=2", preexec_fn=enter)
    assert (record["outcome"], record["failure_kind"]) == ("skipped", "predicted_oom")
    assert record["memory_limit_bytes"] < size


def test_a_real_quota_of_one_processor_gives_one_thread(attnbench, limited):
    _, enter = limited("cpu", v1={"cpu.cfs_quota_us": "100000"}, v2={"cpu.max": "100000 100000"})
    record = attnbench.json("measure", "linear", *(option for option in small() if "threads" not in option), preexec_fn=enter)
    assert (record["threads"], record["processors"]) == (1, 1)
    assert record["processors_bound"].startswith("control group (cpu.")
    record = attnbench.json("measure", "linear", *small(threads=2), preexec_fn=enter)
    assert record["outcome"] == "skipped" and record["reason"].startswith("2 threads need as many processors, but this process has 1 ")


def test_affinity_bounds_the_threads_and_is_named(attnbench):
    def on_one():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two processors")
    record = attnbench.json("measure", "linear", *small(threads=2), preexec_fn=on_one)
    assert record["outcome"] == "skipped" and "(bound: affinity)" in record["reason"]


# ---------------------------------------------------------------- settings


CHANGES = {
    "torch.set_num_threads(1)": "threads from 2 to 1",
    "torch.set_float32_matmul_precision('medium')": "mkldnn.matmul.fp32_precision from",
    "torch.set_flush_denormal(True)": "flushing of denormal numbers from no to yes",
    "torch.set_default_dtype(torch.float64)": "default dtype from float32 to float64",
    "torch.use_deterministic_algorithms(True)": "deterministic algorithms from no to yes",
    "globals().setdefault('modes', []).append(torch.inference_mode()); modes[-1].__enter__()": "inference mode from no to yes",
}


def measured(attnbench, tmp_path, source, code=0):
    (tmp_path / "mine.py").write_text(source)
    return attnbench.json("measure", "mine.py:f", *small(threads=2), code=code)


def test_settings_that_a_file_changes_when_it_is_imported_are_put_back(attnbench, tmp_path):
    record = measured(attnbench, tmp_path, "import torch\n\n" + "\n".join(CHANGES) + """


def f(q, k, v):
    assert torch.get_num_threads() == 2 and torch.get_default_dtype() == torch.float32
    assert not torch.is_inference_mode_enabled() and not torch.empty(1).is_inference()
    assert torch.get_float32_matmul_precision() == "highest" and torch.tensor(1e-310, dtype=torch.float64) * 1 != 0
    return v * 1
""")  # fmt: skip
    assert record["outcome"] == "measured", record
    assert record["settings_restored"].startswith("the import changed ")
    for change in CHANGES.values():
        assert change in record["settings_restored"], change


def test_settings_that_a_setup_changes_are_put_back(attnbench, tmp_path):
    record = measured(attnbench, tmp_path, """import os

import attnbench
import torch


def prepare(function, problem):
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@attnbench.method(setup=prepare)
def f(q, k, v):
    assert torch.get_num_threads() == 2
    return v * 1
""")  # fmt: skip
    assert record["outcome"] == "measured", record
    assert record["settings_restored"].count("setup changed threads from 2 to 1") == 1


@pytest.mark.parametrize("change", CHANGES)
def test_a_call_that_changes_settings_has_no_time(attnbench, tmp_path, change):
    record = measured(attnbench, tmp_path, f"import torch\n\n\ndef f(q, k, v):\n    {change}\n    return v * 1\n", code=1)
    assert (record["outcome"], record["failure_kind"]) == ("failed", "invalid"), record
    assert record["reason"].startswith("a call changed ") and CHANGES[change] in record["reason"]
    assert record["time_median_ms"] is None


def test_environment_variables_that_change_the_computation_are_recorded(attnbench):
    variables = {"MKL_NUM_THREADS": "1", "OMP_DYNAMIC": "TRUE"}
    record = attnbench.json("measure", "linear", *small(), env=os.environ | variables)
    assert all(f"{name}={value}" in record["variables"].split() for name, value in variables.items())


# ---------------------------------------------------------------- names


def test_a_folder_with_colons_in_its_name_is_no_option(attnbench, tmp_path):
    folder = tmp_path / "run-2026-11-26T00:34"
    folder.mkdir()
    (folder / "mine.py").write_text("def f(q, k, v, *, window=1):\n    return v * window\n")
    record = attnbench.json("measure", f"{folder.name}/mine.py:f:window=2", *small())
    assert (record["outcome"], record["method"]) == ("measured", f"{folder.name}/mine.py:f:window=2")
    sweep = write_sweep(folder / "s.toml", method="mine.py:f", query_len=32)
    attnbench("sweep", sweep, "--out", folder / "out")
    assert {r["outcome"] for r in records_in(folder / "out")} == {"measured"}
