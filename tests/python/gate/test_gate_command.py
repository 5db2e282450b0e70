"""Tests of `attnbench gate --command`, which runs any benchmark in turns in a working tree and in a
revision: its verdicts, the formats of real benchmark programs, and what goes wrong.

Most use a shell script as the benchmark. Its times come from a fixed sequence around the number in the
file `speed` of the copy that it runs in."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import textwrap

import pytest
from conftest import HANG_S, ROOT, Cli, runs, strict_json, wait_for
from test_gate_repository import Repository, left_in

PASS, REGRESSION, USAGE, INCONCLUSIVE, UNUSABLE = 0, 1, 2, 3, 4

# Prints Bencher Metric Format. The noise is a sequence that both sides share, so that a verdict does not depend on chance.
BENCH = """#!/bin/sh
count=$(cat "$COUNTER" 2>/dev/null || echo 0); echo $((count + 1)) > "$COUNTER"
awk -v c=$count -v m="$(cat speed)" -v i="${ATTNBENCH_INJECT:-0}" 'BEGIN {
t = 1000 * m * (1 + i / 100) * exp(0.002 * sin(2.4 * c));
printf "{\\"parse\\": {\\"latency\\": {\\"value\\": %.9g}, \\"throughput\\": {\\"value\\": %.9g}, \\"score\\": {\\"value\\": 1}},", t, 1e9 / t;
printf " \\"emit\\": {\\"latency\\": {\\"value\\": %.9g}}}", 100000 * exp(0.002 * sin(2.4 * c + 1)) }'
"""


@pytest.fixture
def repository(tmp_path):
    made = Repository(tmp_path / "repository")
    made.write("bench.sh", BENCH).chmod(0o755)
    made.commit("a benchmark")
    return made


@pytest.fixture
def temporary(tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir(mode=0o700)
    return folder


class InEnvironment(Cli):
    """Runs attnbench with variables."""

    def __call__(self, *arguments, **options):
        return super().__call__(*arguments, env=self.environment, **options)


@pytest.fixture
def driver(attnbench, repository, temporary, tmp_path):
    """Runs attnbench in the repository."""
    cli = InEnvironment(attnbench.program, attnbench.worker, repository.folder)
    cli.environment = os.environ | {"TMPDIR": str(temporary), "COUNTER": str(tmp_path / "counter")}
    cli.environment.pop("ATTNBENCH_PYTHON", None)
    cli.environment.pop("PYTEST_XDIST_WORKER", None)  # with which pytest-benchmark measures nothing
    return cli


@pytest.fixture
def gate(driver, repository, temporary):
    """gate(code, command, *more) runs the gate on a command. The repository is not changed, and no file is left."""

    def run(code, command="./bench.sh", *more):
        before = repository.state()
        done = driver("gate", "--command", command, "--base=HEAD", "-q", *more, code=code)
        assert repository.state() == before and left_in(temporary) == []
        return done

    return run


def verdicts(done):
    return {case["name"]: case["verdict"] for case in strict_json(done.stdout)["cases"]}


def test_a_slower_benchmark_is_found_and_an_equal_one_passes(gate, repository):
    repository.write("speed", "12.0\n")
    report = strict_json(gate(REGRESSION, "./bench.sh", "--format=json").stdout)
    slower, equal = report["cases"]
    assert (slower["name"], slower["verdict"], slower["unit"]) == ("parse", "regression", "s")
    assert (equal["name"], equal["verdict"]) == ("emit", "pass")
    assert slower["log_ratio"] == pytest.approx(0.182, abs=0.01)
    assert slower["base"][0] == pytest.approx(10e-6, rel=0.01)
    assert len(slower["base"]) == len(slower["candidate"]) == len(slower["log_ratios"]) == 12
    assert report["measure"] == "latency" and report["base"]["source"]["commit"] == repository.git("rev-parse", "HEAD")
    assert report["candidate"]["source"]["uncommitted_changes"] is True


def test_an_equal_benchmark_passes_as_text_in_the_comment_in_a_report_and_as_junit(gate, driver, repository, tmp_path):
    shown = gate(PASS, "./bench.sh", "--out", tmp_path / "gate", "--comment", tmp_path / "comment.md").stdout
    assert shown.endswith("gate: pass\n") and re.search(r"^parse +(10\.0|9\.9)\d* µs", shown, re.M)
    comment = (tmp_path / "comment.md").read_text()
    assert comment.startswith("<!-- attnbench gate: ./bench.sh -->\n### attnbench gate: pass\n")
    assert "Command `./bench.sh`, compared with `HEAD`. 2 cases: 2 pass." in comment
    assert re.search(r"Measured on .* \(\d+ processors?\), measure `latency`\.", comment)
    assert comment.count("\n") <= 25
    driver("report", tmp_path / "gate", "--out", tmp_path / "report.html")
    head = repository.git("rev-parse", "HEAD")
    assert head[:12] in (tmp_path / "report.html").read_text() and "parse" in (tmp_path / "report.html").read_text()
    junit = driver("export", tmp_path / "gate", "--format=junit").stdout
    assert 'name="parse"' in junit and "µs, the median of 8 processes" in junit


def test_quick_mode_stops_at_the_first_regression(gate, repository):
    repository.write("speed", "12.0\n")
    report = strict_json(gate(REGRESSION, "./bench.sh", "--quick", "--format=json").stdout)
    assert verdicts_of(report)["parse"] == "regression" and report["quick"] is True
    assert strict_json(gate(REGRESSION, "./bench.sh", "--quick", "--format=json").stdout)["result"] == "regression"


def verdicts_of(report):
    return {case["name"]: case["verdict"] for case in report["cases"]}


def test_of_a_rate_more_is_better(gate, repository):
    repository.write("speed", "12.0\n")
    done = gate(REGRESSION, "./bench.sh", "--measure=throughput", "--format=json")
    (case,) = strict_json(done.stdout)["cases"]
    assert case["verdict"] == "regression" and case["unit"] == "operations/s"
    assert case["candidate"][0] < case["base"][0] and case["log_ratio"] > 0.15
    repository.write("speed", "8.0\n")
    assert verdicts(gate(PASS, "./bench.sh", "--measure=throughput", "--format=json")) == {"parse": "improvement"}
    assert re.search(r"^parse +\S+ operations/s +1\.\d*e\+05 operations/s +-(19|20)\b", gate(PASS, "./bench.sh", "--measure=throughput").stdout, re.M)


def test_a_measure_whose_direction_is_unknown_is_refused(gate):
    said = gate(UNUSABLE, "./bench.sh", "--measure=score").stderr
    assert "of the measure 'score' it is not known whether more is better" in said and "latency, throughput" in said


def test_results_can_go_to_a_file(gate):
    assert verdicts(gate(PASS, "echo talk; ./bench.sh > {out}", "--format=json")) == {"parse": "pass", "emit": "pass"}
    said = gate(UNUSABLE, "echo talk {out}").stderr
    assert "there is no file {out}" in said and "it said: talk" in said


def test_the_sides_are_prepared_and_run_in_turns(gate, repository, tmp_path):
    repository.write("speed", "11.0\n")
    order = tmp_path / "order"
    prepare = "cp bench.sh prepared.sh"
    command = f"cat speed >> '{order}'; ./prepared.sh"
    gate(PASS, command, "--prepare", prepare, "--min-shift=0.3", "--margin=0.6")
    ran = order.read_text().split()
    assert sorted(ran[:2]) == ["10.0", "11.0"], "each side runs once before it is measured"
    pairs = [tuple(ran[i : i + 2]) for i in range(2, len(ran), 2)]
    assert len(pairs) == 8 and all(sorted(pair) == ["10.0", "11.0"] for pair in pairs)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo broken >&2; exit 7", ["ended with exit code 7; it said: broken"]),
        ("kill -9 $$", ["ended with exit code 137"]),
        ("echo hello", ["wrote no benchmark results", "not JSON", "it said: hello"]),
        ("echo '{\"a\": 3}'", ["no benchmark results in a known format", "hyperfine JSON"]),
        ("true", ["wrote no benchmark results"]),
        ("no-such-program-at-all", ["exit code 127", "no-such-program-at-all"]),
        ("yes '\"'", ["was ended because it wrote more than 256 MiB"]),
    ],
)
def test_a_command_that_fails_is_named_with_its_side_and_its_last_words(gate, command, expected, tmp_path):
    said = gate(UNUSABLE, command, "--comment", tmp_path / "comment.md").stderr
    assert f"--command: `{command}` in the copy of the base" in said
    for text in expected:
        assert text in said, said
    assert "attnbench gate: error" in (tmp_path / "comment.md").read_text()


def test_a_command_that_fails_on_one_side_only_names_that_side(gate, repository):
    repository.write("broken", "")
    said = gate(UNUSABLE, "[ ! -e broken ] || exit 5; ./bench.sh").stderr
    assert "in the copy of the candidate ended with exit code 5" in said


def test_a_command_that_fails_later_ends_the_gate(gate, tmp_path):
    said = gate(UNUSABLE, f"n=$(cat '{tmp_path}/n' || echo 0); echo $((n + 1)) > '{tmp_path}/n'; [ $n -lt 6 ] || exit 9; ./bench.sh").stderr
    assert "ended with exit code 9" in said


def test_a_file_of_an_earlier_run_is_no_result(gate, tmp_path):
    said = gate(UNUSABLE, f"[ -e '{tmp_path}/ran' ] || ./bench.sh > {{out}}; touch '{tmp_path}/ran'").stderr
    assert "there is no file {out}" in said


def test_the_sides_have_to_write_one_format(gate, repository):
    repository.write("bench.sh", "#!/bin/sh\necho '{\"results\": [{\"command\": \"parse\", \"median\": 1}]}'\n")
    said = gate(UNUSABLE).stderr
    assert "writes Bencher Metric Format in the copy of the base and hyperfine JSON in that of the candidate" in said


def test_a_benchmark_that_is_missing_in_a_later_run_is_unusable(gate, tmp_path):
    later = f"n=$(cat '{tmp_path}/n' || echo 0); echo $((n + 1)) > '{tmp_path}/n'; if [ $n -lt 6 ]; then ./bench.sh; else ./bench.sh | sed s/emit/other/; fi"
    assert verdicts(gate(UNUSABLE, later, "--format=json"))["emit"] == "unusable"


def test_a_benchmark_whose_value_is_no_number_in_a_later_run_is_unusable(gate, tmp_path):
    later = f"n=$(cat '{tmp_path}/n' || echo 0); echo $((n + 1)) > '{tmp_path}/n'; if [ $n -lt 6 ]; then ./bench.sh; else ./bench.sh | sed 's/emit\": {{\"latency\": {{\"value\": [^}}]*/emit\": {{\"latency\": {{\"value\": NaN/'; fi"
    done = gate(UNUSABLE, later, "--format=json")
    assert verdicts(done)["emit"] == "unusable" and "latency is missing or NaN" in done.stdout


def test_a_command_without_an_end_is_ended_with_all_that_it_started(gate, tmp_path):
    said = gate(UNUSABLE, f"sleep 7777 & echo $! > '{tmp_path}/child'; sleep 7777", "--deadline=0.5").stderr
    assert "had not ended after" in said and "(--deadline)" in said
    child = int((tmp_path / "child").read_text())
    wait_for(lambda: not runs(child), "the end of what the command started")


def test_an_interrupted_gate_leaves_nothing_behind(driver, repository, temporary, tmp_path):
    words = ["gate", "--command", f"echo $$ > '{tmp_path}/shell'; sleep 7777", "--base=HEAD", "-q"]
    started = subprocess.Popen(
        driver.command(*words), cwd=repository.folder, env=driver.environment, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: (tmp_path / "shell").exists() and (tmp_path / "shell").read_text().strip(), "the command")
    started.send_signal(signal.SIGTERM)
    assert started.wait(HANG_S) == 128 + signal.SIGTERM
    shell = int((tmp_path / "shell").read_text())
    wait_for(lambda: not runs(shell), "the end of the command")
    assert left_in(temporary) == []


def test_benchmarks_that_are_new_or_have_disappeared(gate, repository):
    repository.write("bench.sh", BENCH.replace("emit", "write"))
    found = verdicts(gate(UNUSABLE, "./bench.sh", "--format=json"))
    assert found == {"parse": "pass" if found["parse"] == "pass" else "inconclusive", "emit": "unusable", "write": "new"}
    said = gate(UNUSABLE, "./bench.sh").stdout
    assert "emit: unusable: the candidate has no such benchmark" in said and "write: new: the base has no such benchmark" in said


def test_a_benchmark_that_disappeared_can_be_waived(gate, repository):
    repository.write("bench.sh", BENCH.replace("emit", "write"))
    waivers = repository.write("waivers.toml", '[[waive]]\ncase = "emit"\nreason = "renamed"\n')
    found = verdicts(gate(PASS, "./bench.sh", "--format=json", "--waivers", waivers))
    assert found == {"parse": "pass", "emit": "unusable", "write": "new"}


def test_names_with_markup_are_shown_as_text(gate, repository, tmp_path):
    name = "<script>|`*_\x1b[31m\u202e"
    repository.write("bench.sh", BENCH.replace("emit", json.dumps(name)[1:-1].replace("\\", "\\\\")))
    repository.commit("markup")
    shown = gate(PASS, "./bench.sh", "--comment", tmp_path / "comment.md").stdout
    assert "\x1b" not in shown and "\u202e" not in shown and "<script>" in shown
    comment = (tmp_path / "comment.md").read_text()
    assert "<script>" not in comment and "\x1b" not in comment


def test_memory_is_a_measure_and_a_waiver_accepts_what_failed(gate, repository):
    repository.write("bench.sh", "#!/bin/sh\necho '{\"a\": {\"memory\": {\"value\": 1048576}}}'\n")
    repository.commit("memory")
    repository.write("bench.sh", "#!/bin/sh\necho '{\"a\": {\"memory\": {\"value\": 2097152}}}'\n")
    shown = gate(REGRESSION, "./bench.sh", "--measure=memory").stdout
    assert re.search(r"^a +1.00 MiB +2.00 MiB +\+100.0 %", shown, re.M), shown
    waivers = repository.write("waivers.toml", '[[waive]]\ncase = "a"\nreason = "keeps a cache"\n')
    assert "waived: keeps a cache" in gate(PASS, "./bench.sh", "--measure=memory", "--waivers", waivers).stdout


def test_thousands_of_benchmarks_are_judged(gate, repository, tmp_path):
    many = "awk 'BEGIN { printf \"{\"; for (i = 0; i < 3000; i++) printf \"%s\\\"case %d\\\": {\\\"latency\\\": {\\\"value\\\": %d}}\", i ? \",\" : \"\", i, i + 1; print \"}\" }'"
    report = strict_json(gate(PASS, many, "--format=json", "--comment", tmp_path / "comment.md").stdout)
    assert len(report["cases"]) == 3000 and report["result"] == "pass"
    assert (tmp_path / "comment.md").read_text().count("\n") <= 25


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gate", "ci", "--command=x", "--base=HEAD"], "not both"),
        (["gate", "--command=x"], "gate needs --base"),
        (["gate", "--command=x", "--base=no-such-revision"], "is no git revision"),
        (["gate", "--command=x", "--base=HEAD", "--instructions"], "--instructions"),
        (["gate", "--command=x", "--base=HEAD", "--set=heads=1"], "--set"),
        (["gate", "ci", "--base=HEAD", "--measure=x"], "--command"),
        (["gate", "ci", "--base=HEAD", "--prepare=x"], "--prepare can only be given with --root or --command"),
    ],
)
def test_options_that_do_not_fit_a_command_are_refused(driver, words, message):
    assert message in driver(*words, code=USAGE).stderr


# ---------------------------------------------------------------- real benchmark programs

# Three pairs are enough with these levels.
FEW = ["--format=json", "--quick", "--alpha=0.2", "--pass-alpha=0.4"]

PAGE = (ROOT / "docs/ci.md").read_text("utf-8")


def recipe(heading):
    """The values of --prepare and --command in the recipe of the page. What pip installs is there already."""
    (block,) = re.findall(rf"^### {heading}\n.*?^```bash\n(.*?)^```", PAGE, re.M | re.S)
    words = shlex.split(block)
    assert words[:4] == ["attnbench", "gate", "--base", "origin/main"]
    prepare, command = words[words.index("--prepare") + 1], words[words.index("--command") + 1]
    return "true" if prepare.startswith("pip install ") else prepare, command


GOOGLE = """
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstdlib>
#include <thread>
#include "delay.h"
static void sleeps(benchmark::State& state) {
  const char* inject = std::getenv("ATTNBENCH_INJECT");
  const double us = kDelayUs * (1 + (inject ? std::atof(inject) : 0) / 100);
  for (auto _ : state) std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(us));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(sleeps)->UseRealTime()->Iterations(2);
