"""Tests of the crossovers with sdpa in figure 1, and of the table that sums a sweep up."""

import importlib
import json
from pathlib import Path

import pytest
from test_plots import PLOTS, figure_of, measured, records, refusal, run, scaling, sheet, split, texts, write
from test_plots_certainty import with_ratio

crossovers, driver, summary = (importlib.import_module(f"attnplots.{name}") for name in ("records.crossovers", "records.driver", "published.summary"))

ROOT = PLOTS.parent
METHODS = ("sdpa", "linear", "lsh-1", "favor", "softmax")


def pair(method, verdict, length=None, interval=None, faster=True, own_first=False, **axes):
    """A crossover with sdpa, as `attnbench analyse --format json` prints it."""
    sides = [{"method": method, **axes}, {"method": "sdpa", **axes}]
    one, other = sides if own_first else sides[::-1]
    own_at_long = "one" if own_first else "other"
    winner = own_at_long if faster else ("other" if own_first else "one")
    return {
        "one": one, "other": other, "quantity": "time", "differs": ["method"], "verdict": verdict,
        "length": length, "interval": interval,
        "other_needs_less_at_first": (winner == "one") == (length is not None), "from_length": 512.0, "to_length": 4096.0,
    }  # fmt: skip


ANALYSIS = {
    "crossovers": [
        pair("linear", "crosses", 700.0, [600.0, 820.0], protocol="forward"),
        pair("lsh-1", "never crosses", protocol="forward", own_first=True),
        pair("favor", "cannot tell", 900.0, [100.0, None], protocol="forward"),
        pair("softmax", "crosses", 1500.0, [1400.0, 1600.0], faster=False, protocol="forward"),
        pair("linear", "crosses", 5000.0, [4000.0, 6000.0], protocol="forward", own_first=True) | {"quantity": "memory"},
        pair("linear", "crosses", 5000.0, [4000.0, 6000.0], protocol="forward") | {"differs": ["device"]},
    ]
}  # fmt: skip


def known():
    return crossovers.parse(ANALYSIS)


def rows():
    return [measured(m, n, k * n / 512) for k, m in enumerate(METHODS, 1) for n in (512, 1024, 2048, 4096)]


def test_the_crossovers_in_time_are_taken_from_the_analysis():
    found = {c.method: c for c in known()}
    assert list(found) == ["linear", "lsh-1", "favor", "softmax"]
    assert (found["linear"].length, found["linear"].low, found["linear"].high) == (700.0, 600.0, 820.0)
    assert {m: c.faster for m, c in found.items()} == {"linear": True, "lsh-1": True, "favor": True, "softmax": False}
    assert set(crossovers.select(known(), rows())) == set(found)
    assert not crossovers.select(known(), [measured("linear", protocol="decode")])


def test_crossovers_are_marked_with_their_intervals_above_the_times_alone(monkeypatch):
    monkeypatch.setattr(crossovers, "find", lambda _: known())
    with sheet.context():
        figure = figure_of(scaling.describe_crossovers(records.Records(rows())))
        figure.draw_without_rendering()
    assert texts(figure).count("faster than sdpa") == 1
    (mark,) = [artist for artist in figure.artists if artist.get_gid() == "gap"]
    time = figure.axes[0]

    def across(n):
        return pytest.approx(time.transData.transform((n, 1))[0], abs=0.05)

    assert 72 * mark.get_xdata()[0] == across(700)
    assert 72 * mark.get_ydata()[0] > time.get_window_extent().y1
    spans = [[72 * x for x in artist.get_xdata()] for artist in figure.artists
             if len(getattr(artist, "get_xdata", list)()) == 2]  # fmt: skip
    assert [across(600), across(820)] in spans, "the interval is a bar"
    note = "Faster than sdpa at every N: lsh-1; linear from N = 700 on (95 %: 600 to 820)."
    assert note in " ".join(texts(figure))


def test_settings_of_which_the_same_is_said_share_a_note(monkeypatch):
    found = [r | {"protocol": p} for p in ("forward", "forward_backward") for r in rows()]
    known = [crossovers.parse({"crossovers": [pair("linear", "never crosses", protocol=p)]})[0]
             for p in ("forward", "forward_backward")]  # fmt: skip
    monkeypatch.setattr(crossovers, "find", lambda _: known)
    with sheet.context():
        figure = figure_of(scaling.describe_crossovers(records.Records(found)))
    shown = " ".join(texts(figure))
    assert shown.count("Faster than sdpa") == 1 and "Faster than sdpa at every N: linear." in shown
    monkeypatch.setattr(crossovers, "find", lambda _: known[:1])
    with sheet.context():
        figure = figure_of(scaling.describe_crossovers(records.Records(found)))
    assert "Faster than sdpa (Forward) at every N: linear." in " ".join(texts(figure))


def test_records_without_sdpa_need_no_program(monkeypatch):
    monkeypatch.setattr(driver, "program", lambda: None)
    found = records.Records([measured()], Path("somewhere"))
    assert crossovers.find(found) == []
    with pytest.raises(records.RecordsError, match="needs the program attnbench; build it with `make build`"):
        crossovers.find(records.Records([measured("sdpa")], Path("somewhere")))


def test_the_table_names_the_fastest_methods_the_crossovers_the_machine_and_the_date():
    more = {"torch_version": "2.11.0", "revision": "0123456789ab", "finished_at": "2026-11-24T10:00:00Z"}
    found = records.Records([r | more for r in rows()])
    lines = summary.summary_table(found, known()).splitlines()
    assert lines[0] == "| | fastest at N = 4k | fastest at N = 64k | faster than `sdpa` from N (95 % interval) |"
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells[0] == "Forward"
    assert cells[1] == "`sdpa`, 8 (7.2–8.8) ms; `linear` takes 2 times as long"
    assert cells[2] == "not measured"
    assert cells[3] == (
        "`favor`: cannot tell; `linear`: 700 (600–820); `lsh-1`: at every N; `softmax`: slower from 1,500 on"
    )
    assert lines[-1] == "Some @ 2.00GHz · torch 2.11.0 · 0123456789ab · 2026-11-24."
    without = summary.summary_table(records.Records([measured()]), [])
    assert "`sdpa` was not measured" in without


def test_each_setting_has_a_line():
    found = records.Records([*rows(), *(r | {"dtype": "bfloat16"} for r in rows())])
    titles = [row.title for row in split(found)]
    table = summary.summary_table(found, [])
    assert len(titles) == 2 and all(f"| {title} |" in table for title in titles)


def test_the_program_computes_the_crossovers_of_a_folder(attnbench, build, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNBENCH_BUILD", str(build))
    folder = sorted((ROOT / "results/figure1").iterdir())[0]
    found = {c.method: c for c in crossovers.load(folder)}
    printed = json.loads(attnbench("analyse", folder, "--format", "json").stdout)
    assert found["linear"] == {c.method: c for c in crossovers.parse(printed)}["linear"]
    result = run("summary", folder)
    assert result.returncode == 0, result.stderr
    assert "| `linear`, " in result.stdout and "`linear`: at every N" in result.stdout
    result = run("figure1", folder, "--out", tmp_path)
    assert result.returncode == 0 and "at every N: linear" in (tmp_path / "figure1.svg").read_text()
    bad = write(tmp_path / "bad", [with_ratio("sdpa", 512, 1.0) | {"key_lengths": None, "head_dim": None}])
    assert f"{bad}/records.jsonl:1: not a record: " in refusal("summary", bad)
