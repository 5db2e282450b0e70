"""Tests of --version, --help, error messages, finding sweeps by name, and --format."""

import csv
import io
import re
import subprocess

import pytest
from conftest import ROOT, strict_json, write_sweep

COMMANDS = (
    "list verify measure sweep train table plot report paper verdicts analyse compare gate merge import export doctor help completion".split()
)


# ---------------------------------------------------------------- --version


def test_version_names_release_revision_and_build(attnbench, workers):
    lines = attnbench("--version").stdout.splitlines()
    version = re.search(r"project\(attnbench VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    assert lines[0] == f"attnbench {version[1]}"
    worker = workers.environment  # The worker was built from the same sources.
    dirty = " with uncommitted changes" if worker["dirty"] else ""
    assert lines[1].startswith(f"revision {worker['revision']}") and lines[1].endswith(dirty)
    assert lines[2] == f"build {worker['build']}, {worker['compiler']}, {worker['compiler_flags']}"


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("git init -q . && touch CMakeLists.txt && git add . && git -c user.name=a -c user.email=a@b commit -qm one", ""),
        ("git init -q .", "does not have any commits yet"),
        ("mkdir .git", "fatal: not a git repository"),
        ("git init -q .; export GIT_TEST_ASSUME_DIFFERENT_OWNER=1", "git config --global --add safe.directory"),
    ],
)
def test_a_build_knows_its_revision_or_why_it_is_unknown(tmp_path, step, why):
    """cmake/build_info.cmake writes what --version prints."""
    source = tmp_path / "build_info.cpp"
    script = f"{step}; exec cmake -DSOURCE=. -DOUTPUT='{source}' -P '{ROOT}/cmake/build_info.cmake'"
    subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True)
    revision, reason, dirty, changes = re.search(
        r'kBuildInfo\{".*?", "(.*?)", "(.*?)", (\w+), "(.*?)", ', source.read_text()
    ).groups()  # fmt: skip
    assert (revision == "unknown") == bool(why)
    assert why in reason and bool(reason) == bool(why)
    assert (dirty, changes) == ("false", "")


def test_a_build_tells_two_states_of_its_sources_apart(tmp_path):
    def digest(step):
        script = f"{step} && cmake -DSOURCE=. -DOUTPUT='{tmp_path}/../info.cpp' -P '{ROOT}/cmake/build_info.cmake'"
        subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True)
        info = (tmp_path / "../info.cpp").read_text()
        return re.search(r'kBuildInfo\{".*?", ".*?", ".*?", (\w+), "(.*?)", ', info).groups()

    commit = "git init -q . && mkdir attn && touch attn/a && git add . && git -c user.name=a -c user.email=a@b commit -qm one"
    assert digest(commit) == ("false", "")
    changed, added, both = (digest(step) for step in ("echo 1 > attn/a", "rm attn/a; touch attn/a attn/b", "echo 1 > attn/a"))
    assert {dirty for dirty, _ in (changed, added, both)} == {"true"}
    assert len({digest for _, digest in (changed, added, both)}) == 3


def test_version_needs_neither_command_nor_worker(attnbench, tmp_path):
    assert attnbench.with_worker(tmp_path / "none")("--version").stdout.startswith("attnbench ")


# ---------------------------------------------------------------- --help


def entries(text, section):
    """A section of the help as a dictionary: from the text on the left to its description."""
    body = text.partition(f"\n{section}:\n")[2].partition("\n\n")[0]
    found = {}
    for entry in re.split(r"\n(?=  \S)", body):
        left, _, right = entry.strip().partition("  ") if "  " in entry[2:] else (entry, "", "")
        if "\n" in left:
            left, _, right = entry.strip().partition("\n")
        found[left.strip()] = " ".join(right.split())
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_examples_that_use_its_options(attnbench, command):
    text = attnbench(command, "--help").stdout
    assert text.startswith(f"Usage: attnbench {command} ")
    options, _, examples = text.partition("\nExamples:\n")
    examples = re.findall(r"^  (attnbench .*)\n((?:      .*\n)+)", examples, re.MULTILINE)
    assert 1 <= len(examples) <= 3
    for words, meaning in examples:
        assert words.startswith(f"attnbench {command}"), words
        assert len(meaning.split()) >= 4, meaning
        for option in re.findall(r"--[a-z-]+", words):
            assert re.search(rf"^  (-\w,)?{option}\b", options, re.MULTILINE), option


