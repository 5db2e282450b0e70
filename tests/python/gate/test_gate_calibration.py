"""Tests of `attnbench gate --calibrate`, of the calibration in results/, and of the slowdowns that a calibration injects."""

import json
import statistics

import pytest
from conftest import ROOT, strict_json
from stand_ins import ANSWER, UNUSABLE, USAGE, build_of, suite  # noqa: F401


def test_calibration_estimates_false_alarms_and_the_share_of_slowdowns_found(
    attnbench, suite, build_of, tmp_path
):
    """The third worker of a recording is slowed down by 10 %, which resampled gates must find."""
    slow = ANSWER.format(middle="$(case $request in *injected_slowdown_percent*) echo 11;; *) echo 10;; esac)", noise=0.01, memory=1, phase=0)
    candidate = build_of(measure=slow)
    done = attnbench(
        "gate", suite, "--calibrate", "--candidate", candidate, "--recordings=50", "--trials=200",
        "--out", tmp_path / "out", "-q", "--seed=1",
    )  # fmt: skip
    assert "false alarms per suite: 0.00 %" in done.stdout
    calibration = strict_json((tmp_path / "out/calibration.json").read_text())
    case = calibration["cases"][0]
    assert case["caught"] == 1 and len(case["process_medians_ms"]) == 50
    assert case["slowed_process_medians_ms"][0] > case["process_medians_ms"][0]
    assert case["measured_slowdown_percent"] == pytest.approx(10, abs=0.5)
    power = case["power"]
    assert power["slowdown_percent"] == list(range(1, 16))
    assert power["regression"][0] == 0 and power["pass"][0] == 1 and power["regression"][14] == 1
    shown = done.stdout.split("true slowdown")[1].splitlines()
    assert len(shown) == 2 + 15 and shown[-1].split()[:4] == ["15", "%", "100.0", "%"]
    failed = attnbench("gate", suite, "--calibrate", "--candidate", candidate, "--recordings=10", code=USAGE)
    assert "10 recordings, expected at least 20" in failed.stderr
    assert "recording 1 of 10" not in failed.stderr, "it is refused before anything is measured"
    dies = build_of(measure="kill -SEGV $$")
    failed = attnbench("gate", suite, "--calibrate", "--candidate", dies, "-q", code=UNUSABLE)
    assert "the worker died of signal 11" in failed.stderr


RECORDED = ROOT / "results/gate/intel-r-xeon-r-processor-2-threads/calibration.json"


def test_a_calibration_can_be_computed_again_from_its_recordings(attnbench, tmp_path):
    words = ["gate", "--calibrate", "--from", RECORDED, "--trials=50", "--seed=1", "--format=json"]
    done = strict_json(attnbench(*words).stdout)
    recorded = strict_json(RECORDED.read_text())
    for case, before in zip(done["cases"], recorded["cases"], strict=True):
        for name in ("name", "log_ratios", "slowed_log_ratios", "process_medians_ms"):
            assert case[name] == before[name]
    assert done["environment"] == recorded["environment"]
    assert strict_json(attnbench(*words).stdout) == done, "the same seed gives the same result"
    # With looks at which there are fewer pairs, fewer slowdowns of 5 % are found.
    fewer = strict_json(attnbench(*words, "--looks=8,12").stdout)
    found = [sum(case["power"]["regression"][4] for case in each["cases"]) for each in (fewer, done)]
    assert found[0] < found[1]


