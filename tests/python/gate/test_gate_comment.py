"""Tests of the comment on a pull request that `attnbench gate --comment` writes: its size, what it
says first, and how GitHub's renderer of Markdown shows it."""

import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest
from conftest import HANG_S, strict_json, write_sweep

PASS, REGRESSION, INCONCLUSIVE = 0, 1, 3
MOST_LINES, MOST_CHARACTERS = 25, 65_536

# Shell code of a worker's answer to `measure`, whose time and noise depend on the length. The counter makes the noise the
# same in every run.
MEASURE = """counter=$(dirname "$0")/counter; count=$(cat "$counter" 2>/dev/null || echo 0); echo $((count + 1)) > "$counter"
middle=10; noise=0.001; memory=1024; phase=0
case "$request" in {cases} esac
awk -v c=$count -v m=$middle -v n=$noise -v b=$memory -v f=$phase 'BEGIN {{ t = m * exp(n * sin(2.4 * c + f));
printf "{{\\"outcome\\": \\"measured\\", \\"implementation\\": \\"stand-in\\", \\"measured_s\\": 0.01, \\"time_first_ms\\": 1, ";
printf "\\"time_samples_ms\\": [%.9f, %.9f, %.9f], \\"samples\\": 3, \\"peak_extra_bytes\\": %d}}\\n", t, t, t, b }}' >&3
"""


@pytest.fixture
def commented(attnbench, workers, tmp_path):
    """commented(code, lengths, {length: shell code}) gates these lengths, and returns the comment and the report."""

    def build(cases):
        return workers.make(measure=MEASURE.format(cases="\n".join(f"*'\"query_len\":{n},'*) {body} ;;" for n, body in cases.items()))).parent

    def run(code, lengths, changes, *more, base=None, **axes):
        suite = write_sweep(tmp_path / "suite.toml", **({"method": "linear", "query_len": lengths} | axes))
        comment = tmp_path / "comment.md"
        attnbench("gate", suite, "--base", build(base or {}), "--candidate", build(changes), "-q", "--seed=1", "--comment", comment, "--out", tmp_path / "gate", *more, code=code)
        text = comment.read_text()
        assert text.count("\n") <= MOST_LINES and len(text) <= MOST_CHARACTERS and text.endswith("\n")
        return text, strict_json((tmp_path / "gate/gate.json").read_text())

    return run


