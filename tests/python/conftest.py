"""What the command-line tests share: the built programs, workers that stand in for the real one,
sweep files, strict JSON, and a look at the processes that are running."""

import contextlib
import fcntl
import json
import os
import signal
import struct
import subprocess
import termios
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Inductor's cache does not notice that an operator's schema has changed.
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"

# Only what hangs takes longer, on a slow machine that is busy with other work too.
HANG_S = 1800


def small(**options):
    """Options of `measure` for a case that takes a fraction of a second, on one thread."""
    few = {"query_len": 64, "heads": 2, "head_dim": 16, "threads": 1}
    few |= {"warmup_s": 0, "time_budget_s": 0.05} | options
    return [f"--{name.replace('_', '-')}={value}" for name, value in few.items()]


# What a worker may answer to `measure`, without measuring.
ANSWER = {
    "outcome": "measured", "implementation": "stand-in", "measured_s": 0.01,
    "time_first_ms": 1.5, "time_samples_ms": [1.0, 1.2, 1.1, 1.0, 1.3], "samples": 5,
    "calls_per_sample": 1, "warmup_calls": 1, "stop_reason": "time_budget",
    "input_bytes": 1024, "output_bytes": 512, "saved_bytes": 0, "peak_allocated_bytes": 3072,
    "peak_extra_bytes": 2048, "peak_extra_bytes_per_sample": 2048.0,
    "largest_allocation_bytes": 1024, "max_abs_error": 1e-8, "max_rel_error": 1e-8,
    "error_tolerance": 5e-4, "rows_checked": 64,
}  # fmt: skip

# High enough that nothing is implausible, and nothing predicted to outlast its deadline.
CEILINGS = {
    "read_gb_s": 1e4, "copy_gb_s": 1e4, "fma_float32_gflop_s": 1e6, "fma_float64_gflop_s": 1e6,
    "fma_instruction_set": "none", "array_bytes": 2**27, "threads": 1,
    "gpu": {"unavailable": "a stand-in has none"},
}  # fmt: skip


def strict_json(text):
    """JSON without NaN, Infinity or a key given twice."""

    def refuse(token):
        raise ValueError(f"not strict JSON: {token}")

    def unique(pairs):
        names = [name for name, _ in pairs]
        assert len(names) == len(set(names)), f"a key is given twice: {names}"
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)


def records_in(folder):
    """Every line of a folder's records.jsonl, in order."""
    text = (Path(folder) / "records.jsonl").read_text("utf-8")
    assert text == "" or text.endswith("\n"), "the last line is torn"
    return [strict_json(line) for line in text.splitlines()]


def write_sweep(path, *, description="a test", limits=(), timing=(), published=None, **axes):
    """A sweep file of small cases; `axes` replace or add to its own."""
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
        # Text, numbers, flags and lists are written in TOML as in JSON.
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


def processes():
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended meanwhile
            continue
        state, parent, group = stat.rpartition(")")[2].split()[:3]
        found.append(Process(int(entry.name), state, int(parent), int(group), command.strip()))
    return found


def children(pid):
    return [process for process in processes() if process.parent == pid]


def stopped(pid):
    return any(process.pid == pid and process.state in "TZX" for process in processes())


def group_members(group):
    """Whoever of a process group still runs; a zombie does not."""
    return [p for p in processes() if p.group == group and p.state not in "ZX"]


