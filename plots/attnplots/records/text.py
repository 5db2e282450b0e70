"""Makes text from records fit to be printed and drawn, and says how many things there are."""

import unicodedata
from functools import cache

# Every figure is drawn with it, in two weights. It comes with Matplotlib.
FONT = "DejaVu Sans"


@cache
def _characters() -> frozenset[int]:
    """The characters that the font has in both weights."""
    # Matplotlib is imported here, because records can be read without it.
    from matplotlib.font_manager import FontProperties, findfont
    from matplotlib.ft2font import FT2Font

    files = (findfont(FontProperties(family=FONT, weight=weight)) for weight in ("normal", "bold"))
    return frozenset.intersection(*(frozenset(FT2Font(file).get_charmap()) for file in files))


def count_of(count: int, singular: str) -> str:
    """A number of things: "1 case", "2 cases", "0 processes"."""
    ending = "" if count == 1 else "es" if singular.endswith(("s", "x", "ch")) else "s"
    return f"{count} {singular}{ending}"


def printable(text: str) -> str:
    """The text with an escape such as \\x1b in place of each character that controls a terminal or
    changes the direction of the text."""
    if text.isprintable():  # which is true of most texts, and much faster
        return text
    return "".join(_escaped(c) if _is_unsafe(c) else c for c in text)


def drawable(text: str) -> str:
    """printable(), also with escapes such as \\u4e2d for characters that the font lacks, since
    Matplotlib would warn about each of them. A figure in SVG with control characters would not be
    well-formed."""
    return "".join(c if ord(c) in _characters() else _escaped(c) for c in printable(text))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _is_unsafe(character: str) -> bool:
    # Categories that begin with C are control, format, surrogate, private and unassigned
    # characters; Zl and Zp separate lines.
    category = unicodedata.category(character)
    return category.startswith("C") or category in ("Zl", "Zp")
