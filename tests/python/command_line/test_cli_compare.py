"""Tests of `attnbench compare` on two folders of records and `attnbench analyse` on one."""

import json
import math
import re

import pytest
from conftest import change_records, records_in, strict_json, words, write_sweep


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


def table_of(text):
    """The lines of the first table, from its header on."""
    lines = text.splitlines()
    return lines[next(i for i, line in enumerate(lines) if line.startswith("method")) :]


def compared(attnbench, *arguments, **options):
    return strict_json(attnbench("compare", *arguments, "--format=json", **options).stdout)


def test_one_process_a_side_cannot_tell_a_difference(attnbench, folders):
    a, b = folders
    rewrite(b, scaled(2.0))
    shown = attnbench("compare", a, b).stdout
    assert shown.count("cannot tell: only one process on a side") == 4
    answer = "The times of 4 cases were compared, and none is found to be slower or faster in b. 0 are equivalent within 3 %; 4 cannot be told, "
    assert words(shown).startswith(answer + "because a side has too few processes.")
    report = compared(attnbench, a, b)
    for case in report["cases"]:
        assert math.exp(case["log_ratio"]) == pytest.approx(2)
        assert case["interval_scope"] is None and case["interval"] == [None, None]


def test_several_processes_give_verdicts(attnbench, folders):
    a, b = folders
    rewrite(a, scaled(1.0, processes=10))
    rewrite(b, lambda r: scaled(1.2 if r["method"] == "linear" else 1.0001, processes=10)(r))
    report = compared(attnbench, a, b)
    assert report["verdict"] == "regression"
    assert report["counts"] == {"regression": 2, "improvement": 0, "equivalent": 2, "cannot tell": 0}
    assert {(c["case"]["method"], c["verdict"]) for c in report["cases"]} == {("linear", "regression"), ("softmax", "equivalent")}
    assert {c["interval_scope"] for c in report["cases"]} == {"across processes"}
    assert compared(attnbench, b, a)["verdict"] == "improvement"
    answer = words(attnbench("compare", a, b).stdout)
    assert answer.startswith("Over all: regression. b is slower than a in 2 of 4 cases, most in linear N=32, where b / a is 1.200× (95 %: ")
    assert "; 2 are equivalent within 3 %. " in answer
    same = words(attnbench("compare", a, a).stdout)
    assert same.startswith("The times of 4 cases were compared, and none is found to be slower or faster in b. 4 are equivalent within 3 %. ")
    assert "moved a little so that their ratio is this estimate" in same and "the 90 % interval" in same
    assert "b is faster than a in 2 of 4 cases" in words(attnbench("compare", b, a).stdout)


def test_within_says_which_ratios_are_equivalent(attnbench, folders):
    a, b = folders
    rewrite(a, scaled(1.0, processes=10))
    rewrite(b, scaled(1.04, processes=10))
    assert compared(attnbench, a, b)["verdict"] == "regression"
    report = compared(attnbench, a, b, "--within", 5)
    assert report["verdict"] == "equivalent" and report["within_percent"] == 5
    shown = words(attnbench("compare", a, b, "--within", 5).stdout)
    assert "equivalent if the 90 % interval of its ratio lies within ±5 %" in shown
    assert shown.count("90 %: 1.03") == 4
    # The bound is inside the interval, so that neither can be said.
    assert compared(attnbench, a, b, "--within", 4.1)["verdict"] == "cannot tell"
    assert "--within = '-1'" in attnbench("compare", a, b, "--within=-1", code=2).stderr


def with_ratios(factor, ratio, baseline="sdpa"):
    """A change for `rewrite`: adds ratios to a baseline, and multiplies the times by `factor`."""

    def change(record):
        scaled(factor, processes=8)(record)
        ratios = [ratio * (1 + 0.001 * i) for i in range(8)]
        record.update(baseline=baseline, process_ratios=ratios, ratio_median=ratio, baseline_median_ms=4)

    return change


