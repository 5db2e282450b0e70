"""Tests of `attnbench train`: curves, interruptions, checkpoints, and what is refused."""

import json
import signal

import pytest
from conftest import children, is_stopped, strict_json, wait_for
from test_cli_faults import limited_files

# Columns that differ from one run to another.
TIMES = ("training_s", "updates_per_s", "epoch_s", "peak_rss_bytes", "finished_at")


def write_training(path, **changes):
    """Writes a settings file of two small models for the copy task, and returns its path."""
    sections = {
        "task": {"task": "copy", "length": 12, "symbols": 3, "min_copied": 3, "max_copied": 4},
        "model": {"method": ["softmax", "linear"], "layers": 2, "heads": 2, "head_dim": 8},
        "training": {
            "threads": 1, "updates": 12, "batch": 4, "schedule": "step", "reduce_after": 8, "validate_every": 3,
            "validation_batches": 2, "checkpoint_every": 5,
        },
    }  # fmt: skip
    for values in sections.values():
        values |= {name: changes.pop(name) for name in list(changes) if name in values}
    sections["training"] |= changes
    lines = ['description = "a test"']
    for section, values in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def training(tmp_path):
    return write_training(tmp_path / "small.toml")


# A training that no test waits for: it must be interrupted.
@pytest.fixture
def endless(tmp_path):
    return write_training(
        tmp_path / "endless.toml", method="linear", updates=10**8, validate_every=20, checkpoint_every=10**8
    )


def lines_of(folder, name):
    return [strict_json(line) for line in (folder / name).read_text().splitlines()]


def curves_in(folder):
    """The points without the columns that differ from one run to another."""
    points = lines_of(folder, "curves.jsonl")
    return [{name: value for name, value in point.items() if name not in TIMES} for point in points]


def checkpoints_in(folder):
    return sorted((folder / "checkpoints").iterdir())


def test_a_training_ends_with_its_table(attnbench, tmp_path, training):
    done = attnbench("train", training, "--out", "out")
    assert "[1/2] copy softmax seed 0" in done.stderr and "out: 2 trainings have ended" in done.stderr
    shared, header, *rows = [line for line in done.stdout.splitlines() if line.strip("─ ")]
    assert shared.startswith("In all rows: task=copy, seed=0, updates=12") and header.startswith("method ")
    assert [row.split()[0] for row in rows] == ["softmax", "linear"]
    points = lines_of(tmp_path / "out", "curves.jsonl")
    assert [(p["method"], p["update"]) for p in points] == [(m, n) for m in ("softmax", "linear") for n in (3, 6, 9, 12)]
    for point in points:
        assert 0 < point["training_loss"] < 3 and 0 < point["validation_loss"] < 3
        assert point["updates_per_s"] > 0 and point["learning_rate_now"] == (1e-3 if point["update"] <= 8 else 1e-4)
    assert [line["outcome"] for line in lines_of(tmp_path / "out", "trainings.jsonl")] == ["measured"] * 2
    assert len(checkpoints_in(tmp_path / "out")) == 2

    before = (tmp_path / "out/curves.jsonl").read_bytes()
    assert "all trainings have ended" in attnbench("train", training, "--out", "out").stderr
    assert (tmp_path / "out/curves.jsonl").read_bytes() == before


def test_the_same_seed_gives_the_same_curve(attnbench, tmp_path, training):
    for folder in ("a", "b"):
        attnbench("train", training, "--out", folder)
    attnbench("train", training, "--out", "c", "--set", "seed=1")
    assert curves_in(tmp_path / "a") == curves_in(tmp_path / "b")
    losses = [[point["training_loss"] for point in curves_in(tmp_path / name)] for name in "ac"]
    assert losses[0] != losses[1]


def points_recorded(folder, count):
    path = folder / "curves.jsonl"
    return path.exists() and path.read_bytes().count(b"\n") >= count


