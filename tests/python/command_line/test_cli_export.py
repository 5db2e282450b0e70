"""Tests of `attnbench export`: the JSON of Google Benchmark, compared with what its documentation and
its tools/compare.py expect of it, and with the records."""

import json
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HANG_S, ROOT, change_records, records_in, strict_json, write_sweep

USAGE = 2
REPEAT = next((ROOT / "results/repeat").iterdir())

# The types of the values in a row, by key; a row has these keys and those of its run type, and
# numbers as counters of the user.
ROW = {
    "name": str, "family_index": int, "per_family_instance_index": int, "run_name": str, "run_type": str,
    "repetitions": int, "threads": int, "iterations": int, "real_time": float, "cpu_time": float, "time_unit": str,
}  # fmt: skip
ITERATION = ROW | {"repetition_index": int}
AGGREGATE = ROW | {"aggregate_name": str, "aggregate_unit": str}
CONTEXT = {
    "date": str, "host_name": str, "executable": str, "num_cpus": int, "mhz_per_cpu": int,
    "cpu_scaling_enabled": bool, "caches": list, "load_avg": list, "library_build_type": str,
}  # fmt: skip


def check_schema(exported):
    for key, kind in CONTEXT.items():
        assert type(exported["context"][key]) is kind, key
    for row in exported["benchmarks"]:
        keys = ITERATION if row["run_type"] == "iteration" else AGGREGATE
        for key, kind in keys.items():
            assert type(row[key]) is kind or (kind is float and type(row[key]) is int), f"{key} of {row}"
        assert all(type(value) in (int, float) for key, value in row.items() if key not in keys), row
        assert row["run_type"] in ("iteration", "aggregate") and row["time_unit"] in ("ns", "us", "ms", "s")
        suffix = "" if row["run_type"] == "iteration" else "_" + row["aggregate_name"]
        assert row["name"] == row["run_name"] + suffix


@pytest.fixture
def exported(attnbench):
    """exported(folders…) is what the command prints, after a check of its form."""

    def run(*words):
        done = attnbench("export", *words, "--format=google-benchmark")
        made = strict_json(done.stdout)
        check_schema(made)
        return made

    return run


def test_each_process_is_a_row_and_each_case_has_aggregates(exported):
    folder = REPEAT / "run-1"
    made = exported(folder)
    records = records_in(folder)
    rows = made["benchmarks"]
    processes = [json.loads(line) for line in (folder / "processes.jsonl").read_text().splitlines()]
    assert len([row for row in rows if row["run_type"] == "iteration"]) == len(processes)
    names = list(dict.fromkeys(row["run_name"] for row in rows))
    assert len(names) == len(records), "each case has a name of its own"
    for name, record in zip(names, records, strict=True):
        of_case = [row for row in rows if row["run_name"] == name]
        repetitions = [row for row in of_case if row["run_type"] == "iteration"]
        assert name.startswith(f"{record['method']}/{record['protocol']}/query_len:{record['query_len']}/")
        assert name.endswith(f"/threads:{record['threads']}")
        if record["protocol"] != "decode":  # which is always causal
            assert ("/causal:true/" in name) == record["causal"]
        assert [row["repetition_index"] for row in repetitions] == list(range(len(repetitions)))
        assert {row["repetitions"] for row in of_case} == {len(repetitions)}
        values = {row["aggregate_name"]: row["real_time"] for row in of_case if row["run_type"] == "aggregate"}
        medians = record["process_medians_ms"]
        assert values["median"] == record["time_median_ms"]
        assert values["mean"] == pytest.approx(statistics.mean(medians))
        assert values["stddev"] == pytest.approx(statistics.stdev(medians))
        assert values["cv"] == pytest.approx(statistics.stdev(medians) / statistics.mean(medians))
        assert set(medians) <= {row["real_time"] for row in repetitions}
        own = [p for p in processes if all(p[axis] == record[axis] for axis in ("method", "query_len", "causal", "protocol", "batch"))]
        for row, process in zip(repetitions, own, strict=True):
            assert row["real_time"] == process["time_median_ms"]
            assert row["iterations"] == process["samples"] * process["calls_per_sample"]
            assert row["cpu_time"] == pytest.approx(process["time_median_ms"] * process["processor_share"] * process["threads"])
    context = made["context"]
    assert context["date"] == max(record["finished_at"] for record in records).replace("Z", "+00:00")
    assert context["num_cpus"] == records[0]["processors"] and context["cpu_model"] == records[0]["cpu_model"]
    assert context["library_build_type"] == "release" and context["revision"] == records[0]["revision"]


def test_aggregates_alone_give_a_dashboard_one_median_for_a_case(exported):
    made = exported(REPEAT / "run-1", "--aggregates-only")
    medians = [row for row in made["benchmarks"] if row.get("aggregate_name") == "median"]
    assert {row["run_type"] for row in made["benchmarks"]} == {"aggregate"}
    assert [row["real_time"] for row in medians] == [r["time_median_ms"] for r in records_in(REPEAT / "run-1")]


COMPARE = Path("/usr/share/benchmark/compare.py")


