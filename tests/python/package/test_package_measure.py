"""Tests of attnbench.measure, which runs `attnbench measure` from Python, and of how it finds the programs."""

import json
import os
import signal
import subprocess
import sys

import pytest
from conftest import HANG_S, ROOT, children, measuring_workers, results_of, runs, wait_for

import attnbench
from attnbench import _installation, _measuring, _program

SMALL = {"heads": 2, "head_dim": 16, "threads": 1, "warmup_s": 0, "time_budget_s": 0.02, "max_disturbance": 1e6}


@pytest.fixture(autouse=True)
def programs(build, monkeypatch):
    """The programs of the build folder that the tests use."""
    monkeypatch.setenv("ATTNBENCH_BUILD", str(build))


@pytest.fixture
def stand_in(tmp_path, monkeypatch, build):
    """Makes a program that takes the place of `attnbench`, from the shell code of its answer. What reads records is left to the
    real program."""
    facts = _installation.build_facts()
    monkeypatch.setenv("ATTNBENCH_BUILD", str(tmp_path))
    (tmp_path / "build_facts.json").write_text(json.dumps(facts))

    def make(code):
        program = tmp_path / "attnbench"
        real = f"case $1 in list|table) exec '{build}/attnbench' \"$@\" ;; esac"
        program.write_text(f"#!/bin/sh\n{real}\n{code}\n")
        program.chmod(0o755)
        return tmp_path

    return make


def test_a_measured_case_is_a_series_with_the_columns_of_a_record():
    record = attnbench.measure("linear", query_len=64, causal=True, **SMALL)
    assert (record.outcome, record.method, record.query_len, record.causal) == ("measured", "linear", 64, True)
    assert record.time_median_ms > 0 and isinstance(record.time_samples_ms, list)
    assert record.name == "linear"


def test_lists_of_values_give_a_data_frame_with_every_combination(stand_in):
    code = """for word; do case $word in --query-len=*) n=${word#*=};; --causal) causal=true;; esac; done
echo "{\\"query_len\\": $n, \\"causal\\": ${causal:-false}, \\"method\\": \\"x\\"}\""""
    stand_in(code)
    frame = attnbench.measure("x", query_len=[32, 48], causal=[False, True])
    assert list(zip(frame["query_len"], frame["causal"], strict=True)) == [
        (32, False), (32, True), (48, False), (48, True),
    ]  # fmt: skip
    assert set(frame["method"]) == {"x"} and str(frame["query_len"].dtype) == "Int64"
    recorded = list(attnbench.records(ROOT / "results/decode").columns[1:])  # by a build that may have had fewer columns
    assert [name for name in frame.columns if name in recorded] == recorded
    assert len(attnbench.measure("x", query_len=[32])) == 1


def test_a_skipped_case_is_a_record_with_its_reason():
    record = attnbench.measure("softmax", query_len=4096, memory_limit_bytes="1 MiB", **SMALL)
    assert record.outcome == "skipped" and "1.00 MiB" in record.reason


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("linaer", {}, "unknown method 'linaer'; did you mean 'linear'"),
        ("linear", {"query_lem": 3}, "unknown option '--query-lem'; did you mean '--query-len'"),
        ("linear", {"query_len": 0}, "--query-len = 0, expected at least 1"),
        ("linear", {"options": {"window": 3}}, "method 'linear' has no option 'window'"),
    ],
)
def test_wrong_arguments_are_errors_with_the_message_of_the_program(method, settings, message):
    with pytest.raises(attnbench.MeasureError) as caught:
        attnbench.measure(method, **settings)
    assert str(caught.value).startswith(message)


# ---------------------------------------------------------------- what the program is started with


@pytest.mark.parametrize(
    ("method", "options", "word"),
    [
        ("linear", {"chunk": 16}, "linear:chunk=16"),
        ("linear:chunk=16", {"implementation": "avx2"}, "linear:chunk=16,implementation=avx2"),
        ("a.py:f", {"window": 256, "fast": True}, "a.py:f:window=256,fast=true"),
        ("a.py:f:window=2", {"fast": False}, "a.py:f:window=2,fast=false"),
        ("dir:1/a.py:f", {"x": 1}, "dir:1/a.py:f:x=1"),
        ("a.py:f", None, "a.py:f"),
    ],
)
def test_options_are_written_behind_the_name(stand_in, method, options, word):
    folder = stand_in('printf "%s\\n" "$@" > "$0.words"; echo "{}"')
    attnbench.measure(method, options=options, query_len=8, causal=True, graph=False, baseline=None)
    words = (folder / "attnbench.words").read_text().splitlines()
    assert words == ["measure", "--format=json", "--query-len=8", "--causal", "--", word]


def test_the_program_is_told_the_python_of_this_process(stand_in):
    folder = stand_in('echo "$ATTNBENCH_PYTHON" > "$0.python"; echo "{}"')
    attnbench.measure("linear")
    assert (folder / "attnbench.python").read_text().strip() == sys.executable


def test_what_the_program_says_beside_the_record_is_shown(stand_in, capfd):
    stand_in("echo 'from the function' >&2; echo '{\"outcome\": \"failed\"}'; exit 1")
    assert attnbench.measure("linear").outcome == "failed"
    assert capfd.readouterr().err == "from the function\n"


def test_a_program_that_breaks_is_an_error_with_its_exit_code(stand_in):
    stand_in("exit 7")
    with pytest.raises(attnbench.MeasureError, match="`attnbench measure` ended with exit code 7"):
        attnbench.measure("linear")


