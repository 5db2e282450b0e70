"""Helpers and fixtures that the command-line tests share: the built programs, stand-ins for the
worker, sweep files, strict JSON, and the list of running processes."""

import contextlib
import fcntl
import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Tests of one folder use helpers of another.
sys.path.extend(str(folder) for folder in sorted(Path(__file__).parent.iterdir()) if folder.is_dir())

# Inductor's cache is off, because it does not notice when the schema of an operator changes.
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
# Threads that wait do not spin, which would take the processors from the other tests.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# The Python package of the checkout, for the tests and for the programs that they start.
PACKAGE_FOLDER = str(ROOT / "python")
sys.path.insert(0, PACKAGE_FOLDER)
os.environ["PYTHONPATH"] = os.pathsep.join([PACKAGE_FOLDER, *filter(None, [os.environ.get("PYTHONPATH")])])

# Seconds after which a test counts as hanging, even on a slow machine that is busy otherwise.
HANG_S = float(os.environ.get("ATTNBENCH_HANG_S", 1800))

# Tests with the mark `long` that have not begun at this time, in seconds since 1970, are skipped. .ci/run sets it, so that slow machines
# get through; `make test` and the jobs of the workflow run all tests.
LONG_TESTS_UNTIL = float(os.environ.get("ATTNBENCH_LONG_TESTS_UNTIL", "inf"))


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes more than 20 s, and is left out where time is short (ATTNBENCH_LONG_TESTS_UNTIL)")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if item.get_closest_marker("long") and time.time() > LONG_TESTS_UNTIL:
        pytest.skip("left out, because the time for long tests is over (ATTNBENCH_LONG_TESTS_UNTIL)")


def small(**options):
    """Options of `measure` for a case on one thread that takes a fraction of a second. All samples
    count, however busy the machine is. `options` replace or add to them."""
    few = {"query_len": 64, "heads": 2, "head_dim": 16, "threads": 1, "max_disturbance": 1e6}
    few |= {"warmup_s": 0, "time_budget_s": 0.05} | options
    return [f"--{name.replace('_', '-')}={value}" for name, value in few.items()]


# A valid answer of a worker to `measure`, which stand-ins give without measuring.
ANSWER = {
    "outcome": "measured", "implementation": "stand-in", "measured_s": 0.01,
    "time_first_ms": 1.5, "time_samples_ms": [1.0, 1.2, 1.1, 1.0, 1.3], "samples": 5,
    "calls_per_sample": 1, "warmup_calls": 1, "stop_reason": "time_budget",
    "input_bytes": 1024, "output_bytes": 512, "saved_bytes": 0, "peak_allocated_bytes": 3072,
    "peak_extra_bytes": 2048, "peak_extra_bytes_per_sample": 2048.0,
    "largest_allocation_bytes": 1024, "max_abs_error": 1e-8, "max_rel_error": 1e-8,
    "error_tolerance": 5e-4, "rows_checked": 64,
}  # fmt: skip

# The ceilings that stand-ins report: so high that no time is implausible, and no case is predicted
# to exceed its deadline.
CEILINGS = {
    "read_gb_s": 1e4, "copy_gb_s": 1e4, "fma_float32_gflop_s": 1e6, "fma_float64_gflop_s": 1e6,
    "fma_instruction_set": "none", "array_bytes": 2**27, "threads": 1,
    "gpu": {"unavailable": "a stand-in has none"},
}  # fmt: skip


def strict_json(text):
    """Parses JSON, and refuses NaN, Infinity and a key that is given twice."""

    def refuse(token):
        raise ValueError(f"not strict JSON: {token}")

    def unique(pairs):
        names = [name for name, _ in pairs]
        assert len(names) == len(set(names)), f"a key is given twice: {names}"
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)


def shown_pattern(text):
    """A regular expression for lines that a document shows. "…" stands for any text in a line, and for any lines where a line has
    nothing else."""
    lines = ""
    for line in text.splitlines():
        anything = line.strip() == "…"
        lines += r"(?:.*\n)*?" if anything else ".*".join(map(re.escape, line.split("…"))) + "\n"
    return re.compile("^" + lines.removesuffix("\n") + "$", re.MULTILINE)