@pytest.mark.parametrize("command", COMMANDS)
def test_help_contains_no_type_names_and_no_long_lines(attnbench, command):
    text = attnbench(command, "--help").stdout
    for word in ("TEXT:", "INT", "FLOAT", "UINT", "ENUM", "REQUIRED", "Excludes", "Needs"):
        assert word not in text
    assert all(len(line) <= 110 for line in text.splitlines())


def test_the_command_help_prints_what_the_option_prints(attnbench):
    assert attnbench("help").stdout == attnbench("--help").stdout
    for command in ("measure", "help"):
        assert attnbench("help", command).stdout == attnbench(command, "--help").stdout
    message = attnbench("help", "mesure", code=2).stderr
    assert message.startswith("attnbench: unknown command 'mesure'; did you mean 'measure'?; known: list, verify, measure, ")


def test_help_shows_choices_defaults_and_units(attnbench):
    options = entries(attnbench("measure", "--help").stdout, "Options")
    assert options["--dtype float32|float64|bfloat16|float16"].endswith("(default: float32)")
    assert options["--query-len N"].endswith("(at least 1; default: 1024)")
    assert options["--deadline-s NUMBER"].endswith("(in s; at least 0.001; default: 120)")
    assert "default" in options["--threads N"] and "processor" in options["--threads N"]
    options = entries(attnbench("sweep", "--help").stdout, "Options")
    assert options["--out FOLDER"].endswith("(default: results/SWEEP/MACHINE)")
    assert options["--resume missing|stale|failed|all"].endswith("(default: missing)")
    assert options["--format text|markdown|csv|json"].endswith("(default: text)")
    assert options["-v,--verbose"].endswith("(not with --quiet)")
    options = entries(attnbench("gate", "--help").stdout, "Options")
    assert options["--looks N"].endswith("default: 8,12,20)")
    assert options["--recordings N"].endswith("(at least 1; only with --calibrate; default: 200)")
    assert "default: random" in options["--seed N"]


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("measure linear --query-len 0", "--query-len = 0, expected at least 1"),
        (
            "measure linear --dtype float31",
            "--dtype = 'float31', expected one of float32, float64, bfloat16, float16",
        ),
        ("measure linear --key-lengths some", "--key-lengths = 'some', expected "),
        (
            "measure linear --query-len 64 --key-lengths 65",
            "--key-lengths = 65 is beyond --key-len = 64",
        ),
        ("measure linear --memory-limit-bytes much", "--memory-limit-bytes: 'much' is not "),
        ("sweep x --methods", "--methods needs a value"),
        ("sweep x --resume some", "--resume = 'some', expected one of missing, stale, failed, all"),
        ("sweep x -q -v", "--verbose cannot be given with --quiet"),
        ("sweep", "sweep needs the argument 'file'; `attnbench sweep --help` explains it"),
        ("gate x --recordings 3", "--recordings can only be given with --calibrate"),
        ("gate x --alpha 2", "--alpha = '2', expected a number from 0 to 1"),
        ("analyse . --memory 1GiB,much", "--memory: 'much' is not "),
        ("table a b", "table does not take 'b'"),
        ("list methods --format html", "--format = 'html', expected one of text, markdown, csv, json"),
        ("measure linear --worker", "--worker needs a value"),
    ],
)  # fmt: skip
def test_errors_name_the_option_as_the_command_line_spells_it(canned, tmp_path, words, message):
    (tmp_path / "records.jsonl").write_text("")
    done = canned(*words.split(), code=2)
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.startswith("attnbench: ") and done.stderr.count("\n") == 1
    assert "_" not in done.stderr


def test_errors_in_a_sweep_file_name_the_key_of_the_file(canned, tmp_path):
    (tmp_path / "s.toml").write_text('[axes]\nmethod = "linear"\nquery_len = 0\n')
    message = canned("sweep", "s.toml", code=2).stderr
    assert "s.toml:3:13: query_len = 0, expected at least 1" in message


# ---------------------------------------------------------------- sweeps by name


