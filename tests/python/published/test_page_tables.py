"""The tables of pages about families of attention: each says what the records say, and nothing where there are none."""

import importlib

import pytest
import test_plots  # noqa: F401  makes attnplots importable
from test_results import record, write

pages, patterns, recurrent = (
    importlib.import_module(f"attnplots.published.{name}") for name in ("pages", "pattern_tables", "recurrent_tables")
)


def case(method, query_len, ms, ratio=None, **more):
    """A measured case whose time is `ratio` times that of its baseline."""
    of_baseline = {"ratio_median": ratio, "ratio_ci_low": ratio, "ratio_ci_high": ratio, "ratio_pairing": "turns"} if ratio else {}
    made = record(method=method, query_len=query_len, key_len=query_len, causal=True, time_median_ms=ms, time_per_sample_ms=ms)
    return made | {"baseline": "linear"} | of_baseline | more


def rows(lines):
    """The cells of a table in Markdown, without its head."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][2:]


@pytest.mark.parametrize("table", [patterns.speed_table, recurrent.speed_table])
def test_a_table_without_records_says_so(table, tmp_path):
    assert table(tmp_path) == ["Nothing is measured yet."]


def test_the_speed_of_recurrent_attention_is_relative_to_its_baseline(tmp_path):
    write(
        tmp_path / "results", "recurrent",
        case("linear", 2048, 2.0),
        case("kda", 2048, 4.0, 2.0),
        case("kda", 8192, 500.0, 2.5, protocol="forward_backward", peak_extra_bytes_per_sample=2**30),
        case("kda", 4096, 0.005, 1.25, protocol="decode"),
        case("kda", 4096, 9.0, 3.0, value_dim=128, head_dim=128),
        case("rivals/transformers-recurrent.py:gated_delta", 2048, 90.0, 9.0),
    )  # fmt: skip
    found = rows(recurrent.speed_table(tmp_path))
    assert found == [
        ["`linear`", "2 ms", "not measured", "not measured", "not measured", "not measured"],
        ["`kda`", "4 ms (0.50)", "not measured", "500 ms (0.40)", "5 µs (0.80)", "1 GiB"],
    ]


def test_the_speed_of_recurrent_attention_is_that_of_eight_heads_on_the_cpu(tmp_path):
    own = case("kda", 2048, 4.0, 2.0)
    heads = {"heads": 16, "kv_heads": 16, "value_heads": 16}
    long = case("kda", 8192, 500.0, 2.5, protocol="forward_backward", peak_extra_bytes_per_sample=None, peak_extra_bytes=None)
    write(
        tmp_path / "results", "recurrent",
        own, long, own | heads | {"time_per_sample_ms": 9.0}, own | {"value_heads": 16, "time_per_sample_ms": 9.0},
        own | {"dtype": "bfloat16", "time_per_sample_ms": 9.0}, own | {"device": "cuda", "time_per_sample_ms": 9.0},
    )  # fmt: skip
    assert rows(recurrent.speed_table(tmp_path)) == [["`kda`", "4 ms (0.50)", "not measured", "500 ms (0.40)", "not measured", "–"]]


def test_each_case_of_a_pattern_is_beside_what_took_turns_with_it(tmp_path):
    write(
        tmp_path / "results", "patterns",
        case("linear", 8192, 8.0),
        case("sparse-sdpa", 8192, 40.0, 5.0, pattern="window:512", baseline="linear pattern=all"),
        case("sparse-sdpa", 8192, 150.0, 5.0, pattern="window:512", baseline="linear pattern=all", protocol="forward_backward"),
        case("sdpa", 4096, 200.0, 10.0, pattern="window:512", baseline="sparse-sdpa"),
        case("sparse-sdpa", 2048, 60.0, 0.5, baseline="sdpa", kv_heads=2, value_heads=2),
        case("sdpa", 2048, 120.0, 1.0, baseline="sdpa"),  # took turns with itself
    )  # fmt: skip
    assert rows(patterns.speed_table(tmp_path)) == [
        ["`sparse-sdpa window:512`", "8,192", "`linear`", "40 ms, takes 5.0 × as long", "150 ms, takes 5.0 × as long"],
        ["`sdpa window:512`", "4,096", "`sparse-sdpa window:512`", "200 ms, takes 10 × as long", "–"],
        ["`sparse-sdpa`, 8 heads, 2 of keys", "2,048", "`sdpa`", "60 ms, 2.0 × as fast", "–"],
    ]


def test_packages_of_recurrent_attention_are_the_first_rows_of_the_rivals(tmp_path):
    rival = "rivals/transformers-recurrent.py:gated_delta"
    write(
        tmp_path / "results", "recurrent",
        case(rival, 4096, 90.0, 12.0, baseline="gated-delta"),
        case(rival, 2048, 90.0, 7.0, baseline="gated-delta", kv_heads=16, heads=16, value_heads=32, head_dim=128, value_dim=128),
    )  # fmt: skip
    write(tmp_path / "results", "rivals", case("rivals/fast-transformers.py:linear", 1024, 9.0, 8.0, protocol="forward_backward"))
    assert rows(pages.rivals_table(tmp_path)) == [
        ["transformers", "`gated-delta`, 8 heads of 64", "4,096", "12.0", "not measured"],
        ["transformers", "`gated-delta`, 16 heads of keys and 32 of values of 128", "2,048", "7.0", "not measured"],
        ["pytorch-fast-transformers", "causal `linear`", "1,024", "not measured", "8.0"],
    ]
