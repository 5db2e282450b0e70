"""The gated delta rule as transformers computes it on a CPU: the reference in PyTorch operations that
Qwen3-Next and its successors fall back to."""

import attnbench

INSTALL = "pip install transformers==5.23.0"


@attnbench.method(
    description="the gated delta rule by transformers (PyTorch operations)",
    exact="gated-delta",
    requires={"transformers": INSTALL},
    time_order="O(N)",
    memory_order="O(N)",
    full=False,
    cross_attention=False,
    key_lengths=False,
    shared_heads=True,
    dtypes=["float32", "bfloat16"],
)
def gated_delta(q, k, v, *, causal, g, beta):
    """q and k [B,H,N,D], v [B,W,N,M], g and beta [B,W,N]. The package takes [B,N,H,D]."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    del causal
    heads = max(x.shape[1] for x in (q, k, v))
    if q.shape[1] != k.shape[1] or v.shape[1] != heads:  # the package shares heads of q and k together, and no others
        q, k, v, g, beta = (x.repeat_interleave(heads // x.shape[1], 1) for x in (q, k, v, g, beta))
    given = (x.transpose(1, 2) for x in (q, k, v, g, beta))
    output, _ = torch_chunk_gated_delta_rule(*given, use_qk_l2norm_in_kernel=True)
    return output.transpose(1, 2).to(q.dtype).contiguous()
