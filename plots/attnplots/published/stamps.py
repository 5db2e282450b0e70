"""Records which data the figures of a folder were drawn from, so that figures that are older than their data are found.

A folder with figures has a file `figures.json`, with the SHA-256 digest of the data that the figures show and that of each figure.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

FILE_NAME = "figures.json"
FIGURES = (".pdf", ".svg", ".png")
# The files that figures are drawn from. processes.jsonl and records.csv are not among them, because they have the same numbers as
# records.jsonl. A test compares the list with what the figures of the table of commands read.
DATA = (
    "records.jsonl",
    "environment.json",
    "curves.jsonl",
    "trainings.jsonl",
    "generations.jsonl",
    "calibration.json",
    "models.json",
    "scaling.json",
    "*.npy",
)


def figures_in(folder: Path) -> list[Path]:
    """The figures of a folder, sorted."""
    return sorted(path for path in folder.iterdir() if path.suffix in FIGURES)


def _data_in(folder: Path) -> Iterator[Path]:
    for pattern in DATA:
        # The figure of two runs is beside the folders of the runs.
        yield from sorted([*folder.glob(pattern), *folder.glob(f"run-*/{pattern}")])


def data_digest(folder: Path) -> str:
    """The digest of everything that the figures of a folder are drawn from."""
    digest = hashlib.sha256()
    for path in _data_in(folder):
        digest.update(f"{path.relative_to(folder)}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write(folder: Path, drawn_since: float) -> None:
    """Writes `figures.json` with the figures of a folder that were written since `drawn_since` (seconds since 1970). Older figures are
    left out of it, so that problems() reports them."""
    drawn = [path for path in figures_in(folder) if path.stat().st_mtime >= drawn_since]
    content = {"data": data_digest(folder), "figures": {p.name: _digest(p) for p in drawn}}
    (folder / FILE_NAME).write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def problems(folder: Path) -> list[str]:
    """What is wrong with the figures of a folder; empty if it has none."""
    figures = figures_in(folder)
    if not figures:
        return []
    path = folder / FILE_NAME
    try:
        known = json.loads(path.read_bytes())
        data, stamped = known["data"], dict(known["figures"])
    except FileNotFoundError:
        return [f"no {FILE_NAME} says which data its figures show"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"{FILE_NAME} cannot be used: {error!r}"]
    if data != data_digest(folder):
        return ["the figures were drawn from other data than is there now"]
    changed = [p.name for p in figures if stamped.get(p.name) != _digest(p)]
    return [f"not drawn with the others: {', '.join(changed)}"] if changed else []
