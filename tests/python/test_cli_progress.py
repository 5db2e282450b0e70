"""What a sweep tells while it runs: a line a case in a file, one line that rewrites itself on a
terminal."""

import re

import pytest
from conftest import write_sweep

NEW_LINE = "\r\x1b[2K"


@pytest.fixture
def terminal(canned):
    """Runs a sweep with a terminal for standard error; gives exit code and what it showed."""

    def run(*arguments, cli=canned, **options):
        return cli.on_terminal("sweep", *arguments, streams=["stderr"], **options)

    return run


def test_a_line_a_case(canned, sweep):
    done = canned("sweep", sweep, "--out", "out")
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 5
    cases = [("linear", 32), ("linear", 48), ("softmax", 32), ("softmax", 48)]
    for number, ((method, length), line) in enumerate(zip(cases, lines[:4], strict=True), 1):
        assert line.startswith(f"[{number}/4] {method} forward N={length} ")
        assert "1.10 ms" in line and "2.00 KiB" in line
    assert lines[4] == "out: 4 cases recorded"
    assert "\r" not in done.stderr and "\x1b" not in done.stderr


def test_lines_appear_as_cases_end(attnbench, workers, tmp_path, sweep):
    worker = workers.make(measure='case "$request" in *linear*) good ;; *) sleep 300 ;; esac')
    with attnbench.with_worker(worker).running("sweep", sweep, "--out", "out") as driver:
        assert driver.stderr.readline().startswith("[1/4]")
        assert driver.stderr.readline().startswith("[2/4]")
        assert driver.poll() is None


def test_a_line_counts_only_what_runs(canned, sweep):
    canned("sweep", sweep, "--out", "out", "--methods", "linear")
    lines = canned("sweep", sweep, "--out", "out").stderr.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["[1/2]", "[2/2]"]


def test_a_line_says_why(attnbench, workers, tmp_path):
    sweep = write_sweep(
        tmp_path / "s.toml", method=["linear", "linear-einsum"], query_len=32, causal=True
    )
    crash = attnbench.with_worker(workers.make(measure="kill -SEGV $$; sleep 9"))
    lines = crash("sweep", sweep, "--out", "out", code=1).stderr.splitlines()
    assert "linear forward N=32 causal" in lines[0]
    assert "failed: crashed" in lines[0] and "signal 11" in lines[0]
    assert "skipped: unsupported" in lines[1] and "causal" in lines[1]
    assert lines[2] == "out: 2 cases recorded, 1 failed"


def test_quiet_says_nothing(canned, sweep):
    for _ in range(2):  # a run, and one with nothing to do
        done = canned("sweep", sweep, "--out", "out", "-q")
        assert (done.stdout, done.stderr) == ("", "")


def test_quiet_still_tells_of_mistakes(canned, sweep):
    assert "'hads'" in canned("sweep", sweep, "-q", "--set", "hads=1", code=2).stderr


def test_verbose_says_more(canned, sweep):
    lines = canned("sweep", sweep, "--out", "out", "--verbose").stderr.splitlines()
    assert len(lines) == 9
    assert [line.split()[0] for line in lines[:8:2]] == [f"[{n}/4]" for n in range(1, 5)]
    for line in lines[1:8:2]:
        for word in ("stand-in", "5 samples", "time_budget", "1.0e-08"):
            assert word in line


def test_verbose_has_nothing_to_add_to_a_failure(attnbench, workers, sweep):
    crash = attnbench.with_worker(workers.make(measure="exit 1"))
    text = crash("sweep", sweep, "--out", "out", "-v", code=1).stderr
    assert "nan" not in text and "null" not in text


def test_quiet_and_verbose_exclude_each_other(canned, sweep):
    message = canned("sweep", sweep, "-q", "-v", code=2).stderr
    assert "--quiet" in message and "--verbose" in message


def test_a_terminal_shows_one_line_that_rewrites_itself(terminal, sweep):
    code, shown = terminal(sweep, "--out", "out")
    assert code == 0
    states = [state for state in shown.split(NEW_LINE) if state]
    *cases, last = states
    assert len(cases) == 4
    for number, state in enumerate(cases, 1):
        assert state.startswith(f"case {number} of 4 ")
        assert re.search(r"(linear|softmax) forward N=(32|48)", state)
        assert "elapsed" in state and "remaining" in state
        assert "\n" not in state
        assert ("last: 1.10 ms" in state) == (number > 1)
    assert last.split() == "out: 4 cases recorded".split()


@pytest.mark.parametrize("width", [20, 60])
def test_a_narrow_terminal_does_not_wrap(terminal, sweep, width):
    _, shown = terminal(sweep, "--out", "out", width=width)
    states = [state for state in shown.split(NEW_LINE) if state.startswith("case")]
    assert len(states) == 4
    assert all(len(state) < width for state in states)


def test_a_terminal_with_verbose_keeps_a_line_a_case(terminal, sweep):
    _, shown = terminal(sweep, "--out", "out", "-v")
    kept = [state for state in shown.split(NEW_LINE) if state.startswith("[")]
    assert [state.split()[0] for state in kept] == [f"[{n}/4]" for n in range(1, 5)]
    assert all("5 samples" in state for state in kept)
    assert "case 4 of 4" in shown


def test_a_terminal_with_quiet_stays_empty(terminal, sweep):
    assert terminal(sweep, "--out", "out", "-q") == (0, "")


def test_what_a_worker_said_does_not_break_the_terminals_line(terminal, attnbench, workers, sweep):
    worker = workers.make(measure=r"printf 'one\ntwo\033[31m\a' >&2; exit 1")
    _, shown = terminal(sweep, "--out", "out", cli=attnbench.with_worker(worker))
    states = [state for state in shown.split(NEW_LINE) if state.startswith("case")]
    assert len(states) == 4
    for state in states:
        assert not re.search(r"[\x00-\x1f\x7f]", state)
