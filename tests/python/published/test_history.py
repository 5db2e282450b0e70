"""Tests of `attnbench history`: lines that are added to files and to branches, by several jobs at once and
after kills, and the page that names the commits that changed something."""

import fcntl
import hashlib
import json
import math
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import HANG_S, Cli, opened_page, results_of, strict_json, wait_for

USAGE = 2
IDENTITY = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "a"), ("EMAIL", "a@b"))}
MEMBERS = {"commit", "committed_at", "subject", "machine", "case", "measure", "unit", "more_is_better", "value", "low", "high", "measured_at"}


def git(folder, *words):
    return subprocess.run(
        ["git", *words], cwd=folder, check=True, capture_output=True, text=True, env=os.environ | IDENTITY, timeout=HANG_S
    ).stdout.strip()


class InClone(Cli):
    """Runs attnbench without a name and an address for git."""

    def __call__(self, *arguments, **options):
        return super().__call__(*arguments, **({"env": os.environ | {"HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1"}} | options))


@pytest.fixture
def clone(attnbench, tmp_path):
    """Runs attnbench in a clone of a repository with one commit."""
    origin, folder = tmp_path / "origin.git", tmp_path / "clone"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", origin)
    git(tmp_path, "clone", "-q", origin, folder)
    git(folder, "checkout", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "Make <b>it</b> work")
    git(folder, "push", "-q", "origin", "main")
    return InClone(attnbench.program, None, folder)


def bmf(folder, name="run.json", **latency_ns):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({case: {"latency": {"value": value}} for case, value in latency_ns.items()}))
    return path


def lines_of(text):
    lines = [strict_json(line) for line in text.splitlines()]
    assert text.endswith("\n") and all(set(line) == MEMBERS for line in lines)
    return lines


def on_branch(clone, branch="benchmarks"):
    git(clone.folder, "fetch", "-q", "origin", branch)
    return git(clone.folder, "show", "FETCH_HEAD:history.jsonl") + "\n"


def test_results_of_other_programs_are_added_to_a_file(clone, tmp_path):
    run, file = bmf(tmp_path, parse=1500), tmp_path / "history.jsonl"
    said = clone("history", "add", run, "--to", file).stderr
    (line,) = lines_of(file.read_text())
    head = git(clone.folder, "rev-parse", "HEAD")
    assert (line["commit"], line["subject"], line["case"]) == (head, "Make <b>it</b> work", "parse")
    assert line["value"] == pytest.approx(1.5e-6) and (line["measure"], line["unit"], line["low"]) == ("latency", "s", None)
    assert f"1 value of commit {head[:12]} added" in said and "processor" in line["machine"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["committed_at"])
    for n in range(7):
        bmf(tmp_path / "runs", f"{n}.json", parse=1500 + n)
    clone("history", "add", tmp_path / "runs", "--to", file, "--machine", "a machine")
    one, several = lines_of(file.read_text())
    assert one == line and several["machine"] == "a machine" and several["low"] < several["value"] < several["high"]


def test_records_of_a_sweep_are_added(clone, tmp_path):
    file = tmp_path / "history.jsonl"
    clone("history", "add", results_of("figure1"), "--to", file, "--commit", "a" * 40, "--commit-time", 1.7e9)
    lines = lines_of(file.read_text())
    assert {line["measure"] for line in lines} >= {"time", "memory"}
    assert all(line["commit"] == "a" * 40 and line["committed_at"] == "2023-11-14T22:13:20Z" for line in lines)
    times = [line for line in lines if line["measure"] == "time"]
    assert all(line["low"] <= line["value"] <= line["high"] for line in times if line["low"] is not None)


