"""Tests that the folders of results/ hold together, on the real results and on made ones, and that pages
and figures say what the records say."""

import importlib
import json
import subprocess
import sys

import pytest
from conftest import ROOT, records_in
from test_plots import PLOTS, complete, measured, schema

crossovers, entry, shipped, stamps, pages = (
    importlib.import_module(f"attnplots.{name}")
    for name in ("records.crossovers", "entry", "published.shipped", "published.stamps", "published.pages")
)
RENEWALS = {"one": "renew one", "two": "renew two", "trained": "renew trained"}


def record(**changes):
    """A record of eight processes as check-results expects it, with these changes."""
    ends = {"time_ci_low_ms": 0.99, "time_ci_high_ms": 1.01, "process_medians_ms": [0.97, 0.98, 0.99, 1.0, 1.0, 1.01, 1.02, 1.03]}
    own = {"schema_version": schema.current().version, "revision": "abc", "dirty": False, "finished_at": "2026-01-01T00:00:00Z"}
    return complete(measured("linear", 512, time_median_ms=1.0, peak_extra_bytes=1 << 20) | ends | own | changes)


def scaled(factor):
    """The times of record(), so many times as long."""
    one = record()
    times = {name: one[name] * factor for name in ("time_median_ms", "time_ci_low_ms", "time_ci_high_ms")}
    return times | {"process_medians_ms": [value * factor for value in one["process_medians_ms"]]}


def write(root, name, *lines, machine="machine"):
    folder = root / name / machine
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def found(root):
    return [problem.text() for problem in shipped.check(root, RENEWALS)]


def test_folders_of_one_build_that_agree_have_no_problem(tmp_path):
    write(tmp_path, "one", record())
    write(tmp_path, "two", record(**scaled(1.02)))
    assert found(tmp_path) == []


def test_sweeps_of_a_machine_are_of_one_revision(tmp_path):
    write(tmp_path, "one", record(query_len=1024, key_len=1024))
    write(tmp_path, "two", record(revision="def", finished_at="2026-01-02T00:00:00Z"))
    where = "the newest records of this machine, in two, by def"
    assert found(tmp_path) == [
        f"{tmp_path.name}/one/machine: measured by revision abc, and {where}; renew with: renew one"
    ]
    # Another machine may have results of another build, and so may a training.
    write(tmp_path, "one", record(revision="def"))
    write(tmp_path, "one", record(revision="ghi"), machine="other")
    trained = tmp_path / "trained/machine"
    trained.mkdir(parents=True)
    (trained / "trainings.jsonl").write_text("")
    (trained / "environment.json").write_text(json.dumps({"environment": {"revision": "jkl", "dirty": False}}))
    assert found(tmp_path) == []
    (trained / "environment.json").write_text(json.dumps({"environment": {"revision": "jkl", "dirty": True}}))
    assert found(tmp_path) == [
        f"{tmp_path.name}/trained/machine: made by a build with uncommitted changes; renew with: renew trained"
    ]


def test_a_prediction_of_ranks_is_of_a_build_without_changes(tmp_path):
    folder = tmp_path / "ranks/machine"
    folder.mkdir(parents=True)
    (folder / "scaling.json").write_text('{"revision": "abc", "dirty": false, "operators": []}')
    assert found(tmp_path) == []
    (folder / "ranks.svg").write_text("<svg/>")
    stamps.write(folder, 0)
    (folder / "scaling.json").write_text('{"revision": "abc", "dirty": true, "operators": []}')
    command = f".venv/bin/python -m attnbench.distributed simulate --backward --out {tmp_path.name}/ranks/machine"
    assert found(tmp_path) == [
        f"{tmp_path.name}/ranks/machine: predicted by a build with uncommitted changes, or of an unknown revision; renew with: {command}",
        f"{tmp_path.name}/ranks/machine: the figures were drawn from other data than is there now; renew with: make figures",
    ]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"dirty": True}, "measured by a build with uncommitted changes"),
        ({"process_medians_ms": [1.0, 1.1]}, "1 case with fewer than 8 processes, such as linear forward N=512 with 2"),
    ],
)
def test_a_folder_that_is_not_fit_to_be_published_is_named(tmp_path, change, what):
    write(tmp_path, "one", record(**change))
    assert found(tmp_path) == [f"{tmp_path.name}/one/machine: {what}; renew with: renew one"]


def test_records_of_a_folder_have_one_schema(tmp_path):
    write(tmp_path, "one", record(), record(seed=1, schema_version=6))
    versions = f"schema versions 6 and {schema.current().version}, expected one"
    assert found(tmp_path) == [f"{tmp_path.name}/one/machine: {versions}; renew with: renew one"]


