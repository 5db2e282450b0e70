"""Tests of the functions of attnbench.recurrent: against the definition in float64, and the arguments that callers pass."""

import inspect

import pytest
import torch
from recurrent_cases import by_definition, example, expect_close, results, time_first


pytestmark = pytest.mark.usefixtures("operators")


@pytest.fixture(scope="module")
def recurrent(build):  # noqa: ARG001
    from attnbench import recurrent

    return recurrent


@pytest.mark.parametrize("layout", ["bthk", "bhtk"])
@pytest.mark.parametrize("length", [4, 40])  # 4 is also the number of heads, so that a gate along the wrong axis raises no error
@pytest.mark.parametrize("name", ["chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule"])
def test_the_gated_delta_rule_computes_its_gates_inside(recurrent, name, length, layout):
    q, k, v, raw, logits, state = example((2, 2, 4, length, 16, 8))
    A_log, dt_bias = (torch.randn(4, generator=torch.Generator().manual_seed(i)).requires_grad_() for i in range(2))
    given = [*time_first(q, k, v, raw, logits), state, A_log, dt_bias]

    def mine(*tensors):
        q, k, v, raw, logits = tensors[:5] if layout == "bthk" else (x.transpose(1, 2) for x in tensors[:5])
        state, A_log, dt_bias = tensors[5:]
        output, final = getattr(recurrent, name)(
            q, k, v, g=raw, beta=logits, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True,
            use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True, use_gate_in_kernel=True, A_log=A_log, dt_bias=dt_bias,
            layout=layout,
        )  # fmt: skip
        return output if layout == "bthk" else output.transpose(1, 2), final

    def definition(q, k, v, raw, logits, state, A_log, dt_bias):
        g = -A_log.exp() * torch.nn.functional.softplus(raw + dt_bias)
        first = [x.transpose(1, 2) for x in (q, k, v, g, 2 * logits.sigmoid())]
        output, final = by_definition(*first, state, normalize=True)
        return output.transpose(1, 2), final

    exact = [x.detach().double().requires_grad_() for x in given]
    expect_close(results(mine, given), results(definition, exact), 2e-5)


@pytest.mark.parametrize("gate", ["given", "softplus", "bounded", "bounded without A_log"])
@pytest.mark.parametrize("layout", ["bthk", "bhtk"])
@pytest.mark.parametrize("name", ["chunk_kda", "fused_recurrent_kda"])
def test_kimi_delta_attention(recurrent, name, layout, gate):
    q, k, v, raw, logits, state = example((2, 2, 4, 40, 16, 8), gates="fb")
    inside = gate != "given"
    if inside:
        raw = raw.detach().div(10).requires_grad_()
    A_log, dt_bias = (torch.randn(n, generator=torch.Generator().manual_seed(n)).requires_grad_() for n in (4, 64))
    bound = -5.0 if "bounded" in gate else None
    first = [q, k, v, raw, logits]
    given = [*(time_first(*first) if layout == "bthk" else first), state, A_log, dt_bias]

    def unused(*tensors):  # so that all have a gradient
        return sum(0 * x.sum() for x in tensors)

    def mine(q, k, v, raw, logits, state, A_log, dt_bias):
        safe = {"safe_gate": True} if bound is not None and name == "chunk_kda" else {}
        output, final = getattr(recurrent, name)(
            q, k, v, raw, logits, initial_state=state.transpose(2, 3), output_final_state=True, use_qk_l2norm_in_kernel=True,
            use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True, use_gate_in_kernel=inside, lower_bound=bound,
            A_log=None if gate == "bounded without A_log" else A_log, dt_bias=dt_bias, state_v_first=True, layout=layout, **safe,
        )  # fmt: skip
        return output + unused(A_log, dt_bias), final.transpose(2, 3)

    def definition(q, k, v, raw, logits, state, A_log, dt_bias):
        if layout == "bthk":
            q, k, v, raw, logits = (x.transpose(1, 2) for x in (q, k, v, raw, logits))
        moved, rate = raw + dt_bias.view(4, 1, 16), A_log.exp().view(4, 1, 1)
        g = {
            "given": raw,
            "softplus": -rate * torch.nn.functional.softplus(moved),
            "bounded": -5 * torch.sigmoid(rate * moved),
            "bounded without A_log": -5 * torch.sigmoid(moved),
        }[gate]
        output, final = by_definition(q, k, v, g, 2 * logits.sigmoid(), state, normalize=True)
        return (output.transpose(1, 2) if layout == "bthk" else output) + unused(A_log, dt_bias), final

    exact = [x.detach().double().requires_grad_() for x in given]
    expect_close(results(mine, given), results(definition, exact), 2e-5)


