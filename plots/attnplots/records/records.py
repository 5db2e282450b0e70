"""Reads `records.jsonl` by way of `attnbench table`, which checks the records and gives them in the current schema."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from attnplots.records import driver, methods, schema
from attnplots.records.methods import EXTERNAL
from attnplots.records.text import RecordsError, printable

Record = dict[str, Any]

FILE_NAME = "records.jsonl"


class Records(list[Record]):
    """Records, and the folder that they were read from, if any."""

    def __init__(self, records: Iterable[Record], folder: Path | None = None) -> None:
        super().__init__(records)
        self.folder = folder

    def where(self, wanted: Callable[[Record], bool]) -> "Records":
        """The records for which `wanted` is true."""
        return Records((record for record in self if wanted(record)), self.folder)


def load(folder: Path) -> Records:
    """read(), with texts that can be drawn. From then on methods.method_text() knows the labels of the methods."""
    found = read(folder)
    for record in found:
        record.update({n: printable(v) for n, v in record.items() if isinstance(v, str)})
    methods.add_labels((record["method"], record.get("method_label") or "") for record in found)
    return found


def read(folder: Path) -> Records:
    """The records of `folder`, one for each case, in the order in which the cases first appear. The last record of a case
    counts.

    Raises RecordsError, which names the file and the line, if a record cannot be used.
    """
    path = folder / FILE_NAME
    found = Records(driver.ask("table", path, "--all"), folder)
    if not found:
        raise RecordsError(f"{path}: no records; expected at least one JSON object on a line")
    for record in found:
        if record["external_source"]:
            record["method"] += EXTERNAL
    return found


def identity(record: Record) -> str:
    """A text that is the same for records of the same case."""
    return identity_of(record, [axis.name for axis in schema.current().axes])


def identity_of(record: Record, columns: Iterable[str]) -> str:
    """A text that is the same for records with equal values in these columns."""
    return json.dumps([record.get(name) for name in columns], sort_keys=True)
