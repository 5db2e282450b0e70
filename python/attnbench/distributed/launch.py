"""Starts the ranks of a measurement on this machine, and ends all of them when one fails or the deadline passes."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnbench.distributed.rank import DISAGREED, Request, request_text

PROGRAM = (sys.executable, "-m", "attnbench.distributed.rank")
# How long the other ranks may run after one has failed, so that a rank that caused the failure can end by itself.
GRACE_S = 1.0
LAST_WORDS = 2000  # how many characters a failure quotes from the end of a rank's output


def cores_of(ranks: int, threads: int) -> list[list[int]]:
    """For each rank the numbers of `threads` cores, out of those that this process may use. No core is given to two ranks.
    Raises ValueError if there are too few."""
    cores = sorted(os.sched_getaffinity(0))
    if ranks * threads > len(cores):
        raise ValueError(f"{ranks} ranks of {threads} threads need {ranks * threads} cores, but this process may use {len(cores)}")
    return [cores[rank * threads : (rank + 1) * threads] for rank in range(ranks)]


def run(request: Request, cores: Sequence[list[int]] | None, program: Sequence[str] = PROGRAM) -> dict[str, Any]:
    """Measures with a process for each rank, and returns what rank 0 answers, or {"failure": …} with the `kind` ("crashed",
    "timed_out" or "disagreed"), the `rank` that failed first and its `message`. No process is left running.

    Args:
        request: what to measure; its rank, init, answer, parent and cores are set here for each rank.
        cores: the cores of each rank; None if all ranks may use all cores of this process.
        program: the command of a rank, to which its request is appended as the last argument.
    """
    with _ended_by_sigterm(), tempfile.TemporaryDirectory(prefix="attnbench-ranks-") as folder:
        answer = Path(folder) / "answer.json"
        started: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(request.ranks):
                own = replace(
                    request, rank=rank, init=f"file://{folder}/store", answer=str(answer), parent=os.getpid(),
                    cores=[] if cores is None else cores[rank],
                )  # fmt: skip
                with open(_log(folder, rank), "wb") as log:
                    command = [*program, request_text(own)]
                    environment = os.environ | _environment(request)
                    started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment))
            failure = _wait(started, folder, request.deadline_s)
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                process.wait()
        if failure is None and not answer.exists():
            failure = {"kind": "crashed", "rank": 0, "message": "rank 0 ended without an answer"}
        return {"failure": failure} if failure else json.loads(answer.read_text("utf-8"))


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Within the `with` block the first SIGTERM raises SystemExit, so that ranks are ended and folders removed; further ones, which
    would interrupt that, are ignored. Does nothing outside the main thread, since only the main thread may set signal handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _environment(request: Request) -> dict[str, str]:
    """Environment variables with which a rank imports the same package as this process, PyTorch's libraries start with the
    requested number of threads, and glibc either keeps large blocks of memory or returns them to the system at once, as
    `keeps_memory` says."""
    kept = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 62)}
    fresh = {"MALLOC_MMAP_THRESHOLD_": str(1 << 17), "MALLOC_TRIM_THRESHOLD_": str(1 << 17)}
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    return {
        "OMP_NUM_THREADS": str(request.threads), "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        **(kept if request.keeps_memory else fresh),
    }  # fmt: skip


def _wait(started: Sequence["subprocess.Popen[bytes]"], folder: str, deadline_s: float) -> dict[str, Any] | None:
    """Waits until all ranks have ended with exit code 0, one has failed, or the deadline has passed. Returns None in the first
    case and otherwise the failure."""
    end = time.monotonic() + deadline_s
    while True:
        codes = [process.poll() for process in started]
        failed = [rank for rank, code in enumerate(codes) if code]
        if failed:
            _wait_for_others(started)
            return _failure(started, failed, folder)
        if all(code == 0 for code in codes):
            return None
        if time.monotonic() > end:
            late = [rank for rank, code in enumerate(codes) if code is None]
            words = _last_words(folder, late[0])
            message = f"not done after {deadline_s:g} s: {', '.join(f'rank {rank}' for rank in late)}{words}"
            return {"kind": "timed_out", "rank": late[0], "message": message}
        time.sleep(0.02)


def _wait_for_others(started: Sequence["subprocess.Popen[bytes]"]) -> None:
    end = time.monotonic() + GRACE_S
    while time.monotonic() < end and any(process.poll() is None for process in started):
        time.sleep(0.02)


def _failure(started: Sequence["subprocess.Popen[bytes]"], failed: Sequence[int], folder: str) -> dict[str, Any]:
    """The failure of the rank that is most likely its cause: one that disagrees with one process, else one that a signal ended,
    else the first of `failed`, since ranks that lose their connection to another fail as well."""
    codes = {rank: started[rank].poll() or 0 for rank in range(len(started))}
    disagreed = [rank for rank, code in codes.items() if code == DISAGREED]
    killed = [rank for rank, code in codes.items() if code < 0]
    rank = (disagreed or killed or list(failed))[0]
    code = codes[rank]
    # Most real-time signals have no name.
    name = next((one.name for one in signal.Signals if one == -code), f"signal {-code}")
    how = name if code < 0 else f"exit code {code}"
    message = f"rank {rank} of {len(started)} ended with {how}{_last_words(folder, rank)}"
    return {"kind": "disagreed" if code == DISAGREED else "crashed", "rank": rank, "message": message}


def _log(folder: str, rank: int) -> Path:
    return Path(folder) / f"rank-{rank}.log"


def _last_words(folder: str, rank: int) -> str:
    words = _log(folder, rank).read_text("utf-8", errors="replace").strip()
    return f"; its last words: {words[-LAST_WORDS:]}" if words else "; it said nothing"