@pytest.mark.parametrize("name", ["chunk_gla", "fused_recurrent_gla"])
def test_gated_linear_attention(recurrent, name):
    q, k, v, g, _, state = example((2, 4, 4, 40, 16, 8), gates="f", normalize=False)
    given = [*time_first(q, k, v, g), state]

    def mine(q, k, v, g, state):
        return getattr(recurrent, name)(q, k, v, g, initial_state=state, output_final_state=True)

    def definition(q, k, v, g, state):
        q, k, v, g = (x.transpose(1, 2) for x in (q, k, v, g))
        output, final = by_definition(q, k, v, g, None, state, rule="add")
        return output.transpose(1, 2), final

    exact = [x.detach().double().requires_grad_() for x in given]
    expect_close(results(mine, given), results(definition, exact), 2e-5)


@pytest.mark.parametrize("with_g", [False, True])
def test_the_gated_delta_rule_with_decays_of_features(recurrent, with_g):
    shape = (2, 2, 4, 40, 16, 8)
    q, k, v, gk, beta, state = example(shape, gates="fb")
    g = example(shape)[3]
    given = [*time_first(q, k, v, g, gk, beta), state]

    def mine(q, k, v, g, gk, beta, state):
        output, final = recurrent.fused_recurrent_gated_delta_rule(
            q, k, v, g if with_g else None, gk, None, beta, initial_state=state, output_final_state=True
        )
        return output + 0 * g.sum(), final

    def definition(q, k, v, g, gk, beta, state):
        q, k, v, g, gk, beta = (x.transpose(1, 2) for x in (q, k, v, g, gk, beta))
        output, final = by_definition(q, k, v, gk + g[..., None] * with_g, beta, state)
        return output.transpose(1, 2), final

    for x in (given[0], given[1]):  # keys as long as these would let the state grow without normalization
        x.data /= 10
    exact = [x.detach().double().requires_grad_() for x in given]
    expect_close(results(mine, given), results(definition, exact), 2e-5)


def test_both_layouts_of_tensors_and_states(recurrent):
    q, k, v, g, beta, state = (x.detach() for x in example((2, 2, 4, 20, 16, 8)))
    first, final = recurrent.chunk_gated_delta_rule(
        q, k, v, g, beta, initial_state=state, output_final_state=True, layout="bhtk"
    )
    second, other = recurrent.chunk_gated_delta_rule(
        *(x.transpose(1, 2) for x in (q, k, v, g, beta)), initial_state=state.transpose(2, 3), output_final_state=True,
        state_v_first=True,
    )  # fmt: skip
    torch.testing.assert_close(first, second.transpose(1, 2))
    torch.testing.assert_close(final, other.transpose(2, 3))
    assert recurrent.chunk_gated_delta_rule(q, k, v, g, beta, layout="bhtk")[1] is None
    # The output has the layout of v, so that a model's reshape of it copies nothing.
    packed = recurrent.chunk_gated_delta_rule(*time_first(q, k, v, g, beta))[0]
    assert packed.is_contiguous()


