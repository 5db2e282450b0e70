"""Tests of the formats of `attnbench export` for dashboards and histories, each read by its own
parser or checked against its schema, and compared with the records."""

import itertools
import json
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import jsonschema
import prometheus_client.openmetrics.parser
import prometheus_client.parser
import pytest
import scipy.stats
from asv import _stats
from asv.benchmarks import Benchmarks
from asv.config import Config
from asv.results import Results
from conftest import HANG_S, ROOT, change_records, finished, records_in, strict_json, write_sweep

USAGE = 2
REPEAT = next((ROOT / "results/repeat").iterdir())
FOLDER = REPEAT / "run-1"

# What bencher.dev/bmf.json says, but with no other members, and names no longer than Bencher takes.
METRIC = {
    "type": "object",
    "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
    "required": ["value"],
    "additionalProperties": False,
}
BENCHER = {
    "$schema": "http://json-schema.org/draft-07/schema",
    "type": "object",
    "propertyNames": {"minLength": 1, "maxLength": 1024},
    "additionalProperties": {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"minLength": 1, "maxLength": 64},
        "additionalProperties": METRIC,
    },
}
# What github-action-benchmark reads: its interface BenchmarkResult.
CUSTOM = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "unit": {"type": "string"},
            "value": {"type": "number"},
            "range": {"type": "string"},
            "extra": {"type": "string"},
        },
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
    },
}


@pytest.fixture
def exported(attnbench):
    """exported(format, words…) is the text that the command prints."""

    def run(form, *words, **options):
        return attnbench("export", *words, f"--format={form}", **options).stdout

    return run


@pytest.fixture
def measured(canned, tmp_path):
    """A folder with a record of one process."""
    sweep = write_sweep(tmp_path / "small.toml", method="linear", query_len=32)
    canned("sweep", sweep, "--out", tmp_path / "out", "-q")
    return tmp_path / "out"


def test_bencher_gets_every_measure_with_its_interval(exported):
    made = strict_json(exported("bencher", FOLDER))
    jsonschema.validate(made, BENCHER)
    records = records_in(FOLDER)
    assert len(made) == len(records), "each case has a name of its own"
    for (name, metrics), record in zip(made.items(), records, strict=True):
        assert name.startswith(f"{record['method']}/{record['protocol']}/query_len:{record['query_len']}/")
        assert metrics["latency"] == {
            "value": pytest.approx(record["time_median_ms"] * 1e6),
            "lower_value": pytest.approx(record["time_ci_low_ms"] * 1e6),
            "upper_value": pytest.approx(record["time_ci_high_ms"] * 1e6),
        }
        assert metrics["throughput"] == {
            "value": pytest.approx(1e3 / record["time_median_ms"]),
            "lower_value": pytest.approx(1e3 / record["time_ci_high_ms"]),
            "upper_value": pytest.approx(1e3 / record["time_ci_low_ms"]),
        }
        assert metrics["memory"] == {"value": record["peak_extra_bytes"]}
        assert metrics["error"] == {"value": record["excess_error"]}
        if record["ratio_median"] is not None:
            ratio = [record[column] for column in ("ratio_median", "ratio_ci_low", "ratio_ci_high")]
            assert list(metrics["baseline-ratio"].values()) == ratio
        if record["quality_row_error_median"] is not None:
            assert metrics["approximation-error"] == {"value": record["quality_row_error_median"]}
    assert any("baseline-ratio" in metrics for metrics in made.values())


def test_a_record_without_an_interval_or_a_measure_has_none(exported, measured):
    change_records(measured, time_ci_low_ms=None, time_ci_high_ms=None, excess_error=None)
    ((_, metrics),) = strict_json(exported("bencher", measured)).items()
    assert list(metrics["latency"]) == list(metrics["throughput"]) == ["value"]
    assert "error" not in metrics and "memory" in metrics
    assert all("range" not in entry for entry in strict_json(exported("github-action-benchmark", measured)))


def test_names_that_bencher_does_not_take_are_refused(attnbench, measured):
    change_records(measured, method="é" * 900)
    (name,) = strict_json(attnbench("export", measured, "--format=bencher").stdout)
    assert "é" * 900 in name, "characters are counted, not bytes"
    change_records(measured, method="x" + "é" * 1100)
    failed = attnbench("export", measured, "--format=bencher", code=USAGE).stderr
    assert "characters, expected at most 1024" in failed
    assert "éé… has" in failed and "\ufffd" not in failed, "the name is cut between characters"


