"""Tests that the plots follow the schema of the records: axes that were added to it, and former
names of columns."""

import json

import pytest
from test_plots import curves, measured, records, refusal, run, schema, write

WINDOW = {"name": "window", "type": "integer", "unit": "", "description": "keys that a query sees"}
SIZE = {"kind": "size", "default": 64, "before": None, "follows": None}


def packaged_schema():
    """The copy of the schema in the package of the plots."""
    return json.loads(schema.COPY.read_text("utf-8"))


def with_axis(**axis):
    """The schema with the axis `window` added; `axis` replaces keys of its declaration."""
    data = packaged_schema()
    data["axes"].append(WINDOW | SIZE | axis)
    data["columns"].append(WINDOW | {"group": "case"} | axis)
    return data


def folder_with(path, rows, data):
    """Writes a folder of these records with this schema beside them."""
    write(path, rows)
    (path / "schema.json").write_text(json.dumps(data), "utf-8")
    return path


def titles(folder):
    """The titles of the rows of panels that the records are split into."""
    return [row.title for row in curves.split_rows(records.load(folder))]


def test_the_copy_in_the_package_is_the_schema_of_the_build(attnbench):
    # The plots do not read the methods' diagnostics, so a new method does not make the copy out of
    # date.
    def without_diagnostics(data):
        return {key: value for key, value in data.items() if key != "diagnostics"}

    built = attnbench.json("list", "schema")
    assert without_diagnostics(packaged_schema()) == without_diagnostics(built), (
        f"run `build/attnbench list schema > {schema.COPY}`"
    )


def test_values_of_an_added_axis_are_separate_cases_in_separate_rows(tmp_path):
    rows = [measured(n=n, ms=w * n, window=w) for w in (64, 128) for n in (512, 1024)]
    folder = folder_with(tmp_path / "set", rows, with_axis())
    assert len(records.load(folder)) == 4
    assert titles(folder) == ["Forward · window 64", "Forward · window 128"]
    assert run("figure1", folder).returncode == 0


def test_an_added_axis_may_be_boolean_or_text(tmp_path):
    rows = [measured(gated=True), measured(gated=False)]
    folder = folder_with(tmp_path / "flag", rows, with_axis(name="gated", type="boolean"))
    assert titles(folder) == ["Forward · not gated", "Forward · gated"]
    rows = [measured(gate_kind="soft"), measured(gate_kind="hard")]
    folder = folder_with(tmp_path / "text", rows, with_axis(name="gate_kind", type="text"))
    assert titles(folder) == ["Forward · gate kind hard", "Forward · gate kind soft"]


def test_an_added_length_splits_rows_only_if_a_query_len_occurs_twice(tmp_path):
    length_axis = with_axis(kind="length")
    rows = [measured(n=n, window=n // 4) for n in (512, 1024)]
    assert titles(folder_with(tmp_path / "along", rows, length_axis)) == ["Forward"]
    rows += [measured(n=512, window=64)]
    found = titles(folder_with(tmp_path / "repeated", rows, length_axis))
    assert found == ["Forward · window 64", "Forward · window 128", "Forward · window 256"]


def test_records_older_than_an_axis_get_its_former_value(tmp_path):
    rows = [measured(ms=1.0), measured(ms=2.0, window=64), measured(window=128)]
    folder = folder_with(tmp_path / "set", rows, with_axis(before=64))
    loaded = records.load(folder)
    assert [(r["window"], r["time_per_sample_ms"]) for r in loaded] == [(64, 2.0), (128, 1.0)]


@pytest.mark.parametrize(
    ("former", "current"),
    [
        ("linear:kernel=avx2", "linear:implementation=avx2"),
        ("favor:chunk=7,kernel=composed", "favor:composed_chunk=7,implementation=composed"),
        ("lsh:chunk=8,kernel=avx2", "lsh:chunk=8,implementation=avx2"),
        ("linear", "linear"),
        ("linear-chunked:chunk=7", "linear-chunked:chunk=7"),
        ("mine.py:f:kernel=3", "mine.py:f:kernel=3"),
    ],
)
def test_options_of_methods_have_their_current_names(tmp_path, former, current):
    rows = [measured() | {"method": former, "baseline": f"{former} query_len=512"}]
    (record,) = records.load(write(tmp_path / "former", rows))
    assert record["method"] == current and record["baseline"] == f"{current} query_len=512"


def test_a_column_that_is_not_in_the_schema_is_an_error_that_names_it(tmp_path):
    rows = [measured(), measured(window=64), measured(window=128)]
    error = refusal("figure1", write(tmp_path / "without", rows))
    assert "records.jsonl:2: " in error and "`window`" in error and str(schema.COPY) in error
    folder = folder_with(tmp_path / "with", rows, packaged_schema())
    assert str(folder / "schema.json") in refusal("figure1", folder)
    nothing = write(tmp_path / "null", [measured(window=None)])
    assert len(records.load(nothing)) == 1, "an unknown column without a value is no error"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "as `attnbench list schema` prints it"),
        ("{", "as `attnbench list schema` prints it"),
        ("[]", "as `attnbench list schema` prints it"),
        ('{"axes": []}', "columns"),
        (json.dumps(with_axis(type="tensor")), "tensor"),
        (json.dumps(packaged_schema() | {"axes": []}), "expected an axis `method`"),
    ],
)
def test_an_invalid_schema_is_an_error_that_names_the_file(tmp_path, text, said):
    folder = write(tmp_path / "set", [measured()])
    (folder / "schema.json").write_text(text)
    error = refusal("figure1", folder)
    assert str(folder / "schema.json") in error and said in error


def test_renamed_columns_get_their_new_names(tmp_path):
    old = {"lsh_bucket_mean": 12.5, "rff_least_denominator": None, "gpu_clock_least_mhz": 1200}
    new = {"diagnostics": {"lsh_bucket_mean": 3.0, "lsh_bucket_skew": 2}}
    rows = [measured(**old), measured(n=1024, **new), measured(n=2048, **old, **new)]
    first, second, both = records.load(write(tmp_path / "set", rows))
    assert first["diagnostics"] == {"lsh_bucket_mean": 12.5}
    assert first["gpu_clock_min_mhz"] == 1200
    assert not set(old) & set(first)
    assert second["diagnostics"] == both["diagnostics"] == new["diagnostics"]
    assert run("figure1", tmp_path / "set").returncode == 0
