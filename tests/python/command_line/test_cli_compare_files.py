"""Tests of `attnbench compare` on files that other benchmark programs wrote: a file is a run, verdicts say
that nothing was measured in turns, and too few runs are refused with the number that is needed."""

import json
import math

import pytest
from conftest import ROOT

USAGE, FAILURE = 2, 1
CORPUS = ROOT / "tests/fuzz/corpus/foreign"


def metrics(**latency_ns):
    return {name: {"latency": {"value": value}, "throughput": {"value": 1e9 / value}} for name, value in latency_ns.items()}


@pytest.fixture
def side(tmp_path):
    """side(name, runs) is a folder with a file for each run."""

    def make(name, runs):
        folder = tmp_path / name
        folder.mkdir()
        for n, run in enumerate(runs):
            (folder / f"run-{n}.json").write_text(run if isinstance(run, str) else json.dumps(run))
        return folder

    return make


def noisy(middle, n):
    return middle * math.exp(0.002 * math.sin(2.4 * n))


@pytest.fixture
def sides(side):
    """Eight runs a side: `slow` is slower by 20 % in b, `same` takes equally long."""
    before = [metrics(slow=noisy(1000, n), same=noisy(2000, n + 3)) for n in range(8)]
    after = [metrics(slow=noisy(1200, n + 9), same=noisy(2000, n + 13)) for n in range(8)]
    return side("before", before), side("after", after)


def test_runs_are_compared_and_no_verdict_hides_that_they_were_not_in_turns(attnbench, sides):
    shown = " ".join(attnbench("compare", *sides).stdout.split())
    assert "Over all: regression, not measured in turns." in shown
    assert "regression, not measured in turns" in shown and "equivalent, not measured in turns" in shown
    assert "how often it is wrong about equal programs is not known" in shown and "`attnbench gate --command`" in shown
    assert "1.000 µs 1.200 µs +20" in shown or "+20.0 %" in shown
    report = attnbench.json("compare", *sides)
    assert report["measured_in_turns"] is False and report["runs"] == {"a": 8, "b": 8}
    slow, same = report["cases"]
    assert slow["verdict"] == "regression" and slow["log_ratio"] == pytest.approx(math.log(1.2), abs=0.01)
    assert slow["interval"][0] < slow["log_ratio"] < slow["interval"][1] and slow["adjusted_p"] < 0.01
    assert same["verdict"] == "equivalent"
    attnbench("compare", *sides, "--fail-on=slower", code=FAILURE)


def test_of_a_rate_less_is_a_regression(attnbench, sides):
    report = attnbench.json("compare", *sides, "--measure=throughput")
    slow = report["cases"][0]
    assert report["more_is_better"] is True and slow["verdict"] == "regression"
    assert slow["b"][0] < slow["a"][0] and slow["log_ratio"] > 0.15
    assert "operations/s" in attnbench("compare", *sides, "--measure=throughput", "--format=markdown").stdout


def test_too_few_runs_are_refused_with_the_number_needed(attnbench, side, tmp_path):
    one = tmp_path / "one.json"
    one.write_text(json.dumps(metrics(a=1)))
    said = attnbench("compare", one, one, code=USAGE).stderr
    assert "has 1 run and" in said and "at least 5 a side are needed" in said and "Only `attnbench gate --command` can run again" in said
    many = side("many", [metrics(**{f"case{n}": 1 for n in range(100)})] * 4)
    assert "at least 9 a side are needed" in attnbench("compare", many, many, code=USAGE).stderr


def test_repetitions_within_a_run_are_one_value(attnbench, tmp_path):
    """A file with many repetitions is one run."""
    entries = [{"name": "a", "run_name": "a", "run_type": "iteration", "repetition_index": n, "real_time": 10 + n, "time_unit": "ns"} for n in range(50)]
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"context": {}, "benchmarks": entries}))
    assert "has 1 run and" in attnbench("compare", file, file, code=USAGE).stderr


@pytest.mark.parametrize("name", ["google_benchmark", "pytest_benchmark", "hyperfine", "asv", "bencher", "nvbench"])
def test_every_format_is_read(attnbench, side, name):
    runs = [(CORPUS / f"{name}.json").read_text()] * 6
    report = attnbench.json("compare", side("a", runs), side("b", runs))
    assert report["cases"] and all(case["log_ratio"] == 0 for case in report["cases"])


def test_what_cannot_be_compared_is_named(attnbench, sides, side):
    google = side("google", [(CORPUS / "google_benchmark.json").read_text()] * 8)
    assert "expected one format" in attnbench("compare", sides[0], google, code=USAGE).stderr
    mixed = side("mixed", [metrics(slow=1)] * 4 + [(CORPUS / "google_benchmark.json").read_text()] * 4)
    assert "but other files of" in attnbench("compare", mixed, mixed, code=USAGE).stderr
    other = side("other", [metrics(other=1)] * 8)
    assert "no benchmark in common" in attnbench("compare", sides[0], other, code=USAGE).stderr
    both = side("both", [metrics(slow=1, other=1)] * 8)
    said = " ".join(attnbench("compare", sides[0], both).stdout.split())
    assert "Not compared: same: only in a" in said and "Not compared: other: only in b" in said
    attnbench("compare", sides[0], both, "--fail-on=unmeasured", code=FAILURE)
    faulty = side("faulty", [metrics(slow=1) | {"same": {"latency": {"value": float("nan")}}}] * 8)
    said = " ".join(attnbench("compare", sides[0], faulty).stdout.split())
    assert "Not compared: same: no value in b: latency is missing or NaN" in said
    nothing = side("nothing", [{"slow": {"latency": {"value": float("nan")}}}] * 8)
    assert "no benchmark with values on both sides; slow: no value in a: latency is missing or NaN" in attnbench(
        "compare", nothing, nothing, code=USAGE
    ).stderr
    assert "--apart is for records" in attnbench("compare", *sides, "--apart=method", code=USAGE).stderr


def test_other_machines_are_named(attnbench, side):
    runs = [json.loads((CORPUS / "google_benchmark.json").read_text())] * 6
    other = [run | {"context": run["context"] | {"host_name": "other"}} for run in runs]
    shown = " ".join(attnbench("compare", side("a", runs), side("b", other)).stdout.split())
    assert "The machines differ:" in shown and "and other, " in shown


def test_hostile_files_are_refused_or_shown_as_text(attnbench, side, tmp_path):
    hostile = side("hostile", [metrics(**{"<b>\x1b[31m": 1.0 + n / 1000}) for n in range(6)])
    shown = attnbench("compare", hostile, hostile).stdout
    assert "\x1b" not in shown and "<b>" in shown
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(1 << 30)
    assert "large.json" in attnbench("compare", large, large, code=USAGE).stderr
    for text in ("[" * 1000, '{"a": {"latency": {"value": "1"}}}', '{"results": [null]}'):
        file = tmp_path / "x.json"
        file.write_text(text)
        assert str(file) in attnbench("compare", file, file, code=USAGE).stderr


def test_records_of_attnbench_are_compared_as_before(attnbench, tmp_path):
    assert "--measure is for" in attnbench("compare", ROOT / "results/repeat", ROOT / "results/repeat", "--measure=x", code=USAGE).stderr
