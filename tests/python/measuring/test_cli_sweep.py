"""Tests of `attnbench sweep`, which turns a sweep file into a folder of records."""

import csv
import json
import os
import re

import pytest
from conftest import kept_lines, log_of, records_in, strict_json, write_sweep

CASES = [("linear", 32), ("linear", 48), ("softmax", 32), ("softmax", 48)]


def cases_of(records):
    return [(record["method"], record["query_len"]) for record in records]


def dry_run(attnbench, *arguments):
    """The records that a dry run plans."""
    return attnbench.json("sweep", *arguments, "--dry-run")


# ---------------------------------------------------------------- a whole run


def test_a_sweep_writes_records_environment_schema_and_csv(attnbench, tmp_path, sweep):
    attnbench("sweep", sweep, "--out", "out")
    out = tmp_path / "out"
    records = records_in(out)
    assert cases_of(records) == CASES
    columns = attnbench.json("list", "schema")["columns"]
    columns = [c for c in columns if c["name"] != "injected_slowdown_percent"]  # not set here
    for record in records:
        assert list(record) == [column["name"] for column in columns]
        assert record["outcome"] == "measured", record["reason"]
        assert record["samples"] == len(record["time_samples_ms"]) >= 5
        assert record["predicted_time_ms"] > 0 and record["predicted_peak_bytes"] > 0
        assert record["time_budget_s"] == 0.02 and record["warmup_s"] == 0

    environment = strict_json((out / "environment.json").read_text())
    assert environment["sweep"] == "small"
    assert environment["description"] == "a test"
    assert environment["settings"]["time_budget_s"] == 0.02
    assert environment["ceilings"]["read_gb_s"] > 0
    assert environment["machine"]["system"].endswith(f"Linux {os.uname().release}")
    assert environment["machine"]["memory_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name, value in environment["environment"].items():
        assert all(record[name] == value for record in records), name

    assert strict_json((out / "schema.json").read_text()) == attnbench.json("list", "schema")
    check_csv(out, columns, records)


def test_the_folder_holds_each_command_that_measured_into_it(attnbench, tmp_path, sweep):
    words = ("sweep", sweep, "--set", "query_len=32")
    for method in ("linear", "softmax", "linear"):
        attnbench(*words, "--methods", method, "--out", "out", "--quiet")
    environment = strict_json((tmp_path / "out/environment.json").read_text())
    assert environment["commands"] == [
        f"attnbench sweep {sweep} --methods {method} --set query_len=32" for method in ("linear", "softmax")
    ]


def check_csv(out, columns, records):
    with open(out / "records.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    kept = [c for c in columns if c["type"] not in ("numbers", "numbers by name")]
    assert rows[0] == [column["name"] for column in kept]
    assert len(rows) == 1 + len(records)
    for row, record in zip(rows[1:], records, strict=True):
        for cell, column in zip(row, kept, strict=True):
            value = record[column["name"]]
            if value is None:
                assert cell == ""
            elif column["type"] == "text":
                formula = value.startswith(("=", "+", "-", "@"))
                assert cell == ("'" + value if formula else value)
            else:
                assert strict_json(cell) == value


def test_a_second_run_runs_no_case_and_changes_no_file(quick, workers, tmp_path, sweep):
    quick("sweep", sweep, "--out", "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    never = workers.make(measure="echo 'must not run' >&2; exit 1")
    done = quick.with_worker(never)("sweep", sweep, "--out", "out")
    assert "4 cases" in done.stderr
    after = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    for name in ("records.jsonl", "records.csv", "environment.json"):
        assert after[name] == before[name], name


@pytest.mark.parametrize("name", ["kernel", "implementation"])
def test_records_with_the_former_name_of_an_option_are_those_of_the_same_cases(
    quick, workers, tmp_path, name
):
    def sweep_of(option):
        return write_sweep(tmp_path / "of.toml", method=f"linear:{option}=portable", query_len=32)

    quick("sweep", sweep_of(name), "--out", "out")
    (record,) = records_in(tmp_path / "out")
    assert record["method"] == "linear:implementation=portable"
    assert record["outcome"] == "measured" and record["implementation"] == "kernel/portable"
    for path in (tmp_path / "out").glob("*.jsonl"):
        text = path.read_text()
        assert "linear:implementation=portable" in text, path
        path.write_text(text.replace("linear:implementation=portable", "linear:kernel=portable"))
    never = workers.make(measure="echo 'must not run' >&2; exit 1")
    for other in ("kernel", "implementation"):
        done = quick.with_worker(never)("sweep", sweep_of(other), "--out", "out")
        assert "the only case is recorded" in done.stderr


def test_only_missing_cases_are_run(canned, tmp_path, sweep):
    canned("sweep", sweep, "--out", "out", "--methods", "softmax")
    first = log_of(tmp_path / "out")
    canned("sweep", sweep, "--out", "out")
    assert kept_lines(first, log_of(tmp_path / "out"))
    assert cases_of(records_in(tmp_path / "out")) == CASES, "in the order of the plan"


def test_cases_that_differ_in_any_axis_are_recorded_separately(canned, tmp_path, sweep):
    axes = {"causal": [False, True], "protocol": ["forward", "forward_backward"], "seed": [0, 1]}
    axes |= {"key_lengths": ["full", "uniform"], "dtype": ["float32", "float64"]}
    everything = write_sweep(tmp_path / "all.toml", method="linear", query_len=32, **axes)
    canned("sweep", everything, "--out", "out")
    records = records_in(tmp_path / "out")
    assert len({tuple(record[axis] for axis in axes) for record in records}) == len(records) == 32


def test_the_default_folder_is_named_after_sweep_and_machine(canned, tmp_path, sweep, workers):
    canned("sweep", sweep)
    (machine,) = (tmp_path / "results/small").iterdir()
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", machine.name)
    assert machine.name.endswith(f"-{workers.environment['processors']}-threads")
    assert len(records_in(machine)) == 4


def test_published_values_are_in_the_records_of_their_cases(canned, tmp_path):
    (tmp_path / "paper.csv").write_text(
        "method,query_len,time_ms,memory_bytes,outcome,source\n"
        'softmax,32,1.5,2048,measured,"the paper, page 6"\n'
        "softmax,48,,,oom,the paper\n"
    )
    canned("sweep", write_sweep(tmp_path / "s.toml", published="paper.csv"), "--out", "out")
    records = {case: r for case, r in zip(CASES, records_in(tmp_path / "out"), strict=True)}
    softmax = records["softmax", 32]
    assert softmax["published_time_ms"] == 1.5 and softmax["published_memory_bytes"] == 2048
    assert softmax["published_source"] == "the paper, page 6"
    assert records["softmax", 48]["published_outcome"] == "oom"
    assert records["linear", 32]["published_outcome"] is None
    assert "1.50 ms" in canned("table", "out").stdout


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("method,speed\nlinear,1\n", ":1:", ["'speed'", "time_ms"]),
        ("method,time_ms\nlinear,1\nsoftmax,fast\n", ":3:", ["time_ms", "'fast'", "number"]),
        ("method,time_ms\nlinear\n", ":2:", ["1 cell", "expected 2"]),
        ('method,source\nlinear,"open\n', ":2:", ["quote"]),
        ("", ":", ["empty"]),
    ],
)
def test_an_error_in_published_values_names_its_place(
    canned, tmp_path, text, place, words
):
    (tmp_path / "paper.csv").write_text(text)
    sweep = write_sweep(tmp_path / "s.toml", published="paper.csv")
    message = canned("sweep", sweep, "--out", "out", code=2).stderr
    assert f"paper.csv{place}" in message
    for word in words:
        assert word in message
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- --resume


def test_resume_failed_runs_failed_cases_again(attnbench, workers, canned_worker, tmp_path, sweep):
    half = workers.make(measure='case "$request" in *softmax*) exit 9 ;; *) good ;; esac')
    attnbench.with_worker(half)("sweep", sweep, "--out", "out", code=1)
    first = log_of(tmp_path / "out")
    assert [r["outcome"] for r in records_in(tmp_path / "out")] == ["measured"] * 2 + ["failed"] * 2

    canned = attnbench.with_worker(canned_worker)
    # By default (--resume missing) a failed case is not run again.
    canned("sweep", sweep, "--out", "out")
    assert log_of(tmp_path / "out") == first
    canned("sweep", sweep, "--out", "out", "--resume", "failed")
    lines = records_in(tmp_path / "out")
    assert cases_of(lines) == CASES and lines[:2] == [strict_json(line) for line in first.splitlines()[:2]]
    table = canned.json("table", "out")
    assert cases_of(table) == CASES
    assert all(record["outcome"] == "measured" for record in table)
    assert "failed" not in canned("table", "out").stdout
    with open(tmp_path / "out/records.csv", newline="") as file:
        assert [row["outcome"] for row in csv.DictReader(file)] == ["measured"] * 4
    canned("sweep", sweep, "--out", "out", "--resume", "failed")
    assert records_in(tmp_path / "out") == lines


def test_resume_all_runs_every_case_again(attnbench, workers, tmp_path, sweep):
    def answering(milliseconds):
        """The driver with a worker that answers every case with this time."""
        one = workers.make(
            measure="answer '" + json.dumps({
                "outcome": "measured", "implementation": "stand-in", "samples": 5,
                "time_samples_ms": [milliseconds] * 5,
            }) + "'"
        )  # fmt: skip
        return attnbench.with_worker(one)

    answering(1.5)("sweep", sweep, "--out", "out")
    answering(2.5)("sweep", sweep, "--out", "out", "--resume", "all")
    assert len(records_in(tmp_path / "out")) == 4
    table = attnbench.json("table", "out")
    assert [record["time_median_ms"] for record in table] == [2.5] * 4


def test_an_unknown_value_of_resume_is_refused(canned, sweep):
    message = canned("sweep", sweep, "--resume", "some", code=2).stderr
    assert "some" in message and "missing" in message and "failed" in message


# ---------------------------------------------------------------- other settings or builds


@pytest.mark.parametrize(
    ("setting", "difference"),
    [
        ("timing.time_budget_s=0.03", "time_budget_s: 0.02 there, 0.03 here"),
        ("timing.min_samples=9", "min_samples: 5 there, 9 here"),
        ('limits.memory_limit_bytes="4 GiB"', "memory_limit_bytes: 0 there, 4294967296 here"),
    ],
)
def test_records_of_other_settings_are_not_mixed(canned, tmp_path, sweep, setting, difference):
    canned("sweep", sweep, "--out", "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    message = canned("sweep", sweep, "--out", "out", "--set", setting, code=5).stderr
    assert difference in message
    assert "--out" in message and "--resume stale" in message
    for name in ("records.jsonl", "records.csv", "environment.json"):
        assert (tmp_path / "out" / name).read_bytes() == before[name]


def test_records_of_another_build_are_not_mixed(attnbench, canned, workers, tmp_path, sweep):
    canned("sweep", sweep, "--out", "out")
    before = log_of(tmp_path / "out")
    newer = attnbench.with_worker(
        workers.make(measure="good", environment={"revision": "fedcba987654"})
    )
    message = newer("sweep", sweep, "--out", "out", "--set", "seed=1", code=5).stderr
    revision = workers.environment["revision"]
    assert f'revision: "{revision}" there, "fedcba987654" here' in message
    assert log_of(tmp_path / "out") == before
    newer("sweep", sweep, "--out", "out", "--resume", "stale")
    assert all(r["revision"] == "fedcba987654" for r in attnbench.json("table", "out"))
    # Records of the same build are not measured again.
    after = log_of(tmp_path / "out")
    newer("sweep", sweep, "--out", "out", "--resume", "stale")
    assert log_of(tmp_path / "out") == after


def test_ceilings_of_another_machine_are_set_aside_with_its_records(attnbench, canned, workers, tmp_path, sweep):
    canned("sweep", sweep, "--out", "out")
    file = tmp_path / "out/environment.json"
    older = json.loads(file.read_text())
    older["ceilings"]["read_gb_s"] = older["ceilings_of_rounds"][0]["read_gb_s"] = 1e9
    file.write_text(json.dumps(older))
    newer = attnbench.with_worker(workers.make(measure="good", environment={"cpu_model": "another"}))
    newer("sweep", sweep, "--out", "out", "--resume", "stale")
    now = json.loads(file.read_text())
    assert [c["read_gb_s"] < 1e9 for c in [now["ceilings"], *now["ceilings_of_rounds"]]] == [True] * 2
    assert json.loads((tmp_path / "out/environment.previous.json").read_text()) == older


def test_records_of_two_states_of_a_working_tree_are_not_mixed(attnbench, canned, workers, tmp_path, sweep):
    edited = {"dirty": True, "changes_digest": "0123456789ab"}
    attnbench.with_worker(workers.make(measure="good", environment=edited))("sweep", sweep, "--out", "out")
    again = attnbench.with_worker(workers.make(measure="good", environment=edited | {"changes_digest": "ba9876543210"}))
    message = again("sweep", sweep, "--out", "out", code=5).stderr
    assert 'changes_digest: "0123456789ab" there, "ba9876543210" here' in message


def test_records_of_another_environment_are_not_mixed(canned, tmp_path, sweep):
    canned("sweep", sweep, "--out", "out")
    before = log_of(tmp_path / "out")
    path = tmp_path / "out/environment.json"
    environment = json.loads(path.read_text())
    environment["environment"]["cpu_model"] = "Abacus"
    path.write_text(json.dumps(environment))
    message = canned("sweep", sweep, "--out", "out", code=5).stderr
    assert 'cpu_model: "Abacus" there' in message
    assert log_of(tmp_path / "out") == before


@pytest.mark.parametrize("text", ["", "{", "[1]", "\0" * 100])
def test_an_unreadable_environment_is_an_error_that_names_the_file(canned, tmp_path, sweep, text):
    canned("sweep", sweep, "--out", "out")
    before = log_of(tmp_path / "out")
    (tmp_path / "out/environment.json").write_text(text)
    message = canned("sweep", sweep, "--out", "out", code=2).stderr
    assert "environment.json" in message
    assert log_of(tmp_path / "out") == before


# ---------------------------------------------------------------- --methods and --set


@pytest.mark.parametrize(
    ("given", "methods"),
    [
        (["--methods", "sdpa"], ["sdpa"]),
        (["--methods", "sdpa,softmax"], ["sdpa", "softmax"]),
        (["--methods", "sdpa", "--methods", "softmax"], ["sdpa", "softmax"]),
        (["--methods", "linear-chunked:chunk=8,softmax"], ["linear-chunked:chunk=8", "softmax"]),
    ],
)
def test_methods_replaces_the_methods_of_the_file(canned, sweep, given, methods):
    planned = dry_run(canned, sweep, *given)
    assert cases_of(planned) == [(method, n) for method in methods for n in (32, 48)]


def test_methods_may_be_given_on_the_command_line_alone(canned, tmp_path):
    sweep = tmp_path / "s.toml"
    sweep.write_text("[axes]\nquery_len = 32\n")
    assert cases_of(dry_run(canned, sweep, "--methods", "softmax")) == [("softmax", 32)]
    assert "method" in canned("sweep", sweep, "--dry-run", code=2).stderr


def test_an_unknown_method_is_an_error_that_suggests_the_nearest(canned, sweep):
    message = canned("sweep", sweep, "--methods", "sofmax", "--dry-run", code=2).stderr
    assert "--methods" in message and "'sofmax'" in message and "'softmax'" in message


@pytest.mark.parametrize(
    ("setting", "column", "values"),
    [
        ("query_len=128", "query_len", [128]),
        ("query_len=16-64*2", "query_len", [16, 32, 64]),
        ("query_len=16-64+16", "query_len", [16, 32, 48, 64]),
        ("query_len=[8, 16]", "query_len", [8, 16]),
        ("batch=96/query_len", "batch", [3, 2]),
        ("batch=1/query_len", "batch", [1]),
        ("causal=true", "causal", [True]),
        ("causal=[false, true]", "causal", [False, True]),
        ("dtype=float64", "dtype", ["float64"]),
        ('dtype=["float32", "float64"]', "dtype", ["float32", "float64"]),
        ("memory_limit_bytes=4 GiB", "memory_limit_bytes", [2**32]),
        ("limits.memory_limit_bytes=4096", "memory_limit_bytes", [4096]),
        ("deadline_s=7.5", "deadline_s", [7.5]),
        ("limits.deadline_s=7.5", "deadline_s", [7.5]),
        ("timing.warmup_s=0.25", "warmup_s", [0.25]),
        ("timing.min_samples=11", "min_samples", [11]),
        ("timing.noise_target=0.5", "noise_target", [0.5]),
        ("time_budget_s=3", "time_budget_s", [3]),
    ],
)
def test_set_replaces_an_axis_or_a_setting(canned, sweep, setting, column, values):
    planned = dry_run(canned, sweep, "--methods", "linear", "--set", setting)
    found = [record[column] for record in planned]
    assert sorted(set(found), key=found.index) == values


def test_options_may_precede_the_file(canned, sweep):
    for options in (["--methods", "linear"], ["--set", "heads=3"]):
        before = canned.json("sweep", *options, sweep, "--dry-run")
        after = dry_run(canned, sweep, *options)
        for column in ("method", "query_len", "heads"):
            assert [r[column] for r in before] == [r[column] for r in after]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("query_ln=3", ["'query_ln'", "'query_len'"]),
        ("memory=1GiB", ["'memory'", "limits.memory_limit_bytes"]),
        ("limits.deadlin_s=1", ["'limits.deadlin_s'", "'limits.deadline_s'"]),
        ("limits.memory_limit_bytes=much", ["limits.memory_limit_bytes", "'much'", "11 GiB"]),
        ("query_len=0", ["query_len", "0", "at least 1"]),
        ("query_len=64-16*2", ["query_len", "64-16*2", "512-65536*2"]),
        ("query_len=[]", ["query_len", "empty"]),
        ('batch=["96/query_len", 1]', ["batch", "ratio"]),
        ("batch=96/batch", ["batch", "96/batch"]),
        ("causal=maybe", ["causal", "maybe", "true or false"]),
        ("dtype=float8", ["dtype", "'float8'", "float64"]),
        ("timing.min_samples=2", ["min_samples", "2", "at least 5"]),
        ("query_len", ["query_len", "key=value"]),
        ("=3", ["key=value"]),
    ],
)
def test_an_invalid_setting_is_an_error_that_names_it(canned, sweep, setting, words):
    message = canned("sweep", sweep, "--dry-run", "--set", setting, code=2).stderr
    assert "--set" in message
    for word in words:
        assert word in message


