"""Softmax attention over a sequence that is split over the ranks of a process group: a ring of keys and values.

Each rank keeps its queries. In each step it passes the keys and values that it holds on to the next rank, until
every rank has held those of all ranks. The results for the keys of the single steps are combined by means of their
log-sum-exp (Ring Attention, https://arxiv.org/abs/2310.01889). With the causal mask the sequence is cut into 2R
pieces for R ranks, and rank r holds pieces r and 2R − 1 − r, so that all ranks have the same work in every step.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from attnbench.distributed._exchange import HEADER_BYTES, Ranks, check_header, count, number_of
from attnbench.recurrent._rule import wide_dtype


def zigzag(length: int, rank: int, ranks: int) -> Tensor:
    """The positions of a sequence that a rank holds in causal softmax attention: int64 [length/ranks].

    Raises ValueError if the length is not a multiple of 2 · ranks.
    """
    if length % (2 * ranks):
        raise ValueError(f"the length {length} is not a multiple of {2 * ranks}, twice the number of ranks")
    piece = length // (2 * ranks)
    positions = torch.arange(piece)
    return torch.cat([positions + rank * piece, positions + (2 * ranks - 1 - rank) * piece])


def ring_payload_bytes(
    *,
    batch: int,
    key_heads: int,
    length: int,
    dim: int,
    value_dim: int,
    ranks: int,
    item_bytes: int,
    gradient_item_bytes: int,
    backward: bool = False,
) -> int:
    """The bytes that each rank sends in one call: those of a header, of keys and values in ranks − 1 steps of each pass, and of
    their gradients in as many steps of the backward pass as there are ranks. A single rank sends only the header.

    Args:
        batch: the batch size.
        key_heads: the number of heads of k and v.
        length: the number of keys of a slice.
        dim, value_dim: the dimensions of keys and of values.
        ranks: the number of ranks.
        item_bytes: the bytes of a number of k and v.
        gradient_item_bytes: the bytes of a number of their gradients, which are accumulated in float32, or in float64 for float64.
        backward: whether there is a backward pass as well.
    """
    numbers = batch * key_heads * length * (dim + value_dim)
    steps = (ranks - 1) * item_bytes * numbers
    of_gradients = ranks * gradient_item_bytes * numbers if ranks > 1 else 0
    return HEADER_BYTES + (2 * steps + of_gradients if backward else steps)


@torch.compiler.disable
def ring_attention(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, causal: bool, scale: float | None, implementation: str,
    group: dist.ProcessGroup,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As torch.ops.attn.sparse_attention with the pattern "all", over the slices of all ranks of `group`: the output [B,H,N,M] and
    the log-sum-exp [B,H,N] of the queries of this rank. Raises ValueError for the composed implementation and off the CPU."""
    ranks = Ranks("sparse_attention", group)
    if implementation == "composed" or q.device.type != "cpu":
        raise ValueError(
            f"sparse_attention: cp_group needs the kernels for CPUs, which can compute gradients for a part of the keys; got "
            f"implementation = {implementation!r} on {q.device}"
        )
    # Invalid arguments must be refused before any exchange, so that a rank does not wait for one that raised an error.
    with torch.no_grad():
        shapes = [None if x is None else x.to("meta") for x in (q, k, v, sinks)]
        torch.ops.attn.sparse_attention(*shapes, False, "all", None, None, scale, implementation)
    records = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k, v, sinks))
    check_header(
        ranks, q.device, length=q.shape[2], length_of_k=k.shape[2], batch=q.shape[0], heads_of_q=q.shape[1],
        heads_of_k=k.shape[1], heads_of_v=v.shape[1], dim_of_q=q.shape[3], dim_of_v=v.shape[3], dtype=number_of(str(q.dtype)),
        causal_mask=int(causal), scale=number_of(f"{scale}"), sinks=int(sinks is not None), recording_of_gradients=int(records),
    )  # fmt: skip
    if causal and (q.shape[2] != k.shape[2] or q.shape[2] % 2):
        raise ValueError(
            f"sparse_attention: the slices of q and k have lengths {q.shape[2]} and {k.shape[2]}; causal=True with cp_group needs "
            "equal and even lengths, because each slice consists of two pieces"
        )
    results: tuple[Tensor, Tensor] = _Ring.apply(q, k, v, sinks, causal, scale, implementation, ranks)
    return results


