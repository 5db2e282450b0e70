"""Tests of `attnbench gate --instructions`, which compares counts of instructions instead of times."""

import math
import os
import shutil

import pytest
from conftest import HANG_S, strict_json, write_sweep
from stand_ins import REGRESSION, UNUSABLE, build_of, gate, suite  # noqa: F401


# Stands for valgrind: it runs the worker, and prints what FAKE_VALGRIND says.
VALGRIND = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
"$@"; code=$?
echo "$FAKE_VALGRIND" >&2
exit $code
"""


@pytest.mark.parametrize(
    ("printed", "answer", "said"),
    [
        ("==1== Collected : many", '{"outcome": "measured"}', "the base got no count from valgrind: ==1== Collected : many"),
        ("==1== Collected :", '{"outcome": "measured"}', "the base got no count from valgrind"),
        ("no tool", '{"outcome": "measured"}', "the base got no count from valgrind: no tool"),
        ("==1== Collected : 9", '{"outcome": 7}', "the base failed (protocol): the worker's answer is not a record"),
        ("==1== Collected : 9", '{"outcome": "measured", "implementation": 7}', "the worker's answer is not a record"),
        ("==1== Collected : 9", "[1]", "the base failed (protocol)"),
    ],
)
def test_a_count_of_instructions_that_cannot_be_read_is_unusable(
    gate, build_of, tmp_path, monkeypatch, printed, answer, said
):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/valgrind").write_text(VALGRIND)
    (tmp_path / "bin/valgrind").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_VALGRIND", printed)
    build = build_of(count=f"answer '{answer}'")
    assert said in gate(build, build, "--instructions", code=UNUSABLE).stdout


@pytest.mark.long
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_instruction_counts_show_a_slowdown_and_no_noise(attnbench, build, tmp_path):
    """The injected slowdown is one more call, or decoding step, in a hundred. Both sides make the same number otherwise. With
    smaller heads a step is so short that work which happens once in many steps shows."""
    suite = write_sweep(
        tmp_path / "count.toml", method="linear", protocol=["forward", "decode"], query_len=64, heads=4, head_dim=64
    )
    done = attnbench(
        "gate", suite, "--base", build, "--instructions", "--inject=1", "-q", "--format=json", timeout=HANG_S, code=REGRESSION
    )
    report = strict_json(done.stdout)
    assert report["measure"] == "instructions on AVX2 kernels"
    for case in report["cases"]:
        assert case["implementation"] == "kernel/avx2" and case["base"][0] > 1e6
        assert math.expm1(case["log_ratio"]) == pytest.approx(0.01, abs=0.003)
    assert len(report["cases"]) == 2
