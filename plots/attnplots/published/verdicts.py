"""Prints published numbers beside those in results/, and which claims hold here, as text or Markdown."""

import argparse
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from attnplots.published.claims import FAILS, HOLDS, NEEDS_GPU, UNKNOWN, Claims, Verdict, decided, load_claims, stand_ins_of
from attnplots.published.quantities import (
    QUANTITIES, Value, matching, number_text, quantity_name, setting_text, value_of,
)
from attnplots.records import environment, results
from attnplots.records.options import add_results
from attnplots.records.results import GENERATIONS, Results, Row
from attnplots.records.text import printable

# The text of a cell whose number the results lack.
MISSING = "not measured"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], "|" + " --- |" * len(header), *lines[1:], ""]


@dataclass(frozen=True)
class Ours:
    """A number of the results beside a published one: its value, its setting in words (of images) or its device, its folder, and the
    data that replace those of the published number, empty if they are the same."""

    value: Value
    where: str
    folder: str
    stand_in: str = ""

    def text(self, quantity: str) -> str:
        """The number with its data and its setting in brackets."""
        data = f"{self.stand_in}, " if self.stand_in else ""
        return f"{self.value.text(quantity)} [{data}{self.where}]"


def ours(row: Row, quantity: str, found: Results, stand_ins: dict[str, list[str]]) -> list[Ours]:
    """Our numbers beside a published one, one for each folder and device that has some."""
    same = {name: row[name] for name in ("query_len", "head_dim", "protocol") if name in row}
    datasets = [row["dataset"], *stand_ins_of(stand_ins, row["dataset"], quantity)] if "dataset" in row else [None]
    if row.get("batch") == 1:
        same |= {"batch": 1, "device": row["device"]}
    numbers = []
    for dataset in datasets:
        wanted = same | {"source": row["source"], "method": row["method"]}
        rows = [r for r in matching(found.rows, wanted) if dataset is None or r.get("dataset") == dataset]
        for folder in dict.fromkeys(r["folder"] for r in rows):
            of_folder = [r for r in rows if r["folder"] == folder]
            for device in dict.fromkeys(r.get("device") for r in of_folder):
                value = value_of([r for r in of_folder if r.get("device") == device], quantity)
                if value:
                    stand_in = str(dataset) if dataset not in (None, row.get("dataset")) else ""
                    of_images = row["source"] == GENERATIONS
                    where = setting_text(value.rows[0]) if of_images else str(device)
                    numbers.append(Ours(value, where, folder, stand_in))
    return numbers


class NumbersRow(NamedTuple):
    """A published number beside ours; `ours` is empty if the results have no such number."""

    case: str
    method: str
    quantity: str
    published: str
    ours: str


@dataclass(frozen=True)
class Numbers:
    """A published table: the text that it is in, its number there (empty if it has none), the
    machine that it was published for, and its rows."""

    said_in: str
    table: str
    machine: str
    rows: list[NumbersRow]


def numbers(published: Sequence[Row], found: Results, claims: Claims) -> list[Numbers]:
    """Each published number beside ours, by the text that it comes from."""
    parts: dict[str, list[Row]] = {}
    for row in sorted(published, key=lambda row: row["said_in"]):
        if any(row.get(quantity) is not None for quantity in QUANTITIES):
            parts.setdefault(row["said_in"], []).append(row)
    tables = []
    for said_in, rows in parts.items():
        number = str(rows[0].get("table", ""))
        name = f"Table {number}" if number else "Notes on kernelised attention"
        body = []
        for row in rows:
            for quantity in QUANTITIES:
                if row.get(quantity) is not None:
                    published_text = number_text(quantity, row[quantity])
                    case = row.get("dataset") or f"N = {row['query_len']}, d = {row['head_dim']}"
                    what = quantity_name(quantity) + select_device(row)
                    ours_text = "; ".join(one.text(quantity) for one in ours(row, quantity, found, claims.stand_ins))
                    body.append(NumbersRow(case, row["method"], what, published_text, ours_text))
        tables.append(Numbers(said_in, number, claims.machines.get(name, "not stated"), body))
    return tables


def numbers_section(published: Sequence[Row], found: Results, claims: Claims) -> list[str]:
    """Tables of each published number beside ours, by the text that it comes from."""
    lines = ["## Published numbers and ours", ""]
    for one in numbers(published, found, claims):
        lines += [f"### {one.said_in}", "", f"Published for: {one.machine}.", ""]
        lines += table(NumbersRow._fields, [row._replace(ours=row.ours or MISSING) for row in one.rows])
    return lines


def select_device(row: Row) -> str:
    """The words that the name of a quantity ends with, such as " on the GPU", if the published number is of a single image. They are
    empty for other numbers."""
    device = {"cpu": " on the CPU", "cuda": " on the GPU"}.get(row.get("device", ""), "")
    return device if row.get("batch") == 1 else ""


def claims_section(published: Sequence[Row], found: Results, claims: Claims) -> list[str]:
    """Tables of the claims with their rules, the numbers that decide them, and the verdicts."""
    lines = ["## Claims", ""]
    verdicts = decided(published, found, claims)
    for part in dict.fromkeys(verdict.part for verdict in verdicts):
        lines += [f"### {part}", "", f"Published for: {claims.machines.get(part, 'not stated')}.", ""]
        body = [
            [v.claim, f"**{v.text()}**", v.here, v.published, v.rule, v.command] for v in verdicts if v.part == part
        ]
        lines += table(["claim", "verdict", "here", "published", "rule", "command"], body)
    return lines


