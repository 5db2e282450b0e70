#!/usr/bin/env python3
"""Measures everything that the project wants to know of a GPU, and packs it into one file.

`make gpu` runs it. It checks that driver, nvcc and torch fit together, builds the CUDA kernels for
the card, verifies and measures them, and packs records, logs and figures. A step that fails does
not keep the others from running. `attnbench import FILE` takes the records on another machine.

Exit codes: 0 if every step passed, 1 if one failed, 2 if the machine is not fit for it (nothing is
measured then), 130 after Ctrl-C.
"""

import argparse
import contextlib
import ctypes
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gpu_pack

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv/bin/python"
# A step that takes so many times as long as planned is ended, so that one that hangs does not take the whole time.
PATIENCE = 4.0
MIN_LIMIT_S = 300.0
MAX_LOG_BYTES = 1 << 20

# By major version of CUDA: the oldest driver for Linux that runs its programs, from the release notes of CUDA.
OLDEST_DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}


class UnfitError(Exception):
    """Says why this machine cannot measure, with what was found and what was expected."""


# ---------------------------------------------------------------- what there is


class Gpu(NamedTuple):
    name: str
    capability: str  # such as "9.0"
    driver: str  # such as "580.95.05"
    driver_cuda: str  # the newest CUDA version that the driver supports, such as "13.0"


class Torch(NamedTuple):
    version: str
    cuda: str | None  # the CUDA version that it was built with


def needed_driver(cuda: str) -> str:
    """What driver a program of this CUDA version needs, in words."""
    oldest = OLDEST_DRIVERS.get(int(cuda.split(".")[0]))
    return f"a driver for CUDA {cuda.split('.')[0]}.0 or newer" + (f", which is {oldest} or newer" if oldest else "")


def pinned_torch() -> str:
    """The version of torch that setup.sh installs."""
    (version,) = re.findall(r"^torch==(.+)$", (ROOT / "requirements-build.txt").read_text("utf-8"), re.MULTILINE)
    return str(version)


