"""Tests of `attnbench verify`, which compares every method with its float64 reference."""

import os
import re
import signal

import pytest
from conftest import HANG_S, Cli, children, group_members, strict_json, wait_for, words

# A worker's answer to a case that agrees, as shell code.
AGREES = """answer '{"outcome":"measured","excess_error":1e-7,"error_tolerance":5e-4}'"""


def on_one_processor():
    # On small cases several threads mostly wait for each other.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


# Methods with and without a causal form, a form without the mask, decoding and kernels. All methods together take minutes: another
# test verifies them with --quick, and the C++ tests compare them with their references in every dtype, mask and kind of inputs.
CHOSEN = ["softmax", "linear", "linear-einsum", "linear-recurrent", "taylor", "lsh-1"]


@pytest.fixture(scope="module")
def everything(build, tmp_path_factory):
    """The rows that the whole verification of the chosen methods prints as JSON."""
    attnbench = Cli(build / "attnbench", folder=tmp_path_factory.mktemp("verify"))
    return attnbench.json("verify", *CHOSEN, preexec_fn=on_one_processor)


def test_the_chosen_methods_agree(everything):
    for row in everything:
        assert row["verdict"] == "agrees" or row["verdict"].startswith("unsupported: "), row


def test_only_what_a_method_cannot_do_is_unsupported(everything, attnbench):
    methods = attnbench.json("list", "methods")
    assert {row["method"] for row in everything} == set(CHOSEN)
    can = {method["name"]: method["capabilities"] for method in methods}
    for row in everything:
        supported = row["dtype"] in can[row["method"]]["dtypes"]
        supported &= can[row["method"]]["causal" if row["causal"] else "full"]
        assert (row["verdict"] == "agrees") == supported, row


def test_every_method_is_verified_with_every_dtype_and_mask(everything):
    rows = [(r["method"], r["dtype"], r["causal"], r["key_lengths"]) for r in everything]
    assert len(rows) == len(set(rows))
    for method in {row[0] for row in rows}:
        for dtype in ("float32", "float64", "bfloat16"):
            for causal in (False, True):
                for lengths in ("full", "uniform", "0"):
                    assert (method, dtype, causal, lengths) in rows


def test_errors_are_within_the_tolerance(everything):
    for row in everything:
        if row["verdict"] != "agrees":
            assert row["value_error"] is None and row["gradient_error"] is None
            continue
        assert 0 < row["error_tolerance"] < 0.1
        for error in ("value_error", "gradient_error"):
            assert 0 <= row[error] <= row["error_tolerance"], row
            if row["key_lengths"] == "full":
                assert row[error] > 0, "an error of exactly zero means that nothing was compared"


def test_decoding_is_verified_for_methods_that_decode(everything, attnbench):
    can = {m["name"]: m["capabilities"] for m in attnbench.json("list", "methods")}
    for row in everything:
        decodes = can[row["method"]]["decoding"] and row["verdict"] == "agrees"
        if decodes and row["causal"] and row["key_lengths"] == "full":
            assert 0 < row["decoding_error"] <= row["error_tolerance"], row
        else:
            assert row["decoding_error"] is None, row


def test_text_is_a_summary_if_every_row_agrees(attnbench):
    text = attnbench("verify", "linear-einsum", "--quick", preexec_fn=on_one_processor).stdout
    text = words(text)
    assert text.startswith("3 of 3 supported rows agree with the reference, 0 disagree; 3 rows are unsupported; ")
    assert re.search(r"errors of those that agree: values \d\.\de-\d+, gradients \d\.\de-\d+, decoding –; --verbose", text)


def test_text_lists_only_the_rows_that_disagree(attnbench, workers):
    worker = workers.make(
        verify=f"""
        answer '{{"outcome":"failed","failure_kind":"invalid","reason":"gradient of q disagrees"}}'
        cases=$(printf '%s' "$request" | grep -o '"method"' | wc -l)
        for i in $(seq 2 $cases); do {AGREES}; done
        """
    )
    attnbench = attnbench.with_worker(worker)
    text = attnbench("verify", "linear", "--quick", code=1).stdout
    row, _, summary = words(text).partition(" 5 of 6 ")
    assert "gradient of q disagrees" in row and "agrees" not in row.replace("gradient of q disagrees", "")
    assert f"5 of 6 {summary}".startswith("5 of 6 supported rows agree with the reference, 1 disagrees; 0 rows are unsupported; ")
    markdown = attnbench("verify", "linear", "--quick", "--format=markdown", code=1).stdout.splitlines()
    assert len(markdown) == 5 and markdown[3] == "" and "gradient of q disagrees" in markdown[2]
    # Formats for programs have every row.
    assert attnbench("verify", "linear", "--quick", "--format=csv", code=1).stdout.count("\n") == 1 + 6


