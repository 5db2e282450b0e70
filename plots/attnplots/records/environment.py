"""Reads `environment.json`, which says what build and machine the lines of a folder come from."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attnplots.records.records import Record
from attnplots.records.text import RecordsError, json_object, printable, short

FILE_NAME = "environment.json"
COLUMNS = (
    "revision", "dirty", "build", "compiler", "torch_version", "cpu_model", "processors", "instruction_set", "gpu",
)

Environment = dict[str, Any]


def read(folder: Path) -> dict[str, Any]:
    """All that the file of a folder says; empty if it is missing. Raises RecordsError if it cannot be read."""
    path = folder / FILE_NAME
    try:
        return json_object(path)
    except RecordsError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return {}
        raise


def told(folder: Path) -> dict[str, Any]:
    """read(), but empty if the file cannot be read, about which load() complains."""
    try:
        return read(folder)
    except RecordsError:
        return {}


def load(folder: Path, records: list[Record] | None = None) -> Environment:
    """The environment of a folder. Where the file does not say it, that of the first of `records`,
    which may have the same columns.

    Raises RecordsError if the file is there but cannot be read.
    """
    found = read(folder).get("environment", {})
    if not isinstance(found, dict):
        raise RecordsError(f"{folder / FILE_NAME}: expected an object in `environment`, found {short(found)}")
    found = found or (records or [{}])[0]
    environment = {name: found.get(name) for name in COLUMNS if found.get(name) is not None}
    return {n: printable(v) if isinstance(v, str) else v for n, v in environment.items()}


def build_text(environment: Environment) -> str:
    """The build in words, such as "9febb05c769c, CPU Release, GNU 12.2.0, torch 2.11.0"."""
    revision = environment.get("revision")
    if revision and environment.get("dirty"):
        revision += " with uncommitted changes"
    torch = environment.get("torch_version")
    parts = (revision, environment.get("build"), environment.get("compiler"))
    parts += (f"torch {torch}" if torch else None,)
    return ", ".join(str(part) for part in parts if part)


def machine_text(environment: Environment) -> str:
    """The machine in words, such as "Intel(R) Xeon(R) Processor, 2 processors, NVIDIA H100"."""
    count = environment.get("processors")
    processors = f"{count} processor{'' if count == 1 else 's'}" if count else None
    parts = (environment.get("cpu_model"), processors, environment.get("gpu"))
    return ", ".join(str(part) for part in parts if part)


def dates_text(lines: Iterable[Record]) -> str:
    """The first and the last day on which lines were finished, such as "2026-11-22 to 2026-11-25"; one
    day if they are the same, and empty if no line says it."""
    dates = sorted({str(line["finished_at"])[:10] for line in lines if line.get("finished_at")})
    return " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else ""


def stamp(lines: Iterable[Record], environment: Environment | None = None) -> str:
    """The machine, the version of torch, the revision and the date of numbers, which figures show
    in a corner, such as "Intel Xeon Processor · torch 2.11.0 · 9febb05c769c · 2026-11-22".

    What the lines do not say themselves is taken from `environment`. Lines that were imported
    instead of measured do not count.
    """
    own = [line for line in lines if not line.get("external_source")]
    known = environment or {}

    def each(name: str) -> list[Any]:
        found = [line.get(name) for line in own if line.get(name) is not None]
        return list(dict.fromkeys(found or [known[name]] if found or name in known else []))

    parts = [" / ".join(_short_cpu(model) for model in each("cpu_model"))]
    parts.append(" / ".join(str(gpu) for gpu in each("gpu")))
    parts.append(" / ".join(f"torch {version}" for version in each("torch_version")))
    changed = " with uncommitted changes" if True in each("dirty") else ""
    revisions = each("revision")
    parts.append(" / ".join(map(str, revisions)) + changed if revisions else "")
    parts.append(dates_text(own) or dates_text([known]))
    return " · ".join(part for part in parts if part)


def _short_cpu(model: object) -> str:
    return " ".join(re.sub(r"\((R|TM)\)|\bCPU\b", " ", str(model), flags=re.IGNORECASE).split())
