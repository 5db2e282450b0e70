"""Tests of the operator attn::sparse_attention from Python: its registrations, gradients and
torch.compile, against PyTorch's own attention with a mask."""

import attnbench
import pytest
import torch
from conftest import expect_unchanged_by_autocast

pytestmark = pytest.mark.usefixtures("operators")


def inputs(dtype=torch.float64, length=13, heads=4, kv_heads=2, device="cpu"):
    """q, k, v and sinks, which need gradients."""
    generator = torch.Generator().manual_seed(length)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tensors = normal(2, heads, length, 5), normal(2, kv_heads, length, 5), normal(2, kv_heads, length, 3)
    sinks = normal(heads).to(device, torch.float64 if dtype == torch.float64 else torch.float32)
    return [*(x.to(device, dtype).requires_grad_() for x in tensors), sinks.requires_grad_()]


CASES = [
    pytest.param(causal, pattern, lengths, borders, id=name)
    for name, causal, pattern, lengths, borders in [
        ("all", False, "all", None, None),
        ("causal-window", True, "window:4", None, None),
        ("first-lengths", True, "window:3+first:2", (13, 6), None),
        ("global", False, "window:2+global:2", None, None),
        ("strided-packed", True, "strided:3", None, (0, 4, 13)),
        ("dilated", False, "dilated:2/3", (9, 0), None),
        ("block", True, "block:4/1", None, None),
    ]
]


def further(causal, pattern, lengths, borders):
    return (causal, pattern, lengths and torch.tensor(lengths), borders and torch.tensor(borders))


@pytest.mark.parametrize(("causal", "pattern", "lengths", "borders"), CASES)
def test_opcheck(causal, pattern, lengths, borders):
    given = (*inputs(), *further(causal, pattern, lengths, borders))
    torch.library.opcheck(torch.ops.attn.sparse_attention.default, given)


def test_opcheck_of_chosen_blocks():
    blocks = torch.tensor([0, 2, -1, 1, 0, 0, 2, 1, 1, 2, 2, 0, 1]).view(1, 1, 13, 1).expand(2, 2, 13, 1)
    q, k, v, sinks = inputs()
    torch.library.opcheck(
        torch.ops.attn.sparse_attention.default, (q, k, v, sinks, True, "all", None, None, None, "auto", blocks, 5)
    )


@pytest.mark.parametrize("causal", [False, True])
def test_chosen_blocks_are_those_of_a_mask(causal):
    q, k, v, _ = inputs()
    blocks = torch.randint(-1, 3, (2, 4, 13, 2), generator=torch.Generator().manual_seed(1))
    of_keys = torch.arange(13) // 5
    seen = (blocks.unsqueeze(-1) == of_keys).any(3)
    if causal:
        seen = seen & torch.ones(13, 13, dtype=torch.bool).tril()
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, seen, enable_gqa=True)
    expected = torch.where(seen.any(-1, keepdim=True), expected, 0)
    found = attnbench.sparse_attention(q, k, v, causal=causal, chosen_blocks=blocks, block=5)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(found.shape, dtype=torch.float64)
    for x, y in zip(*(torch.autograd.grad((o * weights).sum(), (q, k, v)) for o in (found, expected)), strict=True):
        torch.testing.assert_close(x, y.nan_to_num())


def test_opcheck_of_the_backward():
    q, k, v, sinks = (x.detach() for x in inputs())
    output, log_sum_exp = torch.ops.attn.sparse_attention(q, k, v, sinks, True, "window:4")
    given = (output, log_sum_exp, output, log_sum_exp, q, k, v, sinks, True, "window:4")
    torch.library.opcheck(torch.ops.attn._sparse_attention_backward.default, given)


@pytest.mark.parametrize("implementation", ["auto", "composed"])
@pytest.mark.parametrize(("causal", "pattern", "lengths", "borders"), CASES)
def test_gradcheck(causal, pattern, lengths, borders, implementation):
    rest = (*further(causal, pattern, lengths, borders), None, implementation)

    def both(*given):
        output, log_sum_exp = torch.ops.attn.sparse_attention(*given, *rest)
        return output, log_sum_exp.clamp_min(-100)

    assert torch.autograd.gradcheck(both, inputs())


