"""The command line that every plotting script has."""

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from attnplots.figures import style
from attnplots.records import records
from attnplots.records.methods import method_text, split_method
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

# The folders of the two runs that a script of two runs draws by default.
RUNS = ("run-1", "run-2")

# Takes the records and, if a script passes `load_more`, what that returned for the same folder. A
# script that draws several sheets returns them by the ends of their names.
Draw = Callable[..., Figure | dict[str, Figure]]


def main(
    script: str,
    about: str | None,
    draw: Draw,
    *,
    load: Callable[[Path], Any] = records.load,
    file_name: str = records.FILE_NAME,
    load_more: Callable[[Path], Any] | None = None,
    draw_ratio: Draw | None = None,
) -> int:
    """Draws the figures of each result folder; returns 0, or 2 after an error on stderr.

    The figure of `draw` has the name of the script, and each of several sheets is called
    `SCRIPT-SHEET`. `load` reads the data of a result folder from the file `file_name`, which every
    such folder has. `load_more` reads other data from a result folder; `draw` gets its result as
    the second argument. `draw_ratio` draws ratios to a baseline instead of times; with it, the
    script has the option --quantity, whose value `ratio` makes `SCRIPT-ratio` the only figure.
    Scripts that draw records have the option --methods.
    """
    stem = Path(script).stem
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
    add_width(parser)
    draws_records = load is records.load
    if draws_records:
        add_methods(parser)
    if draw_ratio:
        _add_quantity(parser, stem)
    options = parser.parse_args()
    try:
        folders = options.folders or _result_folders(
            Path(script).resolve().parent.parent, stem, file_name
        )
        targets = _targets(folders, options.out)
        # All folders are read before any figure is written, so that a bad file leaves none behind.
        loaded = [(load(folder), *([load_more(folder)] if load_more else [])) for folder in folders]
        for folder, data, target in zip(folders, loaded, targets, strict=True):
            with style.context(options.width):
                try:
                    if draws_records:
                        data = (of_methods(data[0], options.methods), *data[1:])
                    if draw_ratio and options.quantity == "ratio":
                        drawn = named(f"{stem}-ratio", draw_ratio(*data))
                    else:
                        drawn = named(stem, draw(*data))
                except RecordsError as error:
                    raise RecordsError(f"{folder / file_name}: {error}")
                save(drawn, target)
    except (RecordsError, OSError) as error:
        return refuse(script, error)
    return 0


def add_width(parser: argparse.ArgumentParser) -> None:
    """Adds the option --width."""
    inches = ", ".join(f"{name} {points / 72:g} inches" for name, points in style.WIDTHS.items())
    parser.add_argument(
        "--width",
        choices=tuple(style.WIDTHS),
        default=style.DEFAULT_WIDTH,
        help=f"width of the figure in a paper: {inches} (default: %(default)s)",
    )


def add_methods(parser: argparse.ArgumentParser) -> None:
    """Adds the option --methods."""
    parser.add_argument(
        "--methods",
        metavar="NAME,...",
        help="draws only these methods, named as in the records; the options of a method may be "
        "left out (default: all)",
    )


def add_results(parser: argparse.ArgumentParser, root: Path) -> None:
    """Adds the argument `results`, the folder of all results, for scripts that read more than one."""
    parser.add_argument(
        "results",
        nargs="?",
        type=Path,
        default=root / "results",
        metavar="RESULTS",
        help="folder of results (default: results/ of the project)",
    )


def of_methods(found: records.Records, wanted: str | None) -> records.Records:
    """The records of the methods that --methods names. Raises RecordsError for an unknown one."""
    if wanted is None:
        return found
    chosen = chosen_methods((record["method"] for record in found), wanted)
    return found.where(lambda record: record["method"] in chosen)


def chosen_methods(methods: Iterable[str], wanted: str) -> set[str]:
    """Those of the methods that --methods names. Raises RecordsError for a name that is none."""
    present = list(dict.fromkeys(methods))
    chosen: set[str] = set()
    for name in split_names(wanted):
        fits = [m for m in present if name in (m, split_method(m)[0], method_text(m))]
        if not fits:
            raise RecordsError(f"--methods: no record of {name}; there are {', '.join(present)}")
        chosen.update([name] if name in fits else fits)
    return chosen


def split_names(text: str) -> list[str]:
    """The names of methods in a list with commas, which also separate options: "softmax,
    lsh:rounds=4,chunk=8" has two names."""
    names: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if names and ":" in names[-1] and "=" in part and ":" not in part:
            names[-1] += f",{part}"
        elif part:
            names.append(part)
    return names


def named(stem: str, drawn: Figure | dict[str, Figure]) -> dict[str, Figure]:
    """The figures of a script by their file names."""
    if isinstance(drawn, Figure):
        return {stem: drawn}
    return {f"{stem}-{suffix}": figure for suffix, figure in drawn.items()}


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
    add_width(parser)
    add_methods(parser)
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
        with style.context(options.width):
            try:
                figure = draw(*(of_methods(found, options.methods) for found in loaded))
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
            figure.savefig(path, metadata=METADATA[kind], dpi=DPI)
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


def _add_quantity(parser: argparse.ArgumentParser, stem: str) -> None:
    parser.add_argument(
        "--quantity",
        choices=("time", "ratio"),
        default="time",
        help="what to draw: times, or the ratios of times to those of the baseline that took turns "
        f"with each case, as the figure {stem}-ratio (default: %(default)s)",
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
