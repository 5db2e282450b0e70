"""The figure of image grids: unconditional samples and completions of each method.

A folder holds arrays of bytes in NumPy's format. samples-METHOD.npy has the shape [n, H, W] or
[n, H, W, 3] with colours, and completions-METHOD.npy [n, 3, H, W] or [n, 3, H, W, 3], where the
three are the occluded image, its completion and the original.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from attnplots import cli
from attnplots.figures import style
from attnplots.marks import sheet
from attnplots.records import environment
from attnplots.records.rows import method_text
from attnplots.records.environment import Environment
from attnplots.marks.labels import Box
from attnplots.records.records import RecordsError
from attnplots.marks.sheet import MARGIN
from attnplots.records.text import drawable

KINDS = {"samples": 0, "completions": 1}
# The rows of images that completions have. Where the first and the last are the same for all methods, they are shown
# once, above and below the completions of all methods.
PARTS = ("occluded", "completed", "original")
OCCLUDED, COMPLETED, ORIGINAL = range(3)
# In place of the method, for rows that belong to none.
NO_METHOD = ""

TITLES = {"samples": "Unconditional samples", "completions": "Completions of occluded images"}
# The most images in a row, and of samples the most rows for a method.
COLUMNS = 16
ROWS = 4
# The methods in the order of the paper's figures; others follow in alphabetical order.
ORDER = ("softmax", "linear", "lsh-1", "lsh-4")

TOP = 12.0
# The space for the names beside the images.
NAMES = 66.0
GAP = 1.5
NAME_LINE = 9.6
APART = 9.0
HEADING = 15.0
# The largest side of an image in points, so that few small images do not fill the sheet.
MAX_SIDE = 40.0


@dataclass(frozen=True)
class Grid:
    """The images of one method: bytes of shape [rows, columns, H, W] or [rows, columns, H, W, 3], the number of columns
    that have an image in the last row, and the names of the rows if they differ from that of the method. Rows that
    belong to no method have the name NO_METHOD in its place."""

    kind: str
    method: str
    images: np.ndarray
    in_last_row: int
    parts: tuple[str, ...] = ()


def load(folder: Path) -> list[Grid]:
    """The grids of a folder; raises RecordsError if there is none or an array has another shape."""
    found = []
    for kind in KINDS:
        for path in sorted(folder.glob(f"{kind}-*.npy")):
            method = drawable(path.stem.removeprefix(f"{kind}-"))
            found.append(_grid(kind, method, _array(path, kind)))
    if not found:
        names = ", ".join(f"{kind}-METHOD.npy" for kind in KINDS)
        raise RecordsError(f"{folder}: no images; expected files {names}")
    found.sort(key=lambda grid: (KINDS[grid.kind], _place(grid.method)))
    samples = [grid for grid in found if grid.kind == "samples"]
    return samples + _with_common_rows([grid for grid in found if grid.kind == "completions"])


def _with_common_rows(grids: list[Grid]) -> list[Grid]:
    """The completions of several methods with the occluded and the original images once, if these are the same for
    all; else the same grids."""
    common = [
        np.array_equal(grid.images[part], grids[0].images[part]) for grid in grids[1:] for part in (OCCLUDED, ORIGINAL)
    ]
    if not common or not all(common):
        return grids

    def row(grid: Grid, part: int, method: str, parts: tuple[str, ...]) -> Grid:
        return Grid(grid.kind, method, grid.images[part : part + 1], grid.in_last_row, parts)

    first, last = (row(grids[0], part, NO_METHOD, (PARTS[part],)) for part in (OCCLUDED, ORIGINAL))
    return [first, *(row(grid, COMPLETED, grid.method, ()) for grid in grids), last]


def _place(method: str) -> tuple[int, str]:
    return (ORDER.index(method) if method in ORDER else len(ORDER), method)


def _array(path: Path, kind: str) -> np.ndarray:
    """The array in a file; raises RecordsError if its dtype or its shape is wrong."""
    shape = "[n, H, W] or [n, H, W, 3]" if kind == "samples" else "[n, 3, H, W] or [n, 3, H, W, 3]"
    try:
        # Pickled objects could run code, so only arrays of plain numbers are read.
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise RecordsError(f"{path}: expected an array in NumPy's format: {error}")
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8:
        found = getattr(array, "dtype", type(array).__name__)
        raise RecordsError(f"{path}: expected bytes (uint8), found {found}")
    first = 1 if kind == "samples" else 2
    fits = array.ndim in (first + 2, first + 3) and array.size > 0
    fits = fits and (array.ndim == first + 2 or array.shape[-1] == 3)
    if not fits or (kind == "completions" and array.shape[1] != len(PARTS)):
        raise RecordsError(f"{path}: expected the shape {shape}, found {list(array.shape)}")
    return array


def _grid(kind: str, method: str, array: np.ndarray) -> Grid:
    if kind == "completions":
        shown = array[:COLUMNS].swapaxes(0, 1)
        return Grid(kind, method, shown, shown.shape[1], PARTS)
    shown = array[: COLUMNS * ROWS]
    columns = min(len(shown), COLUMNS)
    rows = -(-len(shown) // columns)
    in_last_row = len(shown) - columns * (rows - 1)
    images = np.zeros((rows * columns, *shown.shape[1:]), np.uint8)
    images[: len(shown)] = shown
    return Grid(kind, method, images.reshape(rows, columns, *shown.shape[1:]), in_last_row)


def draw(grids: list[Grid], found: Environment, notes: Sequence[str] = ()) -> Figure:
    """Draws a group of rows for each method, first the samples and then the completions, with notes
    below them."""
    figure = sheet.figure()
    footer = sheet.footer(figure, list(notes), environment.stamp([], found))
    sides = [_side(figure, grid) for grid in grids]
    kinds = list(dict.fromkeys(grid.kind for grid in grids))
    height = TOP + footer.height + HEADING * len(kinds)
    height += sum(len(g.images) * (h + GAP) + APART for g, (_, h) in zip(grids, sides, strict=True))
    sheet.size(figure, height)
    top, before = height - TOP, ""
    for grid, (wide, high) in zip(grids, sides, strict=True):
        if grid.kind != before:
            sheet.heading(figure, MARGIN, top - 5, _title(grids, grid.kind))
            top, before = top - HEADING, grid.kind
        _names(figure, grid, top, high)
        rows, columns = grid.images.shape[:2]
        for row in range(rows):
            bottom = top - (row + 1) * (high + GAP) + GAP
            for column in range(columns if row < rows - 1 else grid.in_last_row):
                left = MARGIN + NAMES + column * (wide + GAP)
                _image(figure, grid.images[row, column], Box(left, bottom, left + wide, bottom + high))
        top -= rows * (high + GAP) + APART
    footer.write(figure)
    return figure


def _title(grids: list[Grid], kind: str) -> str:
    """The title of a kind of images, with their size if it is the same for all methods."""
    sizes = {grid.images.shape[2:4] for grid in grids if grid.kind == kind}
    if len(sizes) > 1:
        return TITLES[kind]
    high, wide = sizes.pop()
    return f"{TITLES[kind]} ({high} × {wide} pixels)"


def _side(figure: Figure, grid: Grid) -> tuple[float, float]:
    """The width and the height of one image, in points."""
    high, wide = grid.images.shape[2:4]
    columns = max(grid.images.shape[1], 8)
    space = (sheet.width(figure) - 2 * MARGIN - NAMES) / columns - GAP
    scale = min(space / wide, MAX_SIDE / max(high, wide))
    return wide * scale, high * scale


def _names(figure: Figure, grid: Grid, top: float, high: float) -> None:
    """Writes at the left the method's name, which a line joins to all of its rows, and what each row shows."""
    # File names cannot hold every character of a method, so the name is shown as it is.
    if grid.method != NO_METHOD:
        colour = style.styles([grid.method])[grid.method].text_colour
        bottom = top - len(grid.images) * (high + GAP) + GAP
        x = MARGIN + NAMES - 5
        sheet.line(figure, (x, bottom), (x, top), colour, linewidth=1.4, gid="bracket")
        lines = _name_lines(figure, method_text(grid.method))
        # Beside a single row the name is in its middle; above the names of rows it is at the top.
        y = top - 8 if len(grid.images) > 1 else (top + bottom) / 2 - 3 + NAME_LINE * (len(lines) - 1) / 2
        for k, words in enumerate(lines):
            sheet.text(figure, MARGIN, y - NAME_LINE * k, words, style.HEAD_SIZE, colour, weight="bold", gid="label")
    for row, part in enumerate(grid.parts):
        below = row == 0 and grid.method != NO_METHOD
        y = top - row * (high + GAP) - (max(high / 2 + 3, 18) if below else high / 2 + 3)
        sheet.text(figure, MARGIN, y, part, style.NAME_SIZE, style.QUIET)


