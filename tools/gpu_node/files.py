"""Files that are complete whenever the program ends, and the records of a folder."""

import json
import os
from pathlib import Path
from typing import Any, Dict, List


class UnfitError(Exception):
    """Says why this machine cannot measure, with what was found and what was expected."""


def write_json(path: Path, value: Any) -> None:
    """Replaces the file as a whole, so that it is complete whenever this program ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", "utf-8")
    os.replace(unfinished, path)


def read_json(path: Path, what: str) -> Dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UnfitError(f"{path}: {error}; expected {what}") from error
    if not isinstance(value, dict):
        raise UnfitError(f"{path} is no JSON object; expected {what}")
    return value


def axes_of(folder: Path) -> List[str]:
    """The names of the axes of the cases in a result folder, as its schema.json has them."""
    return [axis["name"] for axis in read_json(folder / "schema.json", "the schema of a result folder")["axes"]]


def records_of(folder: Path) -> List[Dict[str, Any]]:
    """The last record of each case in a result folder. A line that is not complete is left out."""
    try:
        lines = (folder / "records.jsonl").read_text("utf-8").splitlines()
    except OSError:
        return []
    axes = axes_of(folder)
    found: Dict[str, Dict[str, Any]] = {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        found[json.dumps([record.get(name) for name in axes])] = record
    return list(found.values())