def wait_for(condition, what, seconds=HANG_S, driver=None):
    """Returns the first true value of `condition()`. Fails after a hang, and at once if it waits for
    something that `driver` does and that process has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended = driver is not None and driver.poll() is not None
        if value := condition():
            return value
        if ended:
            shown = "\n".join(stream.read() for stream in (driver.stdout, driver.stderr) if stream)
            pytest.fail(f"waited for {what}, but the driver ended with {driver.returncode}:\n{shown}")
        time.sleep(0.01)
    pytest.fail(f"waited {seconds} s in vain: {what}")


def measuring_worker(driver):
    """The worker that measures a case for this driver, once there is one."""
    return wait_for(
        lambda: next((p for p in children(driver.pid) if p.command.endswith(" measure")), None),
        "a worker that measures",
        driver=driver,
    )


# ---------------------------------------------------------------- programs


STREAMS = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


class Cli:
    """`attnbench` as a user calls it."""

    def __init__(self, program, worker=None, folder=None):
        self.program, self.worker, self.folder = Path(program), worker, folder

    def with_worker(self, worker):
        return Cli(self.program, worker, self.folder)

    def command(self, *arguments):
        worker = ["--worker", str(self.worker)] if self.worker else []
        return [str(self.program), *worker, *map(str, arguments)]

    def __call__(self, *arguments, code=0, timeout=HANG_S, **options):
        """Runs it to its end and checks its exit code. Line ends stay as they were written; bytes
        that are not UTF-8 show as \\xff."""
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
        """Runs it with a terminal for these streams; gives its exit code and what the terminal
        showed, with line ends as a file has them."""
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        shown = b""
        with self.running(*arguments, **{stream: slave for stream in streams}, **options) as driver:
            os.close(slave)
            while True:
                try:
                    piece = os.read(master, 4096)
                except OSError:  # nobody holds the other end any more
                    break
                shown += piece
            driver.wait(timeout=HANG_S)
            code = driver.returncode
        os.close(master)
        return code, shown.decode("utf-8").replace("\r\n", "\n")

    @contextlib.contextmanager
    def running(self, *arguments, **options):
        """Starts it and, however the test ends, leaves nothing of it behind."""
        driver = subprocess.Popen(
            self.command(*arguments), encoding="utf-8", start_new_session=True,
            **({"cwd": self.folder} | STREAMS | options),
        )  # fmt: skip
        try:
            yield driver
        finally:
            if driver.poll() is None:
                driver.send_signal(signal.SIGSTOP)  # so that it starts no worker meanwhile
                wait_for(lambda: stopped(driver.pid), "the driver to stop")
                for worker in children(driver.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(worker.group, signal.SIGKILL)
                driver.kill()
            driver.communicate()


@pytest.fixture(scope="session")
def build():
    folder = Path(os.environ.get("ATTNBENCH_BUILD", ROOT / "build")).resolve()
    for name in ("attnbench", "attnbench-worker"):
        if not os.access(folder / name, os.X_OK):
            pytest.fail(
                f"{folder / name} is missing: build first, or name the build folder in"
                " ATTNBENCH_BUILD", pytrace=False,
            )  # fmt: skip
    return folder


@pytest.fixture
def attnbench(build, tmp_path):
    """The driver with the worker beside it, in an empty folder."""
    return Cli(build / "attnbench", folder=tmp_path)


class Workers:
    """Makes workers: scripts that answer some commands and hand the others to the real one."""

    def __init__(self, folder, real):
        self.folder, self.real, self.made = folder, real, 0
        by_hand = [str(real)]
        self.environment = strict_json(subprocess.check_output([*by_hand, "environment"]))
        self.methods = strict_json(subprocess.check_output([*by_hand, "describe"]))

    def make(self, environment=(), ceilings=(), **commands):
        """Each command is shell code, with the request in $request and the functions `answer`
        (sends its argument as a line), `good` (sends ANSWER) and `real` (lets the real worker
        measure). What is slow and the same each time is answered from files: for `environment` and
        `ceilings` a dictionary of changes to them may be given instead."""
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
            f'case "$2" in\n{cases}*) exec \'{self.real}\' "$@" ;;\nesac\n'
        )
        script.chmod(0o755)
        return script


@pytest.fixture(scope="session")
def workers(build, tmp_path_factory):
    return Workers(tmp_path_factory.mktemp("workers"), build / "attnbench-worker")


@pytest.fixture(scope="session")
def quick_worker(workers):
    """Measures as the real one does; does not measure the machine's ceilings first."""
    return workers.make()


@pytest.fixture(scope="session")
def canned_worker(workers):
    """Answers every case at once, measuring nothing."""
    return workers.make(measure="good")


@pytest.fixture
def quick(attnbench, quick_worker):
    return attnbench.with_worker(quick_worker)


@pytest.fixture
def canned(attnbench, canned_worker):
    return attnbench.with_worker(canned_worker)


@pytest.fixture
def sweep(tmp_path):
    """Two methods at two lengths."""
    return write_sweep(tmp_path / "small.toml")
