"""Finds the files that belong to this package: the programs, libattn, and the code that reads
records.

An installed package holds them in its own folder. In a source checkout, programs and libraries are
in the build folder: `build`, or the one that the environment variable ATTNBENCH_BUILD names.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Installation:
    """Paths of the files, which need not exist if nothing has been built yet."""

    program: Path  # the driver `attnbench`
    library: Path  # libattn.so
    build_facts: Path  # what the build was made of, as JSON
    plots: Path  # the folder that contains the Python package attnplots
    installed: bool  # whether this is an installed package, and not a source checkout


def find() -> Installation:
    """The files of the installed package or, if this is none, of the source checkout."""
    if (PACKAGE / "bin").is_dir():
        share = PACKAGE / "share/attnbench"
        return Installation(
            program=PACKAGE / "bin/attnbench",
            library=PACKAGE / "lib/libattn.so",
            build_facts=share / "build_facts.json",
            plots=share / "plots",
            installed=True,
        )
    checkout = PACKAGE.parents[1]
    build = Path(os.environ.get("ATTNBENCH_BUILD") or checkout / "build").resolve()
    return Installation(
        program=build / "attnbench",
        library=build / "libattn.so",
        build_facts=build / "build_facts.json",
        plots=checkout / "plots",
        installed=False,
    )


def require(path: Path) -> Path:
    """The path of a built file.

    Raises FileNotFoundError, which says how to build it, if there is none.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: no such file; build it with `make build` in the source checkout, or install "
            "the package with `pip install .` there"
        )
    return path


def build_facts() -> dict[str, str]:
    """The `version` of attnbench, and the `torch_version` that it was built for."""
    facts: dict[str, str] = json.loads(require(find().build_facts).read_text("utf-8"))
    return facts


def refusal_of_torch(found: str | None) -> str | None:
    """Why libattn cannot run with the version `found` of torch, or None if it can.

    LibTorch promises no compatibility of its C++ interface from one version to another. What
    follows a "+" in a version, such as "cu130", says for which GPUs torch was built, and does not
    matter here.
    """
    facts = build_facts()
    wanted = facts["torch_version"].split("+")[0]
    if found is not None and found.split("+")[0] == wanted:
        return None
    has = "no torch is installed" if found is None else f"torch {found} is installed"
    return (
        f"attnbench {facts['version']} was built for torch {wanted}, but {has} here; install the "
        f"one that it was built for with `pip install torch=={wanted}`, or install attnbench into "
        "an environment of its own"
    )
