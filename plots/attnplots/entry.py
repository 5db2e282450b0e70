"""Finds by its name what draws a figure, prints a table or writes a page, and runs it."""

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from attnplots.records import options
from attnplots.records.text import RecordsError, printable

# The exit code after an error that the user can mend, and the one that `attnbench` takes as the sign that Python lacks a package.
REFUSED, MISSING_PACKAGE = 2, 3
RECORDS = "records.jsonl"
READ_RECORDS = "records.records:load"
# The folders of the two runs that a figure of two runs shows by default.
RUNS = ("run-1", "run-2")


@dataclass(frozen=True)
class Figure:
    """A figure of result folders: what it shows, and the functions, as MODULE:FUNCTION of this package, that describe it.

    `ratio` describes it with ratios in place of times. `read` and `more` read a folder, which has files such as
    `file_name`; what they return are the arguments of the descriptions. A figure of two `runs` shows two folders.
    """

    about: str
    describe: str
    ratio: str = ""
    read: str = READ_RECORDS
    more: str = ""
    file_name: str = RECORDS
    runs: bool = False


@dataclass(frozen=True)
class Command:
    """Anything else that a name stands for: what it does, and the module whose main() does it."""

    about: str
    module: str


TABLE: dict[str, Figure | Command] = {
    "figure1": Figure(
        "draws figure 1: time and peak memory against the sequence length, and where methods become faster than sdpa",
        "figures.scaling:describe_crossovers", "figures.scaling:describe_ratio",
    ),
    "today": Figure(
        "draws time and peak memory of the attention of 2020 and of today's models against the sequence length",
        "figures.patterns:describe",
    ),
    "quickstart": Figure(
        "draws time and peak memory per sequence against the sequence length",
        "figures.scaling:describe", "figures.scaling:describe_ratio",
    ),
    "methods": Figure(
        "draws time and memory of all methods: a sheet for each pass, with and without a causal mask",
        "figures.scaling:describe_kinds", "figures.scaling:describe_kinds_ratio",
    ),
    "patterns": Figure(
        "draws time and memory of attention with patterns of visible keys, each pattern as a curve of its own, and the errors of windows",
        "figures.patterns:describe",
    ),
    "recurrent": Figure(
        "draws time and peak memory of recurrent attention against the sequence length, beside linear and softmax attention",
        "figures.scaling:describe_recurrent",
    ),
    "decode": Figure(
        "draws time per token and memory of decoding against the position in the sequence",
        "figures.decode:describe", "figures.decode:describe_ratio",
    ),
    "latency": Figure(
        "draws the time of a decoded token on the CPU and on the GPU, for each method", "figures.decode:describe_devices"
    ),
    "cpu-kernels": Figure(
        "draws the rates of the CPU kernels against the sequence length, below the rate of the machine",
        "figures.rates:describe", more="figures.ceilings:load",
    ),
    "gpu-grid": Figure(
        "draws the rates of the CUDA kernels against the sequence length, below the rate of the GPU",
        "figures.rates:describe", more="figures.ceilings:load_gpu",
    ),
    "quality": Figure(
        "draws how far methods are from exact attention, against their time and against how peaked the attention is",
        "figures.quality:describe",
    ),
    "rivals": Figure(
        "draws how many times as long other packages take as the methods of this project", "figures.rivals:describe"
    ),
    "repeat": Figure(
        "draws the ratios of two runs of one sweep, and by how much the runs differ", "figures.repeat:describe", runs=True
    ),
    "gate": Figure(
        "draws how often the gate reaches each verdict, by the true slowdown of a case",
        "figures.gate:describe", read="figures.gate:load", file_name="calibration.json",
    ),
    "image-speed": Figure(
        "draws seconds per image and images per second, on the CPU and on the GPU, beside published values",
        "figures.experiments.image_speed:describe", read="figures.experiments.image_speed:load", file_name="generations.jsonl",
    ),
    "models": Figure(
        "draws how many times as fast models of transformers are with the operators of this project",
        "figures.experiments.models:describe", read="figures.experiments.models:load", file_name="models.json",
    ),
    "ranks": Figure(
        "draws how operators are predicted to scale over the ranks of a process group",
        "figures.experiments.ranks:describe", read="figures.experiments.ranks:load", file_name="scaling.json",
    ),
    "images": Figure(
        "draws samples and completions of images that `attnbench` has generated",
        "figures.experiments.images:describe", read="figures.experiments.images:load", more="records.environment:load", file_name="*-*.npy",
    ),
    "plot": Command("draws any folder of records or of trainings", "plot"),
    "paper": Command("draws a figure of the paper, or prints one of its tables with our numbers", "published.paper"),
    "limits": Command(
        "prints the rates of the CPU kernels as shares of the machine's multiply-add rate, as Markdown", "published.limits"
    ),
    "summary": Command(
        "prints which method is the fastest, and from which length on methods are faster than sdpa, as Markdown",
        "published.summary",
    ),
    "verdicts": Command(
        "prints the paper's numbers beside ours, and which of its claims hold here", "published.verdicts"
    ),
    "history": Command("writes a page of HTML about a history, as `attnbench history report` has it", "report.history"),
    "report": Command("writes one page of HTML about folders of results", "report.page"),
    "check-results": Command("checks that the folders of results/ hold together", "published.shipped"),
    "renew-pages": Command(
        "draws all figures again from the records in results/, and writes the numbers that pages quote", "renewal"
    ),
}  # fmt: skip


def main(root: Path, arguments: Sequence[str]) -> int:
    """Runs what the first argument names, in the project at `root`."""
    names = "\n".join(f"  {name:15}{one.about}" for name, one in TABLE.items())
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Draws a figure, prints a table or writes a page.", epilog=f"names:\n{names}",
    )  # fmt: skip
    parser.add_argument("name", choices=TABLE, metavar="NAME", help="one of those below; NAME --help lists its options")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    chosen = parser.parse_args(arguments[:1])
    return run(root, chosen.name, arguments[1:], f"{parser.prog} {chosen.name}")