def test_too_many_cases_are_refused(canned, sweep):
    many = ["--set", "seed=1-999+1", "--set", "heads=1-999+1"]
    message = canned("sweep", sweep, "--dry-run", *many, code=2).stderr
    assert "100000" in message and "cases" in message


# ---------------------------------------------------------------- --dry-run


def test_dry_run_runs_and_writes_nothing(attnbench, workers, tmp_path, sweep):
    never = attnbench.with_worker(workers.make(measure=f"touch '{tmp_path}/ran'"))
    for more in ([], ["--format=json"], ["--out", "out"], ["--resume", "all"]):
        never("sweep", sweep, "--dry-run", *more)
        assert list(tmp_path.iterdir()) == [sweep]


def test_dry_run_prints_the_planned_records_as_json(canned, sweep):
    planned = dry_run(canned, sweep, "--set", "memory_limit_bytes=60 kB")
    assert cases_of(planned) == CASES
    for record in planned:
        assert record["predicted_peak_bytes"] > 0
        assert record["time_median_ms"] is None and record["finished_at"] is None
        if record["predicted_peak_bytes"] > 60_000:
            assert record["failure_kind"] == "predicted_oom"
        else:
            assert record["outcome"] is None
            assert record["predicted_time_ms"] > 0
    assert {record["failure_kind"] for record in planned} == {None, "predicted_oom"}