def words(text):
    """The text with any white space as one space, for texts that are wrapped at the width of the terminal."""
    return " ".join(text.split())


def results_of(name, inside=""):
    """The folder of the results of a sweep that the pages quote: of the first machine that has records."""
    return sorted((ROOT / "results" / name).glob(f"*/{inside}records.jsonl"))[0].parent


def log_of(folder):
    """The bytes of the folder's records.jsonl."""
    return (Path(folder) / "records.jsonl").read_bytes()


def kept_lines(before, after):
    """Whether every line of the log `before` is also in `after`, in any order."""
    return set(before.splitlines()) <= set(after.splitlines())


def records_in(folder):
    """The records of every line of a folder's records.jsonl, in order."""
    text = (Path(folder) / "records.jsonl").read_text("utf-8")
    assert text == "" or text.endswith("\n"), "the last line is incomplete"
    return [strict_json(line) for line in text.splitlines()]


def change_json(path, change):
    """Applies `change` to the value that the JSON file holds."""
    data = strict_json(Path(path).read_text())
    change(data)
    Path(path).write_text(json.dumps(data))


def change_records(folder, **changes):
    """Replaces these columns of every record of the folder."""
    records = [record | changes for record in records_in(folder)]
    (Path(folder) / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))


def write_sweep(path, *, description="a test", limits=(), timing=(), published=None, **axes):
    """Writes a sweep file of small cases and returns its path. `axes`, `limits` and `timing`
    replace or add to the keys of the sections of these names."""
    small = {"method": ["linear", "softmax"], "query_len": [32, 48], "heads": 2, "head_dim": 16}
    sections = {
        "axes": small | {"threads": 1} | axes,
        "limits": {"deadline_s": 60} | dict(limits),
        "timing": {"warmup_s": 0, "time_budget_s": 0.02} | dict(timing),
    }
    if published is not None:
        sections["published"] = {"file": published}
    lines = [f"description = {json.dumps(description)}"]
    for section, values in sections.items():
        lines.append(f"[{section}]")
        # TOML writes text, numbers, booleans and lists as JSON does.
        lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


# ---------------------------------------------------------------- processes


@dataclass(frozen=True)
class Process:
    pid: int
    state: str
    parent: int
    group: int
    command: str


def process(pid):
    """What /proc says of a process, or None if there is none with this id."""
    entry = Path("/proc") / str(pid)
    try:
        stat = (entry / "stat").read_text()
        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    state, parent, group = stat.rpartition(")")[2].split()[:3]
    return Process(int(pid), state, int(parent), int(group), command.strip())


def processes():
    return [p for p in map(process, (name for name in os.listdir("/proc") if name.isdigit())) if p]


def children(pid):
    return [p for p in processes() if p.parent == pid]


def is_stopped(pid):
    found = process(pid)
    return found is not None and found.state in "TZX"


def runs(pid):
    found = process(pid)
    return found is not None and found.state not in "ZX"


def group_members(group):
    """The processes of a process group that still run; zombies do not count."""
    return [p for p in processes() if p.group == group and p.state not in "ZX"]


