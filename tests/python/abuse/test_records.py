"""Tests of records that are made to do harm, and of folders of records that do not fit together."""

import pytest
from conftest import change_json, change_records


@pytest.fixture
def parts(canned, tmp_path, sweep):
    """Two folders of records of one sweep with one method each."""
    for method in ("linear", "softmax"):
        canned("sweep", sweep, "--out", method, "--methods", method, "-q")
    return tmp_path / "linear", tmp_path / "softmax"


@pytest.mark.parametrize("value", [None, 0, -1])
def test_a_measured_record_without_a_time_is_refused(canned, tmp_path, sweep, value):
    canned("sweep", sweep, "--out", "out")
    change_records(tmp_path / "out", time_median_ms=value)
    for command in (["compare", "out", "out"], ["table", "out"], ["analyse", "out"]):
        message = canned(*command, code=2).stderr
        assert "out/records.jsonl:1: not a record: " in message and "time_median_ms" in message


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("time_samples_ms", [1.0, None, 2.0], "time_samples_ms[1] = null, expected a number above 0"),
        ("process_medians_ms", [1.0, -1.0], "process_medians_ms[1] = -1.0, expected a number above 0"),
        ("process_medians_ms", [1.0] * 1001, "process_medians_ms has 1001 values, expected at most 1000"),
        ("query_len", None, "it has no query_len"),
        ("query_len", "many", "query_len"),
        ("diagnostics", {"a": [1]}, "diagnostics"),
    ],
)
def test_columns_that_statistics_cannot_use_are_refused(canned, tmp_path, sweep, column, value, said):
    canned("sweep", sweep, "--out", "out")
    change_records(tmp_path / "out", **{column: value})
    message = canned("compare", "out", "out", code=2).stderr
    assert "out/records.jsonl:1: not a record: " in message and said in message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"outcome": }', ":2:13: not a record: syntax error"),
        ("[" * 65 + "]" * 65, ":2: not a record: JSON nested deeper than 64 levels"),
        ("[" * 64 + "]" * 64, ":2: not a record: a record is array"),
        ("[" * 300_000, ":2: not a record: JSON nested deeper than 64 levels"),
        ('{"batch": 1e999}', ":2: not a record: number overflow"),
        ("\x00\xff", ":2:1: not a record: syntax error"),
    ],
)
def test_lines_that_are_not_json_are_refused(canned, tmp_path, sweep, line, said):
    canned("sweep", sweep, "--out", "out")
    log = tmp_path / "out/records.jsonl"
    lines = log.read_bytes().splitlines()
    lines[1] = line.encode("latin-1")
    log.write_bytes(b"\n".join(lines) + b"\n")
    message = canned("table", "out", code=2).stderr
    assert f"out/records.jsonl{said}" in message and "json.exception" not in message and len(message) < 3000


@pytest.mark.parametrize("command", ["compare out out", "analyse out", "table out"])
def test_numbers_of_any_size_can_be_analysed(canned, tmp_path, sweep, command):
    canned("sweep", sweep, "--out", "out")
    log = (tmp_path / "out/records.jsonl").read_bytes()
    numbers = {"number": (None, 0, -1, 1e308, 1e-308), "integer": (None, 0, -1, 2**53)}
    columns = [c for c in canned.json("list", "columns") if c["group"] in ("time", "memory", "agreement", "prediction")]
    for column in columns:
        for value in numbers.get(column["type"], ()):
            (tmp_path / "out/records.jsonl").write_bytes(log)
            change_records(tmp_path / "out", **{column["name"]: value})
            usable = column["name"] != "time_median_ms" or (value or 0) > 0
            canned(*command.split(), "--format=json", code=0 if usable else 2)


@pytest.mark.parametrize("text", ["[" * 300_000, '{"environment": ' + "[" * 300_000, "5", '{"environment": 5}', '{"settings": []}'])
@pytest.mark.parametrize("command", ["sweep small.toml --out linear", "merge linear softmax --out all"])
def test_a_hostile_environment_is_refused(canned, parts, command, text):
    (parts[0] / "environment.json").write_text(text)
    message = canned(*command.split(), code=2).stderr
    assert "linear/environment.json: " in message and "remove the file" in message


@pytest.mark.parametrize("version", [99, 0, "4", 1.5])
def test_a_schema_that_this_build_does_not_know_is_refused(canned, tmp_path, sweep, version):
    canned("sweep", sweep, "--out", "out")
    change_records(tmp_path / "out", schema_version=version)
    message = canned("table", "out", code=2).stderr
    assert "records.jsonl:1" in message and "schema_version" in message


@pytest.mark.parametrize("part", ["environment", "settings"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_part_without_provenance_is_refused_in_either_order(canned, parts, part, order):
    change_json(parts[1] / "environment.json", lambda data: data.pop(part))
    message = canned("merge", *parts[::order], "--out", "all", code=2).stderr
    assert "was not measured like" in message


def test_records_that_differ_from_their_environment_are_refused(canned, parts):
    change_records(parts[1], cpu_model="another")
    message = canned("merge", *parts, "--out", "all", code=2).stderr
    assert "softmax has records that were not measured as its environment.json says" in message
    assert 'cpu_model: ' in message and '"another" in a record' in message


def test_a_shard_that_is_a_number_is_refused(canned, parts):
    change_json(parts[0] / "environment.json", lambda data: data.update(shard=5))
    assert "shard = 5, expected text" in canned("merge", *parts, "--out", "all", code=2).stderr
