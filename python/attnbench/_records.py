"""Reads the records of sweeps as a pandas data frame."""

import importlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from attnbench import _installation

if TYPE_CHECKING:
    from types import ModuleType

# By type of a column: the dtype of that column of the data frame. Lists and objects stay as they are.
_DTYPES = {"text": "string", "integer": "Int64", "number": "float64", "boolean": "boolean"}
# The groups of columns that environment.json says where a record does not.
_ENVIRONMENT_GROUPS = ("environment", "gpu")


def records(*folders: str | os.PathLike[str]) -> pd.DataFrame:
    """The records of result folders, with a row for each case.

    `attnbench list columns` describes the columns; their names end in the unit. A missing value is
    <NA>, or NaN in a column of numbers. Columns whose values are lists, such as time_samples_ms,
    hold Python lists. A case that was recorded several times counts with its last record. The
    column `folder`, which comes first, says where a row comes from, and
    `frame.attrs["environments"]` has the contents of each folder's environment.json by the same
    name.

    Args:
        folders: folders that contain a file records.jsonl, or other folders, which stand for all
            such folders below them.

    Raises:
        FileNotFoundError: a folder does not exist, or has no records; the message names it.
        ValueError: a file cannot be read as records; the message names it and the line.
    """
    if not folders:
        raise TypeError(
            "records() needs at least one folder, such as attnbench.records('results/figure1')"
        )
    found = [path for folder in folders for path in _result_folders(Path(folder))]
    environments = {str(path): _environment(path) for path in found}
    frames = [_frame_of_folder(path, environments[str(path)]) for path in found]
    frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    frame.attrs["environments"] = environments
    return frame


def plotting_module(name: str) -> "ModuleType":
    """A module of the project's package attnplots, which reads records and draws them.

    The package is in a folder of its own beside the plotting scripts.
    """
    folder = str(_installation.find().plots)
    sys.path.append(folder)
    try:
        return importlib.import_module(f"attnplots.{name}")
    finally:
        sys.path.remove(folder)


def frame_of(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, Any]) -> pd.DataFrame:
    """A data frame of records with these columns (attnplots.records.schema.Column)."""
    listed = list(rows)
    return pd.DataFrame(
        {
            name: pd.Series([row.get(name) for row in listed], dtype=_DTYPES.get(column.type, "object"))
            for name, column in columns.items()
        }
    )


def _result_folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder}: no such folder; expected a folder of records, such as one in results/"
        )
    found = sorted(path.parent for path in folder.rglob("records.jsonl"))
    if folder in found:
        return [folder]
    if not found:
        raise FileNotFoundError(
            f"{folder}: neither this folder nor one below it has a file records.jsonl"
        )
    return found


def _environment(folder: Path) -> dict[str, Any]:
    """The contents of a folder's environment.json; empty if it has none."""
    path = folder / "environment.json"
    try:
        contents = json.loads(path.read_bytes().decode())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected a JSON object: {error}") from None
    if not isinstance(contents, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(contents).__name__}")
    return contents


def _frame_of_folder(folder: Path, environment: dict[str, Any]) -> pd.DataFrame:
    found = plotting_module("records.records").read(folder)
    columns = plotting_module("records.schema").current().columns
    said = environment.get("environment")
    said = said if isinstance(said, dict) else {}
    known = {n: said.get(n) for n, c in columns.items() if c.group in _ENVIRONMENT_GROUPS}
    for record in found:
        if not record.get("external_source"):  # which comes from another machine
            record.update(
                {name: value for name, value in known.items() if record.get(name) is None}
            )
    frame = frame_of(found, columns)
    frame.insert(0, "folder", pd.Series([str(folder)] * len(frame), dtype="string"))
    return frame