def test_an_interrupt_ends_the_program_and_its_worker(build):
    """A notebook interrupts its kernel alone. The deadline of the case is far beyond the end of the test."""
    # Without a handler Python ignores SIGINT if the tests were started in the background of a shell.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "import attnbench; attnbench.measure('softmax', query_len=512, time_budget_s=3000, deadline_s=9000, noise_target=0)"
    kernel = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    try:
        # The package may start other programs before, which end by themselves.
        worker, program = wait_for(lambda: next(measuring(kernel), None), "the worker", driver=kernel)
        kernel.send_signal(signal.SIGINT)
        _, said = kernel.communicate(timeout=HANG_S)
        assert "KeyboardInterrupt" in said
        wait_for(lambda: not children(program.pid) and not runs(worker.pid), "the worker to end")
    finally:
        kernel.kill()


def measuring(kernel):
    """The workers that measure for a process, each with the driver that started it."""
    for program in children(kernel.pid):
        yield from ((worker, program) for worker in measuring_workers(program))


# ---------------------------------------------------------------- functions


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of a file with functions."""
    (tmp_path / "mine_for_tests.py").write_text(
        "def attend(q, k, v, *, causal):\n    return v\n"
        "def make():\n    def inner():\n        pass\n    return inner\n"
        "nameless = lambda q, k, v: v\n"
        "def replaced():\n    pass\n"
        "former = replaced\n"
        "def replaced():\n    pass\n"
        "class Attention:\n    def attend(self):\n        pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import mine_for_tests

    yield mine_for_tests
    del sys.modules["mine_for_tests"]


def test_a_function_of_a_module_is_measured_by_its_file_and_name(module, tmp_path, stand_in):
    folder = stand_in('printf "%s\\n" "$@" > "$0.words"; echo "{}"')
    attnbench.measure(module.attend, options={"window": 3})
    assert (folder / "attnbench.words").read_text().splitlines()[-1] == f"{tmp_path}/mine_for_tests.py:attend:window=3"


@pytest.mark.parametrize(
    ("choose", "problem"),
    [
        (lambda m: m.make(), "make.<locals>.inner is defined inside a function"),
        (lambda m: m.nameless, "a lambda has no name"),
        (lambda m: m.former, "replaced in .*mine_for_tests.py is another object than the one given"),
        (lambda m: m.Attention.attend, "Attention.attend in .* is another object than the one given"),
        (lambda m: len, "len is not defined in a module that is imported from a file"),
    ],
)
def test_a_function_that_has_no_name_in_a_file_is_refused_with_how_to_save_it(module, choose, problem):
    with pytest.raises(ValueError, match=problem) as caught:
        attnbench.measure(choose(module))
    assert "%%writefile mine.py" in str(caught.value) and "measure 'mine.py:" in str(caught.value)


def test_a_function_of_a_notebook_cell_is_refused_with_how_to_save_it():
    """Code that is given by -c is in the module __main__ without a file, as are the cells of a notebook."""
    code = "import attnbench\ndef mine(q, k, v): return v\nattnbench.measure(mine)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert "ValueError: mine is not defined in a module that is imported from a file" in done.stderr
    assert "measure 'mine.py:mine'" in done.stderr


# ---------------------------------------------------------------- finding the programs


def test_programs_that_are_not_built_are_an_error_that_says_how_to_build_them(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNBENCH_BUILD", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/none/attnbench: no such file; build it with `make build`"):
        attnbench.measure("linear")


def test_the_module_runs_as_the_console_script(build):
    command = [sys.executable, "-m", "attnbench", "measure", "linear", "--query-len=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, done.stderr) == (2, "attnbench: --query-len = 0, expected at least 1\n")


@pytest.mark.parametrize("found", ["2.9.1", "2.9.1+cu130", None])
def test_another_torch_than_that_of_the_build_is_refused(found):
    facts = _installation.build_facts()
    refusal = _installation.refusal_of_torch(found)
    assert f"was built for torch {facts['torch_version']}, but " in refusal
    assert ("no torch is installed" if found is None else f"torch {found} is installed") in refusal


def test_a_torch_for_other_gpus_is_accepted():
    wanted = _installation.build_facts()["torch_version"].split("+")[0]
    assert _installation.refusal_of_torch(f"{wanted}+cpu") is None
    assert _installation.refusal_of_torch(f"{wanted}+cu130") is None


def test_an_installed_program_is_told_where_the_libraries_of_another_environment_are(tmp_path, monkeypatch):
    package = tmp_path / "site-packages/attnbench"
    (package / "bin").mkdir(parents=True)
    monkeypatch.setattr(_installation, "PACKAGE", package)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/mine")
    folders = _program.environment()["LD_LIBRARY_PATH"].split(":")
    assert folders[0] == "/opt/mine"
    assert any(folder.endswith("/torch/lib") for folder in folders)
    (tmp_path / "site-packages/torch/lib").mkdir(parents=True)
    folders = _program.environment()["LD_LIBRARY_PATH"].split(":")
    assert not any(folder.endswith("/torch/lib") for folder in folders)


def test_a_program_of_a_checkout_needs_no_folders_of_libraries(monkeypatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert "LD_LIBRARY_PATH" not in _program.environment()


def test_plots_use_the_python_that_the_environment_names(attnbench, tmp_path):
    """`attnbench plot` of the wheel draws with the Python that the wheel is installed for."""
    wrong = tmp_path / "no-python"
    records = results_of("decode")
    refused = attnbench("plot", records, "--out", "x", code=2, env=os.environ | {"ATTNBENCH_PYTHON": str(wrong)})
    assert f"no Python at {wrong}" in refused.stderr


def test_names_of_methods_in_files_are_told_from_options():
    assert not _measuring._has_options("a.py:f")
    assert _measuring._has_options("a.py:f:x=1") and _measuring._has_options("lsh:rounds=2")
    assert not _measuring._has_options("linear")