def test_dry_run_prints_the_plan_as_text(canned, sweep):
    lines = canned("sweep", sweep, "--dry-run", "--set", "memory_limit_bytes=60 kB").stdout.splitlines()
    planned = dry_run(canned, sweep, "--set", "memory_limit_bytes=60 kB")
    runs = [record for record in planned if record["failure_kind"] is None]
    assert len(runs) == 3
    first = next(number for number, line in enumerate(lines) if line.startswith("─")) + 1  # below what all rows share
    for record, line in zip(runs, lines[first : first + 3], strict=True):
        assert line.split()[:2] == [record["method"], str(record["query_len"])]
        assert "~ " in line  # Nothing was measured yet, so the time rests on typical rates.
    assert lines[first + 3].startswith("1 case is skipped as predicted_oom: ")
    all_rows = canned("sweep", sweep, "--dry-run", "-v", "--set", "memory_limit_bytes=60 kB").stdout.splitlines()
    assert [("predicted_oom: " in line) for line in all_rows[first : first + 4]] == [r["failure_kind"] is not None for r in planned]
    assert lines[-3].startswith("4 cases in 1 round, predicted to take about ")
    assert " ".join(lines[-2:]) == (
        "With 1 process a case, `attnbench compare` of two such runs could find none of 3 cases different, whatever they measure; it needs 6."
    )
    lines = canned("sweep", sweep, "--dry-run", "--set", "processes=7").stdout.splitlines()
    assert lines[-1].startswith("4 cases in 7 rounds, predicted to take about ")


