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


@pytest.mark.parametrize("name", ["copy_table", "fashion_table", "speech_table", "epoch_table", "long_text_table", "long_copy_table", "image_speed_table"])
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


def test_fashion_gives_bits_after_equal_updates_and_after_equal_time(tmp_path):
    data = {"task": "images", "data": "../../data/fashion-mnist"}
    ends = [("softmax", 0, 2.5, 200.0), ("softmax", 1, 2.6, 220.0), ("linear", 0, 2.7, 90.0), ("linear", 1, 2.8, 60.0)]
    write(tmp_path, "fashion-short", "trainings.jsonl",
          *(ended(m, seed=s, bits_per_dim=x, training_s=t, update=1400, **data) for m, s, x, t in ends))  # fmt: skip
    # The fastest training ended after 60 s: points after that do not count.
    points = [(m, s, n, x + d, t * n / 1400) for m, s, x, t in ends for n, d in ((350, 1.0), (700, 0.5), (1400, 0.0))]
    write(tmp_path, "fashion-short", "curves.jsonl",
          *(ended(m, seed=s, update=n, bits_per_dim=x, training_s=t, **data) for m, s, n, x, t in points))  # fmt: skip
    text = tables.fashion_table(tmp_path)
    assert text[2:4] == ["| `softmax` | 2.500 to 2.600 · 3.500 to 3.600 | 3.33 to 3.67 | 7,200 | not measured |",
                         "| `linear` | 2.700 to 2.800 · 2.800 to 3.200 | 1 to 1.5 | 7,200 | not measured |"]  # fmt: skip
    assert text[-2] == "Lowest to highest of 2 seeds. Equal time is 1 min, in which the fastest training ended."
    write(tmp_path, "fashion-short", "generations.jsonl", generated("linear", 32, 0.001, dataset="fashion-mnist"))
    text = tables.fashion_table(tmp_path)
    assert text[3].endswith("| 7,200 | 1,000 |") and text[-2].endswith("Images are generated 32 at a time.")


def test_long_sequences_give_what_was_reached_and_how_often_weights_changed(tmp_path):
    write(tmp_path, "long-text", "trainings.jsonl", ended("sdpa", bits_per_dim=4.5, update=60, training_s=600.0),
          ended("sdpa", seed=1, bits_per_dim=4.6, update=50, training_s=600.0))  # fmt: skip
    text = tables.long_text_table(tmp_path)
    assert text[2] == "| `sdpa` | 4.500 to 4.600 | 50 to 60 | 10 to 12 |" and text[-2] == "Lowest to highest of 2 seeds."
    write(tmp_path, "long-copy", "trainings.jsonl", ended("sdpa", validation_accuracy=0.25, update=60, training_s=600.0))
    assert tables.long_copy_table(tmp_path)[2] == "| `sdpa` | 25 % | 60 | 10 |"


def test_speech_gives_error_rates_and_epochs(tmp_path):
    columns = {"task": "speech", "phone_error_rate": 0.25, "chance_error_rate": 0.9, "learning_rate": 0.002}
    data = {"data": "../../data/synthesised-speech"}
    write(tmp_path, "speech-short", "trainings.jsonl", ended("linear", **columns, **data))
    write(tmp_path, "speech-epoch", "trainings.jsonl", ended("linear", **columns, updates=24))
    text = tables.speech_table(tmp_path)
    assert text[2] == "| `linear` | 25 % · not reached | 0.002 | 1.5 | 7,200 |"
    note = "One seed. Equal time is 1.5 min, in which the fastest training ended. By chance, 90 % of the phones would be wrong."
    assert text[-2:] == [note, f"The training took 1.5 minutes on {WHERE}"]
    write(tmp_path, "speech-short", "trainings.jsonl", ended("linear", **columns))
    assert tables.speech_table(tmp_path) == ["Nothing is measured yet."], "made speech is left out"
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
        "For mnist, a cache of keys and values makes softmax 100 times as fast. Linear attention is 2 times as fast as that for a "
        "single image, and 5 times in batches."
    ]
