"""What the worker of attnbench calls in its Python interpreter to run attention functions.

The worker's module for Python methods (harness/worker/python) imports this file. It opens the file
of a function, checks the function's signature, and makes objects whose attributes the worker calls.
Errors in the user's file are raised as MethodError, with a text that is meant for the user.
"""

import sys
import traceback
from pathlib import Path

import torch

from attnbench import _signature
from attnbench._python_methods.opening import Method as Method
from attnbench._signature import MethodError
from attnbench._signature import MissingFunction as MissingFunction

# What a function prints must not mix with what the worker answers.
sys.stdout = sys.stderr

# The folder of this file and of what it calls, whose frames are not of the user.
PACKAGE = Path(__file__).parent


def check_inputs(names: list[str]) -> None:
    """Raises MethodError unless the worker knows the same tensors beside q, k and v."""
    if list(_signature.FURTHER_TENSORS) != names:
        raise MethodError(
            f"the worker knows the further tensors {', '.join(names)}, and its Python package {', '.join(_signature.FURTHER_TENSORS)}"
        )


def traceback_text(error: BaseException) -> str:
    """The traceback as Python prints it, without the frames of this package. What UTF-8 has no
    characters for, such as a lone surrogate, is escaped."""
    frames = error.__traceback__
    while frames is not None and PACKAGE in Path(frames.tb_frame.f_code.co_filename).parents:
        frames = frames.tb_next
    if isinstance(error, MethodError):
        text = str(error)
    else:
        text = "".join(traceback.format_exception(type(error), error, frames)).strip()
    return text.encode("utf-8", "backslashreplace").decode()


def version() -> str:
    """The version of the interpreter and of its torch, for records."""
    return f"{sys.version.split()[0]}, torch {torch.__version__}"
