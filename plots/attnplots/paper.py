"""Every figure and every table of the paper by its name, drawn from a folder of results: `attnbench paper`."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from attnplots import chart, claims, cli, columns, driver, environment, images, records, results, scaling, style, verdicts
from attnplots.curves import method_text
from attnplots.records import RecordsError
from attnplots.split import draw as draw_split

TABLES = ("1", "2", "3", "4", "5")
KINDS = ("markdown", "latex")


@dataclass(frozen=True)
class Drawing:
    """A figure: what it shows, the sweeps or trainings whose folders it may be drawn from, of which
    the first that was measured counts, and the function that draws a folder."""

    about: str
    sources: tuple[str, ...]
    draw: Callable[[Path], Figure]


def _images(kind: str) -> Callable[[Path], Figure]:
    def draw(folder: Path) -> Figure:
        found = [grid for grid in images.load(folder) if grid.kind == kind]
        if not found:
            raise RecordsError(f"{folder}: no files {kind}-METHOD.npy; `attnbench generate` writes them")
        return images.draw(found, environment.load(folder))

    return draw


def _curves(x: Sequence[str]) -> Callable[[Path], Figure]:
    def draw(folder: Path) -> Figure:
        table = columns.load(folder)
        usual = chart.default_request(table)
        return chart.draw(table, chart.Request(tuple(x), usual.y, usual.series, usual.facets))

    return draw


FIGURES = {
    "figure1": Drawing("time and memory against the sequence length", ("figure1",), lambda f: scaling.draw_crossovers(records.load(f))),
    "figure2": Drawing("loss of the copy task against updates", ("copy-task", "copy-task-short"), _curves(["update"])),
    "figure3": Drawing("images that the models draw", ("mnist", "digits"), _images("samples")),
    "figure4": Drawing("completions of images", ("mnist", "digits"), _images("completions")),
    "figure5": Drawing("loss of image generation and of speech against wall time", ("cifar10", "mnist", "digits", "speech", "speech-short"),
                       _curves(["training_s"])),
    "memory": Drawing("what the peak memory consists of", ("figure1", "methods"), lambda f: draw_split(records.load(f))),
}  # fmt: skip
# Figures that have a file for each of their sources.
SEVERAL = ("figure5",)
BREAK_EVEN = "break-even"


def folders_of(root: Path, source: str) -> list[Path]:
    """The folders of the machines that have results of a sweep or a training."""
    names = (records.FILE_NAME, "curves.jsonl")
    return sorted({path.parent for name in names for path in (root / source).glob(f"*/{name}")})


def drawn(name: str, root: Path) -> dict[str, Figure]:
    """The figures of this name, by the ends of their file names. Raises RecordsError if nothing that
    it shows was measured."""
    drawing = FIGURES[name]
    present = [source for source in drawing.sources if folders_of(root, source)]
    if not present:
        commands = " or ".join(f"`attnbench {_verb(source)} {source}`" for source in drawing.sources)
        raise RecordsError(f"{root}: {name} needs the results of {commands}")
    chosen = present if name in SEVERAL else present[:1]
    return {
        f"-{source}" if name in SEVERAL else "": drawing.draw(folders_of(root, source)[0])
        for source in chosen
    }


def _verb(source: str) -> str:
    return "sweep" if source in ("figure1", "methods") else "train"


def table_text(number: str, kind: str, root: Path, project: Path) -> str:
    """A table of the paper, with its numbers beside ours."""
    published = project / "experiments" / "published"
    rows = results.load_published(sorted(published.glob("*.csv")))
    made = claims.load_claims(published / "claims.toml")
    (one,) = (t for t in verdicts.numbers(rows, results.load(root), made) if t.table == number)
    caption = f"{one.said_in}: published numbers and ours. Published for: {one.machine}."
    if kind == "markdown":
        return "\n".join([caption, "", *verdicts.table(verdicts.NUMBERS_HEAD, one.rows)])
    frame = pd.DataFrame(one.rows, columns=list(verdicts.NUMBERS_HEAD))
    return frame.to_latex(index=False, escape=True, caption=caption, label=f"tab:paper-{number}")


def break_even(root: Path) -> str:
    """From which length on the GPU is faster than the CPU, as a table in Markdown."""
    body = []
    for folder in folders_of(root, "figure1"):
        for pair in driver.ask("analyse", folder)["crossovers"]:
            if pair["quantity"] != "time" or "device" not in pair["differs"]:
                continue
            if pair["one"]["method"] != pair["other"]["method"]:
                continue
            low, high = pair.get("interval") or (None, None)
            at = pair.get("length")
            text = pair["verdict"] if at is None else f"{at:,.0f} ({low:,.0f} to {high:,.0f})"
            body.append([method_text(pair["one"]["method"]), pair["one"]["protocol"], text])
    if not body:
        raise RecordsError(f"{root}: the break-even needs cases of figure1 on a CPU and on a GPU; `make gpu` measures them")
    return "\n".join(verdicts.table(("method", "protocol", "GPU faster from N on (95 %)"), body))


def main(script: str, arguments: Sequence[str] | None = None) -> int:
    """Draws or prints what was asked for; returns 0, or 2 after an error on stderr."""
    project = Path(script).resolve().parent.parent
    names = [*FIGURES, *(f"table{n}" for n in TABLES), BREAK_EVEN]
    parser = argparse.ArgumentParser(description="Draws the figures of the paper and prints its tables, with our numbers.")
    parser.add_argument("what", choices=names, help="; ".join(f"{n}: {d.about}" for n, d in FIGURES.items()))
    parser.add_argument("--results", type=Path, default=project / "results", metavar="DIR", help="folder of results (default: results/ of the project)")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder for the files of a figure (default: the current one)")
    parser.add_argument("--width", choices=tuple(style.WIDTHS), help="width of the figure (default: a file for each width)")
    parser.add_argument("--format", choices=KINDS, default=KINDS[0], help="format of a table (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        if not options.results.is_dir():
            raise RecordsError(f"{options.results}: no such folder; expected a folder of results")
        if options.what in FIGURES:
            for width in [options.width] if options.width else style.WIDTHS:
                with style.context(width):
                    made = drawn(options.what, options.results)
                    cli.save({f"{options.what}{end}-{width}": figure for end, figure in made.items()}, options.out)
        elif options.what == BREAK_EVEN:
            print(break_even(options.results))
        else:
            print(table_text(options.what.removeprefix("table"), options.format, options.results, project))
    except (RecordsError, OSError) as error:
        return cli.refuse(script, error)
    return 0


if __name__ == "__main__":
    sys.exit(main(__file__))
