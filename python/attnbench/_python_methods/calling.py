"""Calls of a Python method with values of its options."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from attnbench import _signature
from attnbench._method import MAX_MULTIPLE, is_multiple
from attnbench._python_methods.decoding import State
from attnbench._python_methods.reference import Reference
from attnbench._signature import AS, MethodError, short

if TYPE_CHECKING:
    from attnbench._python_methods.opening import Method


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
        self.forward = self._with_options(self.function)
        reference = method.declared.reference
        # The worker calls it only if the method declares one.
        self.reference = Reference(method.where, reference, self.options, self.length_multiple) if reference else None

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
                f"{self.method.where}: multiple_of is {short(value)} by {source}, expected a whole number from 1 to {MAX_MULTIPLE}"
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

    def flops(self, problem: str) -> float:
        """The operations of a forward call, by the user's formula."""
        assert self.method.declared.flops is not None
        value = self.method.declared.flops(json.loads(problem), **self.options)
        if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
            raise MethodError(f"{self.method.where}: flops returned {value!r}, expected a number of at least 0")
        return float(value)

    def begin_decoding(self, problem: str) -> State:
        """An empty decoding state."""
        make = self.method.declared.decode
        assert make is not None
        return State(self.method.where, make, json.loads(problem), self.options)
