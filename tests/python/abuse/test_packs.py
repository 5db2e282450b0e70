"""Tests that `attnbench import` refuses damaged and malicious packs, and that nothing is written then."""

import gzip
import hashlib
import io
import json
import tarfile

import pytest
from conftest import write_sweep

REVISION, GPU = "0123456789ab", "NVIDIA H100"
MANIFEST = {"format": "attnbench-gpu", "version": 1, "revision": REVISION, "gpu": GPU, "steps": []}


@pytest.fixture(scope="module")
def record():
    return {"schema_version": None, "method": "linear", "device": "cuda", "outcome": "measured", "revision": REVISION, "gpu": GPU,
            "time_median_ms": 1.0}  # fmt: skip


@pytest.fixture
def files(canned, tmp_path, record):
    """The files of a pack with one record."""
    sweep = write_sweep(tmp_path / "one.toml", method="linear", query_len=32)
    canned("sweep", sweep, "--out", "made", "-q")
    line = json.loads((tmp_path / "made/records.jsonl").read_text())
    environment = json.loads((tmp_path / "made/environment.json").read_text())
    line |= {"revision": REVISION, "gpu": GPU, "device": "cuda"}
    environment["environment"]["revision"] = REVISION
    return {
        "results/figure1/records.jsonl": json.dumps(line).encode() + b"\n",
        "results/figure1/environment.json": json.dumps(environment).encode(),
        "logs/verify.txt": b"all agree\n",
    }


def entry(data):
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def pack(path, files, listed=None, first=None, members=(), prefix="attnbench-gpu/", **manifest):
    """Writes a pack. `listed` replaces what the manifest lists, `first` the text of the manifest, and `members` are added as
    they are."""
    listed = {name: entry(data) for name, data in files.items()} if listed is None else listed
    text = json.dumps(MANIFEST | manifest | {"files": listed}).encode() if first is None else first
    with tarfile.open(path, "w:gz") as tar:
        for name, data in [("manifest.json", text), *files.items()]:
            member = tarfile.TarInfo(prefix + name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for member, data in members:
            tar.addfile(member, io.BytesIO(data))
    return path


def member(name, kind=tarfile.REGTYPE, target="", data=b""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, len(data)
    return [(info, data)]


@pytest.fixture
def refused(attnbench, tmp_path):
    """Imports a pack, checks that it is refused with these words, and that nothing was written."""

    def check(path, *words):
        before = sorted(tmp_path.rglob("*"))
        done = attnbench("import", path, code=2)
        for text in words:
            assert text in done.stderr
        assert done.stderr.count("\n") == 1 and str(path) in done.stderr
        assert sorted(tmp_path.rglob("*")) == before

    return check


def test_a_pack_is_imported(attnbench, files, tmp_path):
    path = pack(tmp_path / "pack.tar.gz", files, steps=[{"name": "verify", "outcome": "failed", "reason": "exit code 1\x1b[2J"}])
    said = attnbench("import", path).stdout
    assert f"results/figure1/nvidia-h100: 1 record of {GPU}, revision {REVISION}" in said
    assert "on that machine, verify: failed, exit code 1" in said and "\x1b" not in said
    assert (tmp_path / "results/figure1/nvidia-h100/records.jsonl").exists()
    assert not (tmp_path / "results/figure1/nvidia-h100/verify.txt").exists()
    assert "--source is for CSV files" in attnbench("import", path, "--source", "x", code=2).stderr


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (member("attnbench-gpu/../../outside"), "'attnbench-gpu/../../outside' is not an accepted name"),
        (member("/tmp/outside"), "is not an accepted name"),
        (member("attnbench-gpu/a\x1b[2J"), "is not an accepted name"),
        (member("attnbench-gpu/.ssh/config"), "is not an accepted name"),
        (member("attnbench-gpu/" + "a/" * 5 + "b"), "is not an accepted name"),
        (member("attnbench-gpu/" + "a" * 300), "is not an accepted name"),
        (member("other/a"), "is not an accepted name"),
        (member("attnbench-gpu/link", tarfile.SYMTYPE, "/etc/passwd"), "is a symbolic link, expected plain files only"),
        (member("attnbench-gpu/link", tarfile.LNKTYPE, "attnbench-gpu/manifest.json"), "is a hard link"),
        (member("attnbench-gpu/zero", tarfile.CHRTYPE), "is a device"),
        (member("attnbench-gpu/disk", tarfile.BLKTYPE), "is a device"),
        (member("attnbench-gpu/pipe", tarfile.FIFOTYPE), "is a pipe"),
        (member("attnbench-gpu/folder", tarfile.DIRTYPE), "is a folder"),
        (member("attnbench-gpu/logs/more.txt", data=b"x"), "logs/more.txt is not listed in the manifest"),
        (member("attnbench-gpu/logs/verify.txt", data=b"x"), "logs/verify.txt appears more than once"),
        (member("attnbench-gpu/manifest.json", data=b"{}"), "manifest.json appears more than once"),
    ],
)
def test_members_that_are_no_listed_plain_files_are_refused(refused, files, tmp_path, extra, said):
    refused(pack(tmp_path / "pack.tar.gz", files, members=extra), said)


