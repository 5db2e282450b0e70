"""Recurrent linear attention: decays, gates and the delta rule, under the names that models use.

The functions have the names, arguments, defaults and results of those of flash-linear-attention
(fla-core 0.6) and mamba-ssm, so that a program changes only its import lines. On CPUs they run
kernels, which have a backward pass of their own, and on other devices PyTorch operations.

q and k are [B,T,H,K] and v is [B,T,HV,V]: batch, time, heads, features; HV is a multiple of H, and
head hv of v reads head hv // (HV/H) of q and k. With `layout="bhtk"` all tensors have the heads
before the time, as in [B,H,T,K]; neither layout copies a tensor. The state S [K,V] of a head changes
at each time: S ← e^g S, then S ← S + k uᵀ with u = v or, by the delta rule, u = β (v − Sᵀk); the
output is scale · Sᵀq, where scale is K^-½ unless it is given. g is the natural logarithm of the
decay, at most 0; -inf clears the state. In `chunk_kda` and `chunk_gla` g has a value for each feature
of the keys, which is the decay of one row of S.

Every function but those of Mamba-2 returns (output, final state). The output has the dtype of q. The
final state [N,HV,K,V], float64 for float64 tensors and float32 for others, is None unless
output_final_state=True; N is B. `initial_state` has the same shape, and with state_v_first=True both
are [N,HV,V,K]. With `cu_seqlens`, int64 [N+1], a batch of 1 holds N sequences one after the other, each
with a state of its own. Results can be differentiated once. The fused_recurrent_… functions compute
the same as the chunk_… functions, gradients included.

Arguments that cannot change the result are accepted and ignored: chunk_size, chunk_indices,
cu_seqlens_cpu, disable_recompute and, in `chunk_kda`, max_num_seqs. Any other argument that is not
supported raises ValueError, and so do wrong shapes, dtypes and devices; functions that take no further
keyword arguments, such as fused_recurrent_delta_rule, raise TypeError for an unknown one.
`implementation` is as in attnbench.functional. With `cp_group`, a process group of torch.distributed,
the tensors of each rank are a slice of a longer sequence; the package attnbench.distributed describes
this.
"""

from attnbench import _library
from attnbench.convolution import causal_conv1d_fn as causal_conv1d_fn
from attnbench.convolution import causal_conv1d_update as causal_conv1d_update
from attnbench.recurrent._delta_rule import (
    chunk_delta_rule as chunk_delta_rule,
    chunk_gated_delta_rule as chunk_gated_delta_rule,
    chunk_kda as chunk_kda,
    fused_recurrent_delta_rule as fused_recurrent_delta_rule,
    fused_recurrent_gated_delta_rule as fused_recurrent_gated_delta_rule,
    fused_recurrent_kda as fused_recurrent_kda,
)
from attnbench.recurrent._linear_attention import (
    chunk_gla as chunk_gla,
    chunk_lightning_attn as chunk_lightning_attn,
    chunk_linear_attn as chunk_linear_attn,
    chunk_retention as chunk_retention,
    chunk_simple_gla as chunk_simple_gla,
    fused_recurrent_gla as fused_recurrent_gla,
    fused_recurrent_lightning_attn as fused_recurrent_lightning_attn,
    fused_recurrent_linear_attn as fused_recurrent_linear_attn,
    fused_recurrent_retention as fused_recurrent_retention,
    fused_recurrent_simple_gla as fused_recurrent_simple_gla,
)
from attnbench.recurrent._mamba import mamba_chunk_scan_combined as mamba_chunk_scan_combined
from attnbench.recurrent._mamba import selective_state_update as selective_state_update

_library.load()
