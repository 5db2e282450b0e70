"""Tests of attn::causal_convolution and of the functions of attnbench.convolution: results, gradients
and states against PyTorch's convolution in float64, decoding, torch.compile, and what is refused."""

import itertools

import pytest
import torch
from conftest import expect_unchanged_by_autocast, kernels_of
from recurrent_cases import results
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("operators")


@pytest.fixture(scope="module")
def convolution(build):  # noqa: ARG001
    from attnbench import convolution

    return convolution


@pytest.fixture(scope="module")
def kernels():
    return kernels_of(lambda name: torch.ops.attn.causal_convolution(torch.zeros(1, 1, 1), torch.zeros(1, 1), implementation=name))


def by_definition(x, weight, bias=None, state=None, silu=True):
    """PyTorch's convolution of one sequence for each batch entry, and the final state."""
    before = weight.shape[1] - 1
    history = x.new_zeros(*x.shape[:2], before) if state is None else state
    x = torch.cat([history, x], 2)
    # PyTorch refuses a sequence without positions.
    u = F.conv1d(x, weight.unsqueeze(1), bias, groups=x.shape[1]) if x.shape[2] > before else x[:, :, before:]
    return F.silu(u) if silu else u, x[:, :, x.shape[2] - before :]


LAYOUTS = ("positions", "channels", "wide rows", "every other")


def example(shape, layout="positions", *, bias=True, state=True, dtype=torch.float32, seed=0):
    """Tensors of one call, whose x is in this layout; `shape` is (batch, channels, length, width)."""
    generator = torch.Generator().manual_seed(seed)
    batch, channels, length, width = shape

    def normal(*sizes):
        return torch.randn(*sizes, generator=generator, dtype=torch.float64)

    # Channels of different sizes, and outliers.
    x = normal(batch, channels, length) * torch.linspace(0.1, 3, channels)[:, None] + 0.5
    x[:, :, ::7] *= 4
    x = x.to(dtype)
    if layout == "channels":
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    elif layout == "wide rows":  # a slice of a projection, as in Mamba-2
        x = torch.cat([x.transpose(1, 2)] * 2, 2)[:, :, channels:].transpose(1, 2)
    elif layout == "every other":
        x = x.repeat_interleave(2, 2)[:, :, ::2]
    given = [x, normal(channels, width).to(dtype), normal(channels).to(dtype) if bias else None]
    given.append(normal(batch, channels, width - 1).to(dtype) if state else None)
    return [None if t is None else t.detach().requires_grad_() for t in given]


def expect_close(found, expected, tolerance):
    for index, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.shape == b.shape and torch.isfinite(a).all(), index
        if a.numel():
            difference = (a.double() - b).abs().amax() / b.abs().amax().clamp_min(1e-30)
            assert difference <= tolerance, (index, difference)


def exact(given):
    return [None if x is None else x.detach().double().requires_grad_() for x in given]


def operator(name, **options):
    """The operator as a function of the tensors of `example`."""
    return lambda *x: torch.ops.attn.causal_convolution(*x, implementation=name, **options)


