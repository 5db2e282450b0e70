"""Tests of the bundle for GPU nodes (tools/gpu_bundle.py) and of what runs there (tools/gpu.py), with a stand-in for the GPU. The
bundle runs as on a node: without a network, with an empty HOME, from a folder that is read-only, and with the torch of another
folder than that of the build."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path

import pytest
from conftest import HANG_S, ROOT, finished, processes, records_in, strict_json, wait_for

sys.path.insert(0, str(ROOT / "tools"))
import gpu_bundle
from gpu_node import files, reporting
from gpu_node import machine as node_machine
from gpu_node import steps as node_steps

GPU = "a fake GPU"
# Cases so small that a sweep takes seconds.
SMALL = {
    "query_len": "64", "batch": "1", "heads": "2", "head_dim": "16", "threads": "1", "timing.warmup_s": "0", "timing.time_budget_s": "0.02",
    "timing.processes": "1",
}  # fmt: skip
SETS = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def bundle(build, made_once):
    """A bundle of the build of the tests, with the stand-in in place of the CUDA kernels."""

    def make(folder):
        stand_in = build / "tests/fake-gpu.so"
        finished(sys.executable, ROOT / "tools/gpu_bundle.py", "--build", build, "--out", folder / "bundle", "--stand-in", stand_in)

    return made_once("gpu-bundle", make) / "bundle"


def torch_folder():
    """The torch of the tests."""
    return Path(next(path for path in sys.path if (Path(path) / "torch/version.py").exists())) / "torch"


@pytest.fixture(scope="module")
def torch_of_node(made_once):
    """The folder of torch in the packages of another Python, which is not there itself."""

    def make(folder):
        packages = folder / "lib/python3.12/site-packages"
        (packages / "torch/lib").mkdir(parents=True)
        for source in torch_folder().iterdir():
            if source.name != "lib":
                (packages / "torch" / source.name).symlink_to(source)
        for source in (torch_folder() / "lib").iterdir():
            (packages / "torch/lib" / source.name).symlink_to(source)
        (packages / "nvidia").symlink_to(torch_folder().parent / "nvidia")

    return made_once("torch-of-node", make) / "lib/python3.12/site-packages/torch"


NO_SOCKETS = """
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int socket(int domain, int type, int protocol) {
  if (domain != AF_INET && domain != AF_INET6) return syscall(SYS_socket, domain, type, protocol);
  errno = ENETUNREACH;
  return -1;
}
"""


@cache
def unshare_words():
    """What runs a command without a network, and why not if that is not permitted here."""
    if not shutil.which("unshare"):
        return [], "there is no program of this name"
    for words in (["unshare", "--net", "--mount"], ["unshare", "--map-root-user", "--net", "--mount"]):
        done = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return words, ""
    return [], done.stderr.strip()


class Machine:
    """Runs gpu.py of a bundle as on a node with the stand-in."""

    def __init__(self, bundle, torch, build, folder):
        self.bundle, self.torch, self.build, self.folder = bundle, torch, build, folder
        self.out = folder / "results"
        self.home = folder / "home"
        self.home.mkdir()

    def isolated(self, *words):
        """The command without a network, and with a bundle that cannot be written where that is permitted."""
        unshare, _ = unshare_words()
        if not unshare:
            return [str(word) for word in words]
        script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"; exec "$@"'
        return [*unshare, "sh", "-c", script, str(self.bundle), *map(str, words)]

    def environment(self, nvml="", gpu="", driver=True, **more):
        left_out = ("CUDA_HOME", "CUDA_VISIBLE_DEVICES", "PYTHONPATH", "ATTNBENCH_BUILD", "LD_LIBRARY_PATH")
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        environment |= {"HOME": str(self.home), "ATTNBENCH_FAKE_NVML": nvml, "ATTNBENCH_FAKE_GPU": gpu} | more
        if driver:
            environment["LD_LIBRARY_PATH"] = str(self.build / "tests/fake-nvml")
        if not unshare_words()[0]:
            library = self.folder / "no-sockets.so"
            subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=NO_SOCKETS, text=True, check=True)
            environment["LD_PRELOAD"] = str(library)
        return environment

    def words(self, *arguments):
        # The Python of the system, which has none of the project's packages.
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
        return self.isolated(python, self.bundle / "gpu.py", "--torch", self.torch, "--out", self.out, *arguments)

    def __call__(self, *arguments, code=0, **machine):
        done = subprocess.run(
            self.words(*arguments), cwd=self.folder, env=self.environment(**machine), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=HANG_S, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"exit code {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
        return done

    def state(self):
        return strict_json((self.out / "state.json").read_text("utf-8"))

    def outcomes(self):
        return {name: step["outcome"] for name, step in self.state()["steps"].items()}


@pytest.fixture
def machine(bundle, torch_of_node, build, tmp_path):
    return Machine(bundle, torch_of_node, build, tmp_path)


def contents(folder):
    """Every file of a folder with its size and its time of change."""
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


# ---------------------------------------------------------------- the bundle


def test_the_bundle_is_small_enough_and_has_no_path_of_the_build(bundle, build):
    assert gpu_bundle.check_size(bundle) < gpu_bundle.MAX_BYTES == 60 << 20
    assert gpu_bundle.check_programs(bundle)
    programs = gpu_bundle.programs_in(bundle)
    assert {"attnbench", "attnbench-worker", "libattn.so"} <= {path.name for path in programs}
    for path in programs:
        said = finished("readelf", "-d", "-W", path)
        for folder in (ROOT, build, torch_folder()):
            assert str(folder) not in said, path


def libraries_of(program, **environment):
    lines = finished("ldd", program, env={"PATH": os.environ["PATH"]} | environment).splitlines()
    return dict(line.split(" => ") for line in lines if " => " in line)


def test_the_worker_finds_only_the_torch_that_it_is_told(bundle, torch_of_node):
    worker = bundle / "attnbench/libexec/attnbench/attnbench-worker"
    alone = {name.strip(): where for name, where in libraries_of(worker).items()}
    assert alone["libtorch_cpu.so"] == "not found" and alone["libattn.so"].startswith(str(bundle.resolve()))
    told = libraries_of(worker, LD_LIBRARY_PATH=f"{torch_of_node}/lib")
    for name, where in told.items():
        assert "not found" not in where, name
        if "torch" in name or "c10" in name:
            assert where.startswith(str(torch_of_node)), name


def test_symbols_of_a_newer_glibc_are_refused(tmp_path, monkeypatch):
    shutil.copy("/bin/true", tmp_path / "program")
    monkeypatch.setattr(gpu_bundle, "MAX_GLIBC", (2, 2))
    with pytest.raises(gpu_bundle.BundleError, match=r"program needs \w+ of glibc 2\.\d+; expected at most 2\.2"):
        gpu_bundle.check_programs(tmp_path)


def compiled(folder, *words):
    source = folder / "empty.c"
    source.write_text("int main(void) { return 0; }\n")
    finished("gcc", source, "-o", folder / "program", *words)


def test_a_folder_of_the_build_and_a_library_that_a_node_may_lack_are_refused(tmp_path):
    compiled(tmp_path, f"-Wl,-rpath,{tmp_path}")
    with pytest.raises(gpu_bundle.BundleError, match=r"looks for libraries in '.*'; expected folders that begin with \$ORIGIN"):
        gpu_bundle.check_programs(tmp_path)
    finished("gcc", "-shared", "-x", "c", "/dev/null", "-o", tmp_path.parent / "libodd.so", "-Wl,-soname,libodd.so.7")
    compiled(tmp_path, "-Wl,--no-as-needed", tmp_path.parent / "libodd.so")
    with pytest.raises(gpu_bundle.BundleError, match=r"program needs libodd.so.7, which is neither in the bundle, nor torch's"):
        gpu_bundle.check_programs(tmp_path)


def test_a_bundle_that_is_too_large_is_refused_with_its_largest_parts(tmp_path):
    (tmp_path / "large").write_bytes(b"")
    os.truncate(tmp_path / "large", (60 << 20) + 1)
    with pytest.raises(gpu_bundle.BundleError, match=r"60\.0 MiB, expected at most 60; the largest parts: large 60\.0 MiB"):
        gpu_bundle.check_size(tmp_path)


def fat_binary(*entries):
    body = b"".join(
        kind.to_bytes(2, "little") + bytes(2) + (64).to_bytes(4, "little") + (8).to_bytes(8, "little") + bytes(12)
        + architecture.to_bytes(4, "little") + bytes(32 + 8)
        for kind, architecture in entries
    )  # fmt: skip
    return (0xBA55ED50).to_bytes(4, "little") + (1).to_bytes(2, "little") + (16).to_bytes(2, "little") + len(body).to_bytes(8, "little") + body


def test_kernels_must_be_there_as_machine_code_and_as_ptx(tmp_path):
    names = ("attnbench/lib/libattn-cuda.so", "attnbench/libexec/attnbench/libattnbench-gpu.so")
    with pytest.raises(gpu_bundle.BundleError, match="the build has no libattn-cuda.so; `make cuda` builds it"):
        gpu_bundle.check_kernels(tmp_path)
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"before" + fat_binary((2, 90), (1, 90)) + b"after")
    assert gpu_bundle.check_kernels(tmp_path) == ["compute_90", "sm_90"]
    (tmp_path / names[1]).write_bytes(fat_binary((2, 90)))
    with pytest.raises(gpu_bundle.BundleError, match=r"libattnbench-gpu.so has kernels as \['sm_90'\]; expected also PTX"):
        gpu_bundle.check_kernels(tmp_path)


def test_a_build_without_kernels_makes_no_bundle_and_a_folder_that_is_none_is_not_replaced(build, tmp_path):
    words = [sys.executable, ROOT / "tools/gpu_bundle.py", "--build", build, "--out"]
    if not (build / "libattn-cuda.so").exists():
        assert "the build has no libattn-cuda.so; `make cuda` builds it" in finished(*words, tmp_path / "new", code=2)
        assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    assert "exists and is no bundle, so it is not replaced" in finished(*words, tmp_path / "mine", code=2)
    assert "no build folder" in finished(*words[:2], "--build", tmp_path, code=2)


def test_a_bundle_of_the_cuda_build_passes_every_check():
    """`make gpu-bundle` makes all of these checks itself."""
    made = ROOT / "build-cuda/attnbench-gpu"
    if not made.exists():
        pytest.skip("there is no build-cuda/attnbench-gpu; `make gpu-bundle` makes it where there is an nvcc")
    gpu_bundle.check_size(made)
    gpu_bundle.check_programs(made)
    assert {"sm_90", "compute_90"} <= set(gpu_bundle.check_kernels(made))


# ---------------------------------------------------------------- torch


def other_torch(folder, version="2.11.0+cu130", cuda="'13.0'", abi=b"NSt7__cxx1112basic_string"):
    (folder / "lib").mkdir(parents=True)
    (folder / "version.py").write_text(f"from typing import Optional\n__version__ = '{version}'\ncuda: Optional[str] = {cuda}\n")
    (folder / "lib/libc10.so").write_bytes(b"\0_ZN3c106detail14torchCheckFailEPKcS2_jRK" + abi)
    return folder


@pytest.mark.parametrize(
    ("torch", "found"),
    [
        ({"version": "2.10.1+cu130"}, "found torch 2.10.1, with CUDA 13.0, the ABI C++11"),
        ({"abi": b"Ss"}, "found torch 2.11.0, with CUDA 13.0, the ABI before C++11"),
    ],
)
def test_another_torch_is_refused_with_both_versions_and_abis(machine, attnbench, tmp_path, torch, found):
    machine.torch = other_torch(tmp_path / "torch", **torch)
    expected = "expected torch 2.11.0, with CUDA 13.0, the ABI C++11, which attnbench was built with"
    for said in (machine(code=2).stderr, attnbench("--torch", machine.torch, "list", code=2).stderr):
        assert found in said and expected in said, said
    assert not machine.out.exists()


def test_a_folder_that_is_no_torch_is_refused(attnbench, tmp_path):
    said = attnbench("list", code=2, env=os.environ | {"ATTNBENCH_TORCH": str(tmp_path)}).stderr
    assert f"{tmp_path}/version.py: no such file; expected a folder of torch" in said
    (other_torch(tmp_path / "torch") / "lib/libc10.so").unlink()
    assert "torch/lib/libc10.so" in attnbench("--torch", tmp_path / "torch", "list", code=2).stderr


# ---------------------------------------------------------------- the machine


@pytest.mark.parametrize(
    ("has", "said"),
    [
        ({"driver": False}, ["there is no NVIDIA driver", "libnvidia-ml.so.1", "expected", "580.65.06 or newer"]),
        ({"nvml": "broken-driver"}, ["the NVIDIA driver does not work: nvmlInit_v2 failed: Driver Not Loaded"]),
        ({"nvml": "no-gpu"}, ["the NVIDIA driver finds no GPU"]),
        ({"nvml": "old-driver"}, ["the driver 550.54.14 supports CUDA up to 12.4, which is too old", "580.65.06 or newer"]),
        ({"CUDA_VISIBLE_DEVICES": "none"}, ["CUDA_VISIBLE_DEVICES = 'none'; expected the index of a GPU"]),
    ],
)
def test_a_machine_that_is_not_fit_is_an_error_that_says_what_was_found_and_expected(machine, has, said):
    done = machine(code=2, **has)
    for words in said:
        assert words in done.stderr
    assert not machine.out.exists()


def test_an_older_gpu_than_the_kernels_are_for_is_refused():
    with pytest.raises(files.UnfitError, match=r"compute capability 8\.0, but the kernels .* sm_90; expected at least 9\.0, or a bundle"):
        node_machine.check_kernels(node_machine.Gpu("A100", "8.0", "580"), ["compute_90", "sm_90"])
    node_machine.check_kernels(node_machine.Gpu("B200", "10.0", "580"), ["compute_90", "sm_90"])


def test_options_that_name_nothing_are_refused(machine, bundle, tmp_path):
    assert "--skip sweeps is no step; expected the beginning of one, such as start, verify" in machine("--skip", "sweeps", code=2).stderr
    other = tmp_path / "real"
    shutil.copytree(bundle, other)
    facts = strict_json((other / "bundle.json").read_text())
    (other / "bundle.json").write_text(json.dumps(facts | {"stand_in": "", "kernels": ["compute_90"]}))
    machine.bundle = other
    assert "--minutes 4; expected at least 5" in machine("--minutes", "4", code=2).stderr


def test_the_plan_has_every_part_in_its_order_and_fits_the_time(machine):
    said = machine("--dry-run").stdout.splitlines()
    steps = [(float(line.split()[0]), " ".join(line.split()[1:]).split(":")[0]) for line in said[1:-1]]
    names = [name for _, name in steps]
    order = [
        "start", "verify linear", "verify lsh", "operators test_linear_attention_agrees_with_float64", "sanitizer linear", "ceilings",
        "gpu-grid", "figure1", "decode", "latency", "rivals", "counters linear-bfloat16-forward", "figure1-forward",
    ]  # fmt: skip
    assert [name for name in names if name in order] == order
    first = [minutes for minutes, _ in steps[: names.index("figure1-forward")]]
    assert sum(first) <= 25 and steps[0][0] <= 1, "everything but what is measured again fits the usual time"
    assert sum(name.startswith("counters ") for name in names) == 4
    methods = {name.removeprefix("verify ") for name in names if name.startswith("verify ")}
    assert {"linear", "lsh", "sdpa", "softmax", "taylor"} <= methods


# ---------------------------------------------------------------- a rehearsal

CHOSEN = ["start", "verify linear-chunked", "ceilings", "gpu-grid", "figure1", "decode", "latency"]
ONLY = [word for name in CHOSEN for word in ("--only", name)]
# Steps that a node without the Python of its torch, without the programs of Nsight and without a compiler cannot run.
ABSENT = ["--only", "sanitizer", "--only", "counters", "--only", "operators test_kernels", "--only", "python-methods", "--only", "rivals"]


@pytest.mark.long
def test_a_rehearsal_without_a_network_leaves_results_that_merge(machine, attnbench, tmp_path):
    unshare, why = unshare_words()
    if not unshare:
        print(f"`unshare --net` is not permitted ({why}); a library that refuses every socket cuts the network off instead")
    code = "import socket; socket.create_connection(('127.0.0.1', 9), 2)"
    cut = subprocess.run(machine.isolated(sys.executable, "-c", code), env=machine.environment(), capture_output=True, text=True, check=False)
    assert "Network is unreachable" in cut.stderr or "OSError" in cut.stderr, "there is a network"
    before = contents(machine.bundle)
    done = machine(*ONLY, *ABSENT, *SETS, "--archive", tmp_path / "all.tar.gz", "--minutes", "25")
    assert f"REHEARSAL with {GPU}, which stands in for a GPU: no figure here is that of a GPU" in done.stdout
    assert contents(machine.bundle) == before, "the bundle is not written to"
    assert not list(machine.home.iterdir())

    outcomes = machine.outcomes()
    missing = {name for name, outcome in outcomes.items() if outcome == "missing"}
    assert {name.split(" ")[0] for name in missing} == {"sanitizer", "counters", "operators", "python-methods", "rivals"} - (
        {"sanitizer"} if shutil.which("compute-sanitizer") else set()
    )
    assert {outcome for name, outcome in outcomes.items() if name not in missing} == {"passed"}
    assert "python-methods: not run, no Python was found whose torch is" in done.stderr
    assert "rivals: not run, the step python-methods did not pass" in done.stderr
    assert json.loads((machine.out / "environment/doctor.json").read_text())["ceilings"]["gpu"]["name"] == GPU
    rows = strict_json((machine.out / "verify/linear-chunked.json").read_text())
    assert {row["verdict"] for row in rows} == {"agrees"} and {row["failed_case"] for row in rows} == {None}

    for sweep in ("gpu-grid", "figure1", "decode", "latency"):
        merged = tmp_path / "merged" / sweep
        attnbench("merge", machine.out / "results" / sweep, "--out", merged, "-q")
        records = records_in(merged)
        assert records and {r["outcome"] for r in records} <= {"measured", "skipped"}
        assert {r["gpu"] for r in records if r["device"] == "cuda" and r["outcome"] == "measured"} == {GPU}
        assert (machine.out / f"tables/{sweep}.md").read_text().startswith("|")
    grid = records_in(tmp_path / "merged/gpu-grid")
    assert len(grid) == 4 and {r["processes"] for r in grid} == {1}
    with tarfile.open(tmp_path / "all.tar.gz") as archive:
        names = archive.getnames()
    assert "results/results/gpu-grid/records.jsonl" in names and "results/state.json" in names

    # Nothing is left to do, so that a second call measures nothing.
    log = (machine.out / "results/gpu-grid/records.jsonl").read_bytes()
    assert "===" not in machine(*ONLY, *SETS).stdout
    assert (machine.out / "results/gpu-grid/records.jsonl").read_bytes() == log


def running(machine):
    """What the steps have started. Other tests may run programs of the same bundle, but in another folder."""
    found = []
    for process in processes():
        try:
            folder = os.readlink(f"/proc/{process.pid}/cwd")
        except OSError:  # the process has ended meanwhile
            continue
        if process.state not in "ZX" and folder == str(machine.out):
            found.append(process)
    return found


def measuring(machine, name):
    """Whether a step is in its middle: its worker runs."""
    try:
        step = machine.state()["steps"].get(name)
    except FileNotFoundError:
        return False
    if step is None or step["outcome"] != "running":
        return False
    return any("attnbench-worker" in process.command for process in running(machine))


def test_what_was_measured_is_there_when_the_time_ends_in_the_middle_of_any_step(machine, attnbench, tmp_path):
    """Each step is cut once: by SIGKILL, as queues end a command, or by SIGTERM. The next call continues."""
    names = ["start", "verify linear-chunked", "ceilings", "gpu-grid", "figure1", "decode"]
    only = [word for name in names for word in ("--only", name)]
    seen = {}
    for k, name in enumerate(names):
        number = signal.SIGKILL if k % 2 else signal.SIGTERM
        call = subprocess.Popen(
            machine.words(*only, *SETS, "--skip", "figure1-forward"),
            cwd=machine.folder, env=machine.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
        )  # fmt: skip
        try:
            wait_for(lambda name=name: measuring(machine, name), f"{name} to run", driver=None if call.poll() is None else call)
            call.send_signal(number)
            code = call.wait(HANG_S)
        finally:
            if call.poll() is None:
                os.killpg(call.pid, signal.SIGKILL)
        assert code == (-signal.SIGKILL if number == signal.SIGKILL else 128 + signal.SIGTERM), call.stdout.read()
        wait_for(lambda: not running(machine), "everything that was started to end")
        assert machine.outcomes()[name] == ("running" if number == signal.SIGKILL else "cut")
        for folder in sorted((machine.out / "results").glob("*")):
            try:
                lines = records_in(folder)
            except FileNotFoundError:
                continue
            kept = {json.dumps(r["process_medians_ms"]) for r in lines if r["outcome"] == "measured"}
            assert seen.get(folder.name, set()) <= kept, "records of an earlier call are lost"
            seen[folder.name] = kept
            if lines:
                attnbench("merge", folder, "--out", tmp_path / f"merged-{k}" / folder.name, "-q")
    done = machine(*only, *SETS, "--skip", "figure1-forward")
    state = machine.state()
    assert {step["outcome"] for step in state["steps"].values()} == {"passed"}, done.stdout + done.stderr
    assert all(state["steps"][name]["attempts"] == 2 for name in names) and len(state["calls"]) == len(names) + 1
    assert {r["outcome"] for r in records_in(machine.out / "results/gpu-grid")} == {"measured"}


def faulty(build, how):
    return ["--plugin", build / "tests/libfaulty_plugin.so"], {"ATTNBENCH_FAULTY_PLUGIN": how}


def failure_in(machine):
    (path,) = (machine.out / "failures").glob("*.json")
    return strict_json(path.read_text("utf-8"))


def test_a_wrong_kernel_is_noted_with_its_smallest_size_and_does_not_stop_the_others(machine, build):
    plugin, environment = faulty(build, "wrong from 77")
    done = machine(*plugin, "--only", "verify faulty", "--only", "verify linear-chunked", code=1, **environment)
    assert machine.outcomes() == {"verify faulty": "failed", "verify linear-chunked": "passed"}
    failures = [strict_json(path.read_text("utf-8")) for path in sorted((machine.out / "failures").glob("*.json"))]
    assert failures and {f["case"]["method"] for f in failures} == {"faulty"}
    for failure in failures:
        smallest = failure["smallest"]
        assert failure["bisected"] and failure["reproduced"] and failure["seed"] == 0
        lengths = smallest["query_len"], smallest["key_len"]
        assert lengths in ((77, 77), (1, 77)) or smallest["key_len"] == 77, smallest
        assert (smallest["batch"], smallest["heads"]) == (1, 1) and smallest["head_dim"] == 8
        assert "invalid" in failure["error"] and "attnbench measure faulty" in failure["command"]
    assert "gpu: verify faulty: failed" in done.stderr and "The smallest case that fails: `attnbench measure faulty" in (
        machine.out / "summary.md"
    ).read_text("utf-8")


@pytest.mark.long
def test_a_kernel_that_hangs_is_ended_and_its_search_repeats_no_trial_in_the_next_call(machine, build):
    plugin, environment = faulty(build, "hang from 50")
    sets = [*SETS, "--set", "method=faulty", "--set", "limits.deadline_s=3", "--set", "dtype=float32", "--trial-seconds", "3"]
    only = ["--only", "start", "--only", "verify linear-chunked"]
    first = machine(*plugin, *only, *sets, code=1, **environment)
    assert machine.outcomes() == {"start": "failed", "verify linear-chunked": "passed"}
    assert "gpu: start: failed, exit code 1" in first.stderr
    failure = failure_in(machine)
    assert failure["error"].startswith("timeout")
    assert failure["bisected"] and failure["smallest"]["query_len"] == 50 and "timeout" in failure["smallest_error"]
    # A search that was cut off repeats no trial.
    (path,) = (machine.out / "failures").glob("*.json")
    path.write_text(json.dumps(failure | {"bisected": False}))
    machine(*plugin, *only, *sets, code=1, **environment)
    assert failure_in(machine) == failure


def test_what_a_call_has_started_ends_with_its_time_and_also_when_it_is_killed(machine, build):
    plugin, environment = faulty(build, "hang from 1")
    sets = [*SETS, "--set", "method=faulty", "--set", "limits.deadline_s=80000", "--set", "dtype=float32"]
    done = machine(*plugin, "--only", "start", *sets, "--minutes", "0.2", code=3, **environment)
    assert machine.outcomes() == {"start": "cut"} and "=== start: cut, the time was up" in done.stdout
    assert "1 are left" in done.stdout and "the same command continues, with: start" in done.stdout
    call = subprocess.Popen(
        machine.words(*plugin, "--only", "start", *sets), cwd=machine.folder, env=machine.environment(**environment),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    wait_for(lambda: any("measure" in process.command.split() for process in running(machine)), "a worker that hangs")
    call.kill()
    call.wait(HANG_S)
    wait_for(lambda: not running(machine), "everything that was started to end")


def test_a_cuda_error_that_makes_a_process_unusable_ends_one_step_alone(machine):
    """Such an error fails every later call of the process, and ends it with a crash."""
    done = machine("--only", "start", "--only", "verify linear-chunked", *SETS, code=1, gpu="poisoned")
    assert machine.outcomes() == {"start": "failed", "verify linear-chunked": "passed"}, done.stdout
    failure = failure_in(machine)
    assert "an illegal memory access was encountered" in failure["error"]
    assert failure["bisected"] and failure["smallest"]["query_len"] == 1, "it fails at every size"


def test_results_of_another_run_are_not_mixed_with_these(machine):
    machine("--only", "verify linear-chunked")
    path = machine.out / "state.json"
    state = machine.state()
    path.write_text(json.dumps(state | {"revision": "0123456789ab", "gpu": "NVIDIA H100"}))
    said = machine("--only", "verify linear-chunked", code=2).stderr
    assert "is of another run: revision '0123456789ab' there" in said and f"gpu 'NVIDIA H100' there, '{GPU}' here" in said
    path.write_text("{")
    assert "state.json" in (said := machine("--only", "ceilings", code=2).stderr) and "choose another folder with --out" in said


@pytest.mark.long
def test_methods_in_python_run_after_the_node_has_compiled_their_module(machine, tmp_path):
    """The Python of the tests takes the place of the node's, and the module is not the one of the build."""
    machine.torch = torch_folder()
    (tmp_path / "mine.py").write_text("def attention(q, k, v):\n    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v\n")
    machine("--python", sys.executable, "--only", "python-methods")
    options = node_steps.Options(machine.out, machine.bundle, node_machine.Node(machine.torch, sys.executable), "fake-gpu.so")
    environment = machine.environment() | options.environment()
    assert environment["ATTNBENCH_PYTHON_MODULE"].startswith(str(machine.out))
    said = finished(
        options.program, "measure", "mine.py:attention:like=softmax", "--query-len", "32", "--heads", "1", "--threads", "1",
        "--time-budget-s", "0.02", "--format", "json", cwd=tmp_path, env=environment,
    )  # fmt: skip
    record = strict_json(said)
    assert record["outcome"] == "measured" and record["python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}."), record["reason"]


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        ({"include": "/nowhere"}, "there is no /nowhere/Python.h"),
        ({"libdir": None}, "has no shared library libpython3"),
        ({"library": "libpython3.12.a"}, "has no shared library libpython3.12.a"),
    ],
)
def test_a_python_that_the_module_cannot_be_compiled_for_is_no_failure(bundle, tmp_path, lacks, said):
    about = node_machine.ask_python(sys.executable)
    node = node_machine.Node(torch_folder(), sys.executable, about)
    assert node_steps.module_step(node_steps.Options(tmp_path, bundle, node)).missing == ""
    node.about = about | lacks
    assert said in node_steps.module_step(node_steps.Options(tmp_path, bundle, node)).missing


