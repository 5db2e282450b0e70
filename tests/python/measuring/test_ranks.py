"""Tests of `python -m attnbench.distributed`: measurements with ranks on this machine and of torchrun, their records and
table, the bound and the prediction, and what happens when a rank fails."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from conftest import HANG_S, ROOT, wait_for

PROGRAM = [sys.executable, "-m", "attnbench.distributed"]
SMALL = ["--length=64", "--heads=1", "--dim=8", "--repeats=2"]
FAULTY = Path(__file__).with_name("faulty_rank.py")
DEADLINE_S = 600


def run(*arguments, program=PROGRAM, code=0, **options):
    done = subprocess.run(
        [*program, *map(str, arguments)], capture_output=True, text=True, timeout=HANG_S, check=False, cwd=ROOT, **options
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def records(folder):
    return [json.loads(line) for line in (folder / "ranks.jsonl").read_text("utf-8").splitlines()]


def request(**changes):
    from attnbench.distributed.rank import Request

    usual = {
        "operator": "linear", "rank": 0, "ranks": 2, "init": "", "answer": "", "parent": 0, "cores": [], "length": 64, "heads": 1, "dim": 8,
        "batch": 1, "dtype": "float32", "backward": True, "repeats": 2, "threads": 1, "deadline_s": DEADLINE_S,
    }  # fmt: skip
    return Request(**usual | changes)


@pytest.mark.long
def test_ranks_are_measured_once_and_listed(tmp_path, build):  # noqa: ARG001
    command = ["measure", *SMALL, "--operators=gated-delta", "--ranks=1,2", "--backward", "--oversubscribe", "--out", tmp_path]
    first = run(*command)
    found = records(tmp_path)
    assert [(x["operator"], x["ranks"], x["failure"]) for x in found] == [("gated-delta", ranks, None) for ranks in (1, 2)]
    # A header, and in each direction a state and a transition [8,8].
    assert [x["payload_bytes"] for x in found] == [0, 128 + 2 * 2 * 64 * 4]
    for x in found:
        assert len(x["seconds"]) == 2 and min(x["seconds"]) > 0 and len(x["seconds_by_rank"]) == x["ranks"]
        assert len(x["peak_extra_bytes"]) == x["ranks"] and x["agreement"]["error"] < 1e-5
        assert x["torch_version"] and x["cpu_model"] and x["oversubscribed"] == (x["ranks"] > len(os.sched_getaffinity(0)))
    assert "| gated-delta | 2 | 64 | yes |" in first.stdout and "| 0.67 | 1152 B |" in first.stdout
    # What is measured is not measured again.
    again = run(*command)
    assert records(tmp_path) == found and again.stdout == first.stdout and "ms" not in again.stderr


@pytest.mark.long
def test_a_fault_of_a_rank_is_one_failure(build):  # noqa: ARG001
    from attnbench.distributed import launch

    def failure(fault, **changes):
        return launch.run(request(**changes), None, [sys.executable, str(FAULTY), fault])["failure"]

    # Ranks that hang need a deadline, in which a busy machine starts them.
    faults = {
        "kill_in_the_exchange": {}, "have_a_shorter_slice": {}, "disagree": {},
        "hang_in_the_exchange": {"deadline_s": 30}, "come_late": {"deadline_s": 30},
    }  # fmt: skip
    with ThreadPoolExecutor(len(faults)) as pool:
        found = dict(zip(faults, pool.map(lambda fault: failure(fault, **faults[fault]), faults), strict=True))
    killed = found["kill_in_the_exchange"]
    assert killed["kind"] == "crashed" and killed["rank"] == 1
    assert killed["message"] == "rank 1 of 2 ended with SIGKILL; its last words: rank 1 is about to exchange states"
    assert found["have_a_shorter_slice"]["kind"] == "crashed"
    assert "expected slices of equal length" in found["have_a_shorter_slice"]["message"]
    assert found["disagree"]["kind"] == "disagreed"  # Either may say so first, because gradients of both are wrong.
    assert "of 2 disagrees with one process: linear has an error of 0.001" in found["disagree"]["message"]
    for fault in ("hang_in_the_exchange", "come_late"):
        assert found[fault]["kind"] == "timed_out", found[fault]
        assert "rank 1" in found[fault]["message"]
    assert not children()


def children():
    """The processes that this one has started, without those of multiprocessing, which stay for others."""
    found = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True, check=False).stdout
    return [line for line in found.splitlines() if "faulty_rank" in line or "distributed.rank" in line]


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files of programs that the test starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_ranks_end_with_the_command_that_started_them(tmp_path, temporary, build, how):  # noqa: ARG001
    folder = tmp_path / "out"
    command = [*PROGRAM, "measure", *SMALL, "--operators=linear", "--ranks=2", "--repeats=100000000", "--oversubscribe", "--out", str(folder)]
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)

    def ranks():
        return subprocess.run(["ps", "--ppid", str(started.pid), "-o", "pid="], capture_output=True, text=True, check=False).stdout.split()

    wait_for(lambda: len(ranks()) == 2, "the ranks to start")
    found = ranks()
    # They ask to end with the command once Python runs.
    wait_for(lambda: all("torch" in Path(f"/proc/{rank}/maps").read_text("utf-8") for rank in found), "the ranks to run")
    assert len(list(temporary.glob("attnbench-ranks-*"))) == 1
    started.send_signal(how)
    started.wait()
    wait_for(lambda: not any(is_running(rank) for rank in found), "the ranks to end")
    if how == signal.SIGTERM:
        assert started.returncode == 128 + how and not list(temporary.glob("attnbench-ranks-*"))


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
JOINED = ["-m", "attnbench.distributed", "measure", *SMALL, "--join=torchrun"]


@pytest.mark.usefixtures("build", "temporary")  # torchrun leaves a folder of logs
def test_ranks_of_torchrun_are_joined_and_measure_every_operator(tmp_path):
    from attnbench.distributed.operators import OPERATORS

    done = run("--standalone", *JOINED, f"--operators={','.join(OPERATORS)}", "--out", tmp_path, program=TORCHRUN)
    found = {x["operator"]: x for x in records(tmp_path)}
    assert [(x["ranks"], x["joined"], x["failure"]) for x in found.values()] == [(2, "torchrun", None)] * len(OPERATORS)
    # A header, and a state [8,8], with a transition [8,8], or keys and values.
    payloads = {"linear": 128 + 64 * 4, "kda": 128 + 2 * 64 * 4, "softmax": 128 + 2 * 64 * 8 * 4}
    # With a normalizer two headers, means [8] and a state [8,9].
    payloads["linear-elu"] = 2 * 128 + (8 + 72) * 4
    assert {name: found[name]["payload_bytes"] for name in payloads} == payloads
    assert done.stdout.count("| linear | 2 | 64 |") == 1


@pytest.mark.usefixtures("build", "temporary")
def test_a_port_in_use_is_an_error_of_torchrun(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        began = time.monotonic()
        command = [*TORCHRUN, "--master-addr=127.0.0.1", f"--master-port={port}", *JOINED, "--operators=linear", "--out", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False, cwd=ROOT)
    assert done.returncode != 0 and time.monotonic() - began < HANG_S
    assert "EADDRINUSE" in done.stderr and not (tmp_path / "ranks.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--operators=lsh"], "there is no operator 'lsh', expected one of linear, simple-gla, gla, delta, gated-delta, kda, softmax, retnet"),
        (["--ranks=100000"], "100000 ranks of 1 threads need 100000 cores, but this process may use"),
        (["--length=63"], "--length 63 is odd"),
        (["--deadline=0"], "--deadline 0, expected more than 0 seconds"),
        (["--join=torchrun"], "--join torchrun: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT is not set, which torchrun sets"),
        (["--join=slurm"], "is not set, which srun sets for the processes that it starts"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, capsys, monkeypatch, arguments, message):
    from attnbench.distributed import __main__

    for name in [name for name in os.environ if name.startswith("SLURM_")] + ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]:
        monkeypatch.delenv(name, raising=False)
    assert __main__.main(["measure", *arguments, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_a_variable_of_the_launcher_that_is_no_number_is_named(tmp_path):
    from attnbench.distributed import joining

    environment = {"RANK": "first", "WORLD_SIZE": "2", "MASTER_ADDR": "", "MASTER_PORT": ""}
    with pytest.raises(ValueError, match="--join torchrun: RANK is 'first', expected a number"):
        joining.ranks_of("torchrun", tmp_path, environment)


def test_ranks_of_slurm_meet_in_a_folder_with_braces(tmp_path, monkeypatch):
    from attnbench.distributed import joining

    environment = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    joined = joining.ranks_of("slurm", tmp_path / "{case}", environment)
    monkeypatch.setattr(joining, "measure", lambda own: {"init": own.init, "rank": own.rank})
    found = [joined.measure(request()) for _ in range(2)]
    assert found == [{"init": f"file://{tmp_path}/{{case}}/.ranks-7-0-0-{number}", "rank": 1} for number in range(2)]


def test_a_rank_that_a_real_time_signal_ended_is_named():
    from attnbench.distributed import launch

    program = ["sh", "-c", f"kill -{signal.SIGRTMIN + 3} $$"]
    assert launch.run(request(ranks=1), None, program)["failure"]["message"] == f"rank 0 of 1 ended with signal {signal.SIGRTMIN + 3}; it said nothing"


def test_a_second_sigterm_does_not_interrupt_the_ending_of_ranks():
    from attnbench.distributed import launch

    steps = []
    with pytest.raises(SystemExit) as ended, launch._ended_by_sigterm():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            steps.append("ended")
    assert steps == ["ended"] and ended.value.code == 128 + signal.SIGTERM


def test_a_file_that_has_no_records_is_refused(tmp_path, capsys):
    from attnbench.distributed import __main__

    (tmp_path / "ranks.jsonl").write_text('{"schema": 1}\n', "utf-8")
    assert __main__.main(["measure", *SMALL, "--ranks=1", "--out", str(tmp_path)]) == 2
    assert "ranks.jsonl:1: expected a record of schema 1 with operator" in capsys.readouterr().err
    assert (tmp_path / "ranks.jsonl").read_text("utf-8") == '{"schema": 1}\n'


def test_a_record_that_was_only_partly_written_is_replaced(tmp_path, capsys):
    from attnbench.distributed import __main__

    arguments = ["measure", *SMALL, "--operators=linear", "--out", str(tmp_path)]
    assert __main__.main([*arguments, "--ranks=1"]) == 0
    (first,) = records(tmp_path)
    with open(tmp_path / "ranks.jsonl", "a", encoding="utf-8") as file:
        file.write('{"schema": 1, "operator": "lin')
    assert __main__.main([*arguments, "--ranks=1,2"]) == 0, capsys.readouterr().err
    found = records(tmp_path)
    assert found[0] == first and [one["ranks"] for one in found] == [1, 2]


def test_records_that_others_wrote_are_kept(tmp_path):
    from attnbench.distributed import __main__

    line = dict.fromkeys(__main__.KEY) | {"schema": __main__.SCHEMA, "operator": "linear", "failure": None}
    path = tmp_path / "ranks.jsonl"
    path.write_text(json.dumps(line | {"ranks": 1}), "utf-8")  # An editor may have removed the last line break.
    mine = __main__.Records(path)
    mine.append(line | {"ranks": 2})
    __main__.Records(path).append(line | {"ranks": 4})  # another process
    mine.append(line | {"ranks": 8})
    assert [one["ranks"] for one in records(tmp_path)] == [1, 2, 4, 8]


def test_the_bound_is_printed_with_its_formula_and_quoted_in_the_document(capsys):
    from attnbench.distributed import __main__
    from attnbench.distributed.bound import weak_scaling_bound

    assert __main__.main(["bound"]) == 0
    printed = capsys.readouterr().out
    # K = V = 64 and chunks of 16: F = 2·64² + 16·64, and E = 64².
    assert "| linear, simple-gla | 2 or more | forward | F / (E + F) = 0.69 with E = 4,096, F = 9,216 |" in printed
    # E = 2·64·128 + 16·(64 + 128)/2.
    assert "F / (E + F) = 0.44 with E = 17,920, F = 14,336 |" in printed
    assert weak_scaling_bound("one", 64, 64, 2, backward=False) == 9216 / (9216 + 4096)
    assert weak_scaling_bound("one", 64, 64, 1, backward=True) == 1
    page = (ROOT / "docs/distributed.md").read_text("utf-8")
    numbers = [
        weak_scaling_bound(transition, 64, 64, ranks, backward=backward)
        for transition, ranks, backward in (
            ("one", 2, False), ("one", 2, True), ("matrix", 2, False), ("matrix", 2, True), ("matrix", 3, False), ("matrix", 3, True),
        )
    ]  # fmt: skip
    said = "the bound is {:.2f} for `chunk_linear_attn` ({:.2f} with the backward pass). For the delta rules it is {:.2f} ({:.2f}) with two ranks and {:.2f} ({:.2f}) with more"
    assert said.format(*numbers) in " ".join(page.split())


# Seconds for 100 positions.
TIMES = {"forward": 1.0, "both": 3.0, "end": 1.5, "first_end": 0.75, "gradient": 2.0, "fold": 0.25, "compose": 0.5, "pair_forward": 2.0, "pair_both": 6.0}


def predicted(operator, ranks, *, tokens=100, backward=False, latency=0.0, bandwidth=1e30):
    from attnbench.distributed.operators import OPERATORS, Sizes
    from attnbench.distributed.simulation import Network, simulate

    sizes = Sizes(100, 2, 8, "float32")
    return simulate(OPERATORS[operator], sizes, TIMES, Network(latency, bandwidth), ranks, tokens, backward=backward)


def test_predictions_are_those_of_the_formulas():
    assert predicted("linear", 1).seconds == 1 and predicted("linear", 1, backward=True).seconds == 3
    assert predicted("linear", 2).seconds == predicted("gated-delta", 2).seconds == 0.75 + 1  # Two ranks need no transition.
    assert predicted("linear", 2, backward=True).seconds == 0.75 + 1 + 2 + 2
    assert predicted("linear", 2, tokens=300).seconds == 3 * 1.75
    # 4 ranks fold twice, which is as long as a step of the scan; 1,024 ranks scan in 10 steps.
    assert predicted("linear", 4).seconds == 2.5 + 2 * 0.25 and predicted("linear", 4).exchange == "gather"
    many = predicted("linear", 1024)
    assert many.exchange == "scan" and many.seconds == 2.5 + 10 * 0.5
    # A state of 2 heads [8,8] is 512 bytes; the header takes the latency of one more exchange.
    assert predicted("linear", 2, latency=3).seconds == pytest.approx(1.75 + 3 + 3)
    assert predicted("linear", 2, bandwidth=512).seconds == pytest.approx(1.75 + 1)
    # A ring computes half of all pairs in each step, or waits for 12,800 bytes of keys and values.
    assert predicted("softmax", 1, tokens=300).seconds == 9
    assert predicted("softmax", 4).seconds == pytest.approx(1 + 3 * 1)
    assert predicted("softmax", 4, bandwidth=12800 / 5).seconds == pytest.approx(3 * 5 + 1)
    assert predicted("softmax", 4, backward=True).seconds == pytest.approx(4 + 2 + 3 * 2)


def test_sampling_stops_by_the_rule_of_other_measurements():
    from attnbench.distributed.sampling import reach_of_median

    assert [reach_of_median([1.0] * count) for count in (1, 5, 6)] == [math.inf, math.inf, 0]
    # Of 20 samples, the interval of the median goes from the sixth to the sixteenth.
    assert reach_of_median(range(20, 0, -1)) == (16 - 6) / 2 / 11


def test_a_nan_is_no_agreement():
    from attnbench.distributed.rank import largest_error

    exact = [torch.tensor([4.0, 2.0]), torch.tensor([1.0]), torch.zeros(2)]
    assert largest_error([x.clone() for x in exact], exact) == 0
    assert largest_error([torch.tensor([4.0, 1.0]), *exact[1:]], exact) == 0.25
    for place in range(3):
        found = [x.clone() for x in exact]
        found[place][-1] = math.nan
        assert math.isnan(largest_error(found, exact))
    # A tensor of zeros has no largest entry, so its error is not divided.
    assert largest_error([*exact[:2], torch.tensor([0, 0.5])], exact) == 0.5


def test_a_prediction_says_where_it_stops_scaling():
    from attnbench.distributed.simulation import Network, scaling

    lines = [{"operator": "linear", "sizes": {"length": 100, "heads": 2, "dim": 8, "dtype": "float32"}, "times": TIMES | {"compose": 0, "fold": 0}}]
    (free,) = scaling(lines, Network(0, 1e30), 1 << 20, backward=False)["operators"]
    assert free["scales_to"] == free["fastest_ranks"] == 1024 and len(free["weak"]) == len(free["strong"]) == len(free["bound"]) == 11
    # With 100 s for a message, 16 ranks need 1,638 s for their slices and 800 s for messages, and 32 ranks 819 s and 1,000 s.
    (slow,) = scaling(lines, Network(100, 1e30), 1 << 20, backward=False)["operators"]
    assert slow["scales_to"] == 16 and slow["fastest_ranks"] == 128


def test_a_prediction_is_written_printed_and_drawn(tmp_path, build):  # noqa: ARG001
    done = run("simulate", "--length=64", "--heads=1", "--dim=8", "--repeats=1", "--total=4096", "--backward", "--out", tmp_path)
    found = json.loads((tmp_path / "scaling.json").read_text("utf-8"))
    assert [one["operator"] for one in found["operators"]] == ["linear", "gated-delta", "softmax"]
    assert found["network"] == {"latency_s": pytest.approx(1e-5), "bandwidth": 12.5e9} and found["total_tokens"] == 4096
    assert all(point["seconds"] > 0 for one in found["operators"] for kind in ("weak", "strong") for point in one[kind])
    assert done.stdout.startswith("| operator | fastest for 4,096 positions | speed-up there |")
    run("ranks", tmp_path, "--out", tmp_path / "ranks.svg", program=[sys.executable, ROOT / "plots/run.py"])
    figure = (tmp_path / "ranks.svg").read_text("utf-8")
    for text in ("Predicted from times of one process", "10 µs for a message, 12.5 GB/s", "shared by R ranks", "gated-delta"):
        assert text in figure
    (tmp_path / "scaling.json").write_text('{"operators": [{}]}', "utf-8")
    wrong = run("ranks", tmp_path, program=[sys.executable, ROOT / "plots/run.py"], code=2)
    assert "scaling.json: not a prediction of ranks" in wrong.stderr
