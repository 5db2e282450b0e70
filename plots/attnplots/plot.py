"""The command that draws any folder of records or of trainings: `attnbench plot`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from attnplots.figures import chart
from attnplots.figures.chart import Request
from attnplots.marks import files
from attnplots.records import columns
from attnplots.records.columns import Table
from attnplots.records.options import add_methods, chosen_methods


SWEEP_NAME = "plot"
TRAINING_NAME = "curves"


def main(root: Path, parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Draws the figure."""
    options = _parse(parser, arguments)
    drawn = columns.only_folder(options.folder)
    table = columns.load(drawn)
    if options.methods:
        chosen = chosen_methods((line["method"] for line in table.lines), options.methods)
        table = table.where(lambda line: line["method"] in chosen)
    if options.filter:
        table = columns.filtered(table, options.filter)
    folder, name, kinds = files.target_of(options.out or drawn)
    usual = TRAINING_NAME if table.is_training else SWEEP_NAME
    described = chart.describe(table, _request(table, options))
    files.save({name or usual: described}, folder, options.width, kinds)


def _parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options of `attnbench plot`, which describes them."""
    parser.add_argument("folder", type=Path)
    for name in ("--x", "--facet", "--filter"):
        parser.add_argument(name, action="append")
    for name in ("--y", "--series"):
        parser.add_argument(name)
    parser.add_argument("--out", type=Path)
    add_methods(parser)
    files.add_width(parser)
    return parser.parse_args(arguments)


def _request(table: Table, options: argparse.Namespace) -> Request:
    usual = chart.default_request(table)
    return Request(
        tuple(options.x or usual.x),
        options.y or usual.y,
        options.series or usual.series,
        tuple(options.facet or usual.facets),
    )
