"""Tests of `attnbench gate` as CI calls it: every exit code and its reason. Most use stand-ins for
the workers, which answer with given times."""

import fcntl
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
from pathlib import Path

import pytest
from conftest import (
    HANG_S,
    Cli,
    children,
    group_members,
    runs,
    strict_json,
    wait_for,
    write_sweep,
)

PASS, REGRESSION, USAGE, INCONCLUSIVE, UNUSABLE = 0, 1, 2, 3, 4

# Shell code of a worker's answer to `measure`. The time of a process is `middle`, multiplied by a
# term of a deterministic sequence instead of noise, so that the verdicts do not depend on chance.
# Builds with another `phase` have another sequence.
ANSWER = """middle={middle}; noise={noise}
counter=$(dirname "$0")/counter
count=$(cat "$counter" 2>/dev/null || echo 0)
echo $((count + 1)) > "$counter"
awk -v c=$count -v m=$middle -v n=$noise 'BEGIN {{ t = m * exp(n * sin(2.4 * c + {phase}));
printf "{{\\"outcome\\": \\"measured\\", \\"implementation\\": \\"stand-in\\", \\"measured_s\\": 0.01, ";
printf "\\"time_first_ms\\": 1, \\"time_samples_ms\\": [%.9f, %.9f, %.9f, %.9f, %.9f], ", t, t, t, t, t;
printf "\\"samples\\": 5, \\"peak_extra_bytes\\": {memory}}}\\n" }}' >&3
"""


@pytest.fixture
def suite(tmp_path):
    """The path of a sweep file of one case."""
    return write_sweep(tmp_path / "suite.toml", method="linear", query_len=32)


@pytest.fixture
def build_of(workers):
    """build_of(middle) is the folder of a build whose case takes `middle` ms."""

    def make(middle=10.0, noise=0.01, memory=1024, phase=0, **commands):
        measure = ANSWER.format(middle=middle, noise=noise, memory=memory, phase=phase)
        return workers.make(**({"measure": measure} | commands)).parent

    return make


@pytest.fixture
def gate(attnbench, suite):
    """Runs the gate on two builds, and expects the exit code."""

    def run(base, candidate, *more, code=PASS):
        return attnbench("gate", suite, "--base", base, "--candidate", candidate, "-q", *more, code=code)

    return run


def verdicts(done):
    """The result of the gate, and the verdict of each case by its method."""
    report = strict_json(done.stdout)
    return report["result"], {case["name"].split()[0]: case["verdict"] for case in report["cases"]}


def test_equal_builds_pass(gate, build_of):
    shown = gate(build_of(), build_of()).stdout
    assert shown.endswith("gate: pass\n")
    assert "linear forward N=32" in shown


def test_a_slower_build_is_a_regression(gate, build_of):
    done = gate(build_of(), build_of(11.0), "--format=json", code=REGRESSION)
    assert verdicts(done) == ("regression", {"linear": "regression"})
    case = strict_json(done.stdout)["cases"][0]
    # The verdict is reached at the second look.
    assert len(case["base"]) == len(case["candidate"]) == len(case["log_ratios"]) == 12
    assert case["log_ratio"] == pytest.approx(0.0953, abs=0.01)


def test_a_faster_build_passes(gate, build_of):
    assert verdicts(gate(build_of(), build_of(8.0), "--format=json")) == ("pass", {"linear": "improvement"})


def test_a_slowdown_below_min_shift_passes(gate, build_of):
    gate(build_of(noise=0.001), build_of(10.2, noise=0.001))
    gate(build_of(noise=0.001), build_of(10.2, noise=0.001), "--min-shift=0.01", code=REGRESSION)


def test_measurements_that_are_too_noisy_are_inconclusive(gate, build_of):
    done = gate(build_of(noise=2), build_of(noise=2, phase=1.3), "--format=json", code=INCONCLUSIVE)
    assert verdicts(done) == ("inconclusive", {"linear": "inconclusive"})
    assert len(strict_json(done.stdout)["cases"][0]["base"]) == 20, "all three looks were taken"


def test_more_memory_is_a_regression(gate, build_of):
    done = gate(build_of(), build_of(memory=1100), "--format=json", code=REGRESSION)
    assert verdicts(done)[1] == {"linear": "pass, regression in memory"}
    gate(build_of(), build_of(memory=1100), "--memory-shift=0.1")


