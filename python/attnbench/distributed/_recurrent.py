"""Recurrent attention over a sequence that is split over the ranks of a process group.

The state S behind a slice depends linearly on the state S₀ before it: S = A S₀ + E, where E is the state that
the slice leaves if it begins with zero. The transition A is 1 where nothing decays, a number for each head or a
diagonal where the state or its rows do, and a matrix [K,K] by the delta rule, namely the state that the operator
leaves if v is 0 and the identity is the initial state. Of these passes kernels compute the state alone. Ranks gather E and A of all slices, each rank folds those
of the slices before its own into its initial state, and then computes its outputs as one process would. The
gradient dS of a final state travels the other way: dS₀ = Aᵀ dS + D, where D comes from the slice's outputs.

A rank exchanges only what others need. A slice that holds the end of its first sequence, or the beginning of its
last one, separates the states before and behind it, so that its transition is 0 and is not computed; the first
rank and the last one are such slices.
"""

import itertools
from dataclasses import astuple, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from attnbench.distributed._exchange import HEADER_BYTES, Ranks, check_header, number_of, packed, unpacked


@dataclass(frozen=True)
class Slice:
    """The sequences of which a rank holds positions, with these positions counted from the slice's first.

    Attributes:
        first, last: the first and the last of the packed sequences; 0 and 0 where sequences are not packed.
        borders: where they begin in the slice, and where the last one ends in it.
        carries_in: whether the first one began on a rank before.
        carries_out: whether the last one goes on on the next rank.
    """

    first: int
    last: int
    borders: tuple[int, ...]
    carries_in: bool
    carries_out: bool

    @property
    def is_passed_through(self) -> bool:
        """Whether one sequence begins before the slice and ends behind it."""
        return self.carries_in and self.carries_out and len(self.borders) == 2


def slices_of(cu_seqlens: list[int] | None, length: int, ranks: int) -> list[Slice]:
    """The slices, each `length` long, of all ranks. `cu_seqlens` are the borders of all packed sequences."""
    if cu_seqlens is None:
        return [Slice(0, 0, (0, length), rank > 0, rank < ranks - 1) for rank in range(ranks)]
    found = []
    for rank in range(ranks):
        begin, end = rank * length, (rank + 1) * length
        # An empty sequence belongs to the rank of the position before which it stands, at the very end to the last rank.
        inside = [
            i
            for i, (a, b) in enumerate(itertools.pairwise(cu_seqlens))
            if (a < end and b > begin) or (a == b and (begin <= a < end or (a == end and rank == ranks - 1)))
        ]
        first, last = inside[0], inside[-1]
        borders = tuple(min(max(border, begin), end) - begin for border in cu_seqlens[first : last + 2])
        found.append(Slice(first, last, borders, cu_seqlens[first] < begin, cu_seqlens[last + 1] > end))
    return found


@dataclass(frozen=True)
class Options:
    """Arguments of torch.ops.attn.recurrent_attention that are no tensors."""

    rule: str
    scale: float
    normalize: bool = False
    implementation: str = "auto"


