"""Tests of `attnbench models` and of its worker: every phase of every model, resuming, the table, the
figure, and what is refused."""

import importlib.metadata
import json
import sys

import pytest
import torch
from conftest import strict_json, words

pytest.importorskip("transformers", reason="transformers is not installed")

SMALL = ["--tiny", "--tokens=48", "--generated=3", "--repeats=1", "--steps=2", "--threads=1", "--rounds=1"]


@pytest.fixture(scope="module")
def worker(build):  # noqa: ARG001
    from attnbench.models import worker

    torch.set_num_threads(1)
    return worker


def measured(worker, model, phase, variant):
    return worker.measure(worker.Request(model, phase, variant, tokens=48, generated=3, repeats=1, steps=2, threads=1, tiny=True))


@pytest.mark.parametrize("model", ["qwen3.5", "kimi-linear", "granite-4", "nemotron-h", "minimax", "gpt-oss"])
def test_every_phase_and_variant_can_be_measured(worker, model):
    (entry,) = [entry for entry in worker.describe()["models"] if entry["name"] == model]
    losses = {}
    for phase in entry["phases"]:
        for variant in phase["variants"]:
            found = measured(worker, model, phase["name"], variant)
            if phase["timed"] or phase["name"] == "profile":
                assert found["seconds"] > 0
            if phase["name"] == "profile":
                parts = found["parts_s"]
                assert {"head", "embeddings"} <= set(parts) and all(part["forward"] > 0 for part in parts.values())
                mixers = [part for name, part in parts.items() if name.startswith(type_of_mixer(model))]
                assert mixers and all(part["backward"] > 0 for part in mixers)
                assert sum(part["forward"] + part["backward"] for part in parts.values()) < found["seconds"]
            if phase["name"] == "losses":
                losses[variant] = found["losses"]
            if phase["name"] == "logits":
                assert 0 <= found["max_rel_error"] < 1e-5
            if variant != "transformers":
                assert not found["passed_on"] and (variant == "floor" or found["served"][entry["operator"]] > 0)
                assert variant != "floor" or entry["operator"] not in found["served"]
    assert losses["attnbench"] == pytest.approx(losses["transformers"], rel=1e-5)
    assert 10e6 <= parameters_of(model) <= 60e6


def type_of_mixer(model):
    return {
        "qwen3.5": "Qwen3_5GatedDeltaNet", "kimi-linear": "KimiLinear", "granite-4": "GraniteMoeHybridMamba",
        "nemotron-h": "NemotronHMamba", "minimax": "MiniMaxLightning", "gpt-oss": "GptOssAttention",
    }[model]  # fmt: skip


def parameters_of(model):
    from attnbench.models.configurations import CONFIGURATIONS

    with torch.device("meta"):
        return sum(p.numel() for p in CONFIGURATIONS[model].build().parameters())


@pytest.mark.long
def test_a_run_is_continued_and_drawn(attnbench, tmp_path):
    folder = tmp_path / "out"
    command = ["models", *SMALL, "--models=qwen3.5", "--out", folder]
    first = attnbench(*command, "--phases=logits,losses", "--minutes=0", "--format=json")
    assert "3 processes left; the same command continues" in first.stderr
    assert strict_json(first.stdout)["models"] == []
    attnbench(*command, "--phases=logits", "--quiet")
    before = log(folder)
    whole = attnbench(*command, "--phases=logits,step")
    assert log(folder).startswith(before)
    assert "qwen3.5 step attnbench" in whole.stderr and "logits attnbench" not in whole.stderr
    assert "a training step is at least 2 times as fast" in words(whole.stdout) and "times as fast" in whole.stdout
    for name in ("models.svg", "models.png", "models.pdf", "models.json", "environment.json"):
        assert (folder / name).stat().st_size > 0
    summary = strict_json((folder / "models.json").read_text("utf-8"))
    (model,) = summary["models"]
    assert model["phases"]["step"]["speedup"]["processes"] == 1 and model["phases"]["step"]["floor"]["median_s"] > 0
    verdicts = {aim["aim"]: aim["verdict"] for aim in summary["aims"]}
    assert verdicts["qwen3.5: logits differ by at most 1e-4 of the largest"] == "reached"
    assert verdicts["qwen3.5: generation is not slower"] == "not measured"
    # Nothing is due, so that nothing runs.
    again = attnbench(*command, "--phases=logits,step")
    assert "[1/" not in again.stderr and again.stdout == whole.stdout


def log(folder):
    return (folder / "processes.jsonl").read_text("utf-8")