def test_two_sweeps_agree_in_the_cases_that_they_share(tmp_path):
    write(tmp_path, "one", record())
    write(tmp_path, "two", record(**scaled(3.0), finished_at="2026-01-02T00:00:00Z"))
    shared = "linear forward N=512 has times of 1 ms and 3 ms in one and two"
    assert found(tmp_path) == [f"{tmp_path.name}/one/machine: {shared}; renew with: renew one"]
    # Hours apart, a shared machine may be slower by 30 %.
    write(tmp_path, "two", record(**scaled(1.25)))
    assert found(tmp_path) == []
    # Processes that differ this much say nothing.
    wide = scaled(3.0)
    write(tmp_path, "two", record(**wide | {"process_medians_ms": [1.0, *wide["process_medians_ms"][1:]]}))
    assert found(tmp_path) == []
    # Memory is counted.
    write(tmp_path, "two", record(peak_extra_bytes=27 << 20))
    assert found(tmp_path)[0].startswith(f"{tmp_path.name}/one/machine: linear forward N=512 has memory of 1 MiB and 27 MiB in")
    # Cases of several axes, machines and devices are different cases.
    write(tmp_path, "two", record(**scaled(3.0), causal=True))
    write(tmp_path, "two", record(**scaled(3.0)), machine="other")
    assert found(tmp_path) == []


def test_a_figure_that_was_not_drawn_again_is_found(tmp_path):
    folder = write(tmp_path, "one", record())
    (folder / "one.svg").write_text("<svg/>")
    (folder / "one.png").write_text("png")
    assert found(tmp_path) == [
        f"{tmp_path.name}/one/machine: no figures.json says which data its figures show; renew with: make figures"
    ]
    stamps.write(folder, 0)
    assert found(tmp_path) == []
    write(tmp_path, "one", record(time_median_ms=1.001))
    assert found(tmp_path)[0].startswith(f"{tmp_path.name}/one/machine: the figures were drawn from other data")
    stamps.write(folder, 0)
    (folder / "one.svg").write_text("<svg>changed</svg>")
    assert found(tmp_path)[0].startswith(f"{tmp_path.name}/one/machine: not drawn with the others: one.svg;")
    # A figure that is older than the drawing gets no stamp.
    stamps.write(folder, (folder / "one.svg").stat().st_mtime + 10)
    assert "one.png, one.svg" in found(tmp_path)[0]


@pytest.mark.parametrize("name", sorted({one.file_name for one in entry.TABLE.values() if isinstance(one, entry.Figure)}))
def test_every_file_that_a_figure_is_drawn_from_is_part_of_its_stamp(tmp_path, name):
    (tmp_path / "one.svg").write_text("<svg/>")
    data = tmp_path / name.replace("*", "x")
    data.write_text("before")
    stamps.write(tmp_path, 0)
    assert stamps.problems(tmp_path) == []
    data.write_text("after")
    assert stamps.problems(tmp_path) == ["the figures were drawn from other data than is there now"]


def test_the_figure_of_two_runs_shows_the_records_of_both(tmp_path):
    folder = write(tmp_path, "one", record(), machine="machine/run-1").parent
    write(tmp_path, "one", record(), machine="machine/run-2")
    (folder / "one.svg").write_text("<svg/>")
    stamps.write(folder, 0)
    assert found(tmp_path) == []
    write(tmp_path, "one", record(time_median_ms=1.001), machine="machine/run-2")
    assert len(found(tmp_path)) == 1


def run(*arguments):
    return subprocess.run(
        [sys.executable, PLOTS / "run.py", "check-results", *arguments], capture_output=True, text=True, check=False
    )


