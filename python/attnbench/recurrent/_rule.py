"""The call of torch.ops.attn.recurrent_attention, with which all functions of this package end, and what they share."""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Layout = Literal["bthk", "bhtk"]
Result = tuple[Tensor, Tensor | None]
Group: TypeAlias = "ProcessGroup | None"

_IGNORED = ("chunk_size", "chunk_indices", "cu_seqlens_cpu", "disable_recompute")


def refuse(function: str, **arguments: Any) -> None:
    """Raises ValueError if one of the `arguments`, which `function` does not support, is neither None nor False. Those that
    cannot change the result are ignored."""
    for name, value in arguments.items():
        if name not in _IGNORED and value is not None and value is not False:
            raise ValueError(f"{function}: the argument {name} is not supported, got {value!r}")


def apply_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    g: Tensor | None = None,
    beta: Tensor | None = None,
    rule: str,
    scale: float | None,
    initial_state: Tensor | None,
    output_final_state: bool,
    normalize: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None,
    layout: str,
    implementation: str,
    cp_group: Group,
) -> Result:
    """The output and the final state of the recurrence with the `rule` "add" or "delta". The documentation of attnbench.recurrent
    describes the other arguments; `normalize` is its use_qk_l2norm_in_kernel."""
    if layout not in ("bthk", "bhtk"):
        raise ValueError(f"layout = {layout!r}, expected 'bthk' or 'bhtk'")
    wide = wide_dtype(q)

    def heads_first(x: Tensor) -> Tensor:
        return x.transpose(1, 2) if layout == "bthk" else x

    def gate(x: Tensor | None) -> Tensor | None:
        return None if x is None else heads_first(x).to(wide)

    def transposed(state: Tensor) -> Tensor:
        return state.transpose(2, 3) if state_v_first else state

    arguments = (
        *map(heads_first, (q, k, v)),
        gate(g),
        gate(beta),
        None if initial_state is None else transposed(initial_state).to(wide),
        None if cu_seqlens is None else cu_seqlens.to(torch.int64),
        rule,
        scale,
        normalize,
        implementation,
    )
    if cp_group is None:
        output, final = torch.ops.attn.recurrent_attention(*arguments)
    else:
        from attnbench.distributed._recurrent import recurrent_attention

        output, final = recurrent_attention(*arguments, cp_group, output_final_state)
    return heads_first(output), transposed(final) if output_final_state else None


def wide_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which gates and states are computed: float64 for a float64 x, and float32 for others."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def widened(x: Tensor) -> Tensor:
    """x converted to wide_dtype(x)."""
    return x.to(wide_dtype(x))


def softplus(x: Tensor) -> Tensor:
    """ln(1 + e^x)."""
    # Not torch.nn.functional.softplus: under torch.compile its backward pass fails where the strides of its gradient differ from
    # those of its input (torch 2.11).
    return torch.logaddexp(x, x.new_zeros(()))


def check_feature_gates(function: str, name: str, g: Tensor) -> Tensor:
    """Returns g. Raises ValueError if it does not have 4 axes, of which the last are the features of the keys."""
    if g.dim() != 4:
        raise ValueError(f"{function}: {name} has shape {list(g.shape)}, expected 4 axes, of which the last are the features")
    return g
