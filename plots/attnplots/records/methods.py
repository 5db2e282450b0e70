"""The parts of the text that names a method with its options, and the shorter names that figures show in its place."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath

from attnplots.records import schema

PYTHON = ".py:"
# Follows a method's name in records that were imported instead of measured.
EXTERNAL = " (external)"
# The options of every Python method, which do not change what it computes.
NAMING = ("like", "as")

# The labels of the methods whose records this process has read, which are empty for those without
# one, and the names of these methods. A process reads all that it shows together first.
_labels: dict[str, str] = {}
_names: dict[str, str] = {}


def split_method(method: str) -> tuple[str, str]:
    """The name and the options of a method: "linear-chunked" and "chunk=256" of "linear-chunked:chunk=256",
    "kernels/mine.py:attention" and "window=64" of "kernels/mine.py:attention:window=64"."""
    file = method.find(PYTHON)
    is_python = file >= 0 and ":" not in method[:file]
    colon = method.find(":", file + len(PYTHON) if is_python else 0)
    return (method, "") if colon < 0 else (method[:colon], method[colon + 1 :])


def with_current_options(method: str) -> str:
    """The text of a method with the current names of its options: "linear:implementation=avx2" for "linear:kernel=avx2"."""
    name, options = split_method(method)
    current = schema.current().current_options
    pairs = (option.partition("=") for option in options.split(","))
    renamed = (current.get((name, key), key) + equals + value for key, equals, value in pairs)
    return f"{name}:{','.join(renamed)}" if options else method


def short_name(name: str) -> str:
    """The name as figures show it: of a Python function its file without folders is enough."""
    return PurePath(name).name if PYTHON in name else name


def method_name(method: str) -> str:
    """The name of a method without its options, except the number of rounds: "lsh:rounds=4,chunk=8"
    and "lsh-4:chunk=8" are both lsh-4."""
    name, options = split_method(method)
    rounds = re.search(r"(?:^|,)rounds=(\d+)", options)
    return f"{name}-{rounds[1]}" if name == "lsh" and rounds else name


def add_labels(labels: Iterable[tuple[str, str]]) -> None:
    """Makes method_text() name these methods, given by their texts and their labels, so that their
    names differ from each other and from those of the methods that were added before."""
    added = dict(labels)
    if all(_labels.get(method) == label for method, label in added.items()):
        return
    _labels.update(added)
    found = {method: _candidates(method, label) for method, label in _labels.items()}
    place = dict.fromkeys(found, 0)
    changed = True
    while changed:
        counts = Counter(found[method][k] for method, k in place.items())
        equal = [m for m, k in place.items() if counts[found[m][k]] > 1 and k + 1 < len(found[m])]
        place.update({method: place[method] + 1 for method in equal})
        changed = bool(equal)
    _names.update({method: found[method][k] for method, k in place.items()})


def method_text(method: str) -> str:
    """The name of a method in figures: "lsh:rounds=4,chunk=64" becomes "lsh-4 (chunk=64)".

    A Python method has its label or, without one, its file and function with the options that change
    what it computes. Where several methods had the same name, each has a longer one.
    """
    return _names.get(method) or _candidates(method, "")[0]


def case_text(name: str) -> str:
    """The name of a case of the gate, which begins with its method, as figures show it."""
    method, space, setting = name.partition(" ")
    return method_text(method) + space + setting


def _candidates(method: str, label: str) -> list[str]:
    """The names that a method can have, the shortest first."""
    if method.endswith(EXTERNAL):
        return [name + EXTERNAL for name in _candidates(method.removesuffix(EXTERNAL), label)]
    name, tail = split_method(method)
    options = [option.partition("=") for option in tail.split(",")] if tail else []
    whole = " ".join(method.split())
    if not all(key and value for key, _, value in options):
        return [label or whole, whole]
    if PYTHON not in name:
        return [_with_options(name, options)]
    label = label or next((value for key, _, value in options if key == "as"), "")
    short = _with_options(name, [option for option in options if option[0] not in NAMING])
    return [label or short, short, _with_options(name, options), whole]


def _with_options(name: str, options: list[tuple[str, str, str]]) -> str:
    name, shown = " ".join(short_name(name).split()), []
    for key, _, value in options:
        if (name, key) == ("lsh", "rounds"):
            name = f"lsh-{value}"
        else:
            shown.append(value if key in ("profile", "implementation") else f"{key}={value}")
    return f"{name} ({', '.join(shown)})" if shown else name
