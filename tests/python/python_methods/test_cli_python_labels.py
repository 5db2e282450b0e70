"""Tests of labels: what stands in tables, answers, comparisons, the gate, reports and figures in place of the text of a method in
Python."""

import csv
import io
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
from conftest import ROOT, Cli, small, strict_json, write_sweep
from stand_ins import build_of  # noqa: F401
from python_functions import answers, pytestmark, request, write  # noqa: F401

SOURCE = """
    import attnbench
    import torch.nn.functional as F

    @attnbench.method(label="declared name", exact="softmax", time_order="O(N²)", memory_order="O(N)")
    def declared(q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    def given(q, k, v, *, window=1):
        return F.scaled_dot_product_attention(q, k, v)
"""
METHODS = {
    "sdpa": "sdpa",
    "mine.py:declared": "declared name",
    "mine.py:given:like=softmax,as=short": "short",
    "mine.py:given:like=softmax": "mine.py:given",
    "mine.py:given:window=2,like=softmax": "mine.py:given:window=2",
}
# Names that no output for people has.
HIDDEN = re.compile(r"like=|as=short|mine\.py:declared")


@pytest.fixture
def attnbench(forking):
    return forking


@pytest.fixture(scope="module")
def folder(build, tmp_path_factory):
    """A folder of records of METHODS, and beside it their sweep file."""
    made = tmp_path_factory.mktemp("labels")
    (made / "mine.py").write_text(textwrap.dedent(SOURCE))
    timing = {"max_disturbance": 1e6, "baseline": "mine.py:given:like=softmax,as=short"}
    write_sweep(made / "names.toml", method=list(METHODS), query_len=[32, 64, 128], timing=timing)
    done = Cli(build / "attnbench", folder=made)("sweep", "names.toml", "--out", made / "out", "--forked")
    (made / "out/said").write_text(done.stderr)
    return made / "out"


