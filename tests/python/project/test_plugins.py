"""Tests of plug-ins: shared libraries with methods of their own, which `--plugin` and the key `plugins`
of a sweep file name. The example of the documents is built against an installation."""

import hashlib
import shlex
import shutil

import pytest
from conftest import (
    ROOT,
    Cli,
    change_records,
    finished,
    records_in,
    small,
    strict_json,
    write_sweep,
)
from test_documents import commands

GUIDE = "docs/adding-a-method.md"


def of_guide(prefix, folder, *beginnings):
    """The guide's commands that begin in one of these ways, for this installation and this folder
    of the plug-in."""
    chosen = [command for command in commands(GUIDE) if command.startswith(beginnings)]
    paths = {"/tmp/attnbench": str(prefix), "/tmp/plugin": str(folder)}
    for shown, real in paths.items():
        chosen = [command.replace(shown, shlex.quote(real)) for command in chosen]
    assert len(chosen) >= len(beginnings)
    return chosen


@pytest.fixture(scope="session")
def plugin(prefix, made_once):
    """The plug-in of examples/plugin, built as the guide says."""

    def build(folder):
        for command in of_guide(prefix, folder, "cmake -S examples/plugin", "cmake --build /tmp/plugin"):
            finished("bash", "-c", command, cwd=ROOT)

    return made_once("plugin", build) / "libsliding_window.so"


@pytest.fixture
def copied(plugin, tmp_path):
    """A copy of the plug-in that a test may change."""
    return shutil.copy(plugin, tmp_path / "libcopied.so")


@pytest.fixture
def faulty(build):
    """A plug-in that fails as ATTNBENCH_FAULTY_PLUGIN says."""
    return build / "tests/libfaulty_plugin.so"


@pytest.fixture
def faults(attnbench, faulty, monkeypatch):
    """A function that runs the driver with a plug-in that fails in this way."""

    def run(fault, *arguments, code=2):
        monkeypatch.setenv("ATTNBENCH_FAULTY_PLUGIN", fault)
        return attnbench(*arguments, "--plugin", faulty, code=code)

    return run


def digest_of(path):
    return hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()


WINDOW = ["sliding-window:window=16", *small(), "--causal"]

# ---------------------------------------------------------------- methods of a plug-in


def test_the_commands_of_the_guide_verify_and_measure_the_example(prefix, plugin):
    for command in of_guide(prefix, plugin.parent, "/tmp/attnbench/bin/attnbench verify", "/tmp/attnbench/bin/attnbench measure"):
        finished("bash", "-c", command, cwd=ROOT)


def test_the_example_agrees_with_its_reference_in_every_dtype(attnbench, plugin):
    rows = attnbench.json("verify", "sliding-window:window=32", "--plugin", plugin)
    assert {row["dtype"] for row in rows if row["verdict"] == "agrees"} == {"float32", "float64", "bfloat16"}
    assert all(row["verdict"] == "agrees" or row["verdict"].startswith("unsupported") for row in rows)


def test_a_method_of_a_plugin_is_listed_with_its_options(attnbench, plugin):
    with_plugin = attnbench.json("list", "--plugin", plugin)
    (method,) = [m for m in with_plugin if m["name"] == "sliding-window"]
    assert method["plugin"] == str(plugin) and method["method_digest"] == digest_of(plugin)
    assert [option["name"] for option in method["options"]] == ["window"]
    assert [m for m in with_plugin if m["name"] != "sliding-window"] == attnbench.json("list")


def test_a_record_has_the_digest_of_the_plugin(attnbench, plugin):
    record = attnbench.json("measure", *WINDOW, "--plugin", plugin)
    assert record["outcome"] == "measured", record["reason"]
    assert record["implementation"] == "aten/chunked" and record["method_digest"] == digest_of(plugin)
    record = attnbench.json("measure", "linear", *small(), "--plugin", plugin)
    assert record["outcome"] == "measured" and record["method_digest"] is None


def test_a_method_of_a_plugin_can_be_a_baseline(attnbench, plugin):
    options = ["measure", "linear", *small(), "--causal", "--baseline", "sliding-window"]
    assert attnbench.json(*options, "--plugin", plugin)["ratio_median"] > 0


def test_without_the_plugin_its_method_is_unknown(attnbench):
    assert "unknown method 'sliding-window'" in attnbench("measure", "sliding-window", code=2).stderr


def test_options_of_a_method_of_a_plugin_are_checked(attnbench, plugin):
    error = attnbench("measure", "sliding-window:width=16", "--plugin", plugin, code=2).stderr
    assert "method 'sliding-window' has no option 'width'" in error
    error = attnbench("measure", "sliding-window:window=0", "--plugin", plugin, "--causal", code=2).stderr
    assert "window = '0', expected a whole number from 1" in error


