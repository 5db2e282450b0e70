"""Tests of attnbench.models.fast_transformers: encoders with the parameters and results of the authors' package,
which compiles for ten minutes and is not installed."""

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint

SMALL = {"n_layers": 2, "n_heads": 4, "query_dimensions": 8, "value_dimensions": 8, "feed_forward_dimensions": 20, "dropout": 0.0}


@pytest.fixture(scope="module")
def package(build):  # noqa: ARG001
    from attnbench.models import fast_transformers

    torch.set_num_threads(1)
    return fast_transformers


def by_definition(model, kind, x, causal, lengths):
    """The encoder written with matrices."""
    batch, length, _ = x.shape
    visible = torch.ones(length, length).tril() if causal else torch.ones(length, length)
    visible = visible * (torch.arange(length) < lengths[:, None])[:, None, None]
    for layer in model.layers:
        attention = layer.attention
        q, k, v = (
            getattr(attention, f"{name}_projection")(x).view(batch, length, 4, 8).transpose(1, 2) for name in ("query", "key", "value")
        )
        if kind == "full":
            weights = (q @ k.mT / 8**0.5).masked_fill(visible == 0, float("-inf")).softmax(-1)
        else:
            weights = (F.elu(q) + 1) @ (F.elu(k) + 1).mT * visible
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-6)
        x = layer.norm1(x + attention.out_projection((weights @ v).transpose(1, 2).reshape(batch, length, -1)))
        x = layer.norm2(x + layer.linear2(F.gelu(layer.linear1(x))))
    return model.norm(x)


@pytest.mark.parametrize(("kind", "causal"), [("full", False), ("full", True), ("linear", False), ("causal-linear", True)])
def test_encoders_compute_what_the_package_computes(package, kind, causal):
    torch.manual_seed(0)
    model = package.TransformerEncoderBuilder.from_kwargs(attention_type=kind, activation="gelu", **SMALL).get().eval()
    names = [name for name in model.state_dict() if name.startswith("layers.0.") and name.endswith("weight")]
    assert names == [
        f"layers.0.{name}.weight"
        for name in (
            "attention.query_projection", "attention.key_projection", "attention.value_projection", "attention.out_projection",
            "linear1", "linear2", "norm1", "norm2",
        )
    ]  # fmt: skip
    x, lengths = torch.randn(2, 40, 32), torch.tensor([40, 23])
    masks = {"attn_mask": package.TriangularCausalMask(40)} if causal else {}
    output = model(x, length_mask=package.LengthMask(lengths, max_len=40), **masks)
    expected = by_definition(model, kind, x, causal, lengths)
    for found, wanted, length in zip(output, expected, lengths, strict=True):
        torch.testing.assert_close(found[:length], wanted[:length], rtol=1e-4, atol=1e-5)


def test_reformer_trains_and_hashes_anew_in_each_step(package):
    torch.manual_seed(0)
    builder = package.TransformerEncoderBuilder.from_kwargs(
        attention_type="reformer", rounds=2, chunk_size=8, bits=4, attention_dropout=0.0, **SMALL
    )
    model, x = builder.get(), torch.randn(2, 64, 32)
    first, second = model(x), model(x)
    assert not torch.equal(first, second)
    model.eval()
    assert torch.equal(model(x), model(x))
    model(x, attn_mask=package.TriangularCausalMask(64)).square().sum().backward()
    assert all(p.grad.isfinite().all() for name, p in model.named_parameters() if "key_projection" not in name)


def test_dropout_of_full_attention_is_respected(package):
    torch.manual_seed(0)
    model = package.TransformerEncoderBuilder.from_kwargs(attention_dropout=0.5, **SMALL).get()
    x = torch.randn(1, 16, 32)
    mask = package.LengthMask(torch.tensor([9]), max_len=16)
    assert not torch.equal(model(x, length_mask=mask), model(x, length_mask=mask))
    model.eval()
    assert torch.equal(model(x, length_mask=mask), model(x, length_mask=mask))


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        ({"attention_type": "improved-clustered"}, ValueError, "expected one of full, linear, causal-linear, reformer"),
        ({"activation": "tanh"}, ValueError, "expected 'relu' or 'gelu'"),
        ({"query_dimension": 3}, AttributeError, "no parameter 'query_dimension'; it has activation"),
        ({"attention_type": "reformer"}, ValueError, "expected attention_dropout=0"),
        ({"attention_type": "reformer", "attention_dropout": 0, "masked": True}, ValueError, "masked=True is not supported"),
        ({"attention_type": "linear", "feature_map": F.relu}, ValueError, "feature_map is not supported"),
    ],
)
def test_what_is_not_supported_is_refused(package, parameters, error, text):
    with pytest.raises(error, match=text):
        package.TransformerEncoderBuilder.from_kwargs(**parameters).get()
    assert package.TransformerEncoderBuilder.from_dictionary({"unknown": 1}, strict=False).n_layers == 4


def test_masks_that_do_not_fit_are_refused(package):
    model = package.TransformerEncoderBuilder.from_kwargs(attention_type="linear", **SMALL).get()
    x = torch.randn(2, 10, 32)
    with pytest.raises(RuntimeError, match="'linear' needs no mask"):
        model(x, attn_mask=package.TriangularCausalMask(10))
    with pytest.raises(ValueError, match="attn_mask is for 9 queries and 9 keys, expected 10"):
        model(x, attn_mask=package.FullMask(9))
    with pytest.raises(ValueError, match="length_mask is for 2 sequences of up to 7 positions, expected 2 of 10"):
        model(x, length_mask=package.LengthMask(torch.tensor([7, 3])))
    with pytest.raises(ValueError, match="attn_mask is a Tensor"):
        model(x, attn_mask=torch.ones(10, 10))
    with pytest.raises(ValueError, match="masks of any other form"):
        package.FullMask(torch.ones(3, 3))


def test_checkpointed_layers_hash_as_they_did_before(package):
    torch.manual_seed(0)
    builder = package.TransformerEncoderBuilder.from_kwargs(
        attention_type="reformer", rounds=2, chunk_size=8, bits=4, attention_dropout=0.0, **SMALL
    )
    model, x = builder.get(), torch.randn(2, 64, 32)
    gradients = []
    for checkpointed in (False, True):
        torch.manual_seed(1)
        model.zero_grad()
        y = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False) if checkpointed else model(x)
        y.square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for plain, again in zip(*gradients, strict=True):
        torch.testing.assert_close(again, plain)