def test_ratios_to_a_common_baseline_are_compared_in_place_of_drifting_times(attnbench, folders):
    a, b = folders
    rewrite(a, with_ratios(1.0, 0.5))
    rewrite(b, with_ratios(1.3, 0.501))
    report = compared(attnbench, a, b)
    assert report["verdict"] == "equivalent"
    for case in report["cases"]:
        assert case["quantity"] == "ratio"
        assert case["b_ms"] / case["a_ms"] == pytest.approx(1.3), "the times are reported beside the ratios"
        assert case["a_value"] == pytest.approx(0.5 * 1.0035) and case["b_value"] == pytest.approx(0.501 * 1.0035)
        assert math.exp(case["log_ratio"]) == pytest.approx(1.002)
        assert case["b_estimate"] / case["a_estimate"] == pytest.approx(math.exp(case["log_ratio"]))
        assert case["decisive_level"] == 0.9 and case["decisive_interval"] == case["equivalence_interval"]
    shown = attnbench("compare", a, b).stdout
    assert "compared=time / sdpa" in shown
    header, row = table_of(shown)[0], table_of(shown)[2]
    assert "time" not in header and "b / a" in header and "interval" in header
    assert "equivalent" in row and row.count("×") == 1 and "1.002×" in row, "one estimate a row"
    assert "The times themselves are 1.300× as long in b" in words(shown)
    assert compared(attnbench, a, b, "--quantity", "ratio") == report
    by_time = compared(attnbench, a, b, "--quantity", "time")
    assert by_time["verdict"] == "regression" and {c["quantity"] for c in by_time["cases"]} == {"time"}
    assert "compared=time," in words(attnbench("compare", a, b, "--quantity=time").stdout)


def test_times_are_compared_where_a_side_has_no_ratio_to_the_same_baseline(attnbench, folders):
    a, b = folders
    rewrite(a, with_ratios(1.0, 0.5))
    rewrite(b, lambda r: with_ratios(1.3, 0.5, "softmax" if r["method"] == "linear" else "sdpa")(r))
    cases = compared(attnbench, a, b)["cases"]
    assert {(c["case"]["method"], c["quantity"], c["verdict"]) for c in cases} == {
        ("linear", "time", "regression"),
        ("softmax", "ratio", "equivalent"),
    }
    # These are not replaced by times if ratios are asked for.
    shown = attnbench("compare", a, b, "--quantity", "ratio").stdout
    assert shown.count("no ratios to a common baseline") == 2
    assert "verdict" not in compared(attnbench, a, b, "--quantity", "ratio")["cases"][0]
    assert "--fail-on cannot-tell: 2 of 4" in attnbench(
        "compare", a, b, "--quantity", "ratio", "--fail-on", "cannot-tell", code=1
    ).stderr
    rewrite(b, lambda r: r.update(process_ratios=None, ratio_median=None))
    message = attnbench("compare", a, b, "--quantity", "ratio", code=2).stderr
    assert "no case has ratios to the same baseline on both sides" in message and "--quantity time" in message


@pytest.mark.parametrize(
    ("verdicts", "factor", "code"),
    [
        ("different", 1.2, 1), ("slower", 1.2, 1), ("regression", 1.2, 1), ("faster", 1.2, 0), ("equivalent", 1.2, 0),
        ("different", 0.8, 1), ("slower", 0.8, 0), ("faster", 0.8, 1), ("improvement", 0.8, 1),
        ("different,cannot-tell", 1.0, 0), ("equivalent", 1.0, 1),
        ("different", 1.031, 0), ("cannot-tell", 1.031, 1), ("faster,cannot-tell", 1.031, 1),
        ("unmeasured", 1.2, 0),
    ],
)  # fmt: skip
def test_fail_on_sets_the_exit_code(attnbench, folders, verdicts, factor, code):
    a, b = folders
    rewrite(a, lambda r: scaled(1.0, processes=8)(r) if r["method"] == "linear" else False)
    rewrite(b, lambda r: scaled(factor, processes=8)(r) if r["method"] == "linear" else False)
    within = [] if factor != 1.031 else ["--within", 3.2]
    done = attnbench("compare", a, b, "--fail-on", verdicts, *within, code=code)
    assert (f"--fail-on {verdicts.split(',')[-1]}: 2 of 2 cases" in done.stderr) == (code == 1)
    attnbench("compare", a, b, *within)


