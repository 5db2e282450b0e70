"""Tests of the wheel: builds one from the programs of the build folder, installs it into a new virtual environment that has
torch and pandas from that of the tests, and uses it there without the source checkout."""

import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from conftest import HANG_S, ROOT, results_of, strict_json

SMALL = ["--heads=2", "--head-dim=16", "--threads=1", "--warmup-s=0", "--time-budget-s=0.05"]


def run(*command, code=0, **options):
    """Runs a command to its end without the environment variables that name the checkout, and checks its exit code."""
    environment = {n: v for n, v in os.environ.items() if n not in ("PYTHONPATH", "ATTNBENCH_BUILD", "ATTNBENCH_PYTHON")}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, encoding="utf-8", timeout=HANG_S, check=False,
        **({"env": environment | options.pop("variables", {})} | options),
    )  # fmt: skip
    assert done.returncode == code, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(build, tmp_path_factory):
    """A wheel with the programs of the build folder, which pip builds as it does from a checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    # pip needs no network: torch and scikit-build-core are installed.
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-cache-dir", "--no-index", "--no-deps", "--no-build-isolation",
        "--config-settings", f"cmake.define.ATTNBENCH_PREBUILT={build}", "--wheel-dir", folder, ROOT,
    )  # fmt: skip
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def venv(wheel, tmp_path_factory):
    """The folder of a virtual environment with the wheel."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin/python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").stdout.strip())
    (packages / "packages-of-the-tests.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel)
    return folder


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    """A folder like site-packages, with the unpacked wheel and, beside it, a link to torch."""
    folder = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for program in binaries(folder):
        program.chmod(0o755)  # which ZipFile does not do
    for name in ("torch", "nvidia"):
        source = Path(sysconfig.get_path("platlib")) / name
        if source.exists():
            (folder / name).symlink_to(source)
    return folder


def test_the_console_script_measures_a_case(venv, tmp_path):
    printed = run(venv / "bin/attnbench", "measure", "linear", "--query-len=64", "--format=json", *SMALL, cwd=tmp_path).stdout
    record = strict_json(printed)
    assert (record["method"], record["outcome"]) == ("linear", "measured"), record["reason"]


def test_the_console_script_finds_the_sweeps_and_the_settings(venv, tmp_path):
    listed = run(venv / "bin/attnbench", "list", "sweeps", cwd=tmp_path).stdout
    assert "quickstart" in listed and "figure1" in listed
    plan = run(venv / "bin/attnbench", "sweep", "figure1", "--dry-run", cwd=tmp_path).stdout  # which has published values
    assert "cases" in plan
    plan = run(venv / "bin/attnbench", "sweep", "rivals", "--dry-run", cwd=tmp_path).stdout
    assert "fast-transformers.py:linear" in plan and "No such file" not in plan


MINE = """
import attnbench
import torch


def attention(q, k, v, *, causal):
    scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1) @ v


@attnbench.method(exact="softmax")
def declared(q, k, v, *, causal):
    return attention(q, k, v, causal=causal)
"""


@pytest.mark.long
def test_a_function_of_a_file_is_measured_and_drawn_without_a_checkout(venv, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    attnbench = venv / "bin/attnbench"
    measure = ("measure", "--query-len=64", "--causal", "--format=json", *SMALL)
    plain = strict_json(run(attnbench, *measure, "mine.py:attention", "--like=softmax", cwd=tmp_path).stdout)
    assert plain["outcome"] == "measured", plain["reason"]
    program = f"""
import json, sys
sys.path.insert(0, "")
import attnbench, mine
record = attnbench.measure(mine.declared, query_len=64, causal=True, heads=2, head_dim=16, warmup_s=0, time_budget_s=0.02)
print(json.dumps([record.outcome, record.method, record.method_digest]))
"""
    outcome, method, digest = strict_json(run(venv / "bin/python", "-c", program, cwd=tmp_path).stdout)
    assert (outcome, method) == ("measured", f"{tmp_path}/mine.py:declared")
    assert digest == plain["method_digest"] != ""


def test_figures_and_tables_need_no_checkout(venv, tmp_path):
    records = results_of("decode")
    shutil.copytree(records, tmp_path / "out", ignore=shutil.ignore_patterns("decode.*"))
    drawn = run(venv / "bin/attnbench", "plot", "out", "--out", "figure.svg", cwd=tmp_path).stdout
    assert "figure.svg" in drawn and (tmp_path / "figure.svg").stat().st_size > 1000
    assert "linear" in run(venv / "bin/attnbench", "table", "out", cwd=tmp_path).stdout


def test_a_python_without_matplotlib_is_refused_with_how_to_install_it(venv, tmp_path):
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare")
    records = results_of("decode")
    python = tmp_path / "bare/bin/python"
    refused = run(venv / "bin/attnbench", "plot", records, "--python", python, "--out", tmp_path, code=2).stderr
    assert "No module named" in refused and "install numpy and matplotlib for this Python" in refused and "make setup" not in refused


def test_the_package_computes_reads_records_and_measures(venv, tmp_path):
    records = results_of("decode")
    shutil.copytree(records, tmp_path / "records", ignore=shutil.ignore_patterns("*.p*", "*.svg"))
    program = """
import attnbench, torch
q = torch.ones(1, 1, 3, 4)
print(attnbench.__version__, attnbench.linear_attention(q, q, q, causal=True).sum().item())
print(attnbench.CausalLMLayer(8, 2)(torch.zeros(1, 5, 8)).shape)
print(len(attnbench.records("records")), attnbench.__file__)
print(attnbench.measure("linear", query_len=64, heads=1, time_budget_s=0.02, warmup_s=0).outcome)
"""
    lines = run(venv / "bin/python", "-c", program, cwd=tmp_path).stdout.splitlines()
    assert lines[0].split()[1] == "12.0" or float(lines[0].split()[1]) == pytest.approx(12)
    assert lines[1] == "torch.Size([1, 5, 8])"
    assert int(lines[2].split()[0]) > 10 and str(venv) in lines[2]
    assert lines[3] == "measured"


def test_another_torch_is_refused_with_the_way_out(venv, tmp_path):
    """A folder in front of the others says that another version of torch is installed."""
    other = tmp_path / "torch-2.9.1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.1\n")
    refused = run(venv / "bin/attnbench", "list", code=2, variables={"PYTHONPATH": str(tmp_path)})
    built_for = re.search(r"^torch==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)[1]
    assert refused.stderr.startswith("attnbench: attnbench 0.")
    assert f"was built for torch {built_for}, but torch 2.9.1 is installed here" in refused.stderr
    assert f"`pip install torch=={built_for}`" in refused.stderr
    program = "import torch; torch.__version__ = '2.9.1+cpu'\nimport attnbench; attnbench.linear_attention"
    refused = run(venv / "bin/python", "-c", program, code=1).stderr
    assert "ImportError: attnbench 0." in refused and f"`pip install torch=={built_for}`" in refused


# ---------------------------------------------------------------- what is in the wheel


def test_a_plug_in_is_configured_against_the_package(venv, tmp_path):
    prefix = run(venv / "bin/python", "-c", "import attnbench; print(attnbench.__path__[0])", cwd=tmp_path).stdout.strip()
    command = ["cmake", "-S", ROOT / "examples/plugin", "-B", tmp_path / "plugin", f"-DCMAKE_PREFIX_PATH={prefix}"]
    assert "Configuring done" in run(*command, f"-DATTNBENCH_PYTHON={venv}/bin/python").stdout


# Libraries of every Linux system with g++'s run time; torch has libgomp and its own libraries.
SYSTEM = r"lib(c|m|stdc\+\+|gcc_s|z|pthread|dl|rt)\.so\.\d+|ld-linux.*\.so\.\d+"
OF_TORCH = r"lib(torch_cpu|torch_python|torch|c10|shm)\.so|libgomp.*\.so.*"


def dynamic_section(path):
    """The names of the libraries that a program or library needs, and the folders that it looks for them in."""
    text = subprocess.check_output(["readelf", "-d", path], encoding="utf-8")
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", text)
    return needed, [folder for path in re.findall(r"\(RUNPATH\).*\[(.+)\]", text) for folder in path.split(":")]


def binaries(unpacked):
    found = [p for p in (unpacked / "attnbench").rglob("*") if p.is_file() and p.read_bytes()[:4] == b"\x7fELF"]
    assert {"attnbench", "attnbench-worker", "attnbench-experiments", "libattn.so"} <= {p.name for p in found}
    return found


def test_nothing_in_the_wheel_needs_libtorch_cuda_or_an_unusual_library(unpacked):
    files = binaries(unpacked)
    own = {path.name for path in files}
    # The distribution's fmt is linked by builds from a checkout, from which this wheel has its programs, and by no other.
    allowed = re.compile(rf"{SYSTEM}|{OF_TORCH}|libfmt\.so\.\d+|libpython3\.\d+\.so.*")
    wrong = {
        path.name: name
        for path in files
        for name in dynamic_section(path)[0]
        if name not in own and not allowed.fullmatch(name)
    }
    assert not wrong
    assert "libtorch_cpu.so" in dynamic_section(unpacked / "attnbench/lib/libattn.so")[0]


def test_programs_find_libattn_and_the_torch_beside_the_package(unpacked):
    for program in ("attnbench-worker", "attnbench-experiments"):
        path = next((unpacked / "attnbench").rglob(program))
        assert all(folder.startswith("$ORIGIN") for folder in dynamic_section(path)[1][:2])
        listing = run(path, variables={"LD_TRACE_LOADED_OBJECTS": "1", "LD_LIBRARY_PATH": ""}).stdout
        found = dict(re.findall(r"^\s*(\S+) => (\S+)", listing, re.MULTILINE))
        assert Path(found["libattn.so"]).resolve() == unpacked / "attnbench/lib/libattn.so"
        beside = os.path.normpath(found["libtorch_cpu.so"])
        assert beside == str(unpacked / "torch/lib/libtorch_cpu.so")
        assert not [name for name in found if name.startswith(("libtorch_cuda", "libc10_cuda"))]


def test_the_wheel_requires_the_torch_that_the_build_uses():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pinned = re.search(r"^torch==\S+", (ROOT / "requirements-build.txt").read_text(), re.MULTILINE)[0]
    assert pinned in project["project"]["dependencies"]
    assert pinned in project["build-system"]["requires"]
    scikit_build = re.search(r"^scikit-build-core==\S+", (ROOT / "requirements.txt").read_text(), re.MULTILINE)[0]
    assert scikit_build in project["build-system"]["requires"]


def test_a_prebuilt_folder_that_is_none_is_refused(tmp_path):
    command = ["cmake", "-S", str(ROOT), "-B", str(tmp_path / "b"), f"-DATTNBENCH_PREBUILT={tmp_path}"]
    refused = run(*command, code=1).stderr
    assert "is no build folder" in " ".join(refused.split())
