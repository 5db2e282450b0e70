"""Tests of the axis `pattern`: which keys a query sees by its distance from them."""

import math

import pytest
from conftest import records_in

SMALL = ["--heads=2", "--head-dim=32", "--threads=1", "--time-budget-s=0.02", "--processes=1"]


def record_of(attnbench, *arguments):
    return attnbench.json("measure", *arguments, *SMALL)


def test_a_window_costs_its_visible_pairs(attnbench):
    everything = record_of(attnbench, "sparse-sdpa", "--query-len=1024", "--causal")
    window = record_of(attnbench, "sparse-sdpa", "--query-len=1024", "--causal", "--pattern=window:128")
    assert (everything["pattern"], window["pattern"]) == ("all", "window:128")
    for record in (everything, window):
        assert record["outcome"] == "measured" and record["implementation"].startswith("kernel/")
    visible = 128 * 1024 - 128 * 127 / 2
    assert window["flops"] / everything["flops"] == pytest.approx(visible / (1024 * 1025 / 2))


@pytest.mark.parametrize("method", ["softmax", "sdpa", "sparse-sdpa"])
@pytest.mark.parametrize("pattern", ["window:20+first:4", "strided:12", "block:16/2"])
def test_methods_with_patterns_agree_with_the_reference(attnbench, method, pattern):
    record = record_of(attnbench, method, "--query-len=200", "--protocol=forward_backward", f"--pattern={pattern}")
    assert record["outcome"] == "measured"
    assert record["max_rel_error"] < record["error_tolerance"]


def test_a_method_without_patterns_skips_the_case_and_says_why(attnbench):
    record = record_of(attnbench, "linear", "--query-len=64", "--pattern=window:8")
    assert record["outcome"] == "skipped" and record["reason"] == "linear has no patterns of visible keys"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("window:0", "--pattern = 'window:0': the window is out of range, expected 1 to 1073741824"),
        ("block:4/5", "--pattern = 'block:4/5': a block of 4 has no 5 last positions"),
        ("window:3+sink:1", "--pattern = 'window:3+sink:1', expected all, window:W, window:W+first:k"),
        ("slide:3", "--pattern = 'slide:3', expected one of all, window:W, window:W+first:k"),
    ],
)
def test_a_wrong_pattern_is_an_error_that_names_it(attnbench, pattern, message):
    ended = attnbench("measure", "sparse-sdpa", f"--pattern={pattern}", code=2)
    assert message in ended.stderr


def test_a_decoder_of_a_window_holds_no_more_than_the_window(attnbench):
    window = record_of(attnbench, "sparse-sdpa", "--query-len=1024", "--protocol=decode", "--pattern=window:64")
    everything = record_of(attnbench, "sparse-sdpa", "--query-len=1024", "--protocol=decode")
    assert window["outcome"] == everything["outcome"] == "measured"
    assert window["state_bytes"] == 2 * 64 * 32 * 2 * 4 < everything["state_bytes"]
    skipped = record_of(attnbench, "sparse-sdpa", "--query-len=64", "--protocol=decode", "--pattern=strided:8")
    assert skipped["reason"] == "sparse-sdpa: decoding takes windows alone, not pattern strided:8"


def test_quality_says_what_a_pattern_leaves_out(attnbench):
    """It compares with attention to all keys, so that a wider window is better."""

    def error(pattern):
        record = record_of(attnbench, "sparse-sdpa", "--query-len=256", "--causal", f"--pattern={pattern}")
        return record["quality_row_error_p95"]

    assert error("all") < 1e-5
    assert error("window:300") < 1e-5 < error("window:128") < error("window:16")