def test_fail_on_unmeasured_finds_cases_that_a_side_lacks(attnbench, folders):
    a, b = folders
    assert attnbench("compare", a, b, "--fail-on", "unmeasured").returncode == 0
    rewrite(b, lambda r: r["query_len"] == 32)
    assert "--fail-on unmeasured: 2 of 4 cases" in attnbench("compare", a, b, "--fail-on", "unmeasured", code=1).stderr
    refused = attnbench("compare", a, b, "--fail-on", "worse", code=2).stderr
    assert "--fail-on = 'worse', expected one of different, slower" in refused


def test_only_the_columns_that_differ_are_shown(attnbench, folders):
    a, b = folders
    rewrite(b, lambda r: r.update(revision="123abc", implementation="other"))
    found = {d["column"]: (d["a"], d["b"]) for d in compared(attnbench, a, b)["differences"]}
    assert set(found) == {"revision", "implementation"}
    assert found["implementation"] == ("stand-in", "other")
    shown = attnbench("compare", a, b).stdout
    assert "123abc" in shown and "cpu_model" not in shown and "dtype" not in shown.partition("In all rows:")[0]
    assert "what differs" not in attnbench("compare", a, a).stdout


def test_cases_that_one_side_lacks_or_did_not_measure_are_shown(attnbench, folders):
    a, b = folders
    rewrite(b, lambda r: r["query_len"] == 32)
    rewrite(a, lambda r: r.update(outcome="failed", failure_kind="oom", reason="") if r["method"] == "softmax" else None)
    shown = attnbench("compare", a, b).stdout
    assert "a measured, b missing" in shown and "a oom, b measured" in shown


def test_cases_that_neither_side_measured_are_only_counted(attnbench, folders):
    a, b = folders
    for folder in (a, b):
        rewrite(folder, lambda r: r.update(outcome="skipped", failure_kind="unsupported", reason="") if r["method"] == "softmax" else None)
    shown = attnbench("compare", a, b).stdout
    assert "unsupported" not in shown and "Not shown: 2 cases that neither side measured." in shown
    assert len(compared(attnbench, a, b)["cases"]) == 4
    assert attnbench("compare", a, b, "--format", "csv").stdout.count("a unsupported, b unsupported") == 2


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
    assert f"`attnbench compare {a} --baseline METHOD`" in failed


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
    shown = words(shown)
    assert "a verdict on a time is wrong with a probability of at most 5 %: the number of such rows is 3" in shown
    assert "each of their intervals has the level 98.33 %" in shown
    assert "For all 3, the interval rests on the scatter of the points" in shown, "there is one process a case"
    assert "another run can then differ by more" in shown
    assert shown.startswith("cpu: ") and "The time grows as N^1.00 for linear and as N^2.00 for softmax from N = " in shown
    assert "Growth: of 6 orders that methods declare, " in shown and "Crossovers: of 4 comparisons of times or memory, " in shown


def test_a_pair_that_never_crosses_is_below_from_the_first_length_on(attnbench, grown):
    never = attnbench("analyse", grown).stdout.split("No crossing")[1].split("\n\n")[0].splitlines()
    memory = next(line for line in never if "memory" in line)
    assert memory.split()[-3:] == ["linear", "512", "softmax"]
    (pair,) = [
        c for c in strict_json(attnbench("analyse", grown, "--format=json").stdout)["crossovers"]
        if c["quantity"] == "memory" and c["differs"] == ["method"]
    ]  # fmt: skip
    assert (pair["verdict"], pair["length"], pair["from_length"]) == ("never crosses", None, 512)


