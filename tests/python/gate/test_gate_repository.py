"""Tests of `attnbench gate --root`, which compares the working tree of any git repository with one of
its revisions: whose files run, that the repository is never changed, and what is left behind when
the gate is interrupted or killed.

Most use a stand-in for the worker. It runs in the copy of its side and answers with the time in that
copy's file `speed`."""

import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from conftest import HANG_S, ROOT, Cli, runs, strict_json, wait_for, write_sweep
from test_cli_faults import limited_files

PASS, REGRESSION, USAGE, INCONCLUSIVE, UNUSABLE = 0, 1, 2, 3, 4

ANSWER = """t=$(cat speed)
answer "{\\"outcome\\": \\"measured\\", \\"implementation\\": \\"stand-in\\", \\"measured_s\\": 0.01, \\"time_first_ms\\": 1, \\
\\"time_samples_ms\\": [$t, $t, $t, $t, $t], \\"samples\\": 5, \\"peak_extra_bytes\\": 1024}"
"""


class Repository:
    """A git repository with the suite suites/suite.toml and a file `speed`."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "suites").mkdir(parents=True)
        self.suite = write_sweep(folder / "suites/suite.toml", method="linear", query_len=32)
        self.write("speed", "10.0\n")
        self.git("init", "-q", "-b", "main")
        self.commit("one")

    def git(self, *words):
        settings = ["user.name=a", "user.email=a@b", "filter.lfs.required=false", "filter.lfs.process=", "filter.lfs.clean="]
        options = [word for setting in settings for word in ("-c", setting)]
        return subprocess.run(
            ["git", "--no-optional-locks", *options, *words],
            cwd=self.folder, check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def commit(self, message):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def state(self):
        """Everything in the folder, with git's own files, and what git says about it."""
        files = {}
        for path in sorted(self.folder.rglob("*")):
            status = path.lstat()
            content = (
                os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            )
            files[str(path)] = (stat.S_IMODE(status.st_mode), status.st_mtime_ns, content)
        said = [
            self.git(*words)
            for words in (["status", "--porcelain"], ["worktree", "list"], ["for-each-ref"], ["config", "--local", "--list"])
        ]
        return files, said


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "repository")


