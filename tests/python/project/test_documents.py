"""Tests that every command, program, sweep file and link in the documents works.

Commands are the lines of ```sh blocks, and are run in the order of the document. A command that
takes more than a minute, or needs what a test does not have, is replaced as REDUCED says, and what
measures uses short sequences for a short time. Paths
under /tmp lead into the folder of the test instead. Files that a document shows are written there.
test_faq.py tests what the commands of docs/faq.md print."""

import os
import re
import shlex
import subprocess
import sys

import pytest
from conftest import HANG_S, ROOT, shown_pattern

DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "examples/*.md", "attn/*/*.md", "attn/*.md")
    for path in ROOT.glob(pattern)
)

# Pages whose commands or blocks take more than 20 s.
LONG = ["docs/using.md", "docs/experiments.md", "docs/gate.md", "docs/python.md", "docs/distributed.md", "docs/models.md"]

# Pages whose reader has run `make quickstart`, and nothing that installs or builds more.
AFTER_QUICKSTART = ["docs/tutorial.md", "docs/python-methods.md"]

# Options of `gate` for one small case, with margins so wide that it passes on a noisy machine.
ONE_CASE = (
    "--looks 8 --set method=linear --set protocol=forward --set query_len=64"
    " --set timing.time_budget_s=0.02 --min-shift 3 --margin 30"
)

# By command: what is run instead (None: nothing), and the reason. A command that ends in "*" stands
# for all that begin with it; "{rest}" is the rest of the command, and "{all}" the whole of it.
REDUCED = {
    "cmake --build /tmp/plugin": (None, "compiles; test_plugins.py runs this command"),
    "/tmp/attnbench/bin/attnbench *": (None, "needs the plug-in; test_plugins.py runs these commands"),
    "make *": ("make --dry-run {rest}", "builds, installs or runs for minutes; CI runs the targets themselves"),
    "cmake --build *": ("cmake --build {rest} -- -n", "compiles for minutes; -n says what would be built"),
    "sbatch *": (None, "needs a cluster; test_slurm.py runs it with a Slurm of its own"),
    "build/attnbench merge results/figure1/cluster/shard-* *": (None, "merges what the line before made on a cluster"),
    "build/attnbench gate sweeps/ci.toml --base origin/main": (
        f"build/attnbench gate sweeps/ci.toml --base build {ONE_CASE}",
        "builds a revision and measures for minutes",
    ),
    "build/attnbench gate sweeps/ci.toml --base origin/main --quick": (
        f"build/attnbench gate sweeps/ci.toml --base build --quick {ONE_CASE.removeprefix('--looks 8 ')}",
        "builds a revision",
    ),
    "build/attnbench gate sweeps/ci.toml --calibrate --out /tmp/calibration": (
        f"{{all}} --recordings 8 --trials 50 {ONE_CASE}",
        "measures for most of an hour",
    ),
    "build/attnbench gate sweeps/ci.toml --base origin/main --instructions --set query_len=128": (
        None,
        "needs valgrind; test_gate_instructions.py counts instructions where it is installed",
    ),
    "build/attnbench sweep quickstart *": (
        "{all} --set query_len=256 --set timing.time_budget_s=0.05 --set timing.processes=1",
        "measures three rounds of long sequences, for half a minute",
    ),
    "build/attnbench sweep pooled.toml --out *": (
        "{all} --set query_len=[256,512] --set timing.time_budget_s=0.05 --set timing.processes=1",
        "measures seven rounds, for minutes",
    ),
    "build/attnbench models *": ("{all} --tiny --phases logits", "measures for minutes; test_models_command.py runs all phases"),
    "build/attnbench doctor --noise": ("{all} --seconds 1", "measures for a minute"),
    "build/attnbench_micro --parts": (None, "measures for seconds; test_micro.py runs it"),
    "build/attnbench_micro *": ("{all} --benchmark_min_time=0.001 --benchmark_filter=linear/forward/none", "measures for minutes"),
    "build/attnbench verify mean*": ("build/attnbench verify linear{rest}", "the page's method is built into an example alone"),
    "build/attnbench measure mean*": ("build/attnbench measure linear{rest}", "the page's method is built into an example alone"),
    "python3 experiments/prepare_data.py *": (
        "python3 experiments/prepare_data.py --help",
        "downloads packages; test_prepare_data.py runs it with stand-ins",
    ),
    "experiments/search_learning_rates *": (None, "trains for half an hour; test_prepare_data.py runs a small search"),
    "pip install *": (None, "compiles for minutes; test_package_wheel.py builds and installs a wheel"),
    "attnbench sweep quickstart *": (
        "build/attnbench sweep quickstart {rest} --set query_len=256 --set timing.time_budget_s=0.05 --set timing.processes=1",
        "measures for minutes; test_package_wheel.py runs the installed program",
    ),
    "python3 attnbench-gpu/gpu.py *": (None, "needs a GPU; test_gpu_bundle.py runs it with a stand-in"),
    "cp -r build-cuda/attnbench-gpu .": (None, "needs a build with CUDA"),
    "attnbench merge attnbench-gpu-results/*": (None, "needs the results of a GPU; test_gpu_bundle.py merges those of a stand-in"),
    "attnbench *": ("build/attnbench {rest}", "is installed by the package; test_package_wheel.py runs it"),
    ".venv/bin/python attn/cuda/model/*": ("{all} --help", "compiles for a minute and overwrites what is checked in"),
    ".venv/bin/python -m attnbench.distributed measure *": (
        "{all} --ranks 1 --length 64 --repeats 1",
        "measures for minutes, with as many ranks as cores; test_ranks.py measures several",
    ),
    ".venv/bin/python -m attnbench.distributed simulate *": ("{all} --length 64 --repeats 1 --total 4096", "measures for minutes"),
    ".venv/bin/python -m torch.distributed.run --standalone --nproc-per-node 2 -m *": (None, "measures for minutes; test_ranks.py runs it"),
    "srun *": (None, "needs a cluster; test_slurm.py runs it with a Slurm of its own"),
    ".venv/bin/python -m pytest *": ("{all} --collect-only", "its tests are run already"),
}  # fmt: skip