def test_a_sweep_varies_the_pattern_and_may_name_a_baseline_without_one(attnbench, tmp_path):
    (tmp_path / "some.toml").write_text(
        "[axes]\n"
        'method = ["sparse-sdpa", "sdpa"]\n'
        'pattern = ["window:16", "strided:8"]\n'
        "causal = true\nquery_len = 128\nheads = 2\nhead_dim = 16\n"
        '[timing]\nbaseline = "sdpa pattern=all"\nprocesses = 1\ntime_budget_s = 0.02\n'
    )
    attnbench("sweep", tmp_path / "some.toml", "--out", tmp_path / "out")
    records = records_in(tmp_path / "out")
    assert {(r["method"], r["pattern"], r["outcome"]) for r in records} == {
        (method, pattern, "measured") for method in ("sparse-sdpa", "sdpa") for pattern in ("window:16", "strided:8")
    }
    assert all(r["baseline"] == "sdpa pattern=all" and r["ratio_median"] > 0 for r in records)
    table = attnbench("table", tmp_path / "out").stdout
    assert "window:16" in table and "strided:8" in table


def test_the_stride_may_be_the_square_root_of_the_length(attnbench):
    """The exponents of the visible pairs are those that analyses of the sweep `patterns` are to show: about 1 of a window, and 1.5
    of a stride of √N."""

    def flops(pattern, length):
        case = ("sparse-sdpa", f"--query-len={length}", "--causal", f"--pattern={pattern}")
        return record_of(attnbench, *case)["flops"]

    assert flops("strided:sqrt", 1000) == flops("strided:32", 1000) != flops("strided:31", 1000)

    def exponent(pattern):
        return math.log(flops(pattern, 4096) / flops(pattern, 1024), 4)

    assert exponent("strided:sqrt") == pytest.approx(1.5, abs=0.1)
    assert exponent("window:64") == pytest.approx(1, abs=0.1)
    record = record_of(attnbench, "sparse-sdpa", "--query-len=200", "--pattern=strided:sqrt", "--protocol=forward_backward")
    assert record["pattern"] == "strided:sqrt" and record["outcome"] == "measured"


def test_sinks_are_measured_and_refused_where_there_are_none(attnbench):
    for method, protocol in (("sparse-sdpa", "forward_backward"), ("softmax", "forward"), ("stateful-softmax", "decode")):
        record = record_of(attnbench, method, "--query-len=64", "--causal", "--sinks", f"--protocol={protocol}", "--dtype=bfloat16")
        assert record["outcome"] == "measured" and record["sinks"] is True, record["reason"]
    skipped = record_of(attnbench, "sdpa", "--query-len=64", "--sinks")
    assert (skipped["outcome"], skipped["reason"]) == ("skipped", "sdpa takes no sinks")
    assert record_of(attnbench, "sdpa", "--query-len=64")["sinks"] is False


def test_the_quality_of_sinks_compares_with_softmax_attention_that_has_them(attnbench):
    record = record_of(attnbench, "sparse-sdpa", "--query-len=128", "--sinks")
    assert record["quality_row_error_p95"] < 1e-5


def test_packed_sequences_cost_their_own_pairs(attnbench):
    record = record_of(attnbench, "sparse-sdpa", "--query-len=1024", "--causal", "--packed=lengths:24,1000")
    one = record_of(attnbench, "sparse-sdpa", "--query-len=1024", "--causal")
    assert record["outcome"] == "measured" and record["packed"] == "lengths:24,1000"
    assert record["flops"] / one["flops"] == pytest.approx((24 * 25 + 1000 * 1001) / (1024 * 1025))
    recurrent = record_of(attnbench, "gated-delta", "--query-len=64", "--causal", "--packed=uniform:9", "--protocol=forward_backward")
    assert recurrent["outcome"] == "measured"
    skipped = record_of(attnbench, "linear", "--query-len=64", "--packed=uniform:2")
    assert skipped["reason"] == "linear takes no packed sequences"


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        ("lengths:60,3", "--packed = lengths:60,3 has lengths that add up to 63, expected --query-len = 64"),
        ("uniform:65", "--packed = uniform:65 has more sequences than --query-len = 64 has positions"),
        ("uniform:0", "--packed = 'uniform:0', expected 'none', 'uniform:S' with a number of sequences"),
        ("two", "--packed = 'two', expected one of none, uniform:S, lengths:L,L"),
    ],
)
def test_wrong_packed_sequences_are_an_error_that_names_them(attnbench, packed, message):
    ended = attnbench("measure", "sparse-sdpa", "--query-len=64", f"--packed={packed}", code=2)
    assert message in ended.stderr


