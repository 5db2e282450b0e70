"""Tests of `attnbench compare` on two folders of records and `attnbench analyse` on one."""

import json
import math

import pytest
from conftest import records_in, strict_json, write_sweep


def rewrite(folder, change):
    """Applies `change` to every record of a folder; removes those for which it returns False."""
    kept = [record for record in records_in(folder) if change(record) is not False]
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in kept))


def scaled(factor, processes=None):
    """A change for `rewrite`: multiplies the times, and adds the medians of several processes."""

    def change(record):
        for column in ("time_median_ms", "time_ci_low_ms", "time_ci_high_ms"):
            record[column] *= factor
        if processes:
            record["process_medians_ms"] = [record["time_median_ms"] * (1 + 0.001 * i) for i in range(processes)]

    return change


@pytest.fixture
def folders(canned, tmp_path):
    """Two folders of the same four cases."""
    sweep = write_sweep(tmp_path / "small.toml")
    for name in ("a", "b"):
        canned("sweep", sweep, "--out", name, "-q", "--set", "memory_limit_bytes=8 GiB")
    return tmp_path / "a", tmp_path / "b"


def compared(attnbench, *arguments, **options):
    return strict_json(attnbench("compare", *arguments, "--format=json", **options).stdout)


def test_a_difference_is_inconclusive_with_one_process_a_side(attnbench, folders):
    a, b = folders
    rewrite(b, scaled(2.0))
    shown = attnbench("compare", a, b).stdout
    assert "inconclusive: only one process on a side" in shown and "over all: inconclusive" in shown
    report = compared(attnbench, a, b)
    for case in report["cases"]:
        assert math.exp(case["log_ratio"]) == pytest.approx(2)
        assert case["interval_scope"] == "within process"
        assert case["interval"][0] < case["log_ratio"] < case["interval"][1]


def test_several_processes_give_verdicts(attnbench, folders):
    a, b = folders
    rewrite(a, scaled(1.0, processes=10))
    rewrite(b, lambda r: scaled(1.2 if r["method"] == "linear" else 1.0001, processes=10)(r))
    report = compared(attnbench, a, b)
    assert report["verdict"] == "regression"
    assert {(c["case"]["method"], c["verdict"]) for c in report["cases"]} == {("linear", "regression"), ("softmax", "pass")}
    assert compared(attnbench, b, a)["verdict"] == "improvement"
    # The slowdown of 20 % is then too small for a regression, but too large to pass.
    assert compared(attnbench, a, b, "--min-shift=0.5")["verdict"] == "inconclusive"


def test_only_the_columns_that_differ_are_shown(attnbench, folders):
    a, b = folders
    rewrite(b, lambda r: r.update(revision="123abc", implementation="other"))
    found = {d["column"]: (d["a"], d["b"]) for d in compared(attnbench, a, b)["differences"]}
    assert set(found) == {"revision", "implementation"}
    assert found["implementation"] == ("stand-in", "other")
    shown = attnbench("compare", a, b).stdout
    assert "123abc" in shown and "cpu_model" not in shown and "dtype" not in shown
    assert "what differs" not in attnbench("compare", a, a).stdout


def test_cases_that_one_side_lacks_or_did_not_measure_are_shown(attnbench, folders):
    a, b = folders
    rewrite(b, lambda r: r["query_len"] == 32)
    rewrite(a, lambda r: r.update(outcome="failed", failure_kind="oom", reason="") if r["method"] == "softmax" else None)
    shown = attnbench("compare", a, b).stdout
    assert "measured | missing" in shown and "oom | measured" in shown


def test_apart_compares_folders_that_differ_in_an_axis(attnbench, folders):
    a, b = folders
    rewrite(a, lambda r: r["method"] == "linear")
    rewrite(b, lambda r: r["method"] == "softmax")
    assert "no case in common" in attnbench("compare", a, b, code=2).stderr
    report = compared(attnbench, a, b, "--apart", "method")
    assert [c["case"]["query_len"] for c in report["cases"]] == [32, 48]
    assert {"column": "method", "a": "linear", "b": "softmax"} in report["differences"]
    assert "did you mean 'method'" in attnbench("compare", a, b, "--apart", "methods", code=2).stderr