def test_a_crossover_in_memory_lies_between_two_measured_lengths(attnbench, grown):
    def change(record):
        record["peak_extra_bytes"] = 10**6 if record["method"] == "linear" else 1000 * record["query_len"]

    rewrite(grown, change)
    shown = attnbench("analyse", grown).stdout
    row = next(line for line in shown.split("Crossovers: the first")[1].splitlines() if line.startswith("memory"))
    assert "512 and 1024 (measured)" in row, "the interval of a counted quantity has no width"
    assert "Memory is counted, so a crossover in memory has no interval: it lies between two measured lengths" in words(shown)
    (pair,) = [
        c for c in strict_json(attnbench("analyse", grown, "--format=json").stdout)["crossovers"]
        if c["quantity"] == "memory" and c["differs"] == ["method"]
    ]  # fmt: skip
    assert pair["between"] == [512, 1024] and pair["length"] == pytest.approx(1000)


def test_comparisons_that_cannot_tell_are_counted_and_listed_by_all(attnbench, grown):
    def change(record):
        record |= {"time_ci_low_ms": 0.3 * record["time_median_ms"], "time_ci_high_ms": 3 * record["time_median_ms"]}

    rewrite(grown, change)
    folded = attnbench("analyse", grown).stdout
    said = "- 2 comparisons, for example time of linear (cpu) / linear (cuda): the interval covers"
    assert f"Cannot tell for 2 of 4 comparisons, which --all lists:\n{said}" in folded
    assert "break-even of linear: cannot tell, because the interval covers a factor of two or more" in folded
    listed = attnbench("analyse", grown, "--all").stdout.split("Comparisons that cannot tell")[1]
    assert len([line for line in listed.splitlines() if line.endswith("a factor of two or more")]) == 3


