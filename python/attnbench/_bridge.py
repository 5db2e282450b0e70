"""What the worker of attnbench calls in its Python interpreter to run attention functions.

The worker's module for Python methods (harness/worker/python) imports this file. It opens the file
of a function, checks the function's signature, and makes objects whose attributes the worker calls.
Errors in the user's file are raised as MethodError, with a text that is meant for the user.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import json
import math
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from attnbench import _signature
from attnbench._folders import Folder
from attnbench._method import ATTRIBUTE, MAX_MULTIPLE, Declaration, is_multiple
from attnbench._signature import AS, LIKE, MethodError, MissingFunction, Signature

# What a function prints must not mix with what the worker answers.
sys.stdout = sys.stderr

DTYPES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}


# The text of None among the values of options.
NONE = "none"
# What a parameter that text cannot give has as its value: options are parted by commas, so that no
# option has this value.
NOT_GIVEN = ","
SMALL_LENGTH = 5


def check_inputs(names: list[str]) -> None:
    """Raises MethodError unless the worker knows the same tensors beside q, k and v."""
    if list(_signature.FURTHER_TENSORS) != names:
        raise MethodError(
            f"the worker knows the further tensors {', '.join(names)}, and its Python package {', '.join(_signature.FURTHER_TENSORS)}"
        )


def traceback_text(error: BaseException) -> str:
    """The traceback as Python prints it, without the frames of this file. What UTF-8 has no
    characters for, such as a lone surrogate, is escaped."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    if isinstance(error, MethodError):
        text = str(error)
    else:
        text = "".join(traceback.format_exception(type(error), error, frames)).strip()
    return text.encode("utf-8", "backslashreplace").decode()


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


