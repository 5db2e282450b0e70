"""Tests of the progress that a sweep prints: a line for each case in a file, and one line that is
rewritten on a terminal."""

import re

import pytest
from conftest import write_sweep

# Returns to the beginning of the line and erases it.
ERASE_LINE = "\r\x1b[2K"
# The end of the last line of a sweep with one process a case; the number depends on that of cases.
EXPLORATORY = "; exploratory: `attnbench compare` needs {} processes a case, not 1"


@pytest.fixture
def terminal(canned):
    """Runs a sweep with a terminal as standard error; returns its exit code and the text shown."""

    def run(*arguments, cli=canned, **options):
        return cli.on_terminal("sweep", *arguments, streams=["stderr"], **options)

    return run


def test_a_file_gets_a_line_for_each_case(canned, sweep):
    done = canned("sweep", sweep, "--out", "out")
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 7
    cases = set()
    for number, line in enumerate(lines[:4], 1):
        assert line.startswith(f"[{number}/4] ")
        cases.add(" ".join(line.split()[1:4]))
        assert "1.10 ms" in line and "2.00 KiB" in line
    assert cases == {f"{method} forward N={n}" for method in ("linear", "softmax") for n in (32, 48)}
    assert lines[4] == "out: 4 cases recorded" + EXPLORATORY.format(6)
    assert lines[5].startswith("4 of 4 cases are noisier than usual (±10 %), so smaller differences from them may be noise: ") and lines[5].count("±18.2 %") == 4
    assert lines[6] == "softmax  1.00 × as fast as linear at N = 48"
    assert "\r" not in done.stderr and "\x1b" not in done.stderr


def test_each_line_appears_when_its_case_ends(attnbench, workers, tmp_path, sweep):
    worker = workers.make(measure=f'if mkdir "{tmp_path}/one" || mkdir "{tmp_path}/two"; then good; else sleep 300; fi')
    with attnbench.with_worker(worker).running("sweep", sweep, "--out", "out") as driver:
        assert driver.stderr.readline().startswith("[1/4]")
        assert driver.stderr.readline().startswith("[2/4]")
        assert driver.poll() is None


def test_lines_count_only_the_cases_that_are_run(canned, sweep):
    canned("sweep", sweep, "--out", "out", "--methods", "linear")
    lines = canned("sweep", sweep, "--out", "out").stderr.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("[")] == ["[1/2]", "[2/2]"]


def test_a_line_gives_the_reason_of_a_failure_or_skip(attnbench, workers, tmp_path):
    sweep = write_sweep(
        tmp_path / "s.toml", method=["linear", "linear-einsum"], query_len=32, causal=True
    )
    crash = attnbench.with_worker(workers.make(measure="kill -SEGV $$; sleep 9"))
    lines = crash("sweep", sweep, "--out", "out", code=1).stderr.splitlines()
    crashed, skipped = sorted(lines[:2], key=lambda line: "skipped" in line)
    assert "linear forward N=32 causal" in crashed
    assert "failed: crashed" in crashed and "signal 11" in crashed
    assert "skipped: unsupported" in skipped and "causal" in skipped
    assert lines[2] == "out: 2 cases recorded, 1 failed" + EXPLORATORY.format(5)


def test_quiet_prints_nothing(canned, sweep):
    for _ in range(2):  # The second run finds every case recorded.
        done = canned("sweep", sweep, "--out", "out", "-q")
        assert (done.stdout, done.stderr) == ("", "")


def test_quiet_still_prints_errors(canned, sweep):
    assert "'hads'" in canned("sweep", sweep, "-q", "--set", "hads=1", code=2).stderr


def test_verbose_adds_a_line_of_details_to_each_case(canned, sweep):
    lines = canned("sweep", sweep, "--out", "out", "--verbose").stderr.splitlines()
    assert len(lines) == 11
    assert [line.split()[0] for line in lines[:8:2]] == [f"[{n}/4]" for n in range(1, 5)]
    for line in lines[1:8:2]:
        for word in ("stand-in", "5 samples", "time_budget", "1.0e-08"):
            assert word in line


def test_verbose_shows_no_missing_values_of_a_failure(attnbench, workers, sweep):
    crash = attnbench.with_worker(workers.make(measure="exit 1"))
    text = crash("sweep", sweep, "--out", "out", "-v", code=1).stderr
    assert "nan" not in text and "null" not in text


def test_quiet_and_verbose_exclude_each_other(canned, sweep):
    message = canned("sweep", sweep, "-q", "-v", code=2).stderr
    assert "--quiet" in message and "--verbose" in message


def test_a_terminal_shows_one_line_that_is_rewritten(terminal, sweep):
    code, shown = terminal(sweep, "--out", "out")
    assert code == 0
    states = [state for state in shown.split(ERASE_LINE) if state]
    *cases, last = states
    assert len(cases) == 4
    for number, state in enumerate(cases, 1):
        assert state.startswith(f"process {number} of 4 ")
        assert re.search(r"(linear|softmax) forward N=(32|48)", state)
        assert "elapsed" in state and "remaining" in state
        assert "\n" not in state
        assert ("last: 1.10 ms" in state) == (number > 1)
    assert last.strip().startswith("out: 4 cases recorded" + EXPLORATORY.format(6) + "\n4 of 4 cases are noisier")


@pytest.mark.parametrize("width", [20, 60])
def test_the_line_fits_into_a_narrow_terminal(terminal, sweep, width):
    _, shown = terminal(sweep, "--out", "out", width=width)
    states = [state for state in shown.split(ERASE_LINE) if state.startswith("process")]
    assert len(states) == 4
    assert all(len(state) < width for state in states)


def test_a_terminal_with_verbose_shows_a_line_for_each_case(terminal, sweep):
    _, shown = terminal(sweep, "--out", "out", "-v")
    lines = [state for state in shown.split(ERASE_LINE) if state.startswith("[")]
    assert [line.split()[0] for line in lines] == [f"[{n}/4]" for n in range(1, 5)]
    assert all("5 samples" in line for line in lines)
    assert "process 4 of 4" in shown


def test_a_terminal_with_quiet_stays_empty(terminal, sweep):
    assert terminal(sweep, "--out", "out", "-q") == (0, "")


def test_the_line_has_no_control_characters_of_a_worker(terminal, attnbench, workers, sweep):
    worker = workers.make(measure=r"printf 'one\ntwo\033[31m\a' >&2; exit 1")
    _, shown = terminal(sweep, "--out", "out", cli=attnbench.with_worker(worker))
    states = [state for state in shown.split(ERASE_LINE) if state.startswith("process")]
    assert len(states) == 4
    for state in states:
        assert not re.search(r"[\x00-\x1f\x7f]", state)
