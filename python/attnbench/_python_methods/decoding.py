"""The decoding state of a Python method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from attnbench._signature import MethodError


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

    def __init__(self, where: str, make: Callable[..., Any], problem: dict[str, Any], options: dict[str, Any]) -> None:
        """The state that `make`, the declared function `decode` of the method at `where`, returns for a problem."""
        self.user = make(problem, **options)
        if not callable(getattr(self.user, "step", None)):
            raise MethodError(f"{where}: decode returned {type(self.user).__name__}, expected an object with a method step")
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