def test_verbose_text_has_a_row_for_each_dtype_and_mask(attnbench):
    lines = attnbench("verify", "linear-einsum", "--verbose", preexec_fn=on_one_processor).stdout.splitlines()
    assert lines[0].startswith("method") and lines[0].endswith("verdict")
    rows = [line.split() for line in lines[2:] if line.startswith("linear-einsum ")]
    assert len(rows) == 18
    assert all(row[0] == "linear-einsum" for row in rows)
    assert sum(row[-1] == "agrees" for row in rows) == 9
    assert sum("unsupported:" in row for row in rows) == 9


def test_an_unknown_method_is_an_error_that_suggests_the_nearest(attnbench):
    message = attnbench("verify", "sofmax", code=2).stderr
    assert "'sofmax'" in message and "'softmax'" in message


def test_a_method_that_disagrees_makes_verify_fail(attnbench, workers):
    # The second answer is a disagreement, and then the worker ends without the other answers.
    worker = workers.make(
        verify=f"""
        {AGREES}
        answer '{{"outcome":"failed","failure_kind":"invalid","reason":"gradient of q disagrees"}}'
        echo 'out of luck' >&2
        exit 1
        """
    )
    attnbench = attnbench.with_worker(worker)
    rows = strict_json(attnbench("verify", "linear", "--format=json", code=1).stdout)
    assert len(rows) == 18
    assert "invalid" in rows[0]["verdict"] and "gradient of q disagrees" in rows[0]["verdict"]
    assert "crashed" in rows[-1]["verdict"] and "ended at an earlier case" in rows[-1]["verdict"]
    # The case that failed can be run again: it is the second of the first row, with the gradients.
    failed = rows[0]["failed_case"]
    assert failed["method"] == "linear" and failed["protocol"] == "forward_backward" and failed["query_len"] == 300
    assert {"batch", "heads", "dtype", "causal", "key_lengths", "inputs", "seed"} <= set(failed)
    done = attnbench("verify", "linear", code=1)
    assert "gradient of q disagrees" in done.stdout
    assert done.stderr == "[1/1] linear: 0 rows agree, 0 unsupported, 18 FAILED\n"


# ---------------------------------------------------------------- a worker that breaks


@pytest.mark.parametrize("options", [[], ["--quick"]])
def test_a_crash_fails_only_the_method_that_crashed(attnbench, workers, options):
    # linear crashes at its second case, whichever other methods the same worker verifies.
    worker = workers.make(
        verify=rf"""
        methods=$(printf '%s' "$request" | grep -o '"method":"[a-z]*"')
        seen=0
        for method in $methods; do
          case $method in
            *linear*) seen=$((seen + 1)); if [ $seen = 2 ]; then echo 'out of luck' >&2; kill -SEGV $$; sleep 9; fi ;;
          esac
          {AGREES}
        done
        """
    )
    rows = attnbench.with_worker(worker).json(
        "verify", "sdpa", "linear", "softmax", *options, code=1
    )
    verdicts = {}
    for row in rows:
        verdicts.setdefault(row["method"], []).append(row["verdict"])
    assert list(verdicts) == ["sdpa", "linear", "softmax"]
    assert set(verdicts["sdpa"] + verdicts["softmax"]) == {"agrees"}
    assert re.match(r"crashed at N=\d+, forward_backward: .*signal 11.*out of luck", verdicts["linear"][0])
    assert all("ended at an earlier case" in verdict for verdict in verdicts["linear"][1:])


def test_a_worker_that_hangs_is_ended_at_its_deadline_and_the_case_is_named(attnbench, workers):
    hanging = workers.make(verify=f"{AGREES}\nexec sleep 600")
    rows = attnbench.with_worker(hanging).json("verify", "linear", "--quick", "--deadline", "1", code=1)
    assert rows[0]["verdict"].startswith("timeout at N=1, forward_backward: the worker was ended at its deadline of 1 s")
    assert rows[0]["failed_case"]["protocol"] == "forward_backward"
    assert "--deadline" in attnbench("verify", "linear", "--deadline", "0", code=2).stderr


def test_an_answer_that_is_not_a_record_fails_only_its_own_case(attnbench, workers):
    worker = workers.make(
        verify=f"""
        answer '{{"no_such_column": 1}}'
        cases=$(printf '%s' "$request" | grep -o '"method"' | wc -l)
        for i in $(seq 2 $cases); do {AGREES}; done
        """
    )
    rows = attnbench.with_worker(worker).json("verify", "linear", "--quick", code=1)
    assert rows[0]["verdict"].startswith("protocol at N=1, forward: ")
    assert "no_such_column" in rows[0]["verdict"]
    assert {row["verdict"] for row in rows[1:]} == {"agrees"}


# ---------------------------------------------------------------- --quick and progress


