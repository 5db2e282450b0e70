"""The operators that `python -m attnbench.distributed` measures, with the inputs and the sizes of a rank."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnbench import functional, recurrent
from attnbench.distributed import payload_bytes, ring_payload_bytes, zigzag
from attnbench.distributed._exchange import HEADER_BYTES

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a call on one rank.

    Attributes:
        length: the number of positions of the slice.
        heads, dim: the number of heads and the head dimension of q, k and v.
        dtype: a key of DTYPES.
        batch: the batch size.
        decay_positions: for operators with drawn decays: after how many positions the weight of a position is 1/e on average.
    """

    length: int
    heads: int
    dim: int
    dtype: str
    batch: int = 1
    decay_positions: float = 20


@dataclass(frozen=True)
class Operator:
    """An operator, causal, with head dimensions that are equal for q, k and v.

    Attributes:
        name: its name on the command line and in records.
        method: the method of `attnbench measure` that computes the same from the same inputs; None if there is none.
        transition: the kind of its state's transition, "one", "number", "diagonal" or "matrix", see `payload_bytes`; "ring" for
            softmax, which has no state.
        gates: the letters of the gates that it takes: "g" for g with a number for each head, "f" for g with a number for each
            feature, "b" for beta.
        call: computes the output from tensors [B,T,H,…] by name; takes `cp_group`.
        is_predicted: whether `simulate` can predict it. It cannot if the operator computes something from its tensors before the
            recurrence, such as constant decays or a feature map.
        has_normalizer: whether it divides by a sum of weights, which is one more column of values.
    """

    name: str
    method: str | None
    transition: str
    gates: str
    call: Callable[..., Tensor]
    is_predicted: bool = True
    has_normalizer: bool = False

    @property
    def rule(self) -> str:
        """The rule by which the state changes, "add" or "delta"."""
        return "delta" if self.transition == "matrix" else "add"

    def inputs(self, sizes: Sizes, seed: int) -> dict[str, Tensor]:
        """Random tensors [B,T,H,…] by the names of the arguments of `call`. Gates are float64 for float64 and float32 otherwise."""
        generator = torch.Generator().manual_seed(seed)
        shape = (sizes.batch, sizes.length, sizes.heads)

        def normal(*more: int) -> Tensor:
            return torch.randn(*shape, *more, generator=generator, dtype=torch.float64)

        dtype = DTYPES[sizes.dtype]
        gate = torch.float64 if sizes.dtype == "float64" else torch.float32
        tensors = {"q": normal(sizes.dim), "k": normal(sizes.dim), "v": normal(sizes.dim)}
        found = {name: x.to(dtype) for name, x in tensors.items()}
        if "g" in self.gates or "f" in self.gates:
            more = [sizes.dim] if "f" in self.gates else []
            # The mean of the logarithms is 0.8, as attnbench draws decays.
            found["g"] = -torch.nn.functional.softplus(normal(*more)).div(0.8 * sizes.decay_positions).to(gate)
        if "b" in self.gates:
            found["beta"] = normal().sigmoid().to(gate)
        return found

    def positions(self, length: int, rank: int, ranks: int) -> Tensor:
        """The positions that a rank holds of a sequence of `length` positions: int64 [length/ranks]."""
        if self.transition == "ring":
            return zigzag(length, rank, ranks)
        return torch.arange(length).view(ranks, -1)[rank]

    def payload_bytes(self, sizes: Sizes, ranks: int, backward: bool) -> int:
        """The bytes that a rank sends in one call, by formula; `sizes` are those of the rank."""
        if ranks == 1:
            return 0
        item = DTYPES[sizes.dtype].itemsize
        wide = max(4, item)
        if self.transition == "ring":
            return ring_payload_bytes(
                batch=sizes.batch, key_heads=sizes.heads, length=sizes.length, dim=sizes.dim, value_dim=sizes.dim, ranks=ranks,
                item_bytes=item, gradient_item_bytes=wide, backward=backward,
            )  # fmt: skip
        states = payload_bytes(
            batch=sizes.batch, heads=sizes.heads, dim=sizes.dim, value_dim=sizes.dim + self.has_normalizer, transition=self.transition,
            item_bytes=wide, backward=backward,
        )  # fmt: skip
        # The means of values are gathered as well, in an exchange with a header of its own.
        means = HEADER_BYTES + wide * sizes.batch * sizes.heads * sizes.dim
        return states + (means if self.has_normalizer else 0)


def _first(function: Callable[..., tuple[Tensor, Any]], **options: Any) -> Callable[..., Tensor]:
    def call(**arguments: Any) -> Tensor:
        return function(**arguments, **options)[0]

    return call


def _heads_first(function: Callable[..., Any], **options: Any) -> Callable[..., Tensor]:
    def call(q: Tensor, k: Tensor, v: Tensor, cp_group: Any = None) -> Tensor:
        output = function(*(x.transpose(1, 2) for x in (q, k, v)), causal=True, cp_group=cp_group, **options)
        assert isinstance(output, Tensor)
        return output.transpose(1, 2)

    return call


_NORMALIZED = {"use_qk_l2norm_in_kernel": True}

OPERATORS = {
    one.name: one
    for one in (
        Operator("linear", None, "one", "", _first(recurrent.chunk_linear_attn, normalize=False)),
        Operator("simple-gla", "simple-gla", "number", "g", _first(recurrent.chunk_simple_gla)),
        Operator("gla", "gla", "diagonal", "f", _first(recurrent.chunk_gla)),
        Operator("delta", "delta", "matrix", "b", _first(recurrent.chunk_delta_rule, **_NORMALIZED)),
        Operator("gated-delta", "gated-delta", "matrix", "gb", _first(recurrent.chunk_gated_delta_rule, **_NORMALIZED)),
        Operator("kda", "kda", "matrix", "fb", _first(recurrent.chunk_kda, **_NORMALIZED)),
        Operator("softmax", "sparse-sdpa", "ring", "", _heads_first(functional.sparse_attention)),
        Operator("retnet", "retnet", "number", "", _first(recurrent.chunk_retention), is_predicted=False),
        Operator(
            "lightning", "lightning", "number", "", _first(recurrent.chunk_lightning_attn, layer_idx=0, num_layers=1),
            is_predicted=False,
        ),
        Operator("linear-elu", "linear", "one", "", _heads_first(functional.linear_attention), is_predicted=False, has_normalizer=True),
        Operator(
            "linear-elu0.1", "linear-elu0.1", "one", "", _heads_first(functional.linear_attention, feature_map="elu0.1"),
            is_predicted=False, has_normalizer=True,
        ),
    )
}  # fmt: skip
BY_METHOD = {one.method: one for one in OPERATORS.values() if one.method is not None}
