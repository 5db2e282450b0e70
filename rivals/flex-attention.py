"""PyTorch's flex_attention, compiled, with the causal mask and patterns of visible keys. PyTorch has no backward of it on the CPU."""

import functools

import attnbench
import torch


def visible(pattern):
    """A function that says whether a query at position i sees key j by the pattern, as docs/patterns.md defines it."""
    main, _, more = pattern.partition("+")
    kind, _, numbers = main.partition(":")
    size, step = (*map(int, numbers.split("/")), 0)[:2] if numbers else (0, 0)
    first = int(more.partition(":")[2]) if more else size if kind == "global" else 0
    is_global = kind == "global" or more.startswith("global")

    def sees(i, j):
        distance = (i - j).abs()
        if kind == "window":
            seen = distance < size
        elif kind == "strided":
            seen = (distance < size) | (distance % size == 0)
        elif kind == "dilated":
            seen = (distance % step == 0) & (distance < size * step)
        elif kind == "block":
            seen = (i // size == j // size) | ((j // size < i // size) & (j % size >= size - step))
        else:
            seen = distance < 0
        if first:
            seen = seen | (j < first)
        return seen | (i < first) if is_global else seen

    return sees


def prepare(function, problem):
    """Compiles flex_attention and its mask for the problem's sizes. torch.compile compiles in the first call."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = None
    pattern, causal = problem["pattern"], problem["causal"]
    if causal or pattern != "all":
        shift = problem["key_len"] - problem["query_len"]
        sees = None if pattern == "all" else visible(pattern)

        def shown(b, h, query, key):
            place = query + shift
            if sees is None:
                return place >= key
            return sees(place, key) & (place >= key) if causal else sees(place, key)

        mask = create_block_mask(
            shown, None, None, problem["query_len"], problem["key_len"], device=problem["device"],
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


def attention(q, k, v, *, causal, pattern, compiled, mask):
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
def softmax(q, k, v, *, causal, pattern):
    """q and k [B,H,N,D], v [B,H,N,M]; `prepare` returns the function that is called instead."""
    raise RuntimeError("flex_attention was not prepared")