def test_quick_verifies_every_method_and_lists_what_it_leaves_out(attnbench):
    done = attnbench("verify", "--quick", "--format=json")
    rows = strict_json(done.stdout)
    methods = [method["name"] for method in attnbench.json("list", "methods")]
    assert [row["method"] for row in rows] == [m for m in methods for _ in range(6)]
    assert {row["dtype"] for row in rows} == {"float32"}
    assert {(row["causal"], row["key_lengths"]) for row in rows} == {
        (causal, lengths) for causal in (False, True) for lengths in ("full", "uniform", "0")
    }
    can = {m["name"]: m["capabilities"] for m in attnbench.json("list", "methods")}
    for row in rows:
        supported = can[row["method"]]["causal" if row["causal"] else "full"]
        supported = supported and (row["key_lengths"] == "full" or can[row["method"]]["key_lengths"])
        assert (row["verdict"] == "agrees") == supported
        decodes = can[row["method"]]["decoding"] and row["causal"] and row["key_lengths"] == "full"
        assert (row["decoding_error"] is not None) == decodes
    lines = done.stderr.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [f"[{n}/{len(methods)}]" for n in range(1, len(methods) + 1)]
    assert [line.split()[1] for line in lines[:-1]] == [f"{method}:" for method in methods]
    for word in ("--quick left out", "float64", "bfloat16", "300 positions"):
        assert word in lines[-1]


def test_quick_starts_one_worker_for_a_subset_of_all_cases(attnbench, workers, tmp_path):
    worker = workers.make(
        verify=f"""printf '%s\\n' "$request" >> '{tmp_path}/requests'
        cases=$(printf '%s' "$request" | grep -o '"method"' | wc -l)
        for i in $(seq 1 $cases); do {AGREES}; done"""
    )
    attnbench = attnbench.with_worker(worker)
    attnbench("verify", "linear", "softmax", "--quick", "-q")

    def requests():
        text = (tmp_path / "requests").read_text()
        (tmp_path / "requests").unlink()
        # The default of memory_limit_bytes is the available memory, which differs from run to run.
        return [
            [{k: v for k, v in case.items() if k != "memory_limit_bytes"} for case in strict_json(line)]
            for line in text.splitlines()
        ]

    [quick] = requests()
    attnbench("verify", "linear", "softmax", "-q")
    linear, softmax = requests()
    assert all(case in linear + softmax for case in quick)
    assert {case["query_len"] for case in quick} == {1, 65, 70, 129, 256}
    assert len(quick) < len(linear + softmax) / 3


def test_a_line_of_progress_appears_when_a_method_is_verified(attnbench, workers):
    worker = workers.make(
        verify=f"""
        case $request in *softmax*) sleep 300 ;; esac
        cases=$(printf '%s' "$request" | grep -o '"method"' | wc -l)
        for i in $(seq 1 $cases); do {AGREES}; done"""
    )
    with attnbench.with_worker(worker).running("verify", "linear", "softmax") as driver:
        assert driver.stderr.readline() == "[1/2] linear: 18 rows agree, 0 unsupported\n"
        assert driver.poll() is None


def test_quiet_prints_only_the_table(attnbench):
    done = attnbench("verify", "softmax", "--quick", "--quiet", "--verbose")
    assert done.stderr == "" and done.stdout.count("agrees") == 6


def test_progress_on_a_terminal_rewrites_one_line(attnbench):
    _, shown = attnbench.on_terminal("verify", "softmax", "linear", "--quick", streams=["stderr"])
    states = [state for state in shown.split("\r\x1b[2K") if state]
    assert states[0] == "verifying softmax (1 of 2), float32, not causal, key lengths full"
    assert "verifying linear (2 of 2), float32, causal, key lengths 0" in states
    assert all("\n" not in state for state in states[:-1])
    assert states[-1].startswith("--quick left out")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_prints_the_rows_verified_so_far(attnbench, workers, number):
    # The first two rows have 38 cases, with those of patterns, sinks and packed sequences, and 22; the third stays incomplete. The
    # driver has a second to read the answers before the test looks for `sleep 300`.
    worker = workers.make(
        verify=f"for i in $(seq 1 61); do {AGREES}; done; sleep 1; exec sleep 300"
    )
    attnbench = attnbench.with_worker(worker)
    with attnbench.running("verify", "linear", "--format", "csv") as driver:
        [worker] = wait_for(
            lambda: [p for p in children(driver.pid) if p.command.startswith("sleep")], "the worker", driver=driver
        )
        driver.send_signal(number)
        output, message = driver.communicate(timeout=HANG_S)
    assert driver.returncode == 128 + number
    rows = output.splitlines()[1:]
    assert len(rows) == 2 and all(row.endswith(",agrees") for row in rows)
    assert "interrupted: 2 of 18 rows are verified" in message
    assert group_members(worker.group) == []