@pytest.mark.parametrize("name", ["chunk", "fused_recurrent"])
def test_linear_attention_with_decays(recurrent, name):
    q, k, v, g, _, state = example((2, 4, 4, 40, 16, 8), normalize=False)
    given = [*time_first(q, k, v, g), state]
    exact = [x.detach().double().requires_grad_() for x in given]

    def expect(function, decay):
        def definition(q, k, v, g, state):
            q, k, v, g = (x.transpose(1, 2) for x in (q, k, v, g))
            output, final = by_definition(q, k, v, decay(g), None, state, rule="add")
            return output.transpose(1, 2), final + 0 * g.sum()

        def mine(q, k, v, g, state):
            output, final = function(q, k, v, g, state)
            return output, final + 0 * g.sum()

        expect_close(results(mine, given), results(definition, exact), 2e-5)

    options = {"output_final_state": True}
    heads = torch.arange(4, dtype=torch.float64)[:, None]
    gamma = -torch.rand(4, generator=torch.Generator().manual_seed(1))
    operator = {stem: getattr(recurrent, f"{name}_{stem}") for stem in ("simple_gla", "retention", "lightning_attn")}
    expect(lambda q, k, v, g, s: operator["simple_gla"](q, k, v, g, initial_state=s, **options), lambda g: g)
    expect(
        lambda q, k, v, g, s: operator["simple_gla"](q, k, v, g, gamma, initial_state=s, **options),
        lambda g: g + gamma.double()[:, None],
    )
    expect(
        lambda q, k, v, g, s: operator["retention"](q, k, v, initial_state=s, **options),
        lambda g: (1 - 2 ** (-5 - heads)).log().expand(g.shape),
    )
    expect(
        lambda q, k, v, g, s: operator["lightning_attn"](q, k, v, 3, 12, initial_state=s, **options),
        lambda g: (-8 / 4 * (1 - 3 / 12) * heads).expand(g.shape),
    )


def test_decays_of_heads_have_the_digits_of_float64(recurrent):
    """A decay that was rounded to float32 would be wrong by 1e-8, and 400 of them by more."""
    q, k, v = (x.detach() for x in time_first(*example((1, 3, 3, 400, 8, 8), dtype=torch.float64)[:3]))
    heads = torch.arange(3, dtype=torch.float64)[:, None]
    found = {
        "retention": (recurrent.chunk_retention(q, k, v), torch.log1p(-(2 ** (-5 - heads)))),
        "lightning": (recurrent.chunk_lightning_attn(q, k, v, 1, 3), -8 / 3 * (1 - 1 / 3) * heads),
    }
    for name, ((output, _), decay) in found.items():
        first = (x.transpose(1, 2) for x in (q, k, v))
        expected = by_definition(*first, decay.expand(1, 3, 400), rule="add")[0].transpose(1, 2)
        assert (output - expected).abs().max() < 1e-11 * expected.abs().max(), name


@pytest.mark.parametrize("name", ["chunk_delta_rule", "fused_recurrent_delta_rule"])
def test_the_delta_rule(recurrent, name):
    q, k, v, _, beta, state = example((2, 2, 2, 40, 16, 8))
    given = [*time_first(q, k, v, beta), state]

    def mine(q, k, v, beta, state):
        return getattr(recurrent, name)(
            q, k, v, beta, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True
        )

    def definition(q, k, v, beta, state):
        first = [x.transpose(1, 2) for x in (q, k, v, beta)]
        output, final = by_definition(*first[:3], None, first[3], state, normalize=True)
        return output.transpose(1, 2), final

    expect_close(results(mine, given), results(definition, [x.detach().double().requires_grad_() for x in given]), 2e-5)


