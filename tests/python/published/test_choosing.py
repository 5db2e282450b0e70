"""The page that says which attention suits a need: its choices follow from the records."""

import importlib

import pytest
import test_plots  # noqa: F401  makes attnplots importable

choosing = importlib.import_module("attnplots.published.choosing")

BASE = {"outcome": "measured", "protocol": "forward_backward", "causal": True, "pattern": "all", "inputs": "normal"}


def case(method, query_len, ms, mib=1.0, **more):
    times = {"time_per_sample_ms": ms, "time_median_ms": ms, "peak_extra_bytes_per_sample": mib * 2**20}
    return BASE | {"method": method, "query_len": query_len} | times | more


TRAINING = [
    case("sdpa", 512, 4), case("sparse-sdpa", 512, 2), case("linear", 512, 3),
    case("sdpa", 8192, 1000), case("sparse-sdpa", 8192, 800), case("softmax", 8192, 2000),
    case("sparse-sdpa", 8192, 100, pattern="window:512"), case("sparse-sdpa", 65536, 900, 70, pattern="window:512"),
    case("linear", 8192, 20), case("linear", 65536, 150, 90), case("gated-delta", 65536, 280, 100), case("lsh-1", 65536, 320, 80),
]  # fmt: skip


def by_need(choices):
    return {choice.need: choice for choice in choices}


def test_the_fastest_of_each_kind_is_chosen_at_the_longest_length():
    found = by_need(choosing.training_choices(TRAINING, {"linear": 64.0, "lsh-1": 1024.0}))
    exact = found["softmax attention over all keys, exactly"]
    assert exact.use == "`sparse-sdpa`"
    assert exact.measured == "N = 8,192: `sparse-sdpa` 800 ms, `sdpa` 1 s, `softmax` 2 s"
    assert found["long sequences, and no softmax: the fastest"].use == "`linear`"
    assert found["the same with a state that forgets"].use == "`gated-delta`"
    assert found["the least memory in training"].use == "`sparse-sdpa window:512`"
    window = found["softmax where a token needs only what is near"]
    assert (window.use, window.measured) == ("`sparse-sdpa window:512`", "N = 8,192: 100 ms, 10 × as fast as sdpa")
    short = found["sequences so short that all pairs cost little"]
    assert short.use == "`sparse-sdpa`"
    ranked = "N = 512: `sparse-sdpa` 2 ms, `linear` 3 ms, `sdpa` 4 ms"
    assert short.measured == f"{ranked}; faster than `sdpa`: `linear` from N = 64 on and `lsh-1` from N = 1,024 on"


@pytest.mark.parametrize("slow", ["linear", "gated-delta"])
def test_another_order_of_the_times_is_another_choice(slow):
    records = [r | {"time_per_sample_ms": 5000} if r["method"] == slow else r for r in TRAINING]
    chosen = by_need(choosing.training_choices(records, {}))["long sequences, and no softmax: the fastest"].use
    assert chosen == ("`gated-delta`" if slow == "linear" else "`linear`")


def test_what_was_not_measured_is_no_choice():
    assert choosing.training_choices([], {}) == []
    assert choosing.decoding_choices([case("linear", 64, 1, state_bytes=1)]) == []
    assert choosing.quality_choices([]) == []


def test_decoding_is_compared_with_softmax_that_keeps_its_keys():
    found = [case("linear", 65536, 0.002, state_bytes=130 * 2**10), case("stateful-sdpa", 65536, 9, state_bytes=2**28),
             case("linear", 64, 0.001, state_bytes=130 * 2**10)]  # fmt: skip
    (choice,) = choosing.decoding_choices(found)
    assert choice.use == "`linear`"
    assert choice.measured == "token 65,536: 2 µs and 130 KiB of state, 4,500 × as fast as stateful-sdpa, which keeps 256 MiB"


@pytest.mark.parametrize(("error", "use"), [(0.1, "`taylor`"), (0.7, "nothing: train it again")])
def test_a_method_that_is_not_close_to_softmax_is_not_recommended(error, use):
    setting = {"concentration": choosing.CONCENTRATION, "quality_of_zero_row_error_median": 1.0}
    found = [case("taylor", 4096, 1, quality_row_error_median=error, **setting),
             case("linear", 4096, 1, quality_row_error_median=0.9, **setting),
             case("sdpa", 4096, 1, quality_row_error_median=0.0, **setting)]  # fmt: skip
    (choice,) = choosing.quality_choices(found)
    assert choice.use == use and f"`taylor` {error:.2f}, `linear` 0.90" in choice.measured
