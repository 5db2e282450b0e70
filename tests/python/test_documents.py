"""Every command and every program that a document shows is run, in the order of the document.

Commands are the lines of ```sh blocks. Those that take over a minute, or need what a test cannot have,
are run in a reduced form, which REDUCED names together with the reason. Paths under /tmp lead into
the test's own folder."""

import os
import re
import shlex
import subprocess
import sys

import pytest
from conftest import HANG_S, ROOT

DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "examples/*.md", "attn/*/*.md", "attn/*.md")
    for path in ROOT.glob(pattern)
)

# Options of `gate` for one small case, which passes however noisy the machine is.
ONE_CASE = (
    "--looks 8 --set method=linear --set protocol=forward --set query_len=64"
    " --set timing.seconds=0.02 --min-shift 3 --margin 30"
)

# What is run in the place of a command, and why. A command that ends in "*" stands for all that
# begin like it; "{rest}" is what follows.
REDUCED = {
    "make *": ("make --dry-run {rest}", "builds, installs or runs for minutes; CI runs the targets themselves"),
    "cmake --build *": ("cmake --build {rest} -- -n", "compiles for minutes; -n says what would be built"),
    "sbatch *": (None, "needs a cluster; test_slurm.py runs it with a Slurm of its own"),
    "build/attnbench merge results/figure1/cluster/shard-* *": (None, "joins what the line before made on a cluster"),
    "build/attnbench gate sweeps/ci.toml --base origin/main": (
        f"build/attnbench gate sweeps/ci.toml --base build {ONE_CASE}",
        "builds a revision and measures for minutes",
    ),
    "build/attnbench gate sweeps/ci.toml --calibrate --out /tmp/calibration": (
        f"{{all}} --recordings 8 --trials 50 {ONE_CASE}",
        "measures for most of an hour",
    ),
    "build/attnbench gate sweeps/ci.toml --base origin/main --instructions --set query_len=128": (
        None,
        "needs valgrind; test_cli_gate.py counts instructions where it is installed",
    ),
    "build/attnbench_micro *": ("{all} --benchmark_min_time=0.001 --benchmark_filter=linear/forward/none", "measures for minutes"),
    "build/attnbench verify mean*": ("build/attnbench verify linear{rest}", "the page's method is built into an example alone"),
    "build/attnbench measure mean*": ("build/attnbench measure linear{rest}", "the page's method is built into an example alone"),
    ".venv/bin/python -m pytest *": ("{all} --collect-only", "is part of the tests that run already"),
}  # fmt: skip


def blocks(document, language):
    text = (ROOT / document).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(document):
    """The commands of a document, without their comments."""
    found = []
    for block in blocks(document, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s+#.*$", "", line).strip()
            if command and not command.startswith("#"):
                found.append(command)
    return found


def reduced(command):
    """What is run for a command; None where nothing is."""
    for pattern, (instead, reason) in REDUCED.items():
        assert reason
        prefix = pattern.removesuffix("*")
        if command == pattern or (pattern.endswith("*") and command.startswith(prefix)):
            return instead and instead.format(rest=command[len(prefix) :], all=command)
    return command


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if commands(d)])
def test_every_command_works(document, build, tmp_path):
    if build != ROOT / "build":
        pytest.skip("documents name the programs in build/")
    for command in commands(document):
        run = reduced(command)
        if run is None:
            continue
        done = subprocess.run(
            ["bash", "-c", run.replace("/tmp/", f"{shlex.quote(str(tmp_path))}/")],
            cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False,
            env=os.environ | {"NO_COLOR": "1"},
        )  # fmt: skip
        assert done.returncode == 0, (
            f"{document}: `{command}` (run as `{run}`) ended with {done.returncode}\n"
            f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )


def test_a_command_that_fails_is_seen(tmp_path):
    assert reduced("build/attnbench list") == "build/attnbench list"
    assert reduced("make quickstart") == "make --dry-run quickstart"
    assert reduced("sbatch --array=1-8 x") is None


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if blocks(d, "python")])
def test_every_python_block_runs(document, build):
    for block in blocks(document, "python"):
        done = subprocess.run(
            [sys.executable, "-c", block.replace('"build/', f'"{build}/')],
            cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{document}: {done.stderr[-3000:]}"


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if "[axes]" in (ROOT / d).read_text("utf-8")])
def test_every_sweep_file_shown_is_one(document, attnbench, tmp_path):
    (tmp_path / "published").mkdir()
    published = (ROOT / "sweeps/published/figure1.csv").read_text()
    (tmp_path / "published/figure1.csv").write_text(published)
    shown = [block for block in blocks(document, "toml") if "[axes]" in block]
    assert shown
    for block in shown:
        (tmp_path / "shown.toml").write_text(block)
        plan = attnbench("sweep", "shown.toml", "--dry-run").stdout
        assert "cases" in plan


def test_the_method_that_is_shown_is_the_one_that_is_built():
    shown = blocks("docs/adding-a-method.md", "cpp")
    assert shown == [(ROOT / "examples/mean_method.cpp").read_text("utf-8")]


def links(document):
    """Relative links of a document, as paths from the root."""
    folder = (ROOT / document).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / document).read_text("utf-8")):
        if "://" not in target and not target.startswith("#"):
            yield target, folder / target.split("#")[0]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document):
    missing = [target for target, path in links(document) if not path.exists()]
    assert not missing, f"{document} links to {missing}"


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120
