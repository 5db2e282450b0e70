"""Tests of attn::recurrent_attention: results, gradients and states against the definition in float64, torch.compile, and what is refused."""

import itertools

import pytest
import torch
from conftest import expect_unchanged_by_autocast, kernels_of
from recurrent_cases import by_definition, example, expect_close, results


pytestmark = pytest.mark.usefixtures("operators")


@pytest.fixture(scope="module")
def kernels():
    return kernels_of(lambda name: torch.ops.attn.recurrent_attention(*[torch.zeros(1, 1, 1, 1)] * 3, implementation=name))


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
        ({"v": torch.zeros(2, 0, 9, 4), "g": None, "beta": None}, "v has heads 0, expected a multiple of those of q, 2"),
        ({"cu_seqlens": torch.zeros(3, dtype=torch.long, device="meta")}, "cu_seqlens is on meta, expected cpu"),
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


@pytest.mark.parametrize("gates", ["g", "f"])
def test_decays_after_a_very_strong_one_keep_their_digits(kernels, gates):
    given = example((1, 1, 2, 40, 8, 8), gates=gates + "b")
    given[3].data[:, :, 7] = -1e9
    exact = [x.detach().double().requires_grad_() for x in given]
    expected = results(lambda *x: by_definition(*x, normalize=True), exact)
    for name in kernels:
        found = results(lambda *x, n=name: torch.ops.attn.recurrent_attention(*x, normalize=True, implementation=n), given)
        expect_close(found, expected, 2e-5)


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
