"""Tests of the operator attn::linear_attention from Python: its results and gradients, its
registrations, and torch.compile."""

import pytest
import torch
from conftest import expect_unchanged_by_autocast

pytestmark = pytest.mark.usefixtures("operators")

MAPS = ["elu", "elu0.1", "taylor", "polynomial-2", "favor", "rff"]
FORMS = [(False, None), (True, None), (False, (13, 6)), (True, (13, 0))]


def arguments(name, *, causal=True, lengths=None, dtype=torch.float64, length=13, device="cpu"):
    """Positional arguments of the operator. q, k and v need gradients; a chunk is shorter than the
    sequence."""
    generator = torch.Generator().manual_seed(length)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    inputs = [normal(2, 2, length, dim) for dim in (4, 4, 3)]
    inputs = [x.to(device, dtype).requires_grad_() for x in inputs]
    key_lengths = None if lengths is None else torch.tensor(lengths, device=device)
    projection = normal(8, 4).to(device) if name in ("favor", "rff") else None
    return (*inputs, causal, key_lengths, name, 1e-6, projection, 4)


def by_definition(q, k, v, causal, key_lengths=None):
    """Linear attention with the features elu(x) + 1, computed from the weight of every pair."""
    weights = (torch.nn.functional.elu(q) + 1) @ (torch.nn.functional.elu(k) + 1).transpose(2, 3)
    if causal:
        weights = weights.tril()
    if key_lengths is not None:
        hidden = torch.arange(k.shape[2]) >= key_lengths[:, None]
        weights = weights.masked_fill(hidden[:, None, None, :], 0)
    return weights @ v / (weights.sum(3, keepdim=True) + 1e-6)


@pytest.mark.parametrize(("causal", "lengths"), FORMS)
def test_results_and_gradients_agree_with_the_definition(causal, lengths):
    q, k, v, _, key_lengths, *_ = arguments("elu", causal=causal, lengths=lengths)
    found = torch.ops.attn.linear_attention(q, k, v, causal, key_lengths)
    expected = by_definition(q, k, v, causal, key_lengths)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (found, expected)]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_takes_its_options_by_name():
    q, k, v, *_ = arguments("elu")
    found = torch.ops.attn.linear_attention(q, k, v, True, key_lengths=None, feature_map="elu", eps=1e-6)
    torch.testing.assert_close(found, by_definition(q, k, v, True))
    assert not torch.equal(found, torch.ops.attn.linear_attention(q, k, v, True, eps=0.1))


def test_cross_attention_agrees_with_the_definition():
    q, k, v, *_ = arguments("elu", causal=False)
    found = torch.ops.attn.linear_attention(q[:, :, :5], k, v, False)
    torch.testing.assert_close(found, by_definition(q[:, :, :5], k, v, False))


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize(("causal", "lengths"), [(False, (13, 6)), (True, None)])
def test_opcheck(name, causal, lengths):
    given = arguments(name, causal=causal, lengths=lengths)
    torch.library.opcheck(torch.ops.attn.linear_attention.default, given)
    torch.library.opcheck(torch.ops.attn._linear_attention.default, given)


@pytest.mark.parametrize("name", ["elu", "favor"])
def test_opcheck_of_the_backward(name):
    q, k, v, causal, lengths, _, eps, projection, chunk = arguments(name)
    with torch.no_grad():
        output, normalizer = torch.ops.attn._linear_attention(
            q, k, v, causal, lengths, name, eps, projection, chunk
        )
        given = (
            torch.ones_like(output), normalizer, q.detach(), k.detach(), v.detach(), causal, lengths, name, eps, projection,
            chunk,
        )  # fmt: skip
    torch.library.opcheck(torch.ops.attn._linear_attention_backward.default, given)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize(("causal", "lengths"), FORMS)
def test_gradcheck(name, causal, lengths):
    q, k, v, *rest = arguments(name, causal=causal, lengths=lengths, length=13)
    assert torch.autograd.gradcheck(
        lambda *x: torch.ops.attn.linear_attention(*x, *rest), (q, k, v), fast_mode=True
    )


def test_a_second_derivative_is_refused():
    q, *rest = arguments("elu")
    output = torch.ops.attn.linear_attention(q, *rest)
    (gradient,) = torch.autograd.grad(output.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="_linear_attention_backward"):
        gradient.sum().backward()


def results(function, *given):
    output = function(*given)
    return (output, *torch.autograd.grad(output.square().sum(), given[:3]))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", ["elu", "favor"])
def test_compiles_with_static_shapes(name, backend):
    torch._dynamo.reset()
    operator = torch.ops.attn.linear_attention
    compiled = torch.compile(operator, fullgraph=True, dynamic=False, backend=backend)
    given = arguments(name)
    for found, expected in zip(results(compiled, *given), results(operator, *given), strict=True):
        torch.testing.assert_close(found, expected)