def test_a_case_that_does_not_verify_is_unusable_and_not_timed(gate, build_of):
    wrong = build_of(
        1.0, verify="""answer '{"outcome": "failed", "failure_kind": "invalid", "reason": "wrong values"}'"""
    )
    done = gate(build_of(), wrong, "--format=json", code=UNUSABLE)
    report = strict_json(done.stdout)
    (case,) = report["cases"]
    assert (case["verdict"], case["reason"]) == ("unusable", "the candidate does not verify: wrong values")
    assert report["cases"][0]["candidate"] == []


def test_a_case_that_one_build_cannot_run_is_unusable(gate, build_of):
    lacks = build_of(
        plan="""answer '{"outcome": "skipped", "failure_kind": "unsupported", "reason": "no such mask"}'"""
    )
    assert "the base cannot run it: no such mask" in gate(lacks, build_of(), code=UNUSABLE).stdout
    assert "no build can run any case" in gate(lacks, lacks, code=USAGE).stderr


@pytest.mark.parametrize("command", ["plan", "verify"])
def test_a_worker_that_breaks_before_it_is_measured_is_unusable(gate, build_of, command):
    dies = build_of(**{command: "echo no kernel >&2; kill -SEGV $$"})
    said = {"plan": "cannot run it", "verify": "does not verify"}[command]
    expected = f"the candidate {said}: the worker died of signal 11 (Segmentation fault); it said: no kernel"
    assert expected in gate(build_of(), dies, code=UNUSABLE).stdout
    answers_wrongly = build_of(**{command: """answer '{"no_such_column": 1}'"""})
    expected = f"the candidate {said}: the worker's answer is not a record"
    assert expected in gate(build_of(), answers_wrongly, code=UNUSABLE).stdout


def test_a_build_that_does_not_answer_with_its_environment_is_unusable(gate, build_of):
    dies = build_of(environment="kill -SEGV $$; sleep 9")
    message = gate(build_of(), dies, code=UNUSABLE).stderr
    assert "environment` broke: the worker died of signal 11" in message


def test_a_suite_is_found_by_its_name(attnbench, build_of, tmp_path):
    (tmp_path / "sweeps").mkdir()
    write_sweep(tmp_path / "sweeps/mine.toml", method="linear", query_len=32)
    report = strict_json(attnbench("gate", "mine", "--base", build_of(), "--candidate", build_of(), "-q", "--format=json").stdout)
    assert [case["name"].split()[0] for case in report["cases"]] == ["linear"]


def test_cases_that_no_build_supports_are_left_out(attnbench, build_of, tmp_path):
    """Cases that a build fails to plan are unusable instead."""
    suite = write_sweep(tmp_path / "two.toml", method=["linear", "softmax"], query_len=32)

    def gate(outcome, code):
        answer = json.dumps({"outcome": outcome, "failure_kind": "x", "reason": "not here"})
        one = build_of(plan=f"answer '{{}}'; answer '{answer}'", verify="good; good")
        words = ["--base", one, "--candidate", one, "-q", "--format", "json"]
        return attnbench("gate", suite, *words, code=code)

    assert verdicts(gate("skipped", PASS))[1] == {"linear": "pass"}
    failed = gate("failed", UNUSABLE)
    assert verdicts(failed)[1]["softmax"] == "unusable"
    assert "the base cannot run it: not here" in failed.stdout


def test_a_worker_that_dies_while_it_measures_is_unusable(gate, build_of):
    done = gate(build_of(), build_of(measure="kill -SEGV $$"), code=UNUSABLE)
    assert "the candidate failed (crashed): the worker died of signal 11" in done.stdout


def test_the_gate_ends_when_only_unusable_cases_are_undecided(attnbench, build_of, tmp_path):
    suite = write_sweep(tmp_path / "two.toml", method=["linear", "softmax"], query_len=32)
    works = ANSWER.format(middle=10.0, noise=0.01, memory=1024, phase=0)
    crashes = build_of(measure=f'case "$request" in *softmax*) kill -SEGV $$;; esac\n{works}')
    done = attnbench("gate", suite, "--base", build_of(), "--candidate", crashes, code=UNUSABLE)
    assert "pair 1 of 8: 2 cases" in done.stderr
    assert "of 20" not in done.stderr


