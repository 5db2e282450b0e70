"""The short causal convolution of models with linear attention, under the names that models use.

`causal_conv1d_fn` and `causal_conv1d_update` have the names, arguments and defaults of those of the
package causal-conv1d, so that an import line is all that changes. They run on CPUs, by kernels with
a backward pass of their own, and elsewhere by PyTorch operations. B is the batch size, D the number
of channels, T the length and W the width of the convolution; each channel has its own weights:

    u[b,d,t] = bias[d] + Σ_i weight[d,i] · x[b,d,t−W+1+i], and the output is u or silu(u)

x is [B,D,T]. A transposed [B,T,D] is not copied, and the output has the layout of x. Sums are
computed in float32, or in float64 for float64 tensors. Wrong shapes, dtypes and devices raise
ValueError. `implementation` is as in attnbench.functional.
"""

import torch
from torch import Tensor

from attnbench import _library

_library.load()


def _is_silu(activation: str | None) -> bool:
    if activation not in (None, "silu", "swish"):
        raise ValueError(f"activation = {activation!r}, expected None, 'silu' or 'swish'")
    return activation is not None


def causal_conv1d_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: Tensor | None = None,
    activation: str | None = None,
    *,
    cu_seqlens: Tensor | None = None,
    implementation: str = "auto",
) -> Tensor | tuple[Tensor, Tensor]:
    """The convolution of whole sequences. Differentiable once in x, weight, bias and initial_states.

    Args:
        weight, bias: [D,W] and [D], of any floating dtype.
        seq_idx: [B,T]; a new sequence begins wherever the number changes. Outputs at negative
            numbers are 0. It goes with neither states nor cu_seqlens.
        initial_states: [N,D,W−1], the inputs before each sequence, in the dtype of x; None for
            zeros. N is B, or the number of packed sequences.
        return_final_states: whether to return the states after the sequences, too.
        final_states_out: [N,D,W−1], which receives them.
        activation: "silu", "swish", which is the same, or None.
        cu_seqlens: int64 [N+1]; a batch of 1 holds N sequences, which begin and end there.

    Returns:
        The output [B,D,T], and with return_final_states also the states [N,D,W−1].
    """
    if seq_idx is not None and return_final_states:
        raise ValueError("causal_conv1d_fn: seq_idx does not go with return_final_states")
    output, states = torch.ops.attn.causal_convolution(
        x,
        weight,
        bias,
        initial_states,
        None if cu_seqlens is None else cu_seqlens.to(torch.int64),
        None if seq_idx is None else seq_idx.to(torch.int32),
        _is_silu(activation),
        implementation,
    )
    if not return_final_states:
        return output
    return output, states if final_states_out is None else final_states_out.copy_(states)


@torch.no_grad()
def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: Tensor | None = None,
    conv_state_indices: Tensor | None = None,
    *,
    implementation: str = "auto",
) -> Tensor:
    """The convolution of the next T tokens of each sequence: x [B,D,T] or [B,D] → the same.

    Stores the tokens in conv_state, in place. Records no gradients.

    Args:
        conv_state: [B,D,S] with S ≥ W−1, the last inputs of each sequence, in the dtype of x.
        weight, bias, activation: as in `causal_conv1d_fn`.
        cache_seqlens: [B], how many tokens each sequence has had. The state is then a ring: the
            next token goes to the place cache_seqlens mod S.
        conv_state_indices: [B], the rows of conv_state that belong to the sequences, all different.
            A negative one means none; the output is 0 there.
    """
    indices = [None if i is None else i.to(torch.int64) for i in (cache_seqlens, conv_state_indices)]
    output: Tensor = torch.ops.attn.causal_convolution_step(
        x.unsqueeze(2) if x.dim() == 2 else x, conv_state, weight, bias, *indices, _is_silu(activation), implementation
    )  # fmt: skip
    return output.squeeze(2) if x.dim() == 2 else output
