"""Tests that the recipes of docs/ci.md work: their commands run in a repository with a suite, with a
stand-in for the worker, and what the services are given is read by parsers of their formats."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import prometheus_client.openmetrics.parser
import pytest
import yaml
from conftest import HANG_S, ROOT, finished, strict_json, write_sweep
from junitparser import JUnitXml

PAGE = (ROOT / "docs/ci.md").read_text("utf-8")

# Shell code of a worker's answer to `measure`: a time that is the same on both sides.
MEASURE = """answer '{"outcome": "measured", "implementation": "stand-in", "measured_s": 0.01, "time_first_ms": 1,
"time_samples_ms": [1, 1.01, 0.99], "samples": 3, "peak_extra_bytes": 1024}'""".replace("\n", " ")
VERIFY = """for i in $(seq $(printf '%s' "$request" | grep -o '"method"' | wc -l)); do
answer '{"outcome": "measured", "excess_error": 1e-7, "error_tolerance": 5e-4}'; done"""


def recipe(heading, language):
    """The block of code below a heading of the page."""
    (found,) = re.findall(rf"^## {heading}\n.*?^```{language}\n(.*?)^```", PAGE, re.M | re.S)
    return found


@pytest.fixture
def job(build, workers, tmp_path):
    """job(shell, script, **variables) runs a script as a service does, in a clone whose origin has the branch main."""
    origin, clone, programs = tmp_path / "origin", tmp_path / "clone", tmp_path / "programs"
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    (origin / "bench").mkdir(parents=True)
    write_sweep(origin / "bench/suite.toml", method="linear", query_len=32)
    (origin / "asv.conf.json").write_text(json.dumps({"version": 1, "project": "x", "repo": ".", "branches": ["main"],
                                                      "results_dir": "asv/results", "html_dir": "asv/html"}))  # fmt: skip
    finished("git", "init", "-q", "-b", "main", origin)
    finished("git", "-C", origin, "add", "-A")
    finished("git", "-C", origin, *identity, "commit", "-q", "-m", "one")
    finished("git", "clone", "-q", origin, clone)
    programs.mkdir()
    worker = workers.make(measure=MEASURE, verify=VERIFY)
    stand_ins = {"attnbench": f'exec "{build}/attnbench" --worker "{worker}" "$@"'}
    for name in ("pip", "curl", "bencher"):
        stand_ins[name] = f'printf "%s\\n" "$*" >> "{tmp_path}/{name}"'
    for name, body in stand_ins.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    temporary = tmp_path / "temporary"
    temporary.mkdir(mode=0o700)

    def run(shell, script, **variables):
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "TMPDIR": str(temporary)} | variables
        done = subprocess.run([*shell, script], cwd=clone, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"

    run.clone, run.given = clone, lambda name: (tmp_path / name).read_text()
    return run


BASH, SH = ["bash", "-e", "-o", "pipefail", "-c"], ["sh", "-xe", "-c"]


def cases_of(path):
    return [(suite.name, case.name, case.result) for suite in JUnitXml.fromfile(str(path)) for case in suite]


def test_the_recipe_for_github_works(job, tmp_path):
    jobs = yaml.safe_load(recipe("GitHub Actions", "yaml"))["jobs"]
    for name in ("gate", "history"):
        for step in jobs[name]["steps"]:
            if "run" in step:
                job(BASH, step["run"], GITHUB_BASE_REF="main", GITHUB_REF_NAME="main", GITHUB_STEP_SUMMARY=str(tmp_path / "summary"))
    assert "### attnbench gate: pass\n" in (tmp_path / "summary").read_text()
    assert cases_of(job.clone / "gate.xml") == [("attnbench.gate", "linear forward N=32 heads=2 head_dim=16", [])]
    (action,) = [s["with"] for s in jobs["history"]["steps"] if s.get("uses", "").startswith("benchmark-action/")]
    assert action["tool"] == "customSmallerIsBetter"
    names = [entry["name"] for entry in strict_json((job.clone / action["output-file-path"]).read_text())]
    assert any(name.startswith("linear/forward/query_len:32/") and name.endswith(" time") for name in names)
    file = re.search(r"--adapter json --file (\S+)", job.given("bencher"))[1]
    (metrics,) = strict_json((job.clone / file).read_text()).values()
    assert metrics["latency"]["value"] == pytest.approx(1e6)
    (upload,) = [s["with"] for s in jobs["gate"]["steps"] if "upload" in s.get("uses", "")]
    assert all((job.clone / path).exists() for path in upload["path"].split())


def test_the_recipe_for_gitlab_works(job):
    jobs = yaml.safe_load(recipe("GitLab", "yaml"))
    variables = {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main", "CI_API_V4_URL": "https://example.org/api/v4", "CI_PROJECT_ID": "7",
                 "CI_MERGE_REQUEST_IID": "3", "GATE_TOKEN": "secret"}  # fmt: skip
    for name in ("gate", "metrics"):
        for part in ("script", "after_script"):
            if part in jobs[name]:
                job(BASH, "\n".join(jobs[name][part]), **variables)
    reports = jobs["gate"]["artifacts"]["reports"], jobs["metrics"]["artifacts"]["reports"]
    assert len(cases_of(job.clone / reports[0]["junit"])) == 1
    text = (job.clone / reports[1]["metrics"]).read_text()
    families = {family.name: family for family in prometheus_client.openmetrics.parser.text_string_to_metric_families(text)}
    assert families["attnbench_time_seconds"].samples[0].value == pytest.approx(1e-3)
    assert all((job.clone / path).exists() for path in jobs["gate"]["artifacts"]["paths"])
    assert job.given("curl").endswith("body@comment.md https://example.org/api/v4/projects/7/merge_requests/3/notes\n")


def test_the_recipe_for_jenkins_works(job):
    text = recipe("Jenkins", "groovy")
    scripts = [a or b for a, b in re.findall(r"^ *sh (?:'''(.*?)'''|'([^']*)'$)", text, re.M | re.S)]
    assert len(scripts) == 4 == len(re.findall(r"\bsh\b", text)) and text.count("{") == text.count("}")
    for script in scripts:
        job(SH, script)
    (shown,) = re.findall(r"^ *junit '(.*)'$", text, re.M)
    suites = {suite for suite, _, _ in cases_of(job.clone / shown)}
    assert suites == {"attnbench.gate", "attnbench.verify"}
    assert (job.clone / "asv/html/graphs").is_dir()
    index = json.loads((job.clone / "asv/html/index.json").read_text())
    assert "linear.forward.time" in index["benchmarks"]


def test_every_format_is_on_the_page(attnbench):
    shown = attnbench("export", "--help").stdout
    formats = re.findall(r"--format (\S+?)`", PAGE)
    assert set(formats) >= {"junit", "bencher", "github-action-benchmark", "openmetrics", "asv"}
    assert all(name in shown for name in formats)


def test_the_workflow_with_a_history_gives_inputs_that_the_action_has():
    (block,) = re.findall(r"^## A history of your own\n.*?^```yaml\n(.*?)^```", PAGE, re.M | re.S)
    workflow = yaml.safe_load(block)
    (given,) = [step for step in workflow["jobs"]["benchmarks"]["steps"] if "/attnbench@" in step["uses"]]
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    assert set(given["with"]) <= set(inputs) and given["with"]["history"].count("/") == 1
    assert workflow["permissions"] == {"contents": "write", "pull-requests": "write"}
    version = re.search(r"project\(attnbench VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    assert given["uses"].endswith(f"@v{version[1]}")


def test_the_table_of_formats_names_every_measure(attnbench, tmp_path):
    """Those that the program names when it refuses another."""
    rows = dict(re.findall(r"^\| (Google Benchmark JSON|pytest-benchmark JSON|hyperfine JSON|an asv result|Bencher Metric Format|nvbench JSON) \|.*?\|(.*)\|$", PAGE, re.M))
    names = {"google_benchmark": "Google Benchmark JSON", "pytest_benchmark": "pytest-benchmark JSON", "hyperfine": "hyperfine JSON",
             "asv": "an asv result", "bencher": "Bencher Metric Format", "nvbench": "nvbench JSON"}  # fmt: skip
    for file, name in names.items():
        path = ROOT / f"tests/fuzz/corpus/foreign/{file}.json"
        said = attnbench("compare", path, path, "--measure=none-such", code=2).stderr
        known = re.search(rf"{re.escape(name)}: (.*)", said)[1].split(", ")
        shown = [word for word in re.findall(r"`(\S+?)`", rows[name]) if "…" not in word]
        assert shown == known
        better = re.findall(r"\*`(\S+?)`\*", rows[name])
        assert better == [word for word in known if word in ("items_per_second", "bytes_per_second", "ops", "throughput")]
