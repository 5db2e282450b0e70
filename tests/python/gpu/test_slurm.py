"""Tests on a real Slurm of one node, which the tests start: `sweeps/slurm.sbatch` as an array job of
shards, of which one task is killed and requeued, and ranks of a split sequence that srun starts."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest
from conftest import HANG_S, ROOT, records_in, wait_for, write_sweep

needs_slurm = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("slurmctld", "slurmd", "sbatch", "munged"))),
    reason="needs root, slurm-wlm and munge",
)

CONFIGURATION = """ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
MailProg=/bin/true
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=4
PartitionName=p Nodes=n1 Default=YES
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Slurm:
    """The daemons of a Slurm cluster of one node, with their files in a folder."""

    def __init__(self, folder):
        self.folder, self.daemons = folder, []
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}

    def start(self):
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        ports = {"controller": free_port(), "daemon": free_port()}
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(folder=self.folder, **ports))
        names = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}
        options = [f"--{option}={self.folder}/munge.{name}" for option, name in names.items()]
        self.daemon("munged", "-F", "--force", *options)
        wait_for(lambda: (self.folder / "munge.socket").exists(), "munged")
        self.daemon("slurmctld", "-D", "-f", self.folder / "slurm.conf")
        self.daemon("slurmd", "-D", "-N", "n1", "-f", self.folder / "slurm.conf")
        wait_for(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%T"), "the node to be idle")

    def daemon(self, *command):
        log = open(self.folder / f"{command[0]}.out", "w")  # noqa: SIM115, the daemon keeps it open
        self.daemons.append(
            subprocess.Popen(list(map(str, command)), env=self.environment, stdout=log, stderr=log, start_new_session=True)
        )

    def ask(self, *command):
        """Runs a client command and returns its output; empty if the command fails."""
        done = subprocess.run(list(map(str, command)), env=self.environment, capture_output=True, text=True, cwd=self.folder, timeout=HANG_S)
        return done.stdout if done.returncode == 0 else ""

    def stop(self):
        self.ask("scancel", "--state=RUNNING", "--user=root")
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    started = Slurm(tmp_path_factory.mktemp("slurm"))
    started.folder.chmod(0o755)
    try:
        started.start()
        yield started
    finally:
        started.stop()


@needs_slurm
def test_a_requeued_task_of_an_array_loses_and_repeats_no_case(
    attnbench, build, workers, slurm, tmp_path
):
    worker = workers.make(measure="sleep 0.4\ngood")
    program = tmp_path / "attnbench"
    program.write_text(f'#!/bin/sh\nexec {build / "attnbench"} --worker {worker} "$@"\n')
    program.chmod(0o755)
    # The sweep has 24 cases, 8 for each shard, which take about four seconds.
    sweep = write_sweep(tmp_path / "many.toml", method=["linear", "softmax"], query_len=[16 * n for n in range(1, 13)])
    slurm.environment["ATTNBENCH"] = str(program)
    submitted = slurm.ask("sbatch", "--parsable", "--array=1-3", ROOT / "sweeps/slurm.sbatch", sweep, tmp_path / "shards")
    job = submitted.strip()
    assert job.isdigit(), slurm.folder.joinpath("slurmctld.log").read_text()[-2000:]

    def recorded(shard):
        log = tmp_path / f"shards/shard-{shard}-of-3/records.jsonl"
        return len(log.read_text().splitlines()) if log.exists() else 0

    wait_for(lambda: recorded(2) >= 2, "the second shard to be under way")
    slurm.ask("scontrol", "requeue", f"{job}_2")
    wait_for(lambda: "PENDING" in slurm.ask("squeue", "-h", "-r", "-o", "%T", "-j", f"{job}_2"), "the task to be requeued")
    before = recorded(2)
    assert 2 <= before < 8
    slurm.ask("scontrol", "update", f"JobId={job}_2", "StartTime=now")
    end = time.monotonic() + HANG_S
    while slurm.ask("squeue", "-h", "-j", job).strip():
        assert time.monotonic() < end, slurm.ask("squeue")
        time.sleep(0.2)

    log = (slurm.folder / f"attnbench-{job}_2.log").read_text()
    assert "shard 2/3" in log and "restarted 1 times" in log
    shards = [tmp_path / f"shards/shard-{i}-of-3" for i in (1, 2, 3)]
    assert [len(records_in(shard)) for shard in shards] == [8, 8, 8], "every case is recorded once"
    merged = attnbench("merge", *shards, "--out", "all").stdout
    assert "24 cases from 3 folders" in merged
    cases = {(r["method"], r["query_len"]) for r in records_in(tmp_path / "all")}
    assert len(cases) == 24 and all(r["outcome"] == "measured" for r in records_in(tmp_path / "all"))


@needs_slurm
def test_ranks_that_srun_starts_measure_together(build, slurm, tmp_path):  # noqa: ARG001
    command = [
        sys.executable, "-m", "attnbench.distributed", "measure", "--join=slurm", "--operators=linear,gated-delta", "--length=64", "--heads=1",
        "--dim=8", "--repeats=2", "--backward", "--out", tmp_path,
    ]  # fmt: skip
    shown = slurm.ask("srun", "--ntasks=2", *command)
    records = [json.loads(line) for line in (tmp_path / "ranks.jsonl").read_text("utf-8").splitlines()]
    assert [(x["operator"], x["ranks"], x["joined"], x["failure"]) for x in records] == [
        (operator, 2, "slurm", None) for operator in ("linear", "gated-delta")
    ]
    assert shown.count("| gated-delta | 2 | 64 | yes |") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["ranks.jsonl"]  # The files of the meeting are gone.


def test_a_task_that_is_requeued_on_another_node_continues(canned, tmp_path):
    """Slurm is not needed: what the script does is the same wherever it runs again."""
    sweep = write_sweep(tmp_path / "s.toml", method=["linear", "softmax"], query_len=[32, 64], timing={"processes": 6})
    program = tmp_path / "attnbench"
    program.write_text(f'#!/bin/sh\nexec {canned.program} --worker {canned.worker} "$@"\n')
    program.chmod(0o755)
    task = {"ARRAY_TASK_ID": "1", "ARRAY_TASK_MIN": "1", "ARRAY_TASK_COUNT": "1", "RESTART_COUNT": "1"}
    environment = os.environ | {f"SLURM_{name}": value for name, value in task.items()} | {"ATTNBENCH": str(program)}

    def run_task():
        command = ["bash", ROOT / "sweeps/slurm.sbatch", sweep, tmp_path / "shards"]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S)

    assert run_task().returncode == 0
    folder = tmp_path / "shards/shard-1-of-1"
    # The task was ended after its second round on another node.
    log = folder / "processes.jsonl"
    lines = [json.loads(line) | {"host": "another", "boot": "another"} for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines if line["process"] <= 2))
    (folder / "records.jsonl").write_text("")
    done = run_task()
    assert done.returncode == 0, done.stderr
    records = records_in(folder)
    assert [len(record["process_medians_ms"]) for record in records] == [6] * 4
    assert {record["host"] for record in records} == {", ".join(sorted(["another", socket.gethostname()]))}
    assert {record["boots"] for record in records} == {2}
    # No ratio is formed between the times of different hosts.
    records[0]["host"] = "another"
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    told = canned("compare", folder, "--baseline", records[0]["method"]).stdout
    assert told.count("on another host") == 1


def test_outside_an_array_job_the_script_says_how_to_submit_it(tmp_path):
    script = ["bash", ROOT / "sweeps/slurm.sbatch"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
    done = subprocess.run([*script, "a.toml", "out"], env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "--array=1-N" in done.stderr
    assert subprocess.run(script, env=environment, capture_output=True).returncode == 2
