"""Tests of the quality columns and of inputs from files, from outside: `measure` and `sweep`."""

import hashlib
import json
import struct

import numpy as np
import pytest
from conftest import ROOT, records_in, write_sweep

HEADS, LENGTH, DIM = 2, 96, 16


def tensors(seed=0, heads=HEADS, length=LENGTH):
    random = np.random.default_rng(seed)
    return {name: random.standard_normal((1, heads, length, DIM), dtype=np.float32) for name in "qkv"}


def write_safetensors(path, arrays):
    header, data = {}, b""
    for name, array in arrays.items():
        content = array.tobytes()
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def small(*more, length=LENGTH):
    sizes = ["--heads", HEADS, "--query-len", length, "--head-dim", DIM]
    return [*map(str, sizes), "--threads", "1", "--warmup-s", "0", "--time-budget-s", "0", *more]


def softmax_rows(arrays, length=LENGTH):
    """The weights of softmax attention [heads, length, length] in float64."""
    q, k = (arrays[name][0, :, :length].astype(float) for name in "qk")
    weights = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(DIM))
    return weights / weights.sum(-1, keepdims=True)


def phi(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


@pytest.mark.parametrize("ending", ["safetensors", "npy"])
def test_measure_scores_a_method_on_the_tensors_of_a_file(attnbench, tmp_path, ending):
    arrays = tensors()
    path = tmp_path / f"qkv.{ending}"
    if ending == "npy":
        np.save(path, np.stack(list(arrays.values())))
    else:
        write_safetensors(path, arrays)
    length = 48  # fewer rows than are drawn, so that all are compared
    record = attnbench.json("measure", "linear", *small("--inputs", f"file:{path.name}", length=length))
    assert record["outcome"] == "measured", record["reason"]
    assert record["inputs_digest"] == hashlib.sha1(path.read_bytes()).hexdigest()
    q, k, v = (arrays[name][0, :, :length].astype(float) for name in "qkv")
    weights = softmax_rows(arrays, length)
    exact = weights @ v
    scores = phi(q) @ phi(k).swapaxes(1, 2)
    output = scores @ v / scores.sum(-1, keepdims=True)
    norm = np.linalg.norm(exact, axis=-1)
    errors = np.linalg.norm(output - exact, axis=-1) / norm
    cosines = (output * exact).sum(-1) / norm / np.linalg.norm(output, axis=-1)
    assert record["quality_rows"] == 5 * HEADS * length
    for column, values in [("row_error", errors), ("cosine", cosines)]:
        # Every row counts once for each seed, which changes where a quantile is interpolated.
        repeated = np.repeat(values.ravel(), 5)
        for name, share in [("median", 0.5), ("p5", 0.05), ("p95", 0.95)]:
            assert record[f"quality_{column}_{name}"] == pytest.approx(np.quantile(repeated, share), rel=1e-4)
    effective = np.exp(-(weights * np.log(weights)).sum(-1))
    assert record["quality_effective_keys"] == pytest.approx(np.median(effective))
    assert record["quality_effective_share"] == pytest.approx(np.median(effective) / length)
    mean_errors = np.linalg.norm(v.mean(1, keepdims=True) - exact, axis=-1) / norm
    assert record["quality_of_mean_row_error_median"] == pytest.approx(np.median(mean_errors))
    assert record["quality_of_zero_row_error_median"] == 1


def test_a_sweep_finds_files_beside_it_and_records_what_they_held(quick, tmp_path):
    (tmp_path / "sweeps").mkdir()
    path = write_safetensors(tmp_path / "sweeps/model.safetensors", tensors())
    sweep = write_sweep(
        tmp_path / "sweeps/s.toml", method=["linear", "softmax"], inputs="file:model.safetensors", query_len=[32, LENGTH],
        causal=True, concentration=[1, 2.5],
    )  # fmt: skip
    quick("sweep", sweep, "--out", "out", "--set", "quality.quality_seeds=2")
    records = records_in(tmp_path / "out")
    assert len(records) == 8 and {record["outcome"] for record in records} == {"measured"}
    assert {record["inputs"] for record in records} == {"file:model.safetensors"}
    assert {record["inputs_digest"] for record in records} == {hashlib.sha1(path.read_bytes()).hexdigest()}
    for record in records:
        # Row 0 sees a single key, and may be among the 64 rows of a head or not.
        rows = min(record["query_len"], 64)
        assert 2 * HEADS * (rows - 1) <= record["quality_rows"] <= 2 * HEADS * rows
        assert len(record["quality_seed_row_errors"]) == record["quality_seeds"] == 2
    errors = {(r["method"], r["query_len"], r["concentration"]): r["quality_row_error_median"] for r in records}
    assert errors["softmax", LENGTH, 1.0] < 1e-5 < errors["linear", LENGTH, 1.0] < errors["linear", LENGTH, 2.5]
    shares = {(r["query_len"], r["concentration"]): r["quality_effective_share"] for r in records}
    assert shares[LENGTH, 2.5] < shares[LENGTH, 1.0]

    write_safetensors(path, tensors(seed=1))
    message = quick("sweep", sweep, "--out", "out", "--set", "quality.quality_seeds=2", code=5).stderr
    assert "inputs_digest of file:model.safetensors" in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heads": 3}, ["heads = 3, but q is [1, 2, 96, 16], expected heads = 2"]),
        ({"query_len": 128}, ["query_len: q is [1, 2, 96, 16], but 128 positions are needed"]),
        ({"value_dim": 8}, ["value_dim = 8, but v is [1, 2, 96, 16], expected value_dim = 16"]),
        ({"inputs": "file:missing.npy"}, ["missing.npy", "no such file"]),
        ({"inputs": "file:text.npy"}, ["text.npy: byte 0: found", "with which an .npy file begins"]),
        ({"inputs": "file:model.pt"}, ["model.pt", "expected the name of a .safetensors or .npy file"]),
    ],
)
def test_a_file_that_does_not_fit_is_an_error_that_says_why(attnbench, tmp_path, change, words):
    write_safetensors(tmp_path / "model.safetensors", tensors())
    (tmp_path / "text.npy").write_text("not an array")
    axes = {"method": "linear", "query_len": 32, "inputs": "file:model.safetensors"} | change
    sweep = write_sweep(tmp_path / "s.toml", **axes)
    message = attnbench("sweep", sweep, "--out", "out", code=2).stderr
    line = next(i for i, text in enumerate(sweep.read_text().splitlines(), 1) if text.startswith("inputs"))
    assert f"s.toml:{line}:" in message, "the place of the axis `inputs`"
    for word in words:
        assert word in message
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_neither_a_distribution_nor_a_file_is_refused(attnbench):
    for wrong in ("files:x", "file:", "unknown"):
        assert "file:PATH" in attnbench("measure", "linear", "--inputs", wrong, code=2).stderr