def _name_lines(figure: Figure, name: str) -> list[str]:
    """The name in lines that fit the space beside the images, broken after spaces and hyphens."""
    lines = [""]
    for part in re.split(r"(?<=[-,/: ])", name):
        if lines[-1] and sheet.text_width(figure, lines[-1] + part, style.HEAD_SIZE, "bold") > NAMES - 8:
            lines.append("")
        lines[-1] += part
    return [line.strip() for line in lines]


def _image(figure: Figure, pixels: np.ndarray, frame: Box) -> None:
    axes = sheet.axes(figure, frame)
    axes.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest", aspect="auto")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set(visible=True, linewidth=0.4, color=style.GUIDE)


def main(script: str, arguments: Sequence[str] | None = None) -> int:
    """Draws the images of each folder; returns 0, or 2 after an error on stderr."""
    parser = argparse.ArgumentParser(
        description="Draws samples and completions as grids of images."
    )
    parser.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="folder that contains samples-METHOD.npy or completions-METHOD.npy",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE_OR_DIR",
        help="file that ends in .pdf, .svg or .png, or folder for all three (default: FOLDER)",
    )
    cli.add_width(parser)
    options = parser.parse_args(arguments)
    try:
        grids = load(options.folder)
        found = environment.load(options.folder)
        folder, name, kinds = cli.target_of(options.out or options.folder)
        with style.context(options.width):
            cli.save({name or "images": draw(grids, found)}, folder, kinds)
    except (RecordsError, OSError) as error:
        return cli.refuse(script, error)
    return 0