SHAPES = [(2, 5, 9, 4), (1, 70, 2, 4), (2, 67, 40, 4), (1, 17, 1100, 4), (1, 33, 600, 3), (2, 9, 31, 2), (1, 20, 19, 7), (1, 8, 5, 1), (1, 1, 30, 4)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_agree_with_the_definition(kernels, shape, layout):
    for bias, state, silu in [(True, True, True), (False, False, True), (True, False, False)]:
        given = example(shape, layout, bias=bias, state=state)
        expected = results(lambda *x, s=silu: by_definition(*x, silu=s), exact(given))
        for name in kernels:
            found = results(operator(name, silu=silu), given)
            expect_close(found, expected, 1e-5)
            assert layout != "channels" or shape[1] == 1 or found[0].stride(1) == found[2].stride(1) == 1


@pytest.mark.parametrize("layout", ["positions", "channels"])
def test_half_precision_agrees_with_the_definition(kernels, layout):
    given = example((2, 37, 100, 4), layout, dtype=torch.bfloat16)
    expected = results(by_definition, exact(given))
    for name in kernels:
        found = results(operator(name, silu=True), given)
        assert {x.dtype for x in found} == {torch.bfloat16}
        expect_close(found, expected, 1e-2)
    # Weights may be wider than x, as where a model keeps them in float32.
    wide = [given[0], given[1].detach().float().requires_grad_(), given[2].detach().float().requires_grad_(), given[3]]
    for name in kernels:
        found = results(operator(name, silu=True), wide)
        assert found[0].dtype == torch.bfloat16 and found[3].dtype == torch.float32
        expect_close(found, expected, 1e-2)


@pytest.mark.parametrize("implementation", ["portable", "composed"])
@pytest.mark.parametrize("layout", ["positions", "channels"])
def test_gradcheck(layout, implementation):
    given = example((2, 3, 6, 4), layout, dtype=torch.float64)
    assert torch.autograd.gradcheck(operator(implementation, silu=True), given, fast_mode=True)


@pytest.mark.parametrize("layout", ["positions", "channels"])
def test_packed_sequences_are_the_sequences_alone(kernels, layout):
    lengths = [1, 16, 2, 600, 0, 33]
    borders = torch.tensor([0, *itertools.accumulate(lengths)])
    x, weight, bias, _ = example((1, 21, sum(lengths), 4), layout)
    states = torch.randn(len(lengths), 21, 3, generator=torch.Generator().manual_seed(2)).requires_grad_()

    def alone(x, weight, bias, states):
        parts = [by_definition(x[:, :, a:b], weight, bias, states[i : i + 1]) for i, (a, b) in enumerate(itertools.pairwise(borders))]
        return torch.cat([o for o, _ in parts], 2), torch.cat([s for _, s in parts])

    given = [x, weight, bias, states]
    expected = results(alone, exact(given))
    for name in kernels:
        expect_close(results(operator(name, cu_seqlens=borders, silu=True), given), expected, 1e-5)


@pytest.mark.parametrize("layout", ["positions", "channels"])
def test_numbers_of_sequences_separate_them_and_negative_ones_hide_positions(kernels, layout):
    x, weight, bias, _ = example((2, 21, 40, 4), layout, state=False)
    numbers = torch.tensor([[0] * 10 + [1] * 30, [-1] * 5 + [7] * 2 + [8] * 23 + [-1] * 10], dtype=torch.int32)
    pieces = [[(0, 10), (10, 40)], [(5, 7), (7, 30)]]

    def alone(x, weight, bias):
        output = x.new_zeros(x.shape)
        for entry, of_entry in enumerate(pieces):
            for a, b in of_entry:
                output[entry, :, a:b] = by_definition(x[entry : entry + 1, :, a:b], weight, bias)[0][0]
        return output, output[:0]

    given = [x, weight, bias]
    expected = results(alone, exact(given))
    for name in kernels:

        def mine(*tensors, n=name):
            output, _ = operator(n, silu=True)(*tensors, None, None, numbers)
            return output, output[:0]

        expect_close(results(mine, given), expected, 1e-5)


def test_a_nan_reaches_only_the_positions_that_read_it(kernels):
    for name, layout in itertools.product(kernels, ("positions", "channels")):
        x, weight, bias, state = (t.detach() for t in example((1, 19, 600, 4), layout))
        x[0, 3, 510] = float("nan")
        wrong = operator(name, silu=True)(x, weight, bias, state)[0].isnan()
        assert wrong[0, 3, 510:514].all() and wrong.sum() == 4


def test_large_inputs_give_the_limits_of_silu(kernels):
    x = torch.tensor([[[-1e4, -200.0, -90.0, 90.0, 1e4]]])
    for name in kernels:
        found, _ = torch.ops.attn.causal_convolution(x, torch.ones(1, 1), silu=True, implementation=name)
        torch.testing.assert_close(found, torch.tensor([[[0, 0, 0, 90.0, 1e4]]]), atol=1e-30, rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 150, 600, 4), (1, 3, 20_000, 4), (1, 70, 5_003, 7)])