def test_cases_that_differ_in_any_axis_have_different_lines(canned, tmp_path):
    sweep = write_sweep(
        tmp_path / "s.toml", method="linear", query_len=32, dtype=["float32", "bfloat16"], inputs=["normal", "clustered"]
    )
    shared, header, _, *lines = canned("sweep", sweep, "--dry-run").stdout.splitlines()[:7]
    assert shared.startswith("In all rows: device=cpu, ")
    assert header.split()[:4] == ["method", "dtype", "query_len", "inputs"]
    assert len({tuple(line.split()[:4]) for line in lines}) == 4
    names = {line.split("]")[1].split("  ")[0] for line in canned("sweep", sweep, "--out", "out").stderr.splitlines()[:4]}
    assert names == {
        f" linear forward N=32 dtype={dtype} inputs={inputs}"
        for dtype in ("float32", "bfloat16") for inputs in ("normal", "clustered")
    }  # fmt: skip


def test_dry_run_predicts_times_from_recorded_cases(canned, tmp_path, sweep):
    bound = dry_run(canned, sweep)
    canned("sweep", sweep, "--out", "out", "--methods", "linear")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    learnt = dry_run(canned, sweep, "--out", "out")
    linear, softmax = slice(0, 2), slice(2, 4)
    for old, new in zip(bound[linear], learnt[linear], strict=True):
        assert new["predicted_time_ms"] > 10 * old["predicted_time_ms"]
    for old, new in zip(bound[softmax], learnt[softmax], strict=True):
        assert new["predicted_time_ms"] == old["predicted_time_ms"]
    text = canned("sweep", sweep, "--dry-run", "--out", "out").stdout
    rows = [line for line in text.splitlines() if line.startswith(("linear ", "softmax "))]
    assert [("~" in line) for line in rows] == [False, False, True, True]
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}