def record(model, phase, variant, round_number, **found):
    settings = {"tokens": 2048, "generated": 128, "repeats": 3, "steps": 50, "threads": 0, "tiny": False}
    versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers")}
    return {
        "model": model, "phase": phase, "variant": variant, "round": round_number, "settings": settings, "versions": versions,
        "outcome": "measured", "parameters": 1e7, "served": {}, "passed_on": {},
    } | found  # fmt: skip


@pytest.mark.parametrize(("factor", "verdict"), [(4.0, "reached"), (2.0, "reached by the estimate alone"), (1.5, "missed")])
def test_verdicts_follow_from_intervals_of_paired_rounds(attnbench, tmp_path, factor, verdict):
    """Times that drift from round to round, as on a shared machine: the ratios of the rounds do not."""
    noise = [1.01, 0.99, 1.02, 0.985, 1.015, 1.0]
    lines = []
    for k, error in enumerate(noise, 1):
        seconds = 1.0 + k
        lines.append(record("qwen3.5", "step", "attnbench", k, seconds=seconds, peak_extra_bytes=2**20))
        lines.append(record("qwen3.5", "step", "transformers", k, seconds=factor * error * seconds, peak_extra_bytes=2**21))
        lines.append(record("qwen3.5", "step", "floor", k, seconds=seconds / 1.1, peak_extra_bytes=2**20))
        lines.append(record("qwen3.5", "generation", "attnbench", k, seconds=seconds * 1.2, peak_extra_bytes=1))
        lines.append(record("qwen3.5", "generation", "transformers", k, seconds=error * seconds, peak_extra_bytes=1))
    lines.append(record("qwen3.5", "losses", "transformers", 0, losses=[2.0, 1.0]))
    lines.append(record("qwen3.5", "losses", "attnbench", 0, losses=[2.0, 1.002]))
    (tmp_path / "processes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = attnbench("models", "--out", tmp_path, "--minutes=0", "--format=json", "--quiet")
    summary = strict_json(shown.stdout)
    step = summary["models"][0]["phases"]["step"]
    assert step["speedup"]["estimate"] == pytest.approx(factor, rel=0.02) and step["speedup"]["scope"] == "across processes"
    assert step["speedup"]["low"] <= factor * min(noise) * 1.001 and step["to_floor"]["estimate"] == pytest.approx(1.1)
    verdicts = {aim["aim"]: aim["verdict"] for aim in summary["aims"]}
    assert verdicts["qwen3.5: a training step is at least 2 times as fast"] == verdict
    assert verdicts["qwen3.5: generation is not slower"] == "missed"
    assert verdicts["qwen3.5: losses differ by at most 1e-3 of themselves at each of 2 steps"] == "missed"


def test_a_failed_process_is_recorded_and_due_again(attnbench, tmp_path):
    command = ["models", *SMALL, "--models=gpt-oss", "--phases=logits", "--out", tmp_path, "--quiet"]
    attnbench(*command, "--deadline=0.01", code=1)
    line = strict_json(log(tmp_path))
    assert line["outcome"] == "failed" and "deadline" in line["reason"]
    attnbench(*command)
    assert len(log(tmp_path).splitlines()) == 2


def test_wrong_names_and_folders_are_refused(attnbench, tmp_path):
    command = ["models", "--out", tmp_path]
    wrong = attnbench(*command, "--models=qwen3", code=2)
    assert "--models: there is no model 'qwen3'; did you mean 'qwen3.5'?" in words(wrong.stderr)
    (tmp_path / "processes.jsonl").write_text('{"model": 3}\n')
    broken = attnbench(*command, code=2)
    assert "processes.jsonl" in broken.stderr and "round is no whole number" in broken.stderr
    other = record("qwen3.5", "step", "attnbench", 1, seconds=1.0) | {"versions": {"torch": "2.11.0", "transformers": "5.0.0"}}
    (tmp_path / "processes.jsonl").write_text(json.dumps(other) + "\n")
    assert "5.0.0" in attnbench(*command, code=5).stderr


def test_a_python_without_transformers_is_named(attnbench, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as m\n"
        "real = m.version\n"
        "def version(name):\n"
        "    if name == 'transformers':\n"
        "        raise m.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "m.version = version\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec env PYTHONPATH={tmp_path}:$PYTHONPATH {sys.executable} "$@"\n')
    python.chmod(0o755)
    refused = words(attnbench("models", "--python", python, "--out", tmp_path / "out", code=2).stderr)
    assert "needs the package transformers" in refused and "attnbench[models]" in refused
