"""Tests of sweep files and settings that are made to do harm."""

import signal

import pytest
from conftest import HANG_S, children, wait_for, write_sweep


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


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("method = 'linear-chunked:chunk=-5'", "chunk = '-5', expected a whole number from 1 to 16777216"),
        ("method = 'favor:features=1000000000000'", "expected a whole number from 2 to 65536"),
        ("method = ['linear', 'lsh:buckets=7']", "buckets = 7, expected an even number"),
        ("key_lengths = -1", "key_lengths = -1, expected at least 0"),
        ("key_lengths = 100", "key_lengths = 100 is beyond key_len = 48"),
        ("key_lengths = 'most'", "key_lengths = 'most', expected one of full, uniform, or a whole number"),
        ("batch = 17000000", "batch = 17000000, expected at most 16777216"),
        ("query_len = 9000000000000000000", "expected at most 1099511627776"),
        ("query_len = 90000000000000000000", "not representable in 64 bits"),
        ("query_len = '1-10000000+1'", "has too many values, expected at most 100000"),
        ("query_len = nan", "query_len = NaN, expected a whole number"),
        ("batch = -inf", "batch = -infinity, expected at least 1"),
    ],
)
def test_errors_in_values_name_the_line(canned, tmp_path, setting, said):
    axes = {"method": "'linear'", "query_len": "48"}
    name, _, value = setting.partition(" = ")
    axes[name] = value
    lines = ["[axes]", *(f"{axis} = {text}" for axis, text in axes.items())]
    line = next(i for i, text in enumerate(lines, 1) if text.startswith(name))
    message = canned("sweep", sweep_with(tmp_path, "\n".join(lines) + "\n"), "--dry-run", code=2).stderr
    assert f"hostile.toml:{line}:" in message and said in message


@pytest.mark.parametrize(
    ("axes", "line", "said"),
    [
        (["method = 'favor:seed=-1'", "query_len = 48", "seed = 0"], 2, "favor: seed = '-1'"),
        (["method = 'linear'", "query_len = 48", "key_len = 48", "key_lengths = 100"], 5, "key_lengths = 100 is beyond key_len = 48"),
    ],
)
def test_the_value_that_is_wrong_is_blamed(canned, tmp_path, axes, line, said):
    text = "\n".join(["[axes]", *axes]) + "\n"
    message = canned("sweep", sweep_with(tmp_path, text), "--dry-run", code=2).stderr
    assert f"hostile.toml:{line}:" in message and said in message


def test_many_ranges_in_one_list_are_refused(canned, tmp_path):
    text = "[axes]\nmethod = 'linear'\nseed = [" + '"1-100000+1", ' * 10_000 + "]\n"
    message = canned("sweep", sweep_with(tmp_path, text), "--dry-run", code=2).stderr
    assert "hostile.toml:3:" in message and "seed has too many values" in message


@pytest.mark.parametrize("setting", ["query_len=nan", "deadline_s=inf", "key_lengths=-1", "method=linear-chunked:chunk=0"])
def test_errors_in_settings_name_the_option(canned, sweep, setting):
    message = canned("sweep", sweep, "--dry-run", "--set", setting, code=2).stderr
    assert f"--set {setting.partition('=')[0]}: " in message and "expected" in message


def test_arguments_that_are_no_numbers(canned):
    for value, said in [("1e400", "a number"), ("nan", "a number"), ("[" * 100_000, "a number"), ("1e15", "at most 1099511627776")]:
        message = canned("measure", "linear", f"--query-len={value}", code=2).stderr
        assert f"expected {said}" in message and len(message) < 3000


def test_a_plan_of_many_cases_ends(canned, tmp_path):
    path = write_sweep(tmp_path / "many.toml", query_len="1-5000+1")
    assert "10000 cases" in canned("sweep", path, "--dry-run").stdout


def test_a_plan_does_not_draw_random_features(canned, tmp_path):
    """Drawing them for this dimension would take hours."""
    path = write_sweep(tmp_path / "wide.toml", method=["favor", "rff"], head_dim=1_000_000)
    assert "4 cases" in canned("sweep", path, "--dry-run").stdout


def test_a_plan_is_interrupted(canned, tmp_path):
    path = write_sweep(tmp_path / "many.toml", query_len="1-50000+1")
    with canned.running("sweep", path, "--dry-run") as driver:
        wait_for(lambda: children(driver.pid), "a worker that plans", driver=driver)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(timeout=HANG_S) == 128 + signal.SIGINT