def test_more_threads_give_the_same_bits(shape):
    # So many elements that they are divided among threads; the sequences of few channels are divided, too.
    for layout in ("positions", "channels"):
        given, found = example(shape, layout), []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(results(operator("auto", silu=True), given))
        torch.set_num_threads(1)
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_sequences_that_are_divided_among_threads_stay_apart(dtype):
    borders = torch.tensor([0, 1, 9_000, 9_700, 9_700, 30_000])
    for layout in ("positions", "channels"):
        given = example((1, 3, 30_000, 4), layout, state=False, dtype=dtype)[:3] + [torch.ones(5, 3, 3, dtype=dtype)]
        found = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found += [operator("auto", cu_seqlens=borders)(*given)]
        torch.set_num_threads(1)
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


# ---------------------------------------------------------------- decoding


@pytest.mark.parametrize("size", [3, 4, 7])
@pytest.mark.parametrize("ring", [False, True])
def test_steps_agree_with_whole_sequences(kernels, convolution, size, ring):
    x, weight, bias, _ = (None if t is None else t.detach() for t in example((3, 19, 24, 4), "channels", state=False))
    expected, final = by_definition(x.double(), weight.double(), bias.double())
    rows = torch.tensor([4, 1, 0], dtype=torch.int32)
    for name in kernels:
        state, outputs, t = torch.zeros(5, 19, size), [], 0
        for count in [1, 1, 2, 1, 5, 1, 8, 1, 3, 1]:
            seen = torch.full((3,), t, dtype=torch.int32) if ring else None
            piece = x[:, :, t : t + count]
            outputs.append(
                convolution.causal_conv1d_update(piece, state, weight, bias, "silu", seen, rows, implementation=name)
            )
            t += count
        last = [(24 - 3 + j) % size if ring else size - 3 + j for j in range(3)]
        expect_close([torch.cat(outputs, 2), state[rows][:, :, last]], [expected, final], 1e-5)
        assert not state[[2, 3]].any()


def test_a_step_of_one_token_and_rows_that_belong_to_no_sequence(kernels, convolution):
    x, weight, _, _ = (None if t is None else t.detach() for t in example((2, 8, 1, 4), bias=False, state=False))
    before = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(1))
    expected, _ = by_definition(x, weight, None, before[:, :, 1:], silu=False)
    for name in kernels:
        state = before.clone()
        found = convolution.causal_conv1d_update(x[:, :, 0], state, weight, implementation=name)
        torch.testing.assert_close(found, expected[:, :, 0])
        assert torch.equal(state, torch.cat([before[:, :, 1:], x], 2))
        state = before.clone()
        found = convolution.causal_conv1d_update(
            x, state, weight, conv_state_indices=torch.tensor([-1, 1]), implementation=name
        )
        torch.testing.assert_close(found[1], expected[1])
        assert not found[0].any() and torch.equal(state[0], before[0]) and not torch.equal(state[1], before[1])


# ---------------------------------------------------------------- registrations


@pytest.mark.parametrize("layout", ["positions", "channels"])
@pytest.mark.parametrize("implementation", ["auto", "composed"])
def test_opcheck(implementation, layout):
    given = example((2, 5, 7, 4), layout)
    options = {"silu": True, "implementation": implementation}
    torch.library.opcheck(torch.ops.attn.causal_convolution.default, given, options)
    detached = [x.detach() for x in given]
    output, state = torch.ops.attn.causal_convolution(*detached, **options)
    backward = torch.ops.attn._causal_convolution_backward.default
    torch.library.opcheck(backward, (torch.ones_like(output), torch.ones_like(state), *detached), options)
    step = torch.ops.attn.causal_convolution_step.default
    torch.library.opcheck(step, (detached[0], torch.zeros(2, 5, 4), *detached[1:3]), options)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles(dynamic):
    torch._dynamo.reset()
    function = operator("auto", silu=True)
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for length in (20, 30):
        given = example((2, 12, length, 4), "channels")
        for found, expected in zip(results(compiled, given), results(function, given), strict=True):
            torch.testing.assert_close(found, expected)


def test_autocast_changes_nothing():
    given = example((1, 12, 20, 4))
    expect_unchanged_by_autocast(lambda: results(torch.ops.attn.causal_convolution, given))


