"""The scan and the decoding step of Mamba-2."""

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import silu

from attnbench.recurrent._rule import Group, apply_rule, refuse, softplus, widened


def mamba_chunk_scan_combined(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
    *,
    implementation: str = "auto",
    cp_group: Group = None,
    **others: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """Mamba-2's scan (https://arxiv.org/abs/2405.21060): `chunk_simple_gla` with q = C, k = B, v = x·dt,
    g = A·dt and scale 1. D·x is added to its output, and the sum is multiplied by silu(z).

    Args:
        x: [B,L,H,P]; dt: [B,L,H]; A: [H]; B and C: [B,L,G,N], where G divides H.
        chunk_size: is ignored, since it does not change the result.
        D: [H] or [H,P]; z: as x; dt_bias: [H], is added to dt.
        initial_states: [B,H,P,N].
        seq_idx: integers [B,L]; a new sequence, whose state is zero, begins wherever the number changes.
        dt_softplus: whether dt, with dt_bias, is replaced by its softplus.
        dt_limit: the range to which dt is then clamped.

    Returns:
        The output [B,L,H,P], and with return_final_states also the states [B,H,P,N] after the last
        position of each batch entry, in the dtype that attnbench.recurrent says.
    """
    del chunk_size
    name = "mamba_chunk_scan_combined"
    varlen = return_varlen_states or None
    refuse(name, cu_seqlens=cu_seqlens, return_varlen_states=varlen, **others)
    step = widened(dt) if dt_bias is None else widened(dt) + widened(dt_bias)
    step = (softplus(step) if dt_softplus else step).clamp(*dt_limit)
    decay = step * widened(A)
    if seq_idx is not None:
        if seq_idx.shape != x.shape[:2]:
            raise ValueError(f"{name}: seq_idx has shape {list(seq_idx.shape)}, expected {list(x.shape[:2])}")
        begins = torch.nn.functional.pad(seq_idx[:, 1:] != seq_idx[:, :-1], (1, 0))
        if cp_group is not None:
            from attnbench.distributed._recurrent import begins_on_this_rank

            begins[:, 0] = begins_on_this_rank(seq_idx, cp_group)
        decay = decay.masked_fill(begins.unsqueeze(-1), -math.inf)  # clears the state
    output, states = apply_rule(
        C, B, (x * step.unsqueeze(-1)).to(x.dtype), g=decay, rule="add", scale=1.0, initial_state=initial_states,
        output_final_state=return_final_states, state_v_first=True, cu_seqlens=None, layout="bthk", implementation=implementation, cp_group=cp_group,
    )  # fmt: skip
    if D is not None:
        output = output + x * (D if D.dim() == 2 else D.unsqueeze(-1)).to(x.dtype)
    if z is not None:
        output = output * silu(z)
    return output if states is None else (output, states)


@torch.no_grad()
def selective_state_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    state_batch_indices: Tensor | None = None,
    *,
    implementation: Literal["auto", "composed"] = "auto",
) -> Tensor:
    """One decoding step of Mamba or Mamba-2: x [B,H,P] → [B,H,P]. Records no gradients.

    With δ = dt + dt_bias, or its softplus if dt_softplus is True, the state changes in place, and the
    output is read from the new state:

        state[p,n] ← e^(A[p,n] δ[p]) state[p,n] + δ[p] x[p] B[n]
        output[p] = (Σ_n state[p,n] C[n] + D[p] x[p]) · silu(z[p])

    Args:
        state: [R,H,P,N] with R = B, in any floating dtype.
        dt, z: [B,H,P]; A: [H,P,N]; D, dt_bias: [H,P]. Tensors that were made with expand() are not
            copied.
        B, C: [B,G,N], where G divides H.
        state_batch_indices: [B], for each batch entry the row of `state` that it uses, all different;
            R may be any number then. An entry with a negative index uses no row, and its output is 0.

    All tensors may also lack the axis H, and B and C the axis G; they are those of one head then.
    """
    if state.dim() == 3:
        heads = [None if t is None else t.unsqueeze(1) for t in (state, x, dt, z)]
        rows = [None if t is None else t.unsqueeze(0) for t in (A, D, dt_bias)]
        output: Tensor = torch.ops.attn.selective_state_step(
            *heads[:3], rows[0], B.unsqueeze(1), C.unsqueeze(1), rows[1], heads[3], rows[2], dt_softplus,
            None if state_batch_indices is None else state_batch_indices.to(torch.int64), implementation,
        )  # fmt: skip
        return output.squeeze(1)
    B, C = (t.unsqueeze(1) if t.dim() == 2 else t for t in (B, C))
    output = torch.ops.attn.selective_state_step(
        state, x, dt, A, B, C, D, z, dt_bias, dt_softplus,
        None if state_batch_indices is None else state_batch_indices.to(torch.int64), implementation,
    )  # fmt: skip
    return output