def test_dry_run_leaves_an_empty_folder_empty(canned, tmp_path, sweep):
    (tmp_path / "out").mkdir()
    assert len(dry_run(canned, sweep, "--out", "out")) == 4
    assert list((tmp_path / "out").iterdir()) == []


# ---------------------------------------------------------------- cases that are not run


def test_a_case_predicted_to_exceed_the_memory_limit_is_skipped(quick, tmp_path, sweep):
    memory = ["--set", "memory_limit_bytes=600 kB", "--set", "query_len=[32, 256]"]
    quick("sweep", sweep, "--out", "out", *memory)
    records = {(r["method"], r["query_len"]): r for r in records_in(tmp_path / "out")}
    skipped = records["softmax", 256]
    assert (skipped["outcome"], skipped["failure_kind"]) == ("skipped", "predicted_oom")
    assert "586 KiB" in skipped["reason"] and skipped["time_median_ms"] is None
    assert [r["outcome"] for r in records.values()].count("measured") == 3


def test_a_case_predicted_to_exceed_its_deadline_is_skipped(attnbench, workers, tmp_path, sweep):
    slow = attnbench.with_worker(
        workers.make(measure="good", ceilings={"fma_float32_gflop_s": 1e-4})
    )
    slow("sweep", sweep, "--out", "out", "--set", "deadline_s=1")
    for record in records_in(tmp_path / "out"):
        assert (record["outcome"], record["failure_kind"]) == ("skipped", "predicted_timeout")
        assert "1 s" in record["reason"] and record["predicted_time_ms"] > 100


