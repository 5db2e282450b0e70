"""The parts of the text that names a method with its options."""

import re
from pathlib import PurePath

PYTHON = ".py:"


def split_method(method: str) -> tuple[str, str]:
    """The name and the options of a method: "linear-chunked" and "chunk=256" of
    "linear-chunked:chunk=256", "kernels/mine.py:attention" and "window=64" of
    "kernels/mine.py:attention:window=64"."""
    file = method.find(PYTHON)
    is_python = file >= 0 and ":" not in method[:file]
    colon = method.find(":", file + len(PYTHON) if is_python else 0)
    return (method, "") if colon < 0 else (method[:colon], method[colon + 1 :])


def short_name(name: str) -> str:
    """The name as figures show it: of a Python function its file without folders is enough."""
    return PurePath(name).name if PYTHON in name else name


def method_name(method: str) -> str:
    """The name of a method without its options, except the number of rounds: "lsh:rounds=4,chunk=8"
    and "lsh-4:chunk=8" are both lsh-4."""
    name, options = split_method(method)
    rounds = re.search(r"(?:^|,)rounds=(\d+)", options)
    return f"{name}-{rounds[1]}" if name == "lsh" and rounds else name
