"""Opens the file of a Python method, finds and checks the function, and describes it to the worker."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import json
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attnbench import _signature
from attnbench._folders import Folder
from attnbench._method import ATTRIBUTE, Declaration
from attnbench._python_methods.calling import Bound
from attnbench._python_methods.reference import takes, takes_anything
from attnbench._signature import AS, LIKE, MethodError, Signature, short

# The text of None among the values of options.
NONE = "none"
# What a parameter that text cannot give has as its value: options are parted by commas, so that no
# option has this value.
NOT_GIVEN = ","


def _import_file(path: Path) -> Any:
    """The module in a file, whose folder is active."""
    name = f"attnbench_method_{hashlib.sha1(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != str(path):
            frames = frames.tb_next
        text = "".join(traceback.format_exception(type(error), error, frames))
        raise _signature.unimportable(str(path), text) from None
    return module


def _functions(module: Any) -> list[str]:
    """The names of the functions that a module defines itself and that may be attention."""
    return [
        name
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and not inspect.isclass(value)
        and getattr(value, "__module__", None) == module.__name__
    ]


def _find(module: Any, path: Path, name: str) -> Callable[..., Any]:
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise _signature.missing(str(path), name, _functions(module))
    if not callable(found):
        raise _signature.no_function(str(path), name, type(found).__name__)
    if inspect.isclass(found):
        raise _signature.no_function(str(path), name, "a class")
    return found


def _signature_of(where: str, function: Callable[..., Any]) -> Signature:
    # A module's own signature takes anything, because it passes everything on to forward.
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        raise _signature.wrong_parameters(where, "cannot be read") from None
    return Signature(where, signature)


def _written(function: Callable[..., Any]) -> Any:
    """The object whose declaration and documentation count: of a partial object its function, of a
    module that has no declaration itself its forward."""
    if isinstance(function, functools.partial) and not hasattr(function, ATTRIBUTE):
        return _written(function.func)
    if isinstance(function, torch.nn.Module) and not hasattr(function, ATTRIBUTE):
        return function.forward
    return function


def _first_line(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or "").strip().split("\n")[0]


def _value_of(text: str) -> Any:
    """The value of an option that is None by default: none, a whole number, a number, true or false,
    or the text itself."""
    if text in (NONE, "true", "false"):
        return {NONE: None, "true": True, "false": False}[text]
    if re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    if re.fullmatch(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?", text, re.IGNORECASE):
        return float(text)
    return text


def _option(name: str, default: Any, description: str) -> dict[str, Any]:
    """An option as description() has it; of a text, min and max say nothing."""
    return {"name": name, "default": default, "description": description, "choices": [], "min": 0, "max": 0}


class Method:
    """An attention function of a file, before its options have values."""

    def __init__(self, path: str, name: str) -> None:
        file = Path(path)
        self.where = f"{path}:{name}"
        try:
            content = file.read_bytes()
        except OSError as error:
            raise _signature.unreadable(path, error) from None
        self.digest = hashlib.sha256(content).hexdigest()[:16]
        self.name = name
        self.folder = Folder.of(file.resolve().parent)
        self.folder.activate()
        self.function = _find(_import_file(file.resolve()), file, name)
        self.written = _written(self.function)
        self.declared: Declaration = getattr(self.written, ATTRIBUTE, Declaration())
        self.signature = _signature_of(self.where, self.function)
        unknown = set(self.declared.options) - set(self.signature.defaults)
        if unknown:
            raise MethodError(
                f"{self.where}: the declared option '{sorted(unknown)[0]}' is no keyword parameter "
                "with a default value of the function"
            )
        for option, limits in self.declared.options.items():
            self._check_value(option, limits, self.signature.defaults[option], " by default")
        multiple = self.declared.multiple_of
        if isinstance(multiple, str):
            default = self.signature.defaults.get(multiple)
            if not isinstance(default, int) or isinstance(default, bool):
                raise MethodError(
                    f"{self.where}: multiple_of = {multiple!r}, expected the name of an option whose default is a whole number"
                )

    def _check_value(self, option: str, limits: Any, value: Any, when: str) -> None:
        low, high = limits.get("min", -(2**53)), limits.get("max", 2**53)
        choices = limits.get("choices")
        is_number = isinstance(value, int) and not isinstance(value, bool)
        is_no_choice = choices is not None and value is not None and value not in choices
        if (is_number and not low <= value <= high) or is_no_choice:
            expected = f"one of {', '.join(choices)}" if choices is not None else f"a number from {low} to {high}"
            raise MethodError(f"{self.where}: {option} = {value!r}{when}, expected {expected}")

    def description(self) -> str:
        """What the worker tells the driver about the method, as JSON."""
        declared, masks = self.declared, self.signature.masks
        options = []
        for name, default in self.signature.defaults.items():
            more = declared.options.get(name, {})
            choices = [str(choice) for choice in more.get("choices", ())]
            options.append(
                {
                    "name": name,
                    "default": NONE if default is None else default,
                    "description": more.get("description", ""),
                    "choices": [NONE, *choices] if choices and default is None else choices,
                    "min": more.get("min", -(2**53)),
                    "max": more.get("max", 2**53),
                }
            )
        options += [_option(name, NOT_GIVEN, f"{short(default)}, whatever it is called with")
                    for name, default in self.signature.fixed.items()]  # fmt: skip
        options.append(
            _option(LIKE, "", "registered method whose reference the results are compared with, if the function declares none")
        )
        options.append(_option(AS, "", "label of the method in tables and figures"))
        return json.dumps(
            {
                "description": declared.description or _first_line(self.written) or self.name,
                "options": options,
                "digest": self.digest,
                "exact": declared.exact,
                "has_reference": declared.reference is not None,
                "reference_computes_all_rows": self._reference_computes_all_rows(),
                "approximates": declared.approximates,
                "has_setup": declared.setup is not None,
                "has_flops": declared.flops is not None,
                "time_order": declared.time_order,
                "memory_order": declared.memory_order,
                "decode_time_order": declared.decode_time_order,
                "decode_memory_order": declared.decode_memory_order,
                "full": declared.full,
                "tensors": self.signature.tensors,
                "masks": masks,
                "causal": "causal" in masks if declared.causal is None else declared.causal,
                "key_lengths": "key_lengths" in masks if declared.key_lengths is None else declared.key_lengths,
                "patterns": "pattern" in masks,
                "packed": "cu_seqlens" in masks,
                "cross_attention": declared.cross_attention,
                "shared_heads": declared.shared_heads,
                "gradients": list(declared.gradients),
                "unavailable": self.unavailable(),
                "decoding": declared.decode is not None,
                "dtypes": list(declared.dtypes),
                "devices": list(declared.devices),
            }
        )

    def _reference_computes_all_rows(self) -> bool:
        reference = self.declared.reference
        return reference is not None and not takes(reference, "rows") and not takes_anything(reference)

    def unavailable(self) -> str:
        """What has to be installed before the function can be called; empty if nothing has."""
        for module, command in self.declared.requires.items():
            try:
                found = importlib.util.find_spec(module) is not None
            except ModuleNotFoundError:  # of the package that a submodule is in
                found = False
            if not found:
                return f"the Python package {module} is not installed; {command}"
        return ""

    def bind(self, options: str) -> Bound:
        """The method with values of its options, given as JSON."""
        self.folder.activate()
        return Bound(self, json.loads(options))

    def values(self, given: dict[str, Any]) -> dict[str, Any]:
        """The keywords that the function is called with."""
        values = {}
        for name, value in given.items():
            if name in self.signature.fixed and value != NOT_GIVEN:
                default = short(self.signature.fixed[name])
                raise MethodError(
                    f"{self.where}: {name} = {value!r}, but the parameter '{name}' has the default {default} and cannot be "
                    "given as text"
                )
            if name in self.signature.defaults:
                is_open = self.signature.defaults[name] is None
                values[name] = _value_of(value) if is_open else value
                if is_open and values[name] != value:
                    self._check_value(name, self.declared.options.get(name, {}), values[name], "")
        return values
