"""Tests of hostile input and bad luck: closed descriptors, files that vanish, limits of the system,
devices in place of files, and records and sweep files that are made to do harm."""

import json
import shlex
import subprocess

import pytest
from conftest import HANG_S, log_of, records_in, strict_json, write_sweep


def shell(attnbench, line, **words):
    """Runs a line of bash in which $attnbench is the driver with its worker."""
    command = " ".join(map(shlex.quote, attnbench.command()))
    values = {"attnbench": command} | words
    for name, value in values.items():
        line = line.replace(f"${name}", str(value))
    return subprocess.run(
        ["bash", "-c", line], cwd=attnbench.folder, capture_output=True, text=True, timeout=HANG_S,
        check=False,
    )  # fmt: skip


# ---------------------------------------------------------------- standard streams


@pytest.mark.parametrize("closed", [">&- 2>&-", "2>&-", "<&- >&- 2>&-", "<&-"])
def test_closed_descriptors_do_not_mix_output_into_files(canned, tmp_path, sweep, closed):
    done = shell(canned, f"$attnbench sweep {sweep.name} --out out {closed}")
    assert done.returncode == 0
    assert len(records_in(tmp_path / "out")) == 4
    assert len(canned.json("table", "out")) == 4
    assert (tmp_path / "out/.lock").read_text().strip().isdigit()


@pytest.mark.parametrize("streams", [">/dev/full 2>/dev/full", "2>/dev/full", "2> >(head -1)"])
def test_a_stream_that_cannot_be_written_does_not_stop_a_sweep(canned, tmp_path, sweep, streams):
    done = shell(canned, f"$attnbench sweep {sweep.name} --out out {streams}")
    assert done.returncode in (0, 2), "it ends by itself, not by a signal"
    assert len(records_in(tmp_path / "out")) == 4


def test_an_error_that_cannot_be_printed_still_has_its_exit_code(attnbench):
    for line in ("$attnbench table none 2>/dev/full", "$attnbench table none >&- 2>&-"):
        assert shell(attnbench, line).returncode == 2
    done = shell(attnbench, "$attnbench --help >/dev/full")
    assert done.returncode == 2 and "standard output" in done.stderr


# ---------------------------------------------------------------- files that vanish, limits


@pytest.mark.parametrize("event", ["rm out/records.jsonl", "rm -r out", "mv out elsewhere"])
def test_a_log_that_vanishes_stops_the_sweep(attnbench, workers, tmp_path, sweep, event):
    worker = workers.make(measure=f"echo x >> cases; [ -e out/.lock ] && {event}; good")
    message = attnbench.with_worker(worker)("sweep", sweep, "--out", "out", code=2).stderr
    assert "out/records.jsonl: the file was removed, moved or replaced" in message
    assert (tmp_path / "cases").read_text() == "x\n", "no further case is measured"


def test_the_limit_of_a_files_size_is_like_a_full_disk(canned, tmp_path, sweep):
    canned("sweep", sweep, "--out", "out", "--methods", "linear", "--set", "query_len=32")
    earlier = log_of(tmp_path / "out")
    blocks = len(earlier) // 1024 + 1
    done = shell(canned, f"ulimit -f {blocks}; $attnbench sweep {sweep.name} --out out")
    assert done.returncode == 2
    assert "records.jsonl: cannot write: File too large" in done.stderr
    assert log_of(tmp_path / "out") == earlier


def test_a_lost_environment_does_not_cost_the_records(canned, tmp_path, sweep):
    canned("sweep", sweep, "--out", "out", "--methods", "linear")
    path = tmp_path / "out/environment.json"
    path.write_text("{torn")
    message = canned("sweep", sweep, "--out", "out", code=2).stderr
    assert "environment.json: not a JSON object; remove it" in message
    path.unlink()
    assert "2 cases recorded" in canned("sweep", sweep, "--out", "out").stderr
    assert len(records_in(tmp_path / "out")) == 4
    assert strict_json(path.read_text())["environment"]


def test_without_an_environment_the_records_say_what_differs(canned, workers, attnbench, tmp_path, sweep):
    canned("sweep", sweep, "--out", "out", "--methods", "linear")
    (tmp_path / "out/environment.json").unlink()
    other = attnbench.with_worker(workers.make(measure="good", environment={"revision": "abcdef"}))
    message = other("sweep", sweep, "--out", "out", code=2).stderr
    assert "another build, machine or configuration" in message and 'revision: "abcdef"' in message