def test_a_branch_is_made_and_continued_without_touching_the_working_tree(clone, tmp_path):
    git(clone.folder, "config", "core.hooksPath", "/nowhere")
    before = git(clone.folder, "status", "--porcelain"), git(clone.folder, "rev-parse", "HEAD"), git(clone.folder, "branch", "-a")
    for value in (1, 2):
        clone("history", "add", bmf(tmp_path, a=value), "--to", "origin/benchmarks")
    assert [line["value"] for line in lines_of(on_branch(clone))] == pytest.approx([1e-9, 2e-9])
    assert before[:2] == (git(clone.folder, "status", "--porcelain"), git(clone.folder, "rev-parse", "HEAD"))
    assert git(clone.folder, "log", "--format=%s%n%an", "FETCH_HEAD").splitlines()[0].startswith("Add 1 value of ")
    assert git(clone.folder, "ls-tree", "--name-only", "FETCH_HEAD") == "history.jsonl"


def test_other_files_of_the_branch_stay(clone, tmp_path):
    git(clone.folder, "checkout", "-q", "--orphan", "pages")
    (clone.folder / "index.html").write_text("x")
    git(clone.folder, "add", "index.html")
    git(clone.folder, "commit", "-q", "-m", "a page")
    git(clone.folder, "push", "-q", "origin", "pages")
    clone("history", "add", bmf(tmp_path, a=1), "--to", "origin/pages")
    assert len(lines_of(on_branch(clone, "pages"))) == 1
    assert git(clone.folder, "ls-tree", "--name-only", "FETCH_HEAD").split() == ["history.jsonl", "index.html"]


def test_jobs_that_race_lose_no_line(clone, tmp_path):
    """Several clones push to one branch at the same time, and append to one file."""
    clones = [tmp_path / f"clone-{n}" for n in range(4)]
    for folder in clones:
        git(tmp_path, "clone", "-q", tmp_path / "origin.git", folder)

    def add(n):
        cli = InClone(clone.program, None, clones[n])
        for _ in range(2):
            cli("history", "add", bmf(tmp_path, f"run-{n}.json", **{f"case{n}": n + 1}), "--to", "origin/benchmarks")
            cli("history", "add", tmp_path / f"run-{n}.json", "--to", tmp_path / "history.jsonl")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    for text in (on_branch(clone), (tmp_path / "history.jsonl").read_text()):
        assert sorted(line["case"] for line in lines_of(text)) == sorted(f"case{n}" for n in range(4) for _ in range(2))


def test_a_job_waits_for_the_one_that_appends(clone, tmp_path):
    """The other job is this process, which has the lock and an unfinished line."""
    file = tmp_path / "history.jsonl"
    clone("history", "add", bmf(tmp_path, a=1), "--to", file)
    whole = file.read_text()
    with file.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(whole[:10])
        other.flush()
        words = clone.command("history", "add", tmp_path / "run.json", "--to", file)
        started = subprocess.Popen(words, cwd=clone.folder)
        # The kernel lists a process that waits for a lock after an arrow.
        wait_for(lambda: re.search(rf"-> FLOCK .* {started.pid} ", Path("/proc/locks").read_text()) or started.poll() is not None, "the lock")
        assert started.poll() is None and file.read_text() == whole + whole[:10]
        other.write(whole[10:])
        other.flush()
    assert started.wait(HANG_S) == 0
    assert len(lines_of(file.read_text())) == 3


def test_a_push_that_is_refused_is_an_error_with_gits_words(clone, tmp_path):
    hook = tmp_path / "origin.git/hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho no pushes today >&2\nexit 1\n")
    hook.chmod(0o755)
    said = clone("history", "add", bmf(tmp_path, a=1), "--to", "origin/benchmarks", code=USAGE).stderr
    assert "the history was not pushed to origin/benchmarks" in said and "no pushes today" in said
    assert "trying again" not in said