def test_a_module_that_does_not_exist_is_named(attnbench, tmp_path):
    env = os.environ | {"ATTNBENCH_PYTHON_MODULE": "/nowhere/module.so"}
    (tmp_path / "mine.py").write_text("def attention(q, k, v):\n    return v\n")
    said = attnbench("measure", "mine.py:attention", "--format=json", env=env, code=2).stderr
    assert "/nowhere/module.so, which does not exist (from the environment variable ATTNBENCH_PYTHON_MODULE)" in said


# ---------------------------------------------------------------- predictions


def test_predictions_stand_beside_what_was_measured_with_the_ratio(bundle, tmp_path):
    with (bundle / "predictions.csv").open() as file:
        predictions = list(csv.DictReader(line for line in file if not line.startswith("#")))
    assert {p["method"] for p in predictions} == {"linear", "lsh"}
    p = next(p for p in predictions if p["method"] == "linear" and p["heads"] == "64")
    record = {
        "method": "linear", "dtype": p["dtype"], "protocol": p["protocol"], "batch": 8, "heads": 8, "query_len": int(p["length"]),
        "key_len": int(p["length"]), "head_dim": 64, "value_dim": 64, "causal": True, "device": "cuda", "outcome": "measured",
        "time_median_ms": 2e3 * float(p["expected_s"]),
    }  # fmt: skip
    folder = tmp_path / "results/gpu-grid"
    folder.mkdir(parents=True)
    options = node_steps.Options(tmp_path, bundle, node_machine.Node(tmp_path))
    state = {"gpu": "NVIDIA H100", "driver": "580", "revision": "abc", "torch": "2.11.0"}
    reporting.write_predictions(options, state)
    assert not (tmp_path / "predictions.md").exists(), "nothing was measured yet"
    (folder / "schema.json").write_text(json.dumps({"axes": [{"name": name} for name in ("method", "batch", "query_len")]}))
    (folder / "records.jsonl").write_text(json.dumps(record) + "\n" + json.dumps(record | {"batch": 3}) + "\n" + '{"torn')
    reporting.write_predictions(options, state)
    text = (tmp_path / "predictions.md").read_text("utf-8")
    assert text.startswith("NVIDIA H100, driver 580") and text.count("| linear") == 1 and text.rstrip().endswith("| 2.00 |")
    times = {seconds: reporting.time_text(seconds) for seconds in (8.047e-06, 6.383e-05, 9.999e-4, 1.2345e-3, 0.45678)}
    assert list(times.values()) == ["8.05 µs", "63.8 µs", "1.00 ms", "1.23 ms", "457 ms"], "the ratio follows from what is shown"
    reporting.write_predictions(options, state | {"stand_in": "fake-gpu.so", "gpu": GPU})
    assert (tmp_path / "predictions.md").read_text("utf-8").startswith(f"REHEARSAL with {GPU}")