def run(root: Path, name: str, arguments: Sequence[str], program: str) -> int:
    """Runs an entry of the table. Returns its exit code, or that of an error, which begins with `program` on stderr."""
    entry = TABLE[name]
    about = f"{entry.about[:1].upper()}{entry.about[1:]}."
    parser = argparse.ArgumentParser(prog=program, description=about)
    try:
        if isinstance(entry, Figure):
            return _draw(entry, name, root, parser, arguments)
        code: int | None = import_module(f"attnplots.{entry.module}").main(root, parser, arguments)
        return code or 0
    except ModuleNotFoundError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return MISSING_PACKAGE
    except (RecordsError, OSError, subprocess.CalledProcessError) as error:
        print(printable(f"{program}: {error}"), file=sys.stderr)
        return REFUSED


def _function(text: str) -> Callable[..., Any]:
    module, _, name = text.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"attnplots.{module}"), name)
    return function


def _draw(entry: Figure, name: str, root: Path, parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """Draws a figure of each result folder. It has the name of the entry, and each of several sheets is called NAME-SHEET."""
    from attnplots.marks import files

    chosen = _options(entry, name, parser).parse_args(arguments)
    ratio = entry.ratio and chosen.quantity == "ratio"
    stem, describe = (f"{name}-ratio", entry.ratio) if ratio else (name, entry.describe)
    if entry.runs:
        folders = [_two_runs(chosen.folders, chosen.out, root / "results" / name)]
    else:
        folders = [[folder] for folder in chosen.folders or _result_folders(root, name, entry.file_name)]
    targets = _targets([several[0] for several in folders], chosen.out, entry.runs)
    # All folders are read before any figure is written, so that a bad file leaves none behind.
    loaded = [[_function(read)(folder) for folder in several for read in (entry.read, entry.more) if read]
              for several in folders]  # fmt: skip
    for several, data, target in zip(folders, loaded, targets, strict=True):
        folder, own_name, kinds = files.target_of(target)
        try:
            if entry.read == READ_RECORDS:
                count = len(several)
                data = [options.select_methods(found, chosen.methods) for found in data[:count]] + data[count:]
            described = _function(describe)(*data)
        except RecordsError as error:
            raise RecordsError(f"{' and '.join(str(one / entry.file_name) for one in several)}: {error}")
        if not isinstance(described, dict):
            described = {own_name or stem: described}
        elif own_name and list(described) == [""]:
            described = {own_name: described[""]}
        elif own_name:
            raise RecordsError(f"--out {target}: {name} has several sheets; expected a folder")
        else:
            described = {f"{stem}-{sheet}" if sheet else stem: one for sheet, one in described.items()}
        files.save(described, folder, chosen.width, kinds)
    return 0


def _options(entry: Figure, name: str, parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    from attnplots.marks import files

    usual = f"results/{name}/*/{{{','.join(RUNS)}}}, if there is one such pair" if entry.runs else f"every such folder in results/{name}/"
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="RUN_DIR" if entry.runs else "RESULT_DIR",
        help=f"{'the two folders of the runs, which contain' if entry.runs else 'folder that contains'} {entry.file_name} "
        f"(default: {usual})",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="FILE_OR_DIR",
        help="folder to write the figures to, or a file that ends in .pdf, .svg or .png (default: beside the records); "
        "with several result folders, a subfolder for each, which has the name of the result folder",
    )  # fmt: skip
    files.add_width(parser)
    if entry.read == READ_RECORDS:
        options.add_methods(parser)
    if entry.ratio:
        parser.add_argument(
            "--quantity", choices=("time", "ratio"), default="time",
            help="what to draw: times, or the ratios of times to those of the baseline that took turns "
            f"with each case, as the figure {name}-ratio (default: %(default)s)",
        )  # fmt: skip
    return parser


def _two_runs(folders: list[Path], out: Path | None, results: Path) -> list[Path]:
    """The folders of two runs: those given, or those of the only machine in a folder of results that has both."""
    if folders:
        if len(folders) != 2:
            raise RecordsError(f"expected the folders of two runs, found {len(folders)}")
        if out is None and len({run.resolve().parent for run in folders}) > 1:
            raise RecordsError("the runs are in different folders; expected --out")
        return folders
    found = [
        [machine / run for run in RUNS]
        for machine in sorted(results.glob("*"))
        if all((machine / run / RECORDS).exists() for run in RUNS)
    ]
    if len(found) != 1:
        expected = "expected one, or the folders of two runs on the command line"
        raise RecordsError(f"{results}: {len(found)} folders in it have {' and '.join(RUNS)} with {RECORDS}; {expected}")
    return found[0]


def _result_folders(root: Path, name: str, file_name: str) -> list[Path]:
    found = sorted({path.parent for path in (root / "results" / name).glob(f"*/{file_name}")})
    if not found:
        pattern = root / "results" / name / "*" / file_name
        raise RecordsError(f"{pattern}: no such file; expected at least one, or a RESULT_DIR on the command line")
    return found


def _targets(folders: list[Path], out: Path | None, of_runs: bool) -> list[Path]:
    """Where the figures of each folder go. Those of two runs are beside the folders of the runs."""
    if out is None:
        return [folder.resolve().parent for folder in folders] if of_runs else folders
    if len(folders) == 1:
        return [out]
    names = [folder.resolve().name for folder in folders]
    for name in names:
        if names.count(name) > 1:
            raise RecordsError(f"several result folders are named {name}; expected different names with --out")
    return [out / name for name in names]