def test_apart_refuses_several_records_that_differ_in_that_axis_alone(attnbench, folders):
    a, b = folders
    failed = attnbench("compare", a, b, "--apart", "method", code=2).stderr
    assert "several records that differ only in method, expected one" in failed


def test_missing_empty_and_malformed_folders_are_refused(attnbench, folders, tmp_path):
    a, _ = folders
    assert "nowhere" in attnbench("compare", a, "nowhere", code=2).stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "records.jsonl").write_text("")
    assert "holds no records" in attnbench("compare", a, empty, code=2).stderr
    (empty / "records.jsonl").write_text('{"method": 3}\n')
    assert "records.jsonl:1" in attnbench("compare", a, empty, code=2).stderr


def test_text_of_records_is_escaped_in_markdown_and_csv(attnbench, folders):
    a, b = folders
    rewrite(b, lambda r: r.update(revision="=1|2<b>"))
    shown = attnbench("compare", a, b, "--format", "markdown").stdout
    assert "=1\\|2\\<b\\>" in shown
    assert ",'=1|2<b>\n" in attnbench("compare", a, b, "--format", "csv").stdout


# ---------------------------------------------------------------- analyse


@pytest.fixture
def grown(canned, tmp_path):
    """A folder of linear and softmax at lengths from 512 to 8192, with times that grow as declared,
    and of linear on a second device."""
    sweep = write_sweep(tmp_path / "grown.toml", query_len="512-8192*2")
    canned("sweep", sweep, "--out", "grown", "-q")

    def change(record):
        n = record["query_len"]
        ms, size = (n * 1e-2, 100 * n) if record["method"] == "linear" else (n * n * 1e-5, n * n)
        record |= {"time_median_ms": ms, "time_ci_low_ms": 0.99 * ms, "time_ci_high_ms": 1.01 * ms}
        record |= {"peak_extra_bytes": size, "peak_allocated_bytes": size + 1000}

    rewrite(tmp_path / "grown", change)
    lines = records_in(tmp_path / "grown")
    for record in [r for r in lines if r["method"] == "linear"]:
        ms = 20 + record["query_len"] * 1e-3
        lines.append(record | {"device": "cuda", "time_median_ms": ms, "time_ci_low_ms": ms, "time_ci_high_ms": ms})
    (tmp_path / "grown/records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines))
    return tmp_path / "grown"


def test_analyse_finds_growth_and_crossovers(attnbench, grown):
    shown = attnbench("analyse", grown).stdout
    report = strict_json(attnbench("analyse", grown, "--format=json").stdout)
    exponents = {
        (o["series"]["method"], o["series"]["device"], o["quantity"]): o["exponent"] for o in report["orders"]
    }
    assert exponents["linear", "cpu", "time"] == pytest.approx(1)
    assert exponents["softmax", "cpu", "time"] == pytest.approx(2)
    assert exponents["softmax", "cpu", "memory"] == pytest.approx(2, abs=1e-3)
    assert {o["verdict"] for o in report["orders"] if o["series"]["device"] == "cpu"} == {"consistent with"}
    assert report["order_tests"] == {"error_rate": 0.05, "tests": 3, "confidence": pytest.approx(1 - 0.05 / 3), "margin": 0.15}
    times = {
        (o["one"]["method"], o["other"]["method"], *o["differs"]): o["length"]
        for o in report["crossovers"] if o["quantity"] == "time"
    }  # fmt: skip
    assert times["linear", "softmax", "method"] == pytest.approx(1000, rel=1e-6)
    assert times["linear", "linear", "device"] == pytest.approx(2222, rel=0.02)
    assert "break-even of linear: the GPU is faster from N = 2" in shown
    assert "consistent with O(N²)" in shown and "contradicts" not in shown
    assert "a verdict on a time is wrong with a probability of at most 5 %: the number of such rows is 3" in shown
    assert "each of their intervals has the level 98.33 %" in shown
    assert "For all 3, the interval rests on the scatter of the points" in shown, "there is one process a case"
    assert "another run can then differ by more" in shown


def test_a_pair_that_never_crosses_is_below_from_the_first_length_on(attnbench, grown):
    never = attnbench("analyse", grown).stdout.split("Never crossing")[1].split("\n\n")[0].splitlines()
    memory = next(line for line in never if "memory" in line)
    assert memory.split()[-3:] == ["linear", "512", "softmax"]
    (pair,) = [
        c for c in strict_json(attnbench("analyse", grown, "--format=json").stdout)["crossovers"]
        if c["quantity"] == "memory" and c["differs"] == ["method"]
    ]  # fmt: skip
    assert (pair["verdict"], pair["length"], pair["from_length"]) == ("never crosses", None, 512)


def test_comparisons_that_cannot_tell_are_counted_and_listed_by_all(attnbench, grown):
    def change(record):
        record |= {"time_ci_low_ms": 0.3 * record["time_median_ms"], "time_ci_high_ms": 3 * record["time_median_ms"]}

    rewrite(grown, change)
    folded = attnbench("analyse", grown).stdout
    assert "Cannot tell for 2 of 4 comparisons, which --all lists:\n- 2: the interval covers" in folded
    assert "break-even of linear: cannot tell, because the interval covers a factor of two or more" in folded
    listed = attnbench("analyse", grown, "--all").stdout.split("Comparisons that cannot tell")[1]
    assert len([line for line in listed.splitlines() if line.endswith("a factor of two or more")]) == 3


def test_orders_without_three_lengths_of_a_batch_size_cannot_be_told(attnbench, grown):
    rewrite(grown, lambda record: record.update(batch=8192 // record["query_len"]))
    folded = attnbench("analyse", grown).stdout
    assert "Cannot tell for 6 more rows, because fewer than three lengths have the same batch size:" in folded
    assert "- cpu: linear, softmax\n- cuda: linear\n" in folded
    assert attnbench("analyse", grown, "--all").stdout.count("cannot tell (O(N) is declared)") == 4
    orders = strict_json(attnbench("analyse", grown, "--format=json").stdout)["orders"]
    assert {(o["verdict"], o["exponent"], o["interval"]) for o in orders} == {("cannot tell", None, None)}


def test_decoding_is_compared_with_the_order_of_one_step(attnbench, grown):
    def change(record):
        record |= {"protocol": "decode", "causal": True}
        if record["method"] == "softmax":
            return
        for column in ("time_median_ms", "time_ci_low_ms", "time_ci_high_ms"):
            record[column] = 1.0

    rewrite(grown, change)
    shown = attnbench("analyse", grown).stdout
    assert shown.count("consistent with O(1)") == 2, "the times of linear on both devices"
    assert shown.count("contradicts O(1)") == 2, "its memory grows with the length"


def test_growth_beyond_the_declared_order_is_flagged(attnbench, grown):
    def change(record):
        if record["method"] == "linear":
            for column in ("time_median_ms", "time_ci_low_ms", "time_ci_high_ms"):
                record[column] *= record["query_len"]

    rewrite(grown, change)
    # Only the CPU contradicts; on the other device the fixed costs of a call dominate.
    assert attnbench("analyse", grown).stdout.count("contradicts O(N)") == 1


def test_analyse_finds_the_longest_length_that_fits_a_memory_budget(attnbench, grown):
    report = strict_json(attnbench("analyse", grown, "--memory", "8MiB", "--format=json").stdout)
    longest = {(f["series"]["method"], f["series"]["device"]): (f["longest"], f["limit"]) for f in report["fits"]}
    assert longest["softmax", "cpu"] == (2048, "N = 4096 took 16.0 MiB")
    assert longest["linear", "cpu"] == (8192, "end of the sweep")
    assert "'much'" in attnbench("analyse", grown, "--memory", "much", code=2).stderr


def test_implausible_records_are_listed(attnbench, grown):
    rewrite(grown, lambda r: r.update(implausible="faster than light") if r["query_len"] == 512 else None)
    assert attnbench("analyse", grown).stdout.count("faster than light") == 3


def test_too_few_processes_are_reported_with_the_number_that_is_needed(attnbench, folders):
    a, b = folders
    rewrite(a, scaled(1.0, processes=3))
    rewrite(b, scaled(2.0, processes=3))
    message = attnbench("compare", a, b).stderr
    assert "3 processes a side cannot find any of" in message and "at the level 0.01; at least" in message
    rewrite(a, scaled(1.0, processes=10))
    rewrite(b, scaled(2.0, processes=10))
    assert attnbench("compare", a, b).stderr == ""