def machines_section(found: Results) -> list[str]:
    """A table of the folders, with the machine and the build of each."""
    body = [
        [
            folder,
            environment.machine_text(known) or "unknown",
            environment.build_text(known) or "unknown",
        ]
        for folder, known in found.environments.items()
    ]
    if not body:
        return ["There are no results.", ""]
    return ["## Machines of our numbers", "", *table(["folder", "machine", "build"], body)]


def markdown(published: Sequence[Row], found: Results, claims: Claims) -> str:
    """The whole report."""
    lines = ["# The paper's claims", ""]
    lines += [
        "`make figures` writes this page from `experiments/published/claims.toml` and the records in "
        "`results/`; `build/attnbench verdicts --format markdown` prints it. It lists what the paper "
        "Transformers are RNNs and four texts about it claim. Absolute numbers come from other machines and other "
        "software, so only orders, ratios and growth are claims. A claim is **reproduced** or **not "
        "reproduced** if our numbers decide its rule; of trainings the verdict names the budget at which "
        "they do. We **cannot tell** if the numbers are missing, if their intervals or the ranges of several seeds "
        "leave it open, or if curves of trainings still fall by more than what is between them. It **needs a GPU** if "
        "our machines had none.",
        "",
    ]
    lines += claims_section(published, found, claims)
    lines += machines_section(found)
    lines += numbers_section(published, found, claims)
    return "\n".join(printable(line) for line in lines)


def counts(verdicts: Sequence[Verdict]) -> str:
    """How many verdicts there are of each kind, as a sentence."""
    kinds = Counter(verdict.verdict for verdict in verdicts)
    stand_ins = sum(bool(verdict.stand_in) for verdict in verdicts)
    words = {HOLDS: HOLDS, FAILS: FAILS, UNKNOWN: UNKNOWN, NEEDS_GPU: NEEDS_GPU if kinds[NEEDS_GPU] == 1 else "need a GPU"}
    said = ", ".join(f"{kinds[name]} {text}" for name, text in words.items() if kinds[name])
    of_others = f"; {stand_ins} rest on another data set than the paper's" if stand_ins else ""
    return f"Of {len(verdicts)} verdicts on claims: {said}{of_others}."


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """The text in lines of at most `width` columns, which begin with `indent`.
    The lines after the first begin with as many spaces, or with two more if `indent` is spaces."""
    following = f"{indent}  " if indent and not indent.strip() else " " * len(indent)
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=following, break_on_hyphens=False)


def plain_text(published: Sequence[Row], found: Results, claims: Claims, width: int) -> str:
    """The report as text for a terminal: the counts of the verdicts, the claims, and the numbers."""
    verdicts = decided(published, found, claims)
    lines = _wrapped(counts(verdicts), width)
    for part in dict.fromkeys(verdict.part for verdict in verdicts):
        lines += ["", *_wrapped(f"{part} (published for: {claims.machines.get(part, 'not stated')})", width)]
        for v in (verdict for verdict in verdicts if verdict.part == part):
            lines += _wrapped(f"{v.text()}: {v.claim}", width, "- ")
            details = {"here": v.here, "published": v.published, "rule": v.rule, "command": v.command}
            for name, value in details.items():
                lines += _wrapped(f"{name}: {value}", width, "    ")
    for one in numbers(published, found, claims):
        lines += ["", *_wrapped(f"Numbers of {one.said_in} (published for: {one.machine})", width)]
        for case, method, quantity, published_text, ours_text in one.rows:
            said = f"{case}, {method}, {quantity}: {published_text} published; ours: {ours_text or MISSING}"
            lines += _wrapped(said, width, "- ")
    return "".join(f"{printable(line)}\n" for line in lines)


def page(
    root: Path, found_in: Path | None = None, claims_file: Path | None = None, text_width: int | None = None,
) -> str:
    """The report about a folder of results, by default that of the project: as Markdown or, with
    `text_width`, as text of so many columns. Paths are relative to the project."""
    published = root / "experiments" / "published"
    claims = load_claims(claims_file or published / "claims.toml")
    files = [*sorted(published.glob("*.csv")), *sorted((root / "sweeps/published").glob("*.csv"))]
    found = results.load(found_in or root / "results")
    said = results.load_published(files)
    if text_width is None:
        return markdown(said, found, claims).replace(f"{root}/", "")
    return plain_text(said, found, claims, text_width).replace(f"{root}/", "")


def main(root: Path, parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Prints the report. `attnbench verdicts` describes the options."""
    add_results(parser, root)
    parser.add_argument("--claims", type=Path)
    parser.add_argument("--format", choices=("markdown", "text"), default="markdown")
    parser.add_argument("--width", type=int, default=100)
    options = parser.parse_args(arguments)
    # textwrap cannot wrap to less than the indentation.
    width = max(20, options.width) if options.format == "text" else None
    sys.stdout.write(page(root, options.results, options.claims, width))
