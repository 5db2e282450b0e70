"""Reads files with one JSON value on each line, and says what is wrong with them."""

import json
from pathlib import Path
from typing import Any


class RecordsError(ValueError):
    """Records or other input files that cannot be used; the message is one line for the user."""


def json_lines(path: Path) -> list[tuple[int, Any]]:
    """The number and the JSON value of each line; raises RecordsError for a line that is no JSON.

    A program that was killed can leave an incomplete last line, which is left out.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise RecordsError(f"{path}: {problem}; expected a file with one JSON object on each line")
    tail = lines.pop()
    found = []
    for number, line in enumerate([*lines, tail] if tail else lines, start=1):
        try:
            found.append((number, json.loads(line.decode(), parse_constant=_refuse_constant)))
        except (ValueError, RecursionError) as error:
            if number > len(lines):
                break
            raise RecordsError(f"{path}:{number}: expected a JSON object: {error}")
    return found


def short(value: object) -> str:
    """A value as JSON for an error message, cut to 40 characters."""
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON; expected null for a number that is not finite")
