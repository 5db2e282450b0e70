"""`attnbench verify`: every method against its float64 reference."""

import os

import pytest
from conftest import Cli, strict_json


def on_one_processor():
    # Small cases on several threads mostly wait for each other.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@pytest.fixture(scope="module")
def everything(build, tmp_path_factory):
    attnbench = Cli(build / "attnbench", folder=tmp_path_factory.mktemp("verify"))
    return attnbench.json("verify", preexec_fn=on_one_processor)


def test_every_method_agrees(everything):
    for row in everything:
        assert row["verdict"] == "agrees" or row["verdict"].startswith("unsupported: "), row


def test_only_what_a_method_cannot_do_is_unsupported(everything, attnbench):
    methods = attnbench.json("list", "methods")
    assert {row["method"] for row in everything} == {method["name"] for method in methods}
    can = {method["name"]: method["capabilities"] for method in methods}
    for row in everything:
        supported = row["dtype"] in can[row["method"]]["dtypes"]
        supported &= can[row["method"]]["causal" if row["causal"] else "full"]
        assert (row["verdict"] == "agrees") == supported, row


def test_every_row_of_every_method_is_there(everything):
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
                assert row[error] > 0, "an error of zero was never computed"


def test_decoding_is_verified_where_there_is_any(everything, attnbench):
    can = {m["name"]: m["capabilities"] for m in attnbench.json("list", "methods")}
    for row in everything:
        decodes = can[row["method"]]["decoding"] and row["verdict"] == "agrees"
        if decodes and row["causal"] and row["key_lengths"] == "full":
            assert 0 < row["decoding_error"] <= row["error_tolerance"], row
        else:
            assert row["decoding_error"] is None, row


def test_text_of_one_method(attnbench):
    lines = attnbench("verify", "linear-einsum", preexec_fn=on_one_processor).stdout.splitlines()
    assert lines[0].startswith("method") and lines[0].endswith("verdict")
    assert "decoding error" in lines[0]
    rows = [line.split() for line in lines[2:]]
    assert len(rows) == 18
    assert all(row[0] == "linear-einsum" for row in rows)
    assert sum(row[-1] == "agrees" for row in rows) == 9
    assert sum("unsupported:" in row for row in rows) == 9


def test_unknown_method(attnbench):
    message = attnbench("verify", "sofmax", code=2).stderr
    assert "'sofmax'" in message and "'softmax'" in message


def test_a_method_that_disagrees_fails(attnbench, workers):
    # Two answers are wrong, and the rest is missing.
    worker = workers.make(
        verify="""
        answer '{"outcome":"measured","max_rel_error":1e-7,"error_tolerance":5e-4}'
        answer '{"outcome":"failed","failure_kind":"invalid","reason":"gradient of q disagrees"}'
        echo 'out of luck' >&2
        exit 1
        """
    )
    attnbench = attnbench.with_worker(worker)
    rows = strict_json(attnbench("verify", "linear", "--json", code=1).stdout)
    assert len(rows) == 18
    assert "invalid" in rows[0]["verdict"] and "gradient of q disagrees" in rows[0]["verdict"]
    assert "crashed" in rows[-1]["verdict"] and "out of luck" in rows[-1]["verdict"]
    assert "gradient of q disagrees" in attnbench("verify", "linear", code=1).stdout
