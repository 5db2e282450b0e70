"""Tests of `attnbench gate` on two builds, as CI calls it: every exit code and its reason. Most use stand-ins for the workers."""

import json
import re
import signal

import pytest
from conftest import HANG_S, children, group_members, strict_json, wait_for, write_sweep
from stand_ins import ANSWER, INCONCLUSIVE, PASS, REGRESSION, UNUSABLE, USAGE, build_of, gate, suite, verdicts  # noqa: F401


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
    words = waive(case=name, reason="a check was added")
    words[1].write_text(words[1].read_text() + "\n" + words[1].read_text())
    failed = gate(build_of(), slower, *words, code=USAGE)
    assert f"waivers.toml:5:1: '{name}' is waived twice, here and in line 1, expected one waiver of a case" in failed.stderr


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


def test_the_report_can_be_printed_as_markdown(gate, build_of):
    shown = gate(build_of(), build_of(), "--format=markdown").stdout
    assert shown.startswith("| case ") and re.search(r"\\| -+: \\|", shown)


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