def find_gpu() -> Gpu:
    """Asks NVML, which every driver brings with it, about the first visible GPU."""
    wanted = f"the driver of an NVIDIA GPU; torch {pinned_torch()} needs {needed_driver('13.0')}"
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise UnfitError(f"there is no NVIDIA driver ({error}); expected {wanted}") from error

    def ask(name: str, *arguments: Any) -> None:
        if code := getattr(nvml, name)(*arguments):
            nvml.nvmlErrorString.restype = ctypes.c_char_p
            said = (nvml.nvmlErrorString(code) or b"").decode(errors="replace")
            raise UnfitError(f"the NVIDIA driver does not work: {name} failed: {said or code}; expected {wanted}")

    def text(name: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(256)
        ask(name, *arguments, buffer, 256)
        return buffer.value.decode(errors="replace")

    ask("nvmlInit_v2")
    count, cuda = ctypes.c_uint(), ctypes.c_int()
    ask("nvmlDeviceGetCount_v2", ctypes.byref(count))
    if count.value == 0:
        raise UnfitError(f"the NVIDIA driver finds no GPU; expected {wanted}")
    driver = text("nvmlSystemGetDriverVersion")
    ask("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(cuda))
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
    cuda_text = f"{cuda.value // 1000}.{cuda.value % 1000 // 10}"
    return Gpu(text("nvmlDeviceGetName", handle), f"{major.value}.{minor.value}", driver, cuda_text)


def find_torch() -> Torch:
    """Reads the version of the torch of .venv without loading it."""
    code = (
        "import importlib.util as u, json, pathlib, runpy\n"
        "found = u.find_spec('torch')\n"
        "facts = runpy.run_path(str(pathlib.Path(found.origin).with_name('version.py')))\n"
        "print(json.dumps([str(facts['__version__']), facts['cuda']]))"
    )
    try:
        done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UnfitError(f"{PYTHON} has no torch; expected that of requirements.txt, which `make setup` installs") from error
    return Torch(*json.loads(done.stdout))


def find_nvcc() -> tuple[Path, str]:
    """The path of nvcc and its version, such as "13.0"."""
    candidates = [Path(os.environ["CUDA_HOME"]) / "bin/nvcc"] if os.environ.get("CUDA_HOME") else []
    if on_path := shutil.which("nvcc"):
        candidates.append(Path(on_path))
    candidates.append(Path("/usr/local/cuda/bin/nvcc"))
    for path in candidates:
        if not os.access(path, os.X_OK):
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        if version := re.search(r"release (\d+\.\d+)", said):
            return path, version[1]
        raise UnfitError(f"{path} --version does not say its version; expected the nvcc of a CUDA toolkit")
    raise UnfitError(
        "nvcc was not found in $CUDA_HOME/bin, on PATH or in /usr/local/cuda/bin; expected that of the CUDA version of torch"
    )


def check_driver(gpu: Gpu, torch: Torch) -> None:
    if torch.cuda is None:
        raise UnfitError(f"torch {torch.version} was built for CPUs only; expected a build with CUDA")
    if int(gpu.driver_cuda.split(".")[0]) < int(torch.cuda.split(".")[0]):
        raise UnfitError(
            f"the driver {gpu.driver} supports CUDA up to {gpu.driver_cuda}, which is too old for torch {torch.version}, built "
            f"with CUDA {torch.cuda}; expected {needed_driver(torch.cuda)}"
        )


def check_nvcc(path: Path, version: str, torch: Torch) -> None:
    assert torch.cuda
    if version.split(".")[0] != torch.cuda.split(".")[0]:
        raise UnfitError(
            f"{path} is of CUDA {version}, but torch {torch.version} was built with CUDA {torch.cuda}; expected nvcc of CUDA "
            f"{torch.cuda.split('.')[0]}, which CUDA_HOME or PATH may name"
        )


# ---------------------------------------------------------------- steps


@dataclass
class Step:
    """A command, the minutes that it is planned to take on an H100, and how it went."""

    name: str
    minutes: float
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    needs: str = ""  # the step without which this one cannot run
    missing: str = ""  # why it cannot run on this machine, which is no failure
    output: str = ""  # the file in the pack that standard output goes to, instead of the log
    records: Path | None = None  # the file of records that it makes, of which at least one must be measured
    outcome: str = "not run"
    reason: str = ""
    lacks_step: bool = False  # whether it was not run because the step that it needs did not pass
    exit_code: int | None = None
    seconds: float | None = None

    def result(self) -> dict[str, Any]:
        return {
            "name": self.name, "command": self.command, "outcome": self.outcome, "reason": self.reason,
            "exit_code": self.exit_code, "seconds": self.seconds,
        }  # fmt: skip


@dataclass
class Options:
    quick: bool
    build: Path
    settings: list[str]  # KEY=VALUE for every sweep


def sweep_steps(options: Options, run: Path) -> list[Step]:
    """The sweeps and what is made of their records."""
    program, quick = str(options.build / "attnbench"), options.quick
    short = ["timing.time_budget_s=0.1"] if quick else []
    # By sweep: minutes, the settings of the full and of the quick form, the methods of the quick form, and the figure.
    plans: dict[str, tuple[float, list[str], float, list[str], str, str]] = {
        "figure1": (5, ["device=cuda", "timing.time_budget_s=0.3"], 0.5,
                    ["device=cuda", "protocol=forward", "query_len=1024-16384*16"], "softmax,linear,lsh-1", "figure1"),
        "latency": (3, ["timing.time_budget_s=0.3"], 0.3, ["device=cuda", "query_len=1024"], "linear,stateful-softmax", "plot"),
        "decode": (3, ["device=cuda", "timing.time_budget_s=0.3"], 0.2, ["device=cuda", "query_len=1024"], "linear,stateful-softmax",
                   "decode"),
        "gpu-grid": (4, [], 0.3, ["protocol=forward", "query_len=4096", "batch=8"], "linear", "gpu-grid"),
        "rivals": (3, ["device=cuda", "timing.processes=1", "timing.time_budget_s=0.2"], 0, [], "", "plot"),
    }  # fmt: skip
    steps = []
    for name, (minutes, settings, quick_minutes, quick_settings, methods, figure) in plans.items():
        if quick and not quick_minutes:
            continue
        chosen = (quick_settings if quick else settings) + short + options.settings
        folder = str(run / "results" / name)
        sets = [word for setting in chosen for word in ("--set", setting)]
        only = ["--methods", methods] if quick else []
        command = [program, "sweep", f"sweeps/{name}.toml", "--out", folder, *only, *sets]
        records = run / "results" / name / "records.jsonl"
        steps.append(Step(f"sweep-{name}", quick_minutes if quick else minutes, command, needs="build", records=records))
        steps.append(
            Step(f"table-{name}", 0, [program, "table", folder, "--format", "markdown"], needs=f"sweep-{name}",
                 output=f"tables/{name}.md")
        )  # fmt: skip
        figures = str(run / "figures" / name)
        draw = [str(PYTHON), f"plots/{figure}.py", folder, "--out", figures]
        steps.append(Step(f"figure-{name}", 0.05, draw, needs=f"sweep-{name}"))
    return steps


def steps_of(options: Options, run: Path, gpu: Gpu, nvcc: Path) -> list[Step]:
    """All steps in order."""
    build, quick = options.build, options.quick
    program = str(build / "attnbench")
    architecture = gpu.capability.replace(".", "")
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=str(nvcc.parent))
    require = {"ATTNBENCH_BUILD": str(build), "ATTNBENCH_REQUIRE_GPU": "1"}
    configure = [
        "cmake", "--preset", "release", "-B", str(build), "-DATTNBENCH_CUDA=ON", f"-Dnvcc={nvcc}",
        f"-DCMAKE_CUDA_ARCHITECTURES={architecture}",
    ]  # fmt: skip
    tests = [str(PYTHON), "-m", "pytest", "-q", "-rs", "tests/python/test_operators_cuda.py", *(["-k", "64-64 or strided"] if quick else [])]
    return [
        Step("configure", 0.2, configure),
        Step("build", 2.0 if quick else 4.0, ["cmake", "--build", str(build), "--target", "attnbench", "cuda"], needs="configure"),
        # Python methods need Python's headers, without which there is no such target.
        Step("build-python-methods", 0.05, ["cmake", "--build", str(build), "--target", "attnbench-python"], needs="build"),
        Step("doctor", 0.1, [program, "doctor", "--format", "json"], needs="build", output="environment/doctor.json"),
        Step("verify", 0.3 if quick else 2.0,
             [program, "verify", "--device", "cuda", "-q", *(["--quick", "linear", "lsh"] if quick else [])], needs="build"),
        Step("operators", 0.4 if quick else 2.0, tests, environment=require, needs="build"),
        Step("sanitizer", 0.4 if quick else 1.0,
             [sanitizer or "compute-sanitizer", "--target-processes", "all", "--error-exitcode", "1", program, "verify", "linear",
              "lsh", "--device", "cuda", "--quick", "-q"],
             needs="build", missing="" if sanitizer else "compute-sanitizer is neither on PATH nor beside nvcc"),
        *sweep_steps(options, run),
    ]  # fmt: skip


@contextlib.contextmanager
def ended_with_us(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ends the child and what it has started if this program is interrupted."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        raise


def why_unmeasured(records: Path) -> str:
    """The reason why no record of a sweep is measured, which the sweep itself does not call a failure. Empty if one is."""
    lines = [json.loads(line) for line in records.read_text("utf-8").splitlines()]
    if any(line["outcome"] == "measured" for line in lines):
        return ""
    return f"no case was measured: {lines[0]['reason'] if lines else 'there is no record'}"


def run_step(step: Step, run: Path, passed: set[str]) -> None:
    """Runs the command of a step, with its output in the folder, and says how it went."""
    if step.missing:
        step.reason = step.missing
    elif step.needs and step.needs not in passed:
        step.lacks_step = True
        step.reason = f"the step {step.needs} did not pass"
    if step.reason:
        print(f"=== {step.name}: not run, {step.reason}", flush=True)
        return
    print(f"=== {step.name}: {' '.join(step.command)}", flush=True)
    log = run / "logs" / f"{step.name}.txt"
    out = run / step.output if step.output else log
    for path in (log, out):
        path.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    limit_s = max(MIN_LIMIT_S, PATIENCE * 60 * step.minutes)
    try:
        with log.open("wb") as told, contextlib.ExitStack() as stack:
            printed = stack.enter_context(out.open("wb")) if step.output else told
            child = subprocess.Popen(
                step.command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=printed, stderr=told,
                env=os.environ | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} | step.environment, start_new_session=True,
            )  # fmt: skip
            with ended_with_us(child):
                step.exit_code = child.wait(limit_s)
        step.outcome = "passed" if step.exit_code == 0 else "failed"
        step.reason = "" if step.exit_code == 0 else f"exit code {step.exit_code}"
        if step.outcome == "passed" and step.records and (why := why_unmeasured(step.records)):
            step.outcome, step.reason = "failed", why
    except subprocess.TimeoutExpired:
        step.outcome, step.reason = "failed", f"ended after {limit_s:.0f} s"
    except OSError as error:
        step.outcome, step.reason = "failed", str(error)
    except KeyboardInterrupt:
        step.outcome, step.reason = "failed", "interrupted"
        raise
    finally:
        step.seconds = round(time.monotonic() - begin, 1)
    print(f"=== {step.name}: {step.outcome}{f', {step.reason}' if step.reason else ''}, {step.seconds:.0f} s", flush=True)
    if step.outcome == "failed":
        print(log.read_text("utf-8", "replace")[-2000:], file=sys.stderr, flush=True)


# ---------------------------------------------------------------- the pack


def said_by(*command: Any) -> str:
    """What a program prints; empty if there is no such program."""
    try:
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def write_environment(run: Path, nvcc: Path) -> None:
    """Adds what other programs say about the machine."""
    texts = {
        "nvidia-smi.txt": said_by("nvidia-smi", "-q"),
        "nvcc.txt": said_by(nvcc, "--version"),
        "python-packages.txt": said_by(PYTHON, "-m", "pip", "freeze", "--disable-pip-version-check"),
        "processor.txt": said_by("lscpu"),
    }
    (run / "environment").mkdir(exist_ok=True)
    for name, text in texts.items():
        if text:
            (run / "environment" / name).write_text(text, "utf-8")


def shorten_logs(run: Path) -> None:
    for log in (run / "logs").glob("*.txt"):
        data = log.read_bytes()
        if len(data) > MAX_LOG_BYTES:
            log.write_bytes(b"[the beginning was left out]\n" + data[-MAX_LOG_BYTES:])


def manifest_of(run: Path, steps: list[Step], gpu: Gpu, torch: Torch, nvcc: str, options: Options) -> dict[str, Any]:
    """What the pack says of itself. Revision and name of the GPU are those that the records have."""
    doctor: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        doctor = json.loads((run / "environment/doctor.json").read_bytes())
    revision = doctor.get("revision") or said_by("git", "-C", ROOT, "rev-parse", "--short=12", "HEAD").strip() or "unknown"
    return {
        "created_at": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "quick": options.quick,
        "revision": revision,
        "dirty": doctor.get("dirty"),
        "gpu": doctor.get("ceilings", {}).get("gpu", {}).get("name") or gpu.name,
        "gpu_capability": gpu.capability,
        "versions": {
            "driver": gpu.driver, "driver_cuda": gpu.driver_cuda, "torch": torch.version, "torch_cuda": torch.cuda,
            "nvcc": nvcc, "python": sys.version.split()[0], "build": doctor.get("build"), "compiler": doctor.get("compiler"),
        },
        "steps": [step.result() for step in steps],
    }  # fmt: skip


def default_archive(manifest: dict[str, Any]) -> Path:
    gpu = re.sub(r"[^a-z0-9]+", "-", manifest["gpu"].lower()).strip("-")
    return Path(f"attnbench-gpu-{gpu}-{manifest['revision']}.tar.gz")


# ---------------------------------------------------------------- the command


def print_plan(steps: list[Step]) -> None:
    print("Planned minutes on an H100; they are counted from the number of cases, and were not measured:")
    for step in steps:
        if step.minutes:
            print(f"{step.minutes:6.2f}  {step.name}")
    print(f"{sum(step.minutes for step in steps):6.2f}  in all")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/gpu.py", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter cases, for a first look within five minutes")
    parser.add_argument("--dry-run", action="store_true", help="list the steps with the minutes that are planned for each, and run none")
    parser.add_argument("--setup", action="store_true", help="install what is missing with ./setup.sh first")
    parser.add_argument("--build", default="build-gpu", metavar="FOLDER", help="build folder (default: build-gpu)")
    parser.add_argument("--out", metavar="FILE", help="archive to write (default: attnbench-gpu-GPU-REVISION.tar.gz)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="replace an axis or a setting in every sweep")
    parser.add_argument("--skip", action="append", default=[], metavar="STEP", help="leave out a step, such as operators")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    chosen = parse(arguments)
    options = Options(chosen.quick, (Path.cwd() / chosen.build).resolve(), chosen.set)
    if chosen.dry_run:
        print_plan(steps_of(options, Path("RUN"), Gpu("", "0.0", "", ""), Path("nvcc")))
        return 0
    try:
        gpu = find_gpu()
        if chosen.setup and (code := subprocess.run([ROOT / "setup.sh"], check=False).returncode):
            raise UnfitError(f"./setup.sh ended with exit code {code}")
        torch = find_torch()
        check_driver(gpu, torch)
        nvcc, nvcc_version = find_nvcc()
        check_nvcc(nvcc, nvcc_version, torch)
    except UnfitError as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 2
    print(f"{gpu.name} (compute capability {gpu.capability}), driver {gpu.driver}, nvcc {nvcc_version}, torch {torch.version}")

    with tempfile.TemporaryDirectory(prefix="attnbench-gpu-") as folder:
        run = Path(folder)
        steps = steps_of(options, run, gpu, nvcc)
        if unknown := sorted(set(chosen.skip) - {step.name for step in steps}):
            print(f"gpu: --skip {unknown[0]}, expected one of {', '.join(step.name for step in steps)}", file=sys.stderr)
            return 2
        passed = set(chosen.skip)
        interrupted = False
        try:
            for step in steps:
                if step.name in chosen.skip:
                    step.reason = "left out with --skip"
                    continue
                run_step(step, run, passed)
                if step.outcome == "passed":
                    passed.add(step.name)
        except KeyboardInterrupt:
            interrupted = True
        write_environment(run, nvcc)
        shorten_logs(run)
        manifest = manifest_of(run, steps, gpu, torch, nvcc_version, options)
        archive = Path(chosen.out) if chosen.out else default_archive(manifest)
        gpu_pack.write(run, archive, manifest)
    failed = [step for step in steps if step.outcome == "failed" or step.lacks_step]
    for step in failed:
        print(f"gpu: {step.name}: {step.outcome}, {step.reason}", file=sys.stderr)
    print(f"{archive}: send this file back; `attnbench import {archive.name}` takes its records")
    return 130 if interrupted else 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it ends what it has started, as after Ctrl-C
    sys.exit(main(sys.argv[1:]))
