"""Linear attention with a feature map over a sequence that is split over the ranks of a process group.

Values get one more column of ones, so that the normalizer of a query is one more column of the output, and ranks exchange it
with the state. The mean of all values is subtracted from them before and added to the outputs after, as the kernels of one
process do: an output is a weighted mean of values, and loses digits when the mean of the values is large beside their
differences. Any shift gives the same result, so the shift has no gradient.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from attnbench.distributed._exchange import Ranks, check_header, number_of
from attnbench.distributed._recurrent import recurrent_attention
from attnbench.recurrent._rule import wide_dtype

# The feature maps that apply a function to each entry, by name.
_MAPS = {
    "elu": lambda x: torch.nn.functional.elu(x) + 1,
    "elu0.1": lambda x: torch.nn.functional.elu(x, 0.1) + 1,
    "relu": torch.relu,
}


@torch.compiler.disable
def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, feature_map: str, eps: float, implementation: str, group: dist.ProcessGroup
) -> Tensor:
    """As torch.ops.attn.linear_attention over the slices of all ranks of `group`: q [B,H,N,D], k [B,H,L,D] and v [B,H,L,M] of a
    slice → [B,H,N,M]. Raises ValueError for a feature map that is not in _MAPS."""
    if feature_map not in _MAPS:
        raise ValueError(f"linear_attention: feature_map = {feature_map!r}, expected one of {', '.join(_MAPS)} beside cp_group")
    # Invalid arguments must be refused before any exchange, so that a rank does not wait for one that raised an error.
    with torch.no_grad():
        shapes = [x.to("meta") for x in (q, k, v)]
        torch.ops.attn.linear_attention(*shapes, causal, None, feature_map, eps, None, 128, implementation)
    with torch.autocast(q.device.type, enabled=False):
        return _attend(q, k, v, causal, feature_map, eps, implementation, group)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, feature_map: str, eps: float, implementation: str, group: dist.ProcessGroup
) -> Tensor:
    wide = wide_dtype(q)
    queries, keys = (_MAPS[feature_map](x.to(wide)) for x in (q, k))
    ranks = Ranks("linear_attention", group)
    records = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    check_header(
        ranks, q.device, length=k.shape[2], batch=k.shape[0], heads=k.shape[1], dim_of_k=k.shape[3], dim_of_v=v.shape[3],
        dtype=number_of(str(q.dtype)), causal_mask=int(causal), feature_map=number_of(feature_map), eps=number_of(f"{eps}"),
        recording_of_gradients=int(records),
    )  # fmt: skip
    means = ranks.all_gather("means of values", v.detach().to(wide).mean(2, keepdim=True))
    shift = means.nan_to_num(0, 0, 0).mean(0)
    values = torch.cat([v.to(wide) - shift, v.new_ones(*v.shape[:3], 1, dtype=wide)], 3)
    if causal:
        both, _ = recurrent_attention(
            queries, keys, values, None, None, None, None, "add", 1.0, False, implementation, group, False
        )
    else:
        both = queries @ _Sum.apply(keys.transpose(2, 3) @ values, ranks)
    normalizer = both[..., -1:]
    return (both[..., :-1] / (normalizer + eps) + shift * (normalizer / (normalizer + eps))).to(q.dtype)


class _Sum(torch.autograd.Function):
    """The sum over the ranks. Its gradient is the sum of the ranks' gradients, since the loss is the sum of their losses."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks.sum_up("states", x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        ranks: Ranks = ctx.ranks
        return ranks.sum_up("gradients of states", grad), None
