"""Text that comes from files: reads lines of JSON, and makes texts fit to be printed."""

import json
import unicodedata
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


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object that a file holds. Raises RecordsError for a file that cannot be read, whose cause is then the OSError, and for
    one that holds something else."""
    try:
        said = json.loads(path.read_bytes().decode())
    except OSError as error:
        raise RecordsError(f"{path}: {error.strerror or type(error).__name__}") from error
    except (ValueError, RecursionError) as error:
        raise RecordsError(f"{path}: expected a JSON object: {error}")
    if not isinstance(said, dict):
        raise RecordsError(f"{path}: expected a JSON object, found {short(said)}")
    return said


def short(value: object) -> str:
    """A value as JSON for an error message, cut to 40 characters."""
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON; expected null for a number that is not finite")


def count_of(count: int, singular: str) -> str:
    """A number of things: "1 case", "2 cases", "0 processes"."""
    ending = "" if count == 1 else "es" if singular.endswith(("s", "x", "ch")) else "s"
    return f"{count} {singular}{ending}"


def printable(text: str) -> str:
    """The text with an escape such as \\x1b in place of each character that controls a terminal or
    changes the direction of the text."""
    if text.isprintable():  # which is true of most texts, and much faster
        return text
    return "".join(escaped(c) if _is_unsafe(c) else c for c in text)


def escaped(character: str) -> str:
    """The escape of a character, such as \\x1b."""
    return character.encode("unicode_escape").decode()


def _is_unsafe(character: str) -> bool:
    # Categories that begin with C are control, format, surrogate, private and unassigned
    # characters; Zl and Zp separate lines.
    category = unicodedata.category(character)
    return category.startswith("C") or category in ("Zl", "Zp")
