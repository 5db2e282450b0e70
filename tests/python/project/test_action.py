"""Tests of the GitHub action in action.yml. Its steps are run as GitHub runs them, with stand-ins for
python3, attnbench and gh."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from conftest import HANG_S, ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
INPUTS = {name: str(given.get("default", "")) for name, given in ACTION["inputs"].items()}
COMMENT = "<!-- attnbench gate: suite.toml -->\n### attnbench gate: pass\n"

# Each stand-in appends its arguments to calls.txt, one call on a line. `python3 -m venv FOLDER` makes
# an environment with stand-ins for pip and attnbench.
RECORD = """#!/bin/bash
{ printf '%s' "${0##*/}"; printf ' <%s>' "$@"; echo; } >> "$CALLS"
"""
PYTHON = (
    RECORD
    + """mkdir -p "$3/bin"
cp "$STANDINS/pip" "$STANDINS/attnbench" "$3/bin"
"""
)
ATTNBENCH = (
    RECORD
    + """[ "$1" != history ] && [ "$1" != sweep ] || exit 0
while [ $# -gt 0 ]; do [ "$1" = --comment ] && comment="$2"; shift; done
[ -z "$REPORT" ] || printf '%s' "$REPORT" > "$comment"
exit "$CODE"
"""
)
GH = (
    RECORD
    + """case "$*" in
  *--paginate*) [ "$MARKER" = '<!-- attnbench gate: suite.toml -->' ] && printf '%s' "$EARLIER" ;;