def test_unsupported_cases_are_skipped(quick, tmp_path):
    sweep = write_sweep(
        tmp_path / "s.toml", method=["linear-einsum", "linear"], query_len=32, causal=True
    )
    quick("sweep", sweep, "--out", "out")
    einsum, linear = records_in(tmp_path / "out")
    assert (einsum["outcome"], einsum["failure_kind"]) == ("skipped", "unsupported")
    assert "causal" in einsum["reason"]
    assert linear["outcome"] == "measured"


def test_a_time_that_the_ceilings_exclude_is_implausible(attnbench, workers, tmp_path, sweep):
    slow = attnbench.with_worker(
        workers.make(measure="good", ceilings={"fma_float32_gflop_s": 0.001})
    )
    slow("sweep", sweep, "--out", "out", "--set", "deadline_s=30")
    records = records_in(tmp_path / "out")
    assert all("GFLOP/s" in record["implausible"] for record in records)
    assert "outcome=implausible\n" in slow("table", "out").stdout, "all rows share it"


# ---------------------------------------------------------------- malformed files


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('[axes]\nmetod = "linear"\n', ":2:1:", ["'metod'", "'method'", "query_len"]),
        ('[axes]\nmethod = "lineer"\n', ":2:10:", ["'lineer'", "'linear'"]),
        ('[axes]\nmethod = ["linear", "lineer"]\n', ":2:21:", ["'lineer'", "'linear'"]),
        ('[axes]\nmethod = "linear-chunked:chnk=1"\n', ":2:10:", ["'chnk'", "'chunk'"]),
        ('[axes]\nmethod = "linear"\nbatch = 0\n', ":3:9:", ["batch", "0", "at least 1"]),
        ('[axes]\nmethod = "linear"\nbatch = 1.5\n', ":3:9:", ["batch", "1.5", "whole number"]),
        ('[axes]\nmethod = "linear"\nheads = "x"\n', ":3:9:", ["heads", "'x'", "512-65536*2"]),
        ('[axes]\nmethod = "linear"\ncausal = 1\n', ":3:10:", ["causal", "1", "true or false"]),
        ('[axes]\nmethod = "linear"\nseed = [[1]]\n', ":3:9:", ["seed", "a list"]),
        ('[axes]\nmethod = "linear"\nheads = 1979-05-27\n', ":3:9:", ["heads", "date"]),
        ('[axes]\nmethod = 3\n', ":2:10:", ["method", "3", "text"]),
        ('[axis]\nmethod = "linear"\n', ":1:", ["'axis'", "'axes'"]),
        ('axes = 1\n', ":1:8:", ["axes", "whole number", "table"]),
        ('[axes]\nmethod="linear"\n[limits]\ndedline_s=1\n', ":4:1:", ["'dedline_s'", "'deadline_s'"]),
        ('[axes]\nmethod="linear"\n[limits]\nmemory_limit_bytes="much"\n', ":4:20:", ["'much'", "11 GiB"]),
        ('[axes]\nmethod="linear"\n[limits]\ndeadline_s=-1\n', ":4:12:", ["deadline_s", "at least"]),
        ('[axes]\nmethod="linear"\n[limits]\ndeadline_s=nan\n', ":4:12:", ["deadline_s", "a number"]),
        ('[axes]\nmethod="linear"\n[timing]\nwarmup_=1\n', ":4:1:", ["'warmup_'", "'warmup_s'"]),
        ('[axes]\nmethod="linear"\n[published]\nfle="x"\n', ":4:1:", ["'fle'", "'file'"]),
        ('description = 3\n', ":1:15:", ["description", "text"]),
        ('[axes\nmethod = "linear"\n', ":1:6:", ["expected ']'"]),
        ('[axes]\nmethod = "linear"\nmethod = "softmax"\n', ":3:", ["method"]),
        ('[axes]\nmethod = "linear"\nheads = 99999999999999999999\n', ":3:", []),
        ('[axes]\nmethod = "linear\n', ":2:", []),
        ("\0\1\2", ":1:", []),
    ],
)  # fmt: skip
def test_an_error_in_a_sweep_file_names_its_place(canned, tmp_path, text, place, words):
    sweep = tmp_path / "wrong.toml"
    sweep.write_text(text)
    done = canned("sweep", sweep, "--out", "out", code=2)
    assert f"wrong.toml{place}" in done.stderr
    for word in words:
        assert word in done.stderr
    assert done.stdout == "" and not (tmp_path / "out").exists()


