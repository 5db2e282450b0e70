"""Recurrent attention over a sequence that is split over the ranks of a process group.

The state S after a slice depends linearly on the state S₀ before it: S = A S₀ + E, where E is the state after
the slice if S₀ is zero. The transition A is 1 without decay, one number for each head if the state decays, a
diagonal [K] if each row of the state has its own decay, and a matrix [K,K] with the delta rule. The matrix is the
state that the operator leaves if v is 0 and the initial state is the identity. E and A are computed by passes of
the kernels that compute only the state. Ranks gather E and A of all slices. Each rank then computes its initial
state from those of the slices before its own, and its outputs as one process would. The gradient dS of a final
state goes the other way: dS₀ = Aᵀ dS + D, where D comes from the gradients of the slice's outputs.

A rank computes E and A only if other ranks need them. If the first sequence of a slice ends in it, or the last one
begins in it, the state after the slice does not depend on the state before it: A is 0 and is not computed. This is
always so for the first and the last rank.

In the shapes, B is the batch size, T the length of the slice, H the number of heads of q and k, W that of v, and K
and V are the dimensions of keys and values.
"""

import itertools
from dataclasses import astuple, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from attnbench.distributed._exchange import HEADER_BYTES, Ranks, check_header, number_of, packed, unpacked
from attnbench.recurrent._rule import wide_dtype, widened


@dataclass(frozen=True)
class Slice:
    """The sequences of which a rank holds positions, with these positions counted from the slice's first.

    Attributes:
        first, last: the first and the last of the packed sequences; 0 and 0 where sequences are not packed.
        borders: the positions at which they begin in the slice, followed by the one at which the last of them ends in it.
        carries_in: whether the first one begins on an earlier rank.
        carries_out: whether the last one continues on the next rank.
    """

    first: int
    last: int
    borders: tuple[int, ...]
    carries_in: bool
    carries_out: bool

    @property
    def is_passed_through(self) -> bool:
        """Whether the slice holds a single sequence, which begins before it and ends after it."""
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
    """The arguments of torch.ops.attn.recurrent_attention that are not tensors, in its order."""

    rule: str
    scale: float
    normalize: bool = False
    implementation: str = "auto"


@dataclass
class Call:
    """One call of the operator on this rank: the arguments that are not differentiable.

    Attributes:
        ranks: the ranks that make the call together.
        options: the options of the operator.
        slices: the slices of all ranks.
        sequences: the number of states over all ranks: the packed sequences, or the batch size.
        is_packed: whether sequences are packed.
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
        """The state of the first (row = 0) or last (row = -1) of this slice's sequences, [1,W,K,V]. Where sequences are not
        packed, all states, since each batch entry is one sequence that goes through all slices."""
        return states[[row]] if self.is_packed else states

    def with_carried(self, states: Tensor, row: int, carried: Tensor) -> Tensor:
        """The states of this slice's sequences, where `carried` replaces the first (row = 0) or last one (row = -1)."""
        if not self.is_packed:
            return carried
        states = states.clone()
        states[row] = carried[0]
        return states

    def of_slice(self, states: Tensor) -> Tensor:
        """The states of this slice's sequences, out of those of all sequences."""
        return states[self.slice.first : self.slice.last + 1] if self.is_packed else states

    def of_all(self, states: Tensor, but: int | None) -> Tensor:
        """The states of all sequences, with zeros for those that this slice does not have. `but` is the row of a state of this
        slice that becomes zero as well, 0 or -1, or None for none."""
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
    """As the operator torch.ops.attn.recurrent_attention, with its arguments, over the slices of all ranks of `group`: the output
    [B,W,T,V] of this slice and the final states [N,W,K,V] of the whole sequences, or None if wants_final is False."""
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
        presence_of_beta_or_an_initial_state=number_of(f"{beta is None}, {initial_state is None}"),
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
        wide = wide_dtype(q)
        initial_state = torch.zeros(call.sequences, v.shape[1], q.shape[3], v.shape[3], dtype=wide, device=q.device)
    output, final = _Split.apply(q, k, v, g, beta, initial_state, call)
    return output, final if wants_final else None


def _check(tensors: tuple[Tensor | None, ...], options: tuple[Any, ...]) -> None:
    """Raises ValueError for invalid arguments before any exchange, so that a rank does not wait for one that raised an error."""
    with torch.no_grad():
        try:
            torch.ops.attn._recurrent_attention(*(None if x is None else x.to("meta") for x in tensors), *options, False)
        except ValueError as error:
            assert tensors[0] is not None
            raise ValueError(str(error).replace("on meta", f"on {tensors[0].device}")) from None
        # Whether an implementation can run depends on the device too, which a meta tensor does not have; one position suffices.
        first = [None if x is None else x[:, :, :1] for x in tensors[:5]]
        if options[-1] != "auto":
            torch.ops.attn._recurrent_attention(*first, None, None, *options, False)


