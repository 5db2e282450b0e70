"""Measures where the time of a training step goes, by parts of the layers."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

# The names of parts outside the layers, by the names of their modules.
OUTSIDE = {"embed_tokens": "embeddings", "embeddings": "embeddings", "lm_head": "head"}


class _Mark(torch.autograd.Function):
    """Returns the same tensor, and calls a function in the backward pass, once the tensor's gradient is computed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, reached: Callable[[], None]) -> Tensor:
        ctx.reached = reached
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        ctx.reached()
        return grad, None


class PartTimes:
    """Measures the seconds that each part of a model takes, forward and backward. Parts are the children of
    layers, named by their classes, such as Qwen3_5GatedDeltaNet, and "embeddings" and "head".

    The backward pass runs one part after another on one thread. The time of a part is that from the moment at
    which the gradient of its output is computed to the one at which the gradient of its input is. Parts whose
    input has no gradient, such as the embeddings, have no backward time.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._forward: dict[str, float] = {}
        self._backward: dict[str, float] = {}
        self._parts: list[tuple[str, torch.nn.Module]] = []
        for name, module in model.named_modules():
            parent, _, own = name.rpartition(".")
            is_layer = own.isdigit() and parent.endswith("layers")
            if is_layer:
                self._parts += [(type(child).__name__, child) for child in module.children()]
            elif own in OUTSIDE:
                self._parts.append((OUTSIDE[own], module))
        self._parts = list({id(module): (name, module) for name, module in self._parts}.values())  # layers may share a child

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Adds up the times of what the model computes within the `with` block."""
        before = [(module, vars(module).get("forward")) for _, module in self._parts]
        try:
            for name, module in self._parts:
                self._wrap(name, module)
            yield
        finally:
            for module, forward in before:
                if forward is not None:
                    module.forward = forward
                else:
                    vars(module).pop("forward", None)  # The method of the class is no longer hidden.

    def seconds(self) -> dict[str, dict[str, float]]:
        """For each part {"forward": seconds, "backward": seconds}, summed over all layers."""
        return {
            name: {"forward": self._forward.get(name, 0.0), "backward": self._backward.get(name, 0.0)}
            for name in dict.fromkeys(name for name, _ in self._parts)
        }

    def _wrap(self, name: str, module: torch.nn.Module) -> None:
        forward = module.forward

        def measured(*args: Any, **kwargs: Any) -> Any:
            began: list[float] = []

            def output_known() -> None:
                began.append(time.perf_counter())

            def input_known() -> None:
                if began:
                    self._backward[name] = self._backward.get(name, 0.0) + time.perf_counter() - began.pop()

            # The input is the first tensor among the arguments that needs a gradient.
            places = [*enumerate(args), *kwargs.items()]
            place = next((k for k, x in places if isinstance(x, Tensor) and x.requires_grad), None)
            if isinstance(place, int):
                args = (*args[:place], _Mark.apply(args[place], input_known), *args[place + 1 :])
            elif place is not None:
                kwargs = kwargs | {place: _Mark.apply(kwargs[place], input_known)}
            start = time.perf_counter()
            output = forward(*args, **kwargs)
            self._forward[name] = self._forward.get(name, 0.0) + time.perf_counter() - start
            if isinstance(output, Tensor) and output.requires_grad:
                return _Mark.apply(output, output_known)
            if isinstance(output, tuple) and isinstance(output[0], Tensor) and output[0].requires_grad:
                return (_Mark.apply(output[0], output_known), *output[1:])
            return output

        module.forward = measured  # type: ignore[method-assign]