def test_deep_nesting_is_an_error(canned, tmp_path):
    sweep = tmp_path / "deep.toml"
    sweep.write_text("[axes]\nmethod = " + "[" * 100_000 + "\n")
    assert "deep.toml:2:" in canned("sweep", sweep, code=2).stderr


def test_a_sweep_file_that_is_missing_or_names_no_method_is_refused(canned, tmp_path):
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    assert "empty.toml: [axes] names no method" in canned("sweep", empty, code=2).stderr
    assert "no-such.toml" in canned("sweep", "no-such.toml", code=2).stderr
    assert "folder.toml" in canned("sweep", "folder.toml", code=2).stderr


def test_an_invalid_case_is_refused_before_anything_runs(canned, tmp_path):
    sweep = write_sweep(tmp_path / "s.toml", key_lengths=["full", "64"])
    message = canned("sweep", sweep, "--out", "out", code=2).stderr
    assert "key_lengths" in message and "64" in message and "key_len" in message
    assert not (tmp_path / "out").exists()


def test_an_out_folder_that_is_a_file_is_refused(canned, tmp_path, sweep):
    (tmp_path / "taken").write_text("text")
    message = canned("sweep", sweep, "--out", "taken", code=2).stderr
    assert "taken" in message
    assert (tmp_path / "taken").read_text() == "text"