def begins_on_this_rank(seq_idx: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Whether a new sequence begins at the first position of this rank, bool [B]; False on rank 0. `seq_idx` [B,L] are the
    numbers of the sequences at the positions of this rank."""
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
    """The output of this slice, the states after it, and the checkpoints that the backward pass needs."""
    results: tuple[Tensor, Tensor, Tensor] = torch.ops.attn._recurrent_attention(
        q, k, v, g, beta, initial.contiguous(), call.local_borders(q), *astuple(call.options),
        call.records,
    )  # fmt: skip
    return results


# ---------------------------------------------------------------- slices


def _cut(part: slice, *tensors: Tensor | None) -> list[Any]:
    """The positions `part` of tensors [B,heads,T,…]."""
    return [None if x is None else x[:, :, part] for x in tensors]


def end_of_slice(
    options: Options, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The state after positions of one sequence if the state before them is zero, [B,W,K,V], and their transition, in a form that
    `apply` takes."""
    dim, columns = k.shape[3], v.shape[3]
    wide = wide_dtype(k)
    if options.rule == "add" and (g is None or g.dim() == 3):
        return _sum_of_products(_as_used(options, k), v, None if g is None else _sums_of_decays(g, behind=True)), _decay(k, g)
    if options.rule == "add":  # With a decay for each feature the operator is faster than a product of decayed keys and values.
        return _end_state(options, k, v, g, None, None), _decay(k, g)
    # One state computes both: its first V columns are the end state, and the other K columns the transition.
    start = torch.eye(dim, dim + columns, dtype=wide, device=k.device).roll(columns, 1).expand(v.shape[0], v.shape[1], -1, -1)
    values = torch.cat([v, v.new_zeros(*v.shape[:3], dim)], 3)
    final = _end_state(options, k, values, g, beta, start)
    return final[..., :columns].contiguous(), final[..., columns:].contiguous()


def end_from(
    options: Options, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor | None, initial: Tensor
) -> Tensor:
    """The state after positions of one sequence if the state before them is `initial`, [B,W,K,V]."""
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
    """The part of the initial state's gradient that comes from the outputs of positions of one sequence, [B,W,K,V], and the
    transition of these positions.

    With the delta rule an output is scale · (A_t S₀)ᵀ q_t plus terms that do not depend on S₀. The operator's outputs are
    scale · A_tᵀ q_t if v is 0 and the initial state is the identity, and the gradient is the sum of their outer products with the
    gradients of the outputs.
    """
    if options.rule == "add":
        decays = None if g is None else _sums_of_decays(g, behind=False)
        return _sum_of_products(_as_used(options, q), grad_output, decays) * options.scale, _decay(k, g)
    dim = k.shape[3]
    wide = wide_dtype(k)
    start = torch.eye(dim, dtype=wide, device=k.device).expand(*grad_output.shape[:2], -1, -1).contiguous()
    zeros = grad_output.new_zeros(*grad_output.shape[:3], dim)
    reads, transition, _ = torch.ops.attn._recurrent_attention(q, k, zeros, g, beta, start, None, *astuple(options), False)
    return _sum_of_products(reads, grad_output, None), transition


def _as_used(options: Options, x: Tensor) -> Tensor:
    """q or k as the recurrence uses it: with options.normalize divided by √(Σ x² + 1e-6), as the kernels do."""
    if not options.normalize:
        return x
    wide = widened(x)
    return wide * (wide.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def _transposed(transition: Tensor | None) -> Tensor | None:
    """The transposed transition, by which gradients of states are multiplied."""
    return transition.transpose(2, 3) if transition is not None and transition.dim() == 4 else transition


def _sums_of_decays(g: Tensor, *, behind: bool) -> Tensor:
    """For each position the sum of the gates up to and including it or, if `behind`, of those after it. They are float64, because
    sums over long sequences would lose digits in float32."""
    if not behind:
        return g.cumsum(2, dtype=torch.float64)
    later = torch.cat([g[:, :, 1:], torch.zeros_like(g[:, :, :1])], 2)
    return later.flip(2).cumsum(2, dtype=torch.float64).flip(2)


def _sum_of_products(a: Tensor, b: Tensor, decays: Tensor | None) -> Tensor:
    """Σ_t e^decay_t a_t b_tᵀ, [B,W,K,V], of a [B,H,T,K] and b [B,W,T,V]. The decays are logarithms, [B,W,T] or [B,W,T,K]."""
    wide = wide_dtype(a)
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
    """The transition of all positions with the rule "add": None for 1, [B,W], or [B,W,K] with a decay for each feature."""
    wide = wide_dtype(k)
    return None if g is None else g.sum(2, dtype=torch.float64).exp().to(wide)


def apply(transition: Tensor | None, state: Tensor) -> Tensor:
    """The product of a transition and a state [B,W,K,V]. Where the transition is the decay 0, the product is 0 even if the state is
    not finite."""
    if transition is None:
        return state
    if transition.dim() == 4:
        with torch.autocast(state.device.type, enabled=False):
            return transition @ state
    factors = transition[..., None, None] if transition.dim() == 2 else transition[..., None]
    return torch.where(factors == 0, torch.zeros_like(state), factors * state)


# ---------------------------------------------------------------- exchange


def _transition_shape(call: Call, k: Tensor, v: Tensor, g: Tensor | None) -> tuple[int, ...] | None:
    """The shape of a transition; None if it is 1 and is not sent."""
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
    """Gathers the states and transitions of all ranks, and computes from those of the ranks before this one the state before its
    slice or, if `backward`, from those of the ranks after this one the gradient of the state after its slice.

    A `state` or `transition` of None is sent as zeros; `like` has the shape and dtype of the states.
    """
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
    """The bytes that each rank passes to collectives in one call of a recurrent operator: those of a header, and in each pass of
    its state and its transition.

    Args:
        batch: the batch size; 1 for packed sequences.
        heads: the number of heads of v.
        dim, value_dim: the dimensions of keys and of values.
        transition: "one" without decay, "number" for a decay of each head, "diagonal" for a decay of each feature of the keys,
            "matrix" for the delta rule.
        item_bytes: the bytes of a number of a state.
        backward: whether there is a backward pass as well.
        final_states: the number of sequences, over all ranks, if final states are wanted, and 0 if not.
    """
    numbers = {"one": 0, "number": 1, "diagonal": dim, "matrix": dim * dim}[transition]
    state = heads * dim * value_dim
    return HEADER_BYTES + (2 if backward else 1) * item_bytes * (batch * (state + heads * numbers) + final_states * state)
