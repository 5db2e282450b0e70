"""Draws the figures of results/ again, and writes the pages that quote the records."""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from attnplots import cli
from attnplots.published import pages, stamps
from attnplots.records import records, trainings
from attnplots.records.records import RecordsError


def _scripts(root: Path) -> Iterator[list[str]]:
    """The command of each figure: that of the script with the name of a sweep, and the curves and
    the images of trainings."""
    for script in sorted((root / "plots").glob("*.py")):
        of_sweep = root / "results" / script.stem
        if any(of_sweep.glob("*/*.json*")) or any(of_sweep.glob("*/run-1/records.jsonl")):
            yield [str(script)]
    for folder in sorted((root / "results").glob("*/*/")):
        if (folder / trainings.ENDED_FILE_NAME).exists() and (folder / "curves.svg").exists():
            yield [str(root / "plots/plot.py"), str(folder)]
        if (folder / "images.svg").exists():
            yield [str(root / "plots/images.py"), str(folder)]


def draw(root: Path) -> list[str]:
    """Draws every figure and stamps it; returns the names of the scripts that failed."""
    began, failed = time.time(), []
    for command in _scripts(root):
        done = subprocess.run([sys.executable, *command], cwd=root, check=False)
        failed += [Path(command[0]).name] if done.returncode != 0 else []
    for folder in sorted((root / "results").glob("*/*/")):
        if stamps.figures_in(folder):
            stamps.write(folder, began)
    return failed


def main(script: str, arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 if a figure could not be drawn, or 2 after another error on stderr."""
    root = Path(script).resolve().parent.parent
    parser = argparse.ArgumentParser(description="Draws the figures and writes the pages anew.")
    parser.add_argument(
        "--pages-only", action="store_true", help="write the pages, and draw no figure"
    )
    options = parser.parse_args(arguments)
    try:
        failed = [] if options.pages_only else draw(root)
        for name, text in pages.made(root).items():
            (root / name).write_text(text, "utf-8")
            print(root / name)
    except (RecordsError, OSError) as error:
        return cli.refuse(script, error)
    for name in failed:
        print(f"{name}: the figure could not be drawn", file=sys.stderr)
    return 1 if failed else 0
