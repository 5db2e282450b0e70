"""Tests of attn::recurrent_attention and of the functions of attnbench.recurrent: results, gradients
and states against the definition in float64, torch.compile, and what is refused."""

import inspect
import itertools

import pytest
import torch
from conftest import expect_unchanged_by_autocast, kernels_of

pytestmark = pytest.mark.usefixtures("operators")


@pytest.fixture(scope="module")
def recurrent(build):  # noqa: ARG001
    from attnbench import recurrent

    return recurrent


@pytest.fixture(scope="module")
def kernels():
    return kernels_of(lambda name: torch.ops.attn.recurrent_attention(*[torch.zeros(1, 1, 1, 1)] * 3, implementation=name))


def by_definition(q, k, v, g=None, beta=None, state=None, *, rule="delta", scale=None, normalize=False):
    """Token by token: tensors [B,H,T,…] → the output and the final state."""

    def used(x):
        x = x / torch.sqrt(x.square().sum(-1, keepdim=True) + 1e-6) if normalize else x
        return x.repeat_interleave(v.shape[1] // x.shape[1], 1)

    q, k = used(q) * (q.shape[3] ** -0.5 if scale is None else scale), used(k)
    if state is None:
        state = torch.zeros(v.shape[0], v.shape[1], q.shape[3], v.shape[3], dtype=q.dtype)
    rows = []
    for t in range(q.shape[2]):
        if g is not None:
            state = state * (g[:, :, t, :, None] if g.dim() == 4 else g[:, :, t, None, None]).exp()
        u = v[:, :, t]
        if rule == "delta":
            u = u - (state * k[:, :, t, :, None]).sum(2)
            if beta is not None:
                u = u * beta[:, :, t, None]
        state = state + k[:, :, t, :, None] * u[:, :, None, :]
        rows.append((state * q[:, :, t, :, None]).sum(2))
    return torch.stack(rows, 2), state


def example(shape, *, gates="gb", state=True, normalize=True, dtype=torch.float32, seed=0, extreme=False):
    """Tensors of one call; `shape` is (batch, heads of q and k, heads of v, T, K, V). `gates` names those
    that are given: g of a head (g) or of each feature of the keys (f), and beta (b)."""
    generator = torch.Generator().manual_seed(seed)
    batch, heads, value_heads, length, keys, values = shape
    wide = torch.float64 if dtype == torch.float64 else torch.float32

    def normal(*sizes):
        return torch.randn(*sizes, generator=generator, dtype=torch.float64)

    # Means, scales that differ between heads, and outliers.
    q = normal(batch, heads, length, keys) + 1
    k = normal(batch, heads, length, keys) + torch.linspace(-1, 1, keys)
    v = normal(batch, value_heads, length, values) * 10.0 ** torch.arange(value_heads)[:, None, None] + 3
    v[:, :, ::7] *= 5
    if not normalize:
        k = k / k.norm(dim=-1, keepdim=True)
    g = -torch.nn.functional.softplus(normal(batch, value_heads, length, *([keys] if "f" in gates else []))) / 4
    if "f" in gates:  # Features that keep, that forget slowly, and whose decays in 16 positions add up to less or more than 80.
        g = g * torch.tensor([0.0, 1e-5, 1.0, 15.0, 30.0], dtype=torch.float64)[torch.arange(keys) * 5 // keys]
        g[:, :, length // 2 :] /= 10
    beta = torch.sigmoid(normal(batch, value_heads, length))
    if extreme:
        choices = torch.tensor([0.0, -1e-6, -50.0, -float("inf"), -2.0], dtype=torch.float64)
        g = choices[torch.randint(5, g.shape, generator=generator)]
        if "f" in gates:  # A position with an extreme decay in a single feature, in a chunk with moderate ones, too.
            g[:, :, length // 2 :] = -0.25
            g[:, :, length * 3 // 4, keys // 2] = choices[3]
        beta = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)[torch.randint(3, beta.shape, generator=generator)]
    given = [q.to(dtype), k.to(dtype), v.to(dtype)]
    given.append(g.to(wide) if gates.strip("b") else None)
    given.append(beta.to(wide) if "b" in gates else None)
    given.append(normal(batch, value_heads, keys, values).to(wide) if state else None)
    return [None if x is None else x.requires_grad_() for x in given]


def results(function, given):
    """Both results, and the gradients of all tensors that are given, with fixed gradients of the
    results."""
    output, state = function(*given)
    generator = torch.Generator().manual_seed(5)
    weights = [torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype) for x in (output, state)]
    return output, state, *torch.autograd.grad([output, state], [x for x in given if x is not None], weights)


def expect_close(found, expected, tolerance):
    for index, (a, b) in enumerate(zip(found, expected, strict=True)):
        # The gradient of a decay of −∞ is 0 by definition; the naive one is 0 or NaN.
        b = torch.nan_to_num(b)
        assert torch.isfinite(a).all(), index
        difference = (a.double() - b).abs().amax() / b.abs().amax().clamp_min(1e-30)
        assert difference <= tolerance, (index, difference)


SHAPES = [
    (2, 2, 2, 1, 16, 16),
    (1, 2, 4, 15, 24, 40),
    (1, 1, 1, 17, 5, 7),
    (2, 1, 3, 300, 33, 17),
    (1, 1, 1, 520, 64, 64),
    (1, 1, 1, 40, 128, 192),
    (1, 1, 1, 20, 256, 256),
]


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize(
    ("rule", "gates"),
    [("delta", "gb"), ("delta", "fb"), ("delta", "f"), ("delta", "b"), ("delta", ""), ("add", "g"), ("add", "f"), ("add", "")],
)
@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_agree_with_the_definition(kernels, shape, rule, gates, extreme):
    # With β = 2 the state keeps its length; rounding grows with the number of positions.
    given = example(shape, gates=gates, normalize=shape[3] != 15, extreme=extreme)
    exact = [None if x is None else x.detach().double().requires_grad_() for x in given]
    options = {"rule": rule, "normalize": shape[3] != 15}
    expected = results(lambda *x: by_definition(*x, **options), exact)
    for name in kernels:
        found = results(lambda *x, n=name: torch.ops.attn.recurrent_attention(*x, implementation=n, **options), given)
        expect_close(found, expected, 2e-5)


@pytest.mark.parametrize(("rule", "gates"), [("delta", "gb"), ("delta", "fb"), ("add", "g"), ("add", "f")])
def test_half_precision_agrees_with_the_definition(kernels, rule, gates):
    given = example((1, 2, 4, 100, 32, 48), gates=gates, dtype=torch.bfloat16)
    exact = [None if x is None else x.detach().double().requires_grad_() for x in given]
    expected = results(lambda *x: by_definition(*x, rule=rule, normalize=True), exact)
    for name in kernels:
        found = results(
            lambda *x, n=name: torch.ops.attn.recurrent_attention(*x, rule=rule, normalize=True, implementation=n), given
        )
        assert found[0].dtype == torch.bfloat16 and found[1].dtype == torch.float32
        expect_close(found, expected, 2e-2)


@pytest.mark.parametrize("implementation", ["portable", "composed"])
@pytest.mark.parametrize(("rule", "gates"), [("delta", "gb"), ("delta", "fb"), ("delta", ""), ("add", "g"), ("add", "f")])
def test_gradcheck(rule, gates, implementation):
    given = example((1, 1, 2, 20, 3, 4), gates=gates, dtype=torch.float64)
    given[2] = given[2].detach().div(10).requires_grad_()
    present = [x for x in given if x is not None]

    def run(*tensors):
        rest = iter(tensors)
        return torch.ops.attn.recurrent_attention(
            *(None if x is None else next(rest) for x in given), rule=rule, normalize=True, implementation=implementation
        )

    assert torch.autograd.gradcheck(run, present, fast_mode=True)


@pytest.mark.parametrize("gates", ["gb", "fb"])
def test_packed_sequences_are_the_sequences_alone(kernels, gates):
    lengths = [1, 16, 1, 300, 0, 33]
    borders = torch.tensor([0, *itertools.accumulate(lengths)])
    q, k, v, g, beta, _ = example((1, 2, 4, sum(lengths), 16, 24), gates=gates, state=False)
    states = torch.randn(len(lengths), 4, 16, 24, generator=torch.Generator().manual_seed(2)).requires_grad_()
    for name in kernels:
        packed = results(
            lambda *x, n=name: torch.ops.attn.recurrent_attention(*x, borders, normalize=True, implementation=n),
            [q, k, v, g, beta, states],
        )

        def alone(q, k, v, g, beta, states, n=name):
            parts = []
            for i, (a, b) in enumerate(itertools.pairwise(borders)):
                cut = [x[:, :, a:b] for x in (q, k, v, g, beta)]
                parts.append(torch.ops.attn.recurrent_attention(*cut, states[i : i + 1], normalize=True, implementation=n))
            return torch.cat([o for o, _ in parts], 2), torch.cat([s for _, s in parts])

        expect_close(packed, results(alone, [q, k, v, g, beta, states]), 1e-5)


@pytest.mark.parametrize("gates", ["gb", "fb"])
def test_a_nan_reaches_no_row_before_it_and_no_other_head_sequence_or_column(kernels, gates):
    borders = torch.tensor([0, 40, 80])
    clean = [x.detach() for x in example((1, 2, 2, 80, 16, 16), gates=gates, state=False)[:5]]
    for name, place in itertools.product(kernels[:-1], range(5)):
        given = [x.clone() for x in clean]
        given[place][(0, 0, 21, 3)[: given[place].dim()]] = float("nan")
        output, _ = torch.ops.attn.recurrent_attention(*given, None, borders, normalize=True, implementation=name)
        wrong = output.isnan()
        assert not wrong[0, 1].any() and not wrong[0, 0, :21].any() and not wrong[0, 0, 40:].any()
        assert wrong[0, 0, 21].any() and (place == 0 or wrong[0, 0, 39].any())
        if place == 0:
            assert not wrong[0, 0, 22:].any()
        if place == 2:
            assert not wrong[..., [c for c in range(16) if c != 3]].any()


@pytest.mark.parametrize("gates", ["gb", "fb"])
def test_a_state_carried_over_pieces_gives_the_same_as_one_pass(kernels, gates):
    given = [x.detach() for x in example((1, 2, 4, 130, 16, 24), gates=gates)]
    for name in kernels:
        output, final = torch.ops.attn.recurrent_attention(*given, normalize=True, implementation=name)
        state, outputs = given[5], []
        for cut in torch.arange(130).tensor_split(10):
            piece = [x[:, :, cut[0] : cut[-1] + 1] for x in given[:5]]
            part, state = torch.ops.attn.recurrent_attention(*piece, state, normalize=True, implementation=name)
            outputs.append(part)
        expect_close([torch.cat(outputs, 2), state], [output.double(), final.double()], 1e-5)


@pytest.mark.parametrize("gates", ["gb", "fb"])
@pytest.mark.parametrize("rule", ["delta", "add"])
def test_steps_agree_with_the_rows_of_a_sequence(kernels, rule, gates):
    q, k, v, g, beta, state = (x.detach() for x in example((2, 2, 4, 40, 19, 37), gates=gates))
    beta = beta if rule == "delta" else None
    options = {"rule": rule, "normalize": True}
    for name in kernels:
        expected, final = torch.ops.attn.recurrent_attention(q, k, v, g, beta, state, implementation=name, **options)
        mine, rows = state.clone(), []
        for t in range(q.shape[2]):
            token = [None if x is None else x[:, :, t : t + 1] for x in (q, k, v)]
            gates = [None if x is None else x[:, :, t : t + 1] for x in (g, beta)]
            rows.append(torch.ops.attn.recurrent_attention_step(*token, mine, *gates, implementation=name, **options))
        expect_close([torch.cat(rows, 2), mine], [expected.double(), final.double()], 1e-5)


@pytest.mark.parametrize("features", [(), (16,)])
def test_a_long_sequence_with_slow_decay_does_not_drift(features):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, 65536, 16, generator=generator) for _ in range(3))
    g = torch.full((1, 1, 65536, *features), -1e-5)
    beta = torch.rand(1, 1, 65536, generator=generator)
    found, _ = torch.ops.attn.recurrent_attention(q, k, v, g, beta, normalize=True)
    exact, _ = torch.ops.attn.recurrent_attention(
        q.double(), k.double(), v.double(), g.double(), beta.double(), normalize=True, implementation="portable"
    )
    expect_close([found[:, :, -1000:]], [exact[:, :, -1000:]], 2e-5)


def test_the_same_call_gives_the_same_bits():
    given = example((2, 2, 4, 70, 16, 16))
    first, second = (
        results(lambda *x: torch.ops.attn.recurrent_attention(*x, normalize=True), given) for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("gates", ["", "g", "f", "b", "gb", "fb"])
def test_the_end_state_is_that_of_the_whole_pass(kernels, gates, dtype):
    """_recurrent_end_state computes no outputs. Lengths of a few positions, of parts of a chunk and of several chunks."""
    rule = "delta" if "b" in gates else "add"
    for length, state, extreme in itertools.product((1, 5, 16, 61), (False, True), (False, True)):
        given = example((2, 2, 4, length, 20, 12), gates=gates, state=state, dtype=dtype, extreme=extreme)
        with torch.no_grad():
            q, k, v, *others = (None if x is None else x.detach() for x in given)
            for name in kernels:
                try:
                    _, expected = torch.ops.attn.recurrent_attention(
                        q, k, v, *others, rule=rule, normalize=True, implementation=name
                    )
                except ValueError:  # The vector kernels do not compute in float64.
                    continue
                found = torch.ops.attn._recurrent_end_state(k, v, *others, rule, True, name)
                torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6 * float(expected.abs().max()))


# ---------------------------------------------------------------- registrations


@pytest.mark.parametrize("gates", ["gb", "fb"])
@pytest.mark.parametrize("layout", ["heads first", "time first"])
@pytest.mark.parametrize("implementation", ["auto", "composed"])
def test_opcheck(implementation, layout, gates):
    given = example((2, 1, 2, 20, 4, 3), gates=gates)
    if layout == "time first":
        given[:4] = [x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in given[:4]]
    for operator in (torch.ops.attn.recurrent_attention, torch.ops.attn._recurrent_attention):
        torch.library.opcheck(operator.default, given, {"normalize": True, "implementation": implementation})
    detached = [x.detach() for x in given]
    with torch.no_grad():
        output, state, checkpoints = torch.ops.attn._recurrent_attention(*detached, implementation=implementation)
        torch.library.opcheck(
            torch.ops.attn._recurrent_attention_backward.default,
            (checkpoints, torch.ones_like(output), torch.ones_like(state), *detached),
            {"implementation": implementation},
        )
        q, k, v, *others = detached
        torch.library.opcheck(torch.ops.attn._recurrent_end_state.default, (k, v, *others), {"implementation": implementation})


@pytest.mark.parametrize("gates", ["gb", "fb"])
def test_opcheck_of_the_step(gates):
    q, k, v, g, beta, state = (x.detach() for x in example((2, 1, 2, 1, 4, 3), gates=gates))
    torch.library.opcheck(torch.ops.attn.recurrent_attention_step.default, (q, k, v, state.clone(), g, beta))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles(dynamic):
    torch._dynamo.reset()
    operator = torch.ops.attn.recurrent_attention
    compiled = torch.compile(lambda *x: operator(*x, normalize=True), fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for length in (20, 300):
        given = example((1, 2, 2, length, 4, 3))
        for found, expected in zip(results(compiled, given), results(lambda *x: operator(*x, normalize=True), given), strict=True):
            torch.testing.assert_close(found, expected)


def test_autocast_changes_nothing():
    given = example((1, 2, 2, 40, 8, 8))
    expect_unchanged_by_autocast(lambda: results(torch.ops.attn.recurrent_attention, given))


def test_a_second_derivative_is_refused():
    q, *rest = example((1, 1, 1, 5, 4, 4))
    output, _ = torch.ops.attn.recurrent_attention(q, *rest)
    (gradient,) = torch.autograd.grad(output.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="_recurrent_attention_backward"):
        gradient.sum().backward()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q": torch.zeros(3, 4)}, r"q has shape \[3, 4\], expected \[batch, heads, length, dim\]"),
        ({"k": torch.zeros(2, 2, 9, 5)}, "k has dim 5, expected 4 as in q"),
        ({"v": torch.zeros(2, 3, 9, 4)}, "v has heads 3, expected a multiple of those of q, 2"),
        ({"g": torch.zeros(2, 4, 9).double()}, "g is float64, expected float32 beside q in float32"),
        ({"g": torch.zeros(2, 2, 9)}, "g has heads 2, expected 4 as in v"),
        ({"g": torch.zeros(2, 4, 9, 3)}, "g has dim 3, expected 4 as in q"),
        ({"g": torch.zeros(2, 4)}, r"g has shape \[2, 4\], expected \[batch, heads, length\] or, with a decay for each feature, "),
        ({"beta": torch.zeros(2, 4, 8)}, "beta has length 8, expected 9 as in q"),
        ({"rule": "add"}, "beta is an argument of the rule 'delta' alone"),
        ({"rule": "sum"}, "rule = 'sum', expected 'delta' or 'add'"),
        ({"initial_state": torch.zeros(2, 4, 4, 5)}, r"initial_state is Float \[2, 4, 4, 5\]"),
        ({"cu_seqlens": torch.tensor([0, 9])}, "q has batch 2, expected 1 beside cu_seqlens"),
    ],
)
def test_wrong_arguments_are_errors_that_name_them(changed, message):
    names = ("q", "k", "v", "g", "beta", "initial_state")
    given = dict(zip(names, (x.detach() for x in example((2, 2, 4, 9, 4, 3))), strict=True)) | changed
    with pytest.raises(ValueError, match="recurrent_attention: " + message):
        torch.ops.attn.recurrent_attention(**given)


