"""Tests of the usage, `attnbench list`, `attnbench doctor`, errors of workers, and exit codes."""

import json
import os
import re
import signal
import subprocess
import tomllib

import pytest
from conftest import ROOT, Cli, records_in, write_sweep

COMMANDS = (
    "list verify measure sweep table analyse compare gate merge import doctor completion".split()
)

# Columns that `list columns` must have, which scripts may rely on.
COLUMNS = """
schema_version outcome failure_kind reason implementation time_first_ms time_median_ms time_q1_ms
time_q3_ms time_ci_low_ms time_ci_high_ms samples stop_reason time_per_sample_ms input_bytes
output_bytes saved_bytes peak_allocated_bytes peak_extra_bytes peak_extra_bytes_per_sample
peak_rss_bytes max_abs_error max_rel_error method device dtype protocol batch heads query_len
key_len head_dim value_dim causal key_lengths inputs threads seed state_bytes
predicted_state_bytes concentration decay_positions ranks payload_bytes quality_row_error_median quality_cosine_median
""".split()

UNITS = {"_ms": "ms", "_s": "s", "_bytes": "B", "_bytes_per_sample": "B"}


def test_help_names_every_command(attnbench):
    text = attnbench("--help").stdout
    for command in COMMANDS:
        assert command in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_describes_its_options(attnbench, command):
    text = attnbench(command, "--help").stdout
    arguments, _, options = text.partition("\nExamples:")[0].partition("\nOptions:")
    options = re.split(r"\n  (?=-)", options)[1:]
    options += re.split(r"\n  (?=\S)", arguments.partition("\nArguments:")[2])[1:]
    assert len(options) >= 2
    for option in options:
        assert len(option.split()) >= 3, f"no description: {option}"


def test_a_call_without_arguments_is_an_error_that_shows_the_usage(attnbench):
    done = attnbench(code=2)
    for command in COMMANDS:
        assert command in done.stdout + done.stderr


def test_an_unknown_command_is_refused_with_the_nearest(attnbench):
    message = attnbench("swep", "x.toml", code=2).stderr
    assert "swep" in message
    assert "sweep" in message