@dataclass
class Call:
    """One call of the operator on this rank: the arguments that are not differentiable.

    Attributes:
        options: those of the operator.
        slices: those of all ranks.
        sequences: how many states there are, over all ranks.
        records: whether there will be a backward pass.
        wants_final: whether final states are wanted.
    """

    ranks: Ranks
    options: Options
    slices: list[Slice]
    sequences: int
    is_packed: bool
    records: bool
    wants_final: bool

    @property
    def slice(self) -> Slice:
        return self.slices[self.ranks.rank]

    def local_borders(self, like: Tensor) -> Tensor | None:
        return torch.tensor(self.slice.borders, device=like.device) if self.is_packed else None

    def carried(self, states: Tensor, row: int) -> Tensor:
        """Of the states of this slice's sequences that of the first (0) or the last one (-1); all where sequences
        are not packed, because they are those of a batch then."""
        return states[[row]] if self.is_packed else states

    def with_carried(self, states: Tensor, row: int, carried: Tensor) -> Tensor:
        """The states of this slice's sequences with another first (0) or last one (-1)."""
        if not self.is_packed:
            return carried
        states = states.clone()
        states[row] = carried[0]
        return states

    def of_slice(self, states: Tensor) -> Tensor:
        """Of the states of all sequences those of this slice."""
        return states[self.slice.first : self.slice.last + 1] if self.is_packed else states

    def of_all(self, states: Tensor, but: int | None) -> Tensor:
        """The states of all sequences, with zeros for those that this slice does not have; `but` is one that does
        not count, 0 or -1, or None."""
        if not self.is_packed:
            return states if but is None else torch.zeros_like(states)
        found = states.new_zeros(self.sequences, *states.shape[1:])
        found[self.slice.first : self.slice.last + 1] = states
        if but is not None:
            found[self.slice.first if but == 0 else self.slice.last] = 0
        return found


@torch.compiler.disable
def recurrent_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    beta: Tensor | None,
    initial_state: Tensor | None,
    cu_seqlens: Tensor | None,
    rule: str,
    scale: float | None,
    normalize: bool,
    implementation: str,
    group: dist.ProcessGroup,
    wants_final: bool,
) -> tuple[Tensor, Tensor | None]:
    """As the operator torch.ops.attn.recurrent_attention, whose arguments these are, over the slices of all
    ranks of `group`. The final states are None unless they are wanted."""
    ranks = Ranks("recurrent attention", group)
    arguments = (q, k, v, g, beta, initial_state, cu_seqlens)
    _check(arguments, (rule, scale, normalize, implementation))
    length = q.shape[2]
    tensors = [q, k, v, *(x for x in (g, beta, initial_state) if x is not None)]
    records = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    borders = None if cu_seqlens is None else cu_seqlens.tolist()
    scale = q.shape[3] ** -0.5 if scale is None else scale
    check_header(
        ranks, q.device, length=length, rule=number_of(rule), batch=q.shape[0], heads_of_q=q.shape[1], heads_of_v=v.shape[1],
        dim_of_q=q.shape[3], dim_of_v=v.shape[3], dtype=number_of(str(q.dtype)), axes_of_the_gates=0 if g is None else g.dim(),
        scale=number_of(f"{scale}"), normalisation=int(normalize), cu_seqlens=number_of(str(borders)),
        wish_for_final_states=int(wants_final), recording_of_gradients=int(records),
    )  # fmt: skip
    if borders is not None and (borders[0] != 0 or borders[-1] != ranks.size * length or borders != sorted(borders)):
        raise ValueError(
            f"{ranks.function}: cu_seqlens goes from {borders[0]} to {borders[-1]}, expected to rise from 0 to "
            f"{ranks.size * length}, which {ranks.size} slices of {length} positions have"
        )
    if length == 0:
        raise ValueError(f"{ranks.function}: the slices have length 0, expected at least 1")
    call = Call(
        ranks, Options(rule, scale, normalize, implementation), slices_of(borders, length, ranks.size),
        q.shape[0] if borders is None else len(borders) - 1, borders is not None, records, wants_final,
    )  # fmt: skip
    if initial_state is None:
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        initial_state = torch.zeros(call.sequences, v.shape[1], q.shape[3], v.shape[3], dtype=wide, device=q.device)
    output, final = _Split.apply(q, k, v, g, beta, initial_state, call)
    return output, final if wants_final else None


def _check(tensors: tuple[Tensor | None, ...], options: tuple[Any, ...]) -> None:
    """Raises ValueError for wrong arguments, so that ranks that are all wrong do not wait for each other."""
    with torch.no_grad():
        try:
            torch.ops.attn._recurrent_attention(*(None if x is None else x.to("meta") for x in tensors), *options, False)
        except ValueError as error:
            assert tensors[0] is not None
            raise ValueError(str(error).replace("on meta", f"on {tensors[0].device}")) from None
        # Which implementations there are depends on dtypes, dimensions and the device.
        first = [None if x is None else x[:, :, :1] for x in tensors[:5]]
        if options[-1] != "auto":
            torch.ops.attn._recurrent_attention(*first, None, None, *options, False)