class _Part:
    """The queries of this rank that see keys of the rank `source`, and the keys that they see, as slices of positions."""

    def __init__(self, ranks: Ranks, source: int, causal: bool, length: int) -> None:
        half, every = length // 2, slice(None)
        self.is_own = source == ranks.rank
        self.queries = self.keys = every
        if causal and source < ranks.rank:
            self.keys = slice(0, half)  # The second piece of `source` comes after both pieces of this rank.
        elif causal and source > ranks.rank:
            self.queries = slice(half, length)  # Both pieces of `source` lie between the pieces of this rank.


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, causal: bool, scale: float | None, implementation: str,
        ranks: Ranks,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        wide = wide_dtype(q)
        output = log_sum_exp = torch.empty(0)
        for part, (keys, values) in _parts(ranks, causal, [k, v]):
            found, found_sum = torch.ops.attn.sparse_attention(
                q[:, :, part.queries], keys[:, :, part.keys], values[:, :, part.keys], sinks if part.is_own else None,
                causal and part.is_own, "all", None, None, scale, implementation,
            )  # fmt: skip
            if part.is_own:
                output, log_sum_exp = found.to(wide), found_sum
            else:
                _join(output[:, :, part.queries], log_sum_exp[:, :, part.queries], found, found_sum)
        output = output.to(q.dtype)
        ctx.save_for_backward(q, k, v, sinks, output, log_sum_exp)
        ctx.options = causal, scale, implementation, ranks
        return output, log_sum_exp

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: Tensor, grad_log_sum_exp: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, sinks, output, log_sum_exp = ctx.saved_tensors
        causal, scale, implementation, ranks = ctx.options
        wide = wide_dtype(q)
        grad_q = torch.zeros_like(q, dtype=wide)
        grad_sinks = None
        # The gradients of keys and values follow these around the ring, one step behind, until they are back on their rank.
        grads = [torch.zeros_like(x, dtype=wide) for x in (k, v)]
        for part, (keys, values) in _parts(ranks, causal, [k, v]):
            if not part.is_own:
                grads = _Messages(ranks, grads).received()
            rows = part.queries
            # The kernels compute weights as e^(score − log-sum-exp), so with the log-sum-exp over all keys they give the right
            # gradients for these keys.
            found = torch.ops.attn._sparse_attention_backward(
                output[:, :, rows], log_sum_exp[:, :, rows], grad_output[:, :, rows], grad_log_sum_exp[:, :, rows], q[:, :, rows],
                keys[:, :, part.keys], values[:, :, part.keys], sinks if part.is_own else None, causal and part.is_own, "all", None, None,
                scale, implementation,
            )  # fmt: skip
            grad_q[:, :, rows] += found[0]
            for grad, of_part in zip(grads, found[1:3], strict=True):
                grad[:, :, part.keys] += of_part
            if part.is_own and sinks is not None:
                grad_sinks = found[3]
        grad_k, grad_v = grads if ranks.size == 1 else _Messages(ranks, grads).received()
        return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype), grad_sinks, None, None, None, None


def _parts(ranks: Ranks, causal: bool, tensors: list[Tensor]) -> Iterator[tuple[_Part, list[Tensor]]]:
    """The keys and values of each rank, those of this one first. The next ones are exchanged while the caller computes."""
    length = tensors[0].shape[2]
    for step in range(ranks.size):
        messages = _Messages(ranks, tensors) if step < ranks.size - 1 else None
        yield _Part(ranks, (ranks.rank - step) % ranks.size, causal, length), tensors
        if messages is not None:
            tensors = messages.received()


class _Messages:
    """An exchange in progress: tensors that are sent to the next rank of the ring, and tensors of the same shapes that are received
    from the rank before."""

    def __init__(self, ranks: Ranks, tensors: list[Tensor]) -> None:
        self.ranks = ranks
        self.sent = [x.contiguous() for x in tensors]
        self.found = [torch.empty_like(x) for x in self.sent]
        operations = []
        for sent, found in zip(self.sent, self.found, strict=True):
            count(sent)
            operations += [
                dist.P2POp(dist.isend, sent, ranks.peer(1), ranks.group),
                dist.P2POp(dist.irecv, found, ranks.peer(-1), ranks.group),
            ]
        with ranks.exchanging("keys and values"):
            self.works = dist.batch_isend_irecv(operations)

    def received(self) -> list[Tensor]:
        """The received tensors. Waits until the exchange is done."""
        with self.ranks.exchanging("keys and values"):
            for work in self.works:
                work.wait()
        return self.found


def _join(output: Tensor, log_sum_exp: Tensor, other: Tensor, other_sum: Tensor) -> None:
    """Combines the results so far with those for other keys, in place."""
    both = torch.logaddexp(log_sum_exp, other_sum)
    nothing = both == -torch.inf  # A row that has seen no key has the output 0.

    def share(part: Tensor) -> Tensor:
        return (part - both).exp().masked_fill(nothing, 0).unsqueeze(3)

    output.mul_(share(log_sum_exp)).add_(other * share(other_sum))
    log_sum_exp.copy_(both)
