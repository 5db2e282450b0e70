"""What the parameters of an attention function have to be. This needs no torch, so that a wrong
function is refused before torch is imported, which takes seconds."""

from __future__ import annotations

import inspect
import math
from typing import Any

# Parameters of attention functions that are no options.
TENSORS = ("q", "k", "v")
# Tensors beside these that a parameter without a default, or with the default None, stands for: the
# rows of kInputs in attn/input_spec.h after v. The worker checks that the names are the same.
FURTHER_TENSORS = ("g", "beta", "sinks")
MASKS = ("causal", "key_lengths")
# Further masks that a parameter without a default, or with this one, stands for.
FURTHER_MASKS = {"pattern": "all", "cu_seqlens": None}
LIKE = "like"  # the option of every function that names the method whose reference it is compared with
AS = "as"  # the option of every function that gives it a label
# Names that options cannot have, each with what it does.
TAKEN = {
    LIKE: "names a method to compare with",
    AS: "gives the method a label",
    "rows": "gives a reference the rows that it returns",
}
MAX_LABEL = 60
EXPECTED = "(q, k, v, *, causal, key_lengths=None, ...)"


class MethodError(Exception):
    """An attention function, or its file, is not as attnbench needs it."""


class MissingFunction(MethodError):
    """The file has no function of the name that was asked for."""


def unreadable(path: str, error: OSError) -> MethodError:
    """The error about a file that cannot be read."""
    return MethodError(f"{path} cannot be read: {error.strerror}")


def unimportable(path: str, text: str) -> MethodError:
    """The error about a file whose import raises the exception with this traceback."""
    return MethodError(f"{path} cannot be imported:\n{text.strip()}")


def short(value: Any) -> str:
    """A value for a message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:59] + "…"


def missing(path: str, name: str, functions: list[str]) -> MissingFunction:
    """The error about a file that defines only these functions."""
    return MissingFunction(f"{path} has no function '{name}'; its functions: {', '.join(functions) or 'none'}")


def no_function(path: str, name: str, kind: str) -> MethodError:
    """The error about a name that stands for an object of this type."""
    return MethodError(f"{path}: '{name}' is {kind}, expected a function")


def wrong_parameters(where: str, found: str) -> MethodError:
    """The error about a function with other parameters, which says how it can be called nevertheless."""
    name = where.rpartition(":")[2]
    return MethodError(
        f"{where}: its parameters {found}, expected {EXPECTED}; a function that calls it with its own arguments can stand "
        "for it, such as\n"
        "    def attention(q, k, v, *, causal):\n"
        f"        output = {name}(...)\n"
        "        return output"
    )


def problem_of_label(label: object, spaces: bool = True) -> str | None:
    """What is wrong with a label for tables and figures, or None. Spaces end the text of a method in
    the names of baselines and of the gate's cases, so that the option `as` allows none."""
    if isinstance(label, str) and 0 < len(label) <= MAX_LABEL and label.isprintable() and label == label.strip():
        if spaces or " " not in label:
            return None
    where = "and no space at its ends" if spaces else "and no space, which only attnbench.method(label=…) allows"
    return f"{label!r}, expected a text with at most {MAX_LABEL} printable characters {where}"


def _check_default(where: str, parameter: inspect.Parameter) -> None:
    if parameter.default is inspect.Parameter.empty:
        raise MethodError(
            f"{where}: the parameter '{parameter.name}' has no default value, expected {EXPECTED} "
            "with default values for all further parameters"
        )
    if isinstance(parameter.default, float) and not math.isfinite(parameter.default):
        raise MethodError(f"{where}: {parameter.name} = {parameter.default} by default, expected a finite number")


class Signature:
    """What the parameters of the function `where` say. Raises MethodError if they are not those of an
    attention function.

    Attributes:
        masks: the names of those masks that it takes.
        tensors: the names of the further tensors that it takes, each with whether it needs it.
        defaults: the options by name, with their defaults. Text gives a value of the type of the
            default or, where this is None, of the type that the text looks like.
        fixed: the further parameters by name, with their defaults, which no text can give.
    """

    def __init__(self, where: str, signature: inspect.Signature) -> None:
        kinds = inspect.Parameter
        parameters = list(signature.parameters.values())
        positional = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
        if len(positional) < len(TENSORS) or any(p.default is not kinds.empty for p in positional[:3]):
            raise wrong_parameters(where, f"are {signature}")
        self.masks = []
        self.tensors: dict[str, bool] = {}
        self.defaults: dict[str, Any] = {}
        self.fixed: dict[str, Any] = {}
        takes_anything = False
        for parameter in parameters:
            if parameter in positional[: len(TENSORS)] or parameter.kind == kinds.VAR_POSITIONAL:
                continue
            if parameter.kind == kinds.VAR_KEYWORD:
                takes_anything = True
            elif parameter.kind == kinds.POSITIONAL_ONLY:
                raise wrong_parameters(where, f"are {signature}")
            elif parameter.name in MASKS:
                self.masks.append(parameter.name)
            elif parameter.name in FURTHER_MASKS and (
                parameter.default is kinds.empty or parameter.default == FURTHER_MASKS[parameter.name]
            ):
                self.masks.append(parameter.name)
            elif parameter.name in FURTHER_TENSORS and (
                parameter.default is kinds.empty or parameter.default is None
            ):
                self.tensors[parameter.name] = parameter.default is kinds.empty
            else:
                _check_default(where, parameter)
                is_option = parameter.default is None or isinstance(parameter.default, (bool, int, float, str))
                (self.defaults if is_option else self.fixed)[parameter.name] = parameter.default
        if takes_anything:  # a decorator of the user's that passes everything on
            self.masks = list(MASKS)
        for name, meaning in TAKEN.items():
            if name in self.defaults or name in self.fixed:
                raise MethodError(f"{where}: the option name '{name}' is taken; it {meaning}")
