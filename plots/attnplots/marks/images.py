"""Draws grids of images, with the names of their methods beside them."""

import re

import numpy as np
from matplotlib.figure import Figure

from attnplots.figures import style
from attnplots.figures.experiments.images import NO_METHOD, TITLES, Grid, Images
from attnplots.marks import sheet
from attnplots.marks.labels import Box
from attnplots.marks.sheet import MARGIN
from attnplots.records.methods import method_text

TOP = 12.0
# The space for the names beside the images.
NAMES = 66.0
GAP = 1.5
NAME_LINE = 9.6
APART = 9.0
HEADING = 15.0
# The largest side of an image in points, so that few small images do not fill the sheet.
MAX_SIDE = 40.0


def draw(content: Images) -> Figure:
    """Draws a group of rows for each method, with notes below them."""
    figure = sheet.figure()
    grids = content.grids
    footer = sheet.footer(figure, content.notes, content.stamp)
    # Images with equally many pixels have the same size.
    sides = [min(_side(figure, other) for other in grids if other.images.shape[2:4] == grid.images.shape[2:4]) for grid in grids]
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
