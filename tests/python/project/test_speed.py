"""Tests that tools/speed.py, which measures how long commands take, runs."""

import re
import subprocess
import sys

from conftest import HANG_S, ROOT


def test_each_command_has_a_row(build):
    words = [sys.executable, ROOT / "tools/speed.py", "--records", "1000", "--runs", "1", "--program", build / "attnbench"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^([a-z-]+) +\d+\.\d\d s of \d+ s  ", done.stdout, re.MULTILINE)
    assert rows == ["table", "table-charts", "analyse", "compare", "report", "report-shown"]
