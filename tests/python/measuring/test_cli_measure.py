"""Tests of `attnbench measure`, which measures one case and prints its record as text or JSON."""

import os
import re
import resource
import signal
import statistics
from pathlib import Path

import pytest
from conftest import HANG_S, children, group_members, measuring_worker, small, strict_json, wait_for

# Of the protocol decode: the number of steps of a round, and the minimum number that are checked.
ROUND, WARM_UP, CHECKED = 32, 12, 4

ELEMENT_BYTES = {"float32": 4, "float64": 8, "bfloat16": 2}

# By documented option of `measure`: the value that the test gives, and the value recorded.
OPTIONS = {
    "--device": ("cpu", "cpu"),
    "--dtype": ("float64", "float64"),
    "--protocol": ("forward_backward", "forward_backward"),
    "--batch": ("2", 2),
    "--heads": ("3", 3),
    "--kv-heads": ("3", 3),
    "--value-heads": ("3", 3),
    "--query-len": ("40", 40),
    "--key-len": ("56", 56),
    "--head-dim": ("8", 8),
    "--value-dim": ("24", 24),
    "--key-lengths": ("uniform", "uniform"),
    "--pattern": ("window:5", "window:5"),
    "--packed": ("none", "none"),
    "--inputs": ("clustered", "clustered"),
    "--concentration": ("2.5", 2.5),
    "--decay-positions": ("100", 100),
    "--threads": ("1", 1),
    "--ranks": ("1", 1),
    "--cache": ("cold", "cold"),
    "--allocation": ("fresh", "fresh"),
    "--seed": ("7", 7),
    "--processes": ("1", 1),
    "--injected-slowdown-percent": ("1", 1.0),
    "--memory-limit-bytes": ("1.5 GiB", 3 * 2**29),
    "--deadline-s": ("90", 90.0),
    "--warmup-s": ("0.001", 0.001),
    "--min-samples": ("7", 7),
    "--noise-target": ("0.5", 0.5),
    "--time-budget-s": ("0.03", 0.03),
    "--max-disturbance": ("1000", 1000.0),
    "--quality-seeds": ("2", 2),
}


def input_bytes(r):
    """The bytes of the inputs of the case of this record."""
    rows = r["batch"] * r["heads"]
    queries, keys = (1, 1) if r["protocol"] == "decode" else (r["query_len"], r["key_len"])
    elements = rows * (queries * r["head_dim"] + keys * (r["head_dim"] + r["value_dim"]))
    if r["protocol"] == "forward_backward":
        elements += rows * r["query_len"] * r["value_dim"]
    lengths = 0 if r["key_lengths"] == "full" else 8 * r["batch"]
    return elements * ELEMENT_BYTES[r["dtype"]] + lengths


def output_bytes(r):
    """The bytes of the outputs of the case of this record, gradients included."""
    rows = r["batch"] * r["heads"]
    elements = rows * (1 if r["protocol"] == "decode" else r["query_len"]) * r["value_dim"]
    if r["protocol"] == "forward_backward":
        elements += rows * r["query_len"] * r["head_dim"]
        elements += rows * r["key_len"] * (r["head_dim"] + r["value_dim"])
    return elements * ELEMENT_BYTES[r["dtype"]]