def test_an_action_gets_what_is_better_when_smaller(exported):
    made = strict_json(exported("github-action-benchmark", FOLDER))
    jsonschema.validate(made, CUSTOM)
    entries = {entry["name"]: entry for entry in made}
    assert len(entries) == len(made), "each entry has a name of its own"
    assert not any("throughput" in name for name in entries)
    for (name, metrics), record in zip(strict_json(exported("bencher", FOLDER)).items(), records_in(FOLDER), strict=True):
        of_case = {entry.removeprefix(name + " "): value for entry, value in entries.items() if entry.startswith(name + " ")}
        assert of_case.keys() == (metrics.keys() - {"latency", "throughput"}) | {"time"}
        assert (of_case["time"]["value"], of_case["time"]["unit"]) == (pytest.approx(record["time_median_ms"]), "ms")
        low, high = record["time_ci_low_ms"], record["time_ci_high_ms"]
        assert of_case["time"]["range"] == f"95 % interval {low:.4g} to {high:.4g}"
        assert f"cpu_model: {record['cpu_model']}\n" in of_case["time"]["extra"]
        assert (of_case["memory"]["value"], of_case["memory"]["unit"]) == (record["peak_extra_bytes"], "bytes")


def samples_of(text):
    """The samples of OpenMetrics text, as the parser of Prometheus's own library reads them, by name and case."""
    families = list(prometheus_client.openmetrics.parser.text_string_to_metric_families(text))
    found = {}
    for family in families:
        assert family.type == "gauge" and family.documentation
        for sample in family.samples:
            assert sample.timestamp is None, "the textfile collector refuses timestamps"
            key = (sample.name, *(sample.labels.get(axis) for axis in AXES))
            assert key not in found or "info" in sample.name
            found[key] = sample
    older = [s for family in prometheus_client.parser.text_string_to_metric_families(text) for s in family.samples]
    assert len(older) == sum(len(family.samples) for family in families), "the older text format reads it, too"
    return found


AXES = ("method", "protocol", "query_len", "threads", "causal", "batch", "heads")
GAUGES = {
    "attnbench_time_seconds": ("time_median_ms", 1e-3),
    "attnbench_time_low_seconds": ("time_ci_low_ms", 1e-3),
    "attnbench_time_high_seconds": ("time_ci_high_ms", 1e-3),
    "attnbench_baseline_ratio": ("ratio_median", 1),
    "attnbench_baseline_low_ratio": ("ratio_ci_low", 1),
    "attnbench_baseline_high_ratio": ("ratio_ci_high", 1),
    "attnbench_memory_bytes": ("peak_extra_bytes", 1),
    "attnbench_error_ratio": ("excess_error", 1),
    "attnbench_approximation_error_ratio": ("quality_row_error_median", 1),
}


def test_prometheus_reads_a_gauge_for_each_measure(exported):
    samples = samples_of(exported("openmetrics", FOLDER))
    records = records_in(FOLDER)
    seen = dict.fromkeys(GAUGES, 0)
    for record in records:
        # A label is missing where its axis has the default.
        of_case = {name: s for (name, *_), s in samples.items()
                   if all(s.labels.get(a) == str(record[a]) for a in ("method", "protocol", "query_len", "threads"))
                   and s.labels.get("causal", "false") == str(record["causal"] and record["protocol"] != "decode").lower()
                   and s.labels.get("batch", "1") == str(record["batch"]) and s.labels.get("heads", "8") == str(record["heads"])}  # fmt: skip
        for gauge, (column, factor) in GAUGES.items():
            assert (gauge in of_case) == (record[column] is not None), gauge
            if gauge in of_case:
                seen[gauge] += 1
                assert of_case[gauge].value == pytest.approx(record[column] * factor)
        finished = datetime.fromisoformat(record["finished_at"]).timestamp()
        assert of_case["attnbench_finished_timestamp_seconds"].value == finished
        assert of_case["attnbench_throughput_calls"].value == pytest.approx(1e3 / record["time_median_ms"])
    assert all(seen.values()), seen
    (environment,) = [s for (name, *_), s in samples.items() if name == "attnbench_environment_info"]
    assert environment.labels["cpu_model"] == records[0]["cpu_model"] and environment.value == 1


def test_labels_hold_any_text(exported, attnbench, measured):
    method = 'a"b\\c{d="e"} \u00e9 # EOF'
    change_records(measured, method=method + "\nx")
    (sample,) = [s for (name, *_), s in samples_of(exported("openmetrics", measured)).items() if name == "attnbench_time_seconds"]
    assert sample.labels["method"] == method + " x"
    change_records(measured, finished_at="yesterday")
    failed = attnbench("export", measured, "--format=openmetrics", code=USAGE).stderr
    assert "was finished at 'yesterday', expected a date such as" in failed