def test_orders_without_three_lengths_of_a_batch_size_cannot_be_told(attnbench, grown):
    rewrite(grown, lambda record: record.update(batch=8192 // record["query_len"]))
    folded = attnbench("analyse", grown).stdout
    assert "Cannot tell for 6 rows, because fewer than three lengths have the same batch size:" in folded
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
    shown = attnbench("analyse", grown, "--memory", "8MiB").stdout
    table, folded = shown.split("Longest N within a memory budget")[1].split("more rows fit up to the longest length")
    assert "end of the sweep" not in shown and "N = 4096 took 16.0 MiB" in table
    assert "- 8.00 MiB: linear (cpu; cuda)\n" in folded, "budgets are listed with their settings"
    everything = attnbench("analyse", grown, "--memory", "8MiB", "--all").stdout
    assert everything.count("end of the sweep") == sum(f["limit"] == "end of the sweep" for f in report["fits"])
    assert "'much'" in attnbench("analyse", grown, "--memory", "much", code=2).stderr


def test_implausible_records_are_listed(attnbench, grown):
    rewrite(grown, lambda r: r.update(implausible="faster than light") if r["query_len"] == 512 else None)
    assert attnbench("analyse", grown).stdout.count("faster than light") == 3


# ---------------------------------------------------------------- few processes


def test_too_few_processes_are_reported_with_the_number_that_is_needed(attnbench, folders):
    a, b = folders
    rewrite(a, scaled(1.0, processes=3))
    rewrite(b, scaled(2.0, processes=3))
    done = attnbench("compare", a, b)
    assert done.stdout.count("cannot tell: 3 processes a side are too few") == 4
    assert "3 processes a side cannot find any of 4 cases different at the level 0.01; at least 6 are needed" in done.stderr
    assert "--set timing.processes=6`" in done.stderr
    assert done.stdout.count("range: 1.996 … 2.004") == 4
    assert {c["interval_scope"] for c in compared(attnbench, a, b)["cases"]} == {"range of processes"}
    rewrite(a, scaled(1.0, processes=10))
    rewrite(b, scaled(2.0, processes=10))
    assert attnbench("compare", a, b).stderr == ""


# ---------------------------------------------------------------- one folder against a baseline


@pytest.fixture
def speeds(folders):
    """A folder in which linear is four times as fast as softmax at 32 and ten times at 48."""
    a, _ = folders

    def change(record):
        factor = {("softmax", 32): 4, ("softmax", 48): 10}.get((record["method"], record["query_len"]), 1)
        scaled(factor, processes=8)(record)

    rewrite(a, change)
    return a


def test_a_baseline_gives_a_table_of_speedups(attnbench, speeds):
    report = compared(attnbench, speeds, "--baseline", "softmax")
    assert report["baseline"] == "softmax"
    for case, n, factor in zip(report["cases"], (32, 48), (4, 10), strict=True):
        assert (case["case"]["method"], case["case"]["query_len"]) == ("linear", n)
        assert case["speedup"] == pytest.approx(factor) and case["baseline_ms"] == pytest.approx(factor * case["time_ms"])
        assert case["interval"][0] < factor < case["interval"][1]
        assert (case["interval_scope"], case["processes"], case["source"]) == ("across processes", 8, "times")
        assert case["verdict"] == "faster"
    shown = attnbench("compare", speeds, "--baseline", "softmax").stdout
    assert shown.startswith("linear is 10.0 × as fast as softmax at N = 48 (95 %: 9.9")
    assert "Of 2 cases with a verdict, 2 are faster than softmax, 0 slower" in words(shown)
    lines = table_of(shown)
    assert [word.strip() for word in lines[0].split("  ") if word][:4] == ["method", "query_len", "time of softmax", "times as fast"]
    assert "10.0" in lines[3].split() and lines[3].split()[-1] == "faster"
    assert "processes=8, runs=apart" in words(shown) and "time=1.100 ms" in shown, "what all rows share is said once"
    assert "covers the speedup with 95 %" in words(shown)
    assert {c["verdict"] for c in compared(attnbench, speeds, "--baseline", "linear")["cases"]} == {"slower"}
    csv = attnbench("compare", speeds, "--baseline", "softmax", "--format=csv").stdout.splitlines()
    assert len(csv) == 3 and csv[0].startswith("method,query_len,time,time of softmax,times as fast")
    assert "| linear " in attnbench("compare", speeds, "--baseline", "softmax", "--format=markdown").stdout


def test_speedups_come_from_turns_with_the_baseline_if_there_are_any(attnbench, folders):
    a, _ = folders
    rewrite(a, with_ratios(1.0, 0.25, "softmax"))
    case, _ = compared(attnbench, a, "--baseline", "softmax")["cases"]
    assert 'runs is "in turns" where processes of the method and of softmax were alive together' in words(attnbench("compare", a, "--baseline", "softmax").stdout)
    assert case["source"] == "turns" and case["speedup"] == pytest.approx(1 / 0.25 / 1.0035, rel=1e-3)
    assert case["baseline_ms"] == 4


def test_speedups_of_a_few_processes_are_ranges_without_a_verdict(attnbench, speeds):
    rewrite(speeds, lambda r: r.update(process_medians_ms=r["process_medians_ms"][:5]))
    for case in compared(attnbench, speeds, "--baseline", "softmax")["cases"]:
        assert case["interval_scope"] == "range of processes" and case["verdict"] is None
    assert attnbench("compare", speeds, "--baseline", "softmax").stdout.count("  range ") == 2
    attnbench("compare", speeds, "--baseline", "softmax", "--fail-on", "different")
    attnbench("compare", speeds, "--baseline", "softmax", "--fail-on", "cannot-tell", code=1)


def test_speedups_say_why_a_case_has_none(attnbench, speeds):
    rewrite(speeds, lambda r: r.update(outcome="failed", failure_kind="oom") if r["method"] == "softmax" and r["query_len"] == 48 else None)
    shown = attnbench("compare", speeds, "--baseline", "softmax").stdout
    assert "softmax: oom" in shown
    known, unknown = compared(attnbench, speeds, "--baseline", "softmax")["cases"]
    assert "speedup" in known and "speedup" not in unknown and unknown["baseline_outcome"] == "oom"
    assert "1 of 2" in attnbench("compare", speeds, "--baseline", "softmax", "--fail-on", "unmeasured", code=1).stderr


def test_cases_without_a_record_of_the_baseline_name_the_command_that_measures_it(attnbench, speeds):
    rewrite(speeds, lambda r: r["method"] == "linear" or r["query_len"] == 32)
    shown = words(attnbench("compare", speeds, "--baseline", "softmax").stdout)
    assert "no softmax record" in shown and "missing" not in shown
    command = re.search(r"1 case cannot be compared, because there is no record of softmax with the same axes. `attnbench (measure softmax [^`]*)`", shown)
    assert "--query-len=48" in command[1]
    record = strict_json(attnbench(*command[1].split(), "--format", "json").stdout)
    like = next(r for r in records_in(speeds) if r["query_len"] == 48)
    axes = [axis["name"] for axis in attnbench.json("list", "schema")["axes"]]
    assert "query_len" in axes and {name: record[name] for name in axes[1:]} == {name: like[name] for name in axes[1:]}
    assert 'The column runs is "apart" where the method and softmax ran at different times' in shown


def test_wrong_baselines_are_refused(attnbench, speeds):
    message = attnbench("compare", speeds, "--baseline", "sofmax", code=2).stderr
    assert "'sofmax'; did you mean 'softmax'?; known: linear, softmax" in message
    assert "--baseline cannot be given with b" in attnbench("compare", speeds, speeds, "--baseline", "softmax", code=2).stderr
    message = attnbench("compare", speeds, code=2).stderr
    assert "needs the argument 'b'" in message and "--baseline METHOD" in message
    rewrite(speeds, lambda r: r["method"] == "softmax")
    assert "no method besides the baseline softmax" in attnbench("compare", speeds, "--baseline", "softmax", code=2).stderr


def test_a_baseline_may_have_options(attnbench, speeds):
    rewrite(speeds, lambda r: r.update(method="linear:chunk=16") if r["method"] == "linear" else None)
    assert len(compared(attnbench, speeds, "--baseline", "linear:chunk=16")["cases"]) == 2
    assert "known: linear:chunk=16, softmax" in attnbench("compare", speeds, "--baseline", "linear", code=2).stderr


def test_a_baseline_may_have_the_former_name_of_an_option(attnbench, speeds):
    rewrite(speeds, lambda r: r.update(method="linear:kernel=avx2") if r["method"] == "linear" else None)
    for name in ("kernel", "implementation"):
        found = compared(attnbench, speeds, "--baseline", f"linear:{name}=avx2")
        assert len(found["cases"]) == 2
    assert "known: linear:implementation=avx2, softmax" in attnbench("compare", speeds, "--baseline", "linear", code=2).stderr


# ---------------------------------------------------------------- sweeps that a comparison needs


@pytest.mark.parametrize("mode", [["--dry-run"], ["--out", "planned"]])
def test_a_sweep_that_cannot_decide_is_refused_when_it_is_planned(canned, tmp_path, mode):
    sweep = write_sweep(tmp_path / "twelve.toml", query_len=[8, 16, 24, 32, 40, 48], timing={"processes": 5})
    message = canned("sweep", sweep, *mode, code=2).stderr
    assert "processes = 5 cannot decide" in message and "one of 12 cases different" in message
    assert "at least 7 (--set timing.processes=7)" in message and "--exploratory" in message
    assert not (tmp_path / "planned").exists()
    for processes in (4, 6):
        message = canned("sweep", sweep, *mode, "--set", f"processes={processes}", code=2).stderr
        assert f"processes = {processes} cannot decide" in message
    for accepted in (["--set", "processes=3"], ["--exploratory"], ["--set", "processes=7"]):
        canned("sweep", sweep, *mode, *accepted)


def test_a_shard_is_planned_for_the_cases_of_the_whole_sweep(canned, tmp_path):
    sweep = write_sweep(tmp_path / "twelve.toml", query_len=[8, 16, 24, 32, 40, 48], timing={"processes": 6})
    assert "one of 12 cases different" in canned("sweep", sweep, "--shard", "1/4", "--dry-run", code=2).stderr


def test_a_sweep_says_that_it_is_exploratory(canned, sweep):
    assert "; exploratory: `attnbench compare` needs 6 processes a case, not 3\n" in canned(
        "sweep", sweep, "--out", "out", "--set", "processes=3"
    ).stderr
    assert "exploratory" not in canned("sweep", sweep, "--out", "out", "--set", "processes=6").stderr


@pytest.fixture
def timed(attnbench, workers):
    """The driver with a worker that needs 24 ms for softmax and 2 ms for other methods."""
    answer = {"outcome": "measured", "implementation": "stand-in", "samples": 5, "warmup_calls": 1, "measured_s": 1}
    slow, fast = (json.dumps(answer | {"time_samples_ms": [ms] * 5}) for ms in (24.0, 2.0))
    worker = workers.make(measure=f"case \"$request\" in *softmax*) answer '{slow}' ;; *) answer '{fast}' ;; esac")
    return attnbench.with_worker(worker)


def speedup_lines(done):
    return [line for line in done.stderr.splitlines() if "as fast as" in line]


def test_a_sweep_ends_with_the_speedups_at_the_longest_length(timed, tmp_path, sweep):
    arguments = ["sweep", sweep, "--out", "out", "--methods", "softmax,linear"]
    done = timed(*arguments, "--format", "json")
    assert speedup_lines(done) == ["linear  12.0 × as fast as softmax at N = 48"]
    assert len(strict_json(done.stdout)) == 4
    done = timed(*arguments, "--set", "processes=3")
    assert speedup_lines(done) == ["linear  12.0 × (range 12.0 … 12.0) as fast as softmax at N = 48"]
    done = timed(*arguments, "--set", "processes=6")
    assert speedup_lines(done) == ["linear  12.0 × (12.0 … 12.0) as fast as softmax at N = 48"]
    assert timed(*arguments, "--set", "processes=6", "-q").stderr == ""
    # The baseline that the records have is used before the first method.
    change_records(tmp_path / "out", baseline="linear", process_ratios=[12.5] * 6)
    done = timed(*arguments, "--set", "processes=6")
    assert speedup_lines(done) == ["softmax  0.0800 × (0.0800 … 0.0800) as fast as linear at N = 48"]


def test_the_speedups_of_a_sweep_name_the_setting_and_are_few(timed, tmp_path):
    sweep = write_sweep(tmp_path / "s.toml", causal=[False, True], query_len=32)
    lines = [f"softmax  0.0833 × as fast as linear at N = 32 causal={flag}" for flag in ("false", "true")]
    assert speedup_lines(timed("sweep", sweep, "--out", "two")) == lines
    sweep = write_sweep(tmp_path / "many.toml", method=["softmax", "linear"], heads=list(range(1, 13)), query_len=32)
    done = timed("sweep", sweep, "--out", "many")
    assert len(speedup_lines(done)) == 10
    assert done.stderr.endswith("… and 2 more; `attnbench compare many --baseline softmax` shows all\n")
    one = write_sweep(tmp_path / "one.toml", method="softmax")
    assert speedup_lines(timed("sweep", one, "--out", "one")) == []
