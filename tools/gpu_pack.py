"""The file in which the results of a GPU travel: a compressed tar archive with a manifest.

tools/gpu.py writes it, and `attnbench import` reads it with

    python tools/gpu_pack.py FILE FOLDER

which checks the whole archive and then writes its manifest and its records into FOLDER. An archive
comes from somebody else, so that nothing in it is believed: it may hold plain files with plain
names only, those that its manifest lists, with the sizes and the SHA-256 digests that it lists.
The digests find damage; they do not show who made the archive.
"""

import gzip
import hashlib
import io
import json
import re
import sys
import tarfile
import zlib
from pathlib import Path
from typing import Any

FORMAT = "attnbench-gpu"
VERSION = 1
TOP = "attnbench-gpu"  # the folder that all members lie in
MANIFEST = "manifest.json"
RECORD_FILES = ("records.jsonl", "processes.jsonl", "environment.json")

MAX_FILES = 2000
MAX_MANIFEST_BYTES = 4 << 20
MAX_BYTES = 256 << 20  # of the archive when it is unpacked
MAX_NAME = 200

# A part of a name begins with a letter or a digit, so that it is neither hidden, nor "..", nor an option.
PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
NAME = re.compile(rf"{PART}(?:/{PART}){{0,3}}", re.ASCII)


class PackError(Exception):
    """Says what is wrong with an archive."""


def write(folder: Path, archive: Path, manifest: dict[str, Any]) -> None:
    """Packs all files of the folder, with a manifest that lists them. Leaves no half of an archive."""
    files = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink()}
    listed = {name: path.read_bytes() for name, path in files.items() if NAME.fullmatch(name)}
    manifest = {"format": FORMAT, "version": VERSION} | manifest
    manifest["files"] = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in listed.items()
    }
    unfinished = archive.with_name(archive.name + ".new")
    with tarfile.open(unfinished, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name, data in [(MANIFEST, json.dumps(manifest, indent=1).encode()), *listed.items()]:
            member = tarfile.TarInfo(f"{TOP}/{name}")
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    unfinished.replace(archive)


class _Bounded(io.RawIOBase):
    """Reads a stream and refuses to read more than a number of bytes, however far it unpacks."""

    def __init__(self, stream: Any, max_bytes: int):
        self._stream, self._left = stream, max_bytes

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise PackError(f"it unpacks to more than {MAX_BYTES >> 20} MiB")
        return data


def read(archive: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the files of an archive by their names. Raises PackError, or OSError if the
    file cannot be read."""
    if not archive.is_file():  # a device such as /dev/zero might never end
        raise PackError("no such file" if not archive.exists() else "not a regular file")
    try:
        with gzip.open(archive) as unpacked:
            stream = _Bounded(unpacked, MAX_BYTES)
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                manifest, files = _members(tar)
            while stream.read(1 << 20):  # what follows the archive, so that a damaged end is noticed
                pass
    except EOFError as error:
        raise PackError("it is truncated") from error
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error) as error:
        raise PackError(f"not a complete tar archive compressed with gzip: {error}") from error
    for name, data in files.items():
        if hashlib.sha256(data).hexdigest() != manifest["files"][name]["sha256"]:
            raise PackError(f"{name} does not have the SHA-256 digest that the manifest lists; the file is damaged")
    if missing := sorted(set(manifest["files"]) - set(files)):
        raise PackError(f"{missing[0]} is missing, which the manifest lists")
    return manifest, files


def _members(tar: tarfile.TarFile) -> tuple[dict[str, Any], dict[str, bytes]]:
    manifest: dict[str, Any] | None = None
    files: dict[str, bytes] = {}
    for member in tar:
        name = _name_of(member)
        if manifest is None:
            if name != MANIFEST:
                raise PackError(f"its first file is {name}, expected {MANIFEST}; `make gpu` makes such archives")
            manifest = _manifest(_data(tar, member, MAX_MANIFEST_BYTES))
            continue
        if name in files or name == MANIFEST:
            raise PackError(f"{name} appears more than once")
        if name not in manifest["files"]:
            raise PackError(f"{name} is not listed in the manifest")
        expected = manifest["files"][name]["bytes"]
        if member.size != expected:
            raise PackError(f"{name} has {member.size} bytes, but the manifest lists {expected}")
        files[name] = _data(tar, member, MAX_BYTES)
    if manifest is None:
        raise PackError("it is empty")
    return manifest, files


def _name_of(member: tarfile.TarInfo) -> str:
    """The name of a member in the folder that all are in. Refuses other kinds than plain files."""
    shown = ascii(member.name[:MAX_NAME])
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
        kinds = {
            tarfile.SYMTYPE: "a symbolic link", tarfile.LNKTYPE: "a hard link", tarfile.DIRTYPE: "a folder",
            tarfile.CHRTYPE: "a device", tarfile.BLKTYPE: "a device", tarfile.FIFOTYPE: "a pipe",
        }  # fmt: skip
        raise PackError(f"{shown} is {kinds.get(member.type, 'of an unknown kind')}, expected plain files only")
    top, _, name = member.name.partition("/")
    if len(member.name) > MAX_NAME or top != TOP or not NAME.fullmatch(name):
        raise PackError(f"{shown} is not an accepted name, expected {TOP}/ and up to four plain names")
    return name


def _data(tar: tarfile.TarFile, member: tarfile.TarInfo, max_bytes: int) -> bytes:
    if member.size > max_bytes:
        raise PackError(f"{member.name} has {member.size} bytes, expected at most {max_bytes}")
    stream = tar.extractfile(member)
    data = stream.read() if stream else b""
    if len(data) != member.size:
        raise PackError("it is truncated")
    return data


def _manifest(data: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PackError(f"{MANIFEST} is not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PackError(f'{MANIFEST} does not say "format": "{FORMAT}"; `make gpu` makes such archives')
    if manifest.get("version") != VERSION:
        raise PackError(f"{MANIFEST} has version {manifest.get('version')!r}, expected {VERSION}, which this build understands")
    files = manifest.get("files")
    if not isinstance(files, dict) or len(files) > MAX_FILES:
        raise PackError(f"{MANIFEST} lists no files, or more than {MAX_FILES}")
    for name, entry in files.items():
        is_entry = isinstance(entry, dict) and type(entry.get("bytes")) is int and isinstance(entry.get("sha256"), str)
        if not NAME.fullmatch(name) or not is_entry:
            raise PackError(f"{MANIFEST} lists {ascii(name[:MAX_NAME])}, expected a plain name with bytes and sha256")
    return manifest


def record_folders(files: dict[str, bytes]) -> list[str]:
    """The names of the sweeps whose records are among the files."""
    found = [re.fullmatch(rf"results/({PART})/records\.jsonl", name) for name in files]
    return sorted(match[1] for match in found if match)


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("gpu_pack.py: expected FILE FOLDER", file=sys.stderr)
        return 2
    archive, folder = map(Path, arguments)
    try:
        manifest, files = read(archive)
        manifest["sweeps"] = record_folders(files)
        (folder / MANIFEST).write_text(json.dumps(manifest), "utf-8")
        for sweep in manifest["sweeps"]:
            (folder / sweep).mkdir()
            for name in RECORD_FILES:
                if (data := files.get(f"results/{sweep}/{name}")) is not None:
                    (folder / sweep / name).write_bytes(data)
    except PackError as error:
        print(f"gpu_pack.py: {archive}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"gpu_pack.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
