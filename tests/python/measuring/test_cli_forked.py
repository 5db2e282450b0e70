"""Tests of processes that are forked from one that has loaded Python and torch: those of sweeps and cases with a method in
Python. They must end in every way like processes that are started as programs, and leave nothing behind."""

import os
import re
import signal
import sys
import textwrap

import pytest
from conftest import (
    HANG_S, ROOT, children, group_members, is_stopped, processes, records_in, runs, small, strict_json, wait_for,
    write_sweep,
)  # fmt: skip
from python_functions import attnbench, pytestmark  # noqa: F401

GOOD = "def f(q, k, v):\n    return v * 1\n"


@pytest.fixture
def write(tmp_path):
    """Writes a Python file, and returns the name of the method f in it."""

    def write_file(text, name="mine.py"):
        (tmp_path / name).write_text(textwrap.dedent(text))
        return f"{tmp_path / name}:f"

    return write_file


@pytest.fixture
def measure(attnbench):
    """Measures a function and returns the record, whatever its outcome."""

    def run(method, *more, code=0, environment=(), **options):
        result = attnbench(
            "measure", method, *small(**options), *more, "--format=json", code=code, env=os.environ | dict(environment)
        )
        return strict_json(result.stdout)

    return run


def servers(driver):
    """The processes that this driver forks workers from."""
    return [p for p in children(driver.pid) if "serve" in p.command.split()]


def forked_worker(driver):
    """Waits until a worker runs that was forked for this driver, and returns it."""
    return wait_for(
        lambda: next((w for s in servers(driver) for w in children(s.pid) if w.state not in "ZX"), None),
        "a forked worker",
        driver=driver,
    )


def left_behind(*pids):
    """Those of these processes that still run."""
    return [pid for pid in pids if runs(pid)]


# ---------------------------------------------------------------- how processes begin


def test_every_process_of_a_sweep_with_a_python_method_is_forked(write, attnbench, tmp_path):
    """Each round has a server of its own, because processes of one server have the same addresses."""
    log = tmp_path / "log"
    method = write(f"""
        import os

        with open({str(log)!r}, "a") as log:
            print(os.getppid(), os.getpid(), os.getpgid(0), file=log)

        def f(q, k, v):
            return v * 1
    """)
    sweep = write_sweep(tmp_path / "s.toml", method=["linear", method], timing={"processes": 2})
    attnbench("sweep", sweep, "--out", "out")
    records = records_in(tmp_path / "out")
    assert [(r["outcome"], r["process_start"]) for r in records] == [("measured", "forked")] * 4
    imports = [line.split() for line in log.read_text().splitlines()]
    plan, *measured = imports
    assert len(measured) == 4, "each process imports the file for itself"
    assert len({pid for _, pid, _ in imports}) == 5
    assert all(pid == group for _, pid, group in imports), "each process leads a group"
    first, second = measured[:2], measured[2:]
    assert {server for server, _, _ in first} == {plan[0]}
    assert len({server for server, _, _ in second}) == 1
    assert plan[0] not in {server for server, _, _ in second}
    assert not left_behind(*{int(server) for server, _, _ in imports})


def test_processes_start_as_programs_unless_forked_ones_are_asked_for_and_a_method_is_in_python(write, attnbench, measure, tmp_path):
    assert measure("linear")["process_start"] == "fresh"
    assert measure(write(GOOD))["process_start"] == "forked"
    sweep = write_sweep(tmp_path / "s.toml", method=[write(GOOD)], query_len=32)
    attnbench.forks = False
    assert measure(write(GOOD))["process_start"] == "fresh"
    attnbench("sweep", sweep, "--out", "out")
    assert [r["process_start"] for r in records_in(tmp_path / "out")] == ["fresh"]


def test_a_case_takes_turns_with_its_baseline_in_forked_processes(write, attnbench, tmp_path):
    sweep = write_sweep(tmp_path / "s.toml", method=[write(GOOD), "linear"], query_len=32, timing={"baseline": "sdpa"})
    attnbench("sweep", sweep, "--out", "out")
    for record in records_in(tmp_path / "out"):
        assert (record["process_start"], record["ratio_pairing"]) == ("forked", "turns"), record["reason"]
        assert record["ratio_median"] > 0


def test_a_record_says_why_its_process_was_not_forked(write, measure, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(10000,), daemon=True).start()\n"
    )
    path = {"PYTHONPATH": f"{tmp_path}:{os.environ['PYTHONPATH']}"}
    record = measure(write(GOOD), environment=path)
    assert record["outcome"] == "measured", record["reason"]
    assert record["process_start"] == "fresh: Python and torch run 2 threads, and a process with several threads cannot be forked safely"


