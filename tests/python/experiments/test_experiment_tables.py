"""Tests of the tables of trainings and of generated images that docs/experiments.md shows, on made results."""

import importlib
import json
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "plots"))
tables = importlib.import_module("attnplots.published.experiment_tables")

ENVIRONMENT = {"environment": {"cpu_model": "A CPU", "processors": 2, "revision": "abc"}}
WHERE = "A CPU, 2 processors on 2026-11-25, revision abc."


def write(root, name, file, *lines):
    folder = root / "results" / name / "machine"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (folder / file).write_text("".join(json.dumps(line) + "\n" for line in lines))


def ended(method, **columns):
    always = {"task": "copy", "seed": 0, "updates": 1400, "training_s": 90.0, "updates_per_s": 100.0, "epoch_s": 7200.0,
              "outcome": "measured", "finished_at": "2026-11-25T10:00:00Z"}  # fmt: skip
    return always | {"method": method} | columns


def generated(method, batch, s_per_image, **columns):
    always = {"dataset": "mnist", "device": "cpu", "outcome": "measured", "finished_at": "2026-11-25T10:00:00Z"}
    speeds = {"batch_s": s_per_image * batch, "s_per_image": s_per_image, "images_per_s": 1 / s_per_image}
    return always | speeds | {"method": method, "batch": batch, "process": 1} | columns


@pytest.mark.parametrize("name", ["copy_table", "digits_table", "speech_table", "epoch_table", "image_speed_table"])
def test_a_table_without_results_says_so(tmp_path, name):
    assert getattr(tables, name)(tmp_path) == ["Nothing is measured yet."]


def test_the_copy_task_gives_the_range_of_the_seeds(tmp_path):
    write(
        tmp_path, "copy-task-short", "trainings.jsonl",
        ended("linear", validation_loss=0.001, validation_accuracy=1.0),
        ended("softmax", validation_loss=0.0002, validation_accuracy=0.9, updates_per_s=50.0),
        ended("linear", seed=1, validation_loss=0.002, validation_accuracy=1.0),
        ended("lsh-1:chunk=8", outcome="failed", training_s=1000.0),
    )  # fmt: skip
    text = tables.copy_table(tmp_path)
    assert text[2:4] == ["| `softmax` | 0.0002 | 90 % | 20 |", "| `linear` | 0.001 to 0.002 | 100 % | 10 |"]
    assert text[-2:] == ["Lowest to highest of 2 seeds.", f"The 3 trainings took 4.5 minutes on {WHERE}"]


def test_the_digits_give_the_best_point_of_each_curve(tmp_path):
    write(tmp_path, "digits", "trainings.jsonl", ended("linear", bits_per_dim=3.6, epoch_s=4.5), ended("lsh-1:chunk=16"))
    points = [("linear", 700, 3.5), ("linear", 1400, 3.6), ("lsh-1:chunk=16", 100, 3.7)]
    write(tmp_path, "digits", "curves.jsonl", *(ended(m, update=n, bits_per_dim=x) for m, n, x in points))
    text = tables.digits_table(tmp_path)
    assert text[2:4] == ["| `lsh-1` | 3.700 | 100 of 1,400 | 7,200 | not measured |",
                         "| `linear` | 3.500 | 700 of 1,400 | 4.5 | not measured |"]  # fmt: skip
    write(tmp_path, "digits", "generations.jsonl", generated("linear", 64, 0.001, dataset="digits"))
    text = tables.digits_table(tmp_path)
    assert text[3].endswith("| 4.5 | 1,000 |") and "Images are generated 64 at a time." in text


def test_speech_gives_error_rates_and_epochs(tmp_path):
    columns = {"task": "speech", "phone_error_rate": 0.25, "chance_error_rate": 0.9}
    write(tmp_path, "speech-short", "trainings.jsonl", ended("linear", **columns))
    write(tmp_path, "speech-epoch", "trainings.jsonl", ended("linear", **columns, updates=24))
    text = tables.speech_table(tmp_path)
    assert text[2] == "| `linear` | 25 % | 7,200 |"
    assert text[-2:] == ["By chance, 90 % of the phones would be wrong.", f"The training took 1.5 minutes on {WHERE}"]
    text = tables.epoch_table(tmp_path)
    assert text[2] == "| `linear` | 2 |" and text[-2] == "Extrapolated from 24 updates."


def test_images_give_the_time_of_one_and_the_best_batch(tmp_path):
    write(
        tmp_path, "image-speed", "generations.jsonl",
        generated("softmax", 1, 40.0, extrapolated=True),
        generated("stateful-softmax", 1, 0.4), generated("stateful-softmax", 8, 0.25),
        generated("linear", 1, 0.2), generated("linear", 8, 0.05), generated("linear", 64, 0.1),
        generated("linear", 1, 0.01, device="cuda"),
        generated("linear", 1, 3.0, dataset="cifar10"),
    )  # fmt: skip
    text = tables.image_speed_table(tmp_path)
    assert text[0].startswith("| method | mnist, s/image | mnist, images/s | at batch | cifar10, s/image |")
    assert text[2:5] == [
        "| `softmax` | ~40 | ~0.025 | 1 | not measured | not measured | – |",
        "| `stateful-softmax` | 0.4 | 4 | 8 | not measured | not measured | – |",
        "| `linear` | 0.2 | 20 | 8 | 3 | 0.333 | 1 |",
    ]
    compared = [line for line in text if line.startswith("For ")]
    assert compared == [
        "For mnist, the cache of keys and values alone makes softmax 100 times as fast, and linear attention is another "
        "2 times as fast alone and 5 times in batches."
    ]