esac
exit "$GH_CODE"
"""
)


class Runner:
    """Runs the steps of the action with these inputs, and with this context of GitHub."""

    def __init__(self, folder, inputs, number="7", base_ref="main", code=0, report=COMMENT, earlier="", gh_code=0, fork="false"):
        self.folder = folder
        self.calls, self.summary = folder / "calls.txt", folder / "summary"
        self.context = {f"inputs.{name}": value for name, value in (INPUTS | inputs).items()}
        self.context |= {"github.event.pull_request.number": number, "github.token": "secret", "github.event.pull_request.head.repo.fork": fork}
        standins = folder / "standins"
        standins.mkdir()
        for name, text in [("python3", PYTHON), ("pip", RECORD), ("attnbench", ATTNBENCH), ("gh", GH)]:
            (standins / name).write_text(text)
            (standins / name).chmod(0o755)
        self.environment = {
            "PATH": f"{standins}:{os.environ['PATH']}", "STANDINS": str(standins), "CALLS": str(self.calls),
            "RUNNER_TEMP": str(folder), "GITHUB_STEP_SUMMARY": str(self.summary), "GITHUB_REPOSITORY": "some/repository",
            "GITHUB_ACTION_PATH": "ACTION", "GITHUB_BASE_REF": base_ref, "CODE": str(code), "REPORT": report, "EARLIER": earlier, "GH_CODE": str(gh_code),
        }  # fmt: skip
        self.shown = ""
        self.code = self.run()

    def expanded(self, text):
        """The text with the values of its expressions, some of which are in other expressions."""
        while found := re.search(r"\$\{\{ *([^}]+?) *\}\}", text):
            text = text.replace(found[0], self.context.get(found[1], ""))
        return text

    def is_run(self, step):
        """Whether all values that the condition of the step names are there."""
        return all(self.context[name] for name in re.findall(r"[a-z]+\.[\w.-]+", step.get("if", "")))

    def run(self):
        for step in ACTION["runs"]["steps"]:
            assert step["shell"] == "bash", "a composite action needs a shell for each step"
            if not self.is_run(step):
                continue
            output = self.folder / "output"
            output.write_text("")
            values = {name: self.expanded(value) for name, value in step["env"].items()}
            # GitHub writes the script to a file and runs it so.
            (self.folder / "script").write_text(step["run"])
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", self.folder / "script"], cwd=self.folder, text=True,
                env=self.environment | values | {"GITHUB_OUTPUT": str(output)},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=HANG_S, check=False,
            )  # fmt: skip
            self.shown += done.stdout
            for line in output.read_text().splitlines():
                name, _, value = line.partition("=")
                self.context[f"steps.{step['id']}.outputs.{name}"] = value
            if done.returncode != 0:
                return done.returncode
        return 0

    def called(self, program):
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line for line in lines if line.split()[0] == program]


@pytest.fixture
def action(tmp_path):
    def run(inputs=(), **context):
        return Runner(tmp_path, {"suite": "suite.toml"} | dict(inputs), **context)

    return run


def test_the_action_is_described_and_every_expression_has_a_value():
    assert ACTION["runs"]["using"] == "composite"
    assert all(given["description"] for given in (ACTION["inputs"] | ACTION["outputs"]).values())
    known = {f"inputs.{name}" for name in INPUTS} | {"github.event.pull_request.number", "github.token", "github.event.pull_request.head.repo.fork"}
    known |= {f"steps.gate.outputs.{name}" for name in ("result", "folder")}
    used = re.findall(r"\$\{\{ *(.+?) *\}\}", (ROOT / "action.yml").read_text())
    assert {part for text in used for part in re.findall(r"[a-z]+\.[\w.-]+", text)} == known
    # A value that is put into a script could be run as a part of it.
    assert not [step["name"] for step in ACTION["runs"]["steps"] if "${{" in step["run"]]


def test_the_action_installs_attnbench_runs_the_gate_and_comments(action):
    run = action({"prepare": "pip install -e .", "root": "sub folder"})
    assert run.code == 0, run.shown
    assert run.called("pip") == ["pip <install> <--disable-pip-version-check> <ACTION>"]
    (gate,) = run.called("attnbench")
    folder = run.context["steps.gate.outputs.folder"]
    assert gate == (
        "attnbench <gate> <suite.toml> <--root> <sub folder> <--base=origin/main> <--format> <markdown> "
        f"<--out> <{folder}> <--comment> <{folder}/comment.md> <--prepare=pip install -e .>"
    )
    assert run.context["steps.gate.outputs.result"] == "pass"
    assert run.summary.read_text() == COMMENT
    looked, posted = run.called("gh")
    # Only comments of bots count, because a person could write one that begins like it, and change it afterwards.
    chosen = '.[] | select(.user.type == "Bot" and (.body | startswith(env.MARKER))) | .id'
    assert looked == f"gh <api> <--paginate> <repos/some/repository/issues/7/comments> <--jq> <{chosen}>"
    assert posted == f"gh <api> <--method> <POST> <repos/some/repository/issues/7/comments> <--field> <body=@{folder}/comment.md>"


def test_the_comment_of_an_earlier_run_is_replaced(action):
    run = action(earlier="31\n32\n")
    assert "<PATCH> <repos/some/repository/issues/comments/31>" in run.called("gh")[1]


@pytest.mark.parametrize(
    ("code", "fail_on", "expected"),
    [
        (0, "regression,unusable", 0), (1, "regression,unusable", 1), (3, "regression,unusable", 0),
        (4, "regression,unusable", 1), (4, "regression, unusable", 1), (3, "inconclusive", 1), (1, "inconclusive", 0), (1, "", 0),
        (2, "", 1), (143, "", 1),
    ],
)  # fmt: skip
def test_the_job_fails_on_the_results_that_it_is_told(action, code, fail_on, expected):
    run = action({"fail-on": fail_on}, code=code)
    assert run.code == expected, run.shown
    assert run.called("gh"), "the comment is written before the job fails"


def test_waivers_and_the_quick_gate_are_passed_on(action):
    (gate,) = action({"waivers": "my waivers.toml", "quick": "true"}).called("attnbench")
    assert gate.endswith(" <--waivers=my waivers.toml> <--quick>")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("fail-on", "regresion", "fail-on names 'regresion'"), ("quick", "yes", "quick is 'yes', expected true or false"),
        ("command", "./bench", "suite and command are given"), ("suite", "", "neither suite nor command is given"),
        ("history", "benchmarks", "history is 'benchmarks', expected a branch of a remote"),
    ],
)
def test_wrong_inputs_are_refused(action, name, value, said):
    run = action({name: value})
    assert run.code == 1 and said in run.shown and not run.calls.exists()


def test_a_base_is_needed_outside_of_pull_requests(action):
    run = action(number="", base_ref="")
    assert run.code == 1 and "has to name a revision" in run.shown and not run.called("attnbench")


def test_a_push_is_compared_without_a_comment(action):
    run = action({"base": "HEAD~1"}, number="", base_ref="")
    assert run.code == 0 and "<--base=HEAD~1>" in run.called("attnbench")[0] and not run.called("gh")


@pytest.mark.parametrize("context", [{"gh_code": 1}, {"report": ""}])
def test_a_comment_that_cannot_be_written_does_not_hide_the_result(action, context):
    run = action(code=1, **context)
    assert run.code == 1 and "attnbench gate: regression" in run.shown
    assert ("::warning::" in run.shown) == ("gh_code" in context)


def test_the_workflow_of_the_page_gives_inputs_that_the_action_has():
    page = (ROOT / "docs/gate.md").read_text("utf-8")
    workflows = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    (given,) = [step for flow in workflows for job in flow.get("jobs", {}).values() for step in job["steps"] if "/attnbench@" in step.get("uses", "")]
    assert set(given["with"]) <= set(INPUTS) and given["with"]["suite"]
    version = re.search(r"project\(attnbench VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    assert given["uses"].endswith(f"@v{version[1]}")


def test_inputs_are_no_part_of_a_script(action, tmp_path):
    mischief = f"$(touch {tmp_path}/mischief); touch {tmp_path}/mischief"
    action({"suite": mischief, "base": mischief, "root": mischief, "attnbench": mischief, "history": f"{mischief}/x", "measure": mischief})
    assert not (tmp_path / "mischief").exists()


def test_a_command_is_gated_in_place_of_a_suite(action):
    (gate,) = action({"suite": "", "command": "./bench --json {out}", "measure": "cpu_time"}).called("attnbench")
    assert gate.startswith("attnbench <gate> <--command=./bench --json {out}> <--root> <.> <--base=origin/main>")
    assert "<--measure=cpu_time>" in gate


def test_a_fork_gets_a_summary_instead_of_a_comment(action):
    run = action(fork="true")
    assert run.code == 0 and not run.called("gh") and run.summary.read_text() == COMMENT
    assert "::notice::a pull request from a fork" in run.shown and "::warning::" not in run.shown


def test_a_push_is_added_to_the_history_and_a_pull_request_is_not(action):
    run = action({"history": "origin/benchmarks", "prepare": "echo prepared > prepared"}, number="", base_ref="")
    assert run.code == 0, run.shown
    sweep, added = run.called("attnbench")
    records = re.search(r"<--out> <(.*?)>", sweep)[1]
    assert sweep.startswith("attnbench <sweep> <suite.toml> <--out> ")
    assert added == f"attnbench <history> <add> <{records}> <--to> <origin/benchmarks>"
    assert (run.folder / "prepared").read_text() == "prepared\n" and not run.called("gh")


def test_a_pull_request_is_not_added_to_the_history(action):
    run = action({"history": "origin/benchmarks"})
    assert run.code == 0 and [call.split()[1] for call in run.called("attnbench")] == ["<gate>"]


@pytest.mark.parametrize("command", ["echo '{}'", "echo '{}' > {out}"])
def test_the_results_of_a_command_are_added_to_the_history(action, command):
    run = action({"suite": "", "command": command, "history": "origin/benchmarks", "measure": "ops"}, number="", base_ref="")
    (added,) = run.called("attnbench")
    file = re.search(r"<add> <(.*?)>", added)[1]
    assert Path(file).read_text() == "{}\n" and added.endswith(" <--to> <origin/benchmarks> <--measure=ops>")


def test_a_command_that_fails_on_a_push_fails_the_job(action):
    run = action({"suite": "", "command": "exit 7", "history": "origin/benchmarks"}, number="", base_ref="")
    assert run.code == 7 and not run.called("attnbench")
