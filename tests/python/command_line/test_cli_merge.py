"""Tests of `sweep --shard`, `merge` and `import`, which combine records from several places."""

import json
import os

import pytest
from conftest import change_json, records_in, strict_json, write_sweep


@pytest.fixture
def shards(canned, tmp_path):
    """The folders of the three shards of a sweep of seven cases."""
    sweep = write_sweep(tmp_path / "seven.toml", method="linear", query_len=[16, 32, 48, 64, 80, 96, 112])
    folders = [tmp_path / f"shard-{i}" for i in (1, 2, 3)]
    for i, folder in enumerate(folders, start=1):
        canned("sweep", sweep, "--shard", f"{i}/3", "--out", folder, "-q")
    return folders


def lengths(folder):
    return [record["query_len"] for record in records_in(folder)]


def test_shards_divide_the_cases_among_them(shards):
    assert [lengths(folder) for folder in shards] == [[16, 64, 112], [32, 80], [48, 96]]


def test_merged_shards_are_a_folder_of_the_whole_sweep(canned, shards, tmp_path):
    done = canned("merge", *shards, "--out", "all")
    assert "7 cases from 3 folders" in done.stdout and done.stderr == ""
    assert sorted(lengths(tmp_path / "all")) == [16, 32, 48, 64, 80, 96, 112]
    environment = strict_json((tmp_path / "all/environment.json").read_text())
    assert environment["merged_from"] == [str(folder) for folder in shards] and "shard" not in environment
    assert (tmp_path / "all/records.csv").exists()
    assert strict_json((tmp_path / "all/schema.json").read_text()) == canned.json("list", "schema")
    # The sweep without --shard continues in the merged folder, and finds every case recorded.
    assert "all 7 cases are recorded" in canned("sweep", tmp_path / "seven.toml", "--out", "all").stderr


def test_a_missing_shard_is_reported(canned, shards, tmp_path):
    done = canned("merge", shards[0], shards[2], "--out", "some", code=1)
    assert "missing: shard 2/3" in done.stderr
    assert len(lengths(tmp_path / "some")) == 5


def test_merging_shards_of_different_environments_is_refused(canned, shards, tmp_path):
    change_json(shards[1] / "environment.json", lambda data: data["environment"].update(revision="abcdef"))
    failed = canned("merge", *shards, "--out", "all", code=2).stderr
    assert f"{shards[1]} was not measured like" in failed and '"abcdef" here' in failed
    assert not (tmp_path / "all").exists()
    (shards[1] / "environment.json").unlink()
    assert "has no environment.json" in canned("merge", *shards, "--out", "all", code=2).stderr


def test_merging_different_sweeps_is_refused(canned, shards, tmp_path):
    other = write_sweep(tmp_path / "other.toml", method="linear", query_len=128)
    canned("sweep", other, "--out", "other", "-q")
    assert 'sweep: "seven" there, "other" here' in canned("merge", *shards, "other", "--out", "all", code=2).stderr


def test_equal_records_of_a_case_are_reported_and_merged_into_one(canned, shards, tmp_path):
    done = canned("merge", *shards, shards[1], "--out", "all")
    assert "2 cases have two equal records" in done.stderr
    assert done.stderr.count(" N=") == 2 and f"in {shards[1]} and in {shards[1]}: " in done.stderr
    assert len(lengths(tmp_path / "all")) == 7


def test_different_records_of_a_case_are_refused_without_keep_latest(canned, shards, tmp_path):
    records = records_in(shards[1])
    later = records[0] | {"time_median_ms": 77.0, "finished_at": "2099-01-01T00:00:00Z"}
    with open(shards[0] / "records.jsonl", "a") as log:
        log.write(json.dumps(later) + "\n")
    failed = canned("merge", *shards, "--out", "all", code=2).stderr
    assert "1 case has two different records" in failed and "nothing was written" in failed
    assert not (tmp_path / "all").exists()
    done = canned("merge", *shards, "--out", "all", "--keep-latest")
    assert "the later is kept" in done.stderr
    kept = {r["query_len"]: r["time_median_ms"] for r in records_in(tmp_path / "all")}
    assert len(kept) == 7 and kept[records[0]["query_len"]] == 77.0