def test_the_scan_of_mamba_keeps_numbered_sequences_apart(recurrent):
    generator = torch.Generator().manual_seed(3)
    x, B, C = (torch.randn(2, 40, n, 8, generator=generator).requires_grad_() for n in (4, 2, 2))
    dt = torch.rand(2, 40, 4, generator=generator).requires_grad_()
    A = -torch.rand(4, generator=generator)
    numbers = torch.stack([torch.arange(40) // 15, (torch.arange(40) >= 39).long()])

    def parts():
        for row, lengths in enumerate(([15, 15, 10], [39, 1])):
            pieces = zip(*(t[row : row + 1].split(lengths, 1) for t in (x, dt, B, C)), strict=True)
            yield torch.cat([recurrent.mamba_chunk_scan_combined(x, dt, A, B, C, 16) for x, dt, B, C in pieces], 1)

    outputs = [recurrent.mamba_chunk_scan_combined(x, dt, A, B, C, 16, seq_idx=numbers), torch.cat(list(parts()))]
    torch.testing.assert_close(*outputs)
    gradients = [torch.autograd.grad(output.square().sum(), [x, dt, B, C]) for output in outputs]
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"seq_idx has shape \[2, 39\], expected \[2, 40\]"):
        recurrent.mamba_chunk_scan_combined(x, dt, A, B, C, 16, seq_idx=numbers[:, 1:])


def test_the_scan_of_mamba(recurrent):
    generator = torch.Generator().manual_seed(0)

    def normal(*sizes):
        return torch.randn(*sizes, generator=generator).requires_grad_()

    x, dt, B, C = normal(2, 30, 4, 8), normal(2, 30, 4), normal(2, 30, 2, 16), normal(2, 30, 2, 16)
    A, D, z, bias, state = normal(4), normal(4), normal(2, 30, 4, 8), normal(4), normal(2, 4, 8, 16)
    given = [x, dt, A, B, C, D, z, bias, state]

    def mine(x, dt, A, B, C, D, z, bias, state):
        return recurrent.mamba_chunk_scan_combined(
            x, dt, -A.exp(), B, C, 256, D, z, bias, state, dt_softplus=True, dt_limit=(0.1, 2.0), return_final_states=True
        )

    def definition(x, dt, A, B, C, D, z, bias, state):
        step = torch.nn.functional.softplus(dt + bias).clamp(0.1, 2.0)
        q, k, v = (y.transpose(1, 2) for y in (C, B, x * step[..., None]))
        output, final = by_definition(
            q, k, v, (-A.exp() * step).transpose(1, 2), None, state.transpose(2, 3), rule="add", scale=1
        )
        return (output.transpose(1, 2) + x * D[:, None]) * torch.nn.functional.silu(z), final.transpose(2, 3)

    expect_close(results(mine, given), results(definition, [y.detach().double().requires_grad_() for y in given]), 2e-5)
    alone = recurrent.mamba_chunk_scan_combined(x, dt, -A.exp(), B, C, 256)
    assert isinstance(alone, torch.Tensor) and alone.shape == x.shape


def test_unsupported_arguments_are_refused_and_hints_are_ignored(recurrent):
    q, k, v, g, beta, _ = (x.detach() for x in example((1, 1, 1, 9, 4, 4)))
    given = [x.transpose(1, 2) for x in (q, k, v, g, beta)]
    plain, _ = recurrent.chunk_gated_delta_rule(*given)
    hinted, _ = recurrent.chunk_gated_delta_rule(*given, chunk_size=32, disable_recompute=True, chunk_indices=torch.zeros(2))
    assert torch.equal(plain, hinted)
    for changed, name in [({"cp_context": object()}, "cp_context"), ({"head_first": True}, "head_first")]:
        with pytest.raises(ValueError, match=f"chunk_gated_delta_rule: the argument {name} is not supported"):
            recurrent.chunk_gated_delta_rule(*given, **changed)
    with pytest.raises(ValueError, match="the argument gv is not supported"):
        recurrent.fused_recurrent_gated_delta_rule(*given[:3], gv=q)
    with pytest.raises(ValueError, match=r"gk has shape \[1, 9, 1\], expected 4 axes"):
        recurrent.fused_recurrent_gated_delta_rule(*given[:3], gk=given[3])
    gates = torch.zeros(1, 9, 1, 4)
    for name, value in {"cp_context": object(), "use_graph": True, "return_intermediate_states": True, "head_first": 1}.items():
        with pytest.raises(ValueError, match=f"chunk_kda: the argument {name} is not supported"):
            recurrent.chunk_kda(*given[:3], gates, given[4], **{name: value})
    with pytest.raises(ValueError, match=r"chunk_kda: g has shape \[1, 9, 1\], expected 4 axes"):
        recurrent.chunk_kda(*given)
    with pytest.raises(ValueError, match="needs A_log or lower_bound"):
        recurrent.fused_recurrent_kda(*given[:3], gates, given[4], use_gate_in_kernel=True)
    with pytest.raises(ValueError, match="safe_gate=True needs -5 ≤ lower_bound < 0, got -6"):
        recurrent.chunk_kda(*given[:3], gates, given[4], use_gate_in_kernel=True, safe_gate=True, lower_bound=-6)
    with pytest.raises(ValueError, match=r"chunk_gla: g has shape \[1, 9, 1\], expected 4 axes"):
        recurrent.chunk_gla(*given[:4])
    with pytest.raises(ValueError, match="fused_recurrent_gla: the argument gv is not supported"):
        recurrent.fused_recurrent_gla(*given[:3], gv=gates)
    with pytest.raises(ValueError, match="the argument reverse is not supported"):
        recurrent.fused_recurrent_simple_gla(*given[:3], reverse=True)
    with pytest.raises(ValueError, match="needs use_beta_sigmoid_in_kernel=True"):
        recurrent.chunk_gated_delta_rule(*given, allow_neg_eigval=True)
    with pytest.raises(ValueError, match="layout = 'thk'"):
        recurrent.chunk_gated_delta_rule(*given, layout="thk")


# The arguments of fla-core 0.6.0 that callers pass by position, in their order.
POSITIONS = {
    "chunk_gated_delta_rule": "q k v g beta scale initial_state output_final_state use_qk_l2norm_in_kernel "
    "use_beta_sigmoid_in_kernel allow_neg_eigval state_v_first cu_seqlens cu_seqlens_cpu chunk_indices cp_context",
    "fused_recurrent_gated_delta_rule": "q k v g gk gv beta scale initial_state output_final_state use_qk_l2norm_in_kernel "
    "use_gate_in_kernel A_log dt_bias use_beta_sigmoid_in_kernel allow_neg_eigval state_v_first cu_seqlens",
    "chunk_kda": "q k v g beta scale initial_state output_final_state use_qk_l2norm_in_kernel use_gate_in_kernel "
    "use_beta_sigmoid_in_kernel allow_neg_eigval safe_gate lower_bound disable_recompute return_intermediate_states "
    "state_v_first cu_seqlens cu_seqlens_cpu cp_context use_graph max_num_seqs",
    "fused_recurrent_kda": "q k v g beta A_log dt_bias scale initial_state output_final_state use_qk_l2norm_in_kernel "
    "use_gate_in_kernel use_beta_sigmoid_in_kernel allow_neg_eigval lower_bound state_v_first cu_seqlens",
    "chunk_gla": "q k v g scale initial_state output_final_state state_v_first cu_seqlens cu_seqlens_cpu",
    "fused_recurrent_gla": "q k v gk gv scale initial_state output_final_state reverse state_v_first cu_seqlens",
    "chunk_simple_gla": "q k v g g_gamma scale initial_state output_final_state state_v_first cu_seqlens cu_seqlens_cpu",
    "fused_recurrent_simple_gla": "q k v g g_gamma scale initial_state output_final_state reverse state_v_first cu_seqlens",
    "chunk_retention": "q k v scale initial_state output_final_state cu_seqlens",
    "fused_recurrent_retention": "q k v scale initial_state output_final_state reverse state_v_first cu_seqlens",
    "chunk_lightning_attn": "q k v layer_idx num_layers scale initial_state output_final_state cu_seqlens",
    "fused_recurrent_lightning_attn": "q k v layer_idx num_layers scale initial_state output_final_state reverse cu_seqlens",
    "chunk_delta_rule": "q k v beta scale initial_state output_final_state use_qk_l2norm_in_kernel cu_seqlens cu_seqlens_cpu",
    "fused_recurrent_delta_rule": "q k v beta scale initial_state output_final_state use_qk_l2norm_in_kernel cu_seqlens",
}


@pytest.mark.parametrize("name", POSITIONS)
def test_arguments_have_the_names_and_the_order_of_the_field(recurrent, name):
    parameters = inspect.signature(getattr(recurrent, name)).parameters.values()
    assert [p.name for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD] == POSITIONS[name].split()
