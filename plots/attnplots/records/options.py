"""Options that commands of this package have in common: the methods that are shown, and the folder of all results."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from attnplots.records.methods import method_text, split_method, with_current_options
from attnplots.records.records import Records, RecordsError


def add_methods(parser: argparse.ArgumentParser) -> None:
    """Adds the option --methods."""
    parser.add_argument(
        "--methods",
        metavar="NAME,...",
        help="draws only these methods, named as in the records; the options of a method may be "
        "left out (default: all)",
    )


def add_results(parser: argparse.ArgumentParser, root: Path) -> None:
    """Adds the argument `results`, the folder of all results, for commands that read more than one."""
    parser.add_argument(
        "results",
        nargs="?",
        type=Path,
        default=root / "results",
        metavar="RESULTS",
        help="folder of results (default: results/ of the project)",
    )


def select_methods(found: Records, wanted: str | None) -> Records:
    """The records of the methods that --methods names. Raises RecordsError for an unknown one."""
    if wanted is None:
        return found
    chosen = chosen_methods((record["method"] for record in found), wanted)
    return found.where(lambda record: record["method"] in chosen)


def chosen_methods(methods: Iterable[str], wanted: str) -> set[str]:
    """Those of the methods that --methods names. Raises RecordsError for a name that is none."""
    present = list(dict.fromkeys(methods))
    chosen: set[str] = set()
    for name in map(with_current_options, split_names(wanted)):
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
