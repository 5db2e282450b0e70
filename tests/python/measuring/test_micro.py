"""attnbench_micro, which times kernels and their parts alone."""

import re
import subprocess

import pytest
from conftest import HANG_S

PARTS = [
    "φ of 16 rows",
    "transposition of 16 rows",
    "scores of the chunk, φ(q) times Z",
    "φ(q) times S, and scores times v",
    "φ(k)ᵀ v added to S",
    "v times Rᵀ",
    "scores times φ(q) alone",
]
PASSES = ["forward pass", "backward pass of q", "backward pass of k and v"]


def test_the_parts_of_the_kernels_are_a_table_for_each_instruction_set(build):
    said = subprocess.run(
        [build / "attnbench_micro", "--parts"], capture_output=True, text=True, timeout=HANG_S, check=True
    ).stdout
    tables = [table for table in said.split("A causal chunk of ")[1:]]
    if not tables:
        pytest.skip("this processor has no instruction set with vector kernels, or the build has none for it")
    for table in tables:
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
        assert rows[0][0] == "part" and {len(row) for row in rows} == {7}
        names = [row[0] for row in rows[1:]]
        assert names[: len(PARTS)] == PARTS
        for each in PASSES:
            assert f"{each}, rows in the first-level cache" in names
            assert {f"{each}, N = {length}" for length in (512, 8192, 65536)} <= set(names)
        for name, multiply_adds, loads, stores, at_rate, measured, share in rows[1:]:
            assert int(re.fullmatch(r"(\d+) ns", measured)[1]) > 0, name
            if multiply_adds:
                # A share above 1 would be a wrong count. The margin is for the noise of a busy machine.
                assert 0 < float(share) < 1.5 and int(re.fullmatch(r"(\d+) ns", at_rate)[1]) > 0, name
            assert bool(loads) == bool(stores) == (name in PARTS[2:]), name