@pytest.mark.parametrize(
    ("borders", "message"), [([0, 5, 8], "goes from 0 to 8, expected 0 to 9"), ([0, 6, 3, 9], "falls from 6 to 3")]
)
def test_wrong_borders_of_packed_sequences_are_errors(borders, message):
    q, k, v, *_ = example((1, 1, 1, 9, 4, 3))
    with pytest.raises(ValueError, match=message):
        torch.ops.attn.recurrent_attention(q, k, v, cu_seqlens=torch.tensor(borders))


# ---------------------------------------------------------------- attnbench.recurrent


def time_first(*tensors):
    return [x if x is None else x.detach().transpose(1, 2).contiguous().requires_grad_() for x in tensors]


@pytest.mark.parametrize("name", ["chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule"])
def test_the_gated_delta_rule_computes_its_gates_inside(recurrent, name):
    q, k, v, raw, logits, state = example((2, 2, 4, 40, 16, 8))
    A_log, dt_bias = (torch.randn(4, generator=torch.Generator().manual_seed(i)).requires_grad_() for i in range(2))
    given = [*time_first(q, k, v, raw, logits), state, A_log, dt_bias]

    def mine(q, k, v, raw, logits, state, A_log, dt_bias):
        return getattr(recurrent, name)(
            q, k, v, g=raw, beta=logits, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True,
            use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True, use_gate_in_kernel=True, A_log=A_log, dt_bias=dt_bias,
        )  # fmt: skip

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