def test_waivers_let_named_regressions_pass_and_need_a_reason(gate, build_of, tmp_path):
    def waive(**table):
        lines = ["[[waive]]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
        (tmp_path / "waivers.toml").write_text("\n".join(lines) + "\n")
        return "--waivers", tmp_path / "waivers.toml"

    name = "linear forward N=32 heads=2 head_dim=16"
    slower = build_of(12.0)
    shown = gate(build_of(), slower, *waive(case=name, reason="a check was added")).stdout
    assert re.search(r"^linear .* regression, waived$", shown, re.MULTILINE)
    assert f"\n{name}: waived: a check was added\n" in shown and "To accept" not in shown
    for table, said in [
        ({"case": name}, "has no reason"),
        ({"case": "lienar", "reason": "x"}, "the suite has no case 'lienar'"),
        ({"case": name, "reason": "x", "until": "2030"}, "'until' in [[waive]]"),
        ({"case": name, "reason": 3}, "expected case and reason as text"),
    ]:
        failed = gate(build_of(), slower, *waive(**table), code=USAGE)
        assert said in failed.stderr and "waivers.toml:" in failed.stderr


def test_a_regression_says_how_to_accept_it(gate, build_of, tmp_path):
    """The lines that it shows are a file of waivers."""
    base, slower = build_of(), build_of(12.0)
    shown = gate(base, slower, code=REGRESSION).stdout
    assert shown.endswith("gate: regression\n")
    said, _, lines = shown.partition("write these lines with your reason into a file, and give its name to --waivers:\n\n")
    lines = lines.partition("\n\n")[0] + "\n"
    name = "linear forward N=32 heads=2 head_dim=16"
    assert lines == f'[[waive]]\ncase = "{name}"\nreason = "WHY"\n'
    (tmp_path / "waivers.toml").write_text(lines)
    gate(base, slower, "--waivers", tmp_path / "waivers.toml")
    (tmp_path / "empty.toml").write_text("")
    shown = gate(base, slower, "--waivers", tmp_path / "empty.toml", code=REGRESSION).stdout
    assert f"add these lines with your reason to {tmp_path / 'empty.toml'}:" in shown
    markdown = gate(base, slower, "--format=markdown", code=REGRESSION).stdout
    assert f"```toml\n{lines}```\n" in markdown
    assert "[[waive]]" not in gate(base, build_of(noise=2, phase=1.3), code=INCONCLUSIVE).stdout


def test_a_case_has_one_p_value_that_is_explained_once(gate, build_of):
    base = build_of()
    for candidate, verdict, p, code in [(11.0, "regression", "0.00049", REGRESSION), (10.0, "pass", "0.012", PASS), (8.0, "improvement", "0.00049", PASS)]:
        shown = gate(base, build_of(candidate), code=code).stdout
        header, row = (next(line.split() for line in shown.splitlines() if line.startswith(word)) for word in ("case", "linear"))
        assert header[-3:] == ["p", "pairs", "verdict"] and row[-3:] == [p, "8" if verdict == "pass" else "12", verdict]
        assert shown.count("p is the probability") == 1
    shown = gate(build_of(noise=2), build_of(noise=2, phase=1.3), code=INCONCLUSIVE).stdout
    assert re.search(r"– +20 +inconclusive$", shown, re.MULTILINE), "a case without a verdict has no p value"


def test_names_in_the_table_are_what_tells_the_cases_apart(attnbench, build_of, tmp_path):
    suite = write_sweep(tmp_path / "two.toml", method=["linear", "softmax"], query_len=32, causal=[False, True], batch=2)
    one = build_of(plan="answer '{}'; answer '{}'; answer '{}'; answer '{}'", verify="good; good; good; good")
    words = ["gate", suite, "--base", one, "--candidate", one, "-q"]
    shown = attnbench(*words).stdout
    assert shown.startswith("4 cases: forward, N=32, batch=2, heads=2, head_dim=16\n")
    rows = [line for line in shown.splitlines() if line.endswith("  pass")]
    assert [re.split("  +", row)[0] for row in rows] == ["linear not causal", "linear causal", "softmax not causal", "softmax causal"]
    # The names in full are those that waivers and gate.json have.
    names = [case["name"] for case in strict_json(attnbench(*words, "--format=json").stdout)["cases"]]
    assert names[:2] == ["linear forward N=32 batch=2 heads=2 head_dim=16", "linear forward N=32 batch=2 heads=2 head_dim=16 causal"]
    assert attnbench(*words, "--format=markdown").stdout.startswith("4 cases: forward, N=32, ")


def test_the_name_says_the_threads_where_cases_differ_in_them(attnbench, build_of, tmp_path):
    suite = write_sweep(tmp_path / "two.toml", method="linear", query_len=32, threads=[1, 2])
    one = build_of(plan="answer '{}'; answer '{}'", verify="good; good")
    done = attnbench("gate", suite, "--base", one, "--candidate", one, "-q", "--format=json")
    assert [case["name"].split()[-1] for case in strict_json(done.stdout)["cases"]] == ["threads=1", "threads=2"]


def test_an_invalid_base_or_look_is_refused(attnbench, suite, build_of, tmp_path):
    assert "gate needs --base" in attnbench("gate", suite, "-q", code=USAGE).stderr
    failed = attnbench("gate", suite, "--base", "no-such-revision", "-q", code=USAGE).stderr
    assert "'no-such-revision' is neither a build folder nor a program; git cannot look for the revision" in failed
    assert "it said: fatal: not a git repository" in failed
    (tmp_path / "empty").mkdir()
    assert "attnbench-worker" in attnbench("gate", suite, "--base", "empty", "-q", code=USAGE).stderr
    for words, said in [
        (["--looks", "4,8"], "expected at least 7 pairs at the first of 2 looks"),
        (["--looks", "8", "--alpha", "0.001"], "expected at least 10 pairs at the last look"),
        (["--pass-alpha", "0"], "--pass-alpha is 0"),
    ]:
        assert said in attnbench("gate", suite, "--base", build_of(), *words, "-q", code=USAGE).stderr
    assert "gate needs a sweep" in attnbench("gate", "--base", build_of(), code=USAGE).stderr


def test_a_request_omits_settings_with_their_default(gate, build_of, tmp_path):
    """An older build refuses a request with a setting that it does not know, even its default."""
    keeps = build_of(measure=f"""printf '%s' "$request" > '{tmp_path}/request'\n""" + ANSWER.format(middle=1, noise=0.01, memory=1, phase=0))
    gate(build_of(1.0), keeps)
    request = strict_json((tmp_path / "request").read_text())
    assert {"method", "heads", "query_len", "head_dim", "threads"} <= set(request)
    assert not {"graph", "cache", "injected_slowdown_percent", "inputs"} & set(request)


def test_out_gets_a_report_of_every_measurement(gate, build_of, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/gate.json").symlink_to(outside)
    gate(build_of(), build_of(), "--out", tmp_path / "out")
    assert outside.read_text() == "precious"
    report = strict_json((tmp_path / "out/gate.json").read_text())
    assert report["result"] == "pass" and len(report["cases"][0]["base"]) >= 8
    assert report["base"]["revision"] and report["looks"] == [8, 12, 20]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", report["finished_at"])


# ---------------------------------------------------------------- quick


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


def test_the_report_can_be_printed_as_markdown(gate, build_of):
    shown = gate(build_of(), build_of(), "--format=markdown").stdout
    assert shown.startswith("| case ") and re.search(r"\\| -+: \\|", shown)


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


RECORDED = Path(__file__).resolve().parents[3] / "results/gate/intel-r-xeon-r-processor-2-threads/calibration.json"


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
    page = (RECORDED.parents[3] / "docs/gate.md").read_text()
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
    page = (RECORDED.parents[3] / "docs/gate.md").read_text()
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


class Repository:
    """A git repository whose CMake project, when it is configured, writes a script that runs a given
    worker. At one stage of a build it runs `step`, a script that the test sets: when git checks out
    a file, when CMake configures, or when ninja builds."""

    def __init__(self, folder, worker, stage):
        self.folder, self.step = folder, folder.parent / "step"
        self.done = folder.parent / "step-is-done"
        folder.mkdir()
        self.set_step("")
        lines = [
            "cmake_minimum_required(VERSION 3.25)",
            "project(fake NONE)",
            'set(worker "${CMAKE_BINARY_DIR}/attnbench-worker")',
            f'file(WRITE ${{worker}} "#!/bin/sh\\nexec {worker} \\"$@\\"\\n")',
            "file(CHMOD ${worker} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)",
            "include(last.cmake)",
        ]
        if stage == "configure":
            lines += [f'execute_process(COMMAND "{self.step}" COMMAND_ERROR_IS_FATAL ANY)']
        if stage == "build":
            lines += [f'add_custom_target(attnbench-worker COMMAND "{self.step}")']
        else:
            lines += ["add_custom_target(attnbench-worker)"]
        (folder / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
        (folder / "last.cmake").write_text("# git checks this file out after CMakeLists.txt\n")
        if stage == "checkout":
            (folder / ".gitattributes").write_text("last.cmake filter=step\n")
        self.git("init", "-q")
        self.git("config", "filter.step.clean", "cat")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "one")
        self.git("config", "filter.step.smudge", f"'{self.step}' && cat")
        self.git("config", "filter.step.required", "true")
        commit = self.git("rev-parse", "HEAD")[:12]
        self.built = folder / "build-gate" / commit / "build/attnbench-worker"

    def git(self, *words):
        author = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", *author, *words], cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout.strip()

    def set_step(self, code):
        self.step.write_text(f"#!/bin/sh\n{code}\ntouch '{self.done}'\n")
        self.step.chmod(0o755)


STAGES = ["checkout", "configure", "build"]


@pytest.fixture
def repository(tmp_path, build_of):
    """repository(stage) makes a Repository that runs its step at this stage."""
    worker = build_of() / "attnbench-worker"
    return lambda stage="none": Repository(tmp_path / "repository", worker, stage)


@pytest.fixture
def gate_in(attnbench, suite, build_of):
    """gate_in(repository) is the driver in its folder, and the words of a gate with base HEAD."""

    def command(repository):
        program = Cli(attnbench.program, folder=repository.folder)
        return program, ["gate", suite, "--base", "HEAD", "--candidate", build_of(), "-q"]

    return command


def test_a_base_revision_is_built_once_in_a_worktree(gate_in, repository):
    checked_out = repository("build")
    program, words = gate_in(checked_out)
    assert "building" in program(*words).stderr
    assert checked_out.built.exists() and checked_out.done.exists()
    assert "building" not in program(*words).stderr, "it must not be built again"
    (checked_out.folder / "CMakeLists.txt").write_text("message(FATAL_ERROR no)\n")
    checked_out.git("commit", "-q", "-am", "two")
    failed = program(*words, code=USAGE).stderr
    assert "does not build: cmake -S failed" in failed and "build.log" in failed


def test_a_base_that_git_does_not_know_or_does_not_read_is_refused_with_its_words(gate_in, repository, monkeypatch):
    checked_out = repository()
    program, words = gate_in(checked_out)
    words[words.index("HEAD")] = "no-such-revision"
    failed = program(*words, code=USAGE).stderr
    assert f"neither a build folder nor a program nor a git revision of the repository {checked_out.folder}" in failed
    # git treats the repository as if it belonged to another user.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    failed = program(*words, code=USAGE).stderr
    assert f"fatal: detected dubious ownership in repository at '{checked_out.folder}'" in failed
    assert f"git config --global --add safe.directory {checked_out.folder}" in failed


@pytest.mark.parametrize("stage", STAGES)
def test_a_failed_build_is_built_again(gate_in, repository, stage):
    broken = repository(stage)
    program, words = gate_in(broken)
    broken.set_step("echo out of luck >&2; exit 1")
    for _ in range(2):
        failed = program(*words, code=USAGE).stderr
        assert "does not build" in failed
        assert "out of luck" in Path(failed.rpartition("see ")[2].strip()).read_text()
    broken.set_step("")
    program(*words)
    assert broken.built.exists() and broken.done.exists()


def test_only_one_process_at_a_time_builds_a_revision(gate_in, repository):
    shared = repository("build")
    program, words = gate_in(shared)
    folder = shared.built.parent.parent
    folder.mkdir(parents=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert f"{folder}: another process is building" in program(*words, code=USAGE).stderr
    assert not shared.done.exists()
    program(*words)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupted_build_ends_and_is_built_again(
    gate_in, repository, tmp_path, stage, number
):
    slow, pids = repository(stage), tmp_path / "pids"
    program, words = gate_in(slow)
    slow.set_step(f"sleep 300 & echo $$ $! > '{pids}'; wait")
    # A driver that was started with nohup ignores SIGHUP.
    with program.running(*words, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as driver:
        started = wait_for(lambda: pids.exists() and pids.read_text().split(), "the slow step", driver=driver)
        (child,) = children(driver.pid)
        driver.send_signal(number)
        driver.wait(timeout=HANG_S)
        assert driver.returncode == (-number if number == signal.SIGKILL else 128 + number)
        # Both processes were sent a signal; on a busy machine they may take a moment to end.
        wait_for(lambda: not group_members(child.group), "the build to end", seconds=60)
        wait_for(lambda: not any(map(runs, started)), "the slow step to end", seconds=60)
    assert not slow.done.exists()
    slow.set_step("")
    program(*words)
    assert slow.built.exists() and slow.done.exists()


def test_real_workers_take_turns(attnbench, build, tmp_path):
    """A turn is some calls of forward, or a round of decode. The margin exceeds any noise."""
    suite = write_sweep(
        tmp_path / "turns.toml", method="linear", protocol=["forward", "decode"], query_len=64, timing={"time_budget_s": 0.02}
    )
    done = attnbench("gate", suite, "--base", build, "--looks=8", "-q", "--format=json", "--min-shift=3", "--margin=30")
    for case in strict_json(done.stdout)["cases"]:
        assert case["verdict"] == "pass", case["verdict"]
        assert len(case["log_ratios"]) == len(case["base"]) == 8 and case["implementation"].startswith("kernel/")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_driver_and_both_workers(attnbench, build, tmp_path, number):
    suite = write_sweep(tmp_path / "long.toml", method="linear", query_len=64, timing={"time_budget_s": 60})
    with attnbench.running("gate", suite, "--base", build, "-q") as driver:
        workers = wait_for(
            lambda: [p for p in children(driver.pid) if " measure " in p.command and "--turns=" in p.command][1:] and children(driver.pid),
            "two workers",
            driver=driver,
        )
        driver.send_signal(number)
        assert driver.wait(timeout=HANG_S) == 128 + number
        for worker in workers:
            assert group_members(worker.group) == []


# Stands for valgrind: it runs the worker, and prints what FAKE_VALGRIND says.
VALGRIND = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
"$@"; code=$?
echo "$FAKE_VALGRIND" >&2
exit $code
"""


@pytest.mark.parametrize(
    ("printed", "answer", "said"),
    [
        ("==1== Collected : many", '{"outcome": "measured"}', "the base got no count from valgrind: ==1== Collected : many"),
        ("==1== Collected :", '{"outcome": "measured"}', "the base got no count from valgrind"),
        ("no tool", '{"outcome": "measured"}', "the base got no count from valgrind: no tool"),
        ("==1== Collected : 9", '{"outcome": 7}', "the base failed (protocol): the worker's answer is not a record"),
        ("==1== Collected : 9", '{"outcome": "measured", "implementation": 7}', "the worker's answer is not a record"),
        ("==1== Collected : 9", "[1]", "the base failed (protocol)"),
    ],
)
def test_a_count_of_instructions_that_cannot_be_read_is_unusable(
    gate, build_of, tmp_path, monkeypatch, printed, answer, said
):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/valgrind").write_text(VALGRIND)
    (tmp_path / "bin/valgrind").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_VALGRIND", printed)
    build = build_of(count=f"answer '{answer}'")
    assert said in gate(build, build, "--instructions", code=UNUSABLE).stdout


@pytest.mark.long
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_instruction_counts_show_a_slowdown_and_no_noise(attnbench, build, tmp_path):
    """The injected slowdown is one more call, or decoding step, in a hundred. Both sides make the same number otherwise. With
    smaller heads a step is so short that work which happens once in many steps shows."""
    suite = write_sweep(
        tmp_path / "count.toml", method="linear", protocol=["forward", "decode"], query_len=64, heads=4, head_dim=64
    )
    done = attnbench(
        "gate", suite, "--base", build, "--instructions", "--inject=1", "-q", "--format=json", timeout=HANG_S, code=REGRESSION
    )
    report = strict_json(done.stdout)
    assert report["measure"] == "instructions on AVX2 kernels"
    for case in report["cases"]:
        assert case["implementation"] == "kernel/avx2" and case["base"][0] > 1e6
        assert math.expm1(case["log_ratio"]) == pytest.approx(0.01, abs=0.003)
    assert len(report["cases"]) == 2
