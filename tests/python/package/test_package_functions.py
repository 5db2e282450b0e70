"""Tests of the package's functions: against their definitions in float64, and against the operators that they call."""

import inspect
import typing

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def functions(build):
    """The module attnbench.functional, which loads libattn of the build folder when it is imported."""
    from attnbench import functional

    torch.set_num_threads(1)  # Several threads would be slower on tensors this small.
    return functional


FORMS = [(False, None), (True, None), (False, (13, 6)), (True, (13, 0))]


def normal(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def tensor_of(lengths):
    return None if lengths is None else torch.tensor(lengths)


def linear_by_definition(q, k, v, causal, key_lengths, features, eps=1e-6):
    """Linear attention in float64, computed from the weight of every pair of a query and a key."""
    q, k, v = q.double(), k.double(), v.double()
    weights = features(q) @ features(k).transpose(2, 3)
    if causal:
        weights = weights.tril()
    if key_lengths is not None:
        hidden = torch.arange(k.shape[2]) >= key_lengths[:, None]
        weights = weights.masked_fill(hidden[:, None, None, :], 0)
    return weights @ v / (weights.sum(3, keepdim=True) + eps)


FEATURES = {
    "elu": lambda x: torch.nn.functional.elu(x) + 1,
    "elu0.1": lambda x: torch.nn.functional.elu(x, 0.1) + 1,
    "relu": torch.relu,
    "taylor": lambda x: torch.cat([torch.ones_like(x[..., :1]), torch.nn.functional.normalize(x, dim=-1)], -1),
}


@pytest.mark.parametrize("feature_map", FEATURES)
@pytest.mark.parametrize(("causal", "lengths"), FORMS)
def test_linear_attention_and_its_gradients_agree_with_the_definition(functions, feature_map, causal, lengths):
    inputs = normal(2, 2, 13, 4, seed=1), normal(2, 2, 13, 4, seed=2), normal(2, 2, 13, 3)
    key_lengths = tensor_of(lengths)
    found = functions.linear_attention(*inputs, causal=causal, key_lengths=key_lengths, feature_map=feature_map)
    expected = linear_by_definition(*inputs, causal, key_lengths, FEATURES[feature_map])
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad(x.square().sum(), inputs) for x in (found, expected)]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_linear_attention_passes_every_argument_to_the_operator(functions):
    q, k, v = (normal(2, 2, 13, 4, seed=i) for i in range(3))
    key_lengths, projection = torch.tensor([13, 5]), normal(8, 4).detach()
    found = functions.linear_attention(
        q, k, v, causal=True, key_lengths=key_lengths, feature_map="favor", eps=0.5,
        projection=projection, chunk=4, implementation="composed",
    )  # fmt: skip
    expected = torch.ops.attn.linear_attention(q, k, v, True, key_lengths, "favor", 0.5, projection, 4, "composed")
    assert torch.equal(found, expected)
    assert not torch.equal(found, functions.linear_attention(q, k, v, feature_map="favor", projection=projection))
    assert not torch.equal(functions.linear_attention(q, k, v, eps=0.5), functions.linear_attention(q, k, v))


