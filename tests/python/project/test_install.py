"""Tests of `cmake --install`: the installed programs, whose prefix was moved, and the package that other
projects find."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from conftest import ROOT, finished, small

CONSUMER = ROOT / "tests/consumer"


def configure(prefix, folder, *options, code=0):
    """Configures the consumer project, and returns what CMake printed, in one line."""
    words = ["cmake", "-S", CONSUMER, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return " ".join(finished(*words, *options, code=code, env=os.environ | {"PATH": path}).split())


# ---------------------------------------------------------------- the programs


def test_an_installed_driver_measures(installed):
    record = installed.json("measure", "linear", *small(), "--causal")
    assert record["outcome"] == "measured", record["reason"]


def test_an_installed_driver_knows_the_methods_without_starting_the_worker(installed, prefix, tmp_path):
    worker = tmp_path / "attnbench-worker"
    worker.write_text("#!/bin/sh\nexit 1\n")
    worker.chmod(0o755)
    shutil.copy(prefix / "libexec/attnbench/methods.json", tmp_path)
    os.utime(tmp_path / "methods.json", (0, 0))  # an installer may give files any times
    listed = installed.with_worker(worker).json("list")
    assert {"linear", "softmax"} <= {method["name"] for method in listed}


def test_an_installed_driver_finds_sweeps_settings_and_published_values(installed, prefix):
    data = prefix / "share/attnbench"
    sweeps = installed.json("list", "sweeps")
    assert {s["file"] for s in sweeps} == {str(data / "sweeps" / f.name) for f in ROOT.glob("sweeps/*.toml")}
    trainings = installed.json("list", "trainings")
    assert str(data / "experiments/settings/digits.toml") in [t["file"] for t in trainings]
    planned = installed.json("sweep", "figure1", "--dry-run")
    assert any(record["published_source"] for record in planned)


def test_an_installed_driver_trains(installed):
    settings = {"method": "linear", "updates": 1, "seed": 0, "layers": 1, "heads": 1}
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    (training,) = installed.json("train", "digits", *options, "--out", "out")
    assert training["outcome"] == "measured"


def test_an_installed_driver_plots_with_the_python_in_the_path(installed, tmp_path):
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    (records,) = (ROOT / "results/figure1").glob("*/")
    path = {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    installed("plot", records, "--out", "figure.svg", env=os.environ | path)
    assert (tmp_path / "figure.svg").stat().st_size > 10_000


def test_the_verdicts_of_an_installation_use_its_published_values(installed):
    shown = installed("verdicts", ROOT / "results", "--python", sys.executable, "--format", "markdown").stdout
    assert "**reproduced**" in shown


def test_installed_programs_do_not_depend_on_the_folders_of_the_build(prefix, build):
    driver = (prefix / "bin/attnbench").read_bytes()
    assert str(ROOT).encode() not in driver and str(build).encode() not in driver
    for path in ("libexec/attnbench/attnbench-worker", "libexec/attnbench/attnbench-experiments", "lib/libattn.so"):
        (folders,) = re.findall(r"\(RUNPATH\).*\[(.+)\]", finished("readelf", "-d", prefix / path))
        own, beside, torch = folders.split(":")
        assert os.path.normpath((prefix / path).parent / beside.replace("$ORIGIN", ".")) == str(prefix.parent / "torch/lib")
        assert (prefix / path).parent.joinpath(own.replace("$ORIGIN", ".")).resolve() == prefix / "lib"
        assert torch.endswith("/torch/lib")


def test_a_component_is_installed_alone(build, tmp_path):
    finished("cmake", "--install", build, "--prefix", tmp_path, "--component", "library")
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()] == ["lib/libattn.so"]


# ---------------------------------------------------------------- the package


def test_public_headers_include_only_public_headers(prefix):
    include = prefix / "include/attnbench"
    headers = sorted(include.rglob("*.h"))
    assert include / "attn/plugin.h" in headers and include / "attn/linear/linear_attention.h" in headers
    for header in headers:
        assert "cpu" not in header.relative_to(include).parts, "kernels are internal"
        for included in re.findall(r'#include "(.+)"', header.read_text()):
            assert (include / included).is_file(), f"{header} includes {included}"


@pytest.mark.long
def test_a_project_that_finds_the_package_calls_linear_attention(prefix, tmp_path):
    said = configure(prefix, tmp_path / "build", "-DCMAKE_BUILD_TYPE=Debug")
    assert f"attnbench 0.2.0 with torch 2.11.0 of {Path(sys.executable).parent}/python3" in said
    finished("cmake", "--build", tmp_path / "build")
    assert float(finished(tmp_path / "build/consumer")) < 1e-5


def fake_python(path, *, torch):
    """Writes a Python that seems to have this version of torch, or none."""
    path.write_text("#!/bin/sh\n" + (f"echo /nowhere/torch; echo {torch}\n" if torch else "exit 1\n"))
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("torch", "message"),
    [
        (None, "attnbench needs torch 2.11.0, but {python} has no torch; name a Python that has it with -DATTNBENCH_PYTHON=…"),
        ("2.10.0+cpu", "attnbench was built with torch 2.11.0, but {python} has torch 2.10.0; name a Python that has torch 2.11.0"),
    ],
)
def test_a_python_without_the_torch_of_the_build_is_refused(prefix, tmp_path, torch, message):
    python = fake_python(tmp_path / "python", torch=torch)
    said = configure(prefix, tmp_path / "build", f"-DATTNBENCH_PYTHON={python}", code=1)
    assert message.format(python=python) in said


def write_torch_package(folder, version):
    """Writes a package Torch, as LibTorch has one, that defines the target torch."""
    folder.mkdir()
    (folder / "TorchConfig.cmake").write_text(
        'add_library(torch INTERFACE IMPORTED)\nset(TORCH_INCLUDE_DIRS "${CMAKE_CURRENT_LIST_DIR}")\n'
    )
    (folder / "TorchConfigVersion.cmake").write_text(f"set(PACKAGE_VERSION {version})\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
    return f"-DTorch_DIR={folder}"


@pytest.mark.parametrize(("version", "code"), [("2.11.0", 0), ("2.10.0", 1)])
def test_a_project_may_bring_its_own_libtorch(prefix, tmp_path, version, code):
    torch = write_torch_package(tmp_path / "torch", version)
    # Without that target, this Python would be asked.
    python = fake_python(tmp_path / "python", torch=None)
    options = ["-DFIND_TORCH=ON", torch, f"-DATTNBENCH_PYTHON={python}"]
    said = configure(prefix, tmp_path / "build", *options, code=code)
    expected = "was built with torch 2.11.0, but find_package(Torch) has torch 2.10.0" if code else "torch 2.11.0 of find_package(Torch)"
    assert expected in said


def test_another_minor_version_of_the_package_is_not_accepted(prefix, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    text = (CONSUMER / "CMakeLists.txt").read_text()
    (project / "CMakeLists.txt").write_text(text.replace("find_package(attnbench 0.2", "find_package(attnbench 0.3"))
    words = ["cmake", "-S", project, "-B", tmp_path / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"]
    assert "version: 0.2.0" in finished(*words, code=1)
