"""The gated delta rule as attention-gym (attn-gym) computes it on a CPU: its reference in chunks of PyTorch operations. Its fused
kernels need a GPU."""

import attnbench

INSTALL = "pip install --no-deps attn-gym==0.0.17"


@attnbench.method(
    description="the gated delta rule by attn-gym (PyTorch operations)",
    exact="gated-delta",
    requires={"attn_gym": INSTALL},
    time_order="O(N)",
    memory_order="O(N)",
    full=False,
    cross_attention=False,
    key_lengths=False,
    shared_heads=True,
)
def gated_delta(q, k, v, *, causal, g, beta, cu_seqlens=None):
    """q and k [B,H,N,D], v [B,W,N,M], g and beta [B,W,N]. The package takes [B,N,H,D]."""
    from attn_gym.linear import chunk_gdn

    del causal
    heads = max(x.shape[1] for x in (q, k, v))
    if q.shape[1] != k.shape[1] or v.shape[1] != heads:  # the package shares heads of q and k together, and no others
        q, k, v, g, beta = (x.repeat_interleave(heads // x.shape[1], 1) for x in (q, k, v, g, beta))
    wide = g.dtype
    q, k = ((x.to(wide) * (x.to(wide).square().sum(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype) for x in (q, k))
    q, k, v, g, beta = (x.transpose(1, 2) for x in (q, k, v, g, beta))
    borders = None if cu_seqlens is None else cu_seqlens.int()
    output, _ = chunk_gdn(q, k, v, g, beta, cu_seqlens=borders, impl="reference")
    return output.transpose(1, 2).to(v.dtype).contiguous()