@pytest.fixture
def temporary(tmp_path):
    """The folder for temporary files of the gate."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def left_in(temporary):
    """The folders of gates that are still there."""
    return [path for path in temporary.glob("attnbench-gate-*/*") if path.name != ".lock"]


@pytest.fixture
def worker(workers):
    """worker(measure=…) is a stand-in that needs no real worker to plan and verify one case."""

    def make(**commands):
        return workers.make(**({"plan": "answer '{}'", "verify": "good", "measure": ANSWER} | commands))

    return make


@pytest.fixture
def driver(attnbench, repository, temporary, worker):
    """driver() runs attnbench in the repository, with a stand-in for the worker."""

    def make(**commands):
        cli = Cli(attnbench.program, worker(**commands), repository.folder)
        environment = os.environ | {"TMPDIR": str(temporary)}
        environment.pop("ATTNBENCH_PYTHON", None)
        cli.environment = environment
        return cli

    return make


GATE = ["gate", "suites/suite.toml", "--root", "."]
WORDS = [*GATE, "--looks=8"]


@pytest.fixture
def gate(driver, repository, temporary):
    """gate(words…) runs the gate in the repository, checks that it changed nothing there and left
    nothing behind, and returns the completed process."""

    def run(*more, code=PASS, base="main", commands=(), environment=(), **options):
        cli = driver(**dict(commands))
        before = repository.state()
        done = cli(*WORDS, f"--base={base}", *more, code=code, env=cli.environment | dict(environment), **options)
        assert repository.state() == before
        assert left_in(temporary) == []
        return done

    return run


def verdict(done):
    (case,) = strict_json(done.stdout)["cases"]
    return verdict_text(case)


def verdict_text(case):
    return f"{case['verdict']}: {case['reason']}" if case["reason"] else case["verdict"]


def test_equal_states_pass_and_a_slower_working_tree_is_a_regression(gate, repository):
    done = gate("-q", "--format=json")
    report = strict_json(done.stdout)
    head = repository.git("rev-parse", "HEAD")
    for side in ("base", "candidate"):
        assert report[side]["source"] == {"commit": head, "uncommitted_changes": False, "lacking": []}
    assert verdict(done) == "pass"
    repository.write("speed", "12.0\n")  # not committed
    done = gate("-q", "--format=json", code=REGRESSION)
    report = strict_json(done.stdout)
    assert verdict(done) == "regression"
    assert set(report["cases"][0]["base"]) == {10.0} and set(report["cases"][0]["candidate"]) == {12.0}
    assert report["candidate"]["source"]["uncommitted_changes"] is True
    shown = gate(code=REGRESSION).stderr
    assert f"the base is commit {head[:12]}\n" in shown
    assert f"the candidate is commit {head[:12]} with uncommitted changes\n" in shown


def test_a_base_is_any_revision(gate, repository):
    repository.git("tag", "-a", "v1", "-m", "one")
    repository.write("speed", "5.0\n")
    repository.commit("two")
    for base in ("v1", "HEAD~1", "main^", repository.git("rev-parse", "v1^{commit}")[:10]):
        assert verdict(gate("-q", "--format=json", base=base)) == "improvement"
    assert verdict(gate("-q", "--format=json", base="main")) == "pass"


def test_an_injected_slowdown_is_given_to_the_candidate_alone(gate):
    slowed = ANSWER.replace("t=$(cat speed)", 't=10; case "$request" in *injected*) t=11.5;; esac')
    done = gate("-q", "--format=json", "--inject=15", code=REGRESSION, commands={"measure": slowed})
    assert verdict(done) == "regression"


def test_the_candidate_has_untracked_files_but_no_ignored_ones(gate, repository, tmp_path):
    repository.write(".gitignore", "*.out\n")
    repository.write("deleted", "x")
    repository.write("tool", "#!/bin/sh\n").chmod(0o755)
    repository.write("a name with ü and\nlines", "x")
    (repository.folder / "link").symlink_to("nowhere")
    repository.commit("two")
    (repository.folder / "deleted").unlink()
    repository.write("new/file", "x")
    repository.write("built.out", "x")
    listing = f'{{ [ -x tool ] && echo tool; find . -path ./.git -prune -o -print; readlink link; }} > "{tmp_path}/$(basename "$PWD")"\n'
    gate("-q", commands={"measure": listing + ANSWER})
    base, head = ((tmp_path / side).read_text() for side in ("base", "head"))
    for shown in (base, head):
        assert shown.startswith("tool\n") and shown.endswith("nowhere\n")
        assert "./a name with ü and\nlines\n" in shown
        assert "built.out" not in shown
    assert "./deleted" in base and "./deleted" not in head
    assert "./new/file" in head and "./new" not in base


def test_a_copy_is_a_repository_with_the_tags_of_the_original(gate, repository, tmp_path):
    """Packages ask git for their version."""
    repository.git("tag", "v1")
    repository.git("remote", "add", "origin", "https://example.org/x.git")
    repository.write("speed", "10.1\n")
    asked = "git describe --tags --dirty; git remote get-url origin; git status --porcelain"
    gate("-q", commands={"measure": f'{{ {asked}; }} > "{tmp_path}/$(basename "$PWD")"\n{ANSWER}'})
    assert (tmp_path / "base").read_text() == "v1\nhttps://example.org/x.git\n"
    assert (tmp_path / "head").read_text() == "v1-dirty\nhttps://example.org/x.git\n M speed\n"


def test_a_shallow_clone_and_a_further_worktree_can_be_compared(gate, repository, tmp_path, driver):
    repository.write("speed", "5.0\n")
    repository.commit("two")
    shallow, second = tmp_path / "shallow", tmp_path / "second"
    repository.git("clone", "-q", "--depth=1", f"file://{repository.folder}", str(shallow))
    repository.git("worktree", "add", "-q", str(second), "HEAD~1")
    cli = driver()
    for folder, base in [(shallow, "HEAD"), (second, "main")]:
        done = cli(*WORDS, f"--base={base}", "-q", "--format=json", cwd=folder, env=cli.environment, code=PASS if folder == shallow else REGRESSION)
        assert verdict(done) == ("pass" if folder == shallow else "regression")
    failed = cli(*WORDS, "--base=HEAD~1", "-q", cwd=shallow, env=cli.environment, code=USAGE)
    assert "'HEAD~1' is no git revision of" in failed.stderr


def test_the_variables_of_a_git_hook_do_not_mislead_the_gate(gate, repository, tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path / "other"], check=True)
    other = {"GIT_DIR": str(tmp_path / "other/.git"), "GIT_INDEX_FILE": str(tmp_path / "other/index"), "GIT_WORK_TREE": str(tmp_path)}
    prepare = f'--prepare=git rev-parse --show-toplevel >> "{tmp_path}/asked"'
    assert verdict(gate("-q", "--format=json", prepare, environment=other)) == "pass"
    assert [Path(line).name for line in (tmp_path / "asked").read_text().splitlines()] == ["base", "head"]


# ---------------------------------------------------------------- preparing


def test_each_side_is_prepared_in_an_environment_of_its_own(gate, repository, tmp_path):
    repository.write("make", "tr 1 2 < input > speed\npython -c 'import sys; print(sys.prefix)' > prefix\n")
    repository.write("input", "11.0\n")
    repository.commit("two")
    repository.write("input", "15.0\n")
    shown = f'{{ cat prefix; python -c "import sys; print(sys.prefix)"; echo $VIRTUAL_ENV; echo $ATTNBENCH_PYTHON; }} > "{tmp_path}/$(basename "$PWD")"\n'
    done = gate("--prepare=sh ./make", "--format=json", code=REGRESSION, commands={"measure": shown + ANSWER})
    assert "preparing the base: sh ./make\n" in done.stderr and "preparing the candidate: sh ./make\n" in done.stderr
    report = strict_json(done.stdout)["cases"][0]
    assert set(report["base"]) == {22.0} and set(report["candidate"]) == {25.0}
    prefixes = [(tmp_path / side).read_text().splitlines() for side in ("base", "head")]
    for prepared, running, active, interpreter in prefixes:
        assert prepared == running == active and interpreter == f"{active}/bin/python"
    assert prefixes[0] != prefixes[1]


# A package that pip installs as editable without the network, because it builds itself.
PACKAGE = {
    "pyproject.toml": """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "foreign"