def test_a_second_derivative_is_refused():
    x, *rest = example((1, 3, 5, 4))
    output, _ = torch.ops.attn.causal_convolution(x, *rest)
    (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="_causal_convolution_backward"):
        gradient.sum().backward()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": torch.zeros(3, 4)}, r"x has shape \[3, 4\], expected \[batch, dim, length\]"),
        ({"weight": torch.zeros(5, 1, 4)}, r"weight is Float \[5, 1, 4\], expected a floating dtype and \[channels, width\]"),
        ({"weight": torch.zeros(6, 4)}, r"weight is Float \[6, 4\] on cpu, expected Float \[5, 4\]"),
        ({"bias": torch.zeros(4)}, r"bias is Float \[4\] on cpu, expected Float \[5\]"),
        ({"bias": torch.zeros(5).double()}, "bias is Double"),
        ({"initial_state": torch.zeros(2, 5, 4)}, r"initial_state is Float \[2, 5, 4\] on cpu, expected Float \[2, 5, 3\]"),
        ({"cu_seqlens": torch.tensor([0, 9])}, "x has batch 2, expected 1 beside cu_seqlens"),
        ({"seq_idx": torch.zeros(2, 9).int()}, "seq_idx does not go with initial_state or cu_seqlens"),
        ({"seq_idx": torch.zeros(2, 8).int(), "initial_state": None}, r"seq_idx is Int \[2, 8\] on cpu, expected Int \[2, 9\]"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_errors_that_name_them(changed, message):
    names = ("x", "weight", "bias", "initial_state")
    given = dict(zip(names, (x.detach() for x in example((2, 5, 9, 4))), strict=True)) | changed
    with pytest.raises(ValueError, match="causal_convolution: " + message):
        torch.ops.attn.causal_convolution(**given)


def test_wrong_borders_and_rows_are_errors(convolution):
    x, weight, _, _ = (t.detach() for t in example((1, 3, 9, 4)))
    for borders, message in [([0, 5, 8], "goes from 0 to 8, expected 0 to 9"), ([0, 6, 3, 9], "falls from 6 to 3")]:
        with pytest.raises(ValueError, match=message):
            convolution.causal_conv1d_fn(x, weight, cu_seqlens=torch.tensor(borders))
    state = torch.zeros(2, 3, 3)
    with pytest.raises(ValueError, match="state_indices contains 2, but state has 2 rows"):
        convolution.causal_conv1d_update(torch.cat([x, x]), state, weight, conv_state_indices=torch.tensor([0, 2]))
    assert not state.any(), "an earlier row of the state has changed"
    with pytest.raises(ValueError, match="expected 3 axes with the last at least 3, the width less 1"):
        convolution.causal_conv1d_update(x, torch.zeros(1, 3, 2), weight)
    with pytest.raises(ValueError, match="avx2 does not compute width 33, only up to 32|avx2 needs|avx2"):
        torch.ops.attn.causal_convolution(x, torch.zeros(3, 33), implementation="avx2")
    torch.ops.attn.causal_convolution(x, torch.zeros(3, 33))  # composed


# ---------------------------------------------------------------- attnbench.convolution


def test_the_function_of_models(convolution):
    x, weight, bias, state = example((2, 8, 12, 4), "channels")
    expected, final = by_definition(x, weight, bias, state)
    for activation in ("silu", "swish"):
        found, mine = convolution.causal_conv1d_fn(
            x, weight, bias, initial_states=state, return_final_states=True, activation=activation
        )
        torch.testing.assert_close(found, expected)
        assert torch.equal(mine, final)
    out = torch.zeros(2, 8, 3)
    with torch.no_grad():
        _, same = convolution.causal_conv1d_fn(x, weight, return_final_states=True, final_states_out=out)
    assert same is out and torch.equal(out, x[:, :, -3:])
    plain = convolution.causal_conv1d_fn(x, weight)
    torch.testing.assert_close(plain, by_definition(x, weight, silu=False)[0])
    numbers = torch.zeros(2, 12, dtype=torch.int64)
    torch.testing.assert_close(convolution.causal_conv1d_fn(x, weight, seq_idx=numbers), plain)
    with pytest.raises(ValueError, match="activation = 'relu', expected None, 'silu' or 'swish'"):
        convolution.causal_conv1d_fn(x, weight, activation="relu")
    with pytest.raises(ValueError, match="seq_idx does not go with return_final_states"):
        convolution.causal_conv1d_fn(x, weight, seq_idx=numbers, return_final_states=True)
