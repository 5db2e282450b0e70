"""Draws the figures of results/ again, and writes the pages that quote the records."""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from attnplots import entry
from attnplots.published import pages, stamps
from attnplots.records import trainings


def _commands(root: Path) -> Iterator[list[str]]:
    """The arguments that draw each figure: that with the name of a sweep, and the curves and the images of trainings."""
    for name in sorted(entry.TABLE):
        sweep = root / "results" / name
        if any(sweep.glob("*/*.json*")) or any(sweep.glob("*/run-1/records.jsonl")):
            yield [name]
    for folder in sorted((root / "results").glob("*/*/")):
        if (folder / trainings.ENDED_FILE_NAME).exists() and (folder / "curves.svg").exists():
            yield ["plot", str(folder)]
        if (folder / "images.svg").exists():
            yield ["images", str(folder)]


def draw(root: Path) -> list[str]:
    """Draws every figure and stamps it; returns the names of those that failed."""
    began, failed = time.time(), []
    for command in _commands(root):
        done = subprocess.run([sys.executable, str(root / "plots/run.py"), *command], cwd=root, check=False)
        failed += [command[0]] if done.returncode != 0 else []
    for folder in sorted((root / "results").glob("*/*/")):
        if stamps.figures_in(folder):
            stamps.write(folder, began)
    return failed


def main(root: Path, parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """Returns 0, or 1 if a figure could not be drawn."""
    parser.add_argument("--pages-only", action="store_true", help="write the pages, and draw no figure")
    options = parser.parse_args(arguments)
    failed = [] if options.pages_only else draw(root)
    for name, text in pages.made(root).items():
        (root / name).write_text(text, "utf-8")
        print(root / name)
    for name in failed:
        print(f"{name}: the figure could not be drawn", file=sys.stderr)
    return 1 if failed else 0
