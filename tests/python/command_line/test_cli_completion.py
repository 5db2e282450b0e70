"""Tests of `attnbench completion`, which prints scripts that let a shell complete command lines."""

import re
import shutil
import subprocess

import pytest
from conftest import write_sweep


@pytest.fixture(scope="module")
def script(build):
    """script(shell) is the completion script for this shell."""

    def make(shell):
        return subprocess.check_output([build / "attnbench", "completion", shell], encoding="utf-8")

    return make


@pytest.fixture
def complete(build, script, tmp_path):
    """complete(*words) lists what bash offers with the cursor after the last of these words.
    `divided` gives the words as bash divides them, where that differs."""
    (tmp_path / "attnbench.bash").write_text(script("bash"))

    def run(*words, divided=None):
        words = [str(build / "attnbench"), *(divided or words)]
        done = subprocess.run(
            [
                "bash", "-c",
                "source ./attnbench.bash; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1));"
                " complete -p attnbench >&2; _attnbench; printf '%s\\n' \"${COMPREPLY[@]}\"",
                "bash", *words,
            ],
            cwd=tmp_path, encoding="utf-8", capture_output=True, check=True,
        )  # fmt: skip
        assert done.stderr == "complete -F _attnbench attnbench\n"
        return sorted(filter(None, done.stdout.split("\n")))

    return run


def listed(attnbench, what):
    return sorted(item["name"] for item in attnbench.json("list", what))


def test_commands_are_completed(complete, attnbench):
    text = attnbench("--help").stdout.partition("Commands:")[2].partition("\n\n")[0]
    assert complete("") == sorted(re.findall(r"^  (\w+)", text, re.MULTILINE))
    assert complete("s") == ["sweep"]
    assert complete("co") == ["compare", "completion"]


@pytest.mark.parametrize("command", ["sweep", "measure", "verify", "gate", "import"])
def test_the_completed_options_are_those_of_the_help(complete, attnbench, command):
    documented = re.findall(
        r"^  (?:-\w,)?(--[a-z-]+)", attnbench(command, "--help").stdout, re.MULTILINE
    )
    offered = complete(command, "--")
    assert offered == sorted({*documented, "--worker", "--torch", "--version"})
    assert complete("--worker", "x", command, "-") == offered


def test_choices_of_options_and_arguments_are_completed(complete):
    assert complete("sweep", "x", "--resume", "") == ["all", "failed", "missing", "stale"]
    assert complete("measure", "linear", "--dtype", "b") == ["bfloat16"]
    assert complete("analyse", "x", "--format", "") == ["json", "markdown", "text"]
    assert complete("list", "") == ["columns", "keys", "methods", "schema", "shapes", "sweeps", "trainings"]
    assert complete("completion", "z") == ["zsh"]
    # bash makes the equals sign a word of its own.
    assert complete(divided=["sweep", "x", "--resume", "="]) == ["all", "failed", "missing", "stale"]
    assert complete(divided=["sweep", "x", "--resume", "=", "fa"]) == ["failed"]


def test_methods_and_sweeps_are_completed(complete, attnbench, tmp_path):
    methods = listed(attnbench, "methods")
    assert complete("measure", "") == methods
    assert complete("verify", "softmax", "lsh") == [m for m in methods if m.startswith("lsh")]
    assert complete("sweep", "x", "--methods", "sdp") == ["sdpa"]
    (tmp_path / "sweeps").mkdir()
    write_sweep(tmp_path / "sweeps/mine.toml")
    write_sweep(tmp_path / "here.toml")
    assert complete("sweep", "mi") == ["mine"]
    assert complete("sweep", "he") == ["here.toml"]
    assert complete("gate", "fig") == ["figure1"]
    assert complete("sweep", "sweeps/") == ["sweeps/mine.toml"]


def test_files_are_completed_only_where_a_file_is_expected(complete, tmp_path):
    (tmp_path / "records").mkdir()
    for words in (["table"], ["compare", "a"], ["sweep", "x", "--out"], ["merge", "a", "b"]):
        assert complete(*words, "rec") == ["records"]
    assert complete("measure", "linear", "--query-len", "") == []


def test_names_of_files_may_have_spaces(complete, tmp_path):
    (tmp_path / "my records").mkdir()
    assert complete("table", "my") == ["my records"]
    assert complete("report", "x", "-o", "my") == ["my records"]


def test_python_files_are_offered_as_methods(complete, attnbench, tmp_path):
    (tmp_path / "mine.py").touch()
    (tmp_path / "mine.txt").touch()
    (tmp_path / "mylib").mkdir()
    for words in (["measure"], ["verify", "softmax"], ["sweep", "x", "--methods"], ["plot", "x", "--methods"]):
        assert complete(*words, "mi") == ["mine.py"]
    assert complete("measure", "m") == ["mine.py", "mla", "mylib"]


def test_names_and_files_of_trainings_are_completed(complete, attnbench, tmp_path):
    (tmp_path / "digest.toml").touch()
    known = [name for name in listed(attnbench, "trainings") if name.startswith("dig")]
    assert known and complete("train", "dig") == sorted([*known, "digest.toml"])


def test_the_file_of_the_inputs_is_completed(complete, tmp_path):
    (tmp_path / "layer.npy").touch()
    assert complete("measure", "linear", "--inputs", "f") == ["file:"]
    # bash makes the colon a word of its own.
    assert complete(divided=["measure", "linear", "--inputs", "file", ":", "la"]) == ["layer.npy"]
    assert "layer.npy" in complete(divided=["measure", "linear", "--inputs", "file", ":"])


def test_commands_are_completed_after_help(complete):
    assert complete("help", "me") == ["measure", "merge"]


def test_zsh_accepts_the_syntax_of_its_script(script, tmp_path):
    zsh = shutil.which("zsh")
    if not zsh:
        pytest.skip("zsh is not installed")
    (tmp_path / "_attnbench").write_text(script("zsh"))
    subprocess.run([zsh, "-n", tmp_path / "_attnbench"], check=True)


def test_the_script_for_zsh_has_every_option_of_the_help(script, attnbench):
    text = script("zsh")
    for command in re.findall(r"^    '(\w+):", text, re.MULTILINE):
        branch = text.partition(f"\n    {command})\n")[2].partition(";;")[0]
        for option in re.findall(
            r"^  (?:-\w,)?(--[a-z-]+)", attnbench(command, "--help").stdout, re.MULTILINE
        ):
            assert re.search(rf"'\*?{option}[=\[]", branch), f"{command} {option}"
    assert "'-o[file to write]:out:_files'" in text
    assert ":method:_attnbench_names_or_files methods \"*.py\"'" in text
    assert "':file:_attnbench_names_or_files sweeps \"*.toml\"'" in text
    assert "outliers file\\:)'" in text
    assert "'--resume=[" in text and ":(missing stale failed all)'" in text


def test_an_unknown_shell_is_refused(attnbench):
    message = attnbench("completion", "fish", code=2).stderr
    assert "expected one of bash, zsh" in message