def test_a_case_of_another_method_does_not_load_the_plugin(faults):
    done = faults("crash in measure", "measure", "linear", *small(), "--format=json", code=0)
    assert strict_json(done.stdout)["outcome"] == "measured"


# ---------------------------------------------------------------- sweeps


@pytest.fixture
def with_plugin(attnbench, workers, copied, tmp_path):
    """A driver with a quick worker, and a sweep file in another folder that names the copy of the
    plug-in by a path from its own folder."""
    (tmp_path / "sweeps").mkdir()
    path = write_sweep(tmp_path / "sweeps/own.toml", method=["sliding-window:window=16", "linear"], query_len=32, causal=True)
    path.write_text('plugins = ["../libcopied.so"]\n' + path.read_text())
    real = f"printf '%s' \"$request\" | '{workers.real}' \"$@\""  # the stand-in would not have the method
    return Cli(attnbench.program, workers.make(describe=real), tmp_path), path


def test_a_sweep_file_names_plugins_by_paths_from_its_folder(with_plugin, copied, tmp_path):
    attnbench, sweep = with_plugin
    attnbench("sweep", sweep, "--out", "out")
    found = {record["method"]: record["method_digest"] for record in records_in(tmp_path / "out")}
    assert found == {"sliding-window:window=16": digest_of(copied), "linear": None}
    assert "all 2 cases are recorded" in attnbench("sweep", sweep, "--out", "out", "--plugin", copied).stderr


def test_a_changed_plugin_is_another_build_to_resume(with_plugin, copied, tmp_path):
    attnbench, sweep = with_plugin
    attnbench("sweep", sweep, "--out", "out")
    before = digest_of(copied)
    with open(copied, "ab") as file:
        file.write(b"changed")
    for resume in ("missing", "failed"):
        error = attnbench("sweep", sweep, "--out", "out", "--resume", resume, code=5).stderr
        assert f"method_digest of sliding-window:window=16: {before} there, {digest_of(copied)} here" in error
    attnbench("sweep", sweep, "--out", "out", "--methods", "linear")  # does not use the plug-in
    attnbench("sweep", sweep, "--out", "out", "--resume", "all")
    digests = [r["method_digest"] for r in records_in(tmp_path / "out") if r["method"] != "linear"]
    assert digests == [digest_of(copied)]


def test_folders_of_different_plugins_are_not_merged(canned, sweep, tmp_path):
    for folder, method in (("a", "linear"), ("b", "softmax")):
        canned("sweep", sweep, "--out", folder, "--methods", method)
    canned("merge", "a", "b", "--out", "together")
    for folder, digest in (("a", "1" * 40), ("b", "2" * 40)):
        change_records(tmp_path / folder, method="linear", method_digest=digest)
    error = canned("merge", "a", "b", "--out", "other", code=2).stderr
    assert f"method_digest of linear: {'1' * 40} there, {'2' * 40} here" in error


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('"libmine.so"', "own.toml:1:11: plugins is text, expected a list of files"),
        ("[1]", "own.toml:1:12: plugins lists a whole number, expected the path of a file"),
        ('["libmine.so"]', "own.toml:1:11: {folder}/libmine.so: No such file or directory; expected a plug-in"),
    ],
)
def test_a_wrong_list_of_plugins_is_refused_with_its_place(attnbench, tmp_path, value, message):
    sweep = write_sweep(tmp_path / "own.toml")
    sweep.write_text(f"plugins = {value}\n{sweep.read_text()}")
    assert message.format(folder=tmp_path) in attnbench("sweep", sweep, "--dry-run", code=2).stderr


# ---------------------------------------------------------------- what is not a usable plug-in


def replace_once(path, old, new):
    data = path.read_bytes()
    assert len(old) == len(new) and data.count(old) == 1
    path.write_bytes(data.replace(old, new))


def test_a_plugin_that_was_built_with_other_headers_is_refused(attnbench, copied, build):
    interface = (build / "generated/attn_interface.h").read_text().split('"')[1]
    other = interface[:-4] + "beef"
    replace_once(copied, interface.encode(), other.encode())
    error = attnbench("measure", *WINDOW, "--plugin", copied, code=2).stderr
    assert f"{copied}: built with attnbench {other}, expected {interface}; compile the plug-in again" in error


def test_a_plugin_that_was_built_with_another_torch_is_refused(attnbench, copied):
    replace_once(copied, b"\x002.11.0\x00", b"\x002.10.0\x00")
    error = attnbench("list", "--plugin", copied, code=2).stderr
    assert f"{copied}: built with torch 2.10.0, expected torch 2.11.0" in error