def test_the_page_shows_what_the_recordings_give(attnbench):
    """The table, and the numbers in the sentences around it."""
    page = (ROOT / "docs/gate.md").read_text()
    words = ["gate", "--calibrate", "--seed=1", "--from", RECORDED]
    shown = attnbench(*words, "--format=markdown").stdout
    assert shown[shown.index("| true slowdown |") :].strip() in page
    page, recorded = " ".join(page.split()), strict_json(RECORDED.read_text())
    assert (recorded["seed"], recorded["trials"], recorded["looks"]) == (1, 4000, [8, 12, 20])
    alarms, inconclusive, pairs = (
        recorded[name] for name in ("false_alarms_a_suite", "inconclusive_suites_of_equal_builds", "mean_pairs_of_equal_builds")
    )
    assert (
        f"Of 4000 suites of equal builds, {alarms:.2%} raised a false alarm and {inconclusive:.2%} stayed inconclusive, "
        f"after {pairs:.1f} pairs per case"
    ).replace("%", " %") in page
    deviations = sorted(100 * statistics.pstdev(case["log_ratios"]) for case in recorded["cases"])
    assert f"standard deviation of {deviations[-1]:.1f} %, those of the others of {deviations[0]:.1f} to {deviations[-2]:.1f} %" in page
    slowed = [case["measured_slowdown_percent"] for case in recorded["cases"]]
    assert f"by {min(slowed):.1f} to {max(slowed):.1f} % in the recordings" in page
    mean = sum(case["power"]["regression"][4] for case in recorded["cases"]) / len(recorded["cases"])
    assert f"| 5 % | {100 * mean:.1f} % |" in page, "the file holds what the page shows"


def test_the_page_shows_how_a_quick_gate_ends(attnbench):
    page = (ROOT / "docs/gate.md").read_text()
    words = ["gate", "--calibrate", "--quick", "--from", RECORDED, "--seed=1"]
    shown = attnbench(*words, "--format=markdown").stdout
    assert shown[shown.index("| true slowdown |") :].strip() in page
    words = [*words, "--trials=100", "--format=json"]
    calibration = strict_json(attnbench(*words).stdout)
    assert strict_json(attnbench(*words).stdout) == calibration, "the same seed gives the same result"
    assert calibration["quick"] is True and calibration["looks"] == [6, 10, 14]
    suites = calibration["suites_with_one_slower_case"]
    assert suites["slowdown_percent"] == [0, 3, 5, 10, 20]
    assert suites["regression"][0] == 0 and suites["regression"][4] == 1 and suites["pass"][3] == suites["pass"][4] == 0
    assert suites["mean_pairs"][4] < suites["mean_pairs"][0]


def test_recordings_that_are_no_calibration_are_refused(attnbench, suite, tmp_path):
    path = tmp_path / "calibration.json"
    good = strict_json(RECORDED.read_text())
    for change, said in [
        ({"cases": []}, "cases is array, expected a list of cases"),
        ({"cases": [{"log_ratios": [0]}]}, "case 1: no name, expected text"),
        ({"cases": [good["cases"][0] | {"log_ratios": ["0.1"]}]}, "case 1: log_ratios is array, expected a list of numbers"),
        ({"cases": [good["cases"][0] | {"log_ratios": [0.1]}]}, "1 recordings, expected at least 20"),
        ({"injected_slowdown_percent": "ten"}, "injected_slowdown_percent is string, expected a number"),
    ]:
        path.write_text(json.dumps(good | change))
        assert said in attnbench("gate", "--calibrate", "--from", path, code=USAGE).stderr
    path.write_text("{")
    assert "not JSON" in attnbench("gate", "--calibrate", "--from", path, code=USAGE).stderr
    for words, said in [
        ([suite, "--calibrate", "--from", RECORDED], "a sweep cannot be given with it"),
        (["--calibrate", "--from", RECORDED, "--inject=5"], "--inject cannot be given with it"),
        (["--calibrate", "--from", RECORDED, "--recordings=30"], "--from cannot be given with --recordings"),
        (["--from", RECORDED], "--from can only be given with --calibrate"),
    ]:
        assert said in attnbench("gate", *words, code=USAGE).stderr


def test_an_injected_slowdown_lengthens_the_measured_time(attnbench):
    """The slowdown is larger than the noise of any machine."""
    for protocol in ("forward", "decode"):
        case = ["measure", "linear", f"--protocol={protocol}", "--query-len=512", "--threads=1", "--time-budget-s=0.1"]
        plain, slowed = (
            strict_json(attnbench(*case, f"--injected-slowdown-percent={percent}", "--format=json").stdout)
            for percent in (0, 10000)
        )
        assert slowed["injected_slowdown_percent"] == 10000
        assert min(slowed["time_samples_ms"]) > 10 * min(plain["time_samples_ms"])
