#!/usr/bin/env python3
"""Verifies and measures everything on a GPU within a number of minutes, and continues where the last call ended.

    python3 attnbench-gpu/gpu.py --minutes 25

`make gpu-bundle` makes the folder that this file lies in (docs/gpu.md). The file needs Python 3.9 or
newer and nothing else; the programs need the torch that they were built for, which the node has. It
needs no network and writes to the folder of results alone, after each step at the latest.

Exit codes: 0 if every step passed, 1 if one failed, 2 if the machine is not fit for it (nothing is
run then), 3 if none failed and the time is up before the last step: the same command continues. 130
and 143 after SIGINT and SIGTERM.
"""

import argparse
import csv
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

BUNDLE = Path(__file__).resolve().parent
STATE = "state.json"
MIN_MINUTES = 5
RESERVE_S = 10.0  # kept at the end of the time for ending a step and writing
GRACE_S = 10.0  # in which a step that is ended may end by itself
# A step that is no sweep and takes so many times as long as planned hangs.
PATIENCE = 4.0
MIN_LIMIT_S = 120.0
# A sweep gets so many times its planned minutes, those of its first round; what is left is measured after the other steps.
SWEEP_PATIENCE = 1.5
MIN_SWEEP_S = 45.0
MAX_FAILURES = 3  # of one step that are searched for the smallest size
MAX_LOG_BYTES = 1 << 20
CUT, RUNNING, NOT_RUN = "cut", "running", "not run"

# By major version of CUDA: the oldest driver for Linux that runs its programs, from the release notes of CUDA.
OLDEST_DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}


class UnfitError(Exception):
    """Says why this machine cannot measure, with what was found and what was expected."""


class Ended(Exception):
    """This program received a signal."""

    def __init__(self, number: int):
        super().__init__(f"signal {number}")
        self.number = number


# ---------------------------------------------------------------- files