def check(r):
    """Checks the relations among columns that hold for every record of a measured case."""
    assert r["outcome"] == "measured", r["reason"]
    assert r["failure_kind"] is None and r["reason"] is None
    assert r["implementation"]

    samples = r["time_samples_ms"]
    assert r["samples"] == len(samples) >= max(5, r["min_samples"])
    assert all(sample > 0 for sample in samples)
    q1, median, q3 = statistics.quantiles(samples, n=4, method="inclusive")
    assert r["time_q1_ms"] == pytest.approx(q1)
    assert r["time_median_ms"] == pytest.approx(median)
    assert r["time_q3_ms"] == pytest.approx(q3)
    assert r["time_q1_ms"] <= r["time_median_ms"] <= r["time_q3_ms"]
    assert min(samples) <= r["time_ci_low_ms"] <= r["time_median_ms"]
    assert r["time_median_ms"] <= r["time_ci_high_ms"] <= max(samples)
    assert r["time_per_sample_ms"] == pytest.approx(r["time_median_ms"] / r["batch"])
    assert r["time_first_ms"] > 0
    assert r["calls_per_sample"] >= 1 and r["warmup_calls"] >= 1
    assert r["stop_reason"] in ("noise_target", "time_budget")
    assert 0 < r["measured_s"] < r["worker_s"]

    assert r["input_bytes"] == input_bytes(r)
    assert r["output_bytes"] == output_bytes(r)
    assert r["peak_allocated_bytes"] == r["input_bytes"] + r["peak_extra_bytes"]
    assert r["peak_extra_bytes"] >= r["output_bytes"]
    assert r["peak_extra_bytes_per_sample"] == pytest.approx(r["peak_extra_bytes"] / r["batch"])
    assert 0 < r["largest_allocation_bytes"] <= r["peak_extra_bytes"]
    if r["peak_rss_bytes"] is not None:  # null if the system cannot reset the peak
        assert r["peak_rss_bytes"] >= r["peak_allocated_bytes"]

    assert 0 < r["max_rel_error"] <= r["error_tolerance"]
    assert r["max_abs_error"] > 0
    assert r["rows_checked"] > 0
    assert r["flops"] > 0 and r["min_bytes"] > 0
    assert r["min_bytes"] >= r["input_bytes"] - 8 * r["batch"]
    assert 0 < r["min_timed_calls"] <= r["samples"] * r["calls_per_sample"]
    assert r["min_calls"] > r["min_timed_calls"]
    assert r["schema_version"] >= 1
    assert r["torch_version"] and r["cpu_model"] and r["revision"] and r["compiler"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", r["finished_at"])


@pytest.mark.parametrize("method", ["linear", "linear-einsum", "sdpa", "softmax"])
@pytest.mark.parametrize("protocol", ["forward", "forward_backward"])
def test_columns_of_a_record_agree_with_each_other(quick, method, protocol):
    done = quick("measure", method, *small(batch=3, protocol=protocol), "--format=json")
    assert done.stdout.count("\n") == 1
    record = strict_json(done.stdout)
    check(record)
    assert record["method"] == method and record["protocol"] == protocol and record["batch"] == 3
    if protocol == "forward":
        assert record["saved_bytes"] == 0
    # The columns of diagnostics are only in the records of the methods that declare them.
    columns = [column["name"] for column in quick.json("list", "columns") if column["group"] != "diagnostics"]
    assert list(record) == columns


def test_the_worker_beside_the_driver_is_used_by_default(attnbench):
    check(attnbench.json("measure", "linear", *small()))


def test_softmax_takes_the_memory_of_two_matrices_of_scores(quick):
    record = quick.json("measure", "softmax", *small(query_len=512, batch=2))
    matrix = 2 * 2 * 512 * 512 * 4
    assert record["largest_allocation_bytes"] == matrix
    assert record["peak_extra_bytes"] == pytest.approx(2 * matrix, rel=0.1)
    # Cases are skipped by the prediction, so it must agree with the measured peak.
    assert record["predicted_peak_bytes"] == pytest.approx(record["peak_allocated_bytes"], rel=0.1)


def test_linear_takes_memory_in_proportion_to_the_length(quick):
    shorter, longer = (
        quick.json("measure", "linear", *small(query_len=n))["peak_extra_bytes"]
        for n in (2048, 8192)
    )
    assert longer == pytest.approx(4 * shorter, rel=0.1)


def test_every_documented_option_is_recorded(quick):
    text = quick("measure", "--help").stdout
    documented = set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", text, re.MULTILINE))
    hidden = {"--injected-slowdown-percent"}  # a test hook
    others = {"--causal", "--sinks", "--graph", "--format", "--verbose", "--help", "--baseline", "--plugin", "--like", "--forked", "--shape"}
    assert documented == set(OPTIONS) - hidden | others

    given = [word for option, (value, _) in OPTIONS.items() for word in (option, value)]
    record = quick.json("measure", "softmax", *given)
    for option, (_, recorded) in OPTIONS.items():
        assert record[option[2:].replace("-", "_")] == recorded, option
    assert record["causal"] is False
    check(record)
    assert record["calls_per_sample"] == 1  # the cache is cold for one call only


def test_options_that_are_not_given_have_their_defaults(quick):
    record = quick.json("measure", "linear", *small())
    assert record["key_len"] == record["query_len"] == 64
    assert record["value_dim"] == record["head_dim"] == 16
    assert record["memory_limit_bytes"] > 2**20
    defaults = {"device": "cpu", "dtype": "float32", "protocol": "forward", "batch": 1}
    defaults |= {"causal": False, "key_lengths": "full", "inputs": "normal", "cache": "warm", "allocation": "kept"}
    defaults |= {"seed": 0}
    assert {name: record[name] for name in defaults} == defaults


def test_threads_default_to_the_processors_that_may_be_used(attnbench, canned_worker):
    one = min(os.sched_getaffinity(0))
    record = attnbench.with_worker(canned_worker).json(
        "measure", "linear", preexec_fn=lambda: os.sched_setaffinity(0, {one})
    )
    assert record["threads"] == 1


@pytest.mark.parametrize("method", ["linear", "sdpa", "softmax"])
def test_a_causal_case_is_measured(quick, method):
    record = quick.json("measure", method, *small(protocol="forward_backward"), "--causal")
    check(record)
    assert record["causal"] is True


def test_an_option_of_a_method_takes_effect(quick):
    chunks = [
        quick.json("measure", f"linear-chunked:chunk={chunk}", *small(), "--causal") for chunk in (8, 64)
    ]
    for record in chunks:
        check(record)
    assert [record["method"] for record in chunks] == ["linear-chunked:chunk=8", "linear-chunked:chunk=64"]
    assert chunks[0]["peak_extra_bytes"] != chunks[1]["peak_extra_bytes"]


def test_the_seed_determines_the_inputs(quick):
    def error(seed):
        return quick.json("measure", "linear", *small(seed=seed))["max_abs_error"]

    assert error(1) == error(1) != error(2)


def test_inputs_have_the_distribution_that_is_given(quick):
    errors = set()
    for inputs in ("normal", "clustered", "repeated"):
        record = quick.json("measure", "softmax", *small(query_len=128, inputs=inputs))
        check(record)
        assert record["inputs"] == inputs
        errors.add(record["max_abs_error"])
    assert len(errors) == 3


def test_cases_with_key_lengths_are_measured(quick):
    for lengths in ("0", "5", "uniform"):
        record = quick.json("measure", "softmax", *small(batch=2, key_lengths=lengths))
        assert record["outcome"] == "measured"
        assert record["key_lengths"] == lengths
        assert record["input_bytes"] == input_bytes(record)
        # If no key is visible, the output is exactly zero.
        assert (record["max_abs_error"] == 0) == (lengths == "0")


# ---------------------------------------------------------------- decoding


def check_decode(r):
    """Checks the relations among columns that hold for every record of the protocol decode."""
    check(r)
    assert r["causal"] is True
    assert r["calls_per_sample"] == 1
    rounds, rest = divmod(r["samples"], ROUND - WARM_UP)
    assert rest == 0
    assert CHECKED <= r["warmup_calls"] - rounds * WARM_UP <= ROUND
    assert r["rows_checked"] == CHECKED * r["batch"] * r["heads"]
    assert r["saved_bytes"] == 0
    assert r["state_bytes"] == r["predicted_state_bytes"] > 0
    assert r["predicted_setup_bytes"] == r["state_bytes"] + (r["query_len"] + ROUND) * input_bytes(r)


def linear_state_bytes(r):
    # The state has the sums of φ(k)vᵀ and of φ(k), in float32 or, for float64, in float64.
    element = 8 if r["dtype"] == "float64" else 4
    return r["batch"] * r["heads"] * r["head_dim"] * (r["value_dim"] + 1) * element


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_decoding_with_linear_attention_has_a_state_of_constant_size(quick, dtype):
    records = [
        quick.json(
            "measure", "linear", *small(protocol="decode", query_len=n, batch=2, dtype=dtype)
        )
        for n in (1, 64, 400)
    ]
    for record in records:
        check_decode(record)
        assert record["state_bytes"] == linear_state_bytes(record)
        # The peak is that of the state and one step, for any number of earlier tokens.
        extra = record["peak_extra_bytes"]
        assert record["state_bytes"] < extra < 4 * record["state_bytes"]
    assert len({record["peak_extra_bytes"] for record in records}) == 1


def test_decoding_with_softmax_has_a_state_that_grows_with_the_prefix(quick):
    shorter, longer = (
        quick.json("measure", "softmax", *small(protocol="decode", query_len=n)) for n in (64, 512)
    )
    for record in (shorter, longer):
        check_decode(record)
        # The state holds at least the key and the value of every token.
        held = record["query_len"] * record["heads"] * (record["head_dim"] + record["value_dim"])
        assert record["state_bytes"] >= 4 * held
        assert record["peak_extra_bytes"] > record["state_bytes"]
    assert longer["state_bytes"] > 4 * shorter["state_bytes"]


def test_decoding_with_a_cold_cache_takes_whole_rounds_of_samples(quick):
    options = small(protocol="decode", cache="cold", min_samples=33, noise_target=1e9)
    record = quick.json("measure", "linear", *options)
    check_decode(record)
    assert record["samples"] >= 2 * (ROUND - WARM_UP)
    assert record["stop_reason"] == "noise_target"


@pytest.mark.parametrize("method", ["linear", "softmax"])
def test_prefill_records_the_state_and_the_outputs(quick, method):
    record = quick.json("measure", method, *small(protocol="prefill", query_len=128, batch=2))
    check(record)
    assert record["causal"] is True
    assert record["state_bytes"] == record["predicted_state_bytes"] > 0
    assert record["peak_extra_bytes"] >= record["output_bytes"]
    assert record["predicted_setup_bytes"] is None
    if method == "linear":
        assert record["state_bytes"] == linear_state_bytes(record)


@pytest.mark.parametrize("protocol", ["decode", "prefill"])
def test_decoding_that_is_not_supported_is_skipped_with_the_reason(quick, protocol):
    for options, words in [
        (["linear-einsum", *small(protocol=protocol)], "does not decode"),
        (["linear", *small(protocol=protocol, key_lengths="uniform")], "key lengths"),
        (["linear", *small(protocol=protocol, key_len=32)], "key_len = query_len"),
    ]:
        record = quick.json("measure", *options)
        assert (record["outcome"], record["failure_kind"]) == ("skipped", "unsupported")
        assert words in record["reason"]
        assert record["time_median_ms"] is None and record["state_bytes"] is None


def test_decoding_is_skipped_if_its_prefix_does_not_fit_into_memory(quick):
    # The state and one step fit into 1 MB, but 4096 tokens of 384 bytes do not.
    record = quick.json(
        "measure", "linear", *small(protocol="decode", query_len=4096, memory_limit_bytes="1 MB")
    )
    assert (record["outcome"], record["failure_kind"]) == ("skipped", "predicted_oom")
    assert record["predicted_peak_bytes"] < 1_000_000 < record["predicted_setup_bytes"]


def test_errors_grow_as_the_precision_of_the_dtype_falls(quick):
    errors = {}
    for dtype in ("float64", "float32", "bfloat16"):
        record = quick.json("measure", "softmax", *small(dtype=dtype))
        check(record)
        errors[dtype] = record["max_rel_error"]
    assert errors["float64"] < 1e-12 < errors["float32"] < 1e-4 < errors["bfloat16"]


def test_noise_target_and_time_budget_stop_the_sampling(quick):
    easy = quick.json("measure", "linear", *small(noise_target=1e9, time_budget_s=60))
    assert easy["stop_reason"] == "noise_target" and 5 <= easy["samples"] <= 7
    never = quick.json("measure", "linear", *small(noise_target=0, min_samples=9))
    assert never["stop_reason"] == "time_budget" and never["samples"] >= 9
    sampled_s = sum(never["time_samples_ms"]) * never["calls_per_sample"] / 1e3
    assert sampled_s >= 0.05 * 0.999


def test_text_answers_with_time_memory_error_and_implementation(quick):
    lines = quick("measure", "softmax", *small(noise_target=1e9)).stdout.splitlines()
    case, time, rate, memory, implementation = [line.split(maxsplit=1) for line in lines]
    assert case == ["case", "softmax forward: N = 64, batch 1, 2 heads of 16, float32, not causal, 1 thread"]
    assert rate[0] == "rate"
    assert time[0] == "time" and re.fullmatch(r"[\d.]+ (µs|ms) spread ±[\d.]+ %, in 1 process of \d+ samples", time[1])
    assert memory[0] == "memory"
    assert re.fullmatch(r"[\d.]+ KiB above the inputs; rounding error [\d.]+e-\d+ \(at most 5\.0e-04 accepted\)", memory[1])
    assert implementation == ["implementation", "aten/materialised on 1 thread"]
    markdown = quick("measure", "softmax", *small(noise_target=1e9), "--format", "markdown").stdout
    assert len(markdown.splitlines()) == 2 + 5


def answer(cli, *words):
    """The lines of the answer of `measure`, by their names."""
    text = cli("measure", *words).stdout
    return {line[:30].strip(): line[30:].strip() for line in text.splitlines()}


def test_the_answer_names_every_axis_that_has_no_default(canned):
    few = ["--heads=1", "--head-dim=16", "--query-len=32", "--threads=1"]
    assert answer(canned, "linear", *few)["case"] == "linear forward: N = 32, batch 1, 1 head of 16, float32, not causal, 1 thread"
    more = ["--key-len=48", "--value-dim=8", "--batch=3", "--dtype=bfloat16", "--cache=cold", "--seed=7", "--inputs=clustered"]
    assert answer(canned, "softmax", *few, *more)["case"] == (
        "softmax forward: N = 32, 48 keys, batch 3, 1 head of 16 with values of 8, bfloat16, not causal, 1 thread, "
        "inputs=clustered, cache=cold, seed=7"
    )
    decode = answer(canned, "linear", *few, "--protocol=decode")["case"]
    assert decode.startswith("linear decode: N = 32, batch 1") and ", causal, " in decode
    unsupported = answer(canned, "linear-einsum", *few, "--causal")
    assert unsupported["outcome"] == "skipped: unsupported" and unsupported["case"].startswith("linear-einsum forward: N = 32")


@pytest.mark.parametrize(("protocol", "tokens"), [("forward", 3 * 64), ("forward_backward", 3 * 64), ("decode", 3)])
def test_rates_follow_from_the_cost_and_the_time(canned, protocol, tokens):
    words = ["linear", "--query-len=64", "--batch=3", f"--protocol={protocol}"]
    record = canned.json("measure", *words)
    pattern = r"([\d.,]+) GFLOP/s, at least ([\d.,]+) GB/s, ([\d.,]+) tokens/s"
    shown = [float(number.replace(",", "")) for number in re.fullmatch(pattern, answer(canned, *words)["rate"]).groups()]
    second = 1e3 / record["time_median_ms"]
    assert shown == pytest.approx([record["flops"] / 1e9 * second, record["min_bytes"] / 1e9 * second, tokens * second], rel=0.05)


def test_verbose_text_shows_every_value_with_its_unit(quick):
    text = quick("measure", "softmax", *small(memory_limit_bytes="1GiB"), "--verbose").stdout
    lines = dict(line.split(maxsplit=1) for line in text.splitlines() if line.startswith("  "))
    assert lines["method"] == "softmax"
    assert lines["outcome"] == "measured"
    assert lines["query_len"] == "64"
    assert lines["memory_limit_bytes"] == "1.00 GiB"
    assert lines["input_bytes"] == "24.0 KiB"
    for name in ("time_first_ms", "time_median_ms", "time_q1_ms", "time_per_sample_ms"):
        assert re.fullmatch(r"\d+(\.\d+)? (µs|ms|s)", lines[name]), lines[name]
    assert "failure_kind" not in lines and "time_samples_ms" not in lines


# ---------------------------------------------------------------- cases that are not run


def test_an_unsupported_case_is_skipped_with_the_reason(quick):
    record = quick.json("measure", "linear-einsum", *small(), "--causal")
    assert (record["outcome"], record["failure_kind"]) == ("skipped", "unsupported")
    assert "linear-einsum" in record["reason"] and "causal" in record["reason"]
    assert record["time_median_ms"] is None and record["peak_allocated_bytes"] is None
    text = quick("measure", "linear-einsum", *small(), "--causal").stdout
    assert "skipped" in text and record["reason"] in text


def test_causal_cross_attention_is_skipped(quick):
    record = quick.json("measure", "linear", *small(key_len=32), "--causal")
    assert (record["outcome"], record["failure_kind"]) == ("skipped", "unsupported")
    assert "key_len" in record["reason"]


def test_heads_that_share_keys_and_values_are_measured_and_skipped_where_unsupported(quick):
    own, shared = (quick.json("measure", "softmax", *small(heads=4, protocol="forward_backward", **more)) for more in ({}, {"kv_heads": 2}))
    assert (own["outcome"], own["kv_heads"], own["value_heads"]) == ("measured", 4, 4)
    assert (shared["outcome"], shared["kv_heads"], shared["value_heads"]) == ("measured", 2, 2)
    # Of q, k, v and the gradient of the output, k and v have half as many heads.
    assert shared["input_bytes"] == own["input_bytes"] * 3 / 4
    assert "4 heads of 16, 2 heads of keys" in quick("measure", "softmax", *small(heads=4, kv_heads=2)).stdout
    refused = quick.json("measure", "linear", *small(heads=4, kv_heads=2))
    assert (refused["outcome"], refused["reason"]) == ("skipped", "linear needs as many heads of keys and values as of queries")


def test_a_causal_case_with_more_keys_than_queries_ends_at_the_last_key(quick):
    record = quick.json("measure", "sdpa", *small(query_len=16, key_len=64), "--causal")
    assert (record["outcome"], record["key_len"]) == ("measured", 64)


def test_a_case_on_cuda_is_skipped_without_cuda(quick, workers):
    if Path("/dev/nvidiactl").exists() and workers.environment["build"].startswith("CUDA"):
        pytest.skip("this machine and build may have CUDA")
    record = quick.json("measure", "linear", *small(device="cuda"))
    assert (record["outcome"], record["failure_kind"]) == ("skipped", "unsupported")
    assert "cuda" in record["reason"].lower()
    assert record["device"] == "cuda" and record["time_median_ms"] is None


def test_a_case_predicted_to_exceed_the_memory_limit_is_skipped(quick):
    record = quick.json("measure", "softmax", *small(memory_limit_bytes="100 kB"))
    assert (record["outcome"], record["failure_kind"]) == ("skipped", "predicted_oom")
    assert record["memory_limit_bytes"] == 100_000 < record["predicted_peak_bytes"]
    assert "97.7 KiB" in record["reason"]  # the budget
    assert record["time_median_ms"] is None
    # Linear attention fits where the matrices of scores do not.
    less = small(query_len=512, memory_limit_bytes="1 MB")
    assert quick.json("measure", "softmax", *less)["outcome"] == "skipped"
    assert quick.json("measure", "linear", *less)["outcome"] == "measured"


def test_running_out_of_memory_is_recorded_with_the_bytes_asked_for(quick):
    matrix = 2 * 16384 * 16384 * 4

    def less_memory():
        resource.setrlimit(resource.RLIMIT_DATA, (matrix, matrix))

    large = small(query_len=16384, memory_limit_bytes="1 TB")
    done = quick("measure", "softmax", *large, "--format=json", code=1, preexec_fn=less_memory)
    record = strict_json(done.stdout)
    assert (record["outcome"], record["failure_kind"]) == ("failed", "oom")
    assert str(matrix) in record["reason"]
    assert record["time_median_ms"] is None


def test_a_case_beyond_its_deadline_fails_as_a_timeout(quick):
    done = quick("measure", "linear", *small(deadline_s=0.001), "--format=json", code=1)
    record = strict_json(done.stdout)
    assert (record["outcome"], record["failure_kind"]) == ("failed", "timeout")
    assert "0.001 s" in record["reason"]
    assert record["time_median_ms"] is None


def test_a_crash_of_the_worker_is_recorded(attnbench, workers):
    worker = workers.make(measure="echo 'no such kernel' >&2; kill -SEGV $$")
    done = attnbench.with_worker(worker)("measure", "linear", *small(), "--format=json", code=1)
    record = strict_json(done.stdout)
    assert (record["outcome"], record["failure_kind"]) == ("failed", "crashed")
    assert f"signal {signal.SIGSEGV.value}" in record["reason"]
    assert "no such kernel" in record["reason"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_driver_and_worker(quick, number):
    with quick.running("measure", "linear", *small(time_budget_s=60, noise_target=0)) as driver:
        worker = measuring_worker(driver)
        driver.send_signal(number)
        output, _ = driver.communicate(timeout=HANG_S)
        assert driver.returncode == 128 + number
        assert output == ""
        assert group_members(worker.group) == []


# ---------------------------------------------------------------- invalid options


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--device", "gpu", "one of cpu, cuda"),
        ("--dtype", "float8", "float32, float64, bfloat16"),
        ("--protocol", "backward", "forward, forward_backward, prefill, decode"),
        ("--inputs", "skewed", "one of normal, clustered, repeated, offset, scaled, outliers"),
        ("--batch", "0", "at least 1"),
        ("--batch", "1.5", "a whole number"),
        ("--batch", "99999999999999999999", "at most 16777216"),
        ("--heads", "-2", "at least 1"),
        ("--query-len", "many", "number"),
        ("--query-len", "", "number"),
        ("--key-len", "0", "at least 1"),
        ("--head-dim", "true", "a whole number"),
        ("--value-dim", "[16]", "a whole number"),
        ("--key-lengths", "some", "one of full, uniform, or a whole number"),
        ("--key-lengths", "65", "64"),
        ("--threads", "0", "at least 1"),
        ("--cache", "lukewarm", "one of warm, cold"),
        ("--seed", "-1", "at least 0"),
        ("--memory-limit-bytes", "much", "11 GiB"),
        ("--memory-limit-bytes", "-1 GiB", "11 GiB"),
        ("--memory-limit-bytes", "4 GiBs", "11 GiB"),
        ("--deadline-s", "0", "at least 0.001"),
        ("--deadline-s", "nan", "a number"),
        ("--deadline-s", "1e999", "a number"),
        ("--warmup-s", "-0.1", "at least 0"),
        ("--min-samples", "4", "at least 5"),
        ("--noise-target", "-1", "at least 0"),
        ("--time-budget-s", "soon", "a number"),
    ],
)
def test_errors_about_values_name_option_and_expectation(canned, option, value, expected):
    done = canned("measure", "linear", *small(**{option[2:].replace("-", "_"): value}), code=2)
    assert done.stdout == ""
    message = done.stderr
    assert option in message, "the message must name the option as it is written"
    assert expected in message
    assert value.removesuffix("9" * 19) in message or "1e+20" in message


