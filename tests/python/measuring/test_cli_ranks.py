"""Tests of the axis `ranks`: cases whose sequence is split over processes, in `measure`, in sweeps, and in the commands that
read results."""

import os
import signal

import pytest
from conftest import children, group_members, process, records_in, small, wait_for, write_sweep

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two processors")

# Ranks load torch, which takes long on a busy machine.
LIMITS = {"deadline_s": 600}
CASE = small(query_len=256, heads=1, head_dim=8, deadline_s=600)


def unsupported(attnbench, *arguments):
    record = attnbench.json("measure", *arguments)
    assert (record["outcome"], record["failure_kind"]) == ("skipped", "unsupported"), record
    return record["reason"]


@pytest.mark.long
def test_a_sweep_measures_ranks_that_table_compare_and_analyse_show(attnbench, tmp_path):
    sweep = write_sweep(
        tmp_path / "ranks.toml", method=["gated-delta", "lsh"], ranks=[1, 2], query_len=256, heads=1, head_dim=8, causal=True, threads=1,
        protocol="forward_backward", limits=LIMITS, timing={"time_budget_s": 0, "max_disturbance": 1e6},
    )  # fmt: skip
    attnbench("sweep", sweep, "--out", "out")
    records = {(r["method"], r["ranks"]): r for r in records_in(tmp_path / "out")}
    assert len(records) == 4
    one, two, lsh = records["gated-delta", 1], records["gated-delta", 2], records["lsh", 2]
    assert one["outcome"] == two["outcome"] == "measured" and one["payload_bytes"] is None
    # A header, and in each direction a state and a transition [8,8].
    assert two["payload_bytes"] == 128 + 2 * 2 * 64 * 4
    assert len(two["rank_medians_ms"]) == len(two["rank_peak_extra_bytes"]) == 2
    assert two["peak_extra_bytes"] == max(two["rank_peak_extra_bytes"])
    # q, k, v and the gradient of the output, [128,8] each, and g and beta.
    assert two["input_bytes"] == two["peak_allocated_bytes"] - two["peak_extra_bytes"] == 4 * 128 * (4 * 8 + 2)
    assert two["samples"] == len(two["time_samples_ms"]) >= 5 and 0 < two["time_ci_low_ms"] <= two["time_median_ms"]
    assert two["max_rel_error"] <= two["error_tolerance"] and two["revision"] == one["revision"] and two["threads"] == 1
    assert lsh["failure_kind"] == "unsupported" and lsh["reason"].startswith("lsh cannot be split over ranks; the methods that can")
    table = attnbench("table", "out", "--columns=method,ranks,payload_bytes").stdout
    assert [line.split() for line in table.splitlines() if "gated-delta" in line] == [["gated-delta", "1"], ["gated-delta", "2", "1152"]]
    attnbench("compare", "out", "out")
    analysis = attnbench("analyse", "out").stdout
    assert "gated-delta (ranks 2)" in analysis and "took –" not in analysis
    attnbench("report", "out", "--out", "page.html")
    assert "payload_bytes" in (tmp_path / "page.html").read_text("utf-8")


def test_every_method_that_is_split_is_one_of_the_package(attnbench):
    from attnbench.distributed.operators import BY_METHOD

    reason = unsupported(attnbench, "lsh", "--ranks=2", "--causal", *CASE)
    assert sorted(reason.partition("the methods that can are ")[2].split(", ")) == sorted(BY_METHOD)


@pytest.mark.parametrize(
    ("method", "options", "reason"),
    [
        ("gated-delta:implementation=portable", {}, "gated-delta:implementation=portable: methods with options are not measured"),
        ("gated-delta", {"ranks": 4000}, "4000 ranks of 1 threads need 4000 processors, but this process has"),
        ("gated-delta", {"protocol": "decode"}, "decode is not measured with several ranks"),
        ("gated-delta", {"value_dim": 4}, "value_dim = head_dim"),
        ("gated-delta", {"packed": "uniform:3"}, "ranks are measured with packed = none alone"),
        ("sparse-sdpa", {"sinks": "true"}, "ranks are measured with sinks = false alone"),
        ("gated-delta", {"cache": "cold"}, "ranks are measured with cache = warm alone"),
        ("gated-delta", {"query_len": 255}, "query_len = 255 cannot be cut into 2 equal pieces for 2 ranks"),
        ("sparse-sdpa", {"query_len": 254}, "query_len = 254 cannot be cut into 4 equal pieces for 2 ranks"),
    ],
)
def test_a_case_that_cannot_be_split_is_unsupported_with_the_reason(attnbench, method, options, reason):
    found = unsupported(attnbench, method, "--causal", *small(**{"heads": 1, "head_dim": 8, "query_len": 256, "ranks": 2} | options))
    assert reason in found


def test_ranks_without_the_causal_mask_are_unsupported(attnbench):
    assert "causal mask alone" in unsupported(attnbench, "linear", "--ranks=2", *CASE)


def ranks_of(driver):
    """The ranks that a driver's program has started, once there are two."""
    found = [rank for program in children(driver.pid) for rank in children(program.pid)]
    return found if len(found) == 2 else None


@pytest.mark.long
def test_a_rank_that_is_killed_is_a_failure_with_its_name(attnbench):
    # Sampling would go on for longer than any test waits.
    endless = small(query_len=256, heads=1, head_dim=8, deadline_s=100000, time_budget_s=100000, noise_target=0)
    arguments = ("measure", "gated-delta", "--ranks=2", "--causal", *endless, "--format=json")
    with attnbench.running(*arguments) as driver:
        ranks = wait_for(lambda: ranks_of(driver), "two ranks", driver=driver)
        group = ranks[0].group
        # Python has replaced the program by then, so that the command line tells the ranks apart.
        killed = wait_for(lambda: next((r for r in map(process, (x.pid for x in ranks)) if r and '"rank": 1' in r.command), None), "rank 1")
        os.kill(killed.pid, signal.SIGKILL)
        output, _ = driver.communicate()
        assert driver.returncode == 1
    assert '"failure_kind":"crashed"' in output and "rank 1 of 2 ended with SIGKILL" in output
    assert not group_members(group)


@pytest.mark.long
def test_ranks_that_do_not_end_are_ended_at_the_deadline(attnbench):
    short = small(query_len=256, heads=1, head_dim=8, deadline_s=5, time_budget_s=100000)
    record = attnbench.json("measure", "gated-delta", "--ranks=2", "--causal", *short, "--noise-target=0", code=1)
    assert record["failure_kind"] == "timeout" and "rank 0" in record["reason"], record
    assert "the worker was ended" not in record["reason"]


@pytest.mark.long
def test_a_baseline_with_one_rank_runs_before_or_after(attnbench):
    record = attnbench.json(
        "measure", "gated-delta", "--ranks=2", "--causal", *CASE, "--baseline=gated-delta ranks=1"
    )
    assert record["ratio_pairing"] == "processes" and record["ratio_median"] > 0, record


def test_a_gate_refuses_ranks(attnbench, tmp_path):
    sweep = write_sweep(tmp_path / "gate.toml", method="gated-delta", ranks=2, query_len=64, causal=True, threads=1)
    message = attnbench("gate", sweep, "--calibrate", code=2).stderr
    assert "ranks = 2, expected 1: the processes of a gate take turns, which several ranks cannot" in message