def test_forked_processes_have_the_streams_and_the_environment_of_a_worker(write, measure):
    record = measure(write("""
        import os
        import signal
        import sys

        assert sys.stdin.read() == "", "the request has been read"
        assert signal.getsignal(signal.SIGINT) in (signal.SIG_DFL, signal.default_int_handler)
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
        opened = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if int(n) > 3 and os.path.exists(f"/proc/self/fd/{n}")]
        assert not [name for name in opened if "socket" in name or "signalfd" in name], opened
        print("printed")
        os.write(1, b"{")

        def f(q, k, v):
            return v * 1
    """))
    assert (record["outcome"], record["process_start"]) == ("measured", "forked"), record["reason"]


def test_a_python_function_may_use_threads_and_processes(write, measure):
    record = measure(
        write("""
            import subprocess
            import sys
            from concurrent.futures import ThreadPoolExecutor

            pool = ThreadPoolExecutor(2)
            assert subprocess.run([sys.executable, "-c", "print(3)"], capture_output=True, text=True).stdout == "3\\n"

            def f(q, k, v):
                halves = pool.map(lambda x: x * 1, v.chunk(2, 2))
                import torch
                return torch.cat(list(halves), 2)
        """),
        threads=2,
    )
    assert (record["outcome"], record["process_start"]) == ("measured", "forked"), record["reason"]


# ---------------------------------------------------------------- how processes end


# By name: the body of the function, the kind of failure, and a part of the reason.
ENDINGS = {
    "segmentation fault": ("os.kill(os.getpid(), signal.SIGSEGV)", "crashed", "signal 11"),
    "abort": ("print('no kernel', flush=True); os.abort()", "crashed", "signal 6"),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", "crashed", "signal 9"),
    "exit code": ("os.write(2, b'bad luck'); os._exit(3)", "crashed", "exit code 3; it said: bad luck"),
    "no answer": ("os._exit(0)", "protocol", "0 answers"),
    "memory": ("torch.empty(2**34)", "oom", ""),
    "exception": ("raise ValueError('odd length')", "error", "ValueError: odd length"),
}


def test_each_end_of_a_forked_process_is_recorded_like_that_of_a_program(attnbench, tmp_path):
    names = list(ENDINGS)
    for i, name in enumerate(names):
        body = f"import os\nimport signal\nimport torch\n\n\ndef f(q, k, v):\n    {ENDINGS[name][0]}\n    return v * 1\n"
        (tmp_path / f"e{i}.py").write_text(body)
    sweep = write_sweep(
        tmp_path / "s.toml", method=[f"e{i}.py:f" for i in range(len(names))] + ["linear"], query_len=32,
        limits={"memory_limit_bytes": 2**30},
    )  # fmt: skip
    attnbench("sweep", sweep, "--out", "out", code=1)
    *failed, last = records_in(tmp_path / "out")
    for name, record in zip(names, failed, strict=True):
        _, kind, reason = ENDINGS[name]
        assert (record["outcome"], record["failure_kind"]) == ("failed", kind), f"{name}: {record['reason']}"
        assert reason in record["reason"]
        assert record["process_start"] == "forked"
    assert last["outcome"] == "measured"
    assert not [p for p in processes() if str(tmp_path) in p.command]


def test_a_forked_process_that_hangs_is_ended_at_its_deadline_with_its_children(write, measure, tmp_path):
    record = measure(write(f"""
        import subprocess
        import time

        def f(q, k, v):
            child = subprocess.Popen(["sleep", "10000"])
            with open({str(tmp_path / "pid")!r}, "w") as file:
                print(child.pid, file=file)
            time.sleep(10000)
    """), code=1, deadline_s=5)  # fmt: skip
    assert (record["failure_kind"], record["process_start"]) == ("timeout", "forked")
    assert "its deadline of 5 s" in record["reason"]
    assert not left_behind(int((tmp_path / "pid").read_text()))


SLOW = """
    import time

    def f(q, k, v):
        time.sleep(10000)
"""


