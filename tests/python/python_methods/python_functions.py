"""What the tests of methods in Python share: a file that is written and measured, and the worker's answers about many."""

import json
import subprocess
import textwrap

import pytest
from conftest import ROOT, small, strict_json


MODULE = ROOT / "build" / "libattnbench-python.so"
pytestmark = pytest.mark.skipif(
    not MODULE.is_file(), reason="the build has no module for methods in Python (python3-dev)"
)
SOFTMAX = """
    import torch

    def scores(q, k, causal):
        s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if causal:
            s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -torch.inf)
        return s

    def attention(q, k, v, *, causal):
        return scores(q, k, causal).softmax(-1) @ v
"""


@pytest.fixture
def attnbench(forking):
    return forking


@pytest.fixture
def write(tmp_path):
    """Writes a Python file and returns its path."""

    def write_file(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write_file


@pytest.fixture
def measure(attnbench):
    """Measures a function and returns the record, whatever its outcome."""

    def run(method, *more, code=0, **options):
        result = attnbench("measure", method, *small(**options), *more, "--format=json", code=code)
        return strict_json(result.stdout)

    return run


def refusal(attnbench, method, *more):
    """The message with which a method is refused before anything is measured."""
    return attnbench("measure", method, *small(), *more, code=2).stderr


def request(method, **options):
    """A small case as the worker reads it."""
    few = {"query_len": 64, "heads": 2, "head_dim": 16, "threads": 1, "max_disturbance": 1e6}
    return few | {"warmup_s": 0.0, "time_budget_s": 0.02, "method": method} | options


def answers(build, command, requests):
    """The records with which one worker answers several cases, which takes less time than a worker
    for each."""
    worker = subprocess.run(
        [build / "attnbench-worker", command], input=json.dumps(requests), capture_output=True, text=True, check=False
    )
    assert worker.returncode == 0, worker.stderr
    lines = [strict_json(line) for line in worker.stdout.splitlines()]
    assert len(lines) == len(requests)
    return lines
