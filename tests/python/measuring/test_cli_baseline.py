"""Tests of sweeps with a baseline that takes turns with each case, of the marks on disturbed samples,
and of `doctor --noise`."""

import json
import os
import signal
import subprocess
import sys

import pytest
from conftest import ANSWER, ROOT, log_of, records_in, small, strict_json, write_sweep

DISTURBER = ROOT / "tests/support/disturber.py"


def by_case(folder):
    return {(r["method"], r["protocol"], r["query_len"]): r for r in records_in(folder)}


def test_every_case_has_a_ratio_to_the_baseline(attnbench, tmp_path):
    sweep = write_sweep(tmp_path / "s.toml", timing={"baseline": "sdpa", "processes": 2}, method=["linear", "sdpa"])
    attnbench("sweep", sweep, "--out", "out")
    records = by_case(tmp_path / "out")
    for record in records.values():
        assert record["baseline"] == "sdpa" and record["ratio_pairing"] == "turns"
        assert len(record["process_ratios"]) == 2 and record["stop_reason"] == "turns"
        assert record["ratio_ci_low"] <= record["ratio_median"] <= record["ratio_ci_high"]
        assert record["ratio_median"] > 0 and record["baseline_median_ms"] > 0
    lines = [strict_json(line) for line in (tmp_path / "out/processes.jsonl").read_text().splitlines()]
    for line in lines:
        pairs = zip(line["time_samples_ms"], line["baseline_samples_ms"], strict=False)
        ratios = sorted(a / b for a, b in pairs)
        assert ratios[0] <= line["ratio_median"] <= ratios[-1]
        assert len(line["sample_disturbances"]) == len(line["time_samples_ms"])
        assert len(line["baseline_disturbances"]) == len(line["baseline_samples_ms"])
    table = attnbench("table", "out").stdout
    assert "time / sdpa" in next(line for line in table.splitlines() if line.startswith("method"))


def test_a_baseline_that_cannot_run_leaves_the_case_alone(attnbench, tmp_path):
    sweep = write_sweep(
        tmp_path / "s.toml", timing={"baseline": "linformer"}, method="linear", causal=True, query_len=32
    )
    attnbench("sweep", sweep, "--out", "out")
    (record,) = records_in(tmp_path / "out")
    assert record["outcome"] == "measured" and record["ratio_median"] is None
    assert (record["ratio_pairing"], record["ratio_failure_kind"]) == (None, "unsupported")
    assert "causal" in record["ratio_reason"]


def test_a_baseline_that_fails_is_not_run_in_later_rounds(attnbench, workers, tmp_path):
    log = tmp_path / "log"
    body = f"""case "$request" in *'"method":"sdpa"'*) echo ran >> {log}; kill -SEGV $$ ;; *) good ;; esac"""
    sweep = write_sweep(tmp_path / "s.toml", timing={"baseline": "sdpa", "processes": 3}, method="linear", query_len=32)
    attnbench.with_worker(workers.make(measure=body))("sweep", sweep, "--out", "out")
    (record,) = records_in(tmp_path / "out")
    assert (record["ratio_pairing"], record["ratio_failure_kind"]) == (None, "crashed") and record["process"] == 3
    assert log.read_text() == "ran\n"
    row = attnbench("table", "out").stdout.splitlines()
    assert any("linear" in line and " none " in line for line in row)


def test_a_pair_that_does_not_fit_into_the_memory_runs_one_after_the_other(attnbench, tmp_path):
    axes = {"method": "linear", "query_len": 4096, "heads": 8, "head_dim": 64}
    alone = write_sweep(tmp_path / "alone.toml", **axes)
    (planned,) = attnbench.json("sweep", alone, "--dry-run")
    limit = int(1.5 * planned["predicted_peak_bytes"])
    sweep = write_sweep(
        tmp_path / "s.toml", timing={"baseline": "linear causal=true"}, limits={"memory_limit_bytes": limit}, **axes
    )
    attnbench("sweep", sweep, "--out", "out")
    (record,) = records_in(tmp_path / "out")
    assert record["ratio_pairing"] == "processes" and record["ratio_median"] > 0


def test_a_folder_of_another_baseline_is_refused(canned, tmp_path):
    sweep = write_sweep(tmp_path / "s.toml", timing={"baseline": "sdpa"})
    canned("sweep", sweep, "--out", "out")
    message = canned("sweep", sweep, "--out", "out", "--set", "timing.baseline=linear", code=5).stderr
    assert 'baselines: ["sdpa"] there, ["linear"] here' in message
    canned("sweep", sweep, "--out", "out")


def test_shards_of_other_baselines_are_not_merged(canned, tmp_path):
    sweep = write_sweep(tmp_path / "s.toml", timing={"baseline": "sdpa"})
    canned("sweep", sweep, "--out", "1", "--shard", "1/2")
    canned("sweep", sweep, "--out", "2", "--shard", "2/2", "--set", "timing.baseline=linear")
    message = canned("merge", "1", "2", "--out", "both", code=2).stderr
    assert 'baselines: ["sdpa"] there, ["linear"] here' in message