def test_records_say_the_label_and_the_whole_text(folder):
    records = [strict_json(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert {record["method"]: record["method_label"] for record in records} == {
        "sdpa": None, "mine.py:declared": "declared name", "mine.py:given:like=softmax,as=short": "short",
        "mine.py:given:like=softmax": None, "mine.py:given:window=2,like=softmax": None,
    }  # fmt: skip
    assert all(record["outcome"] == "measured" for record in records)


def test_what_a_sweep_says_has_the_names(folder):
    said = (folder / "said").read_text()
    assert not HIDDEN.search(said), said
    assert re.search(r"^declared name +\d.* as fast as short at N = 128", said, re.MULTILINE)


COMMANDS = {
    "table": ["table", "OUT"],
    "table in Markdown": ["table", "OUT", "--format=markdown"],
    "methods": ["compare", "OUT", "--baseline=mine.py:given:like=softmax,as=short"],
    "methods by a name": ["compare", "OUT", "--baseline=declared name"],
    "folders": ["compare", "OUT", "OUT"],
    "analyse": ["analyse", "OUT", "--all"],
    "charts": ["table", "OUT", "--charts=always"],
    "dry run": ["sweep", "OUT/../names.toml", "--dry-run"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_tables_and_answers_have_the_names(folder, attnbench, name):
    words = [word.replace("OUT", str(folder)) for word in COMMANDS[name]]
    printed = attnbench(*words).stdout
    assert not HIDDEN.search(printed.replace(str(folder), "")), printed
    for shown in METHODS.values():
        if name != "methods by a name" or shown != "declared name":
            assert re.search(rf"(?<![\w.:]){re.escape(shown)}(?![\w:])", printed.replace("\\", "")), (shown, printed)
    if name == "table":
        assert "time / short" in printed
    if name == "methods by a name":
        assert "time of declared name" in printed


def test_the_answer_of_measure_has_the_names(write, attnbench):
    path = write(SOURCE)
    sheet = attnbench("measure", f"{path}:given:like=softmax,as=short", *small(baseline=f"{path}:given:as=other")).stdout
    assert re.search(r"^ +case +short forward: N = 64,", sheet, re.MULTILINE), sheet
    assert re.search(r"^ +time / other ", sheet, re.MULTILINE), sheet
    rows = attnbench("verify", "--quick", "--verbose", f"{path}:declared").stdout
    assert re.search(r"^declared name .* agrees$", rows, re.MULTILINE) and not re.search(r"^\S*mine\.py", rows, re.MULTILINE)


def test_csv_and_json_have_the_whole_text(folder, attnbench):
    for command in (["table", folder], ["compare", folder, "--baseline=sdpa"], ["compare", folder, folder]):
        texts = {row["method"] for row in csv.DictReader(io.StringIO(attnbench(*command, "--format=csv").stdout))}
        assert texts >= set(METHODS) - {"sdpa"}, command
    shown = attnbench("analyse", folder, "--format=json").stdout
    assert set(re.findall(r'"method": *"([^"]*)"', shown)) == set(METHODS)


def test_figures_and_reports_have_the_names(folder, attnbench, tmp_path):
    attnbench("plot", folder, "--out", tmp_path / "figure.svg")
    attnbench("report", folder, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    shown = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    assert "declared name" in shown and "like=" not in shown
    attnbench("plot", folder, "--methods=short,declared name", "--out", tmp_path / "two.svg")


def test_the_gate_has_the_names_and_waivers_the_whole_text(attnbench, build_of, write, tmp_path):
    write(SOURCE)
    methods = ["linear", "mine.py:declared", "mine.py:given:like=softmax,as=short"]
    suite = write_sweep(tmp_path / "suite.toml", method=methods, query_len=32)
    command = ("gate", suite, "--base", build_of(), "--candidate", build_of(11.0), "-q", "--out", tmp_path / "out")
    shown = attnbench(*command, code=1).stdout
    for name in ("linear", "declared name", "short"):
        assert re.search(rf"^{name} .* regression$", shown, re.MULTILINE), shown
    assert re.findall(r'case = "(\S+) ', shown) == methods
    cases = strict_json((tmp_path / "out/gate.json").read_text())["cases"]
    assert [(case["name"].split()[0], case["label"]) for case in cases] == list(zip(methods, (None, "declared name", "short"), strict=True))
    attnbench("report", tmp_path / "out", "--out", tmp_path / "page.html")
    page = re.sub(r"<(script|style)\b.*?</\1>", " ", (tmp_path / "page.html").read_text(), flags=re.DOTALL)
    assert "declared name forward" in page and "mine.py" not in page


def test_equal_labels_are_told_apart(build, attnbench, write, tmp_path):
    write(SOURCE)
    for window in ("1", "2"):
        method = f"mine.py:given:window={window},like=softmax,as=mine"
        write_sweep(tmp_path / "one.toml", method=[method, "sdpa"], query_len=32, timing={"time_budget_s": 0.02})
        attnbench("sweep", "one.toml", "--out", tmp_path / window, "--quiet", cwd=tmp_path)
    single = attnbench("table", tmp_path / "1").stdout
    assert re.search(r"^mine ", single, re.MULTILINE) and "window" not in single
    (tmp_path / "both").mkdir()
    shutil.copy(tmp_path / "1/environment.json", tmp_path / "both")
    text = (tmp_path / "1/records.jsonl").read_text() + (tmp_path / "2/records.jsonl").read_text()
    (tmp_path / "both/records.jsonl").write_text(text)
    both = attnbench("table", tmp_path / "both").stdout
    assert re.search(r"^mine\.py:given:window=1 ", both, re.MULTILINE) and re.search(r"^mine\.py:given:window=2 ", both, re.MULTILINE)


# By name: a decorator's or an option's label, and a part of the message with which it is refused.
WRONG = {
    "number": ("label=3", "", "label = 3, expected a text"),
    "lines": (r"label='a\nb'", "", r"label = 'a\nb', expected a text with at most 60 printable characters"),
    "long": (f"label={'x' * 61!r}", "", "expected a text with at most 60 printable characters"),
    "space": ("", "as=two words", "as = 'two words', expected a text with at most 60 printable characters and no space, which only"),
    "at its end": ("label=' a'", "", "label = ' a', expected a text with at most 60 printable characters and no space at its ends"),
}


def test_wrong_labels_are_refused(build, tmp_path):
    requests = []
    for i, (declared, option, _) in enumerate(WRONG.values()):
        (tmp_path / f"wrong_{i}.py").write_text(
            f"import attnbench\n\n@attnbench.method({declared})\ndef f(q, k, v):\n    return v * 1\n"
        )
        requests.append(request(f"{tmp_path}/wrong_{i}.py:f" + (f":{option}" if option else "")))
    for (_, _, reason), record in zip(WRONG.values(), answers(build, "plan", requests), strict=True):
        assert record["failure_kind"] == "usage"
        assert reason in record["reason"]


def test_a_label_and_none_can_be_given_from_python(write):
    path = write("def g(q, k, v, *, window=None):\n    assert window is None\n    return v * 1\n")
    script = (
        "import attnbench\n"
        f"record = attnbench.measure('{path}:g', options={{'window': None, 'as': 'mine'}}, query_len=32, threads=1,"
        " time_budget_s=0.02)\n"
        "print(record.method_label, record.outcome, record.method.rpartition(':')[2])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT / "python", capture_output=True, text=True, check=False)
    assert done.stdout == "mine measured window=none,as=mine\n", done.stderr