def rows(text):
    """The cells of the table, without its header."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


LENGTHS = [16 * n for n in range(1, 15)]


def test_what_matters_most_comes_first(commented):
    slower, noisy = {32: "middle=12", 160: "middle=14", 64: "memory=2048"}, {96: "noise=2"}
    text, report = commented(REGRESSION, LENGTHS, slower | noisy | {48: "middle=8"}, base={96: "noise=2; phase=1.3"})
    assert text.startswith("<!-- attnbench gate: ") and text.splitlines()[1] == "### attnbench gate: regression"
    assert "At least one case is slower or needs more memory." in text
    assert "14 cases: 3 are slower or need more memory, 1 is not decided, 1 is faster, 9 pass; all of them " in text
    shown = rows(text)
    assert len(shown) == 10
    assert [row[0] for row in shown[:5]] == ["N=160", "N=32", "N=64", "N=96", "N=48"]
    assert [row[-1] for row in shown[:2]] == ["regression", "regression"]
    assert shown[2][-1] == "pass, regression in memory (2.00 KiB instead of 1.00 KiB)"
    assert [row[-1] for row in shown[3:6]] == ["inconclusive", "improvement", "pass"]
    change, interval = shown[0][3:5]
    assert change == "+40.0 %" and re.fullmatch(r"\+\d\d\.\d % … \+\d\d\.\d %", interval)
    assert "Of the 4 cases that the table does not show, 4 pass. 1 case is not decided; " in text
    assert "p is the probability of ratios as clear as these if the verdict were wrong: below 0.01 over all cases" in text
    assert f"Measured on {report['candidate']['cpu_model'].replace('(', chr(92) + '(').replace(')', chr(92) + ')')}" in text
    assert text.count("[[waive]]&#10;") == 3


def test_it_says_how_long_it_would_take_to_decide(commented):
    text, report = commented(INCONCLUSIVE, [32, 48], {32: "middle=10.65; noise=0.15"}, base={32: "noise=0.15; phase=1.3"})
    (case,) = [c for c in report["cases"] if c["verdict"] == "inconclusive"]
    found = re.search(r"1 case is not decided; about (\d+) pairs would probably do \(`--looks 8,12,20,(\d+)`\), which take about ", text)
    assert found, text
    assert found[1] == found[2] and int(found[1]) > len(case["log_ratios"]) == 20


def test_noise_that_no_number_of_pairs_overcomes_is_said(commented):
    text, _ = commented(INCONCLUSIVE, [32], {32: "noise=8"}, base={32: "noise=8; phase=1.3"})
    assert "1 case is not decided; the noise is too large to say how many pairs would do." in text


@pytest.mark.skipif(not shutil.which("cmark-gfm"), reason="cmark-gfm is not installed")
def test_the_renderer_of_github_shows_a_table_and_the_waivers(commented, tmp_path):
    names = {n: "middle=12" for n in (32, 48)}
    text, _ = commented(REGRESSION, [32, 48], names, method=["linear", "lsh-1"])
    words = ["cmark-gfm", "--unsafe", "-e", "table", "-e", "tagfilter"]
    html = subprocess.run(words, input=text, capture_output=True, text=True, timeout=HANG_S, check=True).stdout
    (tmp_path / "comment.html").write_text(html)
    tree = ElementTree.fromstring(f"<body>{html}</body>")  # noqa: S314
    (table,) = tree.iter("table")
    assert [cell.text for cell in table.iter("th")] == ["case", "base", "candidate", "change", "95 % interval", "p", "pairs", "verdict"]
    assert len(list(table.iter("tr"))) == 5
    details = list(tree.iter("details"))
    (pre,) = details[0].iter("pre")
    assert pre.text.count('[[waive]]\ncase = "') == 4 and pre.text.count('reason = "WHY"\n') == 4
    assert "```" not in html and "**" not in html


def test_the_lines_for_waivers_are_read_by_the_gate(commented, tmp_path):
    text, _ = commented(REGRESSION, [32, 48], {32: "middle=12"})
    (lines,) = re.findall(r"<pre>(.*?)</pre>", text)
    (tmp_path / "waivers.toml").write_text(lines.replace("&#10;", "\n").replace("WHY", "it <checks>"))
    text, _ = commented(PASS, [32, 48], {32: "middle=12"}, "--waivers", tmp_path / "waivers.toml")
    assert "2 cases: 1 is waived, 1 passes" in text and rows(text)[0][-1] == r"regression, waived: it \<checks\>"


def test_many_cases_and_long_reasons_stay_within_the_limits(attnbench, workers, tmp_path):
    """A hundred cases, each of which fails with a long reason full of markup."""
    reason = "<b>`|*_#&" * 400
    wrong = f"""for i in $(seq 100); do answer '{{"outcome": "failed", "failure_kind": "invalid", "reason": "{reason}\\\\n\\\\n| a |"}}'; done"""
    suite = write_sweep(tmp_path / "suite.toml", method="linear", query_len=list(range(16, 116)))
    base, candidate = workers.make().parent, workers.make(verify=wrong).parent
    comment = tmp_path / "comment.md"
    attnbench("gate", suite, "--base", base, "--candidate", candidate, "-q", "--comment", comment, code=4)
    text = comment.read_text()
    assert text.count("\n") <= MOST_LINES and len(text) <= MOST_CHARACTERS
    assert "100 cases: 100 cannot be compared" in text and len(rows(text)) == 10
    assert "Of the 90 cases that the table does not show, 90 cannot be compared." in text
    assert "<b>" not in text and all(row[-1].startswith(r"unusable: the candidate does not verify: \<b\>") for row in rows(text))


def test_a_long_error_stays_within_the_limits(attnbench, workers, tmp_path):
    suite = write_sweep(tmp_path / "suite.toml", method="linear", query_len=32)
    wrong, comment = workers.make().parent, tmp_path / "comment.md"
    lines = "".join(f"line {i} <b>\n" for i in range(60))
    attnbench("gate", suite, "--base", lines, "--candidate", wrong, "-q", "--comment", comment, code=2)
    text = comment.read_text()
    assert text.count("\n") <= MOST_LINES and "### attnbench gate: error" in text
    assert "line 3 &lt;b&gt;" in text and "<b>" not in text and re.search(r"\(\d+ further lines are left out\.\)", text)


def test_cases_that_were_not_measured_are_not_called_noisy(attnbench, workers, tmp_path):
    suite = write_sweep(tmp_path / "suite.toml", method="linear", query_len=[32, 48])
    wrong = """answer '{"outcome": "failed", "failure_kind": "invalid", "reason": "wrong"}'
    answer '{"outcome": "measured", "excess_error": 1e-7, "error_tolerance": 5e-4}'"""
    comment = tmp_path / "comment.md"
    base, candidate = workers.make().parent, workers.make(verify=wrong).parent
    attnbench("gate", suite, "--base", base, "--candidate", candidate, "-q", "--comment", comment, code=4)
    text = comment.read_text()
    assert "2 cases: 1 cannot be compared, 1 is not decided; " in text
    assert "1 case is not decided, because nothing was measured." in text and "noise" not in text
