"""Sliding-window attention in PyTorch, as a method that attnbench measures.

    attnbench measure examples/sliding_window.py:sliding_window --query-len 4096 --causal

Each query sees itself and the `window - 1` positions before it. The sequence is cut into blocks of
`window` positions, so that a block of queries needs only its own keys and those of the block before.
"""

import attnbench
import torch
import torch.nn.functional as F


def reference(q, k, v, *, causal, rows, window):
    """The definition, for some rows: softmax attention over the keys in the window."""
    scores = q.index_select(2, rows) @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    distance = rows[:, None] - torch.arange(k.shape[2])
    hidden = (distance < 0) | (distance >= window)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v


def flops(problem, window):
    """Scores and weighted sums over two blocks of keys."""
    pairs = problem["batch"] * problem["heads"] * problem["query_len"] * 2 * window
    return 2.0 * pairs * (problem["head_dim"] + problem["value_dim"])


class Window:
    """A decoding state: the keys and values of the last `window` tokens, in a ring."""

    def __init__(self, problem, *, window):
        rows = (problem["batch"], problem["heads"], window)
        options = {"dtype": getattr(torch, problem["dtype"]), "device": problem["device"]}
        self.keys = torch.zeros(*rows, problem["head_dim"], **options)
        self.values = torch.zeros(*rows, problem["value_dim"], **options)
        self.window, self.count = window, 0

    def step(self, q, k, v):
        """Adds a token and returns its output."""
        place = self.count % self.window
        self.keys[:, :, place] = k[:, :, 0]
        self.values[:, :, place] = v[:, :, 0]
        self.count += 1
        known = min(self.count, self.window)
        return F.scaled_dot_product_attention(q, self.keys[:, :, :known], self.values[:, :, :known])


@attnbench.method(
    description="softmax attention over the last `window` positions",
    options={"window": {"min": 1, "max": 65536}},
    reference=reference,
    approximates="softmax",
    flops=flops,
    decode=Window,
    full=False,
    time_order="O(N)",
    memory_order="O(N)",
    decode_time_order="O(1)",
    decode_memory_order="O(1)",
    devices=["cpu"],
)
def sliding_window(q, k, v, *, causal, window=128):
    """q [B,H,N,D], k [B,H,N,D], v [B,H,N,M]; returns [B,H,N,M]."""
    length = q.shape[2]
    missing = -length % window
    blocks = (length + missing) // window
    q, k, v = (F.pad(x, (0, 0, 0, missing)).unflatten(2, (blocks, window)) for x in (q, k, v))
    # The keys of a block and of the block before it; before the first one there are none.
    k, v = (torch.cat([F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1], x], dim=3) for x in (k, v))
    query = torch.arange(window)[:, None] + window
    key = torch.arange(2 * window)
    visible = (key <= query) & (key > query - window)
    visible = visible.repeat(blocks, 1, 1)
    visible[0] &= key >= window
    output = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
    return output.flatten(2, 3)[:, :, :length].contiguous()