@pytest.mark.skipif(not COMPARE.is_file(), reason="Google Benchmark's compare.py is not installed")
def test_the_comparison_of_google_benchmark_reads_it(attnbench, tmp_path):
    for run in ("run-1", "run-2"):
        attnbench("export", REPEAT / run, "--out", tmp_path / f"{run}.json")
    words = [sys.executable, COMPARE, "--no-color", "benchmarks", tmp_path / "run-1.json", tmp_path / "run-2.json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = re.findall(r"^linear/forward/query_len:2048\S*_median +([+-]\S+)", done.stdout, re.M)
    medians = [next(r["time_median_ms"] for r in records_in(REPEAT / run) if (r["method"], r["protocol"], r["query_len"], r["causal"])
                    == ("linear", "forward", 2048, False)) for run in ("run-1", "run-2")]  # fmt: skip
    assert float(line) == pytest.approx(medians[1] / medians[0] - 1, abs=1e-3)


@pytest.fixture
def measured(canned, tmp_path):
    """A folder of two cases of one process, one of which has failed."""
    sweep = write_sweep(tmp_path / "small.toml", method="linear", query_len=[32, 48])
    canned("sweep", sweep, "--out", tmp_path / "out", "-q")
    lines = (tmp_path / "out/records.jsonl").read_text().splitlines()
    failed = json.loads(lines[1]) | {"outcome": "failed", "failure_kind": "crashed", "reason": "x", "time_median_ms": None}
    (tmp_path / "out/records.jsonl").write_text(lines[0] + "\n" + json.dumps(failed) + "\n")
    return tmp_path / "out"


def test_a_case_of_one_process_has_no_aggregates(exported, measured):
    (row,) = exported(measured)["benchmarks"]
    assert row["name"] == row["run_name"] == "linear/forward/query_len:32/heads:2/head_dim:16/threads:1"
    assert row["run_type"] == "iteration" and row["repetitions"] == 1 and row["peak_extra_bytes"] == 2048
    assert exported(measured, "--aggregates-only")["benchmarks"] == [row], "there is no aggregate to take its place"


def test_what_was_not_measured_here_is_left_out_and_said(attnbench, measured):
    done = attnbench("export", measured)
    assert "1 record is left out, because it was not measured" in done.stderr
    change_records(measured, external_source="a paper")
    assert "holds no case that was measured" in attnbench("export", measured, code=USAGE).stderr


def test_older_folders_have_no_lines_of_processes(exported, attnbench, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "records.jsonl").write_bytes((REPEAT / "run-1/records.jsonl").read_bytes())
    rows = exported(folder)["benchmarks"]
    record = records_in(folder)[0]
    first = [row for row in rows if row["run_name"] == rows[0]["run_name"] and row["run_type"] == "iteration"]
    assert [row["real_time"] for row in first] == record["process_medians_ms"]
    assert exported(folder / "records.jsonl")["benchmarks"] == rows
    for old in (ROOT / "results/figure1").iterdir():
        assert exported(old)["benchmarks"]


def test_several_folders_become_one_file_unless_they_share_a_case(attnbench, exported, tmp_path):
    (decode,) = (ROOT / "results/decode").iterdir()
    rows = exported(REPEAT / "run-1", decode)["benchmarks"]
    assert len(rows) == len(exported(REPEAT / "run-1")["benchmarks"]) + len(exported(decode)["benchmarks"])
    failed = attnbench("export", REPEAT / "run-1", REPEAT / "run-2", code=USAGE).stderr
    assert "run-1 and " in failed and "run-2 both have the case " in failed and "expected one measurement" in failed
    out = tmp_path / "made.json"
    attnbench("export", decode, "--out", out)
    assert strict_json(out.read_text()) == exported(decode)


def test_wrong_words_are_refused(attnbench, tmp_path):
    assert "google-benchmark" in attnbench("export", REPEAT / "run-1", "--format=xml", code=USAGE).stderr
    assert "no such file" in attnbench("export", tmp_path / "none", code=USAGE).stderr
    failed = attnbench("export", REPEAT / "run-1", "--out", tmp_path / "none/made.json", code=USAGE).stderr
    assert "made.json" in failed


# What tools/compare.py of Google Benchmark does with two files (report.py, as tools.md documents it): it takes the rows that have
# these keys, compares those of equal names, and tests the repetitions of one name for a difference.
def partitions(exported):
    comparable = [row for row in exported["benchmarks"] if all(key in row for key in ("time_unit", "real_time", "cpu_time"))]
    names = dict.fromkeys(row["name"] for row in comparable)
    return {name: [row for row in comparable if row["name"] == name] for name in names}


def test_two_runs_can_be_compared_as_compare_py_does(exported):
    before, after = partitions(exported(REPEAT / "run-1")), partitions(exported(REPEAT / "run-2"))
    assert list(before) == list(after)
    for name in before:
        for a, b in zip(before[name], after[name], strict=False):
            assert a["time_unit"] == b["time_unit"] and a["run_type"] == b["run_type"] and a["real_time"] > 0


def test_a_folder_of_machines_is_exported_as_a_whole(exported, attnbench, measured, tmp_path):
    (tmp_path / "all").mkdir()
    measured.rename(tmp_path / "all/one")
    assert exported(tmp_path / "all")["benchmarks"] == exported(tmp_path / "all/one")["benchmarks"]
    shutil.copytree(tmp_path / "all/one", tmp_path / "all/two")
    message = attnbench("export", "all", code=USAGE).stderr
    assert "all/one and all/two both have the case linear/forward/query_len:32" in message
    change_records(tmp_path / "all/two", threads=7)
    assert len(exported("all")["benchmarks"]) == 2
