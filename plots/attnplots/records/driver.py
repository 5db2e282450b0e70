"""Asks the driver `attnbench`, which reads and checks records, and computes the statistics that figures and pages show."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from attnplots.records.text import RecordsError

# What a driver that was built, or installed with the Python package, is called.
PROGRAM = "attnbench"


def program() -> Path | None:
    """The driver of this checkout or this installed package, else one in PATH; None if there is none."""
    here = Path(__file__).resolve()
    build = Path(os.environ.get("ATTNBENCH_BUILD") or here.parents[3] / "build")
    # An installed package has bin/ beside share/attnbench/plots/attnplots.
    places = [build / PROGRAM, here.parents[5] / "bin" / PROGRAM]
    found = next((str(path) for path in places if path.is_file()), shutil.which(PROGRAM))
    return Path(found) if found else None


def ask(*words: str | Path, folder: Path | None = None) -> Any:
    """What a command prints with --format json, run in `folder` if that is given.

    Raises RecordsError, with what the command said, if it fails or if there is no driver.
    """
    command = " ".join(map(str, (PROGRAM, *words)))
    found = program()
    if found is None:
        raise RecordsError(f"`{command}` needs the program {PROGRAM}; build it with `make build`")
    full = [str(found), *map(str, words), "--format", "json"]
    done = subprocess.run(full, cwd=folder, capture_output=True, text=True, check=False)
    if not done.stdout:
        said = done.stderr.strip().splitlines() or [f"`{command}` failed with exit code {done.returncode}"]
        raise RecordsError(said[-1].removeprefix(f"{PROGRAM}: "))
    return json.loads(done.stdout)