@pytest.fixture
def history(attnbench, tmp_path):
    """A repository for asv with two commits, each with the results of a run: its folder, and the commits."""
    folder = tmp_path / "history"
    folder.mkdir()

    def git(*words):
        return finished("git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words).strip()

    git("init", "-q", "-b", "main")
    config = {"version": 1, "project": "x", "repo": ".", "branches": ["main"], "results_dir": "results", "html_dir": "html"}
    (folder / "asv.conf.json").write_text(json.dumps(config))
    commits = []
    for run in ("run-1", "run-2"):
        git("commit", "-q", "--allow-empty", "-m", run)
        commits.append(git("rev-parse", "HEAD"))
        attnbench("export", REPEAT / run, "--format=asv", "--out", folder / "results", "--commit", commits[-1],
                  "--commit-time", git("log", "-1", "--format=%ct"))  # fmt: skip
    return folder, commits


def asv(folder, *words):
    program = Path(sys.executable).with_name("asv")
    done = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def values_of(result, benchmarks, record, measure):
    """The result and the statistics of a record that asv has loaded."""
    name = f"{record['method']}.{record['protocol']}.{measure}"
    params = benchmarks[name]["params"]
    case = [i for i, words in enumerate(params[1]) if ("causal:true" in words) == (record["causal"] and record["protocol"] != "decode")
            and (f"batch:{record['batch']}/" in words) == (record["batch"] != 1)
            and (f"heads:{record['heads']}/" in words) == (record["heads"] != 8)]  # fmt: skip
    place = params[0].index(str(record["query_len"])) * len(params[1]) + case[0]
    assert len(case) == 1
    return (result.get_result_value(name, params)[place], result.get_result_stats(name, params)[place],
            result.get_result_samples(name, params)[place])  # fmt: skip


def test_asv_loads_every_measure(history):
    folder, commits = history
    benchmarks = Benchmarks.load(Config.from_json({**json.loads((folder / "asv.conf.json").read_text()),
                                                   "results_dir": str(folder / "results")}))  # fmt: skip
    (machine,) = [path for path in (folder / "results").iterdir() if path.is_dir()]
    assert machine.name == REPEAT.name
    for commit, run in zip(commits, ("run-1", "run-2"), strict=True):
        (path,) = machine.glob(f"{commit[:8]}-*.json")
        result = Results.load(str(path), machine_name=machine.name)
        assert result.commit_hash == commit
        for record in records_in(REPEAT / run):
            value, statistics, samples = values_of(result, benchmarks, record, "time")
            medians = sorted(ms * 1e-3 for ms in record["process_medians_ms"])
            assert value == pytest.approx(record["time_median_ms"] / 1e3)
            assert samples == [ms * 1e-3 for ms in record["process_medians_ms"]]
            # As many values are left out at each end as fewer heads of n coins have a probability of at most 0.5 %.
            left_out = sum(scipy.stats.binom.cdf(k, len(medians), 0.5) <= 0.005 for k in range(len(medians)))
            assert len(medians) >= 8 and left_out >= 1
            assert (statistics["ci_99_a"], statistics["ci_99_b"]) == (medians[left_out - 1], medians[-left_out])
            assert values_of(result, benchmarks, record, "memory")[0] == record["peak_extra_bytes"]
            assert values_of(result, benchmarks, record, "error")[0] == record["excess_error"]
            # asv has times of day in milliseconds; a benchmark has that of its last case.
            name = f"{record['method']}.{record['protocol']}.time"
            of_benchmark = [r for r in records_in(REPEAT / run) if (r["method"], r["protocol"]) == (record["method"], record["protocol"])]
            last = max(datetime.fromisoformat(r["finished_at"]) for r in of_benchmark)
            assert result.started_at[name] == last.timestamp() * 1000


def test_asv_has_a_value_for_each_setting(attnbench, history, tmp_path):
    folder, _ = history
    one = next(r for r in records_in(FOLDER) if r["outcome"] == "measured")
    runs = tmp_path / "settings"
    runs.mkdir()
    settings = [one | {"heads": heads, "kv_heads": heads, "value_heads": heads, "query_len": n, "key_len": n, "time_median_ms": heads + n / 1000}
                for heads in (3, 5) for n in (64, 128)]  # fmt: skip
    (runs / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in settings[:3]))
    attnbench("export", runs, "--format=asv", "--out", tmp_path / "results", "--commit", "a" * 40, cwd=folder)
    (path,) = (tmp_path / "results").glob("*/aaaaaaaa-*.json")
    values, parameters = json.loads(path.read_text())["results"][f"{one['method']}.{one['protocol']}.time"][:2]
    assert parameters[0] == ["64", "128"]
    heads = [re.search(r"heads:(\d+)", rest)[1] for rest in parameters[1]]
    found = {(n, h): value for (n, h), value in zip(itertools.product(parameters[0], heads), values, strict=True)}
    expected = {(str(r["query_len"]), str(r["heads"])): r["time_median_ms"] / 1000 for r in settings[:3]} | {("128", "5"): None}
    assert found == pytest.approx(expected)


