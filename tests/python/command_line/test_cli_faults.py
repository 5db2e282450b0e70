"""Tests of sweeps in which something goes wrong: the driver is killed or interrupted, the disk is
full, or a worker crashes, hangs or gives answers that cannot be read."""

import contextlib
import fcntl
import json
import os
import random
import re
import resource
import shutil
import signal
import time
from pathlib import Path

import pytest
from conftest import (
    ANSWER,
    HANG_S,
    Cli,
    children,
    group_members,
    kept_lines,
    log_of,
    measuring_worker,
    processes,
    records_in,
    runs,
    strict_json,
    wait_for,
    write_sweep,
)


def complete_lines(log):
    """The log without an incomplete last line."""
    return log[: log.rfind(b"\n") + 1]


def processor_time(pid):
    """Seconds of processor time that the process has used."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def long_sweep(path, **axes):
    """A sweep whose cases take a minute each, so that one is being measured when the test acts."""
    return write_sweep(path, timing={"time_budget_s": 60, "noise_target": 0}, **axes)


@pytest.fixture(scope="session")
def recorded(build, canned_worker, tmp_path_factory):
    """The folder of a sweep that ran to its end. Tests work on a copy of it."""
    folder = tmp_path_factory.mktemp("recorded")
    attnbench = Cli(build / "attnbench", canned_worker, folder)
    attnbench("sweep", write_sweep(folder / "small.toml"), "--out", "out")
    return folder


@pytest.fixture
def done(recorded, tmp_path):
    """A copy of `recorded`, with the sweep file beside it."""
    shutil.copytree(recorded / "out", tmp_path / "out")
    shutil.copy(recorded / "small.toml", tmp_path)
    return tmp_path / "out"


# ---------------------------------------------------------------- SIGKILL and incomplete lines


def test_no_record_is_lost_when_the_driver_is_killed_at_random_moments(quick, tmp_path):
    seed = int(os.environ.get("ATTNBENCH_TEST_SEED", random.randrange(10**6)))
    print(f"ATTNBENCH_TEST_SEED={seed}")
    moments = random.Random(seed)
    sweep = write_sweep(tmp_path / "s.toml", query_len=[32, 40, 48, 56])
    out, kept = tmp_path / "out", b""
    for _ in range(5):
        with quick.running("sweep", sweep, "--out", "out") as driver:
            time.sleep(moments.uniform(0, 2.5))
            workers = children(driver.pid)
            driver.kill()
            shown = driver.stderr.read().count("[")
            driver.wait()
            for worker in workers:
                wait_for(lambda w=worker: not group_members(w.group), "the worker to end")
        if not (out / "records.jsonl").exists():
            continue
        log = log_of(out)
        assert kept_lines(kept, log), "an earlier record has changed"
        new = complete_lines(log).count(b"\n") - kept.count(b"\n")
        assert new >= shown, "a record was not written before the progress of its case was shown"
        kept = complete_lines(log)
        for line in kept.splitlines():
            strict_json(line)
    quick("sweep", sweep, "--out", "out")
    assert kept_lines(kept, log_of(out))
    records = records_in(out)
    cases = [(record["method"], record["query_len"]) for record in records]
    assert sorted(cases) == [(m, n) for m in ("linear", "softmax") for n in (32, 40, 48, 56)]
    assert all(record["outcome"] == "measured" for record in records)


@pytest.mark.parametrize("when", ["while it loads", "while it measures"])
def test_a_worker_does_not_outlive_a_killed_driver(quick, tmp_path, when):
    sweep = long_sweep(tmp_path / "s.toml")
    with quick.running("sweep", sweep, "--out", "out") as driver:
        worker = measuring_worker(driver)
        if when == "while it measures":
            torch = "libtorch_cpu"
            maps = Path(f"/proc/{worker.pid}/maps")
            wait_for(lambda: torch in maps.read_text(), "the worker to load LibTorch")
            wait_for(lambda: processor_time(worker.pid) > 1, "the worker to work for a second")
        driver.kill()
        driver.wait()
        try:
            wait_for(lambda: not runs(worker.pid), "the worker to end")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)


@pytest.mark.parametrize("processes", ["kept", "lost"])
def test_the_case_of_an_incomplete_last_line_is_measured_again(canned, done, tmp_path, processes):
    """If the line of the case's process was written, its record is made from that line."""
    lines = (done / "processes.jsonl").read_bytes()
    whole = log_of(done)
    earlier = complete_lines(whole[:-1])
    last = len(whole) - len(earlier)
    for missing in (1, 2, last // 2, last - 1):
        (done / "records.jsonl").write_bytes(whole[:-missing])
        (done / "processes.jsonl").write_bytes(lines if processes == "kept" else b"")
        finished = canned("sweep", tmp_path / "small.toml", "--out", "out")
        assert ("[1/1]" in finished.stderr) == (processes == "lost")
        assert log_of(done).startswith(earlier)
        records = records_in(done)
        assert len(records) == 4
        assert records[-1]["outcome"] == "measured"


def test_a_log_cut_anywhere_is_read_up_to_its_last_complete_line(canned, done):
    whole = log_of(done)
    records = records_in(done)
    places = random.Random(3).sample(range(len(whole)), 60)
    for size in [0, 1, len(whole) - 1, *places]:
        (done / "records.jsonl").write_bytes(whole[:size])
        assert canned.json("table", "out") == records[: whole[:size].count(b"\n")]


def test_a_malformed_line_inside_the_log_is_refused(canned, done, tmp_path):
    lines = log_of(done).splitlines(keepends=True)
    broken = lines[0] + lines[1][:200] + b"\n" + b"".join(lines[2:])
    (done / "records.jsonl").write_bytes(broken)
    message = canned("sweep", tmp_path / "small.toml", "--out", "out", code=2).stderr
    assert "records.jsonl:2:" in message
    assert log_of(done) == broken


# ---------------------------------------------------------------- SIGINT and SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sweep_keeps_its_records_and_can_be_resumed(quick, canned, tmp_path, number):
    sweep = long_sweep(tmp_path / "s.toml")
    canned("sweep", sweep, "--out", "out", "--methods", "softmax")
    before = log_of(tmp_path / "out")
    with quick.running("sweep", sweep, "--out", "out") as driver:
        worker = measuring_worker(driver)
        driver.send_signal(number)
        _, errors = driver.communicate(timeout=HANG_S)
        assert driver.returncode == 128 + number
        assert "interrupted" in errors
        assert group_members(worker.group) == []
    assert not [p for p in processes() if str(tmp_path) in p.command]
    assert log_of(tmp_path / "out") == before
    canned("sweep", sweep, "--out", "out")
    assert kept_lines(before, log_of(tmp_path / "out"))
    assert len(records_in(tmp_path / "out")) == 4


def test_an_interrupt_while_ceilings_are_measured_ends_it(attnbench, workers, tmp_path, sweep):
    slow = attnbench.with_worker(workers.make(ceilings="sleep 300"))
    with slow.running("sweep", sweep, "--out", "out") as driver:
        worker = wait_for(
            lambda: next((p for p in children(driver.pid) if p.command.endswith("ceilings")), None),
            "the ceilings",
            driver=driver,
        )
        driver.send_signal(signal.SIGINT)
        driver.communicate(timeout=HANG_S)
        assert driver.returncode == 130
        assert group_members(worker.group) == []
    assert log_of(tmp_path / "out") == b""


# ---------------------------------------------------------------- two drivers


def test_a_second_driver_on_a_folder_is_refused_and_names_the_first(quick, canned, tmp_path):
    sweep = long_sweep(tmp_path / "s.toml")
    canned("sweep", sweep, "--out", "out", "--methods", "softmax")
    before = log_of(tmp_path / "out")
    with quick.running("sweep", sweep, "--out", "out") as first:
        worker = measuring_worker(first)
        message = canned("sweep", sweep, "--out", "out", code=2).stderr
        assert re.search(rf"\b{first.pid}\b", message)
        assert "out" in message
        assert first.poll() is None and runs(worker.pid)
        assert log_of(tmp_path / "out") == before
    # The lock is released when its process ends, even if it was killed.
    canned("sweep", sweep, "--out", "out")


def test_reading_a_folder_does_not_wait_for_its_lock(quick, canned, done, tmp_path):
    with open(done / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert len(canned.json("table", "out")) == 4
        assert "process" in canned("sweep", tmp_path / "small.toml", "--out", "out", code=2).stderr


# ---------------------------------------------------------------- workers that go wrong


def answer(**changes):
    """Shell code that answers with ANSWER and these changes; None removes a column."""
    record = {k: v for k, v in (ANSWER | changes).items() if v is not None}
    return f"answer '{json.dumps(record)}'"


# By name: what the worker does, the kind of failure that is recorded, and words of the reason.
MISBEHAVIOUR = {
    "segmentation fault": ("kill -SEGV $$; sleep 9", "crashed", ["signal 11"]),
    "abort": ("echo 'no kernel' >&2; kill -ABRT $$", "crashed", ["signal 6", "no kernel"]),
    "killed": ("kill -KILL $$; sleep 9", "crashed", ["signal 9"]),
    "exit code": ("echo 'bad luck'; exit 3", "crashed", ["exit code 3", "bad luck"]),
    "an answer, then a crash": ("good; kill -SEGV $$; sleep 9", "crashed", ["signal 11"]),
    "an answer, then an error": ("good; exit 1", "crashed", ["exit code 1"]),
    "half an answer, then a crash": (
        "printf '{\"outcome\":' >&3; kill -SEGV $$; sleep 9", "crashed", ["signal 11"]
    ),
    "binary diagnostics": (r"printf 'a\377\376\000\033[2Jb' >&2; exit 1", "crashed", ["exit code"]),
    "diagnostics of two lines": ("printf 'one\\ntwo\\n' >&2; exit 1", "crashed", ["one\ntwo"]),
    "megabytes of diagnostics": (
        "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo END >&2; exit 1", "crashed", ["END"]
    ),
    "nothing": ("exit 0", "protocol", ["0 answers"]),
    "two answers": ("good; good", "protocol", ["2 answers"]),
    "no JSON": ("echo hello >&3", "protocol", ["hello"]),
    "binary": (r"printf '\377\376\000\001\n' >&3", "protocol", []),
    "half an answer": ("printf '{\"outcome\":\"measured\"' >&3", "protocol", []),
    "no line end": (f"printf '%s' '{json.dumps(ANSWER)}' >&3", "protocol", []),
    "a number beyond all": (
        "answer '{\"outcome\":\"measured\",\"time_first_ms\":1e999}'", "protocol", []
    ),
    "NaN": (
        "answer '{\"outcome\":\"measured\",\"time_first_ms\":NaN}'", "protocol", []
    ),
    "a list": ("answer '[1, 2]'", "protocol", ["array"]),
    "an unknown column": (answer(speed=1), "protocol", ["'speed'"]),
    "text for a number": (answer(time_first_ms="fast"), "protocol", ["time_first_ms", "fast"]),
    "no outcome": (answer(outcome=None), "protocol", ["outcome"]),
    "an unknown outcome": (answer(outcome="splendid"), "protocol", ["splendid"]),
    "measured without samples": (answer(time_samples_ms=None), "protocol", ["time_samples_ms"]),
    "measured with empty samples": (answer(time_samples_ms=[]), "protocol", ["time_samples_ms"]),
    "failed without a kind": ("answer '{\"outcome\":\"failed\"}'", "protocol", ["failure_kind"]),
    "another case": (answer(method="softmax"), "protocol", []),
    "very deep JSON": (
        "head -c 3000000 /dev/zero | tr '\\0' '[' >&3; echo >&3", "protocol", []
    ),
}  # fmt: skip
NAMES = list(MISBEHAVIOUR)


@pytest.fixture(scope="module")
def misbehaved(build, workers, tmp_path_factory):
    """A sweep in which each case goes wrong in another way, except the last, which is measured. The
    cases differ in the axis `seed`, which is the index of the misbehaviour."""
    folder = tmp_path_factory.mktemp("misbehaved")
    body = "".join(
        f"*'\"seed\":{number},'*)\n{MISBEHAVIOUR[name][0]}\n;;\n"
        for number, name in enumerate(NAMES)
    )
    worker = workers.make(measure=f'case "$request" in\n{body}*) good ;;\nesac')
    attnbench = Cli(build / "attnbench", worker, folder)
    sweep = write_sweep(
        folder / "s.toml", method="linear", query_len=32, seed=list(range(len(NAMES) + 1))
    )
    finished = attnbench("sweep", sweep, "--out", "out", code=1)
    return attnbench, folder / "out", finished


@pytest.mark.parametrize("name", NAMES)
def test_every_misbehaviour_becomes_one_record(misbehaved, name):
    _, out, _ = misbehaved
    _, kind, words = MISBEHAVIOUR[name]
    (record,) = [r for r in records_in(out) if r["seed"] == NAMES.index(name)]
    assert record["method"] == "linear"
    assert (record["outcome"], record["failure_kind"]) == ("failed", kind), record["reason"]
    for word in words:
        assert word in record["reason"]
    assert len(record["reason"]) < 20_000
    assert record["time_median_ms"] is None, "a failed case must have no time"
    assert record["worker_s"] > 0 and record["finished_at"]


def test_the_sweep_goes_on_after_misbehaviour(misbehaved):
    _, out, finished = misbehaved
    records = records_in(out)
    assert [record["seed"] for record in records] == list(range(len(NAMES) + 1))
    assert records[-1]["outcome"] == "measured"
    assert f"{len(NAMES)} failed" in finished.stderr
    assert not [p for p in processes() if str(out.parent) in p.command]


def test_progress_has_one_line_for_each_case_after_misbehaviour(misbehaved):
    _, _, finished = misbehaved
    *lines, last, noise = finished.stderr.split("\n")[:-1]
    assert "cases recorded" in last and noise.startswith("1 of 1 case is noisier")
    total = len(NAMES) + 1
    assert [line.split("]")[0] for line in lines] == [f"[{n}/{total}" for n in range(1, total + 1)]


def test_files_and_tables_stay_readable_after_misbehaviour(misbehaved):
    attnbench, out, finished = misbehaved
    total = len(NAMES) + 1
    assert len((out / "records.csv").read_text("utf-8").splitlines()) >= 1 + total
    assert len(attnbench.json("table", "out")) == total
    rows, _, _ = attnbench("table", "out").stdout.partition("\n±: how far the interval of a time reaches")
    shared, *table = rows.splitlines()
    assert shared.startswith("In all rows: device=cpu, ") and len(table) == 2 + total
    reasons = attnbench("table", "out", "--columns", "seed,reason").stdout
    assert len(reasons.split("\n")[:-1]) == 2 + total
    assert "\033" not in reasons
    for text in (finished.stderr, reasons, (out / "records.csv").read_bytes().decode("utf-8")):
        assert r"\xff" not in text, "the text has bytes that are not UTF-8"


# By name: what a worker does that does not end by itself.
HANGING = {
    "hangs": "sleep 300",
    "hangs with its streams closed": "exec 3>&- >&- 2>&-; exec sleep 300",
    "ignores SIGTERM": "trap '' TERM INT; sleep 300; sleep 300",
    "answers, then hangs": "good; sleep 300",
    "writes for ever": "yes 'still here'",
}


def test_workers_that_hang_are_ended_at_their_deadline(attnbench, workers, tmp_path):
    body = "".join(
        f"*'\"seed\":{number},'*)\n{code}\n;;\n" for number, code in enumerate(HANGING.values())
    )
    worker = workers.make(measure=f'case "$request" in\n{body}*) good ;;\nesac')
    sweep = write_sweep(
        tmp_path / "s.toml", method="linear", query_len=32, limits={"deadline_s": 1},
        seed=list(range(len(HANGING) + 1)),
    )  # fmt: skip
    attnbench.with_worker(worker)("sweep", sweep, "--out", "out", code=1)
    *hung, last = records_in(tmp_path / "out")
    assert [record["failure_kind"] for record in hung] == ["timeout"] * len(HANGING)
    for record in hung:
        assert "1 s" in record["reason"]
        assert record["time_median_ms"] is None
    assert "still here" in hung[-1]["reason"]
    assert last["outcome"] == "measured"
    assert not [p for p in processes() if str(worker) in p.command]


def test_there_is_no_zombie_while_the_sweep_goes_on(attnbench, workers, tmp_path, sweep):
    worker = workers.make(
        measure=f'if mkdir "{tmp_path}/one" || mkdir "{tmp_path}/two"; then kill -SEGV $$; else sleep 300; fi'
    )
    with attnbench.with_worker(worker).running("sweep", sweep, "--out", "out") as driver:
        log = tmp_path / "out/records.jsonl"
        wait_for(lambda: log.exists() and log.read_bytes().count(b"\n") == 2, "two crashes", driver=driver)
        measuring_worker(driver)
        assert [process.state == "Z" for process in children(driver.pid)] == [False]


@pytest.mark.parametrize("ending", ["good", "kill -SEGV $$; sleep 9", "exit 1"])
def test_children_of_a_worker_end_with_it(attnbench, workers, tmp_path, ending):
    pids = tmp_path / "pids"
    worker = workers.make(
        # The first child keeps the streams of the worker open, the second does not.
        measure=f"sleep 300 & echo $! >> '{pids}'\n"
        f"sleep 300 3>&- >/dev/null 2>&1 & echo $! >> '{pids}'\n{ending}"
    )
    sweep = write_sweep(tmp_path / "s.toml", method="linear")
    code = 0 if ending == "good" else 1
    attnbench.with_worker(worker)("sweep", sweep, "--out", "out", code=code)
    outcomes = [record["outcome"] for record in records_in(tmp_path / "out")]
    assert outcomes == ["measured" if ending == "good" else "failed"] * 2
    leaked = [int(line) for line in pids.read_text().split()]
    assert len(leaked) == 4
    # A process that was killed ends a moment later.
    wait_for(lambda: not any(map(runs, leaked)), "the end of the children", seconds=60)


def test_an_endless_answer_becomes_one_record(attnbench, workers, tmp_path, sweep):
    worker = workers.make(
        measure='case "$request" in *linear*) exec yes nonsense >&3 ;; *) good ;; esac'
    )
    attnbench.with_worker(worker)("sweep", sweep, "--out", "out", code=1)
    records = records_in(tmp_path / "out")
    assert [record["failure_kind"] for record in records] == ["protocol"] * 2 + [None] * 2
    assert all(len(record["reason"]) < 20_000 for record in records[:2])


def test_running_out_of_memory_fails_only_its_own_case(quick, tmp_path):
    matrix = 2 * 16384 * 16384 * 4
    sweep = write_sweep(
        tmp_path / "s.toml", method=["softmax", "linear"], query_len=[16384, 32],
        limits={"memory_limit_bytes": "1 TB"},
    )  # fmt: skip

    def less_memory():
        resource.setrlimit(resource.RLIMIT_DATA, (matrix, matrix))

    quick("sweep", sweep, "--out", "out", code=1, preexec_fn=less_memory)
    failed, *others = records_in(tmp_path / "out")
    assert (failed["outcome"], failed["failure_kind"]) == ("failed", "oom")
    assert str(matrix) in failed["reason"]
    assert [record["outcome"] for record in others] == ["measured"] * 3


# ---------------------------------------------------------------- full disks


def limited_files(size):
    """Options of `subprocess` that limit the size of files: the write that reaches the limit is cut
    short, and the next one fails."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return {"preexec_fn": limit, "restore_signals": False}


@pytest.mark.parametrize("room", [0, 1, 700])
def test_earlier_records_survive_a_full_disk(canned, done, tmp_path, room):
    earlier = b"".join(log_of(done).splitlines(keepends=True)[:3])
    (done / "records.jsonl").write_bytes(earlier)
    full = limited_files(len(earlier) + room)
    sweep = tmp_path / "small.toml"
    message = canned("sweep", sweep, "--out", "out", code=2, **full).stderr
    assert "out/records.jsonl" in message and "File too large" in message
    assert log_of(done) == earlier
    canned("sweep", sweep, "--out", "out")
    assert log_of(done).startswith(earlier) and len(records_in(done)) == 4


def test_a_disk_too_full_for_environment_json_is_an_error(canned, tmp_path, sweep):
    message = canned("sweep", sweep, "--out", "out", code=2, **limited_files(100)).stderr
    assert "environment.json" in message
    assert log_of(tmp_path / "out") == b""
    assert not list((tmp_path / "out").glob("environment.json*"))
    canned("sweep", sweep, "--out", "out")


def test_a_log_that_is_a_device_is_refused(canned, tmp_path, sweep):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/records.jsonl").symlink_to("/dev/full")

    def less_memory():
        resource.setrlimit(resource.RLIMIT_DATA, (2**31, 2**31))

    done = canned("sweep", sweep, "--out", "out", code=2, preexec_fn=less_memory)
    assert "records.jsonl" in done.stderr


def test_a_folder_that_cannot_be_made_is_named(canned, sweep):
    for folder in ("/proc/no/such", "/dev/null/x"):
        assert folder in canned("sweep", sweep, "--out", folder, code=2).stderr
