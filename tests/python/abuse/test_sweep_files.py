"""Tests of sweep files and settings that are made to do harm."""

import pytest
from conftest import write_sweep


def sweep_with(tmp_path, text):
    path = tmp_path / "hostile.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 300_000 + " = 1\n",
        "[axes]\nquery_len = " + "[" * 200_000 + "]" * 200_000 + "\n",
        "[axes]\nmethod = " + "{a = " * 50_000 + "1" + "}" * 50_000 + "\n",
    ],
    ids=["dotted key", "arrays", "inline tables"],
)
def test_deep_toml_is_refused(canned, tmp_path, text):
    message = canned("sweep", sweep_with(tmp_path, text), "--dry-run", code=2).stderr
    assert "nested deeper than 64 levels" in message and "hostile.toml:" in message


def test_dots_and_brackets_inside_text_are_not_nesting(canned, tmp_path):
    text = "." * 100 + "[" * 100 + "'" + "\\\\\\\" # "
    path = write_sweep(tmp_path / "s.toml", description="a")
    path.write_text(path.read_text().replace('"a"', f'"{text}"', 1))
    assert "4 cases" in canned("sweep", path, "--dry-run").stdout


def test_long_toml_is_refused(canned, tmp_path):
    text = "[axes]\nquery_len = [" + "1, " * 5_000_000 + "1]\n"
    message = canned("sweep", sweep_with(tmp_path, text), "--dry-run", code=2).stderr
    assert "hostile.toml: longer than 1048576 bytes" in message


def test_a_setting_of_several_lines_sets_nothing_else(canned, sweep):
    message = canned("sweep", sweep, "--dry-run", "--set", "query_len=64\nx=1", code=2).stderr
    assert "--set query_len" in message


def test_a_sweep_named_by_dots_writes_nothing_outside_results(canned, tmp_path):
    write_sweep(tmp_path / "...toml")
    message = canned("sweep", "...toml", code=2).stderr
    assert "the sweep's name '..' cannot be the name of a folder" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["...toml"]