def test_asv_compares_and_publishes_commits(history):
    folder, commits = history
    (machine,) = [path.name for path in (folder / "results").iterdir() if path.is_dir()]
    table = asv(folder, "compare", "--machine", machine, *commits)
    rows = [line for line in table.splitlines() if "time(" in line]
    assert len(rows) == len(records_in(FOLDER))
    asv(folder, "publish")
    index = json.loads((folder / "html/index.json").read_text())
    assert set(index["machines"]) == {machine} and len(index["revision_to_hash"]) == 2
    assert any((folder / "html/graphs").rglob("linear.forward.time.json"))


def test_asv_finds_a_change_only_with_enough_processes(attnbench, history, tmp_path):
    """Times that are all three times as long are a change for asv, but not if they are of four processes."""
    folder, _ = history
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    for count, verdict in ((12, True), (4, False)):
        for factor, commit in ((1, "a" * 40), (3, "b" * 40)):
            records = [r | {"time_median_ms": r["time_median_ms"] * factor,
                            "process_medians_ms": [ms * factor for ms in r["process_medians_ms"][:count]]}
                       for r in records_in(FOLDER) if len(r["process_medians_ms"]) >= 12]  # fmt: skip
            (fewer / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
            attnbench("export", fewer, "--format=asv", "--out", folder / "results", "--commit", commit)
        loaded = {path.name[0]: Results.load(str(path)) for path in (folder / "results").rglob("*-attnbench-*.json")
                  if path.name.startswith(("aaaaaaaa", "bbbbbbbb"))}  # fmt: skip
        benchmarks = json.loads((folder / "results/benchmarks.json").read_text())
        found = []
        for record in records:
            (_, before, old), (_, after, new) = (values_of(loaded[c], benchmarks, record, "time") for c in "ab")
            found.append(_stats.is_different(old, new, before, after))
        assert found == [verdict] * len(records)


def test_a_folder_of_asv_keeps_what_others_wrote(attnbench, history, tmp_path):
    folder, _ = history
    path = folder / "results/benchmarks.json"
    benchmarks = json.loads(path.read_text())
    name = "linear.forward.time"
    own = {"name": "suite.time_other", "params": [], "param_names": [], "version": "5", "type": "time", "unit": "seconds"}
    benchmarks["suite.time_other"] = own
    benchmarks[name]["params"][0].insert(0, "77")
    path.write_text(json.dumps(benchmarks))
    words = ("export", FOLDER, "--format=asv", "--out", folder / "results", "--commit")
    attnbench(*words, "c" * 40)
    after = json.loads(path.read_text())
    assert after["suite.time_other"] == own and after[name]["params"] == benchmarks[name]["params"]
    for content in ("[]", '{"version": 1}', "{", '{"version": 2, "a": ' + "[" * 100 + "]" * 100 + "}"):
        path.write_text(content)
        assert "benchmarks.json" in attnbench(*words, "c" * 40, code=USAGE).stderr
        assert path.read_text() == content, "nothing is lost"
    for commit in ("c" * 12, "HEAD", "g" * 40):
        assert "expected its 40 hexadecimal digits" in attnbench(*words, commit, code=USAGE).stderr
    assert "expected --out with the results_dir" in attnbench("export", FOLDER, "--format=asv", code=USAGE).stderr
    failed = attnbench("export", FOLDER, "--format=bencher", "--commit", "c" * 40, code=USAGE).stderr
    assert "--commit is for the format asv" in failed


def test_control_characters_of_a_record_stay_out(exported, measured):
    change_records(measured, method="a\x1b[31mb\nc", cpu_model="x\x07\u202ey")
    for form in ("bencher", "github-action-benchmark", "openmetrics"):
        text = exported(form, measured)
        assert not re.search(r"\\u001b|\\u0007|\\u202e|[\x1b\x07\u202e]", text), form
        assert "a [31mb c" in text


def test_an_option_of_another_format_is_refused(attnbench):
    failed = attnbench("export", FOLDER, "--format=bencher", "--aggregates-only", code=USAGE).stderr
    assert "--aggregates-only is for the format google-benchmark, found --format bencher" in failed
