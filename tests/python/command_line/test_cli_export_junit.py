"""Tests of `attnbench export --format junit`: the verdicts of real gates and verifications, read by
junitparser and by a strict parser of XML."""

import copy
import json
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest
from conftest import HANG_S, strict_json, write_sweep
from junitparser import Error, Failure, JUnitXml, Skipped

PASS, REGRESSION, USAGE, INCONCLUSIVE, UNUSABLE = 0, 1, 2, 3, 4

# Shell code of a worker that answers `measure` with this time, which changes by 1 % from process to process.
MEASURE = """counter=$(dirname "$0")/counter; count=$(cat "$counter" 2>/dev/null || echo 0); echo $((count + 1)) > "$counter"
awk -v c=$count 'BEGIN {{ t = {middle} * exp({noise} * sin(2.4 * c + {phase}));
printf "{{\\"outcome\\": \\"measured\\", \\"implementation\\": \\"stand-in\\", \\"measured_s\\": 0.01, \\"time_first_ms\\": 1, ";
printf "\\"time_samples_ms\\": [%.9f, %.9f, %.9f], \\"samples\\": 3, \\"peak_extra_bytes\\": {memory}}}\\n", t, t, t }}' >&3
"""


@pytest.fixture
def gate(attnbench, workers, tmp_path):
    """gate(code, **worker) runs a gate whose candidate differs as said, and returns the folder with gate.json."""
    suite = write_sweep(tmp_path / "suite.toml", method="linear", query_len=32)

    def build(middle=10.0, noise=0.01, phase=0, memory=1024, **commands):
        measure = MEASURE.format(middle=middle, noise=noise, phase=phase, memory=memory)
        return workers.make(**({"measure": measure} | commands)).parent

    def run(code, *more, base_noise=0.01, **candidate):
        folder = tmp_path / "gate"
        attnbench("gate", suite, "--base", build(noise=base_noise), "--candidate", build(**candidate), "-q", "--out", folder, *more, code=code)
        return folder

    return run


@pytest.fixture
def junit(attnbench, tmp_path):
    """junit(paths…) is the JUnit XML of these paths, as junitparser reads it; its numbers are checked."""

    def run(*paths):
        out = tmp_path / "junit.xml"
        attnbench("export", *paths, "--format=junit", "--out", out)
        root = ElementTree.parse(out).getroot()  # noqa: S314
        assert root.tag == "testsuites" and len(root) == len(paths)
        suites = list(JUnitXml.fromfile(str(out)))
        for suite in suites:
            counts = (suite.tests, suite.failures, suite.errors, suite.skipped)
            suite.update_statistics()
            assert counts == (suite.tests, suite.failures, suite.errors, suite.skipped)
        return suites

    return run


def only(suites):
    (suite,) = suites
    (case,) = suite
    return case


def test_a_regression_is_a_failure_with_its_interval(gate, junit):
    folder = gate(REGRESSION, middle=12.0)
    (suite,) = junit(folder)
    case = only([suite])
    report = strict_json((folder / "gate.json").read_text())
    (measured,) = report["cases"]
    (failure,) = case.result
    assert isinstance(failure, Failure) and failure.type == "regression"
    change, low, high = (f"{100 * (2.718281828459045**x - 1):+.1f} %" for x in (measured["log_ratio"], *measured["interval"]))
    assert failure.message == f"slower: {change}, 95 % interval {low} to {high}"
    assert f"change: {change}, 95 % interval {low} to {high}\n" in failure.text
    assert re.search(r"base: [\d.]+ ms, the median of 12 processes\n", failure.text)
    assert "p values: slower by at most 3 %: " in failure.text and "memory: base 1.00 KiB, candidate 1.00 KiB" in failure.text
    assert (suite.name, case.classname, case.name) == ("attnbench.gate", "attnbench.gate", measured["name"])
    assert suite.timestamp == report["finished_at"].removesuffix("Z")
    properties = {p.name: p.value for p in suite.properties()}
    assert properties["result"] == "regression" and properties["candidate.cpu_model"] == report["candidate"]["cpu_model"]


def test_cases_that_pass_have_their_numbers(gate, junit):
    for middle in (10.0, 8.0):
        case = only(junit(gate(PASS, middle=middle)))
        assert not case.result and "95 % interval" in case.system_out


def test_more_memory_is_a_failure(gate, junit):
    (failure,) = only(junit(gate(REGRESSION, memory=2048))).result
    assert isinstance(failure, Failure) and failure.message == "more memory: 2.00 KiB instead of 1.00 KiB"
    (failure,) = only(junit(gate(REGRESSION, memory=2048, middle=12.0))).result
    assert re.fullmatch(r"slower: \+.*; more memory: 2.00 KiB instead of 1.00 KiB", failure.message)


def test_what_is_not_decided_is_skipped(gate, junit):
    (skipped,) = only(junit(gate(INCONCLUSIVE, base_noise=2, noise=2, phase=1.3))).result
    assert isinstance(skipped, Skipped) and skipped.message.startswith("not decided: ") and "95 % interval" in skipped.message


def test_what_cannot_be_compared_is_an_error(gate, junit):
    wrong = """answer '{"outcome": "failed", "failure_kind": "invalid", "reason": "<wrong> & \\"odd\\" values"}'"""
    (error,) = only(junit(gate(UNUSABLE, verify=wrong))).result
    assert isinstance(error, Error) and error.message == 'the candidate does not verify: <wrong> & "odd" values'


