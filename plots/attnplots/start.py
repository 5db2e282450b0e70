"""Starts the scripts that `attnbench` runs, which say it in a way of their own if Python lacks a package."""

import importlib
import sys
from pathlib import Path

# What `attnbench` takes as the sign that Python lacks a package.
MISSING_PACKAGE = 3


def start(script: str, module: str) -> int:
    """Calls main() of a module of this package for a script, and returns the exit code of the script."""
    try:
        found = importlib.import_module(f"attnplots.{module}")
    except ModuleNotFoundError as error:
        print(f"{Path(script).name}: {error}", file=sys.stderr)
        return MISSING_PACKAGE
    code: int = found.main(script)
    return code
