"""What the parameters of an attention function have to be. This needs no torch, so that a wrong
function is refused before torch is imported, which takes seconds."""

from __future__ import annotations

import inspect
import math
from typing import Any

# Parameters of attention functions that are no options.
TENSORS = ("q", "k", "v")
MASKS = ("causal", "key_lengths")
LIKE = "like"  # the option of every function that names the method whose reference it is compared with
# Names that options cannot have, each with what it does.
TAKEN = {LIKE: "names a method to compare with", "rows": "gives a reference the rows that it returns"}
EXPECTED = "(q, k, v, *, causal, key_lengths=None, ...)"


class MethodError(Exception):
    """An attention function, or its file, is not as attnbench needs it."""


def unreadable(path: str, error: OSError) -> MethodError:
    """The error about a file that cannot be read."""
    return MethodError(f"{path} cannot be read: {error.strerror}")


def unimportable(path: str, text: str) -> MethodError:
    """The error about a file whose import raises the exception with this traceback."""
    return MethodError(f"{path} cannot be imported:\n{text.strip()}")


def missing(path: str, name: str, functions: list[str]) -> MethodError:
    """The error about a file that defines only these functions."""
    return MethodError(f"{path} has no function '{name}'; its functions: {', '.join(functions) or 'none'}")


def no_function(path: str, name: str, kind: str) -> MethodError:
    """The error about a name that stands for an object of this type."""
    return MethodError(f"{path}: '{name}' is {kind}, expected a function")


def _default_of_option(where: str, parameter: inspect.Parameter) -> Any:
    if parameter.default is inspect.Parameter.empty:
        raise MethodError(
            f"{where}: the parameter '{parameter.name}' has no default value, expected {EXPECTED} "
            "with default values for all further parameters"
        )
    if not isinstance(parameter.default, (bool, int, float, str)):
        return None  # not an option that text can give
    if isinstance(parameter.default, float) and not math.isfinite(parameter.default):
        raise MethodError(f"{where}: {parameter.name} = {parameter.default} by default, expected a finite number")
    return parameter.default


class Signature:
    """What the parameters of the function `where` say: which masks it takes, and its options with
    their defaults. Raises MethodError if they are not those of an attention function."""

    def __init__(self, where: str, signature: inspect.Signature) -> None:
        kinds = inspect.Parameter
        parameters = list(signature.parameters.values())
        positional = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
        if len(positional) < len(TENSORS) or any(p.default is not kinds.empty for p in positional[:3]):
            raise MethodError(f"{where}: its parameters are {signature}, expected {EXPECTED}")
        self.masks = []
        self.defaults: dict[str, Any] = {}
        takes_anything = False
        for parameter in parameters:
            if parameter in positional[: len(TENSORS)] or parameter.kind == kinds.VAR_POSITIONAL:
                continue
            if parameter.kind == kinds.VAR_KEYWORD:
                takes_anything = True
            elif parameter.kind == kinds.POSITIONAL_ONLY:
                raise MethodError(f"{where}: its parameters are {signature}, expected {EXPECTED}")
            elif parameter.name in MASKS:
                self.masks.append(parameter.name)
            else:
                default = _default_of_option(where, parameter)
                if default is not None:
                    self.defaults[parameter.name] = default
        if takes_anything:  # a decorator of the user's that passes everything on
            self.masks = list(MASKS)
        for name, meaning in TAKEN.items():
            if name in self.defaults:
                raise MethodError(f"{where}: the option name '{name}' is taken; it {meaning}")
