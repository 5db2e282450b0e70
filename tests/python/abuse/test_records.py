"""Tests of records that are made to do harm, and of folders of records that do not fit together."""

import pytest
from conftest import change_json, change_records


@pytest.mark.parametrize("value", [None, 0, -1])
def test_a_measured_record_without_a_time_is_refused(canned, tmp_path, sweep, value):
    canned("sweep", sweep, "--out", "out")
    change_records(tmp_path / "out", time_median_ms=value)
    for command in (["compare", "out", "out"], ["table", "out"], ["analyse", "out"]):
        message = canned(*command, code=2).stderr
        assert "out/records.jsonl:1: not a record: " in message and "time_median_ms" in message


@pytest.mark.parametrize("version", [99, 0, "4", 1.5])
def test_a_schema_that_this_build_does_not_know_is_refused(canned, tmp_path, sweep, version):
    canned("sweep", sweep, "--out", "out")
    change_records(tmp_path / "out", schema_version=version)
    message = canned("table", "out", code=2).stderr
    assert "records.jsonl:1" in message and "schema_version" in message


@pytest.fixture
def parts(canned, tmp_path, sweep):
    """Two folders of records of one sweep with one method each."""
    for method in ("linear", "softmax"):
        canned("sweep", sweep, "--out", method, "--methods", method, "-q")
    return tmp_path / "linear", tmp_path / "softmax"


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