def blocks(document, language):
    text = (ROOT / document).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(document):
    """The commands of a document without comments."""
    found = []
    for block in blocks(document, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s+#.*$", "", line).strip()
            if command and not command.startswith("#"):
                found.append(command)
    return found


def write_files(document, folder):
    """Writes the Python files and sweep files that a document shows, which are the blocks that begin
    with the name of a file as a comment, and returns the names."""
    names = []
    for block in blocks(document, "(?:python|toml)"):
        if name := re.match(r"# (\w+\.(?:py|toml))\n", block):
            (folder / name[1]).write_text(block)
            names.append(name[1])
    return names


def reduced(command):
    """The command to run in place of `command`; None if there is none."""
    for pattern, (instead, reason) in REDUCED.items():
        assert reason
        prefix = pattern.removesuffix("*")
        if command == pattern or (pattern.endswith("*") and command.startswith(prefix)):
            return instead and instead.format(rest=command[len(prefix) :], all=command)
    return command


def shortened(command):
    """The same command, with a short time budget and at most 256 positions where it measures and does not choose these itself."""
    options = {
        "build/attnbench measure": ["--time-budget-s 0.02"],
        "build/attnbench sweep": ["--set timing.time_budget_s=0.02", "--set timing.processes=1"],
    }
    measuring = " ".join(command.split()[:2])
    if measuring not in options or command.endswith("--dry-run"):
        return command
    short = re.sub(r"(?<=--query-len )\d{4,}", "256", command)
    for option in options[measuring]:
        if option.split("=")[0].split(" 0")[0] not in short:
            short += f" {option}"
    return short


def parameters(documents):
    return [pytest.param(d, marks=pytest.mark.long) if d in LONG else d for d in documents]


@pytest.mark.parametrize("document", parameters(d for d in DOCUMENTS if commands(d)))
def test_every_command_of_a_document_works(document, build, tmp_path, request):
    if build != ROOT / "build":
        pytest.skip("documents name the programs in build/")
    environment = os.environ | (request.getfixturevalue("after_quickstart") if document in AFTER_QUICKSTART else {})
    shown = write_files(document, tmp_path)
    for command in commands(document):
        run = reduced(command)
        if run is None:
            continue
        run = shortened(run).replace("/tmp/", f"{shlex.quote(str(tmp_path))}/")
        for name in shown:
            run = re.sub(rf"(?<![\w/]){re.escape(name)}", str(tmp_path / name), run)
        done = subprocess.run(
            ["bash", "-c", run],
            cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False,
            env=environment | {"NO_COLOR": "1"},
        )  # fmt: skip
        assert done.returncode == 0, (
            f"{document}: `{command}` (run as `{run}`) ended with {done.returncode}\n"
            f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )


def test_the_tutorial_shows_what_its_commands_print(build, tmp_path):
    """A block of text shows some lines of what the last command before it prints."""
    if build != ROOT / "build":
        pytest.skip("documents name the programs in build/")
    document = "docs/tutorial.md"
    write_files(document, tmp_path)
    (tmp_path / "build").symlink_to(build)
    text = (ROOT / document).read_text("utf-8")
    shown = re.findall(r"^```sh\n(?:.*\n)*?(.*)\n```\n\n```text\n((?:.*\n)*?)```", text, re.MULTILINE)
    assert len(shown) == text.count("```text")
    for command, lines in shown:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, check=True,
            env=os.environ | {"NO_COLOR": "1"},
        )  # fmt: skip
        assert shown_pattern(lines).search(done.stdout), f"{command}\nshown:\n{lines}\nprinted:\n{done.stdout}"


