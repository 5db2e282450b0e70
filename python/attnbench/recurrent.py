"""Recurrent linear attention: decays, gates and the delta rule, under the names that models use.

The functions have the names, arguments, defaults and results of those of flash-linear-attention
(fla-core 0.6) and mamba-ssm, so that an import line is all that changes. They run on CPUs, by
kernels with a backward pass of their own, and elsewhere by PyTorch operations.

q and k are [B,T,H,K] and v is [B,T,HV,V]: batch, time, heads, features; HV is a multiple of H, and
head hv of v reads head hv // (HV/H) of q and k. `layout="bhtk"` is for [B,H,T,K] instead; no tensor
is copied for either. The state S [K,V] of a head changes at each time: S ← e^g S, then S ← S + k uᵀ
with u = v or, by the delta rule, u = β (v − Sᵀk); the output is scale · Sᵀq, where scale is K^-½
unless it is given. g is the natural logarithm of the decay, at most 0; -inf clears the state. In
`chunk_kda` and `chunk_gla` each feature of the keys has a decay, which is that of a row of S.

Every function but the last two, those of Mamba-2, returns (output, final state). The final state,
float32 [N,HV,K,V], is None unless output_final_state=True; `initial_state` has its shape, and with
state_v_first=True both are [N,HV,V,K]. With `cu_seqlens`, int64 [N+1], a batch of 1 holds N sequences
one after the other, each with a state of its own. All results have gradients, once; those of the
fused_recurrent_… functions, too, which compute the same.

Arguments that cannot change the result are accepted and ignored: chunk_size, chunk_indices,
cu_seqlens_cpu and disable_recompute. Any other argument that is not supported raises ValueError,
and so do wrong shapes, dtypes and devices. `implementation` is as in attnbench.functional. With `cp_group`,
a process group of torch.distributed, the tensors of each rank are a slice of a longer sequence; the package
attnbench.distributed describes that.
"""

import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import silu

from attnbench import _library
from attnbench.convolution import causal_conv1d_fn as causal_conv1d_fn
from attnbench.convolution import causal_conv1d_update as causal_conv1d_update

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_library.load()

Layout = Literal["bthk", "bhtk"]
Result = tuple[Tensor, Tensor | None]
Group: TypeAlias = "ProcessGroup | None"

_IGNORED = ("chunk_size", "chunk_indices", "cu_seqlens_cpu", "disable_recompute")


def _refuse(function: str, **arguments: Any) -> None:
    """Raises ValueError if an argument that is not supported has another value than None or
    False."""
    for name, value in arguments.items():
        if name not in _IGNORED and value is not None and value is not False:
            raise ValueError(f"{function}: the argument {name} is not supported, got {value!r}")


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    g: Tensor | None = None,
    beta: Tensor | None = None,
    rule: str,
    scale: float | None,
    initial_state: Tensor | None,
    output_final_state: bool,
    normalize: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None,
    layout: str,
    implementation: str,
    cp_group: Group,
) -> Result:
    if layout not in ("bthk", "bhtk"):
        raise ValueError(f"layout = {layout!r}, expected 'bthk' or 'bhtk'")
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32

    def heads_first(x: Tensor) -> Tensor:
        return x.transpose(1, 2) if layout == "bthk" else x

    def gate(x: Tensor | None) -> Tensor | None:
        return None if x is None else heads_first(x).to(wide)

    def transposed(state: Tensor) -> Tensor:
        return state.transpose(2, 3) if state_v_first else state

    arguments = (
        *map(heads_first, (q, k, v)),
        gate(g),
        gate(beta),
        None if initial_state is None else transposed(initial_state).to(wide),
        None if cu_seqlens is None else cu_seqlens.to(torch.int64),
        rule,
        scale,
        normalize,
        implementation,
    )
    if cp_group is None:
        output, final = torch.ops.attn.recurrent_attention(*arguments)
    else:
        from attnbench.distributed._recurrent import recurrent_attention

        output, final = recurrent_attention(*arguments, cp_group, output_final_state)
    return heads_first(output), transposed(final) if output_final_state else None


