"""Tests of the package's modules, against the same models written with PyTorch's operations."""

import pytest
import torch
from torch import nn


@pytest.fixture(scope="module", autouse=True)
def modules(build):
    from attnbench import nn as modules

    torch.set_num_threads(1)  # Several threads would be slower on tensors this small.
    return modules


WIDTH, HEADS = 12, 3


def sequences(batch=2, length=9, width=WIDTH, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, width, generator=generator).requires_grad_()


def seeded(module, *arguments, **options):
    torch.manual_seed(7)
    return module(*arguments, **options)


def by_hand(layer, x, causal, key_lengths=None):
    """What a LinearAttention computes, from its weights and the weight of every pair of positions."""
    batch, length, _ = x.shape

    def heads(projection):
        return projection(x).view(batch, length, layer.heads, layer.head_dim).permute(0, 2, 1, 3)

    q, k = (nn.functional.elu(heads(projection)) + 1 for projection in (layer.query, layer.key))
    weights = torch.einsum("bhnd,bhld->bhnl", q, k)
    if causal:
        weights = weights.tril()
    if key_lengths is not None:
        seen = torch.arange(length) < key_lengths[:, None]
        weights = weights * seen[:, None, None, :]
    attended = weights @ heads(layer.value) / (weights.sum(3, keepdim=True) + 1e-6)
    return layer.output(attended.permute(0, 2, 1, 3).reshape(batch, length, -1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [None, (9, 4)])
@pytest.mark.parametrize("head_dim", [None, 5])
def test_linear_attention_agrees_with_the_same_layer_written_by_hand(modules, causal, lengths, head_dim):
    layer = seeded(modules.LinearAttention, WIDTH, HEADS, causal=causal, head_dim=head_dim)
    key_lengths = None if lengths is None else torch.tensor(lengths)
    x = sequences()
    found, expected = layer(x, key_lengths), by_hand(layer, x, causal, key_lengths)
    assert found.shape == x.shape
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    parameters = [x, *layer.parameters()]
    for mine, theirs in zip(*(torch.autograd.grad(y.square().sum(), parameters) for y in (found, expected)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_the_options_of_linear_attention_reach_the_function(modules):
    x = sequences()
    layers = [
        seeded(modules.LinearAttention, WIDTH, HEADS, **options)
        for options in ({}, {"feature_map": "relu"}, {"eps": 0.5}, {"bias": False})
    ]
    outputs = [layer(x) for layer in layers]
    assert all(not torch.allclose(outputs[0], other) for other in outputs[1:])
    assert all(projection.bias is None for projection in (layers[3].query, layers[3].output))


@pytest.mark.parametrize("feature_map", ["elu", "polynomial-2"])
def test_steps_of_linear_attention_give_the_rows_of_forward(modules, feature_map):
    layer = seeded(modules.LinearAttention, WIDTH, HEADS, causal=True, feature_map=feature_map)
    x = sequences()
    state = layer.empty_state(batch=2)
    rows = [layer.step(x[:, i : i + 1], state) for i in range(x.shape[1])]
    torch.testing.assert_close(torch.cat(rows, 1), layer(x).detach(), rtol=1e-4, atol=1e-5)
    assert not rows[0].requires_grad


def test_a_step_without_the_causal_mask_is_refused(modules):
    layer = modules.LinearAttention(WIDTH, HEADS)
    with pytest.raises(ValueError, match="LinearAttention: step needs causal=True"):
        layer.step(sequences(length=1), layer.empty_state(2))


def test_lsh_attention_agrees_with_the_function_on_projected_heads(modules):
    from attnbench import lsh_attention

    options = {"causal": True, "rounds": 2, "chunk": 4, "buckets": 4, "seed": 3}
    layer = seeded(modules.LSHAttention, WIDTH, HEADS, **options)
    x, key_lengths = sequences(), torch.tensor([9, 5])
    qk, v = (projection(x).view(2, 9, HEADS, WIDTH // HEADS).transpose(1, 2) for projection in (layer.query_key, layer.value))
    attended = lsh_attention(qk, v, key_lengths=key_lengths, **options)
    expected = layer.output(attended.transpose(1, 2).reshape(2, 9, WIDTH))
    torch.testing.assert_close(layer(x, key_lengths), expected)


def test_lsh_attention_without_a_seed_draws_new_hashes_in_every_call(modules):
    layer = seeded(modules.LSHAttention, WIDTH, HEADS, chunk=4, seed=None)
    x = sequences(length=100)
    first, second = layer(x), layer(x)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    again = layer(x)
    torch.manual_seed(1)
    assert torch.equal(again, layer(x))


# ---------------------------------------------------------------- the layer of a language model


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_language_model_layer_agrees_with_the_same_layer_written_by_hand(modules, norm):
    layer = seeded(modules.CausalLMLayer, WIDTH, HEADS, feed_forward=20, norm=norm)
    first, _, last = layer.feed_forward
    for parameter in (*layer.norm1.parameters(), *layer.norm2.parameters()):
        nn.init.normal_(parameter)  # New layers normalise without a scale, so that twice is the same as once.
    x = sequences()

    def feed_forward(y):
        return last(nn.functional.gelu(first(y)))

    if norm == "pre":
        y = x + by_hand(layer.attention, layer.norm1(x), True)
        expected = y + feed_forward(layer.norm2(y))
    else:
        y = layer.norm1(x + by_hand(layer.attention, x, True))
        expected = layer.norm2(y + feed_forward(y))
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)
    assert first.out_features == 20


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_steps_of_layers_give_the_rows_of_forward(modules, norm):
    """The layers of a small model, one behind the other, as generation calls them."""
    torch.manual_seed(0)
    layers = [modules.CausalLMLayer(WIDTH, HEADS, norm=norm, dropout=0.5).eval() for _ in range(3)]
    x = sequences(length=20)
    expected = x
    for layer in layers:
        expected = layer(expected)
    states = [layer.empty_state(batch=2) for layer in layers]
    rows = []
    for i in range(20):
        row = x[:, i : i + 1]
        for layer, state in zip(layers, states, strict=True):
            row = layer.step(row, state)
        rows.append(row)
    torch.testing.assert_close(torch.cat(rows, 1), expected.detach(), rtol=1e-4, atol=1e-4)


def test_no_output_of_a_language_model_layer_depends_on_a_later_position(modules):
    layer = seeded(modules.CausalLMLayer, WIDTH, HEADS)
    x = sequences().detach()
    changed = x.clone()
    changed[:, 5:] += 1
    before, after = layer(x), layer(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_dropout_applies_to_what_both_parts_return_and_in_training_alone(modules):
    layer = seeded(modules.CausalLMLayer, WIDTH, HEADS, dropout=1.0)
    x = sequences()
    assert torch.equal(layer(x), x)
    attended = x + layer.attention(layer.norm1(x))
    torch.testing.assert_close(layer.eval()(x), attended + layer.feed_forward(layer.norm2(attended)))


def test_modules_are_saved_and_loaded_with_their_weights(modules, tmp_path):
    layer = modules.CausalLMLayer(WIDTH, HEADS)
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    other = modules.CausalLMLayer(WIDTH, HEADS)
    other.load_state_dict(torch.load(tmp_path / "layer.pt"))
    x = sequences()
    assert torch.equal(layer(x), other(x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: m.LinearAttention(10, 3), r"width = 10, expected a multiple of heads = 3, or head_dim"),
        (lambda m: m.LinearAttention(0, 1), r"width = 0, expected at least 1"),
        (lambda m: m.LSHAttention(8, 0), r"heads = 0, expected at least 1"),
        (lambda m: m.LinearAttention(8, 2, feature_map="rff"), r"feature_map = 'rff', expected a map without"),
        (lambda m: m.CausalLMLayer(8, 2, norm="middle"), r"norm = 'middle', expected 'pre' or 'post'"),
    ],
)
def test_wrong_options_of_modules_are_errors_that_name_them(modules, make, message):
    with pytest.raises(ValueError, match=message):
        make(modules)


def test_a_wrong_shape_is_an_error_that_says_the_expected_one(modules):
    layer = modules.LinearAttention(WIDTH, HEADS, causal=True)
    with pytest.raises(ValueError, match=r"LinearAttention: x has shape \[2, 9, 5\], expected \[batch, length, 12\]"):
        layer(sequences(width=5))
    with pytest.raises(ValueError, match=r"x has shape \[2, 9, 12\], expected \[batch, 1, 12\]"):
        layer.step(sequences(), layer.empty_state(2))
