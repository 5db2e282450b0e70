"""Tests of the examples that use the Python package: the notebook and the training loop."""

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import HANG_S, ROOT


def run(*words, cwd):
    done = subprocess.run(
        [sys.executable, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=HANG_S, check=False,
        env=os.environ | {"MPLBACKEND": "agg"},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_the_cells_of_the_notebook_run_one_after_the_other():
    notebook = json.loads((ROOT / "examples/records.ipynb").read_text("utf-8"))
    assert notebook["nbformat"] == 4
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5
    printed = run("-c", "\n".join(cells) + "\nprint(times.to_json())", cwd=ROOT / "examples")
    times = json.loads(printed.splitlines()[-1])
    assert {"softmax", "linear"} <= set(times)
    assert times["linear"]["4096"] < times["softmax"]["4096"], "these are recorded times, which do not change"


def test_the_training_with_the_module_takes_the_steps_of_the_einsum_form(build):
    printed = run("examples/train_linear.py", "60", cwd=ROOT)
    steps = re.findall(r"^ *(\d+) +(\S+) +(\S+)$", printed, re.MULTILINE)
    assert [int(step) for step, *_ in steps] == [1, 10, 20, 30, 40, 50, 60]
    for _, kernel, einsum in steps:
        assert float(kernel) == pytest.approx(float(einsum), abs=1e-4)
    assert float(steps[-1][1]) < float(steps[0][1]) - 0.3, "the model learned"
    assert float(re.search(r"largest difference of a step: (\S+)", printed)[1]) < 1e-4
