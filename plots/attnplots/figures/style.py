"""Colours, markers and fonts, which give a method the same look in every figure."""

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from attnplots.records.methods import method_name

TEXT = "#222222"
QUIET = "#6a6a6a"
GUIDE = "#8c8c8c"
GRID = "#e7e7e7"
# The background of a report in dark mode, as report/page.css has it.
DARK_PAGE = "#15171b"

# The sizes of text in points, at the widths that figures are drawn for.
HEAD_SIZE = 8.5
NAME_SIZE = 7.5
SMALL_SIZE = 7.0

# The widths of figures in points (1/72 inch): a column and a page of a paper, 3.25 and 6.75 inches.
WIDTHS = {"column": 234.0, "page": 486.0}
DEFAULT_WIDTH = "page"

# The hue shows the family of a method, the tone the method within it. The tones of a family, and
# the first tones of all families, differ in lightness, so that they can be told apart in grey.
FAMILIES = {
    "softmax": ("#141414", "#5f5f5f", "#989898", "#b0572a"),
    "sdpa": ("#dd6418", "#9a3a00", "#f2a268"),
    "linear": ("#0b4a91", "#58aee8", "#2b7cc4", "#0a2a66", "#7d8fe0", "#4a63b8", "#8fa6bd"),
    "lsh": ("#63b98b", "#2d8f63", "#0c5c3c", "#93b428", "#7d9a8b"),
    "kernel": ("#7b3aa6", "#c58be6", "#d6409f", "#6e1145"),
    "efficient": ("#0f8f98", "#57bcc4", "#07484e"),
    "linformer": ("#a87b00", "#d3ad33", "#6b4e00"),
    "recurrent": ("#b3235f", "#e07aa4"),
    "delta": ("#c2185b", "#f06292", "#7b1040", "#d81b7a", "#a8607f"),
    "sparse": ("#8a6d00", "#c7a52c", "#574400", "#a8923d", "#6b6414", "#d9c46b"),
    "decay": ("#8a5a35", "#c99a6b", "#55331a", "#a9744a"),
}
# The families of methods whose names do not begin with the name of their family.
MEMBERS = {
    "favor": "kernel", "rff": "kernel", "polynomial": "kernel", "taylor": "kernel",
    "stateful": "softmax", "bi": "recurrent", "gated": "delta", "kda": "delta",
    "topk": "sparse", "pooled": "sparse", "mla": "sparse", "window": "sparse", "strided": "sparse", "dilated": "sparse", "block": "sparse",
    "gla": "decay", "simple": "decay", "retnet": "decay", "lightning": "decay",
}  # fmt: skip
OTHER_FAMILIES = (
    ("#b3235f", "#e07aa4", "#7c0f3c"),
    ("#8a6d00", "#c7a52c", "#574400"),
    ("#0f7c85", "#57bcc4", "#07484e"),
    ("#7a4a2b", "#b98562", "#4a2812"),
)

SOLID = (0, ())
DASHED = (0, (5, 1.6))
DOTTED = (0, (1.2, 1.4))
DASH_DOT = (0, (6, 1.5, 1.2, 1.5))
DASHES = (SOLID, DASHED, DASH_DOT, DOTTED)

# The markers, each with the size in points at which it looks as large as the others.
MARKERS = {
    "o": 3.9, "s": 3.6, "^": 4.4, "D": 3.5, "v": 4.4, "P": 4.7, "<": 4.4, ">": 4.4,
    "h": 4.4, "p": 4.4, "d": 4.7, "*": 6.0, "8": 4.1,
}  # fmt: skip

T = TypeVar("T")
Dash = tuple[int, tuple[float, ...]]

# The looks of known methods: index of the tone in the family, marker, whether the marker is hollow, dash.
KNOWN: dict[str, tuple[int, str, bool, Dash]] = {
    "softmax": (0, "o", False, SOLID),
    "stateful-softmax": (1, "o", True, DASHED),
    "stateful-softmax-concat": (2, "8", False, DASH_DOT),
    "sdpa": (0, "s", False, DASHED),
    "stateful-sdpa": (3, "8", True, DOTTED),
    "linear": (0, "^", False, SOLID),
    "linear-einsum": (1, "D", False, DASH_DOT),
    "linear-cumsum": (2, "v", False, DASHED),
    "linear-recurrent": (3, "d", True, DOTTED),
    "linear-elu0.1": (4, "^", True, DASHED),
    "linear:implementation=avx2": (5, "v", True, DASH_DOT),
    "linear-chunked": (6, "p", True, DOTTED),
    "lsh-1": (0, "<", False, SOLID),
    "lsh-4": (1, ">", False, DASHED),
    "lsh-8": (2, "h", False, DASH_DOT),
    "lsh:rounds=4,profile=fast-transformers": (3, ">", True, DOTTED),
    "lsh-composed": (4, "<", True, DOTTED),
    "favor": (0, "P", False, SOLID),
    "rff": (1, "p", False, DASHED),
    "polynomial-2": (2, "d", False, DASH_DOT),
    "taylor": (3, "*", False, SOLID),
    "efficient": (0, "s", True, SOLID),
    "linformer": (0, "D", True, SOLID),
    "bi-lstm": (0, "*", True, DASH_DOT),
    "gated-delta": (0, "o", False, SOLID),
    "kda": (2, "s", False, DASHED),
    "delta": (1, "D", True, DASH_DOT),
    "gated-delta-composed": (3, "o", True, DOTTED),
    "kda-composed": (4, "s", True, DOTTED),
    "sparse-sdpa": (0, "D", False, SOLID),
    "topk-pooled": (4, "h", True, DASHED),
    "pooled-kv": (3, "p", True, DASH_DOT),
    "mla": (2, "P", True, DASHED),
    "simple-gla": (0, "P", False, SOLID),
    "gla": (2, "v", False, DASHED),
    "retnet": (1, "h", True, DASH_DOT),
    "lightning": (3, "p", False, DOTTED),
}