def test_records_of_merges_and_shards_are_not_mixed_with_others(canned, shards, tmp_path):
    failed = canned("merge", shards[0], "--out", shards[1], code=2).stderr
    assert "holds records" in failed
    assert len(lengths(shards[1])) == 2
    sweep = tmp_path / "seven.toml"
    assert 'shard: "1/3" there, "2/3" here' in canned("sweep", sweep, "--shard=2/3", "--out", shards[0], code=5).stderr


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "a/b", "1/3/5", "-1/3", " 1/3", "1/99999999999999999999"])
def test_an_invalid_shard_is_refused(canned, tmp_path, shard):
    sweep = write_sweep(tmp_path / "small.toml")
    assert "expected i/n" in canned("sweep", sweep, f"--shard={shard}", code=2).stderr


def test_a_shard_without_cases_is_refused(canned, tmp_path):
    sweep = write_sweep(tmp_path / "small.toml")
    assert "has no case" in canned("sweep", sweep, "--shard=9/9", "--out", "out", code=2).stderr


# ---------------------------------------------------------------- import


CSV = "method,query_len,protocol,time_median_ms,peak_extra_bytes,batch\nfla-chunk,1024,forward,2.5,1048576,2\nfla-chunk,2048,forward,5,,2\n"


def write_csv(tmp_path, text):
    path = tmp_path / "theirs.csv"
    path.write_text(text)
    return path


def test_imported_rows_become_records_with_their_source(canned, tmp_path):
    path = write_csv(tmp_path, CSV)
    assert "2 external records" in canned("import", path, "--out", "ext", "--source", "their paper, table 2").stdout
    first, second = records_in(tmp_path / "ext")
    assert first["method"] == "fla-chunk" and first["outcome"] == "measured"
    assert first["external_source"] == "their paper, table 2"
    assert first["time_per_sample_ms"] == 1.25 and first["peak_extra_bytes_per_sample"] == 2**19
    assert first["heads"] == 8 and first["key_len"] == 1024
    assert strict_json((tmp_path / "ext/schema.json").read_text()) == canned.json("list", "schema")
    assert first["revision"] is None and first["deadline_s"] is None and second["peak_extra_bytes"] is None
    assert "external: their paper, table 2" in canned("table", "ext").stdout


def test_imported_records_may_join_those_of_a_sweep_and_are_marked_as_external(canned, tmp_path):
    sweep = write_sweep(tmp_path / "mine.toml", method="linear", query_len=[1024, 2048, 4096], heads=8, head_dim=64, threads=2, batch=2)
    canned("sweep", sweep, "--out", "mine", "-q")
    text = CSV.replace("batch\n", "batch,threads\n").replace(",2\n", ",2,2\n")
    canned("import", write_csv(tmp_path, text), "--out", "mine", "--source", "elsewhere", "-q")
    assert len(records_in(tmp_path / "mine")) == 5
    # The sweep accepts the folder with the imported records, and finds its own cases recorded.
    assert "all 3 cases are recorded" in canned("sweep", sweep, "--out", "mine").stderr
    report = strict_json(canned("analyse", "mine", "--format=json").stdout)
    assert {s["series"]["method"] for s in report["fits"]} >= {"linear"}
    assert "fla-chunk (external)" in canned("analyse", "mine").stdout
    compared = canned("compare", "mine", "mine").stdout
    assert compared.count("a external, b external") == 2


def test_an_import_does_not_replace_a_measured_record(canned, tmp_path):
    sweep = write_sweep(tmp_path / "mine.toml", method="linear", query_len=1024, heads=8, head_dim=64, threads=2)
    canned("sweep", sweep, "--out", "mine", "-q")
    before = (tmp_path / "mine/records.jsonl").read_bytes()
    text = "method,query_len,threads,time_median_ms\nother,1024,2,1\nlinear,1024,2,1\n"
    failed = canned("import", write_csv(tmp_path, text), "--out", "mine", "--source=x", code=2).stderr
    assert "theirs.csv:3: attnbench itself measured the record of this case in mine" in failed
    # No row of the file is imported.
    assert (tmp_path / "mine/records.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a row of column names"),
        ("method,time_median_ms\n", "expected a row of column names and rows below it"),
        ("method,time_median\nx,1\n", "1: unknown column 'time_median'; did you mean 'time_median_ms'?"),
        ("method,method\nx,1\n", "1: column 'method' appears more than once"),
        ("method,time_median_ms\nx\n", "2: 1 cell, expected 2"),
        ("method,time_median_ms\nx,fast\n", "2: time_median_ms = 'fast', expected a number of at least 0"),
        ("method,time_median_ms\nx,-1\n", "2: time_median_ms = '-1'"),
        ("method,query_len,time_median_ms\nx,0,1\n", "2: query_len = 0, expected at least 1"),
        ("method,device,time_median_ms\nx,tpu,1\n", "2: device = 'tpu', expected one of cpu, cuda"),
        ("method,query_len\nx,16\n", "2: the row has none of time_median_ms, peak_extra_bytes and"),
        ("query_len,time_median_ms\n16,1\n", "2: the row has no method"),
        ("method,time_median_ms\nx,1\nx,2\n", "3: the row is the same case as line 2"),
    ],
)
def test_invalid_files_are_not_imported(canned, tmp_path, text, said):
    failed = canned("import", write_csv(tmp_path, text), "--out", "ext", "--source=x", code=2).stderr
    assert said in failed
    assert not (tmp_path / "ext").exists()