def test_learned_methods_are_marked_and_not_scored(attnbench):
    learned = [m["name"] for m in attnbench.json("list", "methods") if m["capabilities"]["learned"]]
    assert learned == ["linformer"]
    record = attnbench.json("measure", "linformer", *small())
    assert record["outcome"] == "measured" and record["quality_row_error_median"] is None
    assert "a model trains" in record["quality_not_scored"]


@pytest.mark.long
def test_the_sweep_of_qualities_runs_end_to_end(quick, tmp_path):
    quick(
        "sweep", ROOT / "sweeps/quality.toml", "--out", "out", "--set", "query_len=64", "--set", "head_dim=16", "--set", "threads=1",
        "--set", "concentration=[1, 4]", "--set", "quality_seeds=2", "--set", "time_budget_s=0", "--set", "warmup_s=0",
        "--methods", "softmax,linear,favor:features=64,efficient,lsh-4",
    )  # fmt: skip
    records = records_in(tmp_path / "out")
    scored = [r for r in records if r["outcome"] == "measured"]
    # Both tables of axes, and efficient has no causal form.
    assert len(records) == 5 * 2 * (2 + 2) and len(scored) == len(records) - 4
    for record in scored:
        assert record["quality_row_error_p5"] <= record["quality_row_error_median"] <= record["quality_row_error_p95"]
        # lsh-4 sees all 64 keys, and is exact as well.
        assert (record["quality_row_error_p95"] < 1e-4) == (record["method"] in ("softmax", "lsh-4"))
