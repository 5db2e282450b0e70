"""The parts that `experiments/reproduce` runs: the sweeps and the trainings behind results/."""

import tomllib
from pathlib import Path

FILE_NAME = "parts.toml"


def renewals(root: Path) -> dict[str, str]:
    """The command that renews each folder of results/, by the name of the folder."""
    with (root / "experiments" / FILE_NAME).open("rb") as file:
        lists = tomllib.load(file)
    names = [part["name"] for parts in lists.values() for part in parts]
    return {name: f"experiments/reproduce --only {name}" for name in names}
