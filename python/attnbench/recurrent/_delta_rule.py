"""The delta rule: with a decay for each head, with one for each feature of the keys, and without."""

from typing import Any

from torch import Tensor

from attnbench.recurrent._rule import Group, Layout, Result, apply_rule, check_feature_gates, refuse, softplus, widened


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
    *,
    layout: Layout,
    **options: Any,
) -> Result:
    """The gated delta rule, with gates computed as `chunk_gated_delta_rule` describes. `gk` [B,T,HV,K] is added
    to g. Error messages begin with `function`; `options` are passed to `apply_rule`."""
    if allow_neg_eigval and not use_sigmoid:
        raise ValueError(f"{function}: allow_neg_eigval=True needs use_beta_sigmoid_in_kernel=True")
    if use_gate:
        if A_log is None or g is None:
            raise ValueError(f"{function}: use_gate_in_kernel=True needs g and A_log")
        heads = (-1,) if layout == "bthk" else (-1, 1)  # the axes of g from that of the heads on
        raw = widened(g) if dt_bias is None else widened(g) + widened(dt_bias).view(heads)
        g = -widened(A_log).exp().view(heads) * softplus(raw)
    if gk is not None:
        check_feature_gates(function, "gk", gk)
        g = widened(gk) if g is None else widened(g).unsqueeze(-1) + widened(gk)
    if use_sigmoid and beta is not None:
        beta = widened(beta).sigmoid() * (2 if allow_neg_eigval else 1)
    return apply_rule(q, k, v, g=g, beta=beta, rule="delta", layout=layout, **options)


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
        g, beta: [B,T,HV]; with use_gate_in_kernel the logarithms of the decays are
            −exp(A_log)·softplus(g + dt_bias), and with use_beta_sigmoid_in_kernel β is sigmoid(beta),
            doubled with allow_neg_eigval.
        use_qk_l2norm_in_kernel: whether q and k are divided by √(Σ x² + 1e-6) first.
        A_log, dt_bias: [HV], for use_gate_in_kernel; dt_bias=None is 0.
    """
    del cu_seqlens_cpu, chunk_indices
    name = "chunk_gated_delta_rule"
    refuse(name, cp_context=cp_context, **others)
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
    """As `chunk_gated_delta_rule`; without g the state does not decay, and without beta β is 1. gk [B,T,HV,K],
    the logarithm of a decay for each feature of the keys, is added to g."""
    name = "fused_recurrent_gated_delta_rule"
    refuse(name, gv=gv, **others)
    return _gated_delta_rule(
        name, q, k, v, g, beta, use_gate_in_kernel, A_log, dt_bias, use_beta_sigmoid_in_kernel, allow_neg_eigval, gk,
        scale=scale, initial_state=initial_state, output_final_state=output_final_state, normalize=use_qk_l2norm_in_kernel,
        state_v_first=state_v_first, cu_seqlens=cu_seqlens, layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip


def _kda_gate(
    function: str,
    g: Tensor,
    use_gate: bool,
    A_log: Tensor | None,
    dt_bias: Tensor | None,
    lower_bound: float | None,
    layout: str,
) -> Tensor:
    """The logarithms of the decays of `chunk_kda`, [B,T,HV,K] or, with layout "bhtk", [B,HV,T,K]."""
    check_feature_gates(function, "g", g)
    if not use_gate:
        return g
    if A_log is None and lower_bound is None:
        raise ValueError(f"{function}: use_gate_in_kernel=True needs A_log or lower_bound")
    heads = (-1,) if layout == "bthk" else (-1, 1)  # the axes before the features
    raw = widened(g) if dt_bias is None else widened(g) + widened(dt_bias).view(*heads, g.shape[-1])
    rate = None if A_log is None else widened(A_log).exp().view(*heads, 1)
    if lower_bound is not None:
        return lower_bound * (raw if rate is None else rate * raw).sigmoid()
    assert rate is not None
    return -rate * softplus(raw)


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
        g: [B,T,HV,K]; with use_gate_in_kernel the logarithms of the decays are
            −exp(A_log)·softplus(g + dt_bias) or, if lower_bound is given,
            lower_bound·sigmoid(exp(A_log)·(g + dt_bias)), where A_log=None stands for A_log = 0.
        beta: [B,T,HV]; with use_beta_sigmoid_in_kernel β is sigmoid(beta), doubled with
            allow_neg_eigval.
        use_qk_l2norm_in_kernel: whether q and k are divided by √(Σ x² + 1e-6) first.
        safe_gate: does not change the result; together with use_gate_in_kernel it needs a lower_bound
            from -5 up to but not including 0.
        A_log, dt_bias: [HV] and [HV·K], for use_gate_in_kernel; dt_bias=None is 0.
    """
    del disable_recompute, cu_seqlens_cpu, max_num_seqs
    name = "chunk_kda"
    refuse(
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
    refuse(name, **others)
    g = _kda_gate(name, g, use_gate_in_kernel, A_log, dt_bias, lower_bound, layout)
    return _gated_delta_rule(
        name, q, k, v, None, beta, False, None, None, use_beta_sigmoid_in_kernel, allow_neg_eigval, g,
        scale=scale, initial_state=initial_state, output_final_state=output_final_state, normalize=use_qk_l2norm_in_kernel,
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
    """The delta rule without decay (DeltaNet, https://arxiv.org/abs/2406.06484); beta is [B,T,HV]."""
    del cu_seqlens_cpu
    refuse("chunk_delta_rule", **others)
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
    """As `chunk_delta_rule`; without beta β is 1."""
    return apply_rule(
        q, k, v, beta=beta, rule="delta", scale=scale, initial_state=initial_state, output_final_state=output_final_state,
        normalize=use_qk_l2norm_in_kernel, cu_seqlens=cu_seqlens, layout=layout, implementation=implementation, cp_group=cp_group,
    )  # fmt: skip