def begins_on_this_rank(seq_idx: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Whether a sequence begins with the first position of this rank: bool [B] of the numbers [B,L] of the sequences."""
    ranks = Ranks("recurrent attention", group)
    check_header(ranks, seq_idx.device, length=seq_idx.shape[1], batch=seq_idx.shape[0], dtype_of_seq_idx=number_of(str(seq_idx.dtype)))
    last = ranks.all_gather("numbers of sequences", seq_idx[:, -1])
    return torch.zeros_like(seq_idx[:, 0], dtype=torch.bool) if ranks.rank == 0 else last[ranks.rank - 1] != seq_idx[:, 0]


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor | None,
        beta: Tensor | None,
        initial_state: Tensor,
        call: Call,
    ) -> tuple[Tensor, Tensor]:
        here = call.slice
        initial = call.of_slice(initial_state)
        if here.carries_in:
            initial = call.with_carried(initial, 0, torch.zeros_like(call.carried(initial, 0)))
        end: Tensor | None = None
        transition: Tensor | None = None
        if here.carries_out:
            last = _cut(slice(here.borders[-2], here.borders[-1]), k, v, g, beta)
            if here.is_passed_through:
                end, transition = end_of_slice(call.options, *last)
            else:
                end = end_from(call.options, *last, call.carried(initial, -1))
        state = _exchange(call, "states", end, transition, _transition_shape(call, k, v, g), initial, backward=False)
        if here.carries_in:
            initial = call.with_carried(initial, 0, state)
        output, final, checkpoints = _attend(call, q, k, v, g, beta, initial)
        if call.records:
            ctx.call = call
            ctx.save_for_backward(q, k, v, g, beta, initial, checkpoints, transition if here.is_passed_through else None)
        if call.wants_final:
            final = call.ranks.sum_up("final states", call.of_all(final, -1 if here.carries_out else None))
        return output, final

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: Tensor, grad_final: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, g, beta, initial, checkpoints, transition = ctx.saved_tensors
        call: Call = ctx.call
        here = call.slice
        if call.wants_final:
            grads = call.of_slice(call.ranks.sum_up("gradients of final states", grad_final.to(initial.dtype)))
        else:
            grads = torch.zeros_like(initial)
        if here.carries_out:
            grads = call.with_carried(grads, -1, torch.zeros_like(call.carried(grads, -1)))

        begin: Tensor | None = None
        if here.carries_in:
            begin, of_first = gradient_of_begin(call.options, *_cut(slice(0, here.borders[1]), q, k, grad_output, g, beta))
            if not here.is_passed_through:
                begin = begin + apply(_transposed(of_first), call.carried(grads, 0))
        transition = _transposed(transition)
        grad = _exchange(call, "gradients of states", begin, transition, _transition_shape(call, k, v, g), initial, backward=True)
        if here.carries_out:
            grads = call.with_carried(grads, -1, grad)
        found: list[Tensor] = torch.ops.attn._recurrent_attention_backward(
            checkpoints, grad_output, grads.contiguous(), q, k, v, g, beta, initial, call.local_borders(q),
            *astuple(call.options),
        )  # fmt: skip
        given = [None if x is None else y for x, y in zip((g, beta), found[3:5], strict=True)]
        return *found[:3], *given, call.of_all(found[5], 0 if here.carries_in else None), None


def _attend(
    call: Call, q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor | None, initial: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The output of this slice, the states behind it, and what the backward pass needs."""
    results: tuple[Tensor, Tensor, Tensor] = torch.ops.attn._recurrent_attention(
        q, k, v, g, beta, initial.contiguous(), call.local_borders(q), *astuple(call.options),
        call.records,
    )  # fmt: skip
    return results


# ---------------------------------------------------------------- slices


def _cut(part: slice, *tensors: Tensor | None) -> list[Any]:
    return [None if x is None else x[:, :, part] for x in tensors]


def end_of_slice(
    options: Options, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The state that positions of one sequence leave if it begins with zero, [B,W,K,V], and their transition, as `apply` takes
    it."""
    dim, columns = k.shape[3], v.shape[3]
    wide = torch.float64 if k.dtype == torch.float64 else torch.float32
    if options.rule == "add" and (g is None or g.dim() == 3):
        return _sum_of_products(k, v, None if g is None else _sums_of_decays(g, behind=True)), _decay(k, g)
    if options.rule == "add":  # The operator takes less time than a product with all decays of all features.
        return _end_state(options, k, v, g, None, None), _decay(k, g)
    # Both are columns of one state.
    start = torch.eye(dim, dim + columns, dtype=wide, device=k.device).roll(columns, 1).expand(v.shape[0], v.shape[1], -1, -1)
    values = torch.cat([v, v.new_zeros(*v.shape[:3], dim)], 3)
    final = _end_state(options, k, values, g, beta, start)
    return final[..., :columns].contiguous(), final[..., columns:].contiguous()


def end_from(
    options: Options, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor | None, initial: Tensor
) -> Tensor:
    """The state that positions of one sequence leave if it begins with `initial`, [B,W,K,V]."""
    if options.rule == "delta":
        return _end_state(options, k, v, g, beta, initial)
    end, transition = end_of_slice(options, k, v, g, beta)
    return end + apply(transition, initial)


def _end_state(
    options: Options, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor | None, initial: Tensor | None
) -> Tensor:
    """The final state of the operator, without its outputs."""
    end: Tensor = torch.ops.attn._recurrent_end_state(
        k, v, g, beta, None if initial is None else initial.contiguous(), options.rule, options.normalize, options.implementation
    )
    return end


def gradient_of_begin(
    options: Options, q: Tensor, k: Tensor, grad_output: Tensor, g: Tensor | None, beta: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The gradient of the initial state that the outputs of one sequence cause, [B,W,K,V], and the sequence's transition.

    By the delta rule an output is (A_t S₀)ᵀ q_t and what does not depend on S₀. The operator gives A_tᵀ q_t as its outputs if v is
    0 and the identity is the initial state, and their products with the gradients of the outputs add up.
    """
    if options.rule == "add":
        return _sum_of_products(q, grad_output, None if g is None else _sums_of_decays(g, behind=False)) * options.scale, _decay(k, g)
    dim = k.shape[3]
    wide = torch.float64 if k.dtype == torch.float64 else torch.float32
    start = torch.eye(dim, dtype=wide, device=k.device).expand(*grad_output.shape[:2], -1, -1).contiguous()
    zeros = grad_output.new_zeros(*grad_output.shape[:3], dim)
    reads, transition, _ = torch.ops.attn._recurrent_attention(q, k, zeros, g, beta, start, None, *astuple(options), False)
    return _sum_of_products(reads, grad_output, None), transition


def _transposed(transition: Tensor | None) -> Tensor | None:
    """A transition as gradients go through it."""
    return transition.transpose(2, 3) if transition is not None and transition.dim() == 4 else transition


def _sums_of_decays(g: Tensor, *, behind: bool) -> Tensor:
    """The sums of the gates up to each position, or of those behind it; float64, so that sums over long sequences
    keep their digits."""
    if not behind:
        return g.cumsum(2, dtype=torch.float64)
    later = torch.cat([g[:, :, 1:], torch.zeros_like(g[:, :, :1])], 2)
    return later.flip(2).cumsum(2, dtype=torch.float64).flip(2)


def _sum_of_products(a: Tensor, b: Tensor, decays: Tensor | None) -> Tensor:
    """Σ e^decay_t a_t b_tᵀ of a [B,H,T,K] and b [B,W,T,V], where the decays are [B,W,T] or [B,W,T,K]."""
    wide = torch.float64 if a.dtype == torch.float64 else torch.float32
    batch, heads, length, dim = a.shape
    groups = b.shape[1] // heads
    a = a.to(wide).unsqueeze(2)
    b = b.to(wide).reshape(batch, heads, groups, length, -1)
    if decays is not None:
        weights = decays.to(wide).exp()
        if weights.dim() == 4:
            a = a * weights.reshape(batch, heads, groups, length, dim)
        else:
            b = b * weights.reshape(batch, heads, groups, length, 1)
    with torch.autocast(a.device.type, enabled=False):
        product = a.transpose(3, 4) @ b
    return product.reshape(batch, heads * groups, dim, -1)


def _decay(k: Tensor, g: Tensor | None) -> Tensor | None:
    """By the rule "add" the transition of positions: None for 1, [B,W], or [B,W,K] with a decay for each feature."""
    wide = torch.float64 if k.dtype == torch.float64 else torch.float32
    return None if g is None else g.sum(2, dtype=torch.float64).exp().to(wide)


def apply(transition: Tensor | None, state: Tensor) -> Tensor:
    """The transition of a state [B,W,K,V]; a decay of 0 clears it whatever it is."""
    if transition is None:
        return state
    if transition.dim() == 4:
        with torch.autocast(state.device.type, enabled=False):
            return transition @ state
    factors = transition[..., None, None] if transition.dim() == 2 else transition[..., None]
    return torch.where(factors == 0, torch.zeros_like(state), factors * state)


# ---------------------------------------------------------------- exchange


def _transition_shape(call: Call, k: Tensor, v: Tensor, g: Tensor | None) -> tuple[int, ...] | None:
    """The shape of a transition; None where it is 1."""
    rows, dim = (1 if call.is_packed else k.shape[0], v.shape[1]), k.shape[3]
    if call.options.rule == "delta":
        return (*rows, dim, dim)
    if g is None:
        return None
    return rows if g.dim() == 3 else (*rows, dim)


def _exchange(
    call: Call,
    what: str,
    state: Tensor | None,
    transition: Tensor | None,
    transition_shape: tuple[int, ...] | None,
    like: Tensor,
    *,
    backward: bool,
) -> Tensor:
    """Gathers states and transitions, and folds those of the ranks before this one into its initial state, or those
    of the ranks behind it into the gradient of its final state. What this rank does not have is sent as zeros."""
    ranks, here = call.ranks, call.slice
    mine = [torch.zeros_like(call.carried(like, 0)) if state is None else state]
    if transition_shape is not None:
        mine.append(like.new_zeros(transition_shape) if transition is None or not here.is_passed_through else transition)
    gathered = unpacked(ranks.all_gather(what, packed(mine)), mine)
    result = torch.zeros_like(mine[0])
    others = range(ranks.size - 1, ranks.rank, -1) if backward else range(ranks.rank)
    for rank in others:
        found, step = gathered[rank][0], call.slices[rank]
        result = found + apply(gathered[rank][1] if transition_shape else None, result) if step.is_passed_through else found
    return result


def payload_bytes(
    *,
    batch: int,
    heads: int,
    dim: int,
    value_dim: int,
    transition: str,
    item_bytes: int,
    backward: bool = False,
    final_states: int = 0,
) -> int:
    """What each rank hands to collectives in one call: a header, and in each pass its state and its transition.

    Args:
        batch: of sequences that are not packed, and 1 of packed ones.
        heads: those of v.
        transition: "one", "number" or "diagonal" of each head, or "matrix".
        item_bytes: of a number of a state.
        backward: whether there is a backward pass as well.
        final_states: how many final states are wanted over all ranks; they are sums over the ranks.
    """
    numbers = {"one": 0, "number": 1, "diagonal": dim, "matrix": dim * dim}[transition]
    state = heads * dim * value_dim
    return HEADER_BYTES + (2 if backward else 1) * item_bytes * (batch * (state + heads * numbers) + final_states * state)