def test_a_line_that_a_killed_job_left_unfinished_is_replaced(clone, tmp_path):
    file = tmp_path / "history.jsonl"
    clone("history", "add", bmf(tmp_path, a=1), "--to", file)
    whole = file.read_text()
    file.write_text(whole + whole[:50])
    clone("history", "add", bmf(tmp_path, a=2), "--to", file)
    assert [line["value"] for line in lines_of(file.read_text())] == pytest.approx([1e-9, 2e-9])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add", "{run}"], "history add needs --to"),
        (["add", "{run}", "--to=history"], "expected a file that ends in .jsonl, or a branch of a remote"),
        (["add", "{run}", "--to=nowhere/benchmarks"], "`git ls-remote` ended with exit code"),
        (["add", "{run}", "--to=x.jsonl", "--commit=nowhere"], "'nowhere' is no commit"),
        (["add", "{run}", "--to=x.jsonl", "--commit=nowhere", "--commit-time=1"], "'commit' is no full id"),
        (["add", "{run}", "--to=x.jsonl", "--commit-time=1"], "--commit-time needs --commit"),
        (["add", "{run}", "--to=x.jsonl", "--measure=score"], "not known whether more is better"),
        (["add", "nowhere", "--to=x.jsonl"], "nowhere"),
        (["report", "none.jsonl"], "none.jsonl"),
        (["report", "origin/benchmarks"], "has no lines yet"),
    ],
)
def test_wrong_words_are_refused(clone, tmp_path, words, message):
    run = bmf(tmp_path, a=1)
    assert message in clone("history", *(str(run) if word == "{run}" else word for word in words), code=USAGE).stderr
    assert not (clone.folder / "x.jsonl").exists()


# ---------------------------------------------------------------- the report


def line(commit, case="case", value=1.0, machine="m", **more):
    made = {"commit": hashlib.sha1(str(commit).encode()).hexdigest(), "committed_at": f"2024-{1 + commit // 28:02}-{1 + commit % 28:02}T00:00:00Z",
            "subject": f"Change {commit}", "machine": machine, "case": case, "measure": "time", "unit": "s", "more_is_better": False,
            "value": value * 1e-3, "low": value * 0.99e-3, "high": value * 1.01e-3, "measured_at": ""}  # fmt: skip
    return made | more


def noise(n):
    return math.exp(0.01 * math.sin(2.4 * n * n))


def written(path, lines):
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


@pytest.fixture
def history(tmp_path):
    """A history of 60 commits, of which the 40th makes one of three cases slower on one of two machines."""
    lines = []
    for n in range(60):
        for k, case in enumerate(("steady", "slower", "faster per second")):
            for machine in ("left", "right"):
                factor = 1.2 if n >= 40 and case == "slower" and machine == "left" else 1
                lines.append(line(n, case, factor * noise(n + 7 * k) * (k + 1), machine))
    return written(tmp_path / "history.jsonl", lines)


def test_the_commit_that_changed_something_is_named(attnbench, history, tmp_path):
    report = attnbench.json("history", "report", history)
    assert len(report["commits"]) == 60 and len(report["series"]) == 6
    changed = [series for series in report["series"] if series["changes"]]
    (series,) = changed
    (change,) = series["changes"]
    assert (series["case"], series["machine"]) == ("slower", "left")
    assert report["commits"][change["commit"]]["subject"] == "Change 40" and report["commits"][change["commit_before"]]["subject"] == "Change 39"
    assert change["log_ratio"] == pytest.approx(math.log(1.2), abs=0.02) and change["p"] < 0.01
    page = tmp_path / "page.html"
    attnbench("history", "report", history, "--out", page, "--title", "Speed & <co>")
    text = page.read_text()
    assert "Speed &amp; &lt;co&gt;" in text and report["commits"][change["commit"]]["commit"][:12] in text
    assert "Change 40" in text and ">1 change<" in text


def test_order_and_repetition_of_lines_mean_nothing(attnbench, history):
    lines = history.read_text().splitlines(keepends=True)
    before = attnbench.json("history", "report", history)
    history.write_text("".join(reversed(lines)) + "".join(lines[:50]))
    assert attnbench.json("history", "report", history) == before


def test_several_runs_of_a_commit_are_one_point(attnbench, tmp_path):
    file = written(tmp_path / "h.jsonl", [line(1, value=value, low=None, high=None) for value in (1, 5, 2)])
    (series,) = attnbench.json("history", "report", file)["series"]
    assert series["points"] == [[0, pytest.approx(2e-3), pytest.approx(1e-3), pytest.approx(5e-3)]]