def wait_for(condition, what, seconds=HANG_S, driver=None):
    """Calls `condition` until its value is true, and returns that value. Fails after `seconds`, and
    as soon as the process `driver`, which should make the condition true, has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended = driver is not None and driver.poll() is not None
        if value := condition():
            return value
        if ended:
            shown = "\n".join(stream.read() for stream in (driver.stdout, driver.stderr) if stream)
            pytest.fail(f"waited for {what}, but the driver ended with {driver.returncode}:\n{shown}")
        time.sleep(0.02)
    pytest.fail(f"waited {seconds} s in vain: {what}")


def measuring_workers(driver):
    """The workers of this driver that measure a case."""
    return [p for p in children(driver.pid) if "measure" in p.command.split()]


def measuring_worker(driver):
    """Waits until this driver has a worker that measures a case, and returns that worker."""
    return wait_for(lambda: next(iter(measuring_workers(driver)), None), "a worker that measures", driver=driver)


# ---------------------------------------------------------------- programs


STREAMS = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


class Cli:
    """Runs `attnbench` as a user does, in a folder, with the given worker or the one beside it."""

    def __init__(self, program, worker=None, folder=None):
        self.program, self.worker, self.folder = Path(program), worker, folder

    def with_worker(self, worker):
        return Cli(self.program, worker, self.folder)

    def command(self, *arguments):
        worker = ["--worker", str(self.worker)] if self.worker else []
        return [str(self.program), *worker, *map(str, arguments)]

    def __call__(self, *arguments, code=0, timeout=HANG_S, **options):
        """Runs it to its end, checks its exit code, and returns the completed process. Its output
        is decoded with unchanged line ends; bytes that are not UTF-8 become \\xff and so on."""
        done = subprocess.run(
            self.command(*arguments), timeout=timeout, check=False,
            **({"cwd": self.folder} | STREAMS | options),
        )  # fmt: skip
        done.stdout, done.stderr = (
            (stream or b"").decode("utf-8", "backslashreplace")
            for stream in (done.stdout, done.stderr)
        )
        assert done.returncode == code, (
            f"exit code {done.returncode}, expected {code}: "
            f"attnbench {' '.join(map(str, arguments))}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def json(self, *arguments, **options):
        return strict_json(self(*arguments, "--format=json", **options).stdout)

    def on_terminal(self, *arguments, streams=("stdout", "stderr"), width=200, **options):
        """Runs it with a terminal as these streams. Returns its exit code and the text that the
        terminal received, in which every line ends in a line feed alone."""
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        shown = b""
        with self.running(*arguments, **{stream: slave for stream in streams}, **options) as driver:
            os.close(slave)
            while True:
                try:
                    piece = os.read(master, 4096)
                except OSError:  # No process has the other end open any more.
                    break
                shown += piece
            driver.wait(timeout=HANG_S)
            code = driver.returncode
        os.close(master)
        return code, shown.decode("utf-8").replace("\r\n", "\n")

    @contextlib.contextmanager
    def running(self, *arguments, **options):
        """A context manager that starts it, and at its end kills it and its workers if they still
        run."""
        driver = subprocess.Popen(
            self.command(*arguments), encoding="utf-8", start_new_session=True,
            **({"cwd": self.folder} | STREAMS | options),
        )  # fmt: skip
        try:
            yield driver
        finally:
            if driver.poll() is None:
                driver.send_signal(signal.SIGSTOP)  # so that it starts no further worker
                wait_for(lambda: is_stopped(driver.pid), "the driver to stop")
                for worker in children(driver.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(worker.group, signal.SIGKILL)
                driver.kill()
            driver.communicate()


class ForkingCli(Cli):
    """Asks for forked processes in every command that has the option, unless `forks` is false."""

    forks = True

    def with_worker(self, worker):
        return ForkingCli(self.program, worker, self.folder)

    def command(self, *arguments):
        more = ["--forked"] if self.forks and arguments[0] in ("measure", "sweep") else []
        return super().command(*arguments, *more)


def shell(attnbench, line, **options):
    """Runs a line of bash in which $attnbench is the driver with its worker."""
    command = " ".join(map(shlex.quote, attnbench.command()))
    return subprocess.run(
        ["bash", "-c", line.replace("$attnbench", command)], check=False,
        **({"cwd": attnbench.folder, "capture_output": True, "text": True, "timeout": HANG_S} | options),
    )  # fmt: skip


@pytest.fixture(scope="session")
def build():
    """The build folder, from ATTNBENCH_BUILD or else `build`."""
    folder = Path(os.environ.get("ATTNBENCH_BUILD", ROOT / "build")).resolve()
    for name in ("attnbench", "attnbench-worker"):
        if not os.access(folder / name, os.X_OK):
            pytest.fail(
                f"{folder / name} is missing: build first, or name the build folder in"
                " ATTNBENCH_BUILD", pytrace=False,
            )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def chromium():
    """A browser without a window: the Chromium that `make setup` installs."""
    sync_api = pytest.importorskip("playwright.sync_api")
    program = os.environ.get("ATTNBENCH_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "there is no chromium; `make setup` installs it"
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


# Milliseconds after which an action in a browser counts as failed, also on a slow and busy machine.
PATIENCE_MS = 120_000


@contextlib.contextmanager
def opened_page(chromium, path, **context):
    """The page of a file in a browser. Fails at the end if the page has said anything on the console, or asked for anything but
    itself."""
    place = chromium.new_context(**{"viewport": {"width": 1200, "height": 900}, **context})
    page = place.new_page()
    page.set_default_timeout(PATIENCE_MS)
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    yield page
    place.close()
    assert not said
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [path.as_uri()]


@pytest.fixture
def attnbench(build, tmp_path):
    """The built driver with its own worker, run in an empty folder."""
    return Cli(build / "attnbench", folder=tmp_path)


@pytest.fixture
def forking(attnbench):
    """The driver, which forks its workers from a process that has loaded Python and torch. That takes half as long for each
    measurement of a method in Python."""
    return ForkingCli(attnbench.program, attnbench.worker, attnbench.folder)


class Workers:
    """Makes stand-ins for the worker: scripts that answer some commands themselves, and run the
    real worker for the others."""

    def __init__(self, folder, real):
        self.folder, self.real, self.made = folder, real, 0
        by_hand = [str(real)]
        self.environment = strict_json(subprocess.check_output([*by_hand, "environment"]))
        self.methods = strict_json(subprocess.check_output([*by_hand, "describe"]))

    def make(self, environment=(), ceilings=(), **commands):
        """Writes a stand-in and returns its path. An argument such as measure="…" is shell code
        that answers this command of the worker. It has the request in $request, and the functions
        `answer` (sends its argument as a line), `good` (sends ANSWER) and `real` (lets the real
        worker measure).

        Without shell code, `describe`, `environment` and `ceilings` are answered from files, since
        the real worker is slow and gives the same answer each time. For the last two, a dictionary
        of changes to that answer may be given in place of shell code."""
        self.made += 1
        folder = self.folder / str(self.made)
        folder.mkdir()
        known = {"describe": self.methods, "environment": self.environment, "ceilings": CEILINGS}
        changes = {"describe": (), "environment": environment, "ceilings": ceilings}
        bodies = {}
        for name, value in known.items():
            if isinstance(changes[name], str):
                commands[name] = changes[name]
                continue
            changed = value | dict(changes[name]) if changes[name] else value
            (folder / f"{name}.json").write_text(json.dumps(changed) + "\n")
            bodies[name] = f"exec cat '{folder / name}.json' >&3"
        (folder / "answer.json").write_text(json.dumps(ANSWER) + "\n")
        for name, body in commands.items():
            bodies[name] = f"request=$(cat)\n{body}"
        cases = "".join(f"{name})\n{body}\n;;\n" for name, body in bodies.items())
        script = folder / "attnbench-worker"
        script.write_text(
            f"#!/bin/sh\n"
            f"real() {{ printf '%s' \"$request\" | '{self.real}' --answer-fd=3 measure; }}\n"
            f"answer() {{ printf '%s\\n' \"$1\" >&3; }}\n"
            f"good() {{ cat '{folder}/answer.json' >&3; }}\n"
            # The command is the first word that is no option.
            f'for command; do case "$command" in --*) ;; *) break ;; esac; done\n'
            f'case "$command" in\n{cases}*) exec \'{self.real}\' "$@" ;;\nesac\n'
        )
        script.chmod(0o755)
        return script


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """A function that makes a folder once in a run of the tests: `made_once(name, make)` calls
    `make` with a path, unless that was done before, renames the folder that it has made, and
    returns the new path. The processes of pytest-xdist share the folder."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder_of(name, make):
        folder = shared / name
        with open(shared / f"{name}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                unfinished = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=shared))
                make(unfinished)
                unfinished.rename(folder)
        return folder

    return folder_of


def finished(*words, code=0, **options):
    """Runs a program to its end, checks its exit code, and returns all that it printed."""
    done = subprocess.run(
        list(map(str, words)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=False, **options,
    )  # fmt: skip
    assert done.returncode == code, f"{words} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def operators(build):
    """Loads the operators into this process, where they run on one thread: several would be slower on small tensors."""
    import torch

    torch.ops.load_library(str(build / "libattn.so"))
    torch.set_num_threads(1)


def kernels_of(call):
    """The instruction sets whose kernels of an operator this build and machine have, and the composed form; `call(name)` calls the
    implementation."""
    names = []
    for name in ("portable", "avx2", "avx512", "neon"):
        with contextlib.suppress(ValueError):
            call(name)
            names.append(name)
    assert "portable" in names
    return [*names, "composed"]


def expect_unchanged_by_autocast(run):
    """Checks that a function returns the same tensors, bit by bit and in the same dtypes, under torch.autocast."""
    import torch

    expected = run()
    with torch.autocast("cpu", torch.bfloat16):
        found = run()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.fixture(scope="session")
def prefix(build, made_once):
    """The prefix of an installation of the build, which was moved after it was installed."""
    return made_once("prefix", lambda folder: finished("cmake", "--install", build, "--prefix", folder))


def _packages_of_build():
    """The names of the Python packages that `setup.sh build` installs, with those that they need."""
    setup = (ROOT / "setup.sh").read_text()
    (chosen,) = re.findall(r"grep -E '\^\(([^)]*)\)==' requirements\.txt", setup)
    alone = re.findall(r"^([\w-]+)==", (ROOT / "requirements-build.txt").read_text(), re.MULTILINE)
    found, to_do = {_canonical(name) for name in alone}, [_canonical(name) for name in chosen.split("|")]
    while to_do:
        name = to_do.pop()
        if name in found:
            continue
        found.add(name)
        for line in importlib.metadata.requires(name) or ():
            if "extra ==" not in line:
                to_do.append(_canonical(re.match(r"[\w.-]+", line)[0]))
    return found


def _canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="session")
def after_quickstart(build, made_once):
    """The environment variables of a reader who has run `make quickstart`, in a checkout in which the tests can run: a Python with
    only the packages that this installs, and none of torch's CUDA libraries but those that it installs."""

    def make(folder):
        finished(sys.executable, "-m", "venv", "--without-pip", "--symlinks", folder / "venv")
        (packages,) = (folder / "venv/lib").glob("python3*/site-packages")
        for name in _packages_of_build():
            try:
                files = importlib.metadata.files(name)
            except importlib.metadata.PackageNotFoundError:
                continue  # is for another version of Python
            for first in {file.parts[0] for file in files or () if file.parts[0] not in ("..", "nvidia", "__pycache__")}:
                if not (packages / first).exists():
                    (packages / first).symlink_to(Path(files[0].locate()).parents[len(files[0].parts) - 1] / first)
        # The loader looks for CUDA libraries from the folder of the library that needs them.
        torch = Path(importlib.util.find_spec("torch").origin).parent
        (folder / "torch/lib").mkdir(parents=True)
        for library in (torch / "lib").iterdir():
            (folder / "torch/lib" / library.name).symlink_to(library)
        for name in ("cuda_runtime", "cuda_cupti"):
            for file in importlib.metadata.files(f"nvidia-{name}") or ():
                if ".so" in file.name:
                    link = folder / file
                    link.parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to(file.locate())

    folder = made_once("after-quickstart", make)
    return {
        "ATTNBENCH_PYTHON": str(folder / "venv/bin/python"),
        "LD_LIBRARY_PATH": str(folder / "torch/lib"),
        "PYTHONPATH": "",
    }


@pytest.fixture
def installed(prefix, tmp_path):
    """The installed driver, run in an empty folder."""
    return Cli(prefix / "bin/attnbench", folder=tmp_path)


@pytest.fixture(scope="session")
def workers(build, tmp_path_factory):
    return Workers(tmp_path_factory.mktemp("workers"), build / "attnbench-worker")


@pytest.fixture(scope="session")
def quick_worker(workers):
    """A worker that measures cases like the real one, but does not measure ceilings."""
    return workers.make()


@pytest.fixture(scope="session")
def canned_worker(workers):
    """A worker that answers every case at once with ANSWER, and measures nothing."""
    return workers.make(measure="good")


@pytest.fixture
def quick(attnbench, quick_worker):
    """The driver with quick_worker."""
    return attnbench.with_worker(quick_worker)


@pytest.fixture
def canned(attnbench, canned_worker):
    """The driver with canned_worker."""
    return attnbench.with_worker(canned_worker)


@pytest.fixture
def sweep(tmp_path):
    """The path of a sweep file of two methods at two lengths."""
    return write_sweep(tmp_path / "small.toml")