BENCHMARK_MAIN();
"""


def test_google_benchmark_is_run_for_real(gate, repository):
    prepare, command = recipe("Google Benchmark")
    repository.write("bench.cpp", GOOGLE)
    repository.write("delay.h", "constexpr double kDelayUs = 5000;\n")
    repository.write("CMakeLists.txt", "cmake_minimum_required(VERSION 3.25)\nproject(bench CXX)\nfind_package(benchmark REQUIRED)\n"
                     "add_executable(bench bench.cpp)\ntarget_link_libraries(bench benchmark::benchmark)\n")  # fmt: skip
    repository.commit("a program")
    repository.write("delay.h", "constexpr double kDelayUs = 20000;\n")
    for more in ([], ["--measure=items_per_second"]):
        done = gate(REGRESSION, command, "--prepare", prepare, *FEW, *more)
        assert verdicts(done) == {"sleeps/iterations:2/real_time": "regression"}


# By program: the files of a repository, the file that makes it slower, and the case.
SLEEPS = {
    "pytest-benchmark": (
        {
            "bench/delay.py": "DELAY = 0.002\n",
            "bench/test_delay.py": "import time\nfrom delay import DELAY\n"
            "def test_sleep(benchmark):\n    benchmark.pedantic(time.sleep, (DELAY,), rounds=2)\n",
        },
        ("bench/delay.py", "DELAY = 0.01\n"), "bench/test_delay.py::test_sleep",
    ),
    "hyperfine": (
        {"Makefile": "all:\n\tcp source.sh run.sh\n", "source.sh": "sleep 0.01\n"}, ("source.sh", "sleep 0.06\n"), "sh run.sh",
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", SLEEPS)
def test_a_benchmark_program_is_run_for_real(gate, repository, program):
    if program == "hyperfine" and not shutil.which(program):
        pytest.skip("hyperfine is not installed")
    files, slower, case = SLEEPS[program]
    prepare, command = recipe(program)
    for name, text in files.items():
        repository.write(name, text)
    repository.commit("a benchmark")
    repository.write(*slower)
    assert verdicts(gate(REGRESSION, command, "--prepare", prepare, *FEW)) == {case: "regression"}


def test_asv_is_run_for_real(gate, repository, driver, tmp_path):
    prepare, command = recipe("asv")
    driver.environment["HOME"] = str(tmp_path)
    repository.write("asv.conf.json", json.dumps({"version": 1, "project": "x", "repo": ".", "branches": ["main"], "environment_type": "existing",
                                                  "benchmark_dir": "benchmarks", "results_dir": "asv/results", "html_dir": "asv/html"}))  # fmt: skip
    repository.write("benchmarks/__init__.py", "")
    repository.write("delay.py", "DELAY = 0.002\n")
    repository.write("benchmarks/delays.py", textwrap.dedent("""\
        import pathlib, time
        DELAY = float(pathlib.Path(__file__).parents[1].joinpath("delay.py").read_text().split("=")[1])
        def time_sleep():
            time.sleep(DELAY)
        time_sleep.number, time_sleep.repeat, time_sleep.warmup_time, time_sleep.rounds = 1, 2, 0, 1
        """))  # fmt: skip
    repository.commit("benchmarks")
    repository.write("delay.py", "DELAY = 0.02\n")
    assert verdicts(gate(REGRESSION, command, "--prepare", prepare, *FEW)) == {"delays.time_sleep": "regression"}


def test_nulls_are_drawn_from_recordings_of_a_command(driver, repository, tmp_path):
    """The recordings of a benchmark that slows itself down as it is told, with the interval of the false alarms."""
    words = ["gate", "--calibrate", "--command=./bench.sh", "--recordings=24", "--trials=2000", "-q", "--out", tmp_path, "--seed=1"]
    shown = driver(*words).stdout
    assert re.search(r"false alarms per suite: 0\.00 % \(95 % interval 0\.00 … 0\.18 %\), of 2000 resampled suites", shown)
    saved = strict_json((tmp_path / "calibration.json").read_text())
    parse, other = saved["cases"]
    assert parse["measured_slowdown_percent"] == pytest.approx(10, abs=0.5) and parse["caught"] == 1
    assert other["measured_slowdown_percent"] == pytest.approx(0, abs=0.5)
    power = dict(zip(parse["power"]["slowdown_percent"], parse["power"]["regression"], strict=True))
    assert power[3] <= 0.01 and power[5] >= 0.9 and power[10] >= 0.9
    few = ["gate", "--calibrate", "--command=./bench.sh", "-q"]
    assert "expected a measure of time" in driver(*few, "--recordings=24", "--measure=throughput", code=USAGE).stderr
    assert "a case has 3 recordings, expected at least 20" in driver(*few, "--recordings=3", code=USAGE).stderr
    again = driver("gate", "--calibrate", "--from", tmp_path / "calibration.json", "--trials=2000", "--format=json", "--seed=1").stdout
    assert strict_json(again)["false_alarms_a_suite"] == saved["false_alarms_a_suite"]
