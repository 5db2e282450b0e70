"""Starts the program `attnbench` with the environment that it needs. The console script of the
package is `main`."""

import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from typing import NoReturn

from attnbench import _installation

# The exit code of `attnbench` for wrong usage, which an environment that cannot run it also is.
_USAGE = 2


def main() -> NoReturn:
    """Replaces this process by the program, with the same arguments. Ends with exit code 2 if it
    cannot be started."""
    try:
        path, variables = program(), environment()
    except (FileNotFoundError, ImportError) as error:
        print(f"attnbench: {error}", file=sys.stderr)
        sys.exit(_USAGE)
    os.execve(path, ["attnbench", *sys.argv[1:]], variables)


def program() -> Path:
    """The path of the program.

    Raises FileNotFoundError if it has not been built, and ImportError if it was built for another
    torch than the installed one. This does not import torch, which takes seconds.
    """
    found = _installation.require(_installation.find().program)
    if refusal := _installation.refusal_of_torch(_torch_version()):
        raise ImportError(refusal)
    return found


def environment() -> dict[str, str]:
    """The environment variables of this process, and those that the program needs.

    ATTNBENCH_PYTHON is the Python that draws figures and runs methods written in Python: this one,
    unless the variable is set already.
    LD_LIBRARY_PATH gains the folders of shared libraries that the installed programs do not find by
    themselves.
    """
    variables = {"ATTNBENCH_PYTHON": sys.executable} | dict(os.environ)
    if _installation.find().installed:
        before = os.environ.get("LD_LIBRARY_PATH")
        folders = [*([before] if before else []), *map(str, _library_folders())]
        if folders:
            variables["LD_LIBRARY_PATH"] = ":".join(folders)
    return variables


def _library_folders() -> list[Path]:
    """The folder of LibTorch if torch is not beside this package, such as in a virtual environment
    that has torch from another one, and that of Python's shared library if the system does not look
    there."""
    folders = []
    torch = importlib.util.find_spec("torch")  # does not import it
    if (
        torch is not None
        and torch.origin
        and not (_installation.PACKAGE.parent / "torch/lib").is_dir()
    ):
        folders.append(Path(torch.origin).parent / "lib")
    python = Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib")
    if (
        not python.is_relative_to("/usr/lib")
        and (python / (sysconfig.get_config_var("INSTSONAME") or "-")).exists()
    ):
        folders.append(python)
    return folders


def _torch_version() -> str | None:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