@pytest.mark.parametrize("document", AFTER_QUICKSTART)
def test_a_page_for_readers_who_have_run_quickstart_says_so_and_uses_what_that_builds(document):
    """The commands of these pages run with the Python packages of that reader alone (after_quickstart). The folder build/ also has
    what the tests need, so that the programs are compared with those that the target builds."""
    assert "after `make quickstart`" in (text := (ROOT / document).read_text("utf-8")) or "`make quickstart` has built" in text
    programs = {command.split()[0] for command in commands(document)}
    assert programs <= {"build/attnbench", "make"}, programs
    planned = subprocess.run(["make", "--dry-run", "quickstart"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"--target ([\w-]+)", planned) == ["attnbench", "attnbench-python"]


def test_commands_are_reduced_as_listed(tmp_path):
    assert reduced("build/attnbench list") == "build/attnbench list"
    assert reduced("make quickstart") == "make --dry-run quickstart"
    assert shortened("build/attnbench measure linear --query-len 4096 --causal") == (
        "build/attnbench measure linear --query-len 256 --causal --time-budget-s 0.02"
    )
    assert shortened("build/attnbench sweep x --set timing.processes=2") == (
        "build/attnbench sweep x --set timing.processes=2 --set timing.time_budget_s=0.02"
    )
    assert reduced("sbatch --array=1-8 x") is None


# Runs each argument as a program, in a process of its own that begins where torch is imported.
EACH_BLOCK = """
import os, sys, torch
for block in sys.argv[1:]:
    child = os.fork()
    if not child:
        exec(compile(block, "the block", "exec"), {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, block
"""


@pytest.mark.parametrize("document", parameters(d for d in DOCUMENTS if blocks(d, "python")))
def test_every_python_block_of_a_document_runs(document, build):
    programs = [block.replace('"build/', f'"{build}/') for block in blocks(document, "python")]
    # A block that joins a group of torch.distributed is the only rank of it.
    alone = os.environ | {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", EACH_BLOCK, *programs],
        cwd=ROOT, env=alone, capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{document}: {done.stderr[-3000:]}"


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if any("axes]" in b for b in blocks(d, "toml"))])
def test_every_sweep_file_of_a_document_is_valid(document, attnbench, tmp_path):
    (tmp_path / "published").mkdir()
    published = (ROOT / "sweeps/published/figure1.csv").read_text()
    (tmp_path / "published/figure1.csv").write_text(published)
    write_files(document, tmp_path)
    shown = [block for block in blocks(document, "toml") if "axes]" in block]
    assert shown
    for block in shown:
        if ".py:" in block:
            continue  # needs the file beside it; test_gate_repository.py runs the example of gate.md
        (tmp_path / "shown.toml").write_text(block)
        plan = attnbench("sweep", "shown.toml", "--dry-run").stdout
        assert "cases" in plan


def test_every_sweep_of_the_project_is_listed():
    (table,) = re.findall(r"\| sweep \|.*?\n\n", (ROOT / "docs/sweeps.md").read_text("utf-8"), re.DOTALL)
    rows = [line.split("|")[1] for line in table.splitlines()[2:] if line]
    listed = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(listed) == sorted(path.stem for path in (ROOT / "sweeps").glob("*.toml"))


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if any("[task]" in b for b in blocks(d, "toml"))])
def test_every_settings_file_of_a_document_is_valid(document, attnbench, tmp_path):
    for block in blocks(document, "toml"):
        if "[task]" in block:
            (tmp_path / "shown.toml").write_text(block)
            attnbench("train", "shown.toml", "--set", "updates=1", "--set", "seed=0", "--out", "out")


def test_the_project_in_the_guide_is_the_plugin_that_is_built():
    (shown,) = blocks("docs/adding-a-method.md", "cmake")
    assert (ROOT / "examples/plugin/CMakeLists.txt").read_text("utf-8").endswith(shown)


def test_the_method_in_the_guide_is_the_example_that_is_built():
    shown = blocks("docs/adding-a-method.md", "cpp")
    assert shown == [(ROOT / "examples/mean_method.cpp").read_text("utf-8")]


def links(document):
    """Yields each relative link of a document with the path that it leads to."""
    folder = (ROOT / document).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / document).read_text("utf-8")):
        if "://" not in target and not target.startswith("#"):
            yield target, folder / target.split("#")[0]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_of_a_document_lead_to_files(document):
    missing = [target for target, path in links(document) if not path.exists()]
    assert not missing, f"{document} links to {missing}"


def test_the_readme_has_at_most_120_lines():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120
