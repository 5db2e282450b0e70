"""Tests of GatedDeltaNet: against the same layer written by hand, that of transformers, decoding,
packed sequences, training, compilation, and what is refused."""

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
OPTIONS = [{}, {"value_heads": 6, "head_dim": 5, "value_dim": 7}, {"value_heads": 3, "conv_width": 2}]


def seeded(modules, heads=3, dtype=torch.float32, **options):
    torch.manual_seed(7)
    layer = modules.GatedDeltaNet(WIDTH, heads, **options).to(dtype)
    with torch.no_grad():
        layer.norm.weight.add_(torch.randn(layer.value_dim) / 4)
        layer.A_log.sub_(2)  # so slow a decay that the state matters
    return layer


def sequences(batch=2, length=9, dtype=torch.float32):
    return torch.randn(batch, length, WIDTH, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()


def by_hand(layer, x):
    """What the layer computes, token by token."""
    heads, shared = layer.heads, layer.value_heads // layer.heads
    K, V, W = layer.head_dim, layer.value_dim, layer.conv1d.weight.shape[2]
    batch, length, _ = x.shape
    parts = layer.in_proj_qkvz(x).view(batch, length, heads, -1)
    b, a = (y.reshape(batch, length, -1) for y in layer.in_proj_ba(x).view(batch, length, heads, 2, shared).unbind(3))
    q, k, v, z = parts.split([K, K, shared * V, shared * V], 3)
    z = z.reshape(batch, length, heads * shared, V)
    mixed = F.pad(torch.cat([y.reshape(batch, length, -1) for y in (q, k, v)], 2), (0, 0, W - 1, 0))
    mixed = F.silu(sum(mixed[:, i : i + length] * layer.conv1d.weight[:, 0, i] for i in range(W)))
    q, k, v = mixed.split([heads * K, heads * K, heads * shared * V], 2)

    def unit(y):
        y = y.view(batch, length, heads, K)
        return (y / (y.square().sum(3, keepdim=True) + 1e-6).sqrt()).repeat_interleave(shared, 2)

    q, k, v = unit(q) * K**-0.5, unit(k), v.view(batch, length, heads * shared, V)
    decay, beta = (-layer.A_log.exp() * F.softplus(a + layer.dt_bias)).exp(), b.sigmoid()
    state, rows = x.new_zeros(batch, heads * shared, K, V), []
    for t in range(length):
        state = state * decay[:, t, :, None, None]
        known = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], beta[:, t, :, None] * (v[:, t] - known))
        rows.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    output = torch.stack(rows, 1)
    output = output / (output.square().mean(3, keepdim=True) + layer.norm.eps).sqrt() * layer.norm.weight * F.silu(z)
    return layer.out_proj(output.reshape(batch, length, -1))


@pytest.mark.parametrize("options", OPTIONS)
def test_the_layer_agrees_with_the_same_layer_written_by_hand(modules, options):
    layer, exact = seeded(modules, **options), seeded(modules, **options).double()
    found, expected = layer(sequences(length=40)), by_hand(exact, sequences(length=40, dtype=torch.float64))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    mine = torch.autograd.grad(found.square().sum(), list(layer.parameters()))
    theirs = torch.autograd.grad(expected.square().sum(), list(exact.parameters()))
    for (name, _), a, b in zip(layer.named_parameters(), mine, theirs, strict=True):
        assert b.any(), name
        torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-3 * float(b.abs().max()), msg=lambda m, n=name: f"{n}: {m}")