def test_an_import_needs_a_source(canned, tmp_path):
    path = write_csv(tmp_path, "method,time_median_ms\nx,1\n")
    assert "the row does not say where it was measured" in canned("import", path, "--out", "ext", code=2).stderr
    path = write_csv(tmp_path, "method,time_median_ms,external_source\nx,1,=cmd()\n")
    canned("import", path, "--out", "ext")
    assert "'=cmd()" in (tmp_path / "ext/records.csv").read_text()


def test_imported_records_are_merged_with_those_of_a_sweep(canned, shards, tmp_path):
    canned("import", write_csv(tmp_path, CSV), "--out", "theirs", "--source", "their paper", "-q")
    for order in (["theirs", *shards], [*shards, "theirs"]):
        out = f"all-{order.index('theirs')}"
        assert "9 cases from 4 folders" in canned("merge", *order, "--out", out).stdout
        sources = [record["external_source"] for record in records_in(tmp_path / out)]
        assert sources.count("their paper") == 2 and sources.count(None) == 7
        environment = strict_json((tmp_path / out / "environment.json").read_text())
        assert environment["sweep"] == "seven" and environment["merged_from"] == list(map(str, order))
        assert "all 7 cases are recorded" in canned("sweep", tmp_path / "seven.toml", "--out", out).stderr
        assert "external: their paper" in canned("table", out).stdout


def test_imported_records_alone_are_merged(canned, tmp_path):
    canned("import", write_csv(tmp_path, CSV), "--out", "one", "--source", "their paper", "-q")
    canned("import", write_csv(tmp_path, CSV.replace("fla-chunk", "other")), "--out", "two", "--source", "another", "-q")
    assert "4 cases from 2 folders" in canned("merge", "one", "two", "--out", "all").stdout
    assert {record["external_source"] for record in records_in(tmp_path / "all")} == {"their paper", "another"}
    assert not (tmp_path / "all/environment.json").exists(), "no sweep measured them"
    assert "4 cases from 1 folder" in canned("merge", "all", "--out", "again").stdout


def test_records_without_an_environment_are_merged_only_if_all_are_imported(canned, shards, tmp_path):
    canned("import", write_csv(tmp_path, CSV), "--out", shards[1], "--source", "their paper", "-q")
    (shards[1] / "environment.json").unlink()
    assert f"{shards[1]} has no environment.json" in canned("merge", *shards, "--out", "all", code=2).stderr


# ---------------------------------------------------------------- files that are written


@pytest.mark.parametrize("name", ["records.jsonl", ".lock", "records.csv.new", "environment.json.new", "schema.json.new"])
def test_symbolic_links_in_the_folder_are_not_written_through(canned, tmp_path, name):
    sweep = write_sweep(tmp_path / "small.toml", method="linear", query_len=16)
    outside = tmp_path / "outside"
    outside.write_text("precious")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / name).symlink_to(outside)
    refused = name in ("records.jsonl", ".lock")
    done = canned("sweep", sweep, "--out", folder, "-q", code=2 if refused else 0)
    assert outside.read_text() == "precious"
    if refused:
        assert str(folder / name) in done.stderr


def test_a_sweep_writes_only_into_its_folder_with_ordinary_permissions(canned, tmp_path):
    os.umask(0o022)
    sweep = write_sweep(tmp_path / "small.toml", method="linear", query_len=16)
    before = set(tmp_path.rglob("*"))
    canned("sweep", sweep, "--out", "out", "-q")
    made = {path.relative_to(tmp_path).as_posix() for path in set(tmp_path.rglob("*")) - before}
    assert made == {"out", "out/records.jsonl", "out/processes.jsonl", "out/records.csv", "out/environment.json", "out/schema.json", "out/.lock"}
    for path in (tmp_path / "out").iterdir():
        assert path.stat().st_mode & 0o777 == 0o644, path