def test_measure_takes_a_baseline(attnbench):
    record = attnbench.json("measure", "linear", "--baseline", "sdpa", *small())
    assert record["ratio_pairing"] == "turns" and record["ratio_median"] > 0
    message = attnbench("measure", "linear", "--baseline", "sdpa fast", *small(), code=2).stderr
    assert "'fast' is not an axis with a value" in message
    message = attnbench("measure", "linear", "--baseline", "sdqa", *small(), code=2).stderr
    assert "unknown method 'sdqa'; did you mean 'sdpa'?" in message


@pytest.fixture
def disturbed(request):
    """Keeps all processors busy while the test runs."""
    disturber = subprocess.Popen(
        [sys.executable, DISTURBER, "--seconds", "600", "--share", "1", "--kind", "core"], start_new_session=True
    )
    yield
    os.killpg(disturber.pid, signal.SIGKILL)
    disturber.wait()


def test_samples_beside_a_busy_program_are_marked(attnbench, disturbed):
    record = attnbench.json("measure", "linear", "--query-len", "1024", "--time-budget-s", "1.5")
    shares = record["sample_disturbances"]
    assert len(shares) == len(record["time_samples_ms"]) == record["samples"]
    marked = [share > record["max_disturbance"] for share in shares]
    assert record["disturbed_samples"] == sum(marked) > 0
    assert record["run_delay_share"] > 0 and record["involuntary_switches"] > 0
    kept = [time for time, mark in zip(record["time_samples_ms"], marked, strict=True) if not mark]
    assert record["disturbed_processes"] == (1 if len(kept) < 3 else 0)
    counting = kept if len(kept) >= 3 else record["time_samples_ms"]
    assert min(counting) <= record["time_median_ms"] <= max(counting)


def test_doctor_says_how_noisy_the_machine_is(attnbench):
    text = attnbench("doctor", "--noise", "--seconds", "0.5").stdout
    assert "over 0.5 s of work that is always the same" in text and "what helps" in text
    report = attnbench.json("doctor", "--noise", "--seconds", "0.5")
    assert report["samples"] >= 10 and report["median_ms"] > 0 and 0 <= report["disturbed_share"] <= 1
    assert all(sentence.endswith(".") for sentence in report["advice"]) and report["advice"]
    assert "--seconds" in attnbench("doctor", "--seconds", "1", code=2).stderr


def test_a_worker_that_measures_no_noise_is_an_error(attnbench, workers):
    worker = workers.make(noise="answer '{\"time_samples_ms\": [1, 2]}'")
    message = attnbench.with_worker(worker)("doctor", "--noise", "--seconds", "0.1", code=1).stderr
    assert "noise` broke: its answer cannot be read: it has fewer than ten samples" in message


def test_cases_that_stayed_disturbed_are_measured_again(attnbench, workers, tmp_path):
    """The second process of each case is disturbed; the fifth replaces it."""
    answer = ANSWER | {"sample_disturbances": [0.0] * 5}
    calm, disturbed = json.dumps(answer), json.dumps(answer | {"sample_disturbances": [1.0] * 5})
    worker = workers.make(
        measure=f"n=$(ls {tmp_path} | grep -c ^process); mktemp -p {tmp_path} process.XXXXXX >/dev/null\n"
        f"if [ $n = 1 ]; then answer '{disturbed}'; else answer '{calm}'; fi"
    )
    sweep = write_sweep(tmp_path / "s.toml", timing={"processes": 4}, method="linear", query_len=32)
    done = attnbench.with_worker(worker)("sweep", sweep, "--out", "out", "--exploratory")
    lines = [strict_json(line) for line in (tmp_path / "out/processes.jsonl").read_text().splitlines()]
    assert [line["disturbed_processes"] for line in lines] == [0, 1, 0, 0, 0]
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5]
    (record,) = records_in(tmp_path / "out")
    assert len(record["process_medians_ms"]) == 4 and record["disturbed_processes"] == 1
    progress = [line for line in done.stderr.splitlines() if line.startswith("[")]
    assert [line.split()[0] for line in progress] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]", "[5/5]"]
    why = "(1 process added in place of a disturbed one)"
    assert progress[-1].endswith(why) and done.stderr.count(why) == 1
    assert "1 of 1 case has processes that were disturbed" in done.stderr
    before = log_of(tmp_path / "out")
    again = attnbench.with_worker(worker)("sweep", sweep, "--out", "out", "--exploratory")
    assert "the only case is recorded" in again.stderr and log_of(tmp_path / "out") == before


def test_a_case_that_stays_disturbed_ends_nevertheless(attnbench, workers, tmp_path):
    answer = json.dumps(ANSWER | {"sample_disturbances": [1.0] * 5})
    worker = workers.make(measure=f"answer '{answer}'")
    sweep = write_sweep(tmp_path / "s.toml", timing={"processes": 4}, method="linear", query_len=32)
    attnbench.with_worker(worker)("sweep", sweep, "--out", "out", "--exploratory")
    (record,) = records_in(tmp_path / "out")
    assert len(record["process_medians_ms"]) == record["disturbed_processes"] == 5
    assert record["time_median_ms"] == 1.1
