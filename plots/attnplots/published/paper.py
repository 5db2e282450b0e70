"""Every figure and every table of the paper by its name, from a folder of results: `attnbench paper`."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnplots.figures import chart, scaling, split, style
from attnplots.figures.experiments import images
from attnplots.marks import files
from attnplots.marks.files import Description
from attnplots.published import paper_tables
from attnplots.records import columns, environment, records, trainings
from attnplots.records.records import RecordsError
from attnplots.records.text import printable

MEMORY, BREAK_EVEN, LONG = "memory", "break-even", "long"
TRAIN, SWEEP = "attnbench train {}", "attnbench sweep {}"
GENERATE = "attnbench train {0}` and `attnbench generate results/{0}/MACHINE"


@dataclass(frozen=True)
class Drawing:
    """A figure of the paper, or several that belong together.

    Attributes:
        parts: the sources of each figure, which are names of sweeps or of settings files. A figure is drawn from the first of its
            sources that has a folder with files that match `needs`.
        needs: the pattern of the names of these files, such as "samples-*.npy".
        command: the command that makes the files, with {} for the source.
        describe: the function that describes the figure from the folders of its sources.
        also: sources whose folders, if they exist, are shown in the same figure.
    """

    parts: tuple[tuple[str, ...], ...]
    needs: str
    command: str
    describe: Callable[..., Description]
    also: tuple[str, ...] = ()


def _images(kind: str) -> Callable[[Path], Description]:
    def describe(folder: Path) -> Description:
        found = [grid for grid in images.load(folder) if grid.kind == kind]
        return images.describe(found, environment.load(folder), [f"Models of `{TRAIN.format(_source(folder))}`."])

    return describe


def _curves(*x: str) -> Callable[[Path], Description]:
    """A function that describes the loss of a training against each of the columns `x`, with a few marks on each line."""

    def describe(folder: Path) -> Description:
        table = columns.load(folder)
        usual = chart.default_request(table)
        return chart.describe(table, chart.Request(x, usual.y, usual.series, usual.facets, marked=True))

    return describe


def _sweep(describe: Callable[..., Description]) -> Callable[..., Description]:
    return lambda *folders: describe(*map(records.load, folders))


FIGURES = {
    # Time and memory against the sequence length.
    "figure1": Drawing((("figure1",),), records.FILE_NAME, SWEEP, _sweep(scaling.describe_crossovers)),
    # Loss of the copy task against updates.
    "figure2": Drawing((("copy-task", "copy-task-short"),), trainings.FILE_NAME, TRAIN, _curves("update")),
    # Images that the models draw, and their completions of images.
    "figure3": Drawing((("mnist", "fashion-short", "digits"),), "samples-*.npy", GENERATE, _images("samples")),
    "figure4": Drawing((("cifar10", "mnist", "fashion-short", "digits"),), "completions-*.npy", GENERATE, _images("completions")),
    # Loss of image generation and of speech against epochs and wall time.
    "figure5": Drawing(
        (("cifar10",), ("mnist", "fashion-short", "digits"), ("speech", "speech-short")), trainings.FILE_NAME, TRAIN, _curves("epoch", "training_s")
    ),
    # Loss of long sequences against wall time.
    LONG: Drawing((("long-text",), ("long-copy",)), trainings.FILE_NAME, TRAIN, _curves("training_s")),
    # What the peak memory consists of.
    MEMORY: Drawing((("figure1", "methods"),), records.FILE_NAME, SWEEP, _sweep(split.describe), also=("decode",)),
}
NAMES = (
    *(name for name in FIGURES if name not in (LONG, MEMORY)),
    *(f"table{number}" for number in paper_tables.NUMBERS), LONG, MEMORY, BREAK_EVEN,
)  # fmt: skip


def _source(folder: Path) -> str:
    """The name of the sweep or of the settings file that made a folder of results."""
    told = environment.told(folder)
    return str(told.get("sweep") or told.get("experiment") or folder.parent.name)  # of results/SWEEP/MACHINE


def _size(folder: Path) -> int:
    """The number of measured cases, or of points of curves."""
    if (folder / records.FILE_NAME).exists():
        return sum(record["outcome"] == "measured" for record in records.load(folder))
    if (folder / trainings.FILE_NAME).exists():
        return len(trainings.load_points(folder))
    return 0


def folder_of(root: Path, source: str, needs: str) -> Path | None:
    """The folder of the results of a source with files that match the pattern `needs`; None if there is none.

    Of several folders it is the one with the most measured cases or points of curves, and of equal ones the first by name.
    """
    found = sorted({path.parent for path in root.rglob(needs) if _source(path.parent) == source})
    return max(found, key=_size, default=None)


def sources_of(name: str, root: Path) -> dict[str, list[Path]]:
    """The folders that each figure of this name is drawn from, by the end of its file name. Raises
    RecordsError, which names the commands that make such folders, if there is none."""
    drawing, chosen = FIGURES[name], {}
    for sources in drawing.parts:
        folders = (folder_of(root, source, drawing.needs) for source in sources)
        first = next((folder for folder in folders if folder), None)
        if first:
            end = f"-{_source(first)}" if len(drawing.parts) > 1 else ""
            more = (folder_of(root, source, drawing.needs) for source in drawing.also)
            chosen[end] = [first, *(folder for folder in more if folder)]
    if not chosen:
        names = [source for sources in drawing.parts for source in sources]
        commands = " or ".join(f"`{drawing.command.format(source)}`" for source in names)
        raise RecordsError(f"{root}: {name} needs {drawing.needs} of {commands}, found none")
    return chosen


def described(name: str, chosen: dict[str, list[Path]]) -> dict[str, Description]:
    """The figures that `chosen` has folders for, by the ends of their file names."""
    found = {}
    for end, folders in chosen.items():
        try:
            found[end] = FIGURES[name].describe(*folders)
        except RecordsError as error:
            raise RecordsError(f"{' and '.join(map(str, folders))}: {error}")
    return found


def _draw(name: str, root: Path, widths: Sequence[str], out: Path, program: str) -> None:
    chosen = sources_of(name, root)
    told = [f"{name}{end} is drawn from {' and '.join(map(str, folders))}" for end, folders in chosen.items()]
    print(f"{program}: " + "\n".join(map(printable, told)), file=sys.stderr)
    # All figures are described before the first is written, so that an error leaves no files behind.
    found = described(name, chosen)
    for width in widths:
        files.save({f"{name}{end}-{width}": one for end, one in found.items()}, out, width)


def main(root: Path, parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Draws or prints what was asked for. `attnbench paper` describes the options."""
    parser.add_argument("what", choices=NAMES, metavar="NAME")
    parser.add_argument("--results", type=Path, default=root / "results")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--width", choices=tuple(style.WIDTHS))
    parser.add_argument("--format", choices=paper_tables.KINDS, default=paper_tables.KINDS[0])
    options = parser.parse_args(arguments)
    results = options.results
    if not results.is_dir():
        raise RecordsError(f"{results}: no such folder; expected a folder of results")
    if options.what in FIGURES:
        _draw(options.what, results, [options.width] if options.width else list(style.WIDTHS), options.out, parser.prog)
    elif options.what == BREAK_EVEN:
        sys.stdout.write(paper_tables.break_even(results).text(options.format))
    else:
        number = options.what.removeprefix("table")
        sys.stdout.write(paper_tables.paper_table(number, results, root).text(options.format))
