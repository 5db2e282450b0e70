"""Makes text from records fit to be printed, and says how many things there are."""

import unicodedata


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
