"""The command line that every plotting script has."""

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from attnplots import records, style
from attnplots.records import RecordsError
from attnplots.text import printable

# Dates and versions are left out of the files, so that drawing a figure again gives the same bytes.
METADATA: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}

# Kinds of files that users may ask for, but that are not written.
OTHER_KINDS = ("jpg", "jpeg", "eps", "gif", "webp", "tif", "tiff", "html")

# The folders of the two runs that a script of two runs draws by default.
RUNS = ("run-1", "run-2")

# Takes the records and, if a script passes `load_more`, what that returned for the same folder.
Draw = Callable[..., Figure]


def main(
    script: str,
    about: str | None,
    draw: Draw,
    *,
    load: Callable[[Path], Any] = records.load,
    file_name: str = records.FILE_NAME,
    load_more: Callable[[Path], Any] | None = None,
    draw_ratio: Draw | None = None,
    **others: Draw,
) -> int:
    """Draws the figures of each result folder; returns 0, or 2 after an error on stderr.

    The figure of `draw` has the name of the script; a further figure, given by the keyword NAME,
    is called `SCRIPT-NAME`. `load` reads the data of a result folder from the file `file_name`,
    which every such folder has. `load_more` reads other data from a result folder; every function
    that draws gets its result as the second argument. `draw_ratio` draws ratios to a baseline
    instead of times; with it, the script has the option --quantity, whose value `ratio` makes
    `SCRIPT-ratio` the only figure.
    """
    stem = Path(script).stem
    figures = {stem: draw} | {f"{stem}-{suffix}": other for suffix, other in others.items()}
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "folders",
        nargs="*",
        type=Path,
        metavar="RESULT_DIR",
        help=f"folder that contains {file_name} (default: every such folder in results/{stem}/)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder to write the figures to (default: beside the records); with several result "
        "folders, a subfolder of DIR for each, which has the name of the result folder",
    )
    if draw_ratio:
        _add_quantity(parser, stem, others)
    options = parser.parse_args()
    if draw_ratio and options.quantity == "ratio":
        figures = {f"{stem}-ratio": draw_ratio}
    try:
        folders = options.folders or _result_folders(
            Path(script).resolve().parent.parent, stem, file_name
        )
        targets = _targets(folders, options.out)
        # All folders are read before any figure is written, so that a bad file leaves none behind.
        loaded = [(load(folder), *([load_more(folder)] if load_more else [])) for folder in folders]
        for folder, data, target in zip(folders, loaded, targets, strict=True):
            with style.context():
                try:
                    drawn = {name: function(*data) for name, function in figures.items()}
                except RecordsError as error:
                    raise RecordsError(f"{folder / file_name}: {error}")
                save(drawn, target)
    except (RecordsError, OSError) as error:
        return refuse(script, error)
    return 0


def main_of_two_runs(
    script: str, about: str, draw: Callable[[records.Records, records.Records], Figure]
) -> int:
    """Draws one figure of two runs of a sweep; returns 0, or 2 after an error on stderr."""
    stem = Path(script).stem
    parser = argparse.ArgumentParser(description=about)
    pattern = f"results/{stem}/*/{{{','.join(RUNS)}}}"
    parser.add_argument(
        "folders",
        nargs="*",
        type=Path,
        metavar="RUN_DIR",
        help=f"the folders of the first and the second run, which contain {records.FILE_NAME} "
        f"(default: {pattern}, if there is one such pair)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder to write the figure to (default: the folder that contains both runs)",
    )
    options = parser.parse_args()
    try:
        root = Path(script).resolve().parent.parent
        runs = options.folders or _two_runs(root / "results" / stem)
        if len(runs) != 2:
            raise RecordsError(f"expected the folders of two runs, found {len(runs)}")
        parents = {run.resolve().parent for run in runs}
        if options.out is None and len(parents) > 1:
            raise RecordsError("the runs are in different folders; expected --out")
        loaded = [records.load(run) for run in runs]
        with style.context():
            try:
                figure = draw(*loaded)
            except RecordsError as error:
                raise RecordsError(f"{runs[0]} and {runs[1]}: {error}")
            save({stem: figure}, options.out or runs[0].resolve().parent)
    except (RecordsError, OSError) as error:
        return refuse(script, error)
    return 0


def _two_runs(folder: Path) -> list[Path]:
    """The two runs of the only machine in a folder that has both."""
    found = [
        [machine / run for run in RUNS]
        for machine in sorted(folder.glob("*"))
        if all((machine / run / records.FILE_NAME).exists() for run in RUNS)
    ]
    if len(found) != 1:
        expected = "expected one, or the folders of two runs on the command line"
        have = f"{len(found)} folders in it have {' and '.join(RUNS)}"
        raise RecordsError(f"{folder}: {have} with {records.FILE_NAME}; {expected}")
    return found[0]


def save(figures: dict[str, Figure], target: Path, kinds: Iterable[str] = METADATA) -> None:
    """Writes figures, by their names, into a folder as PDF, SVG and PNG, and prints the paths.

    `kinds` are those of the three that are written.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        for kind in kinds:
            path = target / f"{name}.{kind}"
            figure.savefig(path, metadata=METADATA[kind], dpi=200)
            print(printable(str(path)))


def target_of(out: Path) -> tuple[Path, str | None, tuple[str, ...]]:
    """The folder, the name (None: the usual one) and the kinds of the files that `--out` asks for,
    which is a folder, or a file that ends in one of METADATA.

    Raises RecordsError for a file of another kind.
    """
    kind = out.suffix.removeprefix(".").lower()
    if kind in METADATA and not out.is_dir():
        return out.parent, out.stem, (kind,)
    if kind in OTHER_KINDS and not out.is_dir():
        expected = (
            f"expected a folder, or a file that ends in {', '.join(f'.{k}' for k in METADATA)}"
        )
        raise RecordsError(f"--out {out}: {expected}")
    return out, None, tuple(METADATA)


def refuse(script: str, error: Exception) -> int:
    """Prints an error, and returns the exit code of a script that could not draw."""
    print(printable(f"{Path(script).name}: {error}"), file=sys.stderr)
    return 2


def _add_quantity(parser: argparse.ArgumentParser, stem: str, others: dict[str, Draw]) -> None:
    without = "".join(f", and no {stem}-{suffix}" for suffix in others)
    parser.add_argument(
        "--quantity",
        choices=("time", "ratio"),
        default="time",
        help="what to draw: times, or the ratios of times to those of the baseline that took turns "
        f"with each case, as the figure {stem}-ratio{without} (default: %(default)s)",
    )


def _result_folders(root: Path, stem: str, file_name: str) -> list[Path]:
    found = sorted(path.parent for path in (root / "results" / stem).glob(f"*/{file_name}"))
    if not found:
        pattern = root / "results" / stem / "*" / file_name
        expected = "expected at least one, or a RESULT_DIR on the command line"
        raise RecordsError(f"{pattern}: no such file; {expected}")
    return found


def _targets(folders: list[Path], out: Path | None) -> list[Path]:
    if out is None:
        return folders
    if len(folders) == 1:
        return [out]
    names = [folder.resolve().name for folder in folders]
    for name in names:
        if names.count(name) > 1:
            raise RecordsError(
                f"several result folders are named {name}; expected different names with --out"
            )
    return [out / name for name in names]
