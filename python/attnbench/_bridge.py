"""What the worker of attnbench calls in its Python interpreter to run attention functions.

The worker's module for Python methods (harness/worker/python) imports this file. It opens the file
of a function, checks the function's signature, and makes objects whose attributes the worker calls.
Errors in the user's file are raised as MethodError, with a text that is meant for the user.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import math
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from attnbench import _signature
from attnbench._method import ATTRIBUTE, Declaration
from attnbench._signature import EXPECTED, LIKE, MethodError, Signature

# What a function prints must not mix with what the worker answers.
sys.stdout = sys.stderr

DTYPES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}


def traceback_text(error: BaseException) -> str:
    """The traceback as Python prints it, without the frames of this file."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    if isinstance(error, MethodError):
        return str(error)
    return "".join(traceback.format_exception(type(error), error, frames)).strip()


def _import_file(path: Path) -> Any:
    """The module in a file. Its folder is searched first for what it imports, as for a script."""
    name = f"attnbench_method_{hashlib.sha1(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
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
    return found


def _signature_of(where: str, function: Callable[..., Any]) -> Signature:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise MethodError(f"{where}: its parameters cannot be read, expected {EXPECTED}") from None
    return Signature(where, signature)


def _first_line(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or "").strip().split("\n")[0]


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
        self.function = _find(_import_file(file.resolve()), file, name)
        self.declared: Declaration = getattr(self.function, ATTRIBUTE, Declaration())
        self.signature = _signature_of(self.where, self.function)
        unknown = set(self.declared.options) - set(self.signature.defaults)
        if unknown:
            raise MethodError(
                f"{self.where}: the declared option '{sorted(unknown)[0]}' is no keyword parameter "
                "with a default value of the function"
            )
        for option, limits in self.declared.options.items():
            self._check_default(option, limits, self.signature.defaults[option])

    def _check_default(self, option: str, limits: Any, default: Any) -> None:
        low, high = limits.get("min", -(2**53)), limits.get("max", 2**53)
        choices = limits.get("choices")
        is_number = isinstance(default, int) and not isinstance(default, bool)
        if (is_number and not low <= default <= high) or (choices is not None and default not in choices):
            expected = f"one of {', '.join(choices)}" if choices is not None else f"a number from {low} to {high}"
            raise MethodError(f"{self.where}: {option} = {default!r} by default, expected {expected}")

    def description(self) -> str:
        """What the worker tells the driver about the method, as JSON."""
        declared, masks = self.declared, self.signature.masks
        options = []
        for name, default in self.signature.defaults.items():
            more = declared.options.get(name, {})
            options.append(
                {
                    "name": name,
                    "default": default,
                    "description": more.get("description", ""),
                    "choices": [str(choice) for choice in more.get("choices", ())],
                    "min": more.get("min", -(2**53)),
                    "max": more.get("max", 2**53),
                }
            )
        options.append(
            {
                "name": LIKE,
                "default": "",
                "description": "registered method whose reference the results are compared with, "
                "if the function declares none",
                "choices": [],
                "min": 0,
                "max": 0,
            }
        )
        return json.dumps(
            {
                "description": declared.description or _first_line(self.function) or self.name,
                "options": options,
                "digest": self.digest,
                "exact": declared.exact,
                "has_reference": declared.reference is not None,
                "approximates": declared.approximates,
                "has_setup": declared.setup is not None,
                "has_flops": declared.flops is not None,
                "time_order": declared.time_order,
                "memory_order": declared.memory_order,
                "decode_time_order": declared.decode_time_order,
                "decode_memory_order": declared.decode_memory_order,
                "full": declared.full,
                "takes_causal": "causal" in masks,
                "takes_key_lengths": "key_lengths" in masks,
                "causal": "causal" in masks if declared.causal is None else declared.causal,
                "key_lengths": "key_lengths" in masks if declared.key_lengths is None else declared.key_lengths,
                "cross_attention": declared.cross_attention,
                "multiple_of": declared.multiple_of,
                "gradients": list(declared.gradients),
                "unavailable": self.unavailable(),
                "decoding": declared.decode is not None,
                "dtypes": list(declared.dtypes),
                "devices": list(declared.devices),
            }
        )

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
        return Bound(self, json.loads(options))