def test_the_program_prints_a_line_for_each_problem(tmp_path):
    write(tmp_path, "one", record())
    done = run(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 folder of sweeps checked: no problem\n", "")
    write(tmp_path, "figure1", record(dirty=True))
    done = run(tmp_path)
    assert done.returncode == 1
    first, last = done.stdout.splitlines()
    assert first.endswith("uncommitted changes; renew with: experiments/reproduce --only figure1")
    assert last == "2 folders of sweeps checked: 1 problem"
    done = run(tmp_path / "none")
    assert done.returncode == 2 and "expected a folder of results" in done.stderr


def test_the_results_of_the_project_hold_together():
    assert [problem.text() for problem in shipped.check(ROOT / "results", shipped.renewals_of(ROOT))] == []


def test_every_folder_of_results_has_a_command_that_renews_it():
    folders = {path.name for path in (ROOT / "results").iterdir() if path.is_dir()}
    # The records of digits stay until those of fashion-short are measured.
    assert folders - set(shipped.renewals_of(ROOT)) <= {"quickstart", "gate", "digits"}


# ---------------------------------------------------------------- pages


def test_the_pages_say_what_the_records_say(build):
    if build != ROOT / "build":
        pytest.skip("the pages are made with the program in build/")
    assert pages.outdated(ROOT) == [], "`plots/run.py renew-pages --pages-only` writes them anew"


def test_a_block_is_filled_and_the_rest_of_a_page_is_kept(monkeypatch, tmp_path):
    monkeypatch.setitem(pages.BLOCKS, "figure1", lambda root: ["| a |", "[two](results/two)"])
    page = "before\n<!-- results: figure1 -->\nold\n<!-- results end -->\nafter\n"
    filled = "before\n<!-- results: figure1 -->\n| a |\n[two](results/two)\n<!-- results end -->\nafter\n"
    assert pages.insert_blocks(page, tmp_path) == filled == pages.insert_blocks(filled, tmp_path)
    assert pages.insert_blocks(page, tmp_path, "docs/page.md") == filled.replace("(results", "(../results")
    with pytest.raises(pages.RecordsError, match="unknown block 'other'"):
        pages.insert_blocks(page.replace("figure1", "other"), tmp_path)


def test_pictures_are_of_the_machine_that_has_them(tmp_path):
    page = "![a](results/one/old/one.png) ![b](results/two/old/two.png) [c](results/one/old/)"
    assert pages.insert_pictures(page, tmp_path) == page
    folder = write(tmp_path / "results", "one", record())
    (folder / "one.png").write_bytes(b"")
    assert pages.insert_pictures(page, tmp_path) == page.replace("results/one/old/one.png", "results/one/machine/one.png")
    assert pages.insert_pictures("(../results/one/old/one.png)", tmp_path) == "(../results/one/machine/one.png)"


def pair(method, verdict, lower_at_first, **other):
    """A comparison of a method with sdpa, as `attnbench analyse` prints it."""
    printed = {"one": {"method": method}, "other": {"method": "sdpa"}, "other_needs_less_at_first": not lower_at_first}
    printed |= {"quantity": "time", "differs": ["method"], "verdict": verdict, "from_length": 64.0, "to_length": 128.0} | other
    return crossovers.parse({"crossovers": [printed]})[0]


def test_the_crossover_is_given_with_its_interval():
    crosses = pair("linear", "crosses", False, length=93.4, interval=[80.2, 120.0])
    assert pages._against_baseline(crosses) == "faster from N = 93 on (95 %: 80 to 120)"
    crosses = pair("linear", "crosses", True, length=93.4, interval=[80.2, 120.0])
    assert pages._against_baseline(crosses) == "slower from N = 93 on (95 %: 80 to 120)"
    assert pages._against_baseline(pair("linear", "never crosses", True)) == "faster at every N from 64 on"
    assert pages._against_baseline(pair("linear", "never crosses", False)) == "slower at every N from 64 on"
    assert pages._against_baseline(pair("linear", "cannot tell", True)) == "cannot tell which is faster"
    assert pages._against_baseline(None) == "not compared"


def timed(method, n, ms, **more):
    return {"method": method, "query_len": n, "outcome": "measured", "time_per_sample_ms": ms} | more


def test_the_speedup_is_that_at_the_longest_length_that_both_have(tmp_path):
    times = [("sdpa", 512, 10.0), ("sdpa", 4096, 659.0), ("linear", 512, 5.0), ("linear", 4096, 6.99),
             ("linear", 65536, 112.0), ("slow", 512, 16.0), ("alone", 64, 1.0)]  # fmt: skip
    lines = [record(method=method, query_len=n, key_len=n, **scaled(ms)) for method, n, ms in times]
    found = pages.records.load(write(tmp_path, "one", *lines))
    speedups = pages.Speedups(found, "sdpa")
    of = lambda method: pages._speedup(found, speedups, method)
    assert (of("linear"), of("slow"), of("alone"), of("sdpa")) == ("94 × as fast at 4,096", "takes 1.6 × as long at 512", "", "")


def flex(n, causal, ratio):
    more = {"baseline": "sdpa", "protocol": "forward", "causal": causal, "ratio_median": ratio, "ratio_ci_high": ratio + 0.05}
    return timed("rivals/flex-attention.py:softmax", n, 1.0, **more)


def test_where_flex_attention_is_faster_than_sdpa_is_said():
    (said,) = pages._flex_sentences([flex(1024, True, 0.78), flex(4096, True, 0.97), flex(1024, False, 1.09), flex(4096, False, 1.56)])
    assert "takes 0.78 to 0.97 × the time of `sdpa` with a causal mask (N = 1,024 to 4,096) and 1.1 to 1.6 × the time" in said
    assert "It is faster with a causal mask at N = 1,024, by" in said, "at 4,096 the interval has 1 in it"
    (said,) = pages._flex_sentences([flex(1024, False, 1.09)])
    assert "It is nowhere certain to be faster" in said
    assert pages._flex_sentences([timed("linear", 512, 1.0)]) == []


def test_what_is_called_noisy_is_what_is_unusual_in_the_repeated_runs():
    intervals = [("time_median_ms", "time_ci_low_ms", "time_ci_high_ms"), ("ratio_median", "ratio_ci_low", "ratio_ci_high")]
    reaches = []
    for run in (ROOT / "results/repeat").glob("*/run-*"):
        for record_of_run in records_in(run):
            for median, low, high in (map(record_of_run.get, names) for names in intervals):
                if median and low:
                    reaches.append(max(median - low, high - median) / median)
    assert len(reaches) > 50
    assert 0.85 < sum(reach <= schema.current().usual_reach for reach in reaches) / len(reaches) < 0.97
