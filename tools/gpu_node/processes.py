"""The time of a call, and child processes that end with it."""

import ctypes
import os
import signal
import subprocess
import time
from typing import Any, List

from gpu_node.steps import Options

RESERVE_S = 10.0  # kept at the end of the time for ending a step and writing
GRACE_S = 10.0  # in which a step that is ended may end by itself


class Ended(Exception):
    """This program received a signal."""

    def __init__(self, number: int):
        super().__init__(f"signal {number}")
        self.number = number


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
