"""Tests that `attnbench-experiments decode-speed` answers with times and ratios that agree with each
other. How fast the decoders are is not tested."""

import json
import subprocess

import pytest
from conftest import HANG_S, strict_json

MNIST_LAYERS = 1
PARAMETERS = 256 * 128 + 12 * 256**2 + 13 * 256 + 2 * 256 + 256 * 30 + 30


def decode_speed(build, **request):
    small = {"method": "linear", "layers": MNIST_LAYERS, "batch": 2, "tokens": 3, "threads": 1}
    return subprocess.run(
        [build / "attnbench-experiments", "decode-speed"],
        input=json.dumps(small | {"positions": [0, 5], "repetitions": 1} | request),
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "attention"),
    [("linear", "kernel/"), ("stateful-softmax", "kernel/"), ("stateful-sdpa", "sdpa/"), ("softmax", "aten/")],
)
def test_the_answer_agrees_with_itself(build, method, attention):
    done = decode_speed(build, method=method)
    assert done.returncode == 0, done.stderr
    answer = strict_json(done.stdout)
    assert (answer["method"], answer["batch"], answer["threads"]) == (method, 2, 1)
    assert answer["parameter_bytes"] == 4 * PARAMETERS
    assert answer["state_bytes"] > 0
    first, second = answer["implementation"].split(" + ")
    assert first == "forward" if method == "softmax" else first.startswith("decoder/")
    assert second.startswith(attention)
    assert [step["position"] for step in answer["positions"]] == [0, 5]
    for step in answer["positions"]:
        for times in (step, step["modules"]):
            assert 0 < times["lower_quartile_s"] <= times["median_s"] <= times["upper_quartile_s"]
        for ratio, rate in (("ratio_to_reading", "read_gb_s"), ("ratio_to_cached", "cached_read_gb_s")):
            reading_s = answer["parameter_bytes"] / (answer[rate] * 1e9)
            assert step[ratio] == pytest.approx(step["median_s"] / reading_s)
        multiply_adds = 2 * (12 * 256**2 + 256 * 30)  # of the products with weights, in two sequences
        rate = 2 * multiply_adds / step["median_s"] / 1e9
        assert step["multiply_add_share"] == pytest.approx(rate / answer["multiply_add_gflop_s"])


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"positions": []}, "a list of positions"),
        ({"tokens": 0}, "tokens, threads and repetitions of at least 1"),
        ({"batch": 0}, "batch = 0"),
        ({"method": "nonsense"}, "nonsense"),
        ({"kernel": "sse"}, "kernel 'sse' is not available"),
    ],
)
def test_mistakes_in_the_request_are_named(build, request_, message):
    done = decode_speed(build, **request_)
    assert done.returncode == 2
    assert message in done.stderr
    assert not done.stdout


def test_the_command_is_hidden(build):
    done = subprocess.run(
        [build / "attnbench-experiments", "--help"], capture_output=True, text=True, check=True
    )
    assert "train" in done.stdout
    assert "decode-speed" not in done.stdout
