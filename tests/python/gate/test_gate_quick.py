"""Tests of `attnbench gate --quick`, which stops early."""

import re

import pytest
from conftest import strict_json, write_sweep
from stand_ins import ANSWER, INCONCLUSIVE, PASS, REGRESSION, UNUSABLE, USAGE, build_of, suite, verdicts  # noqa: F401


@pytest.fixture
def two_cases(tmp_path):
    return write_sweep(tmp_path / "two.toml", method=["linear", "softmax"], query_len=32)


@pytest.fixture
def quick(attnbench, two_cases, build_of):
    """Runs the quick gate on two cases, the second of which takes `softmax` times as long as the first with the candidate."""

    def run(*more, linear=10.0, softmax=10.0, code=PASS, before=""):
        two = {"plan": "answer '{}'; answer '{}'", "verify": "good; good"}
        middle = f"$(case $request in *softmax*) echo {softmax};; *) echo {linear};; esac)"
        measure = before + ANSWER.format(middle=middle, noise=0.01, memory=1024, phase=0)
        return attnbench(
            "gate", two_cases, "--base", build_of(**two), "--candidate", build_of(measure=measure, **two), "--quick", "--seed=1", *more, code=code
        )  # fmt: skip

    return run


def test_a_quick_gate_passes_after_six_pairs(quick):
    done = quick("--format=json")
    report = strict_json(done.stdout)
    assert verdicts(done) == ("pass", {"linear": "pass", "softmax": "pass"})
    assert [len(case["log_ratios"]) for case in report["cases"]] == [6, 6]
    assert report["quick"] is True and report["looks"] == [6, 8, 12] and report["time_limit_s"] == 50
    assert "pair 6 of softmax forward N=32" in done.stderr


def test_a_quick_gate_stops_at_the_first_regression(quick):
    done = quick("--format=json", softmax=13.0, code=REGRESSION)
    assert verdicts(done) == ("regression", {"linear": "not decided", "softmax": "regression"})
    linear, softmax = strict_json(done.stdout)["cases"]
    assert len(softmax["log_ratios"]) == 8 and len(linear["log_ratios"]) <= 2
    shown = quick(softmax=13.0, code=REGRESSION).stdout
    assert re.search(
        r"^1 of 2 cases is not decided, because a quick gate stops at the first regression; "
        r"a full gate, without --quick, would take at most \d+ (s|min \d\d s)$", shown, re.MULTILINE
    )  # fmt: skip
    assert 'case = "softmax forward N=32 heads=2 head_dim=16"' in shown


def test_a_quick_gate_goes_on_after_a_regression_that_is_waived(quick, tmp_path):
    (tmp_path / "waivers.toml").write_text('[[waive]]\ncase = "softmax forward N=32 heads=2 head_dim=16"\nreason = "x"\n')
    done = quick("--format=json", "--waivers", tmp_path / "waivers.toml", softmax=13.0)
    assert verdicts(done) == ("pass", {"linear": "pass", "softmax": "regression"})


def test_a_quick_gate_says_what_it_could_not_decide_in_its_time(quick):
    done = quick("--time-limit=0.01", code=INCONCLUSIVE)
    assert re.search(r"^linear .* not decided$", done.stdout, re.MULTILINE)
    assert re.search("2 of 2 cases are not decided; a full gate, without --quick, (would take at most|has no time limit)", done.stdout)
    assert done.stdout.endswith("gate: inconclusive\n")
    assert "Not every case could be decided" not in done.stdout
    report = strict_json(quick("--time-limit=0.01", "--format=json", code=INCONCLUSIVE).stdout)
    assert {case["verdict"] for case in report["cases"]} == {"not decided"}


def test_a_quick_gate_gives_a_case_up_that_breaks(quick):
    crashes = 'case "$request" in *softmax*) kill -SEGV $$;; esac\n'
    done = quick(before=crashes, code=UNUSABLE)
    assert re.search(r"^linear .* pass$", done.stdout, re.MULTILINE)
    assert "softmax: unusable: the candidate failed (crashed): the worker died of signal 11" in done.stdout


def test_quick_does_not_go_with_looks_of_ones_own(attnbench, suite, build_of):
    for words, said in [
        (["--quick", "--looks=8,12"], "--looks cannot be given with --quick"),
        (["--quick", "--instructions"], "--quick cannot be given with --instructions"),
        (["--time-limit=3"], "--time-limit can only be given with --quick"),
    ]:
        assert said in attnbench("gate", suite, "--base", build_of(), *words, code=USAGE).stderr