def test_a_killed_driver_leaves_neither_the_server_nor_its_processes(write, attnbench, tmp_path):
    sweep = write_sweep(tmp_path / "s.toml", method=[write(SLOW)], query_len=32)
    with attnbench.running("sweep", sweep, "--out", "out") as driver:
        worker = forked_worker(driver)
        (server,) = servers(driver)
        driver.kill()
        driver.wait()
        wait_for(lambda: not left_behind(worker.pid, server.pid), "the server and the worker to end")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_server_and_its_processes(write, attnbench, tmp_path, number):
    sweep = write_sweep(tmp_path / "s.toml", method=["linear", write(SLOW)], query_len=32)
    with attnbench.running("sweep", sweep, "--out", "out") as driver:
        wait_for(lambda: any(w for s in servers(driver) for w in children(s.pid)), "a forked worker", driver=driver)
        (server,) = servers(driver)
        driver.send_signal(number)
        driver.communicate(timeout=HANG_S)
        assert driver.returncode == 128 + number
    assert group_members(server.group) == []
    wait_for(lambda: not [p for p in processes() if p.parent == server.pid and p.state not in "ZX"], "the workers to end")


def test_a_server_that_dies_costs_one_process_and_later_ones_are_fresh(write, attnbench, tmp_path):
    slow = write(f"""
        import os
        import signal
        import time

        def f(q, k, v):
            if not os.path.exists({str(tmp_path / "killed")!r}):
                open({str(tmp_path / "killed")!r}, "w").close()
                os.kill(os.getppid(), signal.SIGKILL)
                time.sleep(10000)
            return v * 1
    """)
    sweep = write_sweep(tmp_path / "s.toml", method=[slow], query_len=[32, 48])
    attnbench("sweep", sweep, "--out", "out", code=1)
    records = sorted(records_in(tmp_path / "out"), key=lambda r: r["outcome"])
    assert [r["outcome"] for r in records] == ["failed", "measured"]
    assert (records[0]["failure_kind"], records[0]["process_start"]) == ("crashed", "forked")
    assert "signal 9" in records[0]["reason"]
    assert records[1]["process_start"] == "fresh: the process that forks workers has ended"


def test_a_forked_process_that_has_ended_is_reaped_while_the_sweep_goes_on(write, attnbench, tmp_path):
    method = write(f"""
        import os
        import time

        def f(q, k, v):
            if os.path.exists({str(tmp_path / "crashed")!r}):
                time.sleep(10000)
            open({str(tmp_path / "crashed")!r}, "w").close()
            os.abort()
    """)
    sweep = write_sweep(tmp_path / "s.toml", method=method, query_len=[32, 48])
    with attnbench.running("sweep", sweep, "--out", "out") as driver:
        log = tmp_path / "out/processes.jsonl"
        wait_for(lambda: log.exists() and log.read_bytes().count(b"\n") == 1, "the crash", driver=driver)
        forked_worker(driver)
        assert [p for s in servers(driver) for p in children(s.pid) if p.state in "ZX"] == []


# ---------------------------------------------------------------- refusals


def test_a_wrong_signature_is_refused_without_a_worker(workers, attnbench, tmp_path):
    """The worker, which would import torch, breaks in this test if it is asked for a plan or for forked processes."""
    broken = workers.make(plan="exit 9", serve="exit 9")
    if not (workers.folder / "python").exists():
        (workers.folder / "python").symlink_to(ROOT / "python")
    (tmp_path / "mine.py").write_text("import torch\n\n\ndef f(q, k):\n    return k\n")
    environment = os.environ | {"ATTNBENCH_PYTHON": sys.executable}
    refused = attnbench.with_worker(broken)("measure", "mine.py:f", code=2, env=environment).stderr
    assert refused.startswith("attnbench: mine.py:f: its parameters are (q, k), expected (q, k, v, *, causal")
    sweep = write_sweep(tmp_path / "s.toml", method="mine.py:f")
    refused = attnbench.with_worker(broken)("sweep", sweep, "--out", "out", code=2, env=environment).stderr
    assert re.search(r"s\.toml:\d+:\d+: .*mine\.py:f: its parameters are \(q, k\)", refused)


def test_a_function_that_may_be_right_is_left_to_the_worker(workers, attnbench, tmp_path):
    broken = workers.make(plan="exit 9", serve="exit 9")
    if not (workers.folder / "python").exists():
        (workers.folder / "python").symlink_to(ROOT / "python")
    environment = os.environ | {"ATTNBENCH_PYTHON": sys.executable}
    (tmp_path / "mine.py").write_text(GOOD)
    assert "exit code 9" in attnbench.with_worker(broken)("measure", "mine.py:f", code=1, env=environment).stderr
