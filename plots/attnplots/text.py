"""Makes text from records fit to be printed and drawn."""

import unicodedata
from functools import cache

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

# Every figure is drawn with it. It comes with Matplotlib.
FONT = "DejaVu Sans"


@cache
def _characters() -> frozenset[int]:
    """The characters that the font has."""
    return frozenset(FT2Font(font_manager.findfont(FONT)).get_charmap())


def drawable(text: str) -> str:
    """The text with an escape such as \\x1b or \\u4e2d in place of each character that the font
    lacks or that controls a terminal: an SVG file with such characters is not well-formed, and
    Matplotlib warns about each glyph that it does not find."""
    return "".join(c if _is_drawable(c) else c.encode("unicode_escape").decode() for c in text)


def _is_drawable(character: str) -> bool:
    # The categories of control characters, formats, surrogates and separators of lines begin so.
    unsafe = unicodedata.category(character)[0] == "C" or unicodedata.category(character) in ("Zl", "Zp")
    return not unsafe and ord(character) in _characters()
