"""Tests of the schema of records in the plots: axes unknown to them, and former names."""

import json

import pytest
from test_plots import PLOTS, curves, measured, records, refusal, run, schema, write

WINDOW = {"name": "window", "type": "integer", "unit": "", "description": "keys that a query sees"}
SIZE = {"kind": "size", "default": 64, "before": None, "follows": None}


def shipped():
    return json.loads(schema.COPY.read_text("utf-8"))


def with_axis(**axis):
    """The schema with an additional axis."""
    data = shipped()
    data["axes"].append(WINDOW | SIZE | axis)
    data["columns"].append(WINDOW | {"group": "case"} | axis)
    return data


def folder_with(path, rows, data):
    write(path, rows)
    (path / "schema.json").write_text(json.dumps(data), "utf-8")
    return path


def titles(folder):
    return [row.title for row in curves.split_rows(records.load(folder))]


def test_the_copy_in_the_package_is_the_schema_of_the_build(attnbench):
    # The copy lists no diagnostics, which the plots do not read, so that a new method does not
    # make it out of date.
    expected = attnbench.json("list", "schema") | {"diagnostics": []}
    assert shipped() == expected, (
        f"write `attnbench list schema` to {schema.COPY}, with an empty list of diagnostics"
    )


def test_an_axis_that_was_added_makes_two_cases(tmp_path):
    rows = [measured(n=n, ms=w * n, window=w) for w in (64, 128) for n in (512, 1024)]
    folder = folder_with(tmp_path / "set", rows, with_axis())
    assert len(records.load(folder)) == 4
    assert titles(folder) == ["Forward · window 64", "Forward · window 128"]
    assert run(PLOTS / "figure1.py", folder).returncode == 0


def test_an_added_axis_may_be_a_flag_or_a_text(tmp_path):
    rows = [measured(gated=True), measured(gated=False)]
    folder = folder_with(tmp_path / "flag", rows, with_axis(name="gated", type="boolean"))
    assert titles(folder) == ["Forward · not gated", "Forward · gated"]
    rows = [measured(gate_kind="soft"), measured(gate_kind="hard")]
    folder = folder_with(tmp_path / "text", rows, with_axis(name="gate_kind", type="text"))
    assert titles(folder) == ["Forward · gate kind hard", "Forward · gate kind soft"]


def test_an_added_length_splits_only_where_a_length_is_repeated(tmp_path):
    along = with_axis(kind="length")
    rows = [measured(n=n, window=n // 4) for n in (512, 1024)]
    assert titles(folder_with(tmp_path / "along", rows, along)) == ["Forward"]
    rows += [measured(n=512, window=64)]
    found = titles(folder_with(tmp_path / "repeated", rows, along))
    assert found == ["Forward · window 64", "Forward · window 128", "Forward · window 256"]


def test_records_from_before_an_axis_have_its_value_of_then(tmp_path):
    rows = [measured(ms=1.0), measured(ms=2.0, window=64), measured(window=128)]
    folder = folder_with(tmp_path / "set", rows, with_axis(before=64))
    loaded = records.load(folder)
    assert [(r["window"], r["time_per_sample_ms"]) for r in loaded] == [(64, 2.0), (128, 1.0)]


def test_a_column_that_the_schema_has_not_is_named(tmp_path):
    rows = [measured(), measured(window=64), measured(window=128)]
    error = refusal(PLOTS / "figure1.py", write(tmp_path / "without", rows))
    assert "records.jsonl:2: " in error and "`window`" in error and str(schema.COPY) in error
    folder = folder_with(tmp_path / "with", rows, shipped())
    assert str(folder / "schema.json") in refusal(PLOTS / "figure1.py", folder)
    nothing = write(tmp_path / "null", [measured(window=None)])
    assert len(records.load(nothing)) == 1, "a column without a value tells nothing apart"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "as `attnbench list schema` prints it"),
        ("{", "as `attnbench list schema` prints it"),
        ("[]", "as `attnbench list schema` prints it"),
        ('{"axes": []}', "columns"),
        (json.dumps(with_axis(type="tensor")), "tensor"),
        (json.dumps(shipped() | {"axes": []}), "expected an axis `method`"),
    ],
)
def test_a_schema_that_cannot_be_read_is_named(tmp_path, text, said):
    folder = write(tmp_path / "set", [measured()])
    (folder / "schema.json").write_text(text)
    error = refusal(PLOTS / "figure1.py", folder)
    assert str(folder / "schema.json") in error and said in error


def test_columns_that_were_renamed_have_their_new_names(tmp_path):
    old = {"lsh_bucket_mean": 12.5, "rff_least_denominator": None, "gpu_clock_least_mhz": 1200}
    new = {"diagnostics": {"lsh_bucket_mean": 3.0, "lsh_bucket_skew": 2}}
    rows = [measured(**old), measured(n=1024, **new), measured(n=2048, **old, **new)]
    first, second, both = records.load(write(tmp_path / "set", rows))
    assert first["diagnostics"] == {"lsh_bucket_mean": 12.5}
    assert first["gpu_clock_min_mhz"] == 1200
    assert not set(old) & set(first)
    assert second["diagnostics"] == both["diagnostics"] == new["diagnostics"]
    assert run(PLOTS / "figure1.py", tmp_path / "set").returncode == 0