def test_the_weights_of_transformers_fit_and_give_its_outputs(modules):
    qwen = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    config = qwen.Qwen3NextConfig(
        hidden_size=WIDTH, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=6,
        linear_conv_kernel_dim=4, num_hidden_layers=1, layer_types=["linear_attention"],
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = qwen.Qwen3NextGatedDeltaNet(config, 0)
    mine = modules.GatedDeltaNet(WIDTH, 2, value_heads=4, head_dim=8, value_dim=6)
    mine.load_state_dict(theirs.state_dict())
    x = sequences(length=30)
    with torch.no_grad():
        torch.testing.assert_close(mine(x), theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", OPTIONS)
def test_tokens_and_pieces_through_a_cache_give_the_rows_of_one_pass(modules, options, dtype):
    layer, x = seeded(modules, dtype=dtype, **options), sequences(length=24, dtype=dtype)
    expected = layer(x).detach()
    for lengths in ([1] * 24, [10, 1, 1, 2, 9, 1]):
        cache = layer.empty_cache(batch=2)
        rows = [layer(piece, cache) for piece in x.split(lengths, 1)]
        torch.testing.assert_close(torch.cat(rows, 1).detach(), expected, rtol=1e-4, atol=1e-5)
        assert not rows[-1].requires_grad
        assert not cache.state.requires_grad and cache.state.any() and cache.conv.any()


def test_gradients_reach_a_piece_behind_a_cache(modules):
    layer, x = seeded(modules), sequences(length=12)
    cache = layer.empty_cache(batch=2)
    layer(x[:, :6], cache)
    found = torch.autograd.grad(layer(x[:, 6:], cache).square().sum(), x)[0]
    expected = torch.autograd.grad(layer(x)[:, 6:].square().sum(), x)[0]
    torch.testing.assert_close(found[:, 6:], expected[:, 6:], rtol=1e-3, atol=1e-5)
    assert not found[:, :6].any()


def test_packed_sequences_are_the_sequences_alone(modules):
    layer, x = seeded(modules), sequences(batch=1, length=30)
    borders = torch.tensor([0, 2, 13, 30])
    pieces = list(itertools.pairwise(borders.tolist()))
    expected = torch.cat([layer(x[:, a:b]) for a, b in pieces], 1)
    torch.testing.assert_close(layer(x, cu_seqlens=borders), expected, rtol=1e-4, atol=1e-5)
    cache = layer.empty_cache(batch=3)
    torch.testing.assert_close(layer(x, cache, cu_seqlens=borders), expected, rtol=1e-4, atol=1e-5)
    alone = layer.empty_cache(batch=1)
    layer(x[:, 13:], alone)
    for mine, theirs in zip(cache, alone, strict=True):
        torch.testing.assert_close(mine[2:], theirs, rtol=1e-4, atol=1e-5)


def test_no_output_depends_on_a_later_token(modules):
    layer, x = seeded(modules), sequences().detach()
    changed = x.clone()
    changed[:, 5:] += 1
    before, after = layer(x), layer(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_training_lowers_the_loss(modules):
    """The layer learns to repeat what it has seen three tokens before."""
    layer = seeded(modules, dtype=torch.float32)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    before = {name: x.detach().clone() for name, x in layer.named_parameters()}
    losses = []
    for step in range(30):
        x = torch.randn(4, 20, WIDTH, generator=torch.Generator().manual_seed(step % 3))
        loss = (layer(x)[:, 3:] - x[:, :-3]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    assert all(not torch.equal(x, before[name]) for name, x in layer.named_parameters())


def test_half_precision(modules):
    layer = seeded(modules, dtype=torch.bfloat16)
    x = sequences(length=20, dtype=torch.bfloat16)
    found = layer(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), seeded(modules)(x.float()), rtol=0.1, atol=0.02)
    cache = layer.empty_cache(2)
    assert cache.conv.dtype == torch.bfloat16 and cache.state.dtype == torch.float32
    rows = [layer(x[:, t : t + 1], cache) for t in range(20)]
    torch.testing.assert_close(torch.cat(rows, 1).float(), found.float(), rtol=0.1, atol=0.02)


def test_the_layer_is_saved_and_loaded_with_its_weights(modules, tmp_path):
    layer = seeded(modules)
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    other = modules.GatedDeltaNet(WIDTH, 3)
    other.load_state_dict(torch.load(tmp_path / "layer.pt"))
    x = sequences()
    assert torch.equal(layer(x), other(x))
    assert {name for name, _ in layer.named_parameters()} == {
        "dt_bias", "A_log", "in_proj_qkvz.weight", "in_proj_ba.weight", "conv1d.weight", "norm.weight", "out_proj.weight",
    }  # fmt: skip


def test_the_layer_compiles(modules):
    torch._dynamo.reset()
    layer, x = seeded(modules, value_heads=6), sequences()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x))
    for mine, theirs in zip(
        torch.autograd.grad(compiled(x).sum(), list(layer.parameters())),
        torch.autograd.grad(layer(x).sum(), list(layer.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)
    caches = layer.empty_cache(2), layer.empty_cache(2)
    with torch.no_grad():
        for t in range(3):
            token = x[:, t : t + 1]
            torch.testing.assert_close(compiled(token, caches[0]), layer(token, caches[1]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 5}, "width = 12, expected a multiple of heads = 5, or head_dim"),
        ({"heads": 2, "value_heads": 3}, "value_heads = 3, expected a multiple of heads = 2"),
        ({"heads": 2, "conv_width": 0}, "conv_width = 0, expected at least 1"),
    ],
)
def test_wrong_options_are_errors_that_name_them(modules, options, message):
    with pytest.raises(ValueError, match=message):
        modules.GatedDeltaNet(WIDTH, **options)


def test_a_wrong_shape_is_an_error_that_says_the_expected_one(modules):
    with pytest.raises(ValueError, match=r"GatedDeltaNet: x has shape \[2, 9, 5\], expected \[batch, length, 12\]"):
        seeded(modules)(torch.zeros(2, 9, 5))