class _OwnBackward(torch.autograd.Function):
    """Computes gradients with the function that the user declared for it."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, call: Any, backward: Any) -> Any:
        output = call(q, k, v)
        ctx.save_for_backward(q, k, v, output)
        ctx.backward = backward
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        q, k, v, output = ctx.saved_tensors
        gradients = ctx.backward(grad_output, q, k, v, output)
        if not isinstance(gradients, (tuple, list)) or len(gradients) != 3:
            raise MethodError("the function given as backward returned no three gradients")
        return *gradients, None, None


class Bound:
    """A method with values of its options. The worker calls the attribute `forward`."""

    def __init__(self, method: Method, options: dict[str, Any]) -> None:
        self.method = method
        self.options = {name: value for name, value in options.items() if name != LIKE}
        self.masks = tuple(method.signature.masks)
        self.function = method.function
        self.forward = self._with_options(self.function)

    def _with_options(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of q, k, v and the masks. Without options it is the user's function itself,
        so that a call takes no more time than necessary."""
        options, backward = self.options, self.method.declared.backward
        if backward is None:
            if not options:
                return function

            def with_options(q: Any, k: Any, v: Any, **masks: Any) -> Any:
                return function(q, k, v, **masks, **options)

            return with_options

        def with_own_backward(q: Any, k: Any, v: Any, **masks: Any) -> Any:
            def call(*tensors: Any) -> Any:
                return function(*tensors, **masks, **options)

            def gradients(*tensors: Any) -> Any:
                return backward(*tensors, **masks, **options)

            if not torch.is_grad_enabled():
                return call(q, k, v)
            return _OwnBackward.apply(q, k, v, call, gradients)

        return with_own_backward

    def nothing(self, output: Any) -> Callable[..., Any]:
        """A function that does nothing but return `output`, with the parameters of `forward`. The
        time of a call of it is what calling Python costs."""
        if not self.options:

            def plain(q: Any, k: Any, v: Any, *, causal: Any = None, key_lengths: Any = None) -> Any:
                return output

            return plain
        options = self.options

        def inner(q: Any, k: Any, v: Any, **more: Any) -> Any:
            return output

        def with_options(q: Any, k: Any, v: Any, **masks: Any) -> Any:
            return inner(q, k, v, **masks, **options)

        return with_options

    def set_up(self, problem: str) -> None:
        """Prepares the calls of a problem, given as JSON."""
        # Without the reset, a second shape would make torch.compile compile for shapes of any size.
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is not None:
            dynamo.reset()
        if self.method.declared.setup is None:
            return
        made = self.method.declared.setup(self.method.function, json.loads(problem))
        if made is not None and not callable(made):
            raise MethodError(f"{self.method.where}: setup returned {type(made).__name__}, expected a function or None")
        self.function = made or self.method.function
        self.forward = self._with_options(self.function)

    def reference(self, q: Any, k: Any, v: Any, causal: bool, key_lengths: Any, rows: Any) -> Any:
        """The rows of the output by the declared reference."""
        reference = self.method.declared.reference
        assert reference is not None
        parameters = inspect.signature(reference).parameters
        anything = any(p.kind == inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        given = {**self.options, "causal": causal, "key_lengths": key_lengths, "rows": rows}
        known = {name: value for name, value in given.items() if anything or name in parameters}
        output = reference(q, k, v, **known)
        if not isinstance(output, torch.Tensor):
            raise MethodError(
                f"{self.method.where}: reference returned {type(output).__name__}, expected a tensor"
            )
        if "rows" not in known and output.dim() == 4:
            output = output.index_select(2, rows)
        expected = [*q.shape[:2], rows.numel(), v.shape[3]]
        if list(output.shape) != expected or output.dtype != torch.float64:
            raise MethodError(
                f"{self.method.where}: reference returned {DTYPES.get(output.dtype, output.dtype)} "
                f"{list(output.shape)}, expected float64 {expected}"
            )
        return output

    def flops(self, problem: str) -> float:
        """The operations of a forward call, by the user's formula."""
        assert self.method.declared.flops is not None
        value = self.method.declared.flops(json.loads(problem), **self.options)
        if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
            raise MethodError(f"{self.method.where}: flops returned {value!r}, expected a number of at least 0")
        return float(value)

    def begin_decoding(self, problem: str) -> State:
        """An empty decoding state."""
        return State(self, json.loads(problem))


def _tensors_in(value: Any, seen: set[int], depth: int = 0) -> Iterator[Any]:
    """All tensors that an object of the user holds in its attributes, lists and dicts."""
    if id(value) in seen or depth > 6:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors_in(item, seen, depth + 1)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from _tensors_in(item, seen, depth + 1)
    elif not isinstance(value, type) and not inspect.ismodule(value) and not inspect.isroutine(value):
        if hasattr(value, "__dict__"):
            yield from _tensors_in(vars(value), seen, depth + 1)
        for part in type(value).__mro__:
            slots = vars(part).get("__slots__", ())
            for name in [slots] if isinstance(slots, str) else slots:
                yield from _tensors_in(getattr(value, name, None), seen, depth + 1)


class State:
    """A decoding state of the user, with checks of what it returns."""

    def __init__(self, bound: Bound, problem: dict[str, Any]) -> None:
        make = bound.method.declared.decode
        assert make is not None
        self.where = bound.method.where
        self.user = make(problem, **bound.options)
        if not callable(getattr(self.user, "step", None)):
            raise MethodError(f"{self.where}: decode returned {type(self.user).__name__}, expected an object with a method step")
        self.step = self.user.step
        self.is_empty = True  # the worker calls extend and prefill only before the first step

    def tensors(self) -> list[Any]:
        return list(_tensors_in(self.user, set()))

    def extend(self, q: Any, k: Any, v: Any) -> None:
        """Adds tokens without returning outputs."""
        if hasattr(self.user, "extend"):
            self.user.extend(q, k, v)
        elif hasattr(self.user, "prefill") and self.is_empty:
            self.user.prefill(q, k, v)
        else:
            self._step_through(q, k, v)
        self.is_empty = False

    def prefill(self, q: Any, k: Any, v: Any) -> Any:
        """Adds tokens to the empty state and returns their outputs."""
        self.is_empty = False
        if hasattr(self.user, "prefill"):
            return self.user.prefill(q, k, v)
        return torch.cat(self._step_through(q, k, v), 2)

    def _step_through(self, q: Any, k: Any, v: Any) -> list[Any]:
        return [
            self.user.step(q[:, :, i : i + 1], k[:, :, i : i + 1], v[:, :, i : i + 1])
            for i in range(q.shape[2])
        ]


def version() -> str:
    """The version of the interpreter and of its torch, for records."""
    return f"{sys.version.split()[0]}, torch {torch.__version__}"
