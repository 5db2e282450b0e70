"""Tests of the rounds of a sweep: each visits every case once, in a random order, in a fresh process."""

import json
import re
import signal

import pytest
from conftest import HANG_S, log_of, records_in, strict_json, wait_for, write_sweep

CASES = [(method, n) for method in ("linear", "softmax") for n in (32, 48)]


@pytest.fixture
def rounds(tmp_path):
    """A sweep of four cases with three processes each."""
    return write_sweep(tmp_path / "rounds.toml", timing={"processes": 3})


def processes_in(folder):
    return [strict_json(line) for line in (folder / "processes.jsonl").read_text().splitlines()]


def orders_in(folder):
    """The cases in the order in which each round visited them."""
    orders = {}
    for line in processes_in(folder):
        orders.setdefault(line["round"], []).append((line["method"], line["query_len"]))
        assert line["place"] == len(orders[line["round"]])
    return list(orders.values())


def test_each_round_visits_every_case_once_in_its_own_order(canned, tmp_path, rounds):
    for name, seed in [("a", 1), ("b", 1), ("c", 2)]:
        done = canned("sweep", rounds, "--out", name, "--order-seed", seed)
        assert "c: 4 cases recorded" in done.stderr or name != "c"
    orders = orders_in(tmp_path / "a")
    assert len(orders) == 3 and all(sorted(order) == CASES for order in orders)
    assert orders_in(tmp_path / "b") == orders, "the seed gives the order"
    assert orders_in(tmp_path / "c") != orders
    assert len({tuple(order) for seed in "ac" for order in orders_in(tmp_path / seed)}) > 2
    assert strict_json((tmp_path / "a/environment.json").read_text())["order_seed"] == 1
    # Records are in the order of the plan nevertheless.
    assert [(r["method"], r["query_len"]) for r in records_in(tmp_path / "a")] == CASES


def test_a_record_is_made_from_its_processes(attnbench, workers, tmp_path, rounds):
    """Each process answers with another time."""
    answer = {"outcome": "measured", "implementation": "stand-in", "samples": 5, "warmup_calls": 1, "measured_s": 1}
    worker = workers.make(
        measure=f"n=$(ls {tmp_path} | wc -l); mktemp -p {tmp_path} >/dev/null; answer '"
        + json.dumps(answer | {"time_samples_ms": ["N"] * 5}).replace('"N"', "'$n'")
        + "'"
    )
    attnbench.with_worker(worker)("sweep", rounds, "--out", "out")
    lines = processes_in(tmp_path / "out")
    for record in records_in(tmp_path / "out"):
        mine = [line for line in lines if (line["method"], line["query_len"]) == (record["method"], record["query_len"])]
        medians = [line["time_median_ms"] for line in mine]
        assert [line["process"] for line in mine] == [1, 2, 3] and len(set(medians)) == 3
        assert record["process_medians_ms"] == medians and record["process_rounds"] == [1, 2, 3]
        assert record["time_median_ms"] == sorted(medians)[1]
        assert record["time_ci_scope"] == "range of processes" and record["samples"] == 15
        assert record["time_ci_low_ms"] == min(medians) and record["time_ci_high_ms"] == max(medians)
        assert record["process"] == 3, "the number of its processes"
        assert all(record[column] is None for column in ("round", "place", "boot", "boots"))
        assert record["host"] == mine[0]["host"]


def test_the_small_check_and_the_quality_are_those_of_the_first_process_of_a_case(attnbench, workers, tmp_path, rounds):
    worker = workers.make(measure=f'for last; do :; done; echo "$last" >> {tmp_path}/arguments; good')
    attnbench.with_worker(worker)("sweep", rounds, "--out", "out")
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments == ["--quality"] * 4 + ["--no-small-check"] * 8