def test_the_tests_of_the_operators_run_with_a_python_that_has_no_pytest(bundle):
    """With the packages of the bundle alone; -S leaves out those of this Python."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(bundle / "tests/packages"), "PYTHONDONTWRITEBYTECODE": "1"}
    said = finished(sys.executable, "-S", "-m", "pytest", "--version", env=env)
    assert said.startswith("pytest ")


def test_the_job_of_slurm_runs_the_script_of_the_bundle(machine):
    """Slurm runs a copy of the job's script, in the folder that it was submitted in."""
    copy = machine.folder / "slurm_script"
    shutil.copy(machine.bundle / "gpu.sbatch", copy)
    (machine.folder / "attnbench-gpu").symlink_to(machine.bundle)
    env = machine.environment(SLURM_SUBMIT_DIR=str(machine.folder), PYTHON=sys.executable)
    said = finished("bash", copy, "--torch", machine.torch, "--dry-run", env=env)
    assert "start" in said and said.splitlines()[-1].endswith("in all")


def test_the_script_of_the_node_needs_nothing_but_python(bundle):
    """Also not the newest one: a node may have Python 3.9."""
    import ast

    texts = [path.read_text("utf-8") for path in (bundle / "gpu.py", *(bundle / "gpu_node").iterdir())]
    assert len(texts) == 1 + len(list((ROOT / "tools/gpu_node").glob("*.py")))
    imported = set()
    for text in texts:
        tree = ast.parse(text, feature_version=(3, 9))
        imported |= {name.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for name in n.names}
        imported |= {n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert imported - {"gpu_node"} <= set(sys.stdlib_module_names), imported