@pytest.mark.parametrize(
    ("arguments", "wrong", "nearest"),
    [
        (["measure", "linear", "--query-length", "3"], "--query-length", "--query-len"),
        (["sweep", "x.toml", "--dryrun"], "--dryrun", "--dry-run"),
        (["table", "x", "--colums", "method"], "--colums", "--columns"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(attnbench, arguments, wrong, nearest):
    message = attnbench(*arguments, code=2).stderr
    assert wrong in message
    assert nearest in message.replace(wrong, "")


def test_a_missing_argument_is_an_error_that_names_it(attnbench):
    assert "file" in attnbench("sweep", code=2).stderr
    assert "method" in attnbench("measure", code=2).stderr
    assert "folder" in attnbench("table", code=2).stderr


def test_list_methods_describes_every_method(attnbench):
    methods = attnbench.json("list", "methods")
    names = [method["name"] for method in methods]
    assert {"linear", "linear-einsum", "sdpa", "softmax"} <= set(names)
    assert names == sorted(names) and len(names) == len(set(names))
    for method in methods:
        assert set(method) >= {
            "name", "description", "time_order", "memory_order", "capabilities", "options"
        }  # fmt: skip
        assert method["description"]
        assert "\n" not in method["description"]
        assert method["time_order"] in ("O(N)", "O(N log N)", "O(N²)")
        assert method["memory_order"] in ("O(N)", "O(N log N)", "O(N²)")
        can = method["capabilities"]
        for flag in (
            "full", "causal", "cross_attention", "causal_cross_attention", "shared_heads", "key_lengths", "patterns", "gradients", "decoding",
            "nan_reaches_its_rows_only",
        ):  # fmt: skip
            assert isinstance(can[flag], bool)
        assert {"q", "v"} <= set(can["inputs"])
        assert ("k" in can["inputs"]) != method["name"].startswith("lsh")
        assert "float32" in can["dtypes"]
        assert "cpu" in can["devices"]
        for option in method["options"]:
            assert set(option) >= {"name", "type", "default", "choices", "min", "max", "description"}
            assert (option["min"] is not None) == (option["max"] is not None) == (option["type"] == "integer")
            assert option["type"] in ("integer", "number", "boolean", "text")


def test_list_methods_has_the_properties_of_each_method(attnbench):
    methods = {method["name"]: method for method in attnbench.json("list", "methods")}
    assert methods["softmax"]["memory_order"] == "O(N²)"
    assert methods["linear"]["time_order"] == "O(N)"
    assert methods["linear"]["capabilities"]["causal"] is True
    assert methods["linear-einsum"]["capabilities"]["causal"] is False
    assert methods["gated-delta"]["capabilities"]["inputs"] == ["q", "k", "v", "g", "beta"]
    assert methods["gla"]["capabilities"]["inputs"] == ["q", "k", "v", "g"]
    chunk = {option["name"]: option for option in methods["linear-chunked"]["options"]}["chunk"]
    assert chunk["type"] == "integer"
    assert isinstance(chunk["default"], int)


def test_the_orders_of_a_decoding_step_follow_from_the_cost_of_the_method(attnbench):
    orders = {
        method["name"]: (method["decode_time_order"], method["decode_memory_order"])
        for method in attnbench.json("list", "methods")
    }
    for method in ("linear", "linear-chunked", "favor"):
        assert orders[method] == ("O(1)", "O(1)"), "its state has a fixed size"
    for method in ("stateful-softmax", "stateful-softmax-concat", "stateful-sdpa"):
        assert orders[method] == ("O(N)", "O(N)"), "a step reads all keys and values"
    assert orders["softmax"] == ("O(N²)", "O(N²)"), "a step computes the attention of the whole prefix"
    assert orders["lsh-1"] == ("O(N log N)", "O(N)")
    assert orders["linear-einsum"] == ("", ""), "it does not decode"


def test_list_methods_as_text_agrees_with_json(attnbench):
    lines = attnbench("list", "methods").stdout.splitlines()
    assert lines[0].split()[:5] == ["method", "time", "memory", "causal", "decoding"]
    for method, line in zip(attnbench.json("list", "methods"), lines[2:], strict=True):
        assert line.split()[0] == method["name"]
        assert method["time_order"] in line
        assert method["description"] in line
        flags = [method["capabilities"][flag] for flag in ("causal", "decoding")]
        assert [flag == "yes" for flag in line.split() if flag in ("yes", "no")][:2] == flags


def test_list_without_an_argument_lists_methods(attnbench):
    assert attnbench("list").stdout == attnbench("list", "methods").stdout


def test_methods_are_those_that_the_worker_describes(attnbench, workers):
    assert attnbench.json("list", "methods") == workers.methods


def test_list_columns_describes_every_column(attnbench):
    columns = attnbench.json("list", "columns")
    names = [column["name"] for column in columns]
    assert len(names) == len(set(names))
    assert set(COLUMNS) <= set(names)
    for column in columns:
        assert column["type"] in ("text", "integer", "number", "boolean", "numbers", "numbers by name")
        assert column["description"]
        assert column["group"]
        for ending, unit in UNITS.items():
            if column["name"].endswith(ending):
                assert column["unit"] == unit, column["name"]


def test_list_columns_has_diagnostics_of_methods_and_no_test_hooks(attnbench):
    columns = {column["name"]: column for column in attnbench.json("list", "columns")}
    assert columns["lsh_bucket_mean"]["group"] == "diagnostics"
    assert {"lsh-1", "lsh-4"} <= set(columns["lsh_bucket_mean"]["methods"])
    assert columns["rff_min_denominator"]["methods"] == ["rff"]
    assert "injected_slowdown_percent" not in columns


def test_methods_that_share_a_diagnostic_declare_it_equally(attnbench):
    seen = {}
    for method in attnbench.json("list", "methods"):
        for diagnostic in method["diagnostics"]:
            assert diagnostic["name"] and diagnostic["description"]
            assert seen.setdefault(diagnostic["name"], diagnostic) == diagnostic, method["name"]
    columns = {c["name"] for c in attnbench.json("list", "schema")["columns"]}
    assert seen and not columns & set(seen)


def test_list_columns_as_text_agrees_with_json(attnbench):
    lines = attnbench("list", "columns").stdout.splitlines()
    assert lines[0].split() == ["column", "type", "unit", "group", "description"]
    for column, line in zip(attnbench.json("list", "columns"), lines[2:], strict=True):
        name, kind = re.split(r"  +", line)[:2]
        assert (name, kind) == (column["name"], column["type"])
        assert line.endswith(column["description"])


def test_list_keys_has_every_key_of_a_sweep_file_and_no_other(attnbench, tmp_path):
    """A file with all keys is accepted, and each key is refused in another table."""
    published = ROOT / "sweeps/published/figure1.csv"
    values = {"method": "linear", "description": "all keys", "plugins": [], "file": str(published), "baseline": "linear"}
    values |= {"threads": 1, "kv_heads": 8, "value_heads": 8, "key_len": 1024, "value_dim": 64, "shape": "paper"}
    keys = attnbench.json("list", "keys")
    tables = {}
    for key in keys:
        value = values.get(key["key"], key["default"])
        assert value is not None and key["description"], key["key"]
        tables.setdefault(key["table"], []).append(f"{key['key']} = {json.dumps(value)}\n")
    text = "".join((f"[{name}]\n" if name else "") + "".join(lines) for name, lines in tables.items())
    (tmp_path / "all.toml").write_text(text)
    assert "1 case" in attnbench("sweep", "all.toml", "--dry-run").stdout

    schema = attnbench.json("list", "schema")
    axes = [axis["name"] for axis in schema["axes"]]
    assert [key["key"] for key in keys if key["table"] == "axes"] == [*axes, "baseline", "shape"]
    hooks = {"injected_slowdown_percent"}
    settings = {column["name"] for column in schema["columns"] if column["group"] == "setting"} - hooks
    assert {key["key"] for key in keys if key["table"] in ("limits", "timing", "quality")} == settings
    # No sweep of the project has a key that is not listed.
    known = {(key["table"], key["key"]) for key in keys}
    for path in (ROOT / "sweeps").glob("*.toml"):
        for name, value in tomllib.loads(path.read_text("utf-8")).items():
            inside = value if isinstance(value, list) else [value]
            used = {(name, key) for table in inside if isinstance(table, dict) for key in table} or {("", name)}
            assert used <= known, path.name
    lines = attnbench("list", "keys").stdout.splitlines()
    assert lines[0].split() == ["key", "table", "type", "unit", "default", "description"]
    assert len(lines) == 2 + len(keys)


def test_list_sweeps_has_those_of_the_current_folder_and_of_the_project(attnbench, tmp_path):
    (tmp_path / "sweeps").mkdir()
    write_sweep(tmp_path / "sweeps/second.toml", description="two and two")
    write_sweep(tmp_path / "sweeps/first.toml", description="one", query_len="16-64+16")
    write_sweep(tmp_path / "sweeps/figure1.toml", description="own figure")
    sweeps = attnbench.json("list", "sweeps")
    own, others = sweeps[:3], sweeps[3:]
    assert [s["name"] for s in own] == ["figure1", "first", "second"]
    assert [s["cases"] for s in own] == [4, 8, 4]
    assert [s["description"] for s in own] == ["own figure", "one", "two and two"]
    # The sweeps of the project follow, except those whose name occurs in the current folder.
    projects = {path.stem for path in (ROOT / "sweeps").glob("*.toml")}
    assert {s["name"] for s in others} == projects - {"figure1"}
    assert all((tmp_path / s["file"]).is_file() for s in sweeps)
    lines = attnbench("list", "sweeps").stdout.splitlines()
    assert "first.toml" in lines[3] and " 8 " in lines[3] and lines[3].endswith("one")
    assert "second.toml" in lines[4] and lines[4].endswith("two and two")


def test_list_sweeps_names_the_place_of_an_error(attnbench, tmp_path):
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps/wrong.toml").write_text('[axes]\nmethod = "linear"\nbach = 1\n')
    message = attnbench("list", "sweeps", code=2).stderr
    assert "wrong.toml:3:1:" in message and "'batch'" in message


def test_the_sweeps_of_the_project_can_be_listed(build):
    attnbench = Cli(build / "attnbench", folder=ROOT)
    sweeps = {s["name"]: s for s in attnbench.json("list", "sweeps")}
    assert {path.stem for path in (ROOT / "sweeps").glob("*.toml")} == set(sweeps)
    assert "figure1" in sweeps
    for sweep in sweeps.values():
        assert sweep["cases"] > 0
        assert sweep["description"]


def test_list_of_an_unknown_thing_is_refused(attnbench):
    message = attnbench("list", "metods", code=2).stderr
    assert "metods" in message and "methods" in message and "columns" in message
    assert "schema" in message


def test_doctor_reports_ceilings_and_environment_as_json(attnbench, build):
    doctor = attnbench.json("doctor")
    ceilings = doctor["ceilings"]
    for name in ("read_gb_s", "copy_gb_s", "fma_float32_gflop_s", "fma_float64_gflop_s"):
        assert ceilings[name] > 0, name
    assert ceilings["array_bytes"] >= 2**26
    assert ceilings["threads"] >= 1
    assert doctor["processors"] >= 1
    assert doctor["available_memory_bytes"] > 0
    assert doctor["cpu_model"]
    assert doctor["torch_version"].startswith("2.")
    assert doctor["worker"] == str(build / "attnbench-worker")
    for column in attnbench.json("list", "columns"):
        assert column["name"] in doctor or column["group"] != "environment"


def test_doctor_shows_values_with_units(attnbench, workers):
    worker = workers.make(ceilings={"read_gb_s": 12.25, "fma_float32_gflop_s": 345.5})
    text = attnbench.with_worker(worker)("doctor").stdout
    lines = {line[:30].strip(): line[30:].strip() for line in text.splitlines()}
    assert lines["streaming read"] in ("12.2 GB/s", "12.3 GB/s")
    assert lines["multiply-add, float32"] == "345.5 GFLOP/s"
    assert lines["torch_version"] == workers.environment["torch_version"]
    assert lines["worker"] == str(worker)


@pytest.mark.parametrize("command", [["doctor"], ["measure", "linear"], ["list", "methods"]])
def test_a_missing_worker_is_an_error_that_names_it(attnbench, tmp_path, command):
    missing = tmp_path / "no-such-worker"
    message = attnbench.with_worker(missing)(*command, code=2).stderr
    assert str(missing) in message and "No such file" in message


# ---------------------------------------------------------------- exit codes


@pytest.mark.parametrize(
    ("asked", "command", "on"),
    [
        ("describe", ["list"], ""),
        ("plan", ["measure", "linear"], "on method 'linear'"),
        ("plan", ["sweep", "x.toml"], "on method 'linear'"),
        ("environment", ["doctor"], ""),
        ("ceilings", ["doctor"], ""),
    ],
)
@pytest.mark.parametrize(
    ("breaks", "how"),
    [
        ("echo 'libattn.so: cannot open' >&2; exit 127", "exit code 127; it said: libattn.so: cannot open"),
        ("kill -SEGV $$; sleep 9", "died of signal 11"),
        ("answer '{\"outcome\":'", "not JSON"),
        ("exit 0", "gave 0 answers, expected"),
    ],
)  # fmt: skip
def test_a_worker_that_breaks_is_an_error_that_says_how(
    attnbench, workers, tmp_path, asked, command, on, breaks, how
):
    write_sweep(tmp_path / "x.toml")
    worker = workers.make(**{asked: breaks})
    message = attnbench.with_worker(worker)(*command, code=1).stderr
    assert f"`{worker} {asked}` broke" in message
    assert on in message and how in message


@pytest.mark.parametrize(
    ("asked", "command"),
    [
        ("describe", ["list"]),
        ("environment", ["measure", "linear"]),
        ("environment", ["doctor"]),
        ("ceilings", ["doctor"]),
        ("ceilings", ["sweep", "x.toml"]),
    ],
)
def test_an_answer_of_another_form_is_an_error_of_the_worker(
    attnbench, workers, tmp_path, asked, command
):
    write_sweep(tmp_path / "x.toml")
    answer = {"describe": '[{"nom": "x"}]', "environment": '{"nom": "x"}', "ceilings": '{"read_gb_s": "x"}'}
    worker = workers.make(**{asked: f"answer '{answer[asked]}'"})
    message = attnbench.with_worker(worker)(*command, code=1).stderr
    assert f"`{worker} {asked}` broke: its answer cannot be read: " in message


@pytest.mark.parametrize("command", [["measure", "softmax"], ["sweep", "x.toml"]])
@pytest.mark.parametrize(
    ("answer", "how"),
    [
        ({"outcome": "failed", "failure_kind": "error", "reason": "no cost"}, "no cost"),
        ({"no_such_column": 1}, "no column 'no_such_column'"),
    ],
)
def test_a_method_that_breaks_while_it_is_planned_is_an_error_that_names_it(
    attnbench, workers, tmp_path, command, answer, how
):
    write_sweep(tmp_path / "x.toml", method="softmax", query_len=32)
    broken = attnbench.with_worker(workers.make(plan=f"answer '{json.dumps(answer)}'"))
    message = broken(*command, code=1).stderr.replace("''", "'")
    assert "method 'softmax' broke" in message
    assert how.replace("'", "") in message.replace("'", "")


def test_help_lists_the_exit_codes_of_the_header(attnbench):
    header = (ROOT / "harness/cli/exit_codes.h").read_text()
    codes = dict(re.findall(r"constexpr int (\w+) = (\d+);", header))
    assert codes == {
        "success": "0", "failure": "1", "usage": "2", "inconclusive": "3", "unusable": "4", "stale": "5",
    }  # fmt: skip
    listed = attnbench("--help").stdout.partition("Exit codes:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == [*codes.values(), "128+n"]
    assert "130" in listed[-1] and "143" in listed[-1]


@pytest.fixture
def closed_pipe():
    """The end of a pipe that can be written to, whose other end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


# What shells and Python's subprocess start has SIGPIPE at its default; what other programs start may ignore it.
@pytest.mark.parametrize("ignores", [False, True])
@pytest.mark.parametrize(
    "words",
    [
        "list", "list columns", "list schema", "list columns --format csv", "--help", "help sweep", "--version",
        "completion bash", "table out", "table out --format json", "analyse out", "sweep small.toml --dry-run",
        "measure linear", "compare out out", "export out", "doctor",
    ],
)  # fmt: skip
def test_a_command_ends_silently_where_nobody_reads_what_it_prints(canned, sweep, closed_pipe, words, ignores):
    canned("sweep", sweep, "--out", "out", "-q")
    ignore = (lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN)) if ignores else None
    done = canned(*words.split(), code=-signal.SIGPIPE, stdout=closed_pipe, preexec_fn=ignore)
    # `compare` says before its table that one process a case decides nothing.
    assert done.stderr == "" or words.startswith("compare") and "write" not in done.stderr and "ipe" not in done.stderr


def test_a_measurement_goes_on_where_nobody_reads_its_progress(canned, sweep, closed_pipe, tmp_path):
    canned("sweep", sweep, "--out", "out", stderr=closed_pipe)
    assert len(records_in(tmp_path / "out")) == 4


# The first output is smaller than a buffer, the second is larger.
@pytest.mark.parametrize("what", ["methods", "columns"])
def test_output_that_cannot_be_written_is_an_error(attnbench, what):
    with open("/dev/full", "w") as full:
        done = attnbench("list", what, code=2, stdout=full, stderr=subprocess.PIPE)
    assert "No space left" in done.stderr