def begin(attnbench, tmp_path, file, signal_number, who="driver"):
    """Trains until two points are recorded, sends the signal, and returns the driver's exit code."""
    with attnbench.running("train", file, "--out", "out") as driver:
        wait_for(lambda: points_recorded(tmp_path / "out", 2), "two points", driver=driver)
        trainer = next(p for p in children(driver.pid) if "attnbench-experiments" in p.command)
        if who == "driver":
            driver.send_signal(signal_number)
        else:
            import os

            os.kill(trainer.pid, signal_number)
        driver.communicate()
        wait_for(lambda: is_stopped(trainer.pid) or not any(p.pid == trainer.pid for p in children(1)), "the trainer to end")
        return driver.returncode


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_training_continues_to_the_same_curve(attnbench, tmp_path, endless, signal_number):
    code = begin(attnbench, tmp_path, endless, signal_number)
    assert code == (-9 if signal_number == signal.SIGKILL else 128 + signal_number)
    # The trainer writes a checkpoint also when its driver was killed.
    (checkpoint,) = wait_for(lambda: checkpoints_in(tmp_path / "out"), "a checkpoint")
    wait_for(lambda: checkpoint.suffix == ".pt", "a complete checkpoint")
    reached = curves_in(tmp_path / "out")[-1]["update"]
    last = reached + 60
    changes = ("--set", f"updates={last}")
    resumed = attnbench("train", endless, "--out", "out", *changes)
    assert "goes on after update" in resumed.stderr
    attnbench("train", endless, "--out", "whole", *changes)
    of_updates = [{k: v for k, v in p.items() if k != "updates"} for p in curves_in(tmp_path / "out")]
    whole = [{k: v for k, v in p.items() if k != "updates"} for p in curves_in(tmp_path / "whole")]
    assert of_updates == whole and len(whole) == -(-last // 20)


def test_a_killed_trainer_is_a_failure_and_continues(attnbench, tmp_path, training):
    file = write_training(tmp_path / "long.toml", method="linear", updates=10**8, validate_every=20, checkpoint_every=20)
    code = begin(attnbench, tmp_path, file, signal.SIGKILL, who="trainer")
    assert code == 1
    (ended,) = lines_of(tmp_path / "out", "trainings.jsonl")
    assert ended["outcome"] == "failed" and ended["failure_kind"] == "crashed" and "Killed" in ended["reason"]
    reached = curves_in(tmp_path / "out")[-1]["update"]
    resumed = attnbench("train", file, "--out", "out", "--set", f"updates={reached + 40}")
    assert "goes on after update" in resumed.stderr
    (ended,) = lines_of(tmp_path / "out", "trainings.jsonl")
    assert ended["outcome"] == "measured" and ended["update"] == reached + 40


def test_a_larger_number_of_updates_continues_an_ended_training(attnbench, tmp_path, training):
    attnbench("train", training, "--out", "out")
    attnbench("train", training, "--out", "out", "--set", "updates=18")
    assert [p["update"] for p in curves_in(tmp_path / "out") if p["method"] == "linear"] == [3, 6, 9, 12, 15, 18]
    attnbench("train", training, "--out", "whole", "--set", "updates=18")
    losses = [[p["validation_loss"] for p in curves_in(tmp_path / name)] for name in ("out", "whole")]
    assert losses[0] == losses[1]


def files_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_other_settings_are_refused_by_name(attnbench, tmp_path, training):
    attnbench("train", training, "--out", "out")
    before = files_in(tmp_path / "out")
    message = attnbench("train", training, "--out", "out", "--set", "layers=3", "--set", "batch=5", code=5).stderr
    assert "layers: 2 in out, 3 now" in message and "batch: 4 in out, 5 now" in message and "--resume none" in message
    assert files_in(tmp_path / "out") == before
    attnbench("train", training, "--out", "out", "--set", "layers=3", "--resume", "none")
    assert {line["layers"] for line in lines_of(tmp_path / "out", "trainings.jsonl")} == {3}


def test_a_checkpoint_that_cannot_be_read_is_refused_by_name(attnbench, tmp_path, endless):
    begin(attnbench, tmp_path, endless, signal.SIGINT)
    (checkpoint,) = checkpoints_in(tmp_path / "out")
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    done = attnbench("train", endless, "--out", "out", code=1)
    assert checkpoint.name in done.stderr and "not a complete checkpoint" in done.stderr
    assert len(checkpoint.read_bytes()) == 1000, "it is kept for the user to look at"
    assert len(curves_in(tmp_path / "out")) >= 2


def test_a_loss_that_is_nan_stops_and_keeps_the_checkpoint(attnbench, tmp_path):
    file = write_training(
        tmp_path / "nan.toml", method="linear", learning_rate=1e-3, reduced_learning_rate=1e30, reduce_after=6,
        max_gradient_norm=0,
    )  # fmt: skip
    done = attnbench("train", file, "--out", "out", code=1)
    (ended,) = lines_of(tmp_path / "out", "trainings.jsonl")
    assert ended["failure_kind"] == "not_finite" and "the loss of update" in ended["reason"]
    (checkpoint,) = checkpoints_in(tmp_path / "out")
    assert str(checkpoint.relative_to(tmp_path)) in ended["reason"] and "not_finite" in done.stderr
    assert [point["update"] for point in curves_in(tmp_path / "out")][0] == 3


def test_a_full_disk_keeps_what_is_there(attnbench, tmp_path, training):
    attnbench("train", training, "--out", "out")
    before = [path.read_bytes() for path in checkpoints_in(tmp_path / "out")]
    done = attnbench("train", training, "--out", "out", "--set", "updates=18", code=1, **limited_files(20_000))
    assert "cannot write the checkpoint: File too large" in done.stderr
    assert [path.read_bytes() for path in checkpoints_in(tmp_path / "out")] == before
    attnbench("train", training, "--out", "out", "--set", "updates=18")
    assert [line["update"] for line in lines_of(tmp_path / "out", "trainings.jsonl")] == [18, 18]


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"method": "lineer"}, "lineer"),
        ({"updates": 0}, "updates = 0, expected"),
        ({"batch": "many"}, "batch"),
        ({"max_copied": 6}, "at least 2 · max_copied + 2 + gap = 14"),
        ({"min_copied": 5}, "max_copied = 4, expected at least min_copied = 5"),
        ({"heads": 0}, "heads = 0"),
        ({"optimizer": "sgd"}, "optimizer"),
        ({"learning_rat": 1}, "unknown key 'learning_rat'"),
        ({"updates": [10, 20]}, "updates"),
    ],
)
def test_bad_settings_are_refused(attnbench, tmp_path, change, expected):
    file = write_training(tmp_path / "bad.toml", **change)
    message = attnbench("train", file, "--out", "out", code=2).stderr
    assert "bad.toml" in message and expected in message
    assert not (tmp_path / "out").exists()


def test_trainings_are_listed(attnbench):
    listed = attnbench.json("list", "trainings")
    assert "copy-task" in [item["name"] for item in listed]
    assert "copy-task" in attnbench("list", "trainings").stdout
    message = attnbench("train", "copy-tsk", code=2).stderr
    assert "copy-task" in message
