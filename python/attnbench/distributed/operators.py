"""The operators that `python -m attnbench.distributed` measures, with the inputs and the sizes of a rank."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnbench import functional, recurrent
from attnbench.distributed import payload_bytes, ring_payload_bytes, zigzag

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a call on one rank.

    Attributes:
        length: of the slice.
        heads, dim: those of q, k and v.
        dtype: a key of DTYPES.
    """

    length: int
    heads: int
    dim: int
    dtype: str
    batch: int = 1


@dataclass(frozen=True)
class Operator:
    """An operator, causal, with head dimensions that are equal for q, k and v.

    Attributes:
        transition: that of its state, "one", "number", "diagonal" or "matrix"; "ring" for softmax, which has none.
        gates: which of g (a number for each head), f (for each feature) and b (beta) it takes.
        call: computes the output of tensors [B,T,H,…]; takes `cp_group`.
    """

    name: str
    transition: str
    gates: str
    call: Callable[..., Tensor]

    @property
    def rule(self) -> str:
        """That of the state, "add" or "delta"."""
        return "delta" if self.transition == "matrix" else "add"

    def inputs(self, sizes: Sizes, seed: int) -> dict[str, Tensor]:
        """Tensors by name, drawn with a seed."""
        generator = torch.Generator().manual_seed(seed)
        shape = (sizes.batch, sizes.length, sizes.heads)

        def normal(*more: int) -> Tensor:
            return torch.randn(*shape, *more, generator=generator, dtype=torch.float64)

        dtype = DTYPES[sizes.dtype]
        gate = torch.float64 if sizes.dtype == "float64" else torch.float32
        tensors = {"q": normal(sizes.dim), "k": normal(sizes.dim), "v": normal(sizes.dim)}
        if self.transition != "ring":  # Keys of unit length, as the delta rule wants them.
            tensors["k"] = torch.nn.functional.normalize(tensors["k"], dim=-1)
        found = {name: x.to(dtype) for name, x in tensors.items()}
        if "g" in self.gates or "f" in self.gates:
            more = [sizes.dim] if "f" in self.gates else []
            found["g"] = -torch.nn.functional.softplus(normal(*more)).div(16).to(gate)
        if "b" in self.gates:
            found["beta"] = normal().sigmoid().to(gate)
        return found

    def positions(self, length: int, rank: int, ranks: int) -> Tensor:
        """The positions of a whole sequence that a rank holds."""
        if self.transition == "ring":
            return zigzag(length, rank, ranks)
        return torch.arange(length).view(ranks, -1)[rank]

    def payload_bytes(self, sizes: Sizes, ranks: int, backward: bool) -> int:
        """What a rank hands to others in one call, by the formula."""
        if ranks == 1:
            return 0
        item = DTYPES[sizes.dtype].itemsize
        wide = max(4, item)
        if self.transition == "ring":
            return ring_payload_bytes(
                batch=sizes.batch, key_heads=sizes.heads, length=sizes.length, dim=sizes.dim, value_dim=sizes.dim, ranks=ranks,
                item_bytes=item, gradient_item_bytes=wide, backward=backward,
            )  # fmt: skip
        return payload_bytes(
            batch=sizes.batch, heads=sizes.heads, dim=sizes.dim, value_dim=sizes.dim, transition=self.transition, item_bytes=wide,
            backward=backward,
        )  # fmt: skip


def _first(function: Callable[..., tuple[Tensor, Any]], **options: Any) -> Callable[..., Tensor]:
    def call(**arguments: Any) -> Tensor:
        return function(**arguments, **options)[0]

    return call


def _softmax(q: Tensor, k: Tensor, v: Tensor, cp_group: Any = None) -> Tensor:
    output = functional.sparse_attention(*(x.transpose(1, 2) for x in (q, k, v)), causal=True, cp_group=cp_group)
    assert isinstance(output, Tensor)
    return output.transpose(1, 2)


OPERATORS = {
    one.name: one
    for one in (
        Operator("linear", "one", "", _first(recurrent.chunk_linear_attn, normalize=False)),
        Operator("simple-gla", "number", "g", _first(recurrent.chunk_simple_gla)),
        Operator("gla", "diagonal", "f", _first(recurrent.chunk_gla)),
        Operator("delta", "matrix", "b", _first(recurrent.chunk_delta_rule)),
        Operator("gated-delta", "matrix", "gb", _first(recurrent.chunk_gated_delta_rule)),
        Operator("kda", "matrix", "fb", _first(recurrent.chunk_kda)),
        Operator("softmax", "ring", "", _softmax),
    )
}