# ---------------------------------------------------------------- files that users name


def sweep_with(tmp_path, text):
    path = tmp_path / "hostile.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("file", "said"),
    [("/dev/zero", "not a regular file"), (".", "is a folder"), ("none.csv", "No such file"), ("pipe", "not a regular file")],
)
def test_published_files_that_are_no_files(canned, tmp_path, file, said):
    subprocess.run(["mkfifo", tmp_path / "pipe"], check=True)
    write_sweep(tmp_path / "s.toml", published=file)
    message = canned("sweep", "s.toml", "--dry-run", code=2).stderr
    assert said in message and file in message


@pytest.mark.parametrize(("file", "said"), [("/dev/zero", "not a regular file"), (".", "is a folder")])
def test_sweep_files_and_records_that_are_no_files(canned, tmp_path, file, said):
    (tmp_path / "folder.toml").mkdir()
    path = "folder.toml" if file == "." else file
    assert said in canned("sweep", path, "--dry-run", code=2).stderr
    assert "/dev/zero: not a regular file" in canned("table", "/dev/zero", code=2).stderr


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


# ---------------------------------------------------------------- records


def change_records(folder, **changes):
    records = [record | changes for record in records_in(folder)]
    (folder / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))


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


# ---------------------------------------------------------------- text on a terminal

# ESC, BEL, DEL, U+009B (a control character that begins escape codes) and U+202E (which reverses
# what follows).
UNSAFE = "a\x1b[31mb\x07c\x7fd\u009be\u202ef"
UNSAFE_CHARACTERS = set("\x1b\x07\x7f\u009b\u202e\u2028")


def check_safe(*texts):
    for text in texts:
        assert not UNSAFE_CHARACTERS & set(text), text


@pytest.mark.parametrize("format", ["text", "markdown", "csv", "json"])
def test_records_cannot_send_control_characters_to_a_terminal(canned, tmp_path, sweep, format):
    canned("sweep", sweep, "--out", "out")
    change_records(tmp_path / "out", method=UNSAFE, revision=UNSAFE, reason=UNSAFE, implementation=UNSAFE)
    for command in (["table", "out"], ["compare", "out", "out"]):
        check_safe(canned(*command, f"--format={format}").stdout)
    if format != "csv":
        check_safe(canned("analyse", "out", f"--format={format}").stdout)
    check_safe((tmp_path / "out/records.csv").read_text("utf-8"))


def test_messages_cannot_send_control_characters_to_a_terminal(attnbench, workers, tmp_path, sweep):
    message = UNSAFE.encode()
    (tmp_path / "message").write_bytes(message)
    check_safe(
        attnbench("table", f"none{UNSAFE}", code=2).stderr,
        attnbench("measure", UNSAFE, code=2).stderr,
        attnbench("sweep", sweep, "--set", f"{UNSAFE}=1", code=2).stderr,
        attnbench(f"--{UNSAFE}", code=2).stderr,
    )
    worker = workers.make(measure=f"cat '{tmp_path}/message' >&2; exit 3", environment={"cpu_model": UNSAFE})
    driver = attnbench.with_worker(worker)
    done = driver("sweep", sweep, "--out", "out", "--verbose", code=1)
    check_safe(done.stdout, done.stderr, driver("doctor").stdout, driver("measure", "linear", code=1).stderr)
    _, shown = driver.on_terminal("sweep", sweep, "--out", "again")
    # The program itself clears lines and sets colours.
    check_safe(shown.replace("\x1b[2K", "").replace("\x1b[0m", "").replace("\x1b[1m", "").replace("\x1b[33m", "").replace("\x1b[31m", ""))
    assert "a\x1b" not in shown


# ---------------------------------------------------------------- merge


@pytest.fixture
def parts(canned, tmp_path, sweep):
    """Two folders of records of one sweep with one method each."""
    for method in ("linear", "softmax"):
        canned("sweep", sweep, "--out", method, "--methods", method, "-q")
    return tmp_path / "linear", tmp_path / "softmax"


def change_json(path, change):
    data = strict_json(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


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
