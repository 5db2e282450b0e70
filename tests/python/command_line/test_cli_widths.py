"""Tests of what commands print on terminals of 80, 100 and 160 columns: the answer comes first and fits, columns that answer the
question are never left out, and nothing is cut. The records are those in results/."""

import json
import os
import re

import pytest
from conftest import ROOT, words, write_sweep

WIDTHS = (80, 100, 160)


def folder_of(name):
    (found,) = [path.parent for path in (ROOT / "results").glob(f"{name}/records.jsonl")]
    return found


FIGURE1, REPEAT, KERNELS = (folder_of(name) for name in ("figure1/*", "repeat/*/run-1", "cpu-kernels/*"))
SECOND = REPEAT.parent / "run-2"
CASES = len((REPEAT / "records.jsonl").read_text("utf-8").splitlines())


@pytest.fixture
def shown(attnbench):
    """A function that runs a command on a terminal of a width, and returns the lines that it shows, without colours."""
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "dumb"}

    def run(width, *words):
        code, text = attnbench.on_terminal(*words, width=width, env=environment)
        assert code == 0, text
        return text.splitlines()

    return run


def joined(lines):
    """The text of lines without the line ends at which it was wrapped."""
    return words(" ".join(lines))


def rows_below(lines, *headers):
    """The cells of the rows of a table, by header; its header is the line that has all of these, and its columns are divided by two
    spaces or more. Cells of a row are found by where the header's columns end or begin."""
    at = next(i for i, line in enumerate(lines) if all(header in line for header in headers))
    names = re.split(r"\s{2,}", lines[at].strip())
    rows = []
    for line in lines[at + 2 :]:
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) != len(names):
            break
        rows.append(dict(zip(names, cells, strict=True)))
    return rows


