"""Tests of the operator attn::lsh_attention from Python: its registrations, gradients and
torch.compile."""

import pytest
import torch
from conftest import expect_unchanged_by_autocast

pytestmark = pytest.mark.usefixtures("operators")

PROFILES = ["trax", "fast-transformers"]
ROUNDS, BUCKETS = 2, 6


def arguments(
    profile, *, causal=True, lengths=(13, 6), factors=None, dtype=torch.float64, length=13, device="cpu"
):
    """Positional arguments of the operator; qk and v need gradients."""
    generator = torch.Generator().manual_seed(length)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    qk, v = normal(2, 2, length, 5), normal(2, 2, length, 3)
    rotations = normal(5, ROUNDS, sum(factors or [BUCKETS]) // 2).to(device)
    key_lengths = None if lengths is None else torch.tensor(lengths, device=device)
    inputs = [x.to(device, dtype).requires_grad_() for x in (qk, v)]
    return (*inputs, rotations, 4, causal, key_lengths, profile, factors)


CASES = [
    pytest.param(profile, causal, lengths, factors, id=f"{profile}-{name}")
    for profile in PROFILES
    for name, causal, lengths, factors in [
        ("full", False, None, None),
        ("causal-lengths", True, (13, 6), None),
        ("lengths-factored", False, (9, 0), [4, 6]),
    ]
]


@pytest.mark.parametrize(("profile", "causal", "lengths", "factors"), CASES)
def test_opcheck(profile, causal, lengths, factors):
    given = arguments(profile, causal=causal, lengths=lengths, factors=factors)
    torch.library.opcheck(torch.ops.attn.lsh_attention.default, given)
    torch.library.opcheck(torch.ops.attn._lsh_attention.default, given)


@pytest.mark.parametrize("profile", PROFILES)
def test_opcheck_of_the_backward(profile):
    qk, v, rotations, chunk, causal, key_lengths, profile, factors = arguments(profile)
    with torch.no_grad():
        output, log_sum_exp, order = torch.ops.attn._lsh_attention(
            qk, v, rotations, chunk, causal, key_lengths, profile, factors
        )
        given = (
            torch.ones_like(output), qk.detach(), v.detach(), output, key_lengths, log_sum_exp, order, chunk, causal, profile,
        )  # fmt: skip
    torch.library.opcheck(torch.ops.attn._lsh_attention_backward.default, given)


@pytest.mark.parametrize(("profile", "causal", "lengths", "factors"), CASES)
def test_gradcheck(profile, causal, lengths, factors):
    qk, v, *rest = arguments(profile, causal=causal, lengths=lengths, factors=factors, length=9)
    assert torch.autograd.gradcheck(lambda a, b: torch.ops.attn.lsh_attention(a, b, *rest), (qk, v))


def test_a_second_derivative_is_refused():
    qk, v, *rest = arguments("trax")
    output = torch.ops.attn.lsh_attention(qk, v, *rest)
    (gradient,) = torch.autograd.grad(output.sum(), qk, create_graph=True)
    with pytest.raises(RuntimeError, match="_lsh_attention_backward"):
        gradient.sum().backward()


def results(function, *given):
    output = function(*given)
    return (output, *torch.autograd.grad(output.square().sum(), given[:2]))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("profile", PROFILES)
def test_compiles_with_static_shapes(profile, backend):
    torch._dynamo.reset()
    compiled = torch.compile(
        torch.ops.attn.lsh_attention, fullgraph=True, dynamic=False, backend=backend
    )
    given = arguments(profile)
    for found, expected in zip(results(compiled, *given), results(torch.ops.attn.lsh_attention, *given)):
        torch.testing.assert_close(found, expected)


def test_compiles_once_for_all_lengths():
    torch._dynamo.reset()
    graphs = 0

    def counting(module, inputs):
        nonlocal graphs
        graphs += 1
        return torch._dynamo.lookup_backend("aot_eager")(module, inputs)

    compiled = torch.compile(
        lambda *given: torch.ops.attn.lsh_attention(*given).mul(2), fullgraph=True, dynamic=True, backend=counting
    )
    for length in (13, 22, 40):
        given = arguments("trax", length=length, lengths=(length, 6))
        for found, expected in zip(
            results(compiled, *given), results(lambda *a: torch.ops.attn.lsh_attention(*a).mul(2), *given)
        ):
            torch.testing.assert_close(found, expected)
    assert graphs == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_meta_tensors_give_shapes_and_dtypes(dtype):
    given = arguments("trax", device="meta", dtype=dtype)
    output = torch.ops.attn.lsh_attention(*given)
    assert (output.shape, output.dtype, output.device.type) == ((2, 2, 13, 3), dtype, "meta")
    gradients = torch.autograd.grad(output.sum(), given[:2])
    assert [g.shape for g in gradients] == [x.shape for x in given[:2]]
    _, log_sum_exp, order = torch.ops.attn._lsh_attention(*given)
    assert (log_sum_exp.shape, log_sum_exp.dtype) == ((2, 2, ROUNDS, 13), torch.float64)
    assert (order.shape, order.dtype) == ((2, 2, ROUNDS, 13), torch.int64)


def test_the_last_arguments_have_defaults():
    qk, v, rotations, chunk, *_ = arguments("trax")
    expected = torch.ops.attn.lsh_attention(qk, v, rotations, chunk, True, None, "trax", None)
    assert torch.equal(torch.ops.attn.lsh_attention(qk, v, rotations, chunk, True), expected)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({0: torch.zeros(3, 4)}, r"qk has shape \[3, 4\], expected \[batch, heads, length, dim\]"),
        ({1: torch.zeros(2, 2, 13, 3)}, "v is float32 but qk is float64"),
        ({2: torch.zeros(4, 2, 3)}, "rotations has dim 4, expected 5 as in qk"),
        ({3: 0}, "chunk = 0, expected at least 1"),
        ({5: torch.tensor([1, 2, 3])}, r"key_lengths has shape \[3\], expected \[batch\] = \[2\]"),
        ({6: "reformer"}, "profile = 'reformer', expected 'trax' or 'fast-transformers'"),
        ({7: [4, 4]}, "rotations have 3 columns, expected 4"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_errors_that_name_them(changed, message):
    given = list(arguments("trax"))
    for index, value in changed.items():
        given[index] = value
    with pytest.raises(ValueError, match="lsh_attention: " + message):
        torch.ops.attn.lsh_attention(*given)


@pytest.mark.parametrize("implementation", ["auto", "composed"])
@pytest.mark.parametrize("profile", PROFILES)
def test_autocast_changes_nothing(profile, implementation):
    """The composed form consists of products, which autocast would compute in bfloat16."""
    given = arguments(profile, dtype=torch.float32, length=33)
    inputs = given[:2]

    def run():
        output = torch.ops.attn.lsh_attention(*given, implementation=implementation)
        return output, *torch.autograd.grad(output.square().sum(), inputs)

    assert all(tensor.dtype == torch.float32 for tensor in run())
    expect_unchanged_by_autocast(run)


def test_a_call_in_inference_mode_leaves_later_calls_able_to_train(build):  # noqa: ARG001
    from attnbench import functional

    qk, v = torch.randn(1, 2, 12, 6), torch.randn(1, 2, 12, 3)
    with torch.inference_mode():
        functional.lsh_attention(qk, v, seed=424242)
    functional.lsh_attention(qk.requires_grad_(), v, seed=424242).sum().backward()
    assert qk.grad.isfinite().all()
