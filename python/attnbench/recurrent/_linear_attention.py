"""Linear attention with decays that depend on the input, with constant decays, and without decay."""

from typing import Any

import torch
from torch import Tensor

from attnbench.recurrent._rule import Group, Layout, Result, apply_rule, check_feature_gates, refuse, wide_dtype, widened


def chunk_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    *,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> Result:
    """Gated linear attention (https://arxiv.org/abs/2312.06635): g [B,T,HV,K] has the logarithm of a decay
    for each feature of the keys."""
    del cu_seqlens_cpu
    refuse("chunk_gla", **others)
    return fused_recurrent_gla(
        q, k, v, check_feature_gates("chunk_gla", "g", g), None, scale, initial_state, output_final_state, False, state_v_first, cu_seqlens,
        layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def fused_recurrent_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> Result:
    """As `chunk_gla`, whose g is called gk here; None for no decay."""
    refuse("fused_recurrent_gla", gv=gv, reverse=reverse, **others)
    if gk is not None:
        check_feature_gates("fused_recurrent_gla", "gk", gk)
    return apply_rule(
        q, k, v, g=gk, rule="add", scale=scale, initial_state=initial_state, output_final_state=output_final_state,
        state_v_first=state_v_first, cu_seqlens=cu_seqlens, layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def chunk_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    *,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> Result:
    """Linear attention whose state decays, without feature map or normalizer.

    Args:
        g: [B,T,HV], the logarithms of decays that depend on the input; None for none.
        g_gamma: [HV], the logarithms of constant decays; they are added to g, and get no gradient.
    """
    del cu_seqlens_cpu
    refuse("chunk_simple_gla", **others)
    if g_gamma is not None:
        shape = (1, 1, -1) if layout == "bthk" else (1, -1, 1)
        constant = widened(g_gamma.detach()).view(shape).expand(v.shape[:3])
        g = constant if g is None else g + constant
    return apply_rule(
        q, k, v, g=g, rule="add", scale=scale, initial_state=initial_state, output_final_state=output_final_state,
        state_v_first=state_v_first, cu_seqlens=cu_seqlens, layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def fused_recurrent_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> Result:
    """As `chunk_simple_gla`."""
    refuse("fused_recurrent_simple_gla", reverse=reverse, **others)
    return chunk_simple_gla(
        q, k, v, g, g_gamma, scale, initial_state, output_final_state, state_v_first, cu_seqlens,
        layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def _heads_of(v: Tensor, layout: str) -> Tensor:
    """The numbers of the heads of v, 0, 1, … [HV], in float64 for float64 and in float32 for other dtypes."""
    return torch.arange(v.shape[2 if layout == "bthk" else 1], dtype=wide_dtype(v), device=v.device)


def chunk_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    state_v_first: bool = False,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> Result:
    """Retention (RetNet, https://arxiv.org/abs/2307.08621): the decay of head h is 1 − 2^(−5−h)."""
    refuse("chunk_retention", **others)
    decays = torch.log1p(-torch.exp2(-5 - _heads_of(v, layout)))
    return chunk_simple_gla(
        q, k, v, None, decays, scale, initial_state, output_final_state, state_v_first, cu_seqlens,
        layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def fused_recurrent_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> Result:
    """As `chunk_retention`."""
    refuse("fused_recurrent_retention", reverse=reverse, **others)
    return chunk_retention(
        q, k, v, scale, initial_state, output_final_state, cu_seqlens, state_v_first=state_v_first,
        layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def chunk_lightning_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layer_idx: int,
    num_layers: int,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> Result:
    """Lightning Attention (https://arxiv.org/abs/2405.17381): the logarithm of the decay of head h of HV
    heads is −(8/HV)(1 − layer_idx/num_layers) h."""
    refuse("chunk_lightning_attn", **others)
    heads = _heads_of(v, layout)
    decays = -8 / len(heads) * (1 - layer_idx / num_layers) * heads
    return chunk_simple_gla(
        q, k, v, None, decays, scale, initial_state, output_final_state, False, cu_seqlens,
        layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def fused_recurrent_lightning_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layer_idx: int,
    num_layers: int,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
) -> Result:
    """As `chunk_lightning_attn`."""
    refuse("fused_recurrent_lightning_attn", reverse=reverse)
    return chunk_lightning_attn(
        q, k, v, layer_idx, num_layers, scale, initial_state, output_final_state, cu_seqlens,
        layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def chunk_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | tuple[Tensor, Tensor | None] | None = None,
    output_final_state: bool = False,
    normalize: bool = True,
    cu_seqlens: Tensor | None = None,
    *,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor] | None]:
    """Linear attention without decay and without feature map (https://arxiv.org/abs/2006.16236).

    Args:
        normalize: whether the output at time t is divided by scale · qᵀz_t + 1e-10, where z_t is
            the sum of the keys up to t. Keys and queries ought to be positive then. The initial and
            final states are then pairs (S, z), where z is [N,1,HV,K] in the dtype of S; an initial z of
            None is zero, and a tensor instead of a pair is S.
    """
    refuse("chunk_linear_attn", **others)
    kv, z = initial_state if isinstance(initial_state, tuple) else (initial_state, None)
    if z is not None and not normalize:
        raise ValueError("chunk_linear_attn: initial_state is a pair, which needs normalize=True")

    def attend(q: Tensor, k: Tensor, v: Tensor, state: Tensor | None) -> Result:
        return apply_rule(
            q, k, v, rule="add", scale=scale, initial_state=state, output_final_state=output_final_state,
            cu_seqlens=cu_seqlens, layout=layout, implementation=implementation, cp_group=cp_group,
        )  # fmt: skip

    if not normalize:
        return attend(q, k, v, kv)
    # z is the state of linear attention whose values are 1.
    wide = wide_dtype(q)
    ones = torch.ones((), dtype=wide, device=q.device).expand(*v.shape[:3], 1)
    start = None if z is None else z.squeeze(1).unsqueeze(3)
    if cp_group is not None:
        # z becomes one more column of S, so that the ranks exchange both in one message.
        if start is not None and kv is None:
            kv = start.new_zeros(*start.shape[:3], v.shape[3])
        elif kv is not None and start is None:
            start = kv.new_zeros(*kv.shape[:3], 1)
        state = None if kv is None or start is None else torch.cat([kv, start], 3)
        both, last = attend(q.to(wide), k.to(wide), torch.cat([v.to(wide), ones], 3), state)
        output = (both[..., :-1] / (both[..., -1:] + 1e-10)).to(q.dtype)
        return output, None if last is None else (last[..., :-1], last[..., -1:].squeeze(3).unsqueeze(1))
    output, final = attend(q, k, v, kv)
    divisor, final_z = attend(q.to(wide), k.to(wide), ones, start)
    output = (output / (divisor + 1e-10)).to(q.dtype)
    return output, None if final is None or final_z is None else (final, final_z.squeeze(3).unsqueeze(1))


def fused_recurrent_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | tuple[Tensor, Tensor | None] | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    normalize: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor] | None]:
    """As `chunk_linear_attn`, but normalize is False by default."""
    refuse("fused_recurrent_linear_attn", reverse=reverse)
    return chunk_linear_attn(
        q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens,
        layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip
