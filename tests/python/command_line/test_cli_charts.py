"""Tests of the small charts that `attnbench table` and `analyse` show on a terminal."""

import json
import os
import re

import pytest
from conftest import Cli, records_in, words, write_sweep

COLOUR = re.compile(r"\x1b\[\d*m")
TITLE, AXIS = "time/sequence against N", "└"
COMMANDS = ("table", "analyse")


def environment(**changes):
    """The environment variables with these changes, without those that charts depend on."""
    ours = ("NO_COLOR", "TERM", "COLUMNS")
    return {name: value for name, value in os.environ.items() if name not in ours} | {"TERM": "xterm"} | changes


@pytest.fixture(scope="module")
def template(build, canned_worker, tmp_path_factory):
    """A measured record."""
    folder = tmp_path_factory.mktemp("template")
    attnbench = Cli(build / "attnbench", canned_worker, folder)
    attnbench("sweep", write_sweep(folder / "s.toml", method=["linear"], query_len=[32]), "--out", "out")
    return records_in(folder / "out")[0]


@pytest.fixture
def records(template, tmp_path):
    """A function that writes a folder `out` with a record for each of these methods and lengths. The time of the first method
    grows in proportion to the length, that of the next with its square, and so on."""

    def write(methods=("linear", "softmax"), lengths=(1024, 2048, 65536), settings=({},)):
        cases = [(m, n, s) for s in settings for m in range(len(methods)) for n in lengths]
        lines = [
            template | {"method": methods[m], "query_len": n, "key_len": n, "time_median_ms": (n / 1024) ** (m + 1) / 10} | s
            for m, n, s in cases
        ]
        (tmp_path / "out").mkdir()
        (tmp_path / "out/records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    return write


@pytest.mark.parametrize("command", COMMANDS)
def test_a_chart_is_shown_on_a_terminal_but_not_in_a_pipe(attnbench, records, command):
    records()
    code, shown = attnbench.on_terminal(command, "out", env=environment())
    assert code == 0 and TITLE in shown and AXIS in shown
    piped = attnbench(command, "out", env=environment()).stdout
    assert TITLE not in piped and AXIS not in piped


@pytest.mark.parametrize("command", COMMANDS)
def test_charts_can_be_switched_on_and_off(attnbench, records, command):
    records()
    _, shown = attnbench.on_terminal(command, "out", "--charts", "never", env=environment(NO_COLOR="1"))
    piped = attnbench(command, "out", env=environment()).stdout
    assert words(shown) == words(piped)
    always = attnbench(command, "out", "--charts", "always", env=environment()).stdout
    assert TITLE in always and "\x1b" not in always


@pytest.mark.parametrize("format", ["markdown", "csv", "json"])
def test_other_formats_have_no_charts(attnbench, records, format):
    records()
    for command in COMMANDS:
        if command == "analyse" and format == "csv":
            continue
        _, shown = attnbench.on_terminal(command, "out", "--format", format, streams=["stdout"], env=environment())
        assert words(shown) == words(attnbench(command, "out", "--format", format).stdout)
        message = attnbench(command, "out", "--format", format, "--charts", "always", code=2).stderr
        assert message == "attnbench: --charts = always, but only the summary in the format text has charts\n"
    assert "--charts" in attnbench("table", "out", "--columns", "method", "--charts", "always", code=2).stderr
    _, shown = attnbench.on_terminal("table", "out", "--columns", "method", env=environment())
    assert TITLE not in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_lines_have_colours_only_where_colours_are_wanted(attnbench, records, command):
    records()
    _, coloured = attnbench.on_terminal(command, "out", env=environment(NO_COLOR=""))
    assert "\x1b[36ma linear\x1b[0m" in coloured and "\x1b[33mb softmax\x1b[0m" in coloured
    for without in ({"NO_COLOR": "1"}, {"NO_COLOR": "0"}, {"TERM": "dumb"}):
        _, shown = attnbench.on_terminal(command, "out", env=environment(**without))
        assert "\x1b" not in shown and shown == COLOUR.sub("", coloured)


def test_the_chart_is_beside_the_table_if_it_fits_and_below_it_otherwise(attnbench, records):
    records()
    _, wide = attnbench.on_terminal("table", "out", width=250, env=environment(NO_COLOR="1"))
    table = attnbench("table", "out").stdout.partition("±: how")[0].splitlines()
    # The chart has more rows than the table, and both begin in the first row.
    table = table[next(number for number, line in enumerate(table) if line.startswith("─")) - 1 :]
    rows = wide.splitlines()
    rows = rows[next(number for number, line in enumerate(rows) if line.startswith("method")) :]
    assert rows[0].startswith(table[0]) and rows[0].endswith(TITLE)
    assert [line[: len(table[1])].rstrip() for line in rows[: len(table)]] == table
    for width in (80, 60):
        _, narrow = attnbench.on_terminal("table", "out", width=width, env=environment(NO_COLOR="1"))
        lines = narrow.splitlines()
        header = next(line for line in lines if line.startswith("method"))
        assert header.split()[:2] == ["method", "query_len"] and TITLE not in header
        assert lines.index(TITLE) > max(number for number, line in enumerate(lines) if line.startswith("softmax "))
        assert max(map(len, lines)) <= width
    _, narrow = attnbench.on_terminal("table", "out", width=40, env=environment(NO_COLOR="1"))
    assert narrow.index("method:") < narrow.index(TITLE), "each row has become a list"
    assert max(map(len, narrow.splitlines())) <= 40
    _, tiny = attnbench.on_terminal("table", "out", width=25, env=environment(NO_COLOR="1"))
    assert TITLE not in tiny, "there is no space for a chart"


def test_the_chart_ends_beside_the_end_of_a_long_table(attnbench, records):
    records(lengths=range(1024, 31 * 1024, 1024))
    _, shown = attnbench.on_terminal("table", "out", width=250, env=environment(NO_COLOR="1"))
    assert "a linear  b softmax" in shown.partition("±: how")[0].splitlines()[-1]


def test_the_chart_has_the_lengths_and_times_of_the_records(attnbench, records):
    records()
    shown = attnbench("table", "out", "--charts", "always").stdout
    rows = shown.splitlines()
    first = next(number for number, row in enumerate(rows) if row.endswith(TITLE))
    rows = [row[rows[first].index(TITLE) :] for row in rows[first:]]
    assert rows[1].split()[:2] == ["410", "ms"] and rows[1].endswith("b")
    assert rows[13].startswith(" 100 µs ┤+"), "both methods need as much at the first length"
    assert rows[15].split() == ["1k", "2k", "64k"]
    assert rows[16] == "a linear  b softmax  + several"


def test_each_setting_has_a_chart_and_the_number_of_charts_is_limited(attnbench, records):
    records(settings=[{"heads": heads} for heads in (1, 2, 4, 8, 16, 32)])
    shown = attnbench("analyse", "out", "--charts", "always").stdout
    for heads in (1, 2, 4, 8):
        assert len(re.findall(rf"^(?:heads \d+ +)?heads {heads}(?: +heads \d+)?$", shown, re.MULTILINE)) == 1
    assert shown.count(AXIS) == 4
    assert "(2 more settings have no chart)\n" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_records_of_one_length_have_no_chart(attnbench, records, command):
    records(lengths=[1024])
    assert AXIS not in attnbench(command, "out", "--charts", "always").stdout
    _, shown = attnbench.on_terminal(command, "out", env=environment(NO_COLOR="1"))
    assert words(shown) == words(attnbench(command, "out").stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_names_of_methods_cannot_control_the_terminal(attnbench, records, command):
    records(methods=("\x1b]0;title\x07\x1b[2Jone", "two\r\nlines\x9b31m"), settings=({"inputs": "file:\x1b[1mx"}, {}))
    _, shown = attnbench.on_terminal(command, "out", env=environment())
    shown = COLOUR.sub("", shown)
    assert TITLE in shown and "[2Jone" in shown
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)