def test_compiles_once_for_all_lengths():
    torch._dynamo.reset()
    graphs = 0

    def counting(module, inputs):
        nonlocal graphs
        graphs += 1
        return torch._dynamo.lookup_backend("aot_eager")(module, inputs)

    def doubled(*given):
        return torch.ops.attn.linear_attention(*given).mul(2)

    compiled = torch.compile(doubled, fullgraph=True, dynamic=True, backend=counting)
    # The first call compiles twice: dynamo tries eps as an input before it makes it a constant.
    after_first = None
    for length in (13, 22, 40):
        given = arguments("elu", length=length, lengths=(length, 6))
        for found, expected in zip(results(compiled, *given), results(doubled, *given), strict=True):
            torch.testing.assert_close(found, expected)
        after_first = after_first or graphs
    assert graphs == after_first


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("name", "columns", "accumulator_dtype"), [("elu", 1, torch.float32), ("rff", 2, torch.float64)]
)
def test_meta_tensors_give_shapes_and_dtypes(dtype, name, columns, accumulator_dtype):
    given = arguments(name, device="meta", dtype=dtype)
    output = torch.ops.attn.linear_attention(*given)
    assert (output.shape, output.dtype, output.device.type) == ((2, 2, 13, 3), dtype, "meta")
    gradients = torch.autograd.grad(output.sum(), given[:3])
    assert [g.shape for g in gradients] == [x.shape for x in given[:3]]
    _, normalizer = torch.ops.attn._linear_attention(*given)
    assert (normalizer.shape, normalizer.dtype) == ((2, 2, 13, columns), accumulator_dtype)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({0: torch.zeros(3, 4)}, r"q has shape \[3, 4\], expected \[batch, heads, length, dim\]"),
        ({1: torch.zeros(2, 2, 13, 4)}, "k is float32 but q is float64"),
        ({1: torch.zeros(2, 2, 13, 5).double()}, "k has dim 5, expected 4 as in q"),
        ({2: torch.zeros(2, 2, 12, 3).double()}, "v has length 12, expected 13 as in k"),
        ({2: torch.zeros(2, 1, 13, 3).double()}, "v has heads 1, expected 2 as in q"),
        ({4: torch.tensor([1, 2, 3])}, r"key_lengths has shape \[3\], expected \[batch\] = \[2\]"),
        ({8: 0}, "chunk = 0, expected at least 1"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_errors_that_name_them(changed, message):
    given = list(arguments("elu"))
    for index, value in changed.items():
        given[index] = value
    with pytest.raises(ValueError, match="linear_attention: " + message):
        torch.ops.attn.linear_attention(*given)


def test_an_unknown_feature_map_is_an_error_that_lists_the_known_ones():
    q, k, v, *_ = arguments("elu")
    with pytest.raises(ValueError, match="unknown feature map 'gelu'; known: elu, elu0.1, favor"):
        torch.ops.attn.linear_attention(q, k, v, True, feature_map="gelu")


@pytest.mark.parametrize("implementation", ["auto", "portable", "composed"])
@pytest.mark.parametrize("name", ["elu", "elu0.1", "relu", "taylor", "polynomial-2"])
def test_decoding_steps_agree_with_the_rows_of_causal_attention(name, implementation):
    q, k, v, *_ = arguments(name, dtype=torch.float32)
    expected = torch.ops.attn.linear_attention(q, k, v, True, feature_map=name)
    features = {"taylor": 5, "polynomial-2": 15}.get(name, 4)
    sums, normalizers = torch.zeros(2, 2, features, 3), torch.zeros(2, 2, features)
    with torch.no_grad():
        for i in range(q.shape[2]):
            token = (x[:, :, i : i + 1] for x in (q, k, v))
            row = torch.ops.attn.linear_attention_step(
                *token, sums, normalizers, name, implementation=implementation
            )
            torch.testing.assert_close(row, expected[:, :, i : i + 1].detach(), rtol=1e-4, atol=1e-5)


def test_opcheck_of_the_decoding_step():
    q, k, v = (x[:, :, :1].detach() for x in arguments("elu")[:3])
    sums = torch.zeros(2, 2, 4, 3, dtype=q.dtype)
    given = (q, k, v, sums, torch.zeros(2, 2, 4, dtype=q.dtype))
    torch.library.opcheck(torch.ops.attn.linear_attention_step.default, given)


@pytest.mark.parametrize(
    ("place", "words"),
    [(3, ["sums is Float [2, 2, 4, 4]", "expected"]), (4, ["normalizers is Float [2, 2, 4, 4]"])],
)
def test_a_decoding_step_with_a_wrong_state_is_an_error_that_names_it(place, words):
    q, k, v = (x[:, :, :1].detach().float() for x in arguments("elu")[:3])
    given = [q, k, v, torch.zeros(2, 2, 4, 3), torch.zeros(2, 2, 4)]
    given[place] = torch.zeros(2, 2, 4, 4)
    with pytest.raises(ValueError) as caught:
        torch.ops.attn.linear_attention_step(*given)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("implementation", ["portable", "auto"])
def test_kernels_agree_with_the_composed_implementation(implementation):
    given = arguments("elu", lengths=(13, 6), dtype=torch.float32)
    q, k, v = given[:3]
    outputs = [
        torch.ops.attn.linear_attention(*given, implementation=name)
        for name in (implementation, "composed")
    ]
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad(x.square().sum(), (q, k, v)) for x in outputs]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_an_implementation_that_is_not_available_is_refused():
    q, k, v, *_ = arguments("elu")
    with pytest.raises(ValueError, match="implementation 'neon' is not available here"):
        torch.ops.attn.linear_attention(q, k, v, True, implementation="neon")
    with pytest.raises(ValueError, match="does not compute feature map 'rff'"):
        projection = torch.ones(8, 4)
        torch.ops.attn.linear_attention(
            q, k, v, True, feature_map="rff", projection=projection, implementation="portable"
        )


