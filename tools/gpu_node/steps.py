"""The steps: which commands verify and measure, in which order, and how long each may take."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Tuple

from gpu_node.files import UnfitError, read_json
from gpu_node.machine import Node

# A step that is no sweep and takes so many times as long as planned hangs.
PATIENCE = 4.0
MIN_LIMIT_S = 120.0
# A sweep gets so many times its planned minutes, those of its first round; what is left is measured after the other steps.
SWEEP_PATIENCE = 1.5
MIN_SWEEP_S = 45.0


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
            has_kernels = any(option["name"] == "implementation" and "cuda" in option["choices"] for option in method["options"])
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


def bundle_facts(bundle: Path) -> Dict[str, Any]:
    facts = read_json(bundle / "bundle.json", "the file that `make gpu-bundle` writes beside gpu.py")
    if facts.get("format") != "attnbench-gpu-bundle" or facts.get("version") != 1:
        raise UnfitError(f"{bundle / 'bundle.json'} has version {facts.get('version')!r}; expected 1, which this gpu.py reads")
    return facts


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
        str(source), *(str(folder / name) for name in ("libworker.a", "libschema.a", "libmachine.a", "libstatistics.a")),
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
        *(verify(method, 0.09, "--quick") for method in rest),
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
