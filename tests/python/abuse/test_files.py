"""Tests of files that vanish or are torn, of limits of the system, and of paths that are not
regular files."""

import re
import subprocess

import pytest
from conftest import log_of, records_in, shell, strict_json, write_sweep


@pytest.mark.parametrize("event", ["rm out/records.jsonl", "rm out/processes.jsonl", "rm -r out", "mv out elsewhere"])
def test_a_log_that_vanishes_stops_the_sweep(attnbench, workers, tmp_path, sweep, event):
    worker = workers.make(measure=f"echo x >> cases; [ -e out/.lock ] && {event}; good")
    message = attnbench.with_worker(worker)("sweep", sweep, "--out", "out", code=2).stderr
    assert re.search(r"out/(records|processes).jsonl: the file was removed, moved or replaced", message)
    assert (tmp_path / "cases").read_text() == "x\n", "no further case is measured"


def test_the_limit_of_a_files_size_is_like_a_full_disk(canned, tmp_path, sweep):
    canned("sweep", sweep, "--out", "out", "--methods", "linear", "--set", "query_len=32")
    earlier = log_of(tmp_path / "out")
    blocks = len(earlier) // 1024 + 1
    done = shell(canned, f"ulimit -f {blocks}; $attnbench sweep {sweep.name} --out out")
    assert done.returncode == 2
    assert ".jsonl: cannot write: File too large" in done.stderr
    assert log_of(tmp_path / "out") == earlier


def test_a_lost_environment_does_not_cost_the_records(canned, tmp_path, sweep):
    canned("sweep", sweep, "--out", "out", "--methods", "linear")
    path = tmp_path / "out/environment.json"
    path.write_text("{torn")
    message = canned("sweep", sweep, "--out", "out", code=2).stderr
    assert "environment.json: not JSON: syntax error" in message and "remove the file" in message
    path.unlink()
    assert "2 cases recorded" in canned("sweep", sweep, "--out", "out").stderr
    assert len(records_in(tmp_path / "out")) == 4
    assert strict_json(path.read_text())["environment"]


def test_without_an_environment_the_records_say_what_differs(canned, workers, attnbench, tmp_path, sweep):
    canned("sweep", sweep, "--out", "out", "--methods", "linear")
    (tmp_path / "out/environment.json").unlink()
    other = attnbench.with_worker(workers.make(measure="good", environment={"revision": "abcdef"}))
    message = other("sweep", sweep, "--out", "out", code=5).stderr
    assert "another build, machine or configuration" in message and 'revision: "abcdef"' in message


@pytest.mark.parametrize(
    ("file", "said"),
    [("/dev/zero", "not a regular file"), (".", "is a folder"), ("none.csv", "No such file"), ("pipe", "not a regular file")],
)
def test_published_files_that_are_no_files(canned, tmp_path, file, said):
    subprocess.run(["mkfifo", tmp_path / "pipe"], check=True)
    write_sweep(tmp_path / "s.toml", published=file)
    message = canned("sweep", "s.toml", "--dry-run", code=2).stderr
    assert said in message and file in message


@pytest.mark.parametrize(("file", "said"), [("/dev/zero", "not a regular file"), (".", "is a folder")])
def test_sweep_files_and_records_that_are_no_files(canned, tmp_path, file, said):
    (tmp_path / "folder.toml").mkdir()
    path = "folder.toml" if file == "." else file
    assert said in canned("sweep", path, "--dry-run", code=2).stderr
    assert "/dev/zero: not a regular file" in canned("table", "/dev/zero", code=2).stderr
