"""Tests of a base that is a revision of git: it is checked out and built once, whatever interrupts that."""

import fcntl
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import HANG_S, Cli, children, group_members, runs, wait_for
from stand_ins import USAGE, build_of, suite  # noqa: F401


class Repository:
    """A git repository whose CMake project, when it is configured, writes a script that runs a given
    worker. At one stage of a build it runs `step`, a script that the test sets: when git checks out
    a file, when CMake configures, or when ninja builds."""

    def __init__(self, folder, worker, stage):
        self.folder, self.step = folder, folder.parent / "step"
        self.done = folder.parent / "step-is-done"
        folder.mkdir()
        self.set_step("")
        lines = [
            "cmake_minimum_required(VERSION 3.25)",
            "project(fake NONE)",
            'set(worker "${CMAKE_BINARY_DIR}/attnbench-worker")',
            f'file(WRITE ${{worker}} "#!/bin/sh\\nexec {worker} \\"$@\\"\\n")',
            "file(CHMOD ${worker} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)",
            "include(last.cmake)",
        ]
        if stage == "configure":
            lines += [f'execute_process(COMMAND "{self.step}" COMMAND_ERROR_IS_FATAL ANY)']
        if stage == "build":
            lines += [f'add_custom_target(attnbench-worker COMMAND "{self.step}")']
        else:
            lines += ["add_custom_target(attnbench-worker)"]
        (folder / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
        (folder / "last.cmake").write_text("# git checks this file out after CMakeLists.txt\n")
        if stage == "checkout":
            (folder / ".gitattributes").write_text("last.cmake filter=step\n")
        self.git("init", "-q")
        self.git("config", "filter.step.clean", "cat")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "one")
        self.git("config", "filter.step.smudge", f"'{self.step}' && cat")
        self.git("config", "filter.step.required", "true")
        commit = self.git("rev-parse", "HEAD")[:12]
        self.built = folder / "build-gate" / commit / "build/attnbench-worker"

    def git(self, *words):
        author = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", *author, *words], cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout.strip()

    def set_step(self, code):
        self.step.write_text(f"#!/bin/sh\n{code}\ntouch '{self.done}'\n")
        self.step.chmod(0o755)


STAGES = ["checkout", "configure", "build"]


@pytest.fixture
def repository(tmp_path, build_of):
    """repository(stage) makes a Repository that runs its step at this stage."""
    worker = build_of() / "attnbench-worker"
    return lambda stage="none": Repository(tmp_path / "repository", worker, stage)


@pytest.fixture
def gate_in(attnbench, suite, build_of):
    """gate_in(repository) is the driver in its folder, and the words of a gate with base HEAD."""

    def command(repository):
        program = Cli(attnbench.program, folder=repository.folder)
        return program, ["gate", suite, "--base", "HEAD", "--candidate", build_of(), "-q"]

    return command


def test_a_base_revision_is_built_once_in_a_worktree(gate_in, repository):
    checked_out = repository("build")
    program, words = gate_in(checked_out)
    assert "building" in program(*words).stderr
    assert checked_out.built.exists() and checked_out.done.exists()
    assert "building" not in program(*words).stderr, "it must not be built again"
    (checked_out.folder / "CMakeLists.txt").write_text("message(FATAL_ERROR no)\n")
    checked_out.git("commit", "-q", "-am", "two")
    failed = program(*words, code=USAGE).stderr
    assert "does not build: cmake -S failed" in failed and "build.log" in failed


def test_a_base_that_git_does_not_know_or_does_not_read_is_refused_with_its_words(gate_in, repository, monkeypatch):
    checked_out = repository()
    program, words = gate_in(checked_out)
    words[words.index("HEAD")] = "no-such-revision"
    failed = program(*words, code=USAGE).stderr
    assert f"neither a build folder nor a program nor a git revision of the repository {checked_out.folder}" in failed
    # git treats the repository as if it belonged to another user.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    failed = program(*words, code=USAGE).stderr
    assert f"fatal: detected dubious ownership in repository at '{checked_out.folder}'" in failed
    assert f"git config --global --add safe.directory {checked_out.folder}" in failed


@pytest.mark.parametrize("stage", STAGES)
def test_a_failed_build_is_built_again(gate_in, repository, stage):
    broken = repository(stage)
    program, words = gate_in(broken)
    broken.set_step("echo out of luck >&2; exit 1")
    for _ in range(2):
        failed = program(*words, code=USAGE).stderr
        assert "does not build" in failed
        assert "out of luck" in Path(failed.rpartition("see ")[2].strip()).read_text()
    broken.set_step("")
    program(*words)
    assert broken.built.exists() and broken.done.exists()


def test_only_one_process_at_a_time_builds_a_revision(gate_in, repository):
    shared = repository("build")
    program, words = gate_in(shared)
    folder = shared.built.parent.parent
    folder.mkdir(parents=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert f"{folder}: another process is building" in program(*words, code=USAGE).stderr
    assert not shared.done.exists()
    program(*words)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupted_build_ends_and_is_built_again(
    gate_in, repository, tmp_path, stage, number
):
    slow, pids = repository(stage), tmp_path / "pids"
    program, words = gate_in(slow)
    slow.set_step(f"sleep 300 & echo $$ $! > '{pids}'; wait")
    # A driver that was started with nohup ignores SIGHUP.
    with program.running(*words, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as driver:
        started = wait_for(lambda: pids.exists() and pids.read_text().split(), "the slow step", driver=driver)
        (child,) = children(driver.pid)
        driver.send_signal(number)
        driver.wait(timeout=HANG_S)
        assert driver.returncode == (-number if number == signal.SIGKILL else 128 + number)
        # Both processes were sent a signal; on a busy machine they may take a moment to end.
        wait_for(lambda: not group_members(child.group), "the build to end", seconds=60)
        wait_for(lambda: not any(map(runs, started)), "the slow step to end", seconds=60)
    assert not slow.done.exists()
    slow.set_step("")
    program(*words)
    assert slow.built.exists() and slow.done.exists()