def test_a_decay_of_minus_infinity_clears_its_feature_and_has_no_gradient(kernels):
    q, k, v, g, beta, state = example((1, 1, 1, 20, 16, 8), gates="fb")
    g.data[:, :, 18, 5] = -float("inf")
    for name in kernels:
        found = results(
            lambda *x, n=name: torch.ops.attn.recurrent_attention(*x, normalize=True, implementation=n), [q, k, v, g, beta, state]
        )
        assert found[5][0, 0, 18, 5] == 0 and (found[5][0, 0, 18, :5] != 0).any() and (found[5][0, 0, 19] != 0).any()
        # Without a key that writes the feature again, its row of the state stays zero.
        silent = k.detach().clone()
        silent[:, :, 18:, 5] = 0
        final = torch.ops.attn.recurrent_attention(q, silent, v, g, beta, state, normalize=True, implementation=name)[1]
        assert (final[0, 0, 5] == 0).all() and (final[0, 0, 4] != 0).all()


@pytest.mark.parametrize("strongest", [-4.999, -5.2, -20.0, -60.0])
def test_strong_decays_of_features_keep_their_digits(kernels, strongest):
    # At -5, the bound of Kimi Delta Attention, factors of scores are largest; beyond it they could overflow.
    given = example((1, 1, 2, 64, 32, 16), gates="fb")
    given[3] = (strongest * torch.rand(1, 2, 64, 32, generator=torch.Generator().manual_seed(0)) ** 0.01).requires_grad_()
    exact = [x.detach().double().requires_grad_() for x in given]
    expected = results(lambda *x: by_definition(*x, normalize=True), exact)
    # The gradient of g is much smaller than the terms that it is the difference of in the composed form.
    for name in kernels if strongest > -10 else kernels[:-1]:
        found = results(lambda *x, n=name: torch.ops.attn.recurrent_attention(*x, normalize=True, implementation=n), given)
        expect_close(found, expected, 1e-4 if name == "composed" else 1e-5)


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