def test_a_shape_sets_the_axes_of_a_model_and_options_change_them(attnbench):
    shape = next(s for s in attnbench.json("list", "shapes") if s["name"] == "gpt-oss")
    assert shape["source"].startswith("transformers ")
    axes = {name: shape[name] for name in ("heads", "kv_heads", "value_heads", "head_dim", "value_dim", "pattern", "sinks")}
    assert axes["sinks"] is True
    # --shape is read first wherever it stands.
    record = attnbench.json(
        "measure", "sparse-sdpa", "--heads=16", "--shape=gpt-oss", "--query-len=64", "--causal", "--time-budget-s=0.02"
    )
    assert {name: record[name] for name in axes} == axes | {"heads": 16}
    plain = attnbench.json("measure", "sdpa", "--shape=gpt-oss", "--sinks=false", "--query-len=64", "--causal", "--time-budget-s=0.02")
    assert plain["outcome"] == "measured" and plain["sinks"] is False
    failed = attnbench("measure", "sparse-sdpa", "--shape=gpt-4", code=2)
    assert "--shape = 'gpt-4', expected one of paper, qwen3.5" in failed.stderr


def test_a_sweep_takes_a_shape(attnbench, tmp_path):
    (tmp_path / "shape.toml").write_text('[axes]\nmethod = "sparse-sdpa"\nquery_len = 64\nhead_dim = 32\nshape = "gpt-oss"\n')
    attnbench("sweep", "shape.toml", "--out", "out", "--set=timing.processes=1", "--set=timing.time_budget_s=0.02")
    (record,) = records_in(tmp_path / "out")
    assert (record["heads"], record["kv_heads"], record["head_dim"], record["pattern"]) == (64, 8, 32, "window:128")
    attnbench("sweep", "shape.toml", "--out", "other", "--set=shape=gemma4", "--set=heads=16", "--set=timing.processes=1", "--set=timing.time_budget_s=0.02")
    (record,) = records_in(tmp_path / "other")
    assert (record["heads"], record["kv_heads"], record["head_dim"], record["pattern"]) == (16, 4, 256, "window:512")
    (tmp_path / "wrong.toml").write_text('[axes]\nmethod = "sparse-sdpa"\nshape = "gpt"\n')
    failed = attnbench("sweep", "wrong.toml", "--dry-run", code=2)
    assert "wrong.toml:3:9: shape = 'gpt', expected one of paper, qwen3.5" in failed.stderr


def test_latent_attention_reads_what_all_heads_share_once(attnbench):
    shape = ["--kv-heads=1", "--value-dim=24", "--query-len=256", "--causal", "--protocol=decode"]
    record, separate = (record_of(attnbench, method, *shape) for method in ("mla", "sparse-sdpa"))
    assert record["outcome"] == "measured" and record["implementation"] == "aten/latent cache"
    assert record["state_bytes"] * (32 + 24) == separate["state_bytes"] * 32
    refused = record_of(attnbench, "mla", "--value-dim=128", "--query-len=64", "--causal", "--protocol=decode")
    assert refused["outcome"] == "skipped" and "mla needs value_dim ≤ head_dim" in refused["reason"]


@pytest.mark.parametrize("method", ["topk-pooled:block=16,top=2", "pooled-kv:block=16"])
def test_methods_of_pooled_blocks_compute_less(attnbench, method):
    record = record_of(attnbench, method, "--query-len=512", "--causal", "--protocol=forward_backward")
    exact = record_of(attnbench, "sparse-sdpa", "--query-len=512", "--causal", "--protocol=forward_backward")
    assert record["outcome"] == "measured" and record["implementation"].startswith("kernel/")
    assert record["flops"] < exact["flops"] / 4
    assert record["quality_row_error_median"] > exact["quality_row_error_median"]
