"""Tests of attnbench.records, which reads records as a pandas data frame: those that are committed in results/, and changed ones."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from conftest import HANG_S, ROOT, change_json, change_records, finished, records_in, results_of, strict_json

import attnbench

FIGURE1 = results_of("figure1")
METHODS = results_of("methods")
REPEAT = ROOT / "results/repeat"


@pytest.fixture
def copy(tmp_path):
    """A folder with a copy of records, which a test may change."""
    folder = tmp_path / "records"
    shutil.copytree(FIGURE1, folder, ignore=shutil.ignore_patterns("figure1*"))
    return folder


def test_a_folder_has_a_row_for_each_record_with_its_values():
    frame = attnbench.records(FIGURE1)
    rows = records_in(FIGURE1)
    assert len(frame) == len(rows)
    for name in ("method", "query_len", "causal", "outcome", "time_median_ms", "peak_allocated_bytes", "reason"):
        found = [None if pd.isna(value) else value for value in frame[name]]
        assert found == [row[name] for row in rows], name
    measured = next(i for i, row in enumerate(rows) if row["outcome"] == "measured")
    assert frame["time_samples_ms"][measured] == rows[measured]["time_samples_ms"]


def test_columns_have_the_types_of_the_schema(build):
    frame = attnbench.records(FIGURE1)
    schema = strict_json(finished(build / "attnbench", "list", "schema"))
    assert list(frame.columns) == ["folder"] + [column["name"] for column in schema["columns"]]
    dtypes = {"text": "string", "integer": "Int64", "number": "float64", "boolean": "boolean"}
    for column in schema["columns"]:
        assert str(frame[column["name"]].dtype) == dtypes.get(column["type"], "object"), column["name"]


def test_a_data_frame_of_records_can_be_grouped_and_pivoted():
    frame = attnbench.records(FIGURE1)
    measured = frame[frame["outcome"] == "measured"]
    table = measured.pivot_table(index="query_len", columns="method", values="time_per_sample_ms")
    assert np.isfinite(table.loc[512, "linear"]) and {"softmax", "linear"} <= set(table.columns)


def test_several_folders_are_joined_and_each_row_says_where_it_is_from():
    frame = attnbench.records(FIGURE1, METHODS)
    assert list(frame["folder"].unique()) == [str(FIGURE1), str(METHODS)]
    assert len(frame) == len(attnbench.records(FIGURE1)) + len(attnbench.records(METHODS))
    assert list(frame.index) == list(range(len(frame)))


def test_a_folder_without_records_stands_for_those_below_it():
    frame = attnbench.records(str(REPEAT))
    assert sorted(path.rpartition("/")[2] for path in frame["folder"].unique()) == ["run-1", "run-2"]


def test_a_folder_with_records_stands_for_itself_alone(copy):
    shutil.copytree(results_of("repeat", "run-1/"), copy / "older")
    assert set(attnbench.records(copy)["folder"]) == {str(copy)}


def test_the_environment_of_each_folder_is_there():
    frame = attnbench.records(FIGURE1, METHODS)
    environment = frame.attrs["environments"][str(METHODS)]
    assert environment["sweep"] == "methods" and environment["ceilings"]["threads"] == 2
    assert set(frame.attrs["environments"]) == {str(FIGURE1), str(METHODS)}


def test_what_a_record_does_not_say_of_its_environment_comes_from_the_folder(copy):
    change_records(copy, cpu_model=None, revision="0123abcd")
    change_json(copy / "environment.json", lambda e: e["environment"].update(cpu_model="A processor", revision="other"))
    frame = attnbench.records(copy)
    assert set(frame["cpu_model"]) == {"A processor"}
    assert set(frame["revision"]) == {"0123abcd"}


def test_an_imported_record_does_not_take_the_environment_of_the_folder(copy):
    change_records(copy, cpu_model=None, external_source="a paper")
    frame = attnbench.records(copy)
    assert frame["cpu_model"].isna().all()
    assert frame["method"].str.endswith(" (external)").all()


def test_a_folder_without_an_environment_can_be_read(copy):
    (copy / "environment.json").unlink()
    assert attnbench.records(copy).attrs["environments"] == {str(copy): {}}


def test_the_last_record_of_a_case_counts(copy):
    lines = (copy / "records.jsonl").read_text().splitlines()
    again = json.loads(lines[0]) | {"time_median_ms": 123456.5}
    (copy / "records.jsonl").write_text("\n".join([*lines, json.dumps(again)]) + "\n")
    frame = attnbench.records(copy)
    assert len(frame) == len(lines) and frame["time_median_ms"][0] == 123456.5


def test_texts_keep_characters_that_a_figure_cannot_show(copy):
    change_records(copy, reason="残り\x1b[31m")
    assert set(attnbench.records(copy)["reason"]) == {"残り\x1b[31m"}


# ---------------------------------------------------------------- errors


def test_a_missing_folder_is_an_error_that_names_it():
    with pytest.raises(FileNotFoundError, match="results/figure2: no such folder; expected a folder of records"):
        attnbench.records(FIGURE1, "results/figure2")


def test_a_folder_without_any_records_is_an_error_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}: neither this folder nor one below it has a file records"):
        attnbench.records(tmp_path)


def test_no_folder_is_an_error():
    with pytest.raises(TypeError, match=r"records\(\) needs at least one folder"):
        attnbench.records()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"method": 3}\n', "records.jsonl:2: not a record: column method = 3, expected text"),
        ("{\n", "records.jsonl:2:2: not a record: syntax error"),
    ],
)
def test_a_line_that_is_no_record_is_an_error_that_names_file_and_line(copy, line, message):
    first = (copy / "records.jsonl").read_text().splitlines(keepends=True)[0]
    (copy / "records.jsonl").write_text(first + line)
    with pytest.raises(ValueError) as caught:
        attnbench.records(copy)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_an_environment_that_cannot_be_read_is_an_error_that_names_it(copy, text):
    (copy / "environment.json").write_text(text)
    with pytest.raises(ValueError, match=r"environment\.json: expected a JSON object"):
        attnbench.records(copy)


def test_records_are_read_without_torch_and_without_matplotlib():
    program = (
        "import sys\nsys.modules['matplotlib'] = sys.modules['torch'] = None\n"
        f"import attnbench\nprint(len(attnbench.records({str(FIGURE1)!r})))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0 and int(done.stdout) == len(records_in(FIGURE1)), done.stderr