def _short(value: Any) -> str:
    """A value for a message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:59] + "…"


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
        options += [_option(name, NOT_GIVEN, f"{_short(default)}, whatever it is called with")
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
        return reference is not None and not _takes(reference, "rows") and not _takes_anything(reference)

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
                default = _short(self.signature.fixed[name])
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


class _OwnBackward(torch.autograd.Function):
    """Computes gradients with the function that the user declared for it."""

    @staticmethod
    def forward(ctx: Any, call: Any, backward: Any, *tensors: Any) -> Any:
        output = call(*tensors)
        ctx.save_for_backward(*tensors, output)
        ctx.backward = backward
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        *tensors, output = ctx.saved_tensors
        gradients = ctx.backward(grad_output, *tensors, output)
        if not isinstance(gradients, (tuple, list)) or len(gradients) != len(tensors):
            number = "three" if len(tensors) == 3 else str(len(tensors))
            raise MethodError(f"the function given as backward returned no {number} gradients")
        return None, None, *gradients


class Bound:
    """A method with values of its options. The worker calls the attribute `forward`, and reads
    `label`, which is empty for a method without a label, and `length_multiple`."""

    def __init__(self, method: Method, options: dict[str, Any]) -> None:
        self.method = method
        self.options = method.values(options)
        self.label = options.get(AS) or method.declared.label
        if options.get(AS) and (problem := _signature.problem_of_label(self.label, spaces=False)):
            raise MethodError(f"{method.where}: {AS} = {problem}")
        self.length_multiple = self._length_multiple()
        self.masks = tuple(method.signature.masks)
        self.function = method.function
        self.heads_are_alike = False  # once it is known that the reference does the same for each head
        self.forward = self._with_options(self.function)

    def activate(self) -> None:
        """Makes imports inside the function find the modules of its folder. The worker calls this
        before it calls anything else of another method than the last one."""
        self.method.folder.activate()

    def _length_multiple(self) -> int:
        declared = self.method.declared.multiple_of
        if isinstance(declared, str):
            value, source = self.options[declared], f"the option {declared}"
        elif callable(declared):
            value, source = declared(**self.options), "the function given as multiple_of"
        else:
            return declared
        if not is_multiple(value):
            raise MethodError(
                f"{self.method.where}: multiple_of is {_short(value)} by {source}, expected a whole number from 1 to {MAX_MULTIPLE}"
            )
        return int(value)

    def _with_options(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of q, k, v, the masks and the further tensors."""
        options, backward = self.options, self.method.declared.backward
        function = self._returning_tensor(function)
        if backward is None:
            return function

        names = tuple(self.method.signature.tensors)

        def with_own_backward(q: Any, k: Any, v: Any, **more: Any) -> Any:
            further = [more.pop(name) for name in names]

            def call(q: Any, k: Any, v: Any, *further: Any) -> Any:
                return function(q, k, v, **more, **dict(zip(names, further)))

            def gradients(grad_output: Any, q: Any, k: Any, v: Any, *rest: Any) -> Any:
                *further, output = rest
                return backward(grad_output, q, k, v, output, **more, **options, **dict(zip(names, further)))

            if not torch.is_grad_enabled():
                return call(q, k, v, *further)
            return _OwnBackward.apply(call, gradients, q, k, v, *further)

        return with_own_backward

    def _returning_tensor(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with its options, which returns the output alone. Without options and for a
        function that returns a tensor it is the user's function itself, so that a call takes no more
        time than necessary."""
        options, where = self.options, self.method.where
        if self.method.declared.returns_tuple:

            def first_of_tuple(q: Any, k: Any, v: Any, **more: Any) -> Any:
                output = function(q, k, v, **more, **options)
                if not isinstance(output, (tuple, list)) or not output:
                    raise MethodError(
                        f"{where} returned {type(output).__name__}, expected a tuple or a list that begins with the output, "
                        "because it declares returns_tuple=True"
                    )
                return output[0]

            return first_of_tuple
        if not options:
            return function

        def with_options(q: Any, k: Any, v: Any, **more: Any) -> Any:
            return function(q, k, v, **more, **options)

        return with_options

    def nothing(self, output: Any) -> Callable[..., Any]:
        """A function that does nothing but return `output`, with the parameters of `forward`. The
        time of a call of it is what calling Python costs."""
        returned = (output,) if self.method.declared.returns_tuple else output
        if not self.options and not self.method.signature.tensors:

            def plain(q: Any, k: Any, v: Any, *, causal: Any = None, key_lengths: Any = None,
                      pattern: Any = None, cu_seqlens: Any = None) -> Any:  # fmt: skip
                return returned

            return self._returning_tensor(plain)

        def inner(q: Any, k: Any, v: Any, **more: Any) -> Any:
            return returned

        return self._returning_tensor(inner)

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

    def reference(
        self,
        q: Any,
        k: Any,
        v: Any,
        masks: dict[str, Any],
        rows: Any,
        heads: Any = None,
        num_heads: Any = None,
        **further: Any,
    ) -> Any:
        """The rows of the output by the declared reference. `masks` holds every mask by name. `heads` (int64 `[h]`) are the indices of
        the heads that the tensors hold among the `num_heads` of the call; by default all of them."""
        tensors = {"q": q, "k": k, "v": v, **further}
        if heads is None:
            heads = torch.arange(q.shape[1], device=q.device)
        if num_heads is None:
            num_heads = q.shape[1]
        reference = self.method.declared.reference
        assert reference is not None
        if heads.numel() < num_heads and "heads" not in self._own_parameters(reference):
            self._check_heads_are_alike(tensors, masks)
        return self._rows_of_reference(tensors, masks, rows, heads, num_heads)

    def _own_parameters(self, reference: Callable[..., Any]) -> list[str]:
        """Which of `heads` and `num_heads` the reference takes, if they are no options."""
        return [name for name in ("heads", "num_heads") if _takes(reference, name) and name not in self.options]

    def _rows_of_reference(
        self, tensors: dict[str, Any], masks: dict[str, Any], rows: Any, heads: Any, num_heads: int
    ) -> Any:
        further = dict(tensors)
        q, k, v = (further.pop(name) for name in _signature.TENSORS)
        reference = self.method.declared.reference
        assert reference is not None
        given = {**self.options, **further, **masks, "rows": rows}
        known = {name: value for name, value in given.items() if _takes_anything(reference) or _takes(reference, name)}
        own = {"heads": heads, "num_heads": num_heads}
        known |= {name: own[name] for name in self._own_parameters(reference)}
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

    def _check_heads_are_alike(self, tensors: dict[str, Any], masks: dict[str, Any]) -> None:
        """Raises MethodError if the reference of a head depends on which head it is."""
        if self.heads_are_alike:
            return
        small = self.length_multiple if self.length_multiple > 1 else SMALL_LENGTH
        try:
            together, alone = self._last_head_of_reference((small, small), tensors, masks)
        except Exception:  # it may not be made for so short a sequence
            lengths = (tensors["q"].shape[2], tensors["k"].shape[2])
            together, alone = self._last_head_of_reference(lengths, tensors, masks)
        if not torch.allclose(together, alone, rtol=1e-9, atol=1e-12, equal_nan=True):
            raise MethodError(
                f"{self.method.where}: the reference of a head depends on the other heads or on which head it is, but it is "
                "given some of them alone; add the parameters heads (int64 [h], the indices of the heads that it is given) and "
                "num_heads (how many there are) to it"
            )
        self.heads_are_alike = True

    def _last_head_of_reference(
        self, lengths: tuple[int, int], tensors: dict[str, Any], masks: dict[str, Any]
    ) -> tuple[Any, Any]:
        """The output of the last of three heads, computed together with the others and alone, for
        random q, k and v with so many queries and keys. Of a further tensor it takes the first positions
        of one head, times a number between 0 and 1 for each head."""
        heads, (query_len, key_len) = 3, lengths
        device = tensors["q"].device
        generator = torch.Generator().manual_seed(0)

        def several_heads(name: str, tensor: Any) -> Any:
            if name in _signature.TENSORS:
                size = (query_len if name == "q" else key_len, tensor.shape[3])
                return torch.randn(1, heads, *size, dtype=torch.float64, generator=generator).to(device)
            if tensor is None:
                return None
            ones = [1] * (tensor.dim() - 2)
            factors = torch.rand(1, heads, *ones, dtype=torch.float64, generator=generator)
            return tensor[:1, :1, :key_len] * factors.to(device)

        # All keys are valid, and they are one sequence.
        whole = {"key_lengths": [key_len], "cu_seqlens": [0, key_len]}
        masks = masks | {name: torch.tensor(numbers, device=device) for name, numbers in whole.items()
                         if masks[name] is not None}  # fmt: skip
        rows, indices = torch.arange(query_len, device=device), torch.arange(heads, device=device)
        with torch.no_grad():
            made = {name: several_heads(name, tensor) for name, tensor in tensors.items()}
            together = self._rows_of_reference(made, masks, rows, indices, heads)
            last = {name: tensor if tensor is None else tensor[:, -1:] for name, tensor in made.items()}
            return together[:, -1:], self._rows_of_reference(last, masks, rows, indices[-1:], heads)

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


def _takes(function: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(function).parameters


def _takes_anything(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(parameter.kind == inspect.Parameter.VAR_KEYWORD for parameter in parameters)


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

    def extend(self, q: Any, k: Any, v: Any, **further: Any) -> None:
        """Adds tokens without returning outputs."""
        if hasattr(self.user, "extend"):
            self.user.extend(q, k, v, **further)
        elif hasattr(self.user, "prefill") and self.is_empty:
            self.user.prefill(q, k, v, **further)
        else:
            self._step_through(q, k, v, further)
        self.is_empty = False

    def prefill(self, q: Any, k: Any, v: Any, **further: Any) -> Any:
        """Adds tokens to the empty state and returns their outputs."""
        self.is_empty = False
        if hasattr(self.user, "prefill"):
            return self.user.prefill(q, k, v, **further)
        return torch.cat(self._step_through(q, k, v, further), 2)

    def _step_through(self, q: Any, k: Any, v: Any, further: dict[str, Any]) -> list[Any]:
        def at(i: int, tensor: Any) -> Any:
            return None if tensor is None else tensor[:, :, i : i + 1]

        return [
            self.user.step(
                *[at(i, tensor) for tensor in (q, k, v)], **{name: at(i, tensor) for name, tensor in further.items()}
            )
            for i in range(q.shape[2])
        ]


def version() -> str:
    """The version of the interpreter and of its torch, for records."""
    return f"{sys.version.split()[0]}, torch {torch.__version__}"
