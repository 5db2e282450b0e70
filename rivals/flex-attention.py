"""PyTorch's flex_attention, compiled. PyTorch has no backward of it on the CPU."""

import functools

import attnbench
import torch


def prepare(function, problem):
    """Compiles flex_attention and its mask for the problem's sizes. torch.compile compiles in the first call."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = None
    if problem["causal"]:
        mask = create_block_mask(
            lambda b, h, query, key: query >= key,
            None, None, problem["query_len"], problem["key_len"], device=problem["device"],
        )  # fmt: skip
    compiled = torch.compile(flex_attention, dynamic=False)
    sizes = [(problem["query_len"], problem["head_dim"]), (problem["key_len"], problem["head_dim"])]
    sizes.append((problem["key_len"], problem["value_dim"]))
    dtype = getattr(torch, problem["dtype"])
    q, k, v = (
        torch.zeros(problem["batch"], problem["heads"], *size, dtype=dtype, device=problem["device"])
        for size in sizes
    )
    with torch.no_grad():
        compiled(q, k, v, block_mask=mask)
    return functools.partial(attention, compiled=compiled, mask=mask)


def attention(q, k, v, *, causal, compiled, mask):
    """Calls what was compiled."""
    return compiled(q, k, v, block_mask=mask)


@attnbench.method(
    description="softmax attention by PyTorch's flex_attention, compiled",
    exact="softmax",
    setup=prepare,
    time_order="O(N²)",
    memory_order="O(N)",
    gradients=["cuda"],
)
def softmax(q, k, v, *, causal):
    """q and k [B,H,N,D], v [B,H,N,M]; `prepare` returns the function that is called instead."""
    raise RuntimeError("flex_attention was not prepared")