def test_a_sweep_is_found_by_its_name(canned, tmp_path):
    figure1 = canned.json("sweep", ROOT / "sweeps/figure1.toml", "--dry-run")
    assert canned.json("sweep", "figure1", "--dry-run") == figure1  # found beside the build folder
    (tmp_path / "sweeps").mkdir()
    write_sweep(tmp_path / "sweeps/figure1.toml", method="softmax", query_len=[7])
    assert [r["query_len"] for r in canned.json("sweep", "figure1", "--dry-run")] == [7]
    assert canned.json("sweep", ROOT / "sweeps/figure1.toml", "--dry-run") == figure1
    write_sweep(tmp_path / "own", method="softmax", query_len=[9])
    assert [r["query_len"] for r in canned.json("sweep", "own", "--dry-run")] == [9]


def test_a_folder_of_the_same_name_is_not_taken_for_a_sweep(canned, tmp_path):
    (tmp_path / "figure1").mkdir()
    assert len(canned.json("sweep", "figure1", "--dry-run")) > 4


@pytest.mark.parametrize("command", [["sweep"], ["gate", "--base", "x"]])
def test_an_unknown_sweep_is_an_error_that_suggests_the_nearest(canned, tmp_path, command):
    (tmp_path / "sweeps").mkdir()
    write_sweep(tmp_path / "sweeps/mine.toml")
    message = canned(*command, "figur1", code=2).stderr
    assert "unknown sweep 'figur1'; did you mean 'figure1'?; known: mine, " in message
    for path in (ROOT / "sweeps").glob("*.toml"):
        assert path.stem in message


def test_records_of_a_sweep_found_by_name_go_to_its_default_folder(canned, tmp_path, build):
    (tmp_path / "sweeps").mkdir()
    write_sweep(tmp_path / "sweeps/mine.toml", method="softmax", query_len=[16])
    canned("sweep", "mine", "-q")
    assert len(list((tmp_path / "results/mine").glob("*/records.jsonl"))) == 1


# ---------------------------------------------------------------- --format


def check_markdown_tables(text):
    """Checks that each table has a rule below its header, and as many columns in each row."""
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert tables
    for table in tables:
        header, rule, *rows = table.splitlines()
        assert re.fullmatch(r"\|( -+:? \|)+", rule)
        assert len({row.count("|") - row.count(r"\|") for row in (header, *rows)}) == 1


# By command: the formats that it prints.
PRINTING = {
    "list methods": "text markdown csv json",
    "list columns": "text markdown csv json",
    "list sweeps": "text markdown csv json",
    "verify softmax --quick -q --verbose": "text markdown csv json",
    "measure linear --query-len=32 --time-budget-s=0.02 --warmup-s=0": "text markdown csv json",
    "sweep small.toml --dry-run --set limits.memory_limit_bytes=1GiB": "text markdown csv json",
    "table out": "text markdown csv json",
    "analyse out --all": "text markdown json",
    "compare out out": "text markdown csv json",
    "doctor": "text markdown csv json",
}


@pytest.mark.parametrize("words", PRINTING)
def test_every_command_prints_the_formats_of_its_help(canned, sweep, words):
    canned("sweep", sweep, "--out", "out", "-q")
    formats = PRINTING[words].split()
    printed = {f: canned(*words.split(), "--format", f).stdout for f in formats}
    assert len(set(printed.values())) == len(formats), "two formats print the same"
    strict_json(printed["json"])
    check_markdown_tables(printed["markdown"])
    assert "|" not in printed["text"].splitlines()[0]
    if "csv" in printed:
        rows = list(csv.reader(io.StringIO(printed["csv"])))
        assert len(rows) >= 2 and len({len(row) for row in rows}) == 1
    help_text = " ".join(canned(words.split()[0], "--help").stdout.split())
    assert f"--format {'|'.join(formats)} " in help_text


def test_measure_prints_its_record_as_csv(canned):
    case = ["measure", "linear", "--query-len", "48"]
    [row] = csv.DictReader(io.StringIO(canned(*case, "--format", "csv").stdout))
    record = canned.json(*case)
    assert row["query_len"] == "48" and row["method"] == "linear"
    assert float(row["time_median_ms"]) == record["time_median_ms"]


def test_a_format_that_a_command_does_not_have_is_refused(canned):
    message = canned("analyse", "out", "--format", "csv", code=2).stderr
    assert "--format = 'csv', expected one of text, markdown, json" in message


def test_a_sweep_prints_its_records_in_a_format_that_is_asked_for(canned, sweep):
    assert canned("sweep", sweep, "--out", "out", "-q", "--format", "json").stdout == ""
    records = strict_json(canned("sweep", sweep, "--out", "out", "--format", "json").stdout)
    assert records == canned.json("table", "out")