@dataclass(frozen=True)
class Style:
    """The look of one method. `text_colour` is `colour` made dark enough for small text, and `width` is in points. Of the points of
    a curve, the last has a mark, and so has every `every`-th before it; without a `marker` none has."""

    colour: str
    text_colour: str
    marker: str | None
    hollow: bool
    dash: Dash
    width: float = 1.2
    every: int = 1


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """A style for each method. The name of a method determines its style, unless two methods would look
    alike. A method with options looks like the one without them, unless that method or another one with
    options is among `methods`."""
    names = sorted(set(methods))
    plain = {name: name if name in KNOWN else method_name(name) for name in names}
    counts = Counter(plain.values())
    known = [name for name in names if plain[name] in KNOWN and (name in KNOWN or counts[plain[name]] == 1)]
    chosen: dict[str, Style] = {}
    for name in known:
        tone, marker, hollow, dash = KNOWN[plain[name]]
        chosen[name] = _style(FAMILIES[family(name)][tone], marker, hollow, dash)
    for name in [n for n in names if n not in known]:
        code = zlib.crc32(name.encode())
        colours = {look.colour for look in chosen.values()}
        shapes = {(look.marker or "", look.hollow) for look in chosen.values()}
        colour = _first_free(_tones(name), colours)
        every = [(marker, hollow) for hollow in (False, True) for marker in MARKERS]
        marker, hollow = _first_free(_rotated(every, code // 4), shapes)
        chosen[name] = _style(colour, marker, hollow, DASHES[code % len(DASHES)])
    return chosen


def _style(colour: str, marker: str, hollow: bool, dash: Dash) -> Style:
    return Style(colour, _text_colour(colour), marker, hollow, dash)


def family(name: str) -> str:
    """The family of a method: a key of FAMILIES, or the beginning of its own name."""
    stem = re.split(r"[^a-z0-9]", name.lower(), maxsplit=1)[0]
    return MEMBERS.get(stem, stem)


def _tones(name: str) -> list[str]:
    """The colours that a method may have, in the order in which they are tried."""
    if family(name) in FAMILIES:
        tones = FAMILIES[family(name)]
        return _rotated(tones, zlib.crc32(name.encode()))
    families = _rotated(OTHER_FAMILIES, zlib.crc32(family(name).encode()))
    # The first tones of all families come before the second ones, so that hues are reused late.
    return [tones[k] for k in range(3) for tones in families]


def _rotated(items: Sequence[T], by: int) -> list[T]:
    start = by % len(items)
    return [*items[start:], *items[:start]]


def _first_free(items: list[T], used: set[T]) -> T:
    return next((item for item in items if item not in used), items[0])


def _rgb(colour: str) -> tuple[float, ...]:
    """The parts of a colour such as "#0b4a91", from 0 to 1."""
    return tuple(int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))


def _hex(parts: Iterable[float]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def luminance(colour: str) -> float:
    """Relative luminance, from 0 (black) to 1 (white)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _text_colour(colour: str) -> str:
    """The colour, darkened until its contrast with white is at least 4.5 to 1."""
    while 1.05 / (luminance(colour) + 0.05) < 4.5:
        red, green, blue = _rgb(colour)
        colour = _hex((0.95 * red, 0.95 * green, 0.95 * blue))
    return colour


def on_dark(colour: str) -> str:
    """The colour, lightened until its contrast with the page of a dark report is at least 3 to 1."""
    while (luminance(colour) + 0.05) / (luminance(DARK_PAGE) + 0.05) < 3.0:
        red, green, blue = _rgb(colour)
        colour = _hex((red + 0.08 * (1 - red), green + 0.08 * (1 - green), blue + 0.08 * (1 - blue)))
    return colour
