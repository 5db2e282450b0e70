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
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of records or curves")
    parser.add_argument(
        "--x",
        action="append",
        metavar="COLUMN",
        help="column of the horizontal axis; given twice, two panels side by side (default: "
        "query_len; for trainings update and training_s)",
    )
    parser.add_argument(
        "--y",
        metavar="COLUMN",
        help="column of the vertical axis (default: time_per_sample_ms, or ratio_median if there "
        "are only ratios; for trainings validation_loss)",
    )
    parser.add_argument(
        "--series", metavar="COLUMN", help="column that has a line for each of its values (default: method)",
    )
    parser.add_argument(
        "--facet",
        action="append",
        metavar="COLUMN",
        help="column that has a panel for each of its values; may be given several times. Other "
        "axes with several values also get panels",
    )
    parser.add_argument(
        "--filter",
        action="append",
        metavar="COLUMN=VALUE",
        help="draws only lines with this value; may be given several times",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE_OR_DIR",
        help="file that ends in .pdf, .svg or .png, or folder for all three (default: FOLDER)",
    )
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