def test_later_processes_are_told_which_results_the_first_has_compared(attnbench, workers, tmp_path):
    """The baseline runs beside the case, and its results have a digest of their own."""
    answer = {"outcome": "measured", "implementation": "stand-in", "samples": 5, "warmup_calls": 1, "measured_s": 1}
    answers = {name: json.dumps(answer | {"time_samples_ms": [1.0] * 5, "results_digest": name}) for name in ("softmax", "linear")}
    worker = workers.make(
        measure=f"""case "$request" in *'"method":"softmax"'*) n=softmax; a='{answers["softmax"]}';;"""
        f""" *) n=linear; a='{answers["linear"]}';; esac; echo "$n $*" >> {tmp_path}/arguments; answer "$a" """
    )
    sweep = write_sweep(tmp_path / "s.toml", method="linear", query_len=16, timing={"processes": 2, "baseline": "softmax"})
    attnbench.with_worker(worker)("sweep", sweep, "--out", "out")
    told = [re.findall(r"^\w+|--compared=\w+", line) for line in (tmp_path / "arguments").read_text().splitlines()]
    assert sorted(told[:2]) == [["linear"], ["softmax"]]
    assert sorted(told[2:]) == [["linear", "--compared=linear"], ["softmax", "--compared=softmax"]]


def test_the_flags_of_first_and_later_processes_are_ones_that_the_worker_knows(quick, tmp_path):
    sweep = write_sweep(tmp_path / "s.toml", method="linear", query_len=16, protocol=["forward", "decode"], timing={"processes": 2})
    quick("sweep", sweep, "--out", "out")
    lines = processes_in(tmp_path / "out")
    assert [line["outcome"] for line in lines] == ["measured"] * 4
    for protocol in ("forward", "decode"):
        first, later = (line for line in lines if line["protocol"] == protocol)
        assert first["results_digest"] == later["results_digest"]
        assert first["max_rel_error"] is not None and later["max_rel_error"] is None, "the same bits are compared once"


def test_a_kill_loses_one_process(attnbench, canned_worker, workers, tmp_path, rounds):
    worker = workers.make(measure=f"[ $(wc -l < {tmp_path}/out/processes.jsonl) -lt 6 ] || sleep 300; good")
    with attnbench.with_worker(worker).running("sweep", rounds, "--out", "out") as driver:
        path = tmp_path / "out/processes.jsonl"
        wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") == 6, "six processes", driver=driver)
        driver.send_signal(signal.SIGKILL)
        driver.wait(timeout=HANG_S)
    earlier = processes_in(tmp_path / "out")
    assert len(records_in(tmp_path / "out")) >= 4, "every case of the first round has a record"
    done = attnbench.with_worker(canned_worker)("sweep", rounds, "--out", "out")
    assert "[6/6]" in done.stderr
    lines = processes_in(tmp_path / "out")
    assert lines[:6] == earlier and len(lines) == 12
    assert all(len(record["process_medians_ms"]) == 3 for record in records_in(tmp_path / "out"))
    assert "all 4 cases are recorded" in attnbench.with_worker(canned_worker)("sweep", rounds, "--out", "out").stderr


def test_more_processes_continue_the_cases_and_fewer_are_refused(canned, tmp_path, rounds):
    canned("sweep", rounds, "--out", "out")
    earlier = processes_in(tmp_path / "out")
    assert "4 cases recorded" in canned("sweep", rounds, "--out", "out", "--set", "processes=5", "--exploratory").stderr
    lines = processes_in(tmp_path / "out")
    assert lines[:12] == earlier and len(lines) == 20
    for record in records_in(tmp_path / "out"):
        assert len(record["process_medians_ms"]) == 5 and record["processes"] == 5
    assert "processes: 5 there, 3 here" in canned("sweep", rounds, "--out", "out", code=5).stderr


