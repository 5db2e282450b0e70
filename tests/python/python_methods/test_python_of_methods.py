"""Tests of what a method in Python needs from its Python: an interpreter, torch, its libraries, and the worker's module."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import small, strict_json
from python_functions import SOFTMAX, attnbench, pytestmark, refusal, write  # noqa: F401


def test_an_interpreter_that_does_not_exist_is_refused(write, attnbench):
    path = write(SOFTMAX)
    environment = os.environ | {"ATTNBENCH_PYTHON": "/nowhere/python"}
    refused = attnbench("measure", f"{path}:attention", code=2, env=environment).stderr
    assert "/nowhere/python, which does not exist" in refused


def test_an_interpreter_without_torch_is_refused(write, attnbench, tmp_path):
    python = tmp_path / "bare-python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    environment = os.environ | {"ATTNBENCH_PYTHON": str(python), "PYTHONPATH": ""}
    refused = attnbench("measure", f"{write(SOFTMAX)}:attention", code=2, env=environment).stderr
    assert re.search(r"Python methods need torch for Python 3\.\d+, which .*bare-python does not have; pip install torch==2", refused)


def test_another_torch_is_refused(write, attnbench, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    (tmp_path / "torch-2.10.0.dist-info").mkdir()
    (tmp_path / "torch-2.10.0.dist-info/METADATA").write_text("Name: torch\nVersion: 2.10.0\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    refused = attnbench("measure", f"{write(SOFTMAX)}:attention", code=2, env=environment).stderr
    assert re.search(rf"the torch 2\.10\.0 of \S+ in {tmp_path}/torch/lib is not the LibTorch that attnbench uses, which is 2\.", refused)
    assert "set ATTNBENCH_PYTHON to the interpreter that attnbench was installed into" in refused


# By name: the files of the folder of a worker that has no module for Python methods, and the end of the message.
WITHOUT_MODULE = {
    "not built": ({"python-methods": ""}, ", because it has not been built; `make python` builds it"),
    "no headers": (
        {"python-methods": "the headers of Python (Debian: python3-dev) were missing"},
        ", because the headers of Python (Debian: python3-dev) were missing",
    ),
    "installed": ({}, "; install attnbench again from a build that has it"),
}


@pytest.mark.parametrize("name", WITHOUT_MODULE)
def test_a_worker_without_the_module_for_python_methods_says_why(write, build, attnbench, tmp_path, name):
    files, end = WITHOUT_MODULE[name]
    (tmp_path / "folder").mkdir()
    shutil.copy(build / "attnbench-worker", tmp_path / "folder")
    for file, text in files.items():
        (tmp_path / "folder" / file).write_text(text)
    other = attnbench.with_worker(tmp_path / "folder/attnbench-worker")
    refused = refusal(other, f"{write(SOFTMAX)}:attention")
    assert f"methods in Python need the file {tmp_path}/folder/libattnbench-python.so, which does not exist{end}" in refused


@pytest.fixture
def stand_in(build):
    """The path of a stand-in for a CUDA library that the system does not have."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    for path in sorted((build / "cuda-stand-ins").glob("*.so.*")):
        if f"{path.name} " not in known:
            return path
    pytest.skip("the system has every CUDA library that torch needs")


def test_cuda_libraries_that_are_missing_have_stand_ins(write, attnbench, after_quickstart, stand_in):
    """A Python with only what `make quickstart` installs can run methods, also compiled ones."""
    path = write(f"""
        import os
        import torch

        maps = open("/proc/self/maps").read()
        assert "cuda-stand-ins/{stand_in.name}" in maps and "cu13/lib/{stand_in.name}" not in maps
        assert not torch.cuda.is_available()

        def attention(q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)
    """)
    environment = os.environ | after_quickstart
    record = strict_json(
        attnbench("measure", f"{path}:attention", "--like=softmax", *small(), "--format=json", env=environment).stdout
    )
    assert record["outcome"] == "measured", record["reason"]
    assert record["max_rel_error"] < 1e-5


def test_a_stand_in_that_is_called_ends_the_process_with_the_command_that_installs_the_library(
    write, attnbench, after_quickstart, stand_in
):
    symbols = subprocess.run(["nm", "-D", "--defined-only", stand_in], capture_output=True, text=True, check=True).stdout
    function = re.findall(r" T (\w+)", symbols)[0]
    path = write(f"""
        import ctypes

        def attention(q, k, v):
            ctypes.CDLL("{stand_in.name}").{function}()
    """)
    record = strict_json(
        attnbench("measure", f"{path}:attention", *small(), "--format=json", env=os.environ | after_quickstart, code=1).stdout
    )
    assert record["failure_kind"] == "crashed"
    assert f"{function} was called, a function of a CUDA library that is not installed; `make setup` installs" in record["reason"]


def test_a_damaged_library_of_torch_is_reported(write, attnbench, after_quickstart, tmp_path):
    (tmp_path / "libcufile.so.0").touch()
    environment = os.environ | after_quickstart
    environment["LD_LIBRARY_PATH"] = f"{tmp_path}:{after_quickstart['LD_LIBRARY_PATH']}"
    refused = attnbench("measure", f"{write(SOFTMAX)}:attention", *small(), code=2, env=environment).stderr
    assert "torch needs a library that cannot be loaded, although it is not called on a CPU: " in refused
    assert "libcufile.so.0: file too short; `make setup` installs torch with all of its libraries" in refused