def test_what_is_waived_is_skipped_with_the_reason(gate, junit, tmp_path):
    name = only(junit(gate(REGRESSION, middle=12.0))).name
    (tmp_path / "waivers.toml").write_text(f'[[waive]]\ncase = "{name}"\nreason = "it checks <more>"\n')
    (skipped,) = only(junit(gate(PASS, "--waivers", tmp_path / "waivers.toml", middle=12.0))).result
    assert isinstance(skipped, Skipped) and skipped.message == "regression, waived: it checks <more>"


@pytest.fixture
def verified(attnbench, workers, tmp_path):
    """The path of what verify prints about a method that has no causal form and is wrong with some key lengths."""
    worker = workers.make(verify="""printf '%s' "$request" | grep -o '"causal":[a-z]*,"key_lengths":"[a-z0-9]*"' | while read case; do
      case "$case" in
        *uniform*) answer '{"outcome":"failed","failure_kind":"invalid","reason":"3 of 4 <rows>","excess_error":0.5,"error_tolerance":5e-4}' ;;
        *true*) answer '{"outcome":"skipped","failure_kind":"unsupported","reason":"no mask"}' ;;
        *) answer '{"outcome":"measured","excess_error":1e-7,"error_tolerance":5e-4}' ;;
      esac
    done""")
    done = attnbench.with_worker(worker)("verify", "linear", "--quick", "--format=json", "-q", code=REGRESSION)
    path = tmp_path / "verify.json"
    path.write_text(done.stdout)
    return path


def test_each_row_of_verify_is_a_case(verified, junit):
    (suite,) = junit(verified)
    rows = strict_json(verified.read_text())
    cases = list(suite)
    assert len(cases) == len(rows) and suite.name == "attnbench.verify"
    for case, row in zip(cases, rows, strict=True):
        causal = "causal" if row["causal"] else "not causal"
        assert case.name == f"{row['method']} {row['dtype']} {causal} key_lengths={row['key_lengths']}"
        kinds = [type(result) for result in case.result]
        if row["failed_case"]:
            assert kinds == [Failure] and case.result[0].message == row["verdict"]
            assert "error_tolerance: 0.0005" in case.result[0].text and '"query_len":' in case.result[0].text
        elif row["verdict"] == "agrees":
            assert kinds == [] and "value_error: 1e-07" in case.system_out
        else:
            assert kinds == [Skipped] and case.result[0].message == row["verdict"]
    assert suite.failures and suite.skipped and suite.tests > suite.failures + suite.skipped


def test_several_files_are_suites_of_one_file(gate, verified, junit):
    folder = gate(PASS)
    suites = junit(folder, folder / "gate.json", verified)
    assert [suite.name for suite in suites] == ["attnbench.gate", "attnbench.gate", "attnbench.verify"]


def test_any_text_of_a_report_is_shown_as_text(gate, junit):
    folder = gate(REGRESSION, middle=12.0)
    report = strict_json((folder / "gate.json").read_text())
    name = "a\x00\x1b[31m]]> <b>&amp;\"'\ufffe\uffff é\n\U0001f600"
    report["cases"][0] |= {"name": name}
    (folder / "gate.json").write_text(json.dumps(report))
    shown = only(junit(folder)).name
    assert shown.startswith("a  [31m]]> <b>&amp;\"'\ufffd\ufffd") and shown.endswith(" é \U0001f600")


def mutations(json_value):
    """Copies of a JSON value, each with one member replaced or removed."""
    for key in list(json_value) if isinstance(json_value, dict) else range(len(json_value)):
        for value in (None, 1e300, -1, "x", True, [], {}, [None], ["x"], [1e300, None]):
            changed = copy.copy(json_value)
            changed[key] = value
            yield changed
        if isinstance(json_value, dict):
            yield {k: v for k, v in json_value.items() if k != key}


def test_files_that_are_no_report_are_refused(gate, verified, attnbench, tmp_path):
    path = tmp_path / "odd.json"
    for content in ("", "{", "[]", "{}", "3", '{"cases": 3}', '[{"verdict": 3}]', "[" * 100, "[[[]]]", '"x"'):
        path.write_text(content)
        assert "odd.json" in attnbench("export", path, "--format=junit", code=USAGE).stderr, content
    assert "No such file" in attnbench("export", tmp_path / "none", "--format=junit", code=USAGE).stderr
    assert "gate.json" in attnbench("export", tmp_path, "--format=junit", code=USAGE).stderr
    report = strict_json((gate(REGRESSION, middle=12.0, memory=4096) / "gate.json").read_text())
    changed = list(mutations(report)) + [report | {"cases": [case]} for case in mutations(report["cases"][0])]
    changed += [[row] for row in mutations(strict_json(verified.read_text())[0])]
    codes = set()
    for content in changed:
        path.write_text(json.dumps(content))
        done = subprocess.run(attnbench.command("export", path, "--format=junit"), capture_output=True, text=True, timeout=HANG_S, check=False)
        codes.add(done.returncode)
        assert done.returncode in (PASS, USAGE), content
        if done.returncode == PASS:
            ElementTree.fromstring(done.stdout)  # noqa: S314
        else:
            assert "odd.json" in done.stderr and "expected" in done.stderr, done.stderr
    assert codes == {PASS, USAGE}