def write_json(path: Path, value: Any) -> None:
    """Replaces the file as a whole, so that it is complete whenever this program ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", "utf-8")
    os.replace(unfinished, path)


def read_json(path: Path, what: str) -> Dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UnfitError(f"{path}: {error}; expected {what}") from error
    if not isinstance(value, dict):
        raise UnfitError(f"{path} is no JSON object; expected {what}")
    return value


def records_of(folder: Path) -> List[Dict[str, Any]]:
    """The last record of each case in a result folder. A line that is not complete is left out."""
    try:
        lines = (folder / "records.jsonl").read_text("utf-8").splitlines()
    except OSError:
        return []
    found: Dict[str, Dict[str, Any]] = {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        found[json.dumps([record.get(name) for name in AXES])] = record
    return list(found.values())


# The axes of a case, with which a record says what was measured.
AXES = (
    "method", "device", "dtype", "protocol", "batch", "heads", "kv_heads", "value_heads", "query_len", "key_len", "head_dim",
    "value_dim", "causal", "key_lengths", "inputs", "concentration", "threads", "cache", "allocation", "graph", "seed",
)  # fmt: skip


# ---------------------------------------------------------------- what there is


@dataclass
class Gpu:
    name: str
    capability: str  # such as "9.0"
    driver: str  # such as "580.95.05"
    driver_cuda: str  # the newest CUDA version that the driver supports, such as "13.0"


def needed_driver(cuda: str) -> str:
    """What driver a program of this CUDA version needs, in words."""
    major = int(cuda.split(".")[0])
    oldest = OLDEST_DRIVERS.get(major)
    return f"a driver for CUDA {major}.0 or newer" + (f", which is {oldest} or newer" if oldest else "")


def find_gpu(cuda: str) -> Gpu:
    """Asks NVML, which every driver brings with it, about the first visible GPU."""
    wanted = f"the driver of an NVIDIA GPU; the kernels need {needed_driver(cuda)}"
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise UnfitError(f"there is no NVIDIA driver ({error}); expected {wanted}") from error

    def ask(name: str, *arguments: Any) -> None:
        code = getattr(nvml, name)(*arguments)
        if code:
            nvml.nvmlErrorString.restype = ctypes.c_char_p
            said = (nvml.nvmlErrorString(code) or b"").decode(errors="replace")
            raise UnfitError(f"the NVIDIA driver does not work: {name} failed: {said or code}; expected {wanted}")

    def text(name: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(256)
        ask(name, *arguments, buffer, 256)
        return buffer.value.decode(errors="replace")

    ask("nvmlInit_v2")
    count, version = ctypes.c_uint(), ctypes.c_int()
    ask("nvmlDeviceGetCount_v2", ctypes.byref(count))
    if count.value == 0:
        raise UnfitError(f"the NVIDIA driver finds no GPU; expected {wanted}")
    driver = text("nvmlSystemGetDriverVersion")
    ask("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(version))
    handle = ctypes.c_void_p()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    if visible.isdigit():
        ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(visible)), ctypes.byref(handle))
    elif visible.startswith("GPU-"):
        ask("nvmlDeviceGetHandleByUUID", visible.encode(), ctypes.byref(handle))
    else:
        raise UnfitError(
            f"CUDA_VISIBLE_DEVICES = '{os.environ['CUDA_VISIBLE_DEVICES']}'; expected the index of a GPU, or its UUID GPU-…"
        )
    major, minor = ctypes.c_int(), ctypes.c_int()
    ask("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
    supported = f"{version.value // 1000}.{version.value % 1000 // 10}"
    if version.value // 1000 < int(cuda.split(".")[0]):
        raise UnfitError(
            f"the driver {driver} supports CUDA up to {supported}, which is too old for kernels of CUDA {cuda}; expected "
            f"{needed_driver(cuda)}"
        )
    return Gpu(text("nvmlDeviceGetName", handle), f"{major.value}.{minor.value}", driver, supported)


def check_kernels(gpu: Gpu, kernels: List[str]) -> None:
    """Refuses a GPU that is older than every architecture that the kernels were compiled for."""
    found = int(gpu.capability.replace(".", ""))
    compiled = sorted({int(form.split("_")[1]) for form in kernels if form.startswith("compute_")})
    if compiled and found < compiled[0]:
        raise UnfitError(
            f"{gpu.name} has compute capability {gpu.capability}, but the kernels of this bundle are for "
            f"{', '.join(kernels)}; expected at least {compiled[0] // 10}.{compiled[0] % 10}, or a bundle of "
            f"`make gpu-bundle CUDA_ARCHITECTURES={found}`"
        )


ASK_PYTHON = """
import importlib.util, json, os, sys, sysconfig
find = lambda name: importlib.util.find_spec(name) is not None
torch = importlib.util.find_spec("torch")
library = sysconfig.get_config_var("INSTSONAME") or "libpython%d.%d.so.1.0" % sys.version_info[:2]
libdir = sysconfig.get_config_var("LIBDIR") or "/usr/lib"
folders = [libdir, os.path.join(libdir, sysconfig.get_config_var("MULTIARCH") or ""), sysconfig.get_config_var("LIBPL") or ""]
print(json.dumps({
    "torch": os.path.dirname(torch.origin) if torch and torch.origin else None,
    "version": "%d.%d.%d" % sys.version_info[:3],
    "include": sysconfig.get_path("include"), "library": library,
    "libdir": next((d for d in folders if os.path.exists(os.path.join(d, library))), None),
    "pytest": find("pytest"), "fla": find("fla"), "triton": find("triton"),
}))
"""


def ask_python(python: str) -> Optional[Dict[str, Any]]:
    """What a Python says of itself and of its torch; None if it does not run."""
    try:
        done = subprocess.run([python, "-c", ASK_PYTHON], capture_output=True, text=True, check=True, timeout=120)
        answer: Dict[str, Any] = json.loads(done.stdout)
        return answer
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


@dataclass
class Node:
    """What this machine has: the folder of torch, and the Python whose torch that is."""

    torch: Path
    python: str = ""  # empty if none was found
    about: Dict[str, Any] = field(default_factory=dict)  # what ask_python() says of it

    def python_is_of_torch(self) -> bool:
        return bool(self.about.get("torch")) and Path(self.about["torch"]).resolve() == self.torch.resolve()


def find_node(torch: str, python: str) -> Node:
    """Finds torch: in the named folder, or else in the named Python, in this one, or in the first python3 in PATH."""
    if torch:
        folder = Path(torch).resolve()
        # …/lib/python3.12/site-packages/torch belongs to …/bin/python3.
        beside = [str(parent / "bin/python3") for parent in folder.parents[2:5]]
        pythons = [python] if python else [p for p in [*beside, sys.executable] if p and os.access(p, os.X_OK)]
    else:
        folder = None
        pythons = [python] if python else [p for p in (sys.executable, shutil.which("python3")) if p]
    seen = []
    for candidate in dict.fromkeys(pythons):
        about = ask_python(candidate)
        seen.append(f"{candidate} ({'does not run' if about is None else 'has no torch' if not about['torch'] else about['torch']})")
        if about is None or not about["torch"]:
            continue
        if folder is None or Path(about["torch"]).resolve() == folder:
            return Node(Path(about["torch"]), candidate, about)
    if folder is None:
        raise UnfitError(f"no torch was found; looked at {', '.join(seen)}; expected its folder in --torch, or its Python in --python")
    if python:
        raise UnfitError(f"--python {python} and --torch {folder} do not belong together; the torch found was of {seen[0]}")
    return Node(folder)


# ---------------------------------------------------------------- steps


@dataclass
class Step:
    """A command, the minutes that it is planned to take on an H100, and how it went."""

    name: str
    minutes: float
    command: List[str]
    environment: Dict[str, str] = field(default_factory=dict)
    needs: str = ""  # the step without which this one cannot run
    missing: str = ""  # why it cannot run on this machine, which is no failure
    output: str = ""  # the file in the results that standard output goes to, instead of the log
    input: str = ""  # what standard input has
    sweep: str = ""  # the name of the folder of records that a sweep writes, which can be continued
    verifies: bool = False  # whether its output is that of `attnbench verify --format json`

    @property
    def safe_name(self) -> str:
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).strip("-")

    def limit_s(self) -> float:
        """After so long a step is ended."""
        if self.sweep:
            return max(MIN_SWEEP_S, SWEEP_PATIENCE * 60 * self.minutes)
        return max(MIN_LIMIT_S, PATIENCE * 60 * self.minutes)


@dataclass
class Options:
    out: Path
    bundle: Path
    node: Node
    stand_in: str = ""
    settings: List[str] = field(default_factory=list)  # KEY=VALUE for every sweep
    plugins: List[str] = field(default_factory=list)
    trial_s: float = 30.0

    @property
    def program(self) -> str:
        return str(self.bundle / "attnbench/bin/attnbench")

    @property
    def worker(self) -> str:
        return str(self.bundle / "attnbench/libexec/attnbench/attnbench-worker")

    @property
    def module(self) -> Path:
        return self.out / "python-module/libattnbench-python.so"

    def environment(self) -> Dict[str, str]:
        """The environment of every step. HOME may be empty and the bundle may be read-only, so that caches go to the results."""
        environment = dict(os.environ)
        libraries = [str(self.node.torch / "lib"), *sorted(str(p) for p in self.node.torch.parent.glob("nvidia/*/lib"))]
        if environment.get("LD_LIBRARY_PATH"):
            libraries.append(environment["LD_LIBRARY_PATH"])
        packages = [str(self.bundle), str(self.bundle / "wheels"), environment.get("PYTHONPATH", "")]
        if not self.node.about.get("pytest"):
            packages.insert(2, str(self.bundle / "tests/packages"))
        caches = str(self.out / "cache")
        environment.update({
            "ATTNBENCH_TORCH": str(self.node.torch), "LD_LIBRARY_PATH": ":".join(libraries),
            "PYTHONPATH": ":".join(filter(None, packages)), "PYTHONDONTWRITEBYTECODE": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "TRITON_CACHE_DIR": f"{caches}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
            "CUDA_CACHE_PATH": f"{caches}/cuda", "XDG_CACHE_HOME": caches, "OMP_WAIT_POLICY": "passive",
        })  # fmt: skip
        if self.node.python:
            environment["ATTNBENCH_PYTHON"] = self.node.python
            environment["ATTNBENCH_PYTHON_MODULE"] = str(self.module)
        if self.stand_in:
            environment["ATTNBENCH_GPU_MODULE"] = str(self.bundle / "attnbench/libexec/attnbench" / "stand-in-gpu.so")
        return environment


def methods_of(options: Options) -> Tuple[List[str], List[str]]:
    """The methods that run on a GPU: those that are verified in every dtype and shape, and the others. The first are the operators
    with kernels of this project, and what plug-ins have; methods such as favor call the kernels of `linear`."""
    plugins = [word for path in options.plugins for word in ("--plugin", path)]
    done = subprocess.run(
        [options.program, "list", *plugins, "--format", "json"], capture_output=True, text=True, env=options.environment(), check=False
    )  # fmt: skip
    if done.returncode != 0:
        raise UnfitError(f"the programs of the bundle do not run here: {done.stderr.strip()}")
    full, kernels, others = [], [], []
    for method in json.loads(done.stdout):
        if "cuda" in method["capabilities"]["devices"]:
            has_kernels = any(option["name"] == "implementation" for option in method["options"])
            is_full = method["name"] in ("linear", "lsh") or method.get("plugin")
            (full if is_full else kernels if has_kernels else others).append(method["name"])
    return full, [*kernels, *others]


# Sweeps in the order of their importance: the name of the step, that of the folder, the sweep file, the planned minutes, the
# settings, and further options. The minutes are those of a round, in which each case has one process. The other two rounds follow
# after the other steps.
SWEEPS: List[Tuple[str, str, str, float, List[str], List[str]]] = [
    ("gpu-grid", "gpu-grid", "gpu-grid", 3.5, [], []),
    ("grid-lsh", "gpu-grid-lsh", "gpu-grid", 0.9, ["protocol=forward", "dtype=bfloat16"], ["--methods", "lsh-1"]),
    ("figure1", "figure1", "figure1", 4.0, ["device=cuda", "batch=16384/query_len", "protocol=forward_backward"], []),
    ("decode", "decode", "decode", 1.6, ["device=cuda"], ["--methods", "stateful-softmax,stateful-sdpa,linear,taylor"]),
    ("latency", "latency", "latency", 2.2, [], []),
    ("fused", "gpu-rivals", "gpu-rivals", 1.0, [], ["--methods", "sdpa,linear"]),
]  # fmt: skip


def sweep_step(options: Options, name: str, folder: str, file: str, minutes: float, settings: List[str], words: List[str]) -> Step:
    chosen = {"timing.processes": "3", "timing.time_budget_s": "0.3"}
    chosen.update(setting.split("=", 1) for setting in [*settings, *options.settings])
    sets = [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]
    plugins = [word for path in options.plugins for word in ("--plugin", path)]
    command = [
        options.program, "sweep", str(options.bundle / f"attnbench/share/attnbench/sweeps/{file}.toml"), "--out",
        str(options.out / "results" / folder), "--across-boots", *words, *sets, *plugins,
    ]  # fmt: skip
    return Step(name, minutes, command, sweep=folder)


# What is counted with Nsight Compute, and the four kernels' calls that it is counted of.
METRICS = (
    "gpu__time_duration.sum", "dram__bytes.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed", "sm__inst_executed.sum", "sm__warps_active.avg.pct_of_peak_sustained_active",
    "lts__t_sector_hit_rate.pct", "l1tex__data_bank_conflicts_pipe_lsu.sum",
    "smsp__inst_executed_pipe_tensor.sum",
)  # fmt: skip
COUNTED = {
    "linear-bfloat16-forward": {"method": "linear", "dtype": "bfloat16", "protocol": "forward"},
    "linear-bfloat16-backward": {"method": "linear", "dtype": "bfloat16", "protocol": "forward_backward"},
    "linear-float32-forward": {"method": "linear", "dtype": "float32", "protocol": "forward"},
    "lsh-bfloat16-forward": {"method": "lsh-1", "dtype": "bfloat16", "protocol": "forward"},
}


def counter_steps(options: Options) -> List[Step]:
    ncu = shutil.which("ncu")
    steps = []
    for name, case in COUNTED.items():
        whole = {"device": "cuda", "causal": True, "batch": 1, "heads": 8, "query_len": 16384, **case}
        command = [
            ncu or "ncu", "--target-processes", "all", "--metrics", ",".join(METRICS), "--launch-count", "12", "--csv",
            "--log-file", str(options.out / "counters" / f"{name}.csv"), options.worker, "--answer-fd", "1", "count",
        ]  # fmt: skip
        steps.append(
            Step(f"counters {name}", 0.25, command, input=json.dumps(whole), missing="" if ncu else "ncu (Nsight Compute) is not on PATH")
        )
    return steps


def module_step(options: Options) -> Step:
    """Compiles the worker's module for methods in Python, for the Python of this node."""
    compiler = os.environ.get("CXX") or shutil.which("g++")
    about, torch, folder = options.node.about, options.node.torch, options.bundle / "python-module"
    header = Path(about.get("include") or "/nowhere") / "Python.h"
    missing = ""
    if not options.node.python:
        missing = f"no Python was found whose torch is {torch}; --python names it"
    elif not compiler:
        missing = "there is no g++, which compiles the module for methods in Python"
    elif not header.exists():
        missing = f"there is no {header}, which the module for methods in Python includes"
    elif not about.get("libdir") or ".so" not in str(about.get("library")):
        missing = f"{options.node.python} has no shared library {about.get('library')}, which the module for methods in Python links"
    source = options.module.with_name("module.cpp")
    command = [
        compiler or "g++", "-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-fopenmp", "-DNDEBUG", "-w",
        f'-DATTNBENCH_DEFAULT_PYTHON="{options.node.python}"', f'-DATTNBENCH_PYTHON_LIBRARY="{about.get("library")}"',
        f'-DATTNBENCH_TORCH_VERSION="{bundle_facts(options.bundle)["torch"]["version"]}"',
        "-I", str(folder / "include"), "-isystem", str(torch / "include"),
        "-isystem", str(torch / "include/torch/csrc/api/include"), "-isystem", str(header.parent),
        str(source), *(str(folder / name) for name in ("libworker.a", "libschema.a", "libstatistics.a")),
        "-L", str(options.bundle / "attnbench/lib"), "-l:libattn.so", "-L", str(torch / "lib"), "-ltorch_python", "-ltorch_cpu", "-lc10",
        "-L", str(about.get("libdir") or "."), f"-l:{about.get('library')}", f"-Wl,-rpath,{about.get('libdir')}",
        "-Wl,--allow-shlib-undefined", "-o", str(options.module),
    ]  # fmt: skip
    return Step("python-methods", 0.7, command, missing=missing)