def test_sizes_beyond_64_bits_are_refused(canned):
    sizes = ["--batch", 2**24, "--query-len", 2**40, "--head-dim", 2**24]
    assert "64-bit" in canned("measure", "linear", *sizes, code=2).stderr


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("sofmax", ["'sofmax'", "'softmax'", "linear-einsum"]),
        ("Linear", ["'Linear'", "'linear'"]),
        ("linear-chunked:chnk=3", ["'chnk'", "'chunk'"]),
        ("linear-chunked:chunk", ["'chunk'", "option=value"]),
        ("linear-chunked:chunk=many", ["chunk", "'many'", "whole number"]),
        ("linear-chunked:chunk=0", ["chunk", "'0'", "from 1 to"]),
        ("linear-chunked:chunk=8,chunk=9", ["chunk", "twice"]),
        ("softmax:chunk=3", ["'chunk'", "softmax"]),
    ],
)
def test_an_unknown_method_or_option_of_a_method_is_an_error_that_names_it(canned, method, words):
    done = canned("measure", method, *small(), code=2)
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr


def test_no_process_is_left_running(quick):
    with quick.running("measure", "linear", *small()) as driver:
        worker = measuring_worker(driver)
        driver.wait(timeout=HANG_S)
        wait_for(lambda: not group_members(worker.group), "the worker's group to end")
        assert children(driver.pid) == []


def test_with_several_processes_the_interval_is_that_across_them(quick):
    record = quick.json("measure", "linear", *small(processes=3))
    medians = record["process_medians_ms"]
    assert len(medians) == 3 and record["time_ci_scope"] == "range of processes"
    assert record["time_median_ms"] == pytest.approx(statistics.median(medians))
    assert (record["time_ci_low_ms"], record["time_ci_high_ms"]) == (min(medians), max(medians))
    assert record["samples"] == len(record["time_samples_ms"]) >= 15
    alone = quick.json("measure", "linear", *small())
    assert alone["process_medians_ms"] is None and alone["time_ci_scope"] == "spread within process"
    assert (alone["time_ci_low_ms"], alone["time_ci_high_ms"]) == (alone["time_q1_ms"], alone["time_q3_ms"])


def test_a_case_fails_if_one_of_its_processes_fails(workers, attnbench, tmp_path):
    once = workers.make(measure=f"if [ -e '{tmp_path}/ran' ]; then kill -SEGV $$; fi; touch '{tmp_path}/ran'; good")
    record = attnbench.with_worker(once).json("measure", "linear", *small(processes=3), code=1)
    assert record["failure_kind"] == "crashed" and record["time_median_ms"] is None
