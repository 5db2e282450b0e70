"""Tests of what is printed on a terminal but not to a file: the table at the end of a sweep, and
colours."""

import os
import re

import pytest
from conftest import words, write_sweep

BOLD, RED, FAINT, RESET = "\x1b[1m", "\x1b[31m", "\x1b[2m", "\x1b[0m"
COLOUR = re.compile(r"\x1b\[\d*m")


def environment(**changes):
    """The environment variables with these changes, without those that switch colours off, for a
    terminal that is wide enough for all columns."""
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    return plain | {"TERM": "xterm", "COLUMNS": "300"} | changes


@pytest.fixture
def mixed(attnbench, workers, tmp_path):
    """Writes a sweep with a measured, a failed and a skipped case, and returns the driver."""
    write_sweep(tmp_path / "s.toml", method=["softmax", "linear", "linear-einsum"], query_len=[32], causal=True)
    return attnbench.with_worker(workers.make(measure='case "$request" in *softmax*) good ;; *) exit 3 ;; esac'))


def table_of(shown):
    """What is shown after the lines that count the recorded and the noisy cases, without speedups."""
    lines = shown.split("cases recorded")[-1].partition("\n")[2].splitlines(keepends=True)
    return "".join(line for line in lines if "noisier than usual" not in line and not re.search(r"^\S+ +[\d.]+ × as fast as", line))


def test_a_sweep_on_a_terminal_ends_with_its_table(canned, sweep):
    code, shown = canned.on_terminal("sweep", sweep, "--out", "out", env=environment())
    assert code == 0
    table = canned("table", "out").stdout
    assert words(COLOUR.sub("", table_of(shown))) == words(table)
    # The table is shown even if every case was recorded already.
    _, shown = canned.on_terminal("sweep", sweep, "--out", "out", env=environment())
    assert "out: all 4 cases are recorded" in shown
    assert words(COLOUR.sub("", shown)).endswith(words(table))


def test_the_table_is_shown_only_if_standard_output_is_a_terminal(canned, sweep):
    _, shown = canned.on_terminal("sweep", sweep, "--out", "a", streams=["stderr"])
    assert "─" not in shown
    _, shown = canned.on_terminal("sweep", sweep, "--out", "b", streams=["stdout"], env=environment())
    assert words(COLOUR.sub("", shown)) == words(canned("table", "b").stdout)
    _, shown = canned.on_terminal("sweep", sweep, "--out", "c", "--format", "markdown", env=environment())
    assert words(table_of(shown)) == words(canned("table", "c", "--format", "markdown").stdout)


def test_a_quiet_sweep_shows_no_table(canned, sweep):
    assert canned.on_terminal("sweep", sweep, "--out", "out", "-q") == (0, "")


def test_failed_and_skipped_rows_are_coloured(mixed):
    code, shown = mixed.on_terminal("sweep", "s.toml", "--out", "out", env=environment())
    assert code == 1
    lines = table_of(shown).splitlines()
    header, _, measured, failed = lines[(at := next(i for i, line in enumerate(lines) if "─" in line)) - 1 : at + 3]
    folded = lines[-1]
    assert folded.startswith("1 case is skipped as unsupported: ")
    _, shown = mixed.on_terminal("table", "out", "--all", env=environment())
    skipped = next(line for line in shown.splitlines() if "linear-einsum " in line)
    assert header.startswith(BOLD) and header.endswith(RESET)
    assert not COLOUR.search(measured) and "softmax" in measured
    assert failed.startswith(RED + "linear ") and failed.endswith("failed: crashed" + RESET)
    assert skipped.startswith(FAINT + "linear-einsum ") and skipped.endswith(RESET)


@pytest.mark.parametrize("switched_off", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_switched_off(mixed, switched_off):
    _, shown = mixed.on_terminal("sweep", "s.toml", "--out", "out", "-v", env=environment(**switched_off))
    assert not COLOUR.search(shown)
    assert "failed: crashed" in table_of(shown)
    # Only other terminals than a dumb one can rewrite a line.
    assert ("\x1b" in shown) == (switched_off.get("TERM") != "dumb")


def test_an_empty_no_color_does_not_switch_colours_off(mixed):
    _, shown = mixed.on_terminal("sweep", "s.toml", "--out", "out", env=environment(NO_COLOR=""))
    assert RED in shown


def test_verbose_progress_is_coloured_if_standard_error_is_a_terminal(mixed):
    _, shown = mixed.on_terminal("sweep", "s.toml", "--out", "out", "-v", streams=["stderr"], env=environment())
    assert re.search(r"\x1b\[31m\[./3\] linear .* failed: crashed", shown)
    assert "─" not in shown


def test_a_file_has_no_escape_codes(mixed):
    done = mixed("sweep", "s.toml", "--out", "out", "-v", code=1, env=environment())
    assert done.stdout == "" and "\x1b" not in done.stderr
    assert "\x1b" not in mixed("table", "out", env=environment()).stdout


@pytest.mark.parametrize("format", ["markdown", "csv", "json"])
def test_other_formats_have_no_colours(mixed, format):
    mixed("sweep", "s.toml", "--out", "out", "-q", code=1)
    _, shown = mixed.on_terminal("table", "out", "--format", format, env=environment())
    assert "\x1b" not in shown and "softmax" in shown


@pytest.mark.parametrize(
    ("words", "coloured"),
    [
        (["table", "out"], RED),
        (["list", "columns"], BOLD),
        (["verify", "linear-einsum", "--quick", "--verbose"], FAINT),
        (["sweep", "s.toml", "--dry-run", "--verbose"], FAINT),
        (["compare", "out", "out"], BOLD),
        (["analyse", "out", "--all"], BOLD),
    ],
)
def test_every_table_has_colours(mixed, words, coloured):
    mixed("sweep", "s.toml", "--out", "out", "-q", code=1)
    code, shown = mixed.on_terminal(*words, env=environment())
    assert code == 0 and coloured in shown