def _wide(x: Tensor) -> Tensor:
    """x in the dtype in which gates are computed: float64 for float64, and float32 for others."""
    return x if x.dtype == torch.float64 else x.float()


def _softplus(x: Tensor) -> Tensor:
    # Not torch.nn.functional.softplus: compiled, its backward pass fails where the strides of its gradient are not those of its
    # input (torch 2.11).
    return torch.logaddexp(x, x.new_zeros(()))


def _gated_delta_rule(
    function: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    beta: Tensor | None,
    use_gate: bool,
    A_log: Tensor | None,
    dt_bias: Tensor | None,
    use_sigmoid: bool,
    allow_neg_eigval: bool,
    gk: Tensor | None = None,
    **options: Any,
) -> Result:
    """The gated delta rule with the gates that `chunk_gated_delta_rule` describes. `function` begins
    error messages, and `options` are those of `_attend`."""
    if allow_neg_eigval and not use_sigmoid:
        raise ValueError(f"{function}: allow_neg_eigval=True needs use_beta_sigmoid_in_kernel=True")
    if use_gate:
        if A_log is None or g is None:
            raise ValueError(f"{function}: use_gate_in_kernel=True needs g and A_log")
        raw = _wide(g) if dt_bias is None else _wide(g) + _wide(dt_bias)
        g = -_wide(A_log).exp() * _softplus(raw)
    if gk is not None:
        _feature_gates(function, "gk", gk)
        g = _wide(gk) if g is None else _wide(g).unsqueeze(-1) + _wide(gk)
    if use_sigmoid and beta is not None:
        beta = _wide(beta).sigmoid() * (2 if allow_neg_eigval else 1)
    return _attend(q, k, v, g=g, beta=beta, rule="delta", **options)


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    cp_context: Any = None,
    *,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> Result:
    """The gated delta rule (Gated DeltaNet, https://arxiv.org/abs/2412.06464).

    Args:
        g, beta: [B,T,HV]; with use_gate_in_kernel the decays are −exp(A_log)·softplus(g + dt_bias),
            and with use_beta_sigmoid_in_kernel β is sigmoid(beta), doubled with allow_neg_eigval.
        use_qk_l2norm_in_kernel: whether q and k are divided by √(Σ x² + 1e-6) first.
        A_log, dt_bias: [HV].
    """
    del cu_seqlens_cpu, chunk_indices
    name = "chunk_gated_delta_rule"
    _refuse(name, cp_context=cp_context, **others)
    return _gated_delta_rule(
        name, q, k, v, g, beta, use_gate_in_kernel, A_log, dt_bias, use_beta_sigmoid_in_kernel, allow_neg_eigval,
        scale=scale, initial_state=initial_state, output_final_state=output_final_state, normalize=use_qk_l2norm_in_kernel,
        state_v_first=state_v_first, cu_seqlens=cu_seqlens, layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def fused_recurrent_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> Result:
    """As `chunk_gated_delta_rule`; without g nothing decays, and without beta it is 1. gk [B,T,HV,K], the
    logarithm of a decay for each feature of the keys, is added to g."""
    name = "fused_recurrent_gated_delta_rule"
    _refuse(name, gv=gv, **others)
    return _gated_delta_rule(
        name, q, k, v, g, beta, use_gate_in_kernel, A_log, dt_bias, use_beta_sigmoid_in_kernel, allow_neg_eigval, gk,
        scale=scale, initial_state=initial_state, output_final_state=output_final_state, normalize=use_qk_l2norm_in_kernel,
        state_v_first=state_v_first, cu_seqlens=cu_seqlens, layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def _feature_gates(function: str, name: str, g: Tensor) -> Tensor:
    """g, which must have a value for each feature of the keys."""
    if g.dim() != 4:
        raise ValueError(f"{function}: {name} has shape {list(g.shape)}, expected 4 axes, of which the last are the features")
    return g


def _kda_gate(
    function: str,
    g: Tensor,
    use_gate: bool,
    A_log: Tensor | None,
    dt_bias: Tensor | None,
    lower_bound: float | None,
    layout: str,
) -> Tensor:
    """The decays of `chunk_kda`."""
    _feature_gates(function, "g", g)
    if not use_gate:
        return g
    if A_log is None and lower_bound is None:
        raise ValueError(f"{function}: use_gate_in_kernel=True needs A_log or lower_bound")
    heads = (-1,) if layout == "bthk" else (-1, 1)  # the axes before the features
    raw = _wide(g) if dt_bias is None else _wide(g) + _wide(dt_bias).view(*heads, g.shape[-1])
    rate = None if A_log is None else _wide(A_log).exp().view(*heads, 1)
    if lower_bound is not None:
        return lower_bound * (raw if rate is None else rate * raw).sigmoid()
    assert rate is not None
    return -rate * _softplus(raw)


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    cp_context: Any = None,
    use_graph: bool = False,
    max_num_seqs: int | None = None,
    *,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> Result:
    """Kimi Delta Attention (https://arxiv.org/abs/2510.26692): the delta rule with a decay for each
    feature of the keys.

    Args:
        g: [B,T,HV,K]; with use_gate_in_kernel the decays are −exp(A_log)·softplus(g + dt_bias), or with
            lower_bound lower_bound·sigmoid(exp(A_log)·(g + dt_bias)), where A_log=None leaves its factor
            out.
        beta: [B,T,HV]; with use_beta_sigmoid_in_kernel β is sigmoid(beta), doubled with
            allow_neg_eigval.
        use_qk_l2norm_in_kernel: whether q and k are divided by √(Σ x² + 1e-6) first.
        safe_gate: needs a lower_bound from -5 to 0 beside use_gate_in_kernel, and changes nothing.
        A_log, dt_bias: [HV] and [HV·K].
    """
    del disable_recompute, cu_seqlens_cpu, max_num_seqs
    name = "chunk_kda"
    _refuse(
        name, cp_context=cp_context, use_graph=use_graph, return_intermediate_states=return_intermediate_states, **others
    )
    if safe_gate and use_gate_in_kernel and (lower_bound is None or not -5 <= lower_bound < 0):
        raise ValueError(f"{name}: safe_gate=True needs -5 ≤ lower_bound < 0, got {lower_bound!r}")
    g = _kda_gate(name, g, use_gate_in_kernel, A_log, dt_bias, lower_bound, layout)
    return _gated_delta_rule(
        name, q, k, v, None, beta, False, None, None, use_beta_sigmoid_in_kernel, allow_neg_eigval, g,
        scale=scale, initial_state=initial_state, output_final_state=output_final_state, normalize=use_qk_l2norm_in_kernel,
        state_v_first=state_v_first, cu_seqlens=cu_seqlens, layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def fused_recurrent_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> Result:
    """As `chunk_kda`."""
    name = "fused_recurrent_kda"
    _refuse(name, **others)
    g = _kda_gate(name, g, use_gate_in_kernel, A_log, dt_bias, lower_bound, layout)
    return _gated_delta_rule(
        name, q, k, v, None, beta, False, None, None, use_beta_sigmoid_in_kernel, allow_neg_eigval, g,
        scale=scale, initial_state=initial_state, output_final_state=output_final_state, normalize=use_qk_l2norm_in_kernel,
        state_v_first=state_v_first, cu_seqlens=cu_seqlens, layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


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
    """Gated linear attention (https://arxiv.org/abs/2312.06635): g [B,T,HV,K] has a decay for each
    feature of the keys."""
    del cu_seqlens_cpu
    _refuse("chunk_gla", **others)
    return fused_recurrent_gla(
        q, k, v, _feature_gates("chunk_gla", "g", g), None, scale, initial_state, output_final_state, False, state_v_first, cu_seqlens,
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
    """As `chunk_gla`, with gk for its g; None for no decay."""
    _refuse("fused_recurrent_gla", gv=gv, reverse=reverse, **others)
    if gk is not None:
        _feature_gates("fused_recurrent_gla", "gk", gk)
    return _attend(
        q, k, v, g=gk, rule="add", scale=scale, initial_state=initial_state, output_final_state=output_final_state,
        state_v_first=state_v_first, cu_seqlens=cu_seqlens, layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def chunk_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    *,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> Result:
    """The delta rule without decay (DeltaNet, https://arxiv.org/abs/2406.06484)."""
    del cu_seqlens_cpu
    _refuse("chunk_delta_rule", **others)
    return fused_recurrent_delta_rule(
        q, k, v, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens,
        layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def fused_recurrent_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    layout: Layout = "bthk",
    implementation: str = "auto",
    cp_group: Group = None,
) -> Result:
    """As `chunk_delta_rule`; without beta it is 1."""
    return _attend(
        q, k, v, beta=beta, rule="delta", scale=scale, initial_state=initial_state, output_final_state=output_final_state,
        normalize=use_qk_l2norm_in_kernel, cu_seqlens=cu_seqlens, layout=layout, implementation=implementation, cp_group=cp_group,
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
        g: [B,T,HV], the decays of the inputs; None for none.
        g_gamma: [HV], constant decays, without gradient; they are added to g.
    """
    del cu_seqlens_cpu
    _refuse("chunk_simple_gla", **others)
    if g_gamma is not None:
        shape = (1, 1, -1) if layout == "bthk" else (1, -1, 1)
        constant = _wide(g_gamma.detach()).view(shape).expand(v.shape[:3])
        g = constant if g is None else g + constant
    return _attend(
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
    _refuse("fused_recurrent_simple_gla", reverse=reverse, **others)
    return chunk_simple_gla(
        q, k, v, g, g_gamma, scale, initial_state, output_final_state, state_v_first, cu_seqlens,
        layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def _heads_of(v: Tensor, layout: str) -> Tensor:
    """0, 1, … for each head of v, float32 [HV]."""
    return torch.arange(v.shape[2 if layout == "bthk" else 1], dtype=torch.float32, device=v.device)


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
    """Retention (RetNet, https://arxiv.org/abs/2307.08621): head h decays by 1 − 2^(−5−h)."""
    _refuse("chunk_retention", **others)
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
    _refuse("fused_recurrent_retention", reverse=reverse, **others)
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
    """Lightning Attention (https://arxiv.org/abs/2405.17381): head h of H decays by the exponential
    of −(8/H)(1 − layer_idx/num_layers) h."""
    _refuse("chunk_lightning_attn", **others)
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
    _refuse("fused_recurrent_lightning_attn", reverse=reverse)
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
            the sum of the keys up to t. Keys and queries ought to be positive then. States are then
            the pairs (S, z), where z is float32 [N,1,H,K]; an initial z of None is zero.
    """
    _refuse("chunk_linear_attn", **others)
    kv, z = initial_state if isinstance(initial_state, tuple) else (initial_state, None)
    if z is not None and not normalize:
        raise ValueError("chunk_linear_attn: initial_state is a pair, which needs normalize=True")

    def attend(q: Tensor, k: Tensor, v: Tensor, state: Tensor | None) -> Result:
        return _attend(
            q, k, v, rule="add", scale=scale, initial_state=state, output_final_state=output_final_state,
            cu_seqlens=cu_seqlens, layout=layout, implementation=implementation, cp_group=cp_group,
        )  # fmt: skip

    if not normalize:
        return attend(q, k, v, kv)
    # z is the state of linear attention whose values are 1.
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    ones = torch.ones((), dtype=wide, device=q.device).expand(*v.shape[:3], 1)
    start = None if z is None else z.squeeze(1).unsqueeze(3)
    if cp_group is not None:
        # It is one more column of the state, so that both travel together.
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
    """As `chunk_linear_attn`, but does not normalise unless it is asked to."""
    _refuse("fused_recurrent_linear_attn", reverse=reverse)
    return chunk_linear_attn(
        q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens,
        layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def mamba_chunk_scan_combined(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
    *,
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """Mamba-2's scan (https://arxiv.org/abs/2405.21060), which is `chunk_simple_gla` with q = C,
    k = B, v = x·dt, g = A·dt and scale 1, plus D·x, and multiplied by silu(z).

    Args:
        x: [B,L,H,P]; dt: [B,L,H]; A: [H]; B and C: [B,L,G,N], where G divides H.
        D: [H] or [H,P]; z: as x; dt_bias: [H], is added to dt before its softplus and its limits.
        initial_states: [B,H,P,N].
        seq_idx: [B,L]; a new sequence, whose state is zero, begins wherever the number changes.

    Returns:
        The output [B,L,H,P], and with return_final_states also the states [B,H,P,N], which are those
        of the last sequences.
    """
    del chunk_size
    name = "mamba_chunk_scan_combined"
    varlen = return_varlen_states or None
    _refuse(name, cu_seqlens=cu_seqlens, return_varlen_states=varlen, **others)
    step = _wide(dt) if dt_bias is None else _wide(dt) + _wide(dt_bias)
    step = (_softplus(step) if dt_softplus else step).clamp(*dt_limit)
    decay = step * _wide(A)
    if seq_idx is not None:
        if seq_idx.shape != x.shape[:2]:
            raise ValueError(f"{name}: seq_idx has shape {list(seq_idx.shape)}, expected {list(x.shape[:2])}")
        begins = torch.nn.functional.pad(seq_idx[:, 1:] != seq_idx[:, :-1], (1, 0))
        if cp_group is not None:
            from attnbench.distributed._recurrent import begins_on_this_rank

            begins[:, 0] = begins_on_this_rank(seq_idx, cp_group)
        decay = decay.masked_fill(begins.unsqueeze(-1), -math.inf)  # clears the state
    output, states = _attend(
        C, B, (x * step.unsqueeze(-1)).to(x.dtype), g=decay, rule="add", scale=1.0, initial_state=initial_states,
        output_final_state=return_final_states, state_v_first=True, cu_seqlens=None, layout="bthk", implementation=implementation, cp_group=cp_group,
    )  # fmt: skip
    if D is not None:
        output = output + x * (D if D.dim() == 2 else D.unsqueeze(-1)).to(x.dtype)
    if z is not None:
        output = output * silu(z)
    return output if states is None else (output, states)


@torch.no_grad()
def selective_state_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    state_batch_indices: Tensor | None = None,
    *,
    implementation: Literal["auto", "composed"] = "auto",
) -> Tensor:
    """One decoding step of Mamba or Mamba-2: x [B,H,P] → [B,H,P]. Records no gradients.

    With δ = dt + dt_bias, or its softplus, the state changes in place, and the output is read from
    the new state:

        state[p,n] ← e^(A[p,n] δ[p]) state[p,n] + δ[p] x[p] B[n]
        output[p] = (Σ_n state[p,n] C[n] + D[p] x[p]) · silu(z[p])

    Args:
        state: [R,H,P,N] with R = B, in any floating dtype.
        dt, z: [B,H,P]; A: [H,P,N]; D, dt_bias: [H,P]. What is expanded is not copied.
        B, C: [B,G,N], where G divides H.
        state_batch_indices: [B], the rows of the state that belong to the batch entries, all
            different; R is any number then. A negative one means none; the output is 0 there.

    Without the axis H, and for B and C without G, all tensors are those of one head.
    """
    if state.dim() == 3:
        heads = [None if t is None else t.unsqueeze(1) for t in (state, x, dt, z)]
        rows = [None if t is None else t.unsqueeze(0) for t in (A, D, dt_bias)]
        output: Tensor = torch.ops.attn.selective_state_step(
            *heads[:3], rows[0], B.unsqueeze(1), C.unsqueeze(1), rows[1], heads[3], rows[2], dt_softplus,
            None if state_batch_indices is None else state_batch_indices.to(torch.int64), implementation,
        )  # fmt: skip
        return output.squeeze(1)
    B, C = (t.unsqueeze(1) if t.dim() == 2 else t for t in (B, C))
    output = torch.ops.attn.selective_state_step(
        state, x, dt, A, B, C, D, z, dt_bias, dt_softplus,
        None if state_batch_indices is None else state_batch_indices.to(torch.int64), implementation,
    )  # fmt: skip
    return output