def write_module_source(options: Options) -> None:
    """Writes the one source that includes those of the module, which are compiled together."""
    sources = sorted((options.bundle / "python-module/source").glob("*.cpp"))
    options.module.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f'#include "{path}"\n' for path in sources)
    options.module.with_name("module.cpp").write_text(text, "utf-8")


def test_steps(options: Options) -> List[Step]:
    """A step for each test function of the operators, since an error of CUDA makes every later call of its process fail."""
    file = options.bundle / "tests/test_operators_cuda.py"
    names = re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
    environment = {"ATTNBENCH_LIBRARIES": str(options.bundle / "attnbench/lib"), "ATTNBENCH_REQUIRE_GPU": "1"}
    missing = "" if options.node.python else f"no Python was found whose torch is {options.node.torch}; --python names it"
    return [
        Step(f"operators {name}", 0.15,
             [options.node.python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir",
              str(file.parent), f"{file}::{name}"], environment=environment, missing=missing)
        for name in names
    ]  # fmt: skip


def steps_of(options: Options) -> List[Step]:
    """All steps in the order of their importance."""
    program = options.program
    plugins = [word for path in options.plugins for word in ("--plugin", path)]
    full, rest = methods_of(options)
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")

    def verify(method: str, minutes: float, *words: str) -> Step:
        limit_s = max(MIN_LIMIT_S, PATIENCE * 60 * minutes)
        command = [
            program, "verify", method, "--device", "cuda", "--format", "json", "-q", "--deadline", f"{limit_s - 20:.0f}", *words, *plugins,
        ]  # fmt: skip
        name = f"verify {method}"
        return Step(name, minutes, command, output=f"verify/{method}.json", verifies=True)

    first = ["query_len=4096", "batch=1", "dtype=bfloat16", "protocol=forward"]
    sweeps = [sweep_step(options, *sweep) for sweep in SWEEPS]
    rivals = sweep_step(options, "rivals", "gpu-rivals", "gpu-rivals", 1.6, [], [])
    rivals.needs = "python-methods"
    forward = sweep_step(options, "figure1-forward", "figure1", "figure1", 4.0,
                         ["device=cuda", "batch=16384/query_len", "protocol=forward"], [])  # fmt: skip
    return [
        sweep_step(options, "start", "gpu-grid", "gpu-grid", 0.5, first, []),
        *(verify(method, 1.0) for method in full),
        *(verify(method, 0.1, "--quick") for method in rest),
        *test_steps(options),
        *(
            Step(f"sanitizer {method}", 0.4,
                 [sanitizer or "compute-sanitizer", "--target-processes", "all", "--error-exitcode", "1", program, "verify", method,
                  "--device", "cuda", "--quick", "-q"],
                 missing="" if sanitizer else "compute-sanitizer is neither on PATH nor in /usr/local/cuda/bin")
            for method in ("linear", "lsh-1")
        ),
        Step("ceilings", 0.3, [program, "doctor", "--format", "json"], output="environment/doctor.json"),
        *sweeps,
        module_step(options),
        rivals,
        *counter_steps(options),
        forward,
    ]  # fmt: skip


# ---------------------------------------------------------------- running


class Clock:
    """The time of this call."""

    def __init__(self, minutes: float):
        self.end = time.monotonic() + 60 * minutes - min(RESERVE_S, 6 * minutes)
        self.min_left_s = min(5.0, minutes)  # with less, no further step begins

    def left_s(self) -> float:
        return self.end - time.monotonic()


def end_with_parent() -> None:
    """In a child: receives SIGTERM when this program ends, also when it is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def signal_group(child: "subprocess.Popen[bytes]", number: int) -> None:
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        pass


def end(child: "subprocess.Popen[bytes]") -> None:
    """Ends a child and what it has started, and gives it the time to write what it has."""
    signal_group(child, signal.SIGTERM)
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    signal_group(child, signal.SIGKILL)
    child.wait()


def start(command: List[str], options: Options, **streams: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command, cwd=options.out, start_new_session=True, preexec_fn=end_with_parent, **streams
    )  # fmt: skip


class Run:
    """The folder of results, in which state.json says how each step went."""

    def __init__(self, options: Options, clock: Clock, facts: Dict[str, Any], gpu: Gpu, archive: str):
        self.options, self.clock, self.archive = options, clock, archive
        self.path = options.out / STATE
        self.own = {
            "revision": facts["revision"], "dirty": facts["dirty"], "gpu": gpu.name, "torch": facts["torch"]["version"],
            "stand_in": facts.get("stand_in", ""),
        }  # fmt: skip
        self.state: Dict[str, Any] = {"version": 1, **self.own, "driver": gpu.driver, "calls": [], "steps": {}}
        if self.path.exists():
            self.state = read_json(self.path, "the state that an earlier call wrote; choose another folder with --out")
            self.check()
        for step in self.state["steps"].values():
            if step["outcome"] == RUNNING:  # the call was killed
                step["outcome"], step["reason"] = CUT, "the call ended while it ran"
        self.state["calls"].append({"host": os.uname().nodename, "begun_at": now()})
        self.save()

    def check(self) -> None:
        """Refuses results of another bundle or GPU, which records of this one must not be mixed with."""
        if self.state.get("version") != 1 or not isinstance(self.state.get("steps"), dict):
            raise UnfitError(f"{self.path} has version {self.state.get('version')!r}; expected 1, which this program writes")
        different = [
            f"{name} {self.state.get(name)!r} there, {value!r} here" for name, value in self.own.items() if self.state.get(name) != value
        ]
        if different:
            raise UnfitError(f"{self.path} is of another run: {'; '.join(different)}; expected another folder in --out")

    def save(self) -> None:
        write_json(self.path, self.state)

    def of(self, step: Step) -> Dict[str, Any]:
        """What the state says of a step."""
        known: Dict[str, Any] = self.state["steps"].setdefault(
            step.name, {"outcome": NOT_RUN, "reason": "", "exit_code": None, "seconds": 0.0, "attempts": 0}
        )
        return known

    def passed(self, name: str) -> bool:
        return bool(self.state["steps"].get(name, {}).get("outcome") == "passed")

    def run(self, step: Step, limit_s: float) -> None:
        """Runs a step, ended after `limit_s` or when the time of the call is up."""
        known, options = self.of(step), self.options
        log = options.out / "logs" / f"{step.safe_name}.txt"
        output = options.out / step.output if step.output else log
        (options.out / "counters").mkdir(exist_ok=True)
        for path in (log, output):
            path.parent.mkdir(parents=True, exist_ok=True)
        source = options.out / "inputs" / f"{step.safe_name}.json"
        if step.input:
            source.parent.mkdir(exist_ok=True)
            source.write_text(step.input, "utf-8")
        if step.name == "python-methods":
            write_module_source(options)
        known.update(outcome=RUNNING, reason="", exit_code=None, attempts=known["attempts"] + 1, begun_at=now())
        self.save()
        print(f"=== {step.name}", flush=True)
        begin = time.monotonic()
        limit_s, of_call = min((limit_s, False), (self.clock.left_s(), True))
        outcome, reason = CUT, "the call was ended"
        try:
            # What a cut attempt printed stays, since the next one may be cut, too.
            with log.open("ab") as told, output.open("wb" if step.output else "ab") as printed:
                with open(source if step.input else os.devnull, "rb") as given:
                    child = start(step.command, options, stdin=given, stdout=printed, stderr=told,
                                  env={**options.environment(), **step.environment})  # fmt: skip
                try:
                    known["exit_code"] = child.wait(max(1.0, limit_s))
                    outcome = "passed" if known["exit_code"] == 0 else "failed"
                    reason = "" if outcome == "passed" else f"exit code {known['exit_code']}"
                except subprocess.TimeoutExpired:
                    end(child)
                    if of_call:
                        reason = "the time was up"
                    elif step.sweep:
                        reason = f"its {limit_s:.0f} s were up; the rest follows after the other steps"
                    else:
                        outcome, reason = "failed", f"ended after {limit_s:.0f} s; it was planned to take {60 * step.minutes:.0f}"
                except BaseException:
                    end(child)
                    raise
            if outcome == "passed" and step.sweep:
                why = why_unmeasured(options.out / "results" / step.sweep)
                outcome, reason = ("failed", why) if why else (outcome, reason)
        except OSError as error:
            outcome, reason = "failed", str(error)
        finally:
            known.update(outcome=outcome, reason=reason, seconds=round(known["seconds"] + time.monotonic() - begin, 1))
            shorten(log)
            self.save()
        print(f"=== {step.name}: {outcome}{', ' + reason if reason else ''}, {time.monotonic() - begin:.0f} s", flush=True)
        if outcome == "failed":
            print(log.read_text("utf-8", "replace")[-1500:], file=sys.stderr, flush=True)

    def after(self, step: Step) -> None:
        """Takes down what failed in a step, and writes what its results say."""
        note_failures(self, step)
        if step.sweep:
            write_table(self.options, step.sweep)
            write_predictions(self.options, self.state)
        write_summary(self.options, self.state)
        if self.archive:
            write_archive(self.options.out, Path(self.archive))


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def shorten(log: Path) -> None:
    data = log.read_bytes() if log.exists() else b""
    if len(data) > MAX_LOG_BYTES:
        log.write_bytes(b"[the beginning was left out]\n" + data[-MAX_LOG_BYTES:])


def why_unmeasured(folder: Path) -> str:
    """The reason why no record of a sweep is measured, which the sweep itself does not call a failure. Empty if one is."""
    records = records_of(folder)
    if any(record["outcome"] == "measured" for record in records):
        return ""
    return f"no case was measured: {records[0].get('reason') if records else 'there is no record'}"


# ---------------------------------------------------------------- failures and their smallest sizes


def failures_of_verify(options: Options, step: Step) -> Iterator[Tuple[str, str, Dict[str, Any]]]:
    """The kind, the error and the case of what failed in the output of `attnbench verify`."""
    try:
        rows = json.loads((options.out / step.output).read_text("utf-8"))
    except (OSError, ValueError):
        return
    for row in rows:
        if row.get("failed_case") and "the worker ended at an earlier case" not in row["verdict"]:
            yield "verify", row["verdict"], row["failed_case"]


def failures_of_sweep(options: Options, step: Step) -> Iterator[Tuple[str, str, Dict[str, Any]]]:
    """The same of the records of a sweep. That a case needs more memory or time than there is, is no error of a kernel."""
    for record in records_of(options.out / "results" / step.sweep):
        if record["outcome"] == "failed" and record.get("device") == "cuda" and record.get("failure_kind") not in ("oom", "usage"):
            case = {name: record[name] for name in AXES if record.get(name) is not None}
            yield "measure", f"{record.get('failure_kind')}: {record.get('reason')}", case


def note_failures(run: Run, step: Step) -> None:
    """Writes a file for each of the first failures of a step, which bisect_all() then completes."""
    options = run.options
    found = failures_of_verify(options, step) if step.verifies else failures_of_sweep(options, step) if step.sweep else iter(())
    seen = set()
    for mode, error, case in found:
        kind = (case["method"], case["dtype"], case["protocol"], case.get("causal"))
        path = options.out / "failures" / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', '-'.join(map(str, kind)))}-{mode}.json"
        if kind in seen or path.exists():
            continue
        if len(seen) == MAX_FAILURES:
            break
        seen.add(kind)
        write_json(path, {
            "step": step.name, "mode": mode, "error": error, "seed": case.get("seed", 0), "case": case, "smallest": case,
            "bisected": False, "trials": [],
        })  # fmt: skip


def try_case(options: Options, mode: str, case: Dict[str, Any], limit_s: float) -> str:
    """Runs a case in a process of its own, and returns its error; empty if it agrees."""
    request = dict(case)
    if mode == "measure":
        request.update(time_budget_s=0.01, warmup_s=0, noise_target=1e9, deadline_s=max(1.0, limit_s))
    plugins = [f"--plugin={path}" for path in options.plugins]
    folders = [f"--methods-folder={options.bundle / 'attnbench/share/attnbench'}"]
    read, write = os.pipe()
    os.write(write, json.dumps(request).encode())
    os.close(write)
    with os.fdopen(read, "rb") as given:
        child = start([options.worker, "--answer-fd=1", *folders, *plugins, mode], options, stdin=given, stdout=subprocess.PIPE,
                      stderr=subprocess.PIPE, env=options.environment())  # fmt: skip
    try:
        answer, told = child.communicate(timeout=max(1.0, limit_s))
    except subprocess.TimeoutExpired:
        signal_group(child, signal.SIGKILL)
        child.communicate()
        return f"timeout: no answer within {limit_s:.0f} s"
    except BaseException:
        signal_group(child, signal.SIGKILL)
        child.communicate()
        raise
    for line in reversed(answer.decode("utf-8", "replace").splitlines()):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "outcome" in record:
            return f"{record.get('failure_kind')}: {record.get('reason')}" if record["outcome"] == "failed" else ""
    return f"crashed: exit code {child.returncode}; it said: {told.decode('utf-8', 'replace')[-300:].strip()}"


class OutOfTime(Exception):
    """The time of the call is up in a search."""


class Search:
    """Looks for the smallest case that fails as a case does: fewer sequences and heads, fewer positions, fewer dimensions."""

    def __init__(self, run: Run, path: Path):
        self.run, self.path = run, path
        self.failure = read_json(path, "what this program writes of a failure")

    def fails(self, case: Dict[str, Any]) -> bool:
        """Whether a case fails. Trials of an earlier call are not repeated."""
        for trial in self.failure["trials"]:
            if trial["case"] == case:
                return bool(trial["error"])
        if self.run.clock.left_s() < min(self.run.options.trial_s, 15):
            raise OutOfTime
        limit_s = min(self.run.options.trial_s, self.run.clock.left_s())
        error = try_case(self.run.options, self.failure["mode"], case, limit_s)
        if error.startswith("timeout") and limit_s < self.run.options.trial_s:
            raise OutOfTime  # it may only have been slow
        self.failure["trials"].append({"case": case, "error": error})
        if error:
            self.failure["smallest"], self.failure["smallest_error"] = case, error
        write_json(self.path, self.failure)
        return bool(error)

    def shrink(self, case: Dict[str, Any], names: Tuple[str, ...], values: List[int]) -> Dict[str, Any]:
        """Sets the axes `names`, which are equal, to the smallest of the ascending values that fails, if all above it fail, too."""
        low, high = -1, len(values) - 1  # values[high] fails
        while high - low > 1:
            middle = (low + high) // 2
            if self.fails({**case, **{name: values[middle] for name in names}}):
                high = middle
            else:
                low = middle
        return {**case, **{name: values[high] for name in names}}

    def search(self) -> None:
        case = self.failure["case"]
        if not self.fails(case):
            self.failure.update(bisected=True, reproduced=False)
            write_json(self.path, self.failure)
            return
        self.failure["reproduced"] = True
        for names in (("batch",), ("heads", "kv_heads", "value_heads")):
            alone = {**case, **{name: 1 for name in names}}
            if alone != case and self.fails(alone):
                case = alone
        lengths = ("query_len", "key_len") if case["query_len"] == case["key_len"] else ("query_len",)
        case = self.shrink(case, lengths, list(range(1, case["query_len"] + 1)))
        sizes = ("head_dim", "value_dim") if case["head_dim"] == case["value_dim"] else ("head_dim",)
        smaller = [size for size in (8, 16, 32, 64, 128) if size < case["head_dim"]]
        case = self.shrink(case, sizes, [*smaller, case["head_dim"]])
        self.failure.update(bisected=True, smallest=case, command=measure_command(case))
        write_json(self.path, self.failure)
        print(f"=== smallest failing case of {case['method']}: {self.failure['command']}", flush=True)


def measure_command(case: Dict[str, Any]) -> str:
    words = ["attnbench", "measure", str(case["method"])]
    for name, value in case.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words += [option] if value else []
        elif name != "method":
            words.append(f"{option}={value}")
    return " ".join(words)


def bisect_all(run: Run) -> None:
    """Completes the files of failures whose smallest size is not known yet."""
    for path in sorted((run.options.out / "failures").glob("*.json")):
        search = Search(run, path)
        if search.failure["bisected"]:
            continue
        try:
            search.search()
        except OutOfTime:
            return


# ---------------------------------------------------------------- what is written of the results


def write_table(options: Options, folder: str) -> None:
    """Writes the records as a table, unless there are none yet."""
    if not records_of(options.out / "results" / folder):
        return
    path = options.out / "tables" / f"{folder}.md"
    path.parent.mkdir(exist_ok=True)
    done = subprocess.run(
        [options.program, "table", str(options.out / "results" / folder), "--format", "markdown"], capture_output=True, check=False,
        env=options.environment(),
    )  # fmt: skip
    if done.returncode == 0:
        path.write_bytes(done.stdout)


def title_of(state: Dict[str, Any]) -> str:
    if state.get("stand_in"):
        return f"REHEARSAL with {state['gpu']}, which stands in for a GPU: no figure here is that of a GPU"
    return f"{state['gpu']}, driver {state['driver']}, revision {state['revision']}, torch {state['torch']}"


def time_text(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def measured_of(prediction: Dict[str, str], records: List[Dict[str, Any]]) -> Optional[float]:
    """The median of the times measured of the call that a line of predictions.csv is about, in seconds; None if none was."""
    method = {"lsh": "lsh-1"}.get(prediction["method"], prediction["method"])
    found = sorted(
        record["time_median_ms"] / 1e3
        for record in records
        if record["outcome"] == "measured" and record["method"] in (method, prediction["method"])
        and all(record[name] == prediction[name] for name in ("dtype", "protocol"))
        and record["batch"] * record["heads"] == int(prediction["heads"])
        and record["query_len"] == record["key_len"] == int(prediction["length"])
        and record["head_dim"] == record["value_dim"] == 64 and record["causal"] and record["device"] == "cuda"
    )  # fmt: skip
    return found[len(found) // 2] if found else None


def write_predictions(options: Options, state: Dict[str, Any]) -> None:
    """Writes the predicted times of the calls that were measured beside the measured ones."""
    records = [r for folder in sorted((options.out / "results").glob("*")) for r in records_of(folder)]
    with (options.bundle / "predictions.csv").open(encoding="utf-8") as file:
        predictions = list(csv.DictReader(line for line in file if not line.startswith("#")))
    lines = [
        title_of(state), "",
        "Predicted for an H100 SXM (docs/cuda-model.md) and measured here; the ratio is measured over expected.", "",
        "| call | heads | N | at best | expected | measured | ratio |", "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for p in predictions:
        time_s = measured_of(p, records)
        best, expected = float(p["best_s"]), float(p["expected_s"])
        if time_s is not None:
            name = f"{p['method']} {p['dtype']} {p['protocol'].replace('_', ' + ')}"
            lines.append(
                f"| {name} | {p['heads']} | {int(p['length']):,} | {time_text(best)} | {time_text(expected)} | {time_text(time_s)} "
                f"| {time_s / expected:.2f} |"
            )
    if len(lines) > 6:
        (options.out / "predictions.md").write_text("\n".join(lines) + "\n", "utf-8")


def write_summary(options: Options, state: Dict[str, Any]) -> None:
    lines = [title_of(state), "", "| step | outcome | seconds |", "|---|---|---|"]
    for name, step in state["steps"].items():
        reason = f": {step['reason']}" if step["reason"] else ""
        lines.append(f"| {name} | {step['outcome']}{reason.replace('|', '/')} | {step['seconds']:.0f} |")
    for path in sorted((options.out / "failures").glob("*.json")):
        failure = read_json(path, "what this program writes of a failure")
        what = "" if failure["bisected"] else " so far"
        lines += ["", f"**{failure['step']}**: {failure['error']}", "", f"The smallest case that fails{what}: "
                  f"`{measure_command(failure['smallest'])}`"]  # fmt: skip
    (options.out / "summary.md").write_text("\n".join(lines) + "\n", "utf-8")


def write_archive(folder: Path, archive: Path) -> None:
    """Packs the results into one file, for places that only few files come back from."""
    unfinished = archive.with_name(archive.name + ".new")
    with tarfile.open(unfinished, "w:gz") as tar:
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and inside.parts[0] not in ("cache", "python-module") and path.resolve() != unfinished.resolve():
                if path.resolve() != archive.resolve():
                    tar.add(path, f"{folder.name}/{inside}", recursive=False)
    os.replace(unfinished, archive)


def write_environment(options: Options) -> None:
    """What other programs say about the machine."""
    for name, command in {
        "nvidia-smi.txt": ["nvidia-smi", "-q"],
        "processor.txt": ["lscpu"],
        "python.txt": [options.node.python or sys.executable, "-m", "pip", "freeze", "--disable-pip-version-check"],
    }.items():
        path = options.out / "environment" / name
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=20)
        except (OSError, subprocess.SubprocessError):
            continue
        if done.returncode == 0:
            path.write_bytes(done.stdout)


# ---------------------------------------------------------------- the command


def bundle_facts(bundle: Path) -> Dict[str, Any]:
    facts = read_json(bundle / "bundle.json", "the file that `make gpu-bundle` writes beside gpu.py")
    if facts.get("format") != "attnbench-gpu-bundle" or facts.get("version") != 1:
        raise UnfitError(f"{bundle / 'bundle.json'} has version {facts.get('version')!r}; expected 1, which this gpu.py reads")
    return facts


def parse(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu.py", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=25, help=f"how long this call may take, at least {MIN_MINUTES} (default: 25)")
    parser.add_argument("--out", default="attnbench-gpu-results", metavar="FOLDER",
                        help="folder of results; one that an earlier call has begun is continued (default: attnbench-gpu-results)")  # fmt: skip
    parser.add_argument("--torch", default=os.environ.get("ATTNBENCH_TORCH", ""), metavar="FOLDER",
                        help="folder of torch, such as …/site-packages/torch (default: ATTNBENCH_TORCH, or that of --python)")  # fmt: skip
    parser.add_argument("--python", default="", metavar="FILE", help="Python that has torch (default: the one that runs this file)")
    parser.add_argument("--archive", default="", metavar="FILE", help="also pack the results into this file after each step (.tar.gz)")
    parser.add_argument("--dry-run", action="store_true", help="list the steps with the minutes that are planned for each, and run none")
    parser.add_argument("--retry", action="store_true", help="run the steps that failed in an earlier call again")
    parser.add_argument("--only", action="append", default=[], metavar="STEP", help="run only the steps whose names begin so; can be repeated")
    parser.add_argument("--skip", action="append", default=[], metavar="STEP", help="leave out the steps whose names begin so; can be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="replace an axis or a setting in every sweep")
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE", help="shared library with further methods to verify")
    parser.add_argument("--trial-seconds", type=float, default=30, metavar="S",
                        help="after so long a case whose smallest failing size is searched counts as hanging (default: 30)")  # fmt: skip
    return parser.parse_args(arguments)


def chosen_steps(steps: List[Step], only: List[str], skip: List[str]) -> List[Step]:
    for option, names in (("--only", only), ("--skip", skip)):
        for name in names:
            if not any(step.name.startswith(name) for step in steps):
                known = dict.fromkeys(step.name.split(" ")[0] for step in steps)
                raise UnfitError(f"{option} {name} is no step; expected the beginning of one, such as {', '.join(known)}")
    return [
        step for step in steps
        if (not only or any(step.name.startswith(n) for n in only)) and not any(step.name.startswith(n) for n in skip)
    ]  # fmt: skip


def print_plan(steps: List[Step]) -> None:
    print("Planned minutes on an H100; they are counted from the number of cases, and were not measured:")
    for step in steps:
        print(f"{step.minutes:6.2f}  {step.name}{': ' + step.missing if step.missing else ''}")
    print(f"{sum(step.minutes for step in steps if not step.missing):6.2f}  in all")


def run_steps(run: Run, steps: List[Step], retry: bool) -> None:
    """Runs what has not ended yet, in order. What was cut twice, and the rest of sweeps, come after the other steps."""
    again = [NOT_RUN, CUT, "missing", *(["failed"] if retry else [])]
    open_steps = [step for step in steps if run.of(step)["outcome"] in again]
    late = [step for step in open_steps if run.of(step)["attempts"] >= 2 and run.of(step)["outcome"] == CUT]
    bisect_all(run)
    for turn, todo in enumerate(([step for step in open_steps if step not in late], open_steps)):
        for step in todo:
            known = run.of(step)
            if turn == 1 and known["outcome"] != CUT:
                continue
            if run.clock.left_s() < run.clock.min_left_s:
                return
            known["reason"] = step.missing
            if not step.missing and step.needs and not run.passed(step.needs):
                known["reason"] = f"the step {step.needs} did not pass"
            if known["reason"]:
                known["outcome"] = "missing"
                print(f"=== {step.name}: not run, {known['reason']}", flush=True)
                run.save()
                continue
            limit_s = run.clock.left_s() if turn == 1 and step.sweep else step.limit_s()
            run.run(step, limit_s)
            run.after(step)
            bisect_all(run)


def report(run: Run, steps: List[Step], archive: str) -> int:
    """Prints how the steps went, and returns the exit code."""
    state = run.state
    outcomes = [(step, run.of(step)) for step in steps]
    failed = [(step, known) for step, known in outcomes if known["outcome"] == "failed"]
    unfinished = [step for step, known in outcomes if known["outcome"] in (CUT, NOT_RUN)]
    for step, known in failed:
        print(f"gpu: {step.name}: failed, {known['reason']}", file=sys.stderr)
    for step, known in outcomes:
        if known["outcome"] == "missing":
            print(f"gpu: {step.name}: not run, {known['reason']}", file=sys.stderr)
    print(title_of(state))
    passed = sum(known["outcome"] == "passed" for _, known in outcomes)
    print(f"{run.options.out}: {passed} of {len(steps)} steps passed, {len(failed)} failed, {len(unfinished)} are left")
    if unfinished:
        print(f"the same command continues, with: {', '.join(step.name for step in unfinished[:5])}{', …' if len(unfinished) > 5 else ''}")
    if archive:
        print(f"{archive}: all results in one file")
    print(f"`attnbench merge {run.options.out.name}/results/SWEEP --out FOLDER` takes the records")
    return 1 if failed else 3 if unfinished else 0


def main(arguments: List[str]) -> int:
    chosen = parse(arguments)
    clock = Clock(chosen.minutes)

    def stop(number: int, _: Any) -> None:
        raise Ended(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    run = None
    try:
        facts = bundle_facts(BUNDLE)
        if not chosen.minutes >= (0 if facts["stand_in"] else MIN_MINUTES):  # a rehearsal may be shorter
            raise UnfitError(f"--minutes {chosen.minutes:g}; expected at least {MIN_MINUTES}")
        node = find_node(chosen.torch, chosen.python)
        options = Options(Path(chosen.out).resolve(), BUNDLE, node, facts["stand_in"], chosen.set,
                          [str(Path(p).resolve()) for p in chosen.plugin], chosen.trial_seconds)  # fmt: skip
        steps = chosen_steps(steps_of(options), chosen.only, chosen.skip)
        if chosen.dry_run:
            print_plan(steps)
            return 0
        gpu = find_gpu(facts["torch"]["cuda"])
        check_kernels(gpu, facts["kernels"])
        options.out.mkdir(parents=True, exist_ok=True)
        run = Run(options, clock, facts, gpu, chosen.archive)
        print(f"{title_of(run.state)}; {node.torch}", flush=True)
        write_environment(options)
        run_steps(run, steps, chosen.retry)
        write_summary(options, run.state)
        return report(run, steps, chosen.archive)
    except UnfitError as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 2
    except Ended as ended:
        if run is not None:
            write_summary(run.options, run.state)
        print(f"gpu: ended by {signal.Signals(ended.number).name}; the same command continues", file=sys.stderr)
        return 128 + ended.number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