def test_damaged_packs_are_refused(refused, files, tmp_path):
    listed = {name: entry(data) for name, data in files.items()}
    changed = files | {"logs/verify.txt": b"all differ"}
    refused(pack(tmp_path / "a.tar.gz", changed, listed), "logs/verify.txt does not have the SHA-256 digest that the manifest lists")
    refused(pack(tmp_path / "b.tar.gz", files | {"logs/verify.txt": b"x"}, listed), "logs/verify.txt has 1 bytes, but the manifest lists 10")
    refused(pack(tmp_path / "c.tar.gz", files, listed | {"logs/build.txt": entry(b"")}), "logs/build.txt is missing")
    whole = pack(tmp_path / "d.tar.gz", files).read_bytes()
    for end in (2, 15, len(whole) // 2, len(whole) - 1):
        (tmp_path / "d.tar.gz").write_bytes(whole[:end])
        refused(tmp_path / "d.tar.gz", "truncated")
    (tmp_path / "d.tar.gz").write_bytes(whole[:-8] + bytes(8))
    refused(tmp_path / "d.tar.gz", "not a complete tar archive compressed with gzip")
    (tmp_path / "e.tar.gz").write_bytes(gzip.compress(b"no archive"))
    refused(tmp_path / "e.tar.gz", "truncated")


def test_packs_that_unpack_to_too_much_are_refused(refused, files, tmp_path):
    bomb = tmp_path / "bomb.tar.gz"
    header = tarfile.TarInfo("attnbench-gpu/manifest.json")
    header.size = 1 << 40
    bomb.write_bytes(gzip.compress(header.tobuf() + bytes(1 << 20)))
    refused(bomb, "manifest.json has 1099511627776 bytes, expected at most")
    # A header of which the tar format says that it is long is read before anything in it can be checked.
    header.type, header.size = tarfile.XHDTYPE, 1 << 40
    with gzip.open(bomb, "wb", 1) as out:
        out.write(header.tobuf(tarfile.GNU_FORMAT))  # which can write such a size
        for _ in range(300):
            out.write(bytes(1 << 20))
    refused(bomb, "it unpacks to more than 256 MiB")


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (b"{", "manifest.json is not JSON"),
        (b"[" * 100_000, "manifest.json is not JSON"),
        (b"[]", 'manifest.json does not say "format": "attnbench-gpu"'),
        (b'{"format": "attnbench-gpu", "version": 2}', "manifest.json has version 2, expected 1"),
        (b'{"format": "attnbench-gpu", "version": 1}', "manifest.json lists no files"),
        (b'{"format": "attnbench-gpu", "version": 1, "files": {"../x": {"bytes": 1, "sha256": ""}}}', "manifest.json lists '../x'"),
        (b'{"format": "attnbench-gpu", "version": 1, "files": {}}', "is not listed in the manifest"),
    ],
)
def test_manifests_that_cannot_be_used_are_refused(refused, files, tmp_path, manifest, said):
    refused(pack(tmp_path / "pack.tar.gz", files, first=manifest), said)


def test_a_pack_without_a_manifest_is_refused(refused, files, tmp_path):
    with tarfile.open(tmp_path / "pack.tar.gz", "w:gz") as tar:
        for info, data in member("attnbench-gpu/logs/verify.txt", data=b"x"):
            tar.addfile(info, io.BytesIO(data))
    refused(tmp_path / "pack.tar.gz", "its first file is logs/verify.txt, expected manifest.json")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"revision": "ffffffffffff"}, "has revision '0123456789ab', but the manifest says 'ffffffffffff'"),
        ({"gpu": "NVIDIA A100"}, "was measured on 'NVIDIA H100', but the manifest says 'NVIDIA A100'"),
        ({"gpu": "///"}, "gpu = '///', expected a name"),
        ({"gpu": 1}, "manifest.json: type must be string"),
        ({"steps": [{}]}, "manifest.json: key 'outcome' not found"),
    ],
)
def test_records_of_another_origin_than_the_manifest_says_are_refused(attnbench, files, tmp_path, changes, said):
    path = pack(tmp_path / "pack.tar.gz", files, **changes)
    assert said in attnbench("import", path, code=2).stderr
    assert not (tmp_path / "results").exists()


def test_records_without_their_environment_are_refused(attnbench, files, tmp_path):
    del files["results/figure1/environment.json"]
    done = attnbench("import", pack(tmp_path / "pack.tar.gz", files), code=2)
    assert "results/figure1 has no environment.json" in done.stderr
    files["results/figure1/records.jsonl"] = b"{\n"
    assert "pack.tar.gz" in attnbench("import", pack(tmp_path / "pack.tar.gz", files), code=2).stderr
    assert not (tmp_path / "results").exists()
