"""Tests of Mamba2: against the same layer written by hand, that of transformers, decoding, packed
sequences, compilation, and what is refused."""

import itertools

import pytest
import torch
from torch.nn import functional as F


@pytest.fixture(scope="module", autouse=True)
def modules(build):  # noqa: ARG001
    from attnbench import nn as modules

    torch.set_num_threads(1)  # Several threads would be slower on tensors this small.
    return modules


WIDTH = 12
OPTIONS = [
    {"heads": 3, "state_dim": 5},
    {"heads": 4, "head_dim": 7, "state_dim": 6, "groups": 2, "bias": True, "conv_bias": False},
    {"heads": 6, "state_dim": 16, "groups": 3, "conv_width": 2, "dt_limit": (0.01, 0.3)},
]


def seeded(modules, options, dtype=torch.float32):
    torch.manual_seed(7)
    layer = modules.Mamba2(WIDTH, **options).to(dtype)
    with torch.no_grad():
        for parameter in (layer.norm.weight, layer.D):
            parameter.add_(torch.randn(parameter.shape) / 4)
        layer.dt_bias.add_(3)  # so long steps that the state matters
    return layer


def sequences(batch=2, length=9, dtype=torch.float32):
    return torch.randn(batch, length, WIDTH, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()


def by_hand(layer, x):
    """What the layer computes, token by token."""
    H, G, N, W = layer.heads, layer.groups, layer.state_dim, layer.conv1d.weight.shape[2]
    batch, length, _ = x.shape
    inner = H * layer.head_dim
    z, mixed, dt = layer.in_proj(x).split([inner, inner + 2 * G * N, H], 2)
    padded = F.pad(mixed, (0, 0, W - 1, 0))
    u = sum(padded[:, i : i + length] * layer.conv1d.weight[:, 0, i] for i in range(W))
    u = F.silu(u if layer.conv1d.bias is None else u + layer.conv1d.bias)
    values, B, C = u.split([inner, G * N, G * N], 2)
    values = values.view(batch, length, H, -1)
    B, C = (y.view(batch, length, G, N).repeat_interleave(H // G, 2) for y in (B, C))
    steps = F.softplus(dt + layer.dt_bias).clamp(*layer.dt_limit)
    state, rows = x.new_zeros(batch, H, layer.head_dim, N), []
    for t in range(length):
        decay = (-layer.A_log.exp() * steps[:, t]).exp()
        written = torch.einsum("bhp,bhn->bhpn", values[:, t] * steps[:, t, :, None], B[:, t])
        state = state * decay[:, :, None, None] + written
        rows.append(torch.einsum("bhpn,bhn->bhp", state, C[:, t]) + layer.D[:, None] * values[:, t])
    y = (torch.stack(rows, 1).flatten(2) * F.silu(z)).view(batch, length, G, -1)
    y = y / (y.square().mean(3, keepdim=True) + layer.norm.eps).sqrt()
    return layer.out_proj(y.flatten(2) * layer.norm.weight)


def expect_same_gradients(layer, found, of_found, exact, expected, of_expected):
    mine = torch.autograd.grad(found.square().sum(), [*layer.parameters(), of_found])
    theirs = torch.autograd.grad(expected.square().sum(), [*exact.parameters(), of_expected])
    own, others = ([name for name, _ in one.named_parameters()] + ["x"] for one in (layer, exact))
    others = dict(zip(others, theirs, strict=True))
    for name, a in zip(own, mine, strict=True):
        b = others[name]
        assert b.any(), name
        torch.testing.assert_close(
            a.double(), b.double(), rtol=1e-3, atol=1e-3 * float(b.abs().max()), msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("options", OPTIONS)
def test_the_layer_agrees_with_the_same_layer_written_by_hand(modules, options):
    layer, exact = seeded(modules, options), seeded(modules, options).double()
    x, wide = sequences(length=40), sequences(length=40, dtype=torch.float64)
    found, expected = layer(x), by_hand(exact, wide)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    expect_same_gradients(layer, found, x, exact, expected, wide)
    torch.testing.assert_close(exact(wide), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("groups", [1, 2])
def test_the_weights_of_transformers_fit_and_give_its_outputs_and_gradients(modules, groups):
    mamba2 = pytest.importorskip("transformers.models.mamba2.modeling_mamba2")
    config = mamba2.Mamba2Config(
        hidden_size=WIDTH, num_heads=4, head_dim=6, state_size=5, n_groups=groups, expand=2, num_hidden_layers=1, chunk_size=8,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = mamba2.Mamba2Mixer(config, 0)
    mine = modules.Mamba2(WIDTH, 4, head_dim=6, state_dim=5, groups=groups)
    mine.load_state_dict(theirs.state_dict())
    x, y = sequences(length=30), sequences(length=30)
    found, expected = mine(x), theirs(y)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    expect_same_gradients(mine, found, x, theirs, expected, y)


def test_a_new_layer_begins_as_that_of_transformers(modules):
    layer = modules.Mamba2(WIDTH, 6)
    assert layer.head_dim == 4
    torch.testing.assert_close(layer.A_log.exp(), torch.arange(1.0, 7))
    steps = F.softplus(layer.dt_bias)
    assert (steps > 0.0009).all() and (steps < 0.11).all() and (layer.D == 1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", OPTIONS)
def test_tokens_and_pieces_through_a_cache_give_the_rows_of_one_pass(modules, options, dtype):
    layer, x = seeded(modules, options, dtype), sequences(length=24, dtype=dtype)
    expected = layer(x).detach()
    for lengths in ([1] * 24, [10, 1, 1, 2, 9, 1]):
        cache = layer.empty_cache(batch=2)
        rows = [layer(piece, cache) for piece in x.split(lengths, 1)]
        torch.testing.assert_close(torch.cat(rows, 1).detach(), expected, rtol=1e-4, atol=1e-5)
        assert not rows[-1].requires_grad
        assert not cache.state.requires_grad and cache.state.any() and cache.conv.any()


def test_packed_sequences_are_the_sequences_alone(modules):
    layer, x = seeded(modules, OPTIONS[1]), sequences(batch=1, length=30)
    borders = torch.tensor([0, 2, 13, 30])
    expected = torch.cat([layer(x[:, a:b]) for a, b in itertools.pairwise(borders.tolist())], 1)
    torch.testing.assert_close(layer(x, cu_seqlens=borders), expected, rtol=1e-4, atol=1e-5)
    cache, alone = layer.empty_cache(batch=3), layer.empty_cache(batch=1)
    torch.testing.assert_close(layer(x, cache, cu_seqlens=borders), expected, rtol=1e-4, atol=1e-5)
    layer(x[:, 13:], alone)
    for mine, theirs in zip(cache, alone, strict=True):
        torch.testing.assert_close(mine[2:], theirs, rtol=1e-4, atol=1e-5)


def test_half_precision(modules):
    layer, x = seeded(modules, OPTIONS[0], torch.bfloat16), sequences(length=20, dtype=torch.bfloat16)
    found = layer(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), seeded(modules, OPTIONS[0])(x.float()), rtol=0.1, atol=0.05)
    cache = layer.empty_cache(2)
    assert cache.conv.dtype == torch.bfloat16 and cache.state.dtype == torch.float32
    rows = [layer(x[:, t : t + 1], cache) for t in range(20)]
    torch.testing.assert_close(torch.cat(rows, 1).float(), found.float(), rtol=0.1, atol=0.05)


def test_the_layer_compiles(modules):
    torch._dynamo.reset()
    layer, x = seeded(modules, OPTIONS[1]), sequences()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x))
    for mine, theirs in zip(
        torch.autograd.grad(compiled(x).sum(), list(layer.parameters())),
        torch.autograd.grad(layer(x).sum(), list(layer.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 5}, "2 · width = 24, expected a multiple of heads = 5, or head_dim"),
        ({"heads": 3, "groups": 2}, "heads = 3, expected a multiple of groups = 2"),
        ({"heads": 2, "state_dim": 0}, "state_dim = 0, expected at least 1"),
    ],
)
def test_wrong_options_are_errors_that_name_them(modules, options, message):
    with pytest.raises(ValueError, match=message):
        modules.Mamba2(WIDTH, **options)


def test_a_wrong_shape_is_an_error_that_says_the_expected_one(modules):
    with pytest.raises(ValueError, match=r"Mamba2: x has shape \[2, 9, 5\], expected \[batch, length, 12\]"):
        seeded(modules, OPTIONS[0])(torch.zeros(2, 9, 5))
