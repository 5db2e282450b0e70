"""Which folder of results a page quotes, and how it says where its numbers were measured."""

from collections.abc import Sequence
from pathlib import Path

from attnplots.records import environment, records
from attnplots.records.records import FILE_NAME, Record

# The lines that a page shows in place of a table without records.
NOTHING = ["Nothing is measured yet."]


def machine_folder(root: Path, name: str, file: str = FILE_NAME) -> Path | None:
    """The folder in results/NAME/ of the first machine, by name, that has this file; None if no machine has it."""
    found = sorted((root / "results" / name).glob(f"*/{file}"))
    return found[0].parent if found else None


def load_measured(root: Path, name: str) -> tuple[Path | None, list[Record]]:
    """The folder of a sweep that a page quotes and its measured records; None and an empty list if there is no folder."""
    folder = machine_folder(root, name)
    return folder, [r for r in records.load(folder) if r["outcome"] == "measured"] if folder else []


def provenance(folder: Path, of: Sequence[Record]) -> str:
    """Where and when lines of a folder were measured, as the end of a sentence."""
    known = environment.load(folder, list(of))
    dates = environment.dates_text(of)
    when = f" on {dates}" if dates else ""
    return f"{environment.machine_text(known)}{when}, revision {known.get('revision')}"


def linked_provenance(root: Path, folder: Path, of: Sequence[Record]) -> str:
    """Where and when records were measured, with a link to them from the project's folder, as the end of a sentence."""
    return f"{provenance(folder, of)} ([records]({folder.relative_to(root)}/))"