def test_agrees_with_attention_of_pytorch_with_a_mask():
    q, k, v, _ = inputs(torch.float32, length=100, heads=2, kv_heads=2)
    i, j = torch.arange(100).unsqueeze(1), torch.arange(100).unsqueeze(0)
    visible = {
        "window:20": (i >= j) & (i - j < 20),
        "window:20+first:4": (i >= j) & ((i - j < 20) | (j < 4)),
        "strided:10": (i >= j) & ((i - j < 10) | ((i - j) % 10 == 0)),
        "dilated:4/5": (i >= j) & ((i - j) % 5 == 0) & (i - j < 20),
        "block:16/2": (i >= j) & ((i // 16 == j // 16) | (j % 16 >= 14)),
    }
    for pattern, mask in visible.items():
        found, _ = torch.ops.attn.sparse_attention(q, k, v, None, True, pattern)
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
        torch.testing.assert_close(found, expected)
        weights = torch.randn_like(expected)
        for mine, theirs in zip(
            torch.autograd.grad((found * weights).sum(), (q, k, v)), torch.autograd.grad((expected * weights).sum(), (q, k, v))
        ):
            torch.testing.assert_close(mine, theirs)


def test_a_second_derivative_is_refused():
    q, k, v, sinks = inputs()
    output, _ = torch.ops.attn.sparse_attention(q, k, v, sinks)
    (gradient,) = torch.autograd.grad(output.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="_sparse_attention_backward"):
        gradient.sum().backward()


def results(function, given):
    output, log_sum_exp = function(*given)
    return output, log_sum_exp, *torch.autograd.grad(output.square().sum() + log_sum_exp.sum(), given)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles(backend):
    torch._dynamo.reset()

    def attend(*given):
        return torch.ops.attn.sparse_attention(*given, True, "window:4")

    compiled = torch.compile(attend, fullgraph=True, backend=backend)
    for length in (13, 22):
        given = inputs(length=length)
        for found, expected in zip(results(compiled, given), results(attend, given)):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_meta_tensors_give_shapes_and_dtypes(dtype):
    output, log_sum_exp = torch.ops.attn.sparse_attention(*inputs(dtype, device="meta"))
    assert output.shape == (2, 4, 13, 3) and output.dtype == dtype
    assert log_sum_exp.shape == (2, 4, 13) and log_sum_exp.dtype == torch.float32


def test_autocast_changes_nothing():
    q, k, v, _ = (x.float() for x in inputs())
    expect_unchanged_by_autocast(lambda: torch.ops.attn.sparse_attention(q, k, v, None, True, "window:4")[0])


def test_wrong_arguments_are_errors_that_name_them():
    q, k, v, sinks = inputs()
    call = torch.ops.attn.sparse_attention
    for message, given in {
        "pattern = 'window:0': the window is out of range": (q, k, v, sinks, True, "window:0"),
        "pattern = 'slide:3', expected all, window:W": (q, k, v, sinks, True, "slide:3"),
        "q has heads 4, expected a divisor of": (q, k[:, :1].expand(-1, 6, -1, -1), v, None),
        "sinks is": (q, k, v, sinks[:2]),
        "key_lengths holds": (q, k, v, sinks, True, "all", torch.tensor([14, 3])),
        "cu_seqlens goes from": (q, k, v, sinks, True, "all", None, torch.tensor([0, 5])),
        "cu_seqlens does not go with key_lengths": (
            q, k, v, sinks, True, "all", torch.tensor([13, 3]), torch.tensor([0, 13]),
        ),
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call(*given)
    with pytest.raises(ValueError, match="sparse_attention has no implementation 'cuda'|implementation"):
        call(q, k, v, sinks, True, "all", None, None, None, "cuda")
