"""The figure of image grids: unconditional samples and completions of each method.

A folder holds arrays of bytes in NumPy's format. samples-METHOD.npy has the shape [n, H, W] or
[n, H, W, 3] with colours, and completions-METHOD.npy [n, 3, H, W] or [n, 3, H, W, 3], where the
three are the occluded image, its completion and the original.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attnplots.records import environment
from attnplots.records.environment import Environment
from attnplots.records.records import RecordsError
from attnplots.records.text import printable


KINDS = {"samples": 0, "completions": 1}
# The rows of images that completions have. Where the first and the last are the same for all methods, they are shown
# once, above and below the completions of all methods.
PARTS = ("occluded", "completed", "original")
OCCLUDED, COMPLETED, ORIGINAL = range(3)
# The method of rows that belong to none.
NO_METHOD = ""

TITLES = {"samples": "Unconditional samples", "completions": "Completions of occluded images"}
# The most images in a row, and of samples the most rows for a method.
COLUMNS = 16
ROWS = 2
# The methods in the order of the paper's figures; others follow in alphabetical order.
ORDER = ("softmax", "linear", "lsh-1", "lsh-4")


@dataclass(frozen=True)
class Grid:
    """The images of one method: bytes of shape [rows, columns, H, W] or [rows, columns, H, W, 3], the number of columns
    that have an image in the last row, and the names of the rows if they differ from that of the method. Rows that
    belong to no method have the method NO_METHOD."""

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
            method = printable(path.stem.removeprefix(f"{kind}-"))
            found.append(_grid(kind, method, _array(path, kind)))
    if not found:
        names = ", ".join(f"{kind}-METHOD.npy" for kind in KINDS)
        raise RecordsError(f"{folder}: no images; expected files {names}")
    found.sort(key=lambda grid: (KINDS[grid.kind], _place(grid.method)))
    samples = [grid for grid in found if grid.kind == "samples"]
    return samples + _merge_common_rows([grid for grid in found if grid.kind == "completions"])


def _merge_common_rows(grids: list[Grid]) -> list[Grid]:
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


@dataclass(frozen=True)
class Images:
    """A figure of images: groups of rows for each method, first the samples and then the completions."""

    grids: list[Grid]
    notes: list[str]
    stamp: str


def describe(grids: list[Grid], found: Environment, notes: Sequence[str] = ()) -> Images:
    """The figure of the images of a folder with this environment."""
    return Images(grids, list(notes), environment.stamp([], found))