def test_linear_attention_is_not_causal_by_default(functions):
    q, k, v = (normal(1, 1, 5, 4, seed=i) for i in range(3))
    expected = linear_by_definition(q, k, v, False, None, FEATURES["elu"])
    torch.testing.assert_close(functions.linear_attention(q, k, v).double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("feature_map", ["elu", "elu0.1", "relu", "taylor", "polynomial-2"])
def test_steps_give_the_rows_of_causal_attention(functions, feature_map, dtype):
    q, k = (normal(2, 2, 7, 4, seed=i, dtype=dtype) for i in range(2))
    v = normal(2, 2, 7, 3, dtype=dtype)
    expected = functions.linear_attention(q, k, v, causal=True, feature_map=feature_map).detach()
    state = functions.LinearAttentionState.empty(2, 2, 4, 3, feature_map=feature_map, dtype=dtype)
    rows = []
    for i in range(7):
        token = (x[:, :, i : i + 1] for x in (q, k, v))
        rows.append(functions.linear_attention_step(*token, state, feature_map=feature_map))
    found = torch.cat(rows, 2)
    assert not found.requires_grad and found.dtype == dtype
    tolerance = 4e-2 if dtype == torch.bfloat16 else 1e-4
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    assert state.sums.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_a_step_of_a_map_with_random_directions_is_refused(functions):
    with pytest.raises(ValueError, match="feature_map = 'favor', expected one with a decoding step: elu, "):
        functions.LinearAttentionState.empty(1, 1, 4, feature_map="favor")


# ---------------------------------------------------------------- LSH attention


@pytest.mark.parametrize("profile", ["trax", "fast-transformers"])
@pytest.mark.parametrize(("causal", "lengths"), [(False, None), (True, None), (True, (200, 60))])
def test_lsh_attention_agrees_with_the_composed_operator_in_float64(functions, profile, causal, lengths):
    inputs = normal(2, 2, 200, 8, seed=1), normal(2, 2, 200, 4)
    key_lengths = tensor_of(lengths)
    found = functions.lsh_attention(*inputs, causal=causal, key_lengths=key_lengths, rounds=2, profile=profile, seed=5)
    # The defaults of the profiles, written out.
    chunk, buckets = {"trax": (64, 8), "fast-transformers": (32, 64)}[profile]
    rotations, factors = torch.ops.attn.lsh_rotations(8, 2, buckets, 5)
    assert list(factors) == []
    expected = torch.ops.attn.lsh_attention(
        *(x.double() for x in inputs), rotations, chunk, causal, key_lengths, profile, None, "composed"
    )
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad(x.square().sum(), inputs) for x in (found, expected)]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_lsh_attention_over_one_chunk_is_softmax_attention_of_normalised_keys(functions):
    x, v = normal(1, 1, 20, 8, seed=1, dtype=torch.float64), normal(1, 1, 20, 4, dtype=torch.float64)
    found = functions.lsh_attention(x, v, causal=True, profile="fast-transformers")
    keys = torch.nn.functional.normalize(x, dim=-1)
    scores = (x @ keys.transpose(2, 3) / 8**0.5).masked_fill(torch.ones(20, 20).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(found, scores.softmax(-1) @ v)


def test_a_large_number_of_buckets_is_hashed_in_two_factors(functions):
    rotations, factors = torch.ops.attn.lsh_rotations(8, 1, 200, 0)
    assert rotations.shape == (8, 1, sum(factors) // 2) and factors[0] * factors[1] <= 200
    x = normal(1, 1, 300, 8)
    found = functions.lsh_attention(x, x, buckets=200)
    assert torch.equal(found, torch.ops.attn.lsh_attention(x, x, rotations, 64, False, bucket_factors=factors))


def test_the_seed_of_lsh_attention_decides_the_hashes(functions):
    x = normal(1, 1, 500, 8)
    outputs = [functions.lsh_attention(x, x, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"profile": "reformer"}, "profile = 'reformer', expected 'trax' or 'fast-transformers'"),
        ({"chunk": 0}, "chunk = 0, expected at least 1"),
        ({"rounds": 0}, "rounds = 0, expected at least 1"),
        ({"buckets": 7}, "buckets = 7, expected an even number of at least 2"),
        ({"seed": -1}, "seed = -1, expected at least 0"),
        ({"key_lengths": torch.tensor([1, 2])}, r"key_lengths has shape \[2\], expected \[batch\] = \[1\]"),
    ],
)
def test_wrong_arguments_of_lsh_attention_are_errors_that_name_them(functions, given, message):
    x = normal(1, 1, 20, 8)
    with pytest.raises(ValueError, match=message):
        functions.lsh_attention(x, x, **given)


def test_wrong_shapes_are_errors_that_name_the_tensor(functions):
    x = normal(3, 8)
    with pytest.raises(ValueError, match="q has shape"):
        functions.linear_attention(x, x, x)
    with pytest.raises(ValueError, match="qk has shape"):
        functions.lsh_attention(x, x)


# ---------------------------------------------------------------- torch.compile and types


def test_linear_attention_compiles_without_a_break_of_the_graph(functions):
    torch._dynamo.reset()
    compiled = torch.compile(functions.linear_attention, fullgraph=True, backend="aot_eager")
    inputs = [normal(1, 2, 20, 4, seed=i) for i in range(3)]
    found, expected = compiled(*inputs, causal=True), functions.linear_attention(*inputs, causal=True)
    torch.testing.assert_close(found, expected)
    for mine, theirs in zip(*(torch.autograd.grad(x.sum(), inputs) for x in (found, expected)), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_compiled_lsh_attention_follows_the_seed(functions):
    torch._dynamo.reset()
    compiled = torch.compile(functions.lsh_attention, backend="aot_eager")
    x = normal(1, 1, 500, 8)
    for seed in (0, 1):
        torch.testing.assert_close(compiled(x, x, seed=seed), functions.lsh_attention(x, x, seed=seed))


def test_every_public_function_is_documented_and_has_types(build):
    import attnbench

    assert sorted(attnbench.__all__) == attnbench.__all__
    for name in attnbench.__all__:
        value = getattr(attnbench, name)
        assert value.__doc__, name
        if inspect.isfunction(value):
            hints = typing.get_type_hints(inspect.unwrap(value))
            assert set(hints) == {*inspect.signature(value).parameters, "return"}, name


def test_an_unknown_name_is_an_attribute_error():
    import attnbench

    with pytest.raises(AttributeError, match="module 'attnbench' has no attribute 'attend'"):
        attnbench.attend
    assert {"linear_attention", "records", "__version__"} <= set(dir(attnbench))
