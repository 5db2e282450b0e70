"""Tests of `experiments/reproduce`, which measures what is published in results/."""

import importlib.util
import json
import re
import shutil
import subprocess
from importlib.machinery import SourceFileLoader

import pytest
from conftest import ROOT

SCRIPT = ROOT / "experiments/reproduce"


def dry_run(*lists):
    """The minutes and the commands of a dry run, and the totals."""
    done = subprocess.run([SCRIPT, *lists, "--dry-run"], capture_output=True, text=True, check=True)
    rows = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith(" ")]
    return [(int(n), what) for n, what in rows if what != "in all"], [int(n) for n, what in rows if what == "in all"]


@pytest.mark.parametrize(("name", "limit"), [("sweeps", 150), ("trainings", 120)])
def test_the_minutes_of_a_list_are_limited(name, limit):
    parts, [total] = dry_run(name)
    assert total == sum(minutes for minutes, _ in parts) <= limit


def test_both_lists_are_run_by_default():
    commands = [what for _, what in dry_run()[0]]
    assert "build/attnbench sweep figure1" in commands and "build/attnbench train copy-task-short" in commands


def test_the_page_about_sweeps_has_the_minutes_of_the_list():
    told = {}
    for names, minutes in re.findall(r"^\| (`.*?`) \|.*\| ([\d, ]+) \|$", (ROOT / "docs/sweeps.md").read_text("utf-8"), re.M):
        told |= zip(re.findall(r"`(.+?)`", names), map(int, minutes.split(", ")), strict=True)
    parts = {re.search(r"sweep (\S+)", what)[1]: minutes for minutes, what in dry_run("sweeps")[0]}
    assert {name: told.get(name) for name in parts} == parts


def test_every_published_sweep_has_enough_processes(attnbench):
    names = {re.search(r"sweep (\S+)", what)[1] for _, what in dry_run("sweeps")[0]}
    for name in names - {"quality"}:  # whose times need not be exact
        done = attnbench("sweep", ROOT / f"sweeps/{name}.toml", "--dry-run", cwd=ROOT).stdout
        rounds = int(re.search(r"cases in (\d+) rounds", done)[1])
        assert rounds >= 8, name
        assert "could find none of" not in done, name


@pytest.fixture
def project(tmp_path):
    """A committed project with the script, two sweeps, and programs that write down how they are started."""
    (tmp_path / "experiments").mkdir()
    shutil.copy(SCRIPT, tmp_path / "experiments/reproduce")
    (tmp_path / "experiments/parts.toml").write_text(
        '[[sweeps]]\nname = "one"\nminutes = 50\ncommand = "sweep one"\n'
        '[[sweeps]]\nname = "two"\nminutes = 20\ncommand = "sweep two --out results/two/{machine}/run-1"\n'
        '[[trainings]]\nname = "three"\nminutes = 10\ncommand = "train three"\n'
    )
    (tmp_path / "build").mkdir()
    (tmp_path / ".gitignore").write_text("/build/\n/log\n")
    environment = json.dumps({"cpu_model": "A (R) CPU", "processors": 2})
    for name, body in {
        "attnbench-worker": f"echo '{environment}'",
        "attnbench": f'echo "$*" >> {tmp_path}/log; . {tmp_path}/build/body',
    }.items():
        (tmp_path / "build" / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "build" / name).chmod(0o755)
    (tmp_path / "build/body").write_text("")
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots/run.py").write_text(f'import sys\nopen("{tmp_path}/log", "a").write(sys.argv[1] + "\\n")\n')
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    commit_all(tmp_path)
    return tmp_path


def commit_all(project):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], cwd=project, check=True)


def reproduce(project, *arguments, code=0):
    done = subprocess.run([project / "experiments/reproduce", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    log = project / "log"
    started = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return started, done


def test_the_parts_are_run_and_then_figures_pages_and_checks(project):
    started, done = reproduce(project)
    assert started == [
        "sweep one --across-boots", "sweep two --out results/two/a-r-cpu-2-threads/run-1 --across-boots", "train three",
        "renew-pages", "check-results",
    ]  # fmt: skip
    assert "=== train three: 0 min 0 s, exit code 0" in done.stdout
    assert reproduce(project, "trainings")[0] == ["train three", "renew-pages", "check-results"]
    assert reproduce(project, "--only", "one")[0] == ["sweep one --across-boots", "renew-pages", "check-results"]
    assert "expected one of one, three, two" in reproduce(project, "--only", "four", code=2)[1].stderr


def test_only_parts_that_fit_into_the_minutes_are_begun(project):
    started, done = reproduce(project, "--minutes", "61")
    assert started == ["sweep one --across-boots", "sweep two --out results/two/a-r-cpu-2-threads/run-1 --across-boots",
                       "train three", "renew-pages", "check-results"]  # fmt: skip
    started, done = reproduce(project, "--minutes", "30")
    assert [words.split()[1] for words in started] == ["two", "three"]
    assert "The same command runs these parts next:\n  sweep one\n" in done.stderr


def test_a_stale_sweep_is_begun_again_and_other_failures_are_reported(project):
    (project / "build/body").write_text(
        'case "$*" in *"sweep one"*--resume=all) ;; *"sweep one"*) exit 5 ;; *train*) exit 1 ;; esac\n'
    )
    started, done = reproduce(project, code=1)
    assert started[:2] == ["sweep one --across-boots", "sweep one --across-boots --resume=all"]
    assert "These parts failed:\n  train three\n" in done.stderr


def test_a_stale_training_is_begun_again_in_an_empty_folder_if_its_records_are_committed(project):
    folder = project / "results/three/a-r-cpu-2-threads"
    folder.mkdir(parents=True)
    (folder / "curves.jsonl").write_text("{}\n")
    (project / "build/body").write_text(f'case "$*" in *train*) [ ! -e {folder} ] || exit 5 ;; esac\n')
    started, done = reproduce(project, "trainings", code=1)
    assert started[0] == "train three" and "These parts failed:\n  train three\n" in done.stderr
    assert "results/three/a-r-cpu-2-threads holds records that are not committed" in done.stderr
    assert (folder / "curves.jsonl").exists()
    commit_all(project)
    started, _ = reproduce(project, "trainings")
    assert started[:2] == ["train three", "train three"]
    assert not folder.exists()


def test_another_refusal_begins_nothing_again_whatever_it_says(project):
    words = "holds records of another build, machine or configuration"
    (project / "build/body").write_text(f'echo "{words}" >&2; exit 2\n')
    started, done = reproduce(project, code=1)
    assert [words.split()[1] for words in started[:3]] == ["one", "two", "three"] and words in done.stderr


def test_the_exit_code_about_stale_records_is_that_of_the_driver():
    loader = SourceFileLoader("reproduce", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("reproduce", loader))
    loader.exec_module(module)
    assert f"int stale = {module.STALE};" in (ROOT / "harness/cli/exit_codes.h").read_text("utf-8")


def test_uncommitted_changes_are_refused_except_those_of_results(project):
    (project / "results").mkdir()
    (project / "results/new").write_text("")
    (project / "README.md").write_text("")
    assert len(reproduce(project)[0]) == 5
    (project / "plots/new.py").write_text("")
    started, done = reproduce(project, code=2)
    assert started == [] and "plots/new.py" in done.stderr and "commit them" in done.stderr
