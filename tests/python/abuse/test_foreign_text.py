"""Tests of text from elsewhere that holds control characters or is very long."""

import re

import pytest
from conftest import change_json, change_records, shell


# ESC, BEL, DEL, U+009B (a control character that begins escape codes), U+202E (which reverses
# what follows) and U+2028 (which ends a line).
UNSAFE = "a\x1b[31mb\x07c\x7fd\u009be\u202ef\u2028g"
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
    change_json(tmp_path / "out/environment.json", lambda data: data["environment"].update(revision=UNSAFE))
    canned("merge", "out", "--out", "merged")  # writes records.csv
    check_safe((tmp_path / "merged/records.csv").read_text("utf-8"))


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
    check_safe(re.sub(r"\x1b\[(2K|0m|1m|31m|33m)", "", shown))
    assert "a\x1b" not in shown


LONG = "a" * 5000


@pytest.mark.parametrize(
    "words",
    [
        ["gate", "small.toml", "--base", LONG], ["table", LONG], ["sweep", LONG], ["sweep", "small.toml", "--out", LONG],
        ["compare", LONG, "b"], ["merge", LONG, "b", "--out", "c"], ["import", LONG, "--out", "c"], ["measure", LONG],
        ["measure", "linear", f"--inputs={LONG}"], ["sweep", "small.toml", "--set", f"method={LONG}"], [f"--{LONG}"], [LONG],
    ],
    ids=lambda words: " ".join(words).replace(LONG, "a…"),
)  # fmt: skip
def test_long_words_are_shown_in_part(canned, sweep, words):
    message = canned(*words, code=2).stderr
    assert max(map(len, message.splitlines())) < 2100 and "bytes left out" in message
    assert "filesystem error" not in message and "what()" not in message


def test_what_a_shortened_message_expected_is_shown(canned, sweep):
    message = canned("measure", "linear", f"--inputs={LONG}", code=2).stderr
    assert message.startswith("attnbench: --inputs = 'aaa") and "expected one of normal, clustered, repeated, offset, scaled, outliers" in message


def test_a_system_without_proc_is_named(canned, tmp_path):
    done = shell(canned, "unshare -m sh -c 'umount -l /proc; ls -d /proc/self 2>/dev/null || $attnbench list'")
    if "Operation not permitted" in done.stderr or done.stdout.startswith("/proc/self"):
        pytest.skip("/proc cannot be unmounted here")
    assert done.returncode == 2 and "attnbench: /proc/self/exe: No such file or directory; expected a mounted /proc" in done.stderr