def test_of_a_rate_a_fall_is_a_change_for_the_worse(attnbench, tmp_path):
    rates = [line(n, value=noise(n) * (1 if n < 20 else 0.8), unit="items/s", more_is_better=True) for n in range(40)]
    (series,) = attnbench.json("history", "report", written(tmp_path / "h.jsonl", rates))["series"]
    assert series["changes"][0]["log_ratio"] == pytest.approx(-math.log(0.8), abs=0.02)


def test_more_series_need_a_clearer_change(attnbench, tmp_path):
    """A change of eight values after eight others is found in one series, and is not sure enough among twenty-one."""
    changed = [line(n, value=noise(n) * (1 if n < 8 else 1.5)) for n in range(16)]
    steady = [line(n, f"steady {k}", noise(n + 3 * k)) for k in range(20) for n in range(16)]

    def found(name, lines):
        report = attnbench.json("history", "report", written(tmp_path / name, lines))
        return {series["case"]: series["changes"] for series in report["series"]}["case"]

    assert len(found("one.jsonl", changed)) == 1
    assert found("many.jsonl", [*changed, *steady]) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<<<<<<< HEAD\n", "line 1: no line of a history: "),
        ("[]\n", "no object"),
        (json.dumps(line(1, ) | {"value": None}) + "\n", "'value' is no number above 0"),
        (json.dumps(line(1)).replace("0.001", "NaN") + "\n", "line 1"),
        (json.dumps(line(1) | {"value": -1}) + "\n", "'value' is no number above 0"),
        (json.dumps(line(1) | {"low": "x"}) + "\n", "'low' is no number"),
        (json.dumps(line(1) | {"commit": "<script>"}) + "\n", "'commit' is no full id"),
        (json.dumps(line(1) | {"committed_at": "yesterday"}) + "\n", "yesterday"),
        (json.dumps(line(1) | {"case": "x" * 5000}) + "\n", "'case' has 5000 bytes"),
        (json.dumps(line(1) | {"more_is_better": 1}) + "\n", "'more_is_better' is not true or false"),
    ],
)
def test_hostile_histories_are_refused_with_the_line(attnbench, tmp_path, text, message):
    file = tmp_path / "h.jsonl"
    file.write_text(text)
    said = attnbench("history", "report", file, code=USAGE).stderr
    assert message in said and str(file) in said


def test_branches_are_reported(clone, tmp_path):
    clone("history", "add", bmf(tmp_path, a=1), "--to", "origin/benchmarks")
    clone("history", "report", "origin/benchmarks", "--out", tmp_path / "page.html")
    assert "1 commit from" in (tmp_path / "page.html").read_text()


HOSTILE = "</script><script>alert(1)</script><b>&\u202e"


def test_the_page_draws_a_chart_for_each_case_in_a_browser(chromium, attnbench, history, tmp_path):
    lines = [strict_json(text) for text in history.read_text().splitlines()]
    lines += [line(n, HOSTILE, machine=HOSTILE, subject=HOSTILE, low=None, high=None) for n in range(3)]
    page_path = tmp_path / "page.html"
    attnbench("history", "report", written(history, lines), "--out", page_path)
    with opened_page(chromium, page_path) as page:
        assert page.locator(".machine h2").all_inner_texts()[0] == "left", "the machine with a change comes first"
        figures = page.locator(".history figure")
        assert figures.count() == 7
        for i in range(7):
            figures.nth(i).scroll_into_view_if_needed()
            figures.nth(i).locator("svg polyline.values").wait_for(state="attached")
        assert figures.first.locator("figcaption").inner_text().startswith("slower time")
        assert page.locator("svg .step").count() == 1 and page.locator("svg .step.worse").count() == 1
        figures.first.hover()
        assert re.search(r"2\.\d+ ms \(.* … .*\).* [0-9a-f]{12} of 2024-\d\d-\d\d 00:00: Change \d+", page.locator("#tip").inner_text())
        figures.nth(1).focus()
        page.keyboard.press("End")
        assert "Change 59" in page.locator("#tip").inner_text()
        page.locator("#filter").fill("STEADY")
        assert page.locator(".history figure:visible").count() == 2 and "2 of 7" in page.locator("#shown").inner_text()