def test_a_plugin_is_refused_before_its_initialisers_run(attnbench, faulty, build, tmp_path, monkeypatch):
    copied = shutil.copy(faulty, tmp_path / "libcopied.so")
    interface = (build / "generated/attn_interface.h").read_text().split('"')[1].encode()
    replace_once(copied, interface, b"9" + interface[1:])
    monkeypatch.setenv("ATTNBENCH_FAULTY_PLUGIN", "crash")
    assert "built with attnbench 9." in attnbench("list", "--plugin", copied, code=2).stderr


def test_a_plugin_that_cannot_be_loaded_is_reported_with_the_reason(attnbench, copied):
    replace_once(copied, b"\0libattn.so\0", b"\0libnone.so\0")
    error = attnbench("list", "--plugin", copied, code=2).stderr
    assert f"{copied}: cannot be loaded: libnone.so: cannot open shared object file" in error


@pytest.mark.parametrize("kept", [0, 10, 100, 5000])
def test_a_truncated_plugin_is_refused(attnbench, copied, kept):
    copied.write_bytes(copied.read_bytes()[:kept])
    error = attnbench("list", "--plugin", copied, code=2).stderr
    assert f"{copied}: not a " in error and "expected a " in error


def test_files_that_are_no_plugins_are_refused(attnbench, build, tmp_path):
    (tmp_path / "text.so").write_text("not a library\n")
    assert f"{tmp_path}/text.so: not a 64-bit shared library" in attnbench("list", "--plugin", "text.so", code=2).stderr
    error = attnbench("list", "--plugin", build / "libattn.so", code=2).stderr
    assert f"{build}/libattn.so: not a plug-in of attnbench, expected a library with ATTNBENCH_PLUGIN" in error
    assert "none.so: No such file or directory; expected a plug-in" in attnbench("list", "--plugin", "none.so", code=2).stderr
    assert f"{tmp_path}: not a regular file; expected a plug-in" in attnbench("list", "--plugin", tmp_path, code=2).stderr


def test_two_plugins_with_the_same_method_are_refused(attnbench, plugin, copied, tmp_path):
    error = attnbench("list", "--plugin", plugin, "--plugin", copied, code=2).stderr
    assert f"{copied}: registers the method 'sliding-window', which {plugin} registers already" in error
    (tmp_path / "link.so").symlink_to(plugin)
    attnbench("list", "--plugin", plugin, "--plugin", "link.so")  # the same plug-in


def test_wrong_registrations_are_refused(faults, faulty):
    assert f"{faulty}: registers the method 'linear', which exists already" in faults("register linear", "list").stderr
    assert f"{faulty}: registers the method 'a:b', expected a name without spaces" in faults("register a:b", "list").stderr
    assert f"{faulty}: registers the method 'a.py', expected a name without spaces" in faults("register a.py", "list").stderr
    assert f"{faulty}: the plug-in registers no method" in faults("", "list").stderr


def test_an_exception_of_an_initialiser_is_reported(faults, faulty):
    assert f"{faulty}: an initialiser of the plug-in threw: no licence" in faults("throw", "list").stderr


def test_a_plugin_that_crashes_the_worker_is_named(faults, faulty):
    error = faults("crash", "measure", "faulty", code=1).stderr
    assert "the worker died of signal 6" in error and f"it was to load the plug-in {faulty}" in error


def test_a_plugin_that_crashes_while_a_case_is_measured_fails_that_case(faults):
    done = faults("crash in measure", "measure", "faulty", *small(), "--format=json", code=1)
    record = strict_json(done.stdout)
    assert record["failure_kind"] == "crashed" and "signal 6" in record["reason"]


def test_a_method_of_a_plugin_that_throws_fails_its_case(faults):
    done = faults("register own", "measure", "own", *small(), "--format=json", code=1)
    record = strict_json(done.stdout)
    assert record["failure_kind"] == "error" and record["reason"] == "a faulty method"


def test_commands_without_methods_refuse_plugins(attnbench, plugin):
    assert "unknown option '--plugin'" in attnbench("doctor", "--plugin", plugin, code=2).stderr


def test_the_gate_runs_a_method_of_a_plugin_on_both_builds(attnbench, build, copied, tmp_path):
    sweep = write_sweep(tmp_path / "gate.toml", method="sliding-window:window=16", query_len=32, causal=True)
    # Margins so wide that two pairs of processes pass on a noisy machine.
    options = ["--looks", "2", "--alpha", "0.3", "--pass-alpha", "0.3", "--min-shift", "3", "--margin", "30"]
    report = attnbench.json("gate", sweep, "--base", build, "--plugin", copied, *options)
    (case,) = report["cases"]
    assert report["result"] == "pass" and case["implementation"] == "aten/chunked"