version = "1"
""",
    "backend.py": """
import os, zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(os.path.join(folder, "foreign-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("foreign.pth", os.getcwd())
        wheel.writestr("foreign-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: foreign\\nVersion: 1\\n")
        wheel.writestr("foreign-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("foreign-1.dist-info/RECORD", "")
    return "foreign-1-py3-none-any.whl"
""",
    "foreign/__init__.py": "SPEED = 10.0\n",
}


def test_a_package_is_that_of_its_side(gate, repository, monkeypatch):
    for name, text in PACKAGE.items():
        repository.write(name, text)
    repository.commit("two")
    repository.write("foreign/__init__.py", "SPEED = 12.0\n")
    # What the user's environment adds would be the same on both sides.
    monkeypatch.setenv("PYTHONPATH", str(repository.folder))
    imported = ANSWER.replace("cat speed", """python -P -c "import foreign; print(foreign.SPEED)" """)
    done = gate("-q", "--format=json", "--prepare=pip install -e .", code=REGRESSION, commands={"measure": imported})
    report = strict_json(done.stdout)["cases"][0]
    assert set(report["base"]) == {10.0} and set(report["candidate"]) == {12.0}


def test_a_command_that_fails_is_an_error_that_names_the_side(gate, repository):
    repository.write("only-here", "")
    failed = gate("-q", "--prepare=[ ! -e only-here ] || { echo out of luck >&2; exit 7; }", code=USAGE).stderr
    assert "in the copy of the candidate ended with exit code 7; it said: out of luck" in failed


OTHER_TORCH = """
import pathlib, sysconfig
packages = pathlib.Path(sysconfig.get_path("purelib"))
(packages / "torch").mkdir()
(packages / "torch/__init__.py").write_text("")
(packages / "torch-1.0.dist-info").mkdir()
(packages / "torch-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\\nName: torch\\nVersion: 1.0\\n")
"""


def test_a_side_with_another_torch_is_unusable(gate, repository):
    repository.write("install.py", "")
    repository.commit("two")
    repository.write("install.py", OTHER_TORCH)
    done = gate("-q", "--format=json", "--prepare=python install.py", code=UNUSABLE)
    said = verdict(done)
    assert said.startswith("unusable: the candidate has torch 1.0 in ") and "expected the harness's torch 2." in said
    assert "the base" not in said


# ---------------------------------------------------------------- what a side lacks




def plan_that_lacks(reason, has_it="[ -e has-it ]", kind="unknown_method"):
    """A worker's answer to `plan`, which refuses the case unless the shell command `has_it` succeeds."""
    refusal = json.dumps({"outcome": "failed", "failure_kind": kind, "failure_field": "method", "reason": reason})
    return {"plan": f"{has_it} || {{ answer {shlex.quote(refusal)}; exit; }}\nanswer '{{}}'"}


def test_a_case_that_the_base_lacks_is_new_and_passes(gate, repository):
    repository.write("has-it", "")
    reason = "in whatever words"
    done = gate("-q", "--format=json", commands=plan_that_lacks(reason))
    assert verdict(done) == f"new: in the base, {reason}"
    report = strict_json(done.stdout)
    assert report["result"] == "pass" and report["cases"][0]["candidate"] == []


def test_a_gate_in_which_every_case_is_new_says_so(gate, repository):
    repository.write("has-it", "")
    shown = gate(commands=plan_that_lacks("unknown method 'x'")).stdout
    assert shown.endswith("nothing was compared, because every case is new\ngate: pass\n")


def test_a_case_that_is_broken_in_the_base_is_unusable(gate, repository):
    repository.write("has-it", "")
    # The words of a user's function do not make the case new.
    reason = "mine.py cannot be imported: x has no function 'y'"
    done = gate("-q", "--format=json", code=UNUSABLE, commands=plan_that_lacks(reason, kind="usage"))
    assert verdict(done) == f"unusable: the base cannot run it: {reason}"


def test_a_case_that_the_candidate_lacks_is_an_error(gate, repository):
    repository.write("has-it", "")
    repository.commit("two")
    (repository.folder / "has-it").unlink()
    failed = gate("-q", code=USAGE, commands=plan_that_lacks("unknown method 'x'")).stderr
    assert failed.startswith("attnbench: suites/suite.toml: unknown method 'x'"), "the copy of the suite is not named"


def test_submodules_and_files_of_lfs_are_not_fetched(gate, repository, tmp_path):
    ran = tmp_path / "filter-ran"
    repository.write(".gitattributes", "*.bin filter=lfs\n")
    repository.write("data.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{repository.git('rev-parse', 'HEAD')},library")
    repository.git("add", ".gitattributes", "data.bin")
    repository.git("commit", "-q", "-m", "two")
    for step in ("smudge", "clean", "process"):
        repository.git("config", f"filter.lfs.{step}", f"touch '{ran}'; cat")
    repository.git("config", "filter.lfs.required", "true")
    done = gate("--format=json")
    lacking = ["the contents of data.bin, which Git LFS holds", "the submodule library"]
    assert f"the base lacks {', '.join(lacking)}\n" in done.stderr
    assert strict_json(done.stdout)["base"]["source"]["lacking"] == lacking
    assert not ran.exists()


# ---------------------------------------------------------------- plug-ins

# The time of a case is in the plug-in that the worker is given.
OF_PLUGIN = 'for word; do case "$word" in --plugin=*) plugin=${word#--plugin=};; esac; done\n' + ANSWER.replace("cat speed", 'cat "$plugin"')
HAS_PLUGIN = 'case "$*" in *--plugin=*) true;; *) false;; esac'


def name_plugins(repository, *plugins):
    text = repository.suite.read_text()
    repository.suite.write_text(f"plugins = {json.dumps(plugins)}\n{text}")


def test_a_plugin_of_the_suite_is_built_for_each_side(gate, repository):
    name_plugins(repository, "../built/mine.so")
    repository.write(".gitignore", "built/\n")
    repository.commit("two")
    repository.write("speed", "12.0\n")
    done = gate("-q", "--format=json", "--prepare=mkdir built; cp speed built/mine.so", code=REGRESSION, commands={"measure": OF_PLUGIN})
    report = strict_json(done.stdout)["cases"][0]
    assert set(report["base"]) == {10.0} and set(report["candidate"]) == {12.0}


def test_a_case_whose_plugin_the_base_lacks_is_new(gate, repository):
    name_plugins(repository, "../mine.so")
    repository.write("mine.so", "10.0\n")
    done = gate("-q", "--format=json", commands=plan_that_lacks("unknown method 'x'", HAS_PLUGIN) | {"measure": OF_PLUGIN})
    assert verdict(done).startswith("new: in the base, unknown method 'x'")


def test_plugins_that_are_not_of_the_sides_are_refused(gate, driver, repository, tmp_path):
    before = repository.suite.read_text()
    name_plugins(repository, "../mine.so")
    failed = gate("-q", code=USAGE).stderr
    assert "attnbench: suites/suite.toml" in failed and "mine.so" in failed
    (tmp_path / "mine.so").write_text("10.0\n")
    for outside in ("../../mine.so", str(tmp_path / "mine.so")):
        repository.suite.write_text(before)
        name_plugins(repository, outside)
        assert "lies outside of the repository" in gate("-q", code=USAGE).stderr
    cli = driver()
    failed = cli(*WORDS, "--base=main", "--plugin", tmp_path / "mine.so", code=USAGE, env=cli.environment)
    assert "would be the same on both sides; name it in the suite" in failed.stderr


# ---------------------------------------------------------------- wrong input


def test_wrong_words_are_refused(gate, driver, repository, tmp_path):
    for base in ("--upload-pack=x", "-f"):
        assert f"the revision '{base}' looks like an option" in gate(base=base, code=USAGE).stderr
    assert "'nowhere' is no git revision of" in gate(base="nowhere", code=USAGE).stderr
    assert "is no git revision" in gate(base="main:speed", code=USAGE).stderr
    cli = driver()
    for words, said in [
        (["gate", "suites/suite.toml", "--root=."], "gate needs --base"),
        (["gate", "suites/suite.toml", "--base=main", "--prepare=true"], "--prepare can only be given with --root"),
        ([*WORDS, "--base=main", "--candidate=build"], "--root cannot be given with --candidate"),
        ([*WORDS, "--base=main", "--calibrate"], "--calibrate cannot be given with --root"),
        (["gate", "suites/none.toml", "--root=.", "--base=main"], "suites/none.toml: no such file"),
        (["gate", "suites/suite.toml", "--root=none", "--base=main"], "none: no such folder, expected a git repository"),
    ]:
        assert said in cli(*words, code=USAGE, env=cli.environment).stderr
    (tmp_path / "plain").mkdir()
    failed = cli("gate", repository.suite, "--root", tmp_path / "plain", "--base=main", code=USAGE, env=cli.environment)
    assert "expected the working tree of a git repository" in failed.stderr


def test_a_suite_belongs_to_the_repository(gate, driver, repository, tmp_path):
    outside = write_sweep(tmp_path / "outside.toml", method="linear", query_len=32)
    cli = driver()
    failed = cli("gate", outside, "--root=.", "--base=main", code=USAGE, env=cli.environment)
    assert "outside.toml lies outside of the repository" in failed.stderr
    repository.write(".gitignore", "suites/mine.toml\n")
    write_sweep(repository.folder / "suites/mine.toml", method="linear", query_len=32)
    failed = cli("gate", "suites/mine.toml", "--root=.", "--base=main", "-q", code=USAGE, env=cli.environment)
    assert "suites/mine.toml is ignored by git" in failed.stderr


def test_an_error_in_a_suite_names_the_file_in_the_repository(gate, repository):
    repository.write("suites/suite.toml", '[axes]\nmethod = "lienar"\n')
    failed = gate("-q", code=USAGE).stderr
    assert failed.startswith("attnbench: suites/suite.toml:2:10: unknown method 'lienar'")


def test_temporary_files_in_the_repository_are_refused(gate, repository):
    inside = repository.folder / "temporary"
    inside.mkdir()
    failed = gate(code=USAGE, environment={"TMPDIR": str(inside)}).stderr
    assert "lies in the repository" in failed and "set TMPDIR" in failed


def test_a_folder_of_an_earlier_gate_that_cannot_be_locked_is_left(driver, repository, temporary):
    broken, abandoned = (temporary / f"attnbench-gate-{os.geteuid()}/run-{name}" for name in ("broken", "abandoned"))
    (broken / ".lock").mkdir(parents=True)  # as a file system would that was damaged
    abandoned.mkdir()
    broken.parent.chmod(0o700)
    cli = driver()
    done = cli(*WORDS, "--base=main", "-q", env=cli.environment)
    assert f"{broken}/.lock: cannot open: Is a directory; the folder of an earlier gate is left there\n" in done.stderr
    assert left_in(temporary) == [broken]


def test_a_disk_too_full_for_a_copy_is_an_error(gate, repository):
    repository.write("large", "x" * 2**20)
    full = limited_files(2**19)
    failed = gate("-q", code=USAGE, **full).stderr
    assert re.search(r"^attnbench: \S*/large: cannot be copied to \S*/head/large: \S.+$", failed, re.MULTILINE), failed
    assert str(repository.folder / "large") in failed


def test_a_folder_that_others_may_write_to_is_refused(driver, repository, temporary):
    cli = driver()
    folder = temporary / f"attnbench-gate-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    assert "to which nobody else can write" in cli(*WORDS, "--base=main", code=USAGE, env=cli.environment).stderr
    folder.rmdir()
    folder.symlink_to(temporary)
    assert "expected a folder of this user" in cli(*WORDS, "--base=main", code=USAGE, env=cli.environment).stderr


# ---------------------------------------------------------------- interrupts

# By name: the words and the stand-in's commands with which a gate hangs in that step; `git` stands for
# git when it checks out the base.
STEPS = {
    "copying": ([], {"git": "echo $$ > '{pids}'; sleep 1000"}),
    "preparing": (["--prepare=echo $$ > '{pids}'; chmod a-w .; sleep 1000 & wait"], {}),
    "verifying": ([], {"verify": "echo $$ > '{pids}'; sleep 1000"}),
    "measuring": ([], {"measure": "echo $$ >> '{pids}'; sleep 1000"}),
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("step", STEPS)
def test_an_interrupted_gate_leaves_nothing_behind(driver, repository, temporary, tmp_path, step, number):
    pids = tmp_path / "pids"
    words, commands = STEPS[step]
    commands = {name: code.format(pids=pids) for name, code in commands.items()}
    slow_git = commands.pop("git", None)
    cli = driver(**commands)
    if slow_git:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/git").write_text(f'#!/bin/sh\ncase "$*" in *reset*) {slow_git};; esac\nexec {shutil.which("git")} "$@"\n')
        (tmp_path / "bin/git").chmod(0o755)
    before = repository.state()
    words = [*WORDS, "--base=main", "-q", *(word.format(pids=pids) for word in words)]
    with cli.running(*words, env=cli.environment | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}) as running:
        started = wait_for(lambda: pids.exists() and pids.read_text().split(), "the step to begin", driver=running)
        running.send_signal(number)
        running.wait(timeout=HANG_S)
        assert running.returncode == (-number if number == signal.SIGKILL else 128 + number)
    wait_for(lambda: not any(map(runs, started)), "the step to end")
    assert repository.state() == before
    if number != signal.SIGKILL:
        assert left_in(temporary) == []
    else:
        assert len(left_in(temporary)) == 1
        cli(*WORDS, "--base=main", "--prepare=false", "-q", code=USAGE, env=cli.environment)
        assert left_in(temporary) == [], "the next gate removes what a killed one has left"


def test_the_folder_of_a_running_gate_is_kept(driver, gate, repository, temporary, tmp_path):
    pids = tmp_path / "pids"
    cli = driver(verify=f"echo $$ > '{pids}'; sleep 1000")
    with cli.running(*WORDS, "--base=main", "-q", env=cli.environment) as running:
        wait_for(pids.exists, "the gate to verify", driver=running)
        (folder,) = left_in(temporary)
        other = driver()
        other(*WORDS, "--base=main", "-q", env=other.environment)
        assert left_in(temporary) == [folder] and (folder / "base/speed").exists()
        running.send_signal(signal.SIGINT)
        running.wait(timeout=HANG_S)


# ---------------------------------------------------------------- the comment


def test_the_comment_says_what_was_compared(gate, repository, tmp_path):
    repository.write("speed", "12.0\n")
    comment = tmp_path / "comment.md"
    gate("-q", "--comment", comment, code=REGRESSION)
    text = comment.read_text()
    head = repository.git("rev-parse", "HEAD")[:12]
    assert text.startswith("<!-- attnbench gate: suites/suite.toml -->\n### attnbench gate: regression\n")
    assert "At least one case is slower or needs more memory. Suite `suites/suite.toml`, compared with `main`." in text
    assert "| linear forward N=32 heads=2 head\\_dim=16 |" in text and "| +20.0 % |" in text
    assert f"The base is commit `{head}`, the candidate is commit `{head}` with uncommitted changes." in text
    assert '<pre>[[waive]]&#10;case = "linear forward N=32 heads=2 head_dim=16"&#10;reason = ' in text
    assert text.count("p is the probability") == text.count("gate: regression") == 1
    repository.write("speed", "10.0\n")
    gate("-q", "--comment", comment)
    assert "### attnbench gate: pass\n" in comment.read_text()
    failed = gate("-q", "--comment", comment, base="no<b>where", code=USAGE)
    text = comment.read_text()
    assert text.startswith("<!-- attnbench gate: suites/suite.toml -->\n### attnbench gate: error\n")
    assert "'no&lt;b&gt;where' is no git revision of" in text and "'no<b>where' is no git revision" in failed.stderr
    assert "none" in gate("-q", "--comment", tmp_path / "none/comment.md", code=USAGE).stderr


# ---------------------------------------------------------------- the page


PAGE = (ROOT / "docs/gate.md").read_text("utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


PAGE_COMMANDS = [line for block in blocks("text") for line in block.splitlines() if line.startswith("attnbench ")]


@pytest.mark.parametrize("command", dict.fromkeys(PAGE_COMMANDS))
def test_the_commands_of_the_page_work_in_a_clone(driver, repository, temporary, tmp_path, command):
    for path in ("suite.toml", "bench/suite.toml"):
        repository.write(path, repository.suite.read_text())
    for name, text in PACKAGE.items():
        repository.write(name, text)
    repository.commit("two")
    clone = tmp_path / "clone"
    repository.git("clone", "-q", str(repository.folder), str(clone))
    cli = driver()
    program, *words = shlex.split(command)
    assert program == "attnbench" and words[0] == "gate"
    assert cli(*words, cwd=clone, env=cli.environment).stdout.endswith("gate: pass\n")
    assert left_in(temporary) == []


# ---------------------------------------------------------------- methods in Python


MINE = '''import torch


def attention(q, k, v, *, causal, key_lengths=None):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


second = attention
'''
SLOWER = '''

def second(q, k, v, *, causal, key_lengths=None):
    return [attention(q, k, v, causal=causal) for _ in range(30)][-1]
'''


# Three pairs decide about these cases, because each starts two interpreters. What the gate is to find is larger than any noise.
FEW_PAIRS = ["--looks=3", "--alpha=0.9", "--pass-alpha=0.5", "--min-shift=1", "--margin=5"]


@pytest.fixture
def python_gate(attnbench, build, repository, temporary):
    """Runs the gate with the real worker on functions of Python files."""
    if not (build / "libattnbench-python.so").exists():
        pytest.skip("this build cannot run Python methods (no libattnbench-python.so)")

    def run(*more, code=PASS, words=(*GATE, "--base=main")):
        before = repository.state()
        done = attnbench(
            *words, "-q", "--format=json", *FEW_PAIRS, *more,
            code=code, cwd=repository.folder, env=os.environ | {"TMPDIR": str(temporary)},
        )  # fmt: skip
        assert repository.state() == before and left_in(temporary) == []
        return strict_json(done.stdout)

    return run


def write_python_suite(repository, *names):
    methods = [f"../kernels/{name}:like=softmax" for name in names]
    write_sweep(repository.folder / "suites/suite.toml", method=methods, query_len=64, timing={"time_budget_s": 0.02})


@pytest.mark.long
def test_functions_of_python_files_are_those_of_each_side(python_gate, repository):
    repository.write("kernels/mine.py", MINE)
    repository.commit("two")
    repository.write("kernels/mine.py", MINE + SLOWER + "\n\nthird = attention\n")
    repository.write("kernels/fourth.py", MINE)
    write_python_suite(repository, "mine.py:attention", "mine.py:second", "mine.py:third", "fourth.py:attention")
    report = python_gate(code=REGRESSION)
    assert report["cases"][0]["name"].startswith("../kernels/mine.py:attention:like=softmax forward N=64")
    same, slower, third, fourth = map(verdict_text, report["cases"])
    assert same == "pass" and slower.startswith("regression")
    assert third.startswith("new: in the base, ") and "kernels/mine.py has no function 'third'" in third
    assert fourth == "new: the base has no file ../kernels/fourth.py"


def test_the_worked_example_of_the_page_runs(python_gate, repository):
    files = [block for language in ("python", "toml") for block in blocks(language) if re.match(r"# \S+/\S+\n", block)]
    assert len(files) == 2
    for text in files:
        repository.write(text.split()[1], text)
    repository.commit("two")
    words = ["gate", "bench/suite.toml", "--root=.", "--base=main", "--set=timing.time_budget_s=0.02", "--set=query_len=64"]
    report = python_gate(words=words)
    assert [case["name"].split()[0] for case in report["cases"]] == ["../kernels/mine.py:attention:like=softmax", "sdpa"]
    assert report["result"] == "pass"


def test_a_function_that_is_wrong_is_unusable(python_gate, repository):
    write_python_suite(repository, "mine.py:attention")
    repository.write("kernels/mine.py", MINE)
    repository.commit("two")
    repository.write("kernels/mine.py", MINE.replace("is_causal=causal)", "is_causal=causal) * 1.1"))
    report = python_gate(code=UNUSABLE)
    (case,) = report["cases"]
    assert case["verdict"] == "unusable" and case["reason"].startswith("the candidate does not verify:")


def test_a_file_outside_of_the_repository_is_refused(python_gate, attnbench, repository, temporary, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    write_sweep(repository.folder / "suites/suite.toml", method=f"{tmp_path}/mine.py:attention", query_len=64)
    repository.commit("two")
    failed = attnbench(*WORDS, "--base=main", "-q", cwd=repository.folder, code=USAGE, env=os.environ | {"TMPDIR": str(temporary)})
    assert "lies outside of the repository" in failed.stderr