COMMANDS = {
    "table": ["table", FIGURE1, "--charts", "never"],
    "table with charts": ["table", FIGURE1],
    "table of kernels": ["table", KERNELS, "--charts", "never"],
    "table of ratios": ["table", REPEAT, "--charts", "never"],
    "columns": ["table", FIGURE1, "--columns", "method,query_len,reason"],
    "compare": ["compare", REPEAT, SECOND],
    "compare kernels": ["compare", KERNELS, KERNELS],
    "baseline": ["compare", FIGURE1, "--baseline", "sdpa"],
    "analyse": ["analyse", FIGURE1, "--charts", "never"],
    "analyse all": ["analyse", REPEAT, "--all", "--charts", "never"],
    "list": ["list"],
    "list method": ["list", "lsh"],
    "list columns": ["list", "columns"],
    "list keys": ["list", "keys"],
    "list sweeps": ["list", "sweeps"],
    "list trainings": ["list", "trainings"],
    "verdicts": ["verdicts", ROOT / "results"],
    "dry run": ["sweep", "figure1", "--dry-run"],
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_than_the_terminal_and_no_text_is_cut(shown, command, width):
    lines = shown(width, *COMMANDS[command])
    assert lines and max(map(len, lines)) <= width
    # An interval has spaces on both sides of its dots; a text that is cut ends in them.
    assert [line for line in lines if re.search(r"\S…", line)] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_compare_answers_first_and_keeps_its_verdict(shown, width):
    lines = shown(width, "compare", REPEAT, SECOND)
    answer = joined(lines[: lines.index("")])
    counts = re.match(
        rf"The ratios to the baselines of {CASES} cases were compared, and none is found to be slower or faster in b\. (\d+) are equivalent "
        r"within 3 %; (\d+) cannot be told, because their intervals, together from (0\.\d+)× to (1\.\d+)×, do not exclude a difference of 3 %\. ",
        answer,
    )
    assert re.search(r"The times themselves are 1\.\d+× as long in b", answer)
    assert answer.endswith(f"a is {REPEAT}, and b is {SECOND}.")
    assert counts and int(counts[1]) + int(counts[2]) == CASES
    at = next(i for i, line in enumerate(lines) if "b / a" in line)
    assert all(name in " ".join(lines[at : at + 2]) for name in ("interval", "verdict on", "query_len"))
    rows = " ".join(lines[at + 1 : lines.index("", at)])
    assert len(re.findall("equivalent|cannot tell", rows)) == CASES


@pytest.mark.parametrize("width", WIDTHS)
def test_heads_and_causal_go_before_the_columns_that_answer(shown, width):
    lines = shown(width, "compare", REPEAT, SECOND)
    header = next(line for line in lines if "b / a" in line)
    assert ("heads" in header) == (width == 160)
    assert "protocol" in header, "it tells cases apart"


def number_in(text):
    value, _, unit = text.partition(" ")
    return float(value) * {"": 1, "µs": 1e-3, "ms": 1, "s": 1e3}[unit]


@pytest.mark.parametrize("quantity", ["ratio", "time"])
def test_the_columns_of_compare_divide_to_its_estimate_which_lies_in_its_interval(shown, quantity):
    rows = rows_below(shown(200, "compare", REPEAT, SECOND, "--quantity", quantity), "b / a", "interval")
    assert len(rows) == CASES
    levels = set()
    for row in rows:
        estimate = float(row["b / a"].rstrip("×"))
        assert number_in(row["b"]) / number_in(row["a"]) == pytest.approx(estimate, abs=0.0016)
        level, low, high = re.fullmatch(r"(9[05]) %: ([\d.]+) … ([\d.]+)", row["interval"]).groups()
        assert float(low) <= estimate <= float(high)
        levels.add((row["verdict on b"], level))
        if row["verdict on b"] == "equivalent":
            assert 1 / 1.0305 <= float(low) and float(high) <= 1.0305, "the interval that decides lies within the bound"
    assert levels == {("equivalent", "90"), ("cannot tell", "95")}


@pytest.mark.parametrize("width", (80, 100))
def test_a_table_of_different_batches_keeps_the_time_of_a_sequence(shown, width):
    lines = shown(width, "table", FIGURE1, "--charts", "never")
    answers = joined(lines[: lines.index("")])
    said = re.search(r"linear is the fastest, (\d+)(?:\.\d+)? × as fast as sdpa at N = 4096 \(95 %: [\d.]+ … [\d.]+\), and faster at every measured N from (\d+) on\.", answers)
    assert said and int(said[1]) > 10
    assert re.search(r"The time grows as N\^1\.\d\d for linear and as N\^[12]\.\d\d for sdpa from N = 512 to 4096\.", answers)
    at = next(i for i, line in enumerate(lines) if line.startswith("method"))
    header = " ".join(lines[at : at + 2])
    for name in ("time/", "sequence", "interval", *(["memory/"] if width == 100 else [])):
        assert name in header
    assert "implementation" not in header
    assert "In all rows: device=cpu, dtype=float32, protocol=forward_backward, heads=8, head_dim=64, causal=false" in joined(lines)


def test_a_table_of_one_sequence_a_call_keeps_the_time(shown):
    lines = shown(80, "table", KERNELS, "--charts", "never")
    header = next(line for line in lines if line.startswith("method"))
    assert "time" in header and "time/" not in header and "interval" in header


@pytest.mark.parametrize("width", (80, 100))
def test_analyse_begins_with_answers_and_counts_of_verdicts(shown, width):
    lines = shown(width, "analyse", FIGURE1, "--charts", "never")
    answers = joined(lines[: lines.index("")])
    assert re.search(r"linear is the fastest, [\d.]+ × as fast as sdpa at N = 4096", answers)
    orders, consistent, doubtful = map(
        int, re.search(r"Growth: of (\d+) orders that methods declare, (\d+) are consistent with the records, (\d+) cannot be told", answers).groups()
    )
    assert 0 < consistent + doubtful <= orders
    total, *parts = map(int, re.search(
        r"of (\d+) comparisons of times or memory, (\d+) cross(?:es)? at a known length, in (\d+) one method needs less at every length, (\d+) (?:is|are) equal, and (\d+) cannot be told",
        answers,
    ).groups())  # fmt: skip
    assert total == sum(parts) > 0
    assert "declared" in joined(lines) and "consistent with" in joined(lines)


def test_a_pipe_gets_the_answers_and_every_column(attnbench):
    lines = attnbench("compare", REPEAT, SECOND).stdout.splitlines()
    assert re.match(r"The ratios to the baselines of \d+ cases were compared", lines[0])
    header = next(line for line in lines if "b / a" in line)
    for name in ("method", "protocol", "heads", "causal", "memory a", "memory b", "verdict on b"):
        assert name in header
    assert "not shown" not in "".join(lines)


def test_values_that_all_rows_share_are_named_above_the_table(attnbench):
    heading, header = attnbench("compare", KERNELS, KERNELS).stdout.split("\n\n")[1].splitlines()[:2]
    assert heading.startswith("In all rows: device=cpu, batch=") and "compared=time" in heading
    assert header.startswith("method") and "compared" not in header
    # Markdown and CSV have all columns.
    assert "| compared |" in attnbench("compare", KERNELS, KERNELS, "--format", "markdown").stdout
    assert ",compared," in attnbench("compare", KERNELS, KERNELS, "--format", "csv").stdout.splitlines()[0]


@pytest.mark.parametrize("width", (80, 100))
def test_a_comparison_of_methods_begins_with_the_answer(shown, width):
    lines = shown(width, "compare", FIGURE1, "--baseline", "softmax")
    answers = joined(lines[: lines.index("")])
    assert re.search(r"(\S+) is the fastest, \d+(\.\d+)? × as fast as softmax at N = \d+ \(95 %: ", answers)
    assert re.search(r"Of \d+ cases with a verdict, \d+ are faster than softmax, \d+ slower, \d+ equivalent within 3 %", answers)
    at = next(i for i, line in enumerate(lines) if line.startswith("method"))
    header = " ".join(lines[at : at + 3])
    assert "fast" in header and "interval" in header and "verdict" in header


def test_a_method_is_listed_in_full(attnbench):
    for method in attnbench.json("list"):
        text = attnbench("list", method["name"]).stdout
        words = joined(text.splitlines())
        assert method["description"] in words and method["time_order"] in words
        for option in method["options"]:
            assert option["description"] in words and f"default {option['default']}".lower() in words.lower()
            assert all(choice in words for choice in option["choices"])
        assert "dtypes" in words and "float32" in words and "key lengths" in words
        assert attnbench.json("list", method["name"]) == method
    message = attnbench("list", "linaer", code=2).stderr
    assert "cannot list 'linaer'; did you mean 'linear'?" in message and "sweeps" in message


def test_verdicts_begin_with_their_counts(shown, attnbench):
    lines = shown(80, "verdicts", ROOT / "results")
    counts = joined(lines[: lines.index("")])
    total, parts, stand_ins = re.fullmatch(r"Of (\d+) verdicts on claims: ([^;]*); (\d+) rest on another data set than the paper's\.", counts).groups()
    assert int(total) == sum(int(part.split()[0]) for part in parts.split(", "))
    assert "reproduced" in parts and "need a GPU" in parts
    markdown = attnbench("verdicts", ROOT / "results", "--format", "markdown").stdout
    assert markdown == (ROOT / "docs/claims.md").read_text()
    assert int(total) == len(re.findall(r"\| \*\*(?:not reproduced|reproduced|cannot tell|needs a GPU)[^*]*\*\* \|", markdown))
    assert int(stand_ins) == len(re.findall(r"\| \*\*(?:not )?reproduced on [^*]*\*\* \|", markdown))


def test_many_repeated_cases_are_counted_and_the_first_named(canned, tmp_path):
    sweep = write_sweep(tmp_path / "many.toml", query_len=[8, 16, 24, 32, 40, 48])
    canned("sweep", sweep, "--out", "a", "-q")
    canned("sweep", sweep, "--out", "b", "-q")
    message = canned("merge", "a", "a", "--out", "both").stderr
    assert message.count("\n") == 1 and len(message) < 300
    assert message.startswith("12 cases have two equal records, in a and in a: linear forward N=8, ")
    assert message.endswith(" and 7 more; `attnbench compare a a` shows all\n")
    lines = [json.loads(line) | {"time_median_ms": 7.0} for line in (tmp_path / "b/records.jsonl").read_text().splitlines()]
    (tmp_path / "b/records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    message = canned("merge", "a", "b", "--out", "neither", code=2).stderr
    assert "12 cases have two different records, in a and in b: " in message and "`attnbench compare a b` shows all" in message