def test_a_case_that_fails_in_a_later_round_has_failed(attnbench, workers, canned_worker, tmp_path, rounds):
    fails = 'for last; do :; done; case "$request" in *softmax*) [ "$last" = --quality ] || exit 9;; esac; good'
    attnbench.with_worker(workers.make(measure=fails))("sweep", rounds, "--out", "out", code=1)
    lines = processes_in(tmp_path / "out")
    assert len(lines) == 2 * 3 + 2 * 2, "a case that failed is not visited again"
    outcomes = {(r["method"], r["outcome"]) for r in records_in(tmp_path / "out")}
    assert outcomes == {("linear", "measured"), ("softmax", "failed")}
    attnbench.with_worker(canned_worker)("sweep", rounds, "--out", "out", "--resume", "failed")
    assert len(processes_in(tmp_path / "out")) == 12, "the processes of the failed cases were measured anew"
    assert all(len(r["process_medians_ms"]) == 3 for r in records_in(tmp_path / "out"))


@pytest.mark.parametrize(("column", "said"), [("boot", "before a reboot"), ("host", "on the host elsewhere")])
def test_rounds_from_elsewhere_are_refused_unless_asked_for_and_marked(canned, tmp_path, rounds, column, said):
    canned("sweep", rounds, "--out", "out", "--set", "processes=2")
    lines = [line | {column: "elsewhere"} for line in processes_in(tmp_path / "out")]
    (tmp_path / "out/processes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = log_of(tmp_path / "out")
    message = canned("sweep", rounds, "--out", "out", code=2).stderr
    assert said in message and "--across-boots" in message
    assert log_of(tmp_path / "out") == before
    canned("sweep", rounds, "--out", "out", "--across-boots")
    for record in records_in(tmp_path / "out"):
        assert len(record["process_medians_ms"]) == 3
        assert record["boots"] == (2 if column == "boot" else None)
        assert ("elsewhere, " in record["host"] or ", elsewhere" in record["host"]) == (column == "host")


def test_merged_shards_keep_their_processes(canned, tmp_path, rounds):
    for i in (1, 2):
        canned("sweep", rounds, "--out", f"part{i}", "--shard", f"{i}/2")
    canned("merge", "part1", "part2", "--out", "all")
    assert len(processes_in(tmp_path / "all")) == 12
    assert "4 cases recorded" in canned("sweep", rounds, "--out", "all", "--set", "processes=4", "--exploratory").stderr
    assert len(processes_in(tmp_path / "all")) == 16


def test_a_disturbed_case_does_not_remove_another(attnbench, workers, tmp_path):
    """The shorter case takes a hundred times as long in the first round, so that the longer one is
    predicted to exceed its deadline by far."""
    sweep = write_sweep(
        tmp_path / "s.toml", method="softmax", query_len=[2048, 4096], timing={"processes": 3}, limits={"deadline_s": 1}
    )
    answer = {"outcome": "measured", "implementation": "stand-in", "samples": 5, "warmup_calls": 1, "measured_s": 1}
    slow, fast = (json.dumps(answer | {"time_samples_ms": [ms] * 5}) for ms in (200.0, 2.0))
    for seed in range(1, 5):  # Some of these visit the shorter case first.
        slow_once = f'case "$request" in *2048*) mkdir {tmp_path}/{seed} && exec >&3 && echo \'{slow}\' && exit;; esac'
        worker = workers.make(measure=f"{slow_once}; answer '{fast}'", ceilings={"fma_float32_gflop_s": 500})
        attnbench.with_worker(worker)("sweep", sweep, "--out", f"out{seed}", "--order-seed", seed)
        records = records_in(tmp_path / f"out{seed}")
        assert [record["outcome"] for record in records] == ["measured"] * 2
        assert sorted(records[0]["process_medians_ms"]) == [2, 2, 200]
    assert 2048 in [processes_in(tmp_path / f"out{seed}")[0]["query_len"] for seed in range(1, 5)]


def test_quickstart_measures_in_three_rounds(attnbench):
    plan = attnbench.json("sweep", "quickstart", "--dry-run")
    assert {record["processes"] for record in plan} == {3}
