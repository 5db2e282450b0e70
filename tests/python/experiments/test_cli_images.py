"""Tests of images from outside: training on digits, `evaluate`, `generate`, `latency` and `throughput`."""

import gzip
import math
import os
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, strict_json
from test_cli_train import lines_of

NO_GPU = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
DIGITS = ROOT / "experiments/settings/digits"

IMAGES = """
[task]
task = "images"
data = "{data}"
[model]
method = ["softmax", "lsh-1:chunk=8", "linear"]
layers = 1
heads = 2
head_dim = 8
[training]
threads = 1
updates = {updates}
batch = 16
learning_rate = 0.003
validate_every = 10
"""


def read_idx(path):
    data = gzip.open(path).read()
    assert data[:3] == b"\0\0\x08"
    sizes = struct.unpack_from(f">{data[3]}I", data, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(sizes)


@pytest.fixture(scope="module")
def trained(build, tmp_path_factory):
    """A folder of three small models that have learnt a little of the digits."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "digits.toml").write_text(IMAGES.format(data=DIGITS, updates=40))
    subprocess.run([build / "attnbench", "train", "digits.toml", "--out", "out", "-q"], cwd=folder, check=True)
    return folder / "out"


@pytest.fixture
def copied(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "out")
    return tmp_path / "out"


def test_the_script_writes_the_digits_that_are_there(tmp_path):
    subprocess.run([sys.executable, ROOT / "experiments/write_digits.py", tmp_path], check=True)
    names = sorted(path.name for path in DIGITS.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == names and len(names) == 4
    for name in names:
        assert (read_idx(tmp_path / name) == read_idx(DIGITS / name)).all()
    images = read_idx(DIGITS / "train-images-idx3-ubyte.gz")
    assert images.shape == (1437, 8, 8) and images.max() == 255 and len(np.unique(images)) == 17


def test_bits_per_dimension_fall(trained):
    for method in ("softmax", "lsh-1:chunk=8", "linear"):
        points = [p for p in lines_of(trained, "curves.jsonl") if p["method"] == method]
        assert [p["update"] for p in points] == [10, 20, 30, 40]
        assert points[-1]["bits_per_dim"] < points[0]["bits_per_dim"] < 8
        assert math.isclose(points[-1]["bits_per_dim"], points[-1]["validation_loss"] / math.log(2))
        assert math.isclose(points[-1]["epoch"], 40 / (1437 // 16))
        assert points[-1]["epoch_extrapolated"]


def test_evaluate_gives_the_last_point_of_the_curve(attnbench, trained):
    results = attnbench.json("evaluate", trained)
    assert [r["method"] for r in results] == ["softmax", "lsh-1:chunk=8", "linear"]
    for result in results:
        last = [p for p in lines_of(trained, "curves.jsonl") if p["method"] == result["method"]][-1]
        assert result["update"] == 40
        assert math.isclose(result["bits_per_dim"], last["bits_per_dim"], rel_tol=1e-6)
    assert "bits/dim" in attnbench("evaluate", trained).stdout


def test_evaluate_takes_other_data(attnbench, trained, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for name in ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte"):
        (other / name).write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, 20, 8, 8) + bytes(20 * 64))
    black = attnbench.json("evaluate", trained, "--data", other)
    assert all(b["bits_per_dim"] != t["bits_per_dim"] for b, t in zip(black, attnbench.json("evaluate", trained)))


def test_generate_writes_samples_and_completions(attnbench, copied):
    done = attnbench("generate", copied, "--samples", "6", "--completions", "4")
    assert "images.png" in done.stderr and (copied / "images.png").stat().st_size > 5000
    originals = read_idx(DIGITS / "t10k-images-idx3-ubyte.gz")[:4]
    for method in ("softmax", "lsh-1", "linear"):
        samples = np.load(copied / f"samples-{method}.npy")
        assert samples.shape == (6, 8, 8) and samples.dtype == np.uint8 and samples.std() > 10
        completions = np.load(copied / f"completions-{method}.npy")
        assert completions.shape == (4, 3, 8, 8)
        assert (completions[:, 2] == originals).all()
        assert (completions[:, :, :4] == originals[:, None, :4]).all(), "the upper half is given"
        assert (completions[:, 0, 4:] == 0).all() and (completions[:, 1, 4:] != originals[:, 4:]).any()
    for record in lines_of(copied, "generations.jsonl"):
        assert record["weights"] == "trained" and record["batch"] == 6 and record["dataset"] == "digits"
        assert math.isclose(record["images_per_s"], 6 / record["batch_s"])
        assert (record["length"], record["processes"]) == (63, 1)


def test_the_same_seed_generates_the_same_images(attnbench, copied):
    def samples(seed):
        attnbench("generate", copied, "--samples", "3", "--completions", "0", "--seed", seed)
        return np.load(copied / "samples-linear.npy")

    first = samples(1)
    assert (samples(1) == first).all() and (samples(2) != first).any()


def test_a_folder_without_checkpoints_is_refused(attnbench, copied, tmp_path):
    shutil.rmtree(copied / "checkpoints")
    for command in ("evaluate", "generate"):
        message = attnbench(command, "out", code=2).stderr
        assert "out: no training that has ended has a checkpoint" in message
        assert "./none/trainings.jsonl" in attnbench(command, "./none", code=2).stderr
        assert "digits" in attnbench(command, "none", code=2).stderr, "the trainings are listed"


def test_missing_data_is_named(attnbench, trained):
    message = attnbench("evaluate", trained, "--data", "nowhere", code=2).stderr
    assert "nowhere" in message


# ---------------------------------------------------------------- speed

SPEED = """
description = "a test"
[model]
dataset = "tiny"
length = 20
layers = 1
heads = 2
head_dim = 8
method = ["softmax", "linear"]
[run]
batch = [1, 3]
threads = 1
processes = 2
time_budget_s = 0.01
{more}
"""


@pytest.fixture
def speed(tmp_path):
    (tmp_path / "speed.toml").write_text(SPEED.format(more=""))
    return "speed.toml"


def test_throughput_measures_every_batch_in_rounds(attnbench, tmp_path, speed):
    done = attnbench("throughput", speed, "--out", "out")
    assert done.stdout.count("best batch") == 2 and done.stdout.count("largest within 1.00 GiB") == 2
    records = lines_of(tmp_path / "out", "generations.jsonl")
    assert [r["process"] for r in records] == [1] * 4 + [2] * 4
    assert len({(r["method"], r["batch"]) for r in records}) == 4
    for record in records:
        assert record["outcome"] == "measured" and record["weights"] == "untrained" and not record["extrapolated"]
        assert record["batches"] >= 1 and record["timed_tokens"] >= 12 and record["batch_s"] > 0
        assert math.isclose(record["images_per_s"], record["batch"] / record["batch_s"])
    again = attnbench("throughput", speed, "--out", "out")
    assert lines_of(tmp_path / "out", "generations.jsonl") == records
    assert again.stdout == done.stdout


def test_latency_measures_single_images(attnbench, tmp_path, speed):
    done = attnbench("latency", speed, "--out", "out")
    assert "CPU s/image" in done.stdout
    assert {r["batch"] for r in lines_of(tmp_path / "out", "generations.jsonl")} == {1}


def test_what_takes_too_long_is_extrapolated(attnbench, tmp_path, speed):
    records = attnbench.json("throughput", speed, "--out", "out", "--set", "whole_s=0", "--set", "method=softmax")
    for record in records:
        assert record["extrapolated"] and record["batch_s"] == record["extrapolated_s"] and record["batches"] == 0
    assert "~" in attnbench("throughput", speed, "--out", "out", "--set", "whole_s=0", "--set", "method=softmax").stdout


def test_a_token_that_takes_too_long_skips_the_case(attnbench, tmp_path, speed):
    (record,) = attnbench.json(
        "latency", speed, "--out", "out", "--set", "max_token_s=0", "--set", "method=linear"
    )  # fmt: skip
    assert record["outcome"] == "skipped" and "more than max_token_s" in record["reason"]


def test_a_gpu_that_is_not_there_skips_the_case(attnbench, tmp_path, speed):
    (record,) = attnbench.json("latency", speed, "--out", "out", "--set", "device=cuda", "--set", "method=linear", env=NO_GPU)
    assert record["outcome"] == "skipped" and "no GPU" in record["reason"]


@pytest.mark.parametrize("method, is_graph", [("linear", True), ("stateful-softmax", False)])
def test_a_token_on_a_gpu_is_one_cuda_graph(attnbench, build, tmp_path, speed, method, is_graph):
    """A fake module takes the place of the GPU. The caches of softmax grow, which a graph cannot."""
    env = os.environ | {"ATTNBENCH_GPU_MODULE": str(build / "tests/fake-gpu.so")}
    settings = ("--set", "device=cuda", "--set", f"method={method}")
    for record in attnbench.json("latency", speed, "--out", "out", *settings, env=env):
        assert record["outcome"] == "measured", record["reason"]
        assert record["implementation"].startswith("graph of modules + kernel/") == is_graph, record["implementation"]


def test_a_method_that_cannot_decode_is_a_failure(attnbench, tmp_path, speed):
    done = attnbench("latency", speed, "--out", "out", "--set", "method=efficient", code=1)
    (record,) = lines_of(tmp_path / "out", "generations.jsonl")
    assert record["outcome"] == "failed" and "causal" in record["reason"] and record["reason"] in done.stderr


@pytest.mark.parametrize(
    "setting, expected",
    [("method=lineer", "lineer"), ("batch=0", "batch = 0"), ("sampler=best", "sampler"), ("lenght=3", "lenght")],
)
def test_bad_settings_are_refused(attnbench, tmp_path, speed, setting, expected):
    assert expected in attnbench("latency", speed, "--out", "out", "--set", setting, code=2).stderr
    assert not (tmp_path / "out").exists()


def test_every_settings_file_can_be_read(attnbench):
    """Also those of the full sizes, which take hours."""
    message = attnbench("latency", "nothing", code=2).stderr
    assert "mnist" in message and "cifar10" in message
    assert {"copy-task", "digits", "speech-short"} <= {t["name"] for t in attnbench.json("list", "trainings")}


def test_completions_of_other_tasks_are_refused(attnbench, tmp_path):
    from test_cli_train import write_training

    attnbench("train", write_training(tmp_path / "copy.toml", method="linear"), "--out", "out")
    assert "it is of the task copy, expected images" in attnbench("generate", "out", code=2).stderr
    assert strict_json(attnbench("evaluate", "out", "--format=json").stdout)[0]["validation_accuracy"] >= 0