# ---------------------------------------------------------------- autocast and changes in place


@pytest.mark.parametrize("implementation", ["auto", "composed"])
def test_autocast_changes_nothing(implementation):
    """The composed form consists of products, which autocast would compute in bfloat16."""
    q, k, v, *_ = arguments("elu", dtype=torch.float32, length=33)

    def run():
        output = torch.ops.attn.linear_attention(q, k, v, True, None, implementation=implementation)
        return output, *torch.autograd.grad(output.square().sum(), (q, k, v))

    assert all(tensor.dtype == torch.float32 for tensor in run())
    expect_unchanged_by_autocast(run)


@pytest.mark.parametrize("implementation", ["auto", "composed"])
def test_autocast_does_not_change_a_step(implementation):
    q, k, v = (torch.randn(2, 2, 1, dim, generator=torch.Generator().manual_seed(dim)) for dim in (4, 4, 3))

    def run():
        sums, normalizers = torch.zeros(2, 2, 4, 3), torch.zeros(2, 2, 4)
        return torch.ops.attn.linear_attention_step(q, k, v, sums, normalizers, implementation=implementation), sums

    expect_unchanged_by_autocast(run)


@pytest.mark.parametrize("implementation", ["auto", "composed"])
def test_autograd_notices_that_a_step_has_changed_the_state(implementation):
    q, k, v = (torch.randn(1, 1, 1, dim) for dim in (4, 4, 3))
    sums, normalizers = torch.ones(1, 1, 4, 3), torch.ones(1, 1, 4)
    weights = torch.ones(1, 1, 4, 3, requires_grad=True)
    loss = (sums * weights).sum()
    torch.ops.attn.linear_attention_step(q, k, v, sums, normalizers, implementation=implementation)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():  # whose tensors have no version
        torch.ops.attn.linear_attention_step(q, k, v, torch.zeros(1, 1, 4, 3), torch.zeros(1, 1, 4))


# ---------------------------------------------------------------- other ways to call it


def test_export_works_and_transforms_of_functions_are_refused():
    q, k, v, *_ = arguments("elu")
    q, k, v = (x.detach() for x in (q, k, v))

    class Module(torch.nn.Module):
        def forward(self, q, k, v):
            return torch.ops.attn.linear_attention(q, k, v, True)

    exported = torch.export.export(Module(), (q, k, v))
    torch.testing.assert_close(exported.module()(q, k, v), Module()(q, k, v))
    with pytest.raises(RuntimeError, match="functorch transforms"):
        torch.func.grad(lambda x: torch.ops.attn.linear_attention(x, k, v, True).sum())(q)
    x = q.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(torch.ops.attn.linear_attention(x, k, v, True).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="derivative for attn::_linear_attention_backward is not implemented"):
        gradient.sum().backward()


def test_one_token_decoded_many_times_drifts_no_further_than_the_page_says():
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, 1, 16, generator=generator) for _ in range(3))
    sums, normalizers = torch.zeros(1, 1, 16, 16), torch.zeros(1, 1, 16)
    for _ in range(100_000):
        output = torch.ops.attn.linear_attention_step(q, k, v, sums, normalizers)
    assert (output - v).abs().max() / v.abs().max() < 2e-3


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_step_of_an_empty_batch_is_empty(dtype):
    token = torch.zeros(0, 2, 1, 4, dtype=dtype)
    output = torch.ops.attn.linear_attention_step(token, token, token, torch.zeros(0, 2, 4, 4), torch.zeros(0, 2, 4))
    assert output.shape == (0, 2, 1, 4) and output.dtype == dtype
