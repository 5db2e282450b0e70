"""Tests that every error of docs/faq.md is one that the program prints, word by word. An entry is a heading with one block of a
command and what it prints. "…" in it stands for any text in the line."""

import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess

import pytest
from conftest import HANG_S, ROOT, change_records, shown_pattern, write_sweep

TEXT = (ROOT / "docs/faq.md").read_text("utf-8")
ENTRIES = {
    heading: re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for heading, text in re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
}

# The Python files that the commands name.
FILES = {
    "mine.py": "def attention(q, k, v):\n    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v\n",
    "scaled.py": "def attention(q, k, v, scale):\n    return (scale * (q @ k.mT)).softmax(-1) @ v\n",
    "unscaled.py": "def attention(q, k, v):\n    return (q @ k.mT).softmax(-1) @ v\n",
    "noisy.py": "import time\n\ncalls = 0\n\n\ndef attention(q, k, v):\n    global calls\n    calls += 1\n"
    "    time.sleep(0.006 if calls % 2 else 0.002)\n    return v * 1\n",
    "crashing.py": "import ctypes\n\n\ndef attention(q, k, v):\n    ctypes.string_at(0)\n",
    "typo.toml": '[axes]\nmethod = "linear"\nquery_length = 512\n',
    # A Python without packages, and a setup without root and sudo.
    "bare-python": f'#!/bin/sh\nexec {ROOT}/.venv/bin/python -S "$@"\n',
    "tools/dpkg-query": "#!/bin/sh\nexit 1\n",
    "tools/apt-get": "#!/bin/sh\nexit 1\n",
    "tools/id": "#!/bin/sh\necho 1000\n",
}  # fmt: skip

# By heading, what is run in place of the command that a reader runs.
INSTEAD = {
    "There is no sudo": f"PATH=$PWD/tools {shutil.which('bash')} {ROOT}/setup.sh build",
    "The package was built for another torch": (
        f"{ROOT}/.venv/bin/python -c 'import torch; torch.__version__ = \"2.10.0\"; import attnbench;"
        " attnbench.linear_attention(*torch.randn(3, 1, 1, 8, 4))'"
    ),
    "Figures need Python packages": "ATTNBENCH_PYTHON=./bare-python build/attnbench plot first",
    "The module for methods in Python has not been built": (
        "build/attnbench --worker unfinished-build/attnbench-worker measure mine.py:attention"
    ),
    "Methods in Python need torch": "ATTNBENCH_PYTHON=./bare-python build/attnbench measure mine.py:attention",
    "There is no GPU": "LD_LIBRARY_PATH=gpu-build build/attnbench --worker gpu-build/attnbench-worker measure linear --device cuda",
    # Every second call takes three times as long.
    "Noisy": "build/attnbench measure noisy.py:attention --query-len 64 --time-budget-s 0.5 --max-disturbance 1e6",
}  # fmt: skip


def change_lines(path, **changes):
    lines = [json.loads(line) | changes for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def measured_elsewhere(folder):
    path = folder / "first/environment.json"
    text = path.read_text()
    revision = json.loads(text)["environment"]["revision"]
    path.write_text(text.replace(f'"revision": "{revision}"', '"revision": "0123456789ab"'))


def make_doubtful(folder):
    path = folder / "first/records.jsonl"
    linear, softmax = (json.loads(line) for line in path.read_text().splitlines())
    linear |= {"suspect": "900 page faults a call"}
    softmax |= {"disturbed_processes": 1}
    path.write_text("".join(json.dumps(line) + "\n" for line in (linear, softmax)))


def make_gpu_build(folder):
    """A worker beside the module of a build with CUDA kernels, which is not read where there is no driver, and a driver that
    cannot be loaded, in case that this machine has one that can."""
    (folder / "gpu-build").mkdir()
    shutil.copy(ROOT / "build/attnbench-worker", folder / "gpu-build")
    (folder / "gpu-build/libattnbench-gpu.so").touch()
    (folder / "gpu-build/libcuda.so.1").touch()


def make_unfinished_build(folder):
    """A worker in a build folder that has no module for methods in Python."""
    (folder / "unfinished-build").mkdir()
    for name in ("attnbench-worker", "python-methods"):
        shutil.copy(ROOT / "build" / name, folder / "unfinished-build")


# By heading, what happened before, in the folder `first` of a sweep that was measured once, or elsewhere in the folder.
BEFORE = {
    "The folder has records of another build": measured_elsewhere,
    "The machine was restarted in between": lambda folder: change_lines(folder / "first/processes.jsonl", boot="another"),
    "Records of a newer version": lambda folder: change_records(folder / "first", schema_version=10),
    "Disturbed, suspect and implausible": make_doubtful,
    "There is no GPU": make_gpu_build,
    "The module for methods in Python has not been built": make_unfinished_build,
}  # fmt: skip

# By heading, why this machine prints something else, if it does.
IMPOSSIBLE = {
    "A package of a method is not installed": importlib.util.find_spec("reformer_pytorch") and "the package is installed",
}


@pytest.fixture(scope="module")
def first(build, made_once):
    """The folder of a sweep of two small cases that was measured once."""

    def make(folder):
        write_sweep(folder / "small.toml", query_len=32, heads=2)
        words = [build / "attnbench", "sweep", "small.toml", "--out", "first", "--quiet"]
        subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=HANG_S)

    return made_once("faq", make)


@pytest.fixture
def folder(build, first, tmp_path):
    """A folder with everything that the commands name."""
    if build != ROOT / "build":
        pytest.skip("the page names the programs in build/")
    shutil.copytree(first, tmp_path, dirs_exist_ok=True)
    (tmp_path / "build").symlink_to(build)
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    for tool in ("dirname", "cat", "uname"):
        (tmp_path / "tools" / tool).symlink_to(shutil.which(tool))
    return tmp_path


def test_the_page_has_an_entry_with_a_message_below_each_heading():
    assert len(ENTRIES) >= 12
    assert [heading for heading, blocks in ENTRIES.items() if len(blocks) != 1] == []
    assert {*INSTEAD, *BEFORE, *IMPOSSIBLE} <= set(ENTRIES)


@pytest.mark.parametrize("heading", ENTRIES)
def test_an_error_of_the_page_is_what_the_program_prints(heading, folder):
    if why := IMPOSSIBLE.get(heading):
        pytest.skip(why)
    if before := BEFORE.get(heading):
        before(folder)
    ((command, shown),) = ENTRIES[heading]
    with open(folder / "first/.lock", "a", encoding="utf-8") as lock:
        if heading == "The folder is in use":
            fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["bash", "-c", INSTEAD.get(heading, command)], cwd=folder, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=HANG_S, check=False, env=os.environ | {"NO_COLOR": "1"},
        )  # fmt: skip
    assert shown_pattern(shown).search(done.stdout), f"{command}\nshown:\n{shown}\nprinted:\n{done.stdout}"


def test_a_message_that_differs_in_a_word_does_not_pass():
    assert shown_pattern("a … c\n").search("x\na b c\ny")
    assert not shown_pattern("a … c\n").search("a b d")
    assert not shown_pattern("a\nb\n").search("a\nx\nb")
    assert shown_pattern("a\n…\nb\n").search("a\nx\ny\nb")
    assert not shown_pattern("a\n…\nb\n").search("a\nx\n")
    assert not shown_pattern("a.c\n").search("abc")
    assert not shown_pattern("a\n").search("a b")
