"""Draws described figures, and writes them to files."""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from attnplots.figures import style
from attnplots.figures.description import Bars, Sheet
from attnplots.figures.experiments.images import Images
from attnplots.marks import bars, grid, images, sheet
from attnplots.records.records import RecordsError
from attnplots.records.text import printable

# Dates and versions are left out of the files, so that drawing a figure again gives the same bytes.
METADATA: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}
# Dots per inch of PNG files, which make a page 2025 pixels wide.
DPI = 300
# Kinds of files that users may ask for, but that are not written.
OTHER_KINDS = ("jpg", "jpeg", "eps", "gif", "webp", "tif", "tiff", "html")

Description = Sheet | Bars | Images
DRAWINGS = {Sheet: grid.draw, Bars: bars.draw, Images: images.draw}


def draw(described: Description) -> Figure:
    """Draws a figure, as wide as sheet.context() says."""
    return DRAWINGS[type(described)](described)  # type: ignore[operator]


def save(
    described: Mapping[str, Description], target: Path, width: str = style.DEFAULT_WIDTH, kinds: Iterable[str] = METADATA
) -> None:
    """Draws figures, by their names, and writes them into a folder as PDF, SVG and PNG, and prints the paths.

    `kinds` are those of the three that are written. All figures are drawn before the first is written.
    """
    with sheet.context(width):
        figures = {name: draw(one) for name, one in described.items()}
        target.mkdir(parents=True, exist_ok=True)
        for name, figure in figures.items():
            for kind in kinds:
                path = target / f"{name}.{kind}"
                figure.savefig(path, metadata=METADATA[kind], dpi=DPI)
                print(printable(str(path)))


def add_width(parser: argparse.ArgumentParser) -> None:
    """Adds the option --width."""
    inches = ", ".join(f"{name} {points / 72:g} inches" for name, points in style.WIDTHS.items())
    parser.add_argument(
        "--width",
        choices=tuple(style.WIDTHS),
        default=style.DEFAULT_WIDTH,
        help=f"width of the figure in a paper: {inches} (default: %(default)s)",
    )


def target_of(out: Path) -> tuple[Path, str | None, tuple[str, ...]]:
    """The folder, the name (None: the usual one) and the kinds of the files that `--out` asks for,
    which is a folder, or a file that ends in one of METADATA.

    Raises RecordsError for a file of another kind.
    """
    kind = out.suffix.removeprefix(".").lower()
    if kind in METADATA and not out.is_dir():
        return out.parent, out.stem, (kind,)
    if kind in OTHER_KINDS and not out.is_dir():
        expected = f"expected a folder, or a file that ends in {', '.join(f'.{k}' for k in METADATA)}"
        raise RecordsError(f"--out {out}: {expected}")
    return out, None, tuple(METADATA)
