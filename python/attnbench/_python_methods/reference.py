"""The reference that a Python method declares: its rows, and whether it may be given some of the heads alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from attnbench import _signature
from attnbench._signature import MethodError

DTYPES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}
SMALL_LENGTH = 5


def takes(function: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(function).parameters


def takes_anything(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(parameter.kind == inspect.Parameter.VAR_KEYWORD for parameter in parameters)


class Reference:
    """A declared reference with values of the options of its method. `where` begins errors; `length_multiple` is as in Bound."""

    def __init__(self, where: str, function: Callable[..., Any], options: dict[str, Any], length_multiple: int) -> None:
        self.where, self.function, self.options, self.length_multiple = where, function, options, length_multiple
        self.heads_are_alike = False  # once it is known that the reference does the same for each head

    def __call__(
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
        if heads.numel() < num_heads and "heads" not in self._own_parameters():
            self._check_heads_are_alike(tensors, masks)
        return self._rows_of_reference(tensors, masks, rows, heads, num_heads)

    def _own_parameters(self) -> list[str]:
        """Which of `heads` and `num_heads` the reference takes, if they are no options."""
        return [name for name in ("heads", "num_heads") if takes(self.function, name) and name not in self.options]

    def _rows_of_reference(
        self, tensors: dict[str, Any], masks: dict[str, Any], rows: Any, heads: Any, num_heads: int
    ) -> Any:
        further = dict(tensors)
        q, k, v = (further.pop(name) for name in _signature.TENSORS)
        given = {**self.options, **further, **masks, "rows": rows}
        known = {name: value for name, value in given.items() if takes_anything(self.function) or takes(self.function, name)}
        own = {"heads": heads, "num_heads": num_heads}
        known |= {name: own[name] for name in self._own_parameters()}
        output = self.function(q, k, v, **known)
        if not isinstance(output, torch.Tensor):
            raise MethodError(
                f"{self.where}: reference returned {type(output).__name__}, expected a tensor"
            )
        if "rows" not in known and output.dim() == 4:
            output = output.index_select(2, rows)
        expected = [*q.shape[:2], rows.numel(), v.shape[3]]
        if list(output.shape) != expected or output.dtype != torch.float64:
            raise MethodError(
                f"{self.where}: reference returned {DTYPES.get(output.dtype, output.dtype)} "
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
                f"{self.where}: the reference of a head depends on the other heads or on which head it is, but it is "
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
            if tensor.dim() == 1:  # a number of each head
                return tensor[:1] * torch.rand(heads, dtype=torch.float64, generator=generator).to(device)
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
            last = {name: tensor if tensor is None else tensor[-1:] if tensor.dim() == 1 else tensor[:, -1:]
                    for name, tensor in made.items()}  # fmt: skip
            return together[:, -1:], self._rows_of_reference(last, masks, rows, indices[-1:], heads)
