"""Linear attention in Triton on a GPU: the package flash-linear-attention."""

import attnbench
import torch.nn.functional as F

INSTALL = "pip install fla-core==0.6.0"


@attnbench.method(
    description="linear attention by flash-linear-attention",
    exact="linear",
    requires={"fla": INSTALL},
    time_order="O(N)",
    memory_order="O(N)",
    full=False,
    dtypes=["float32", "bfloat16", "float16"],
    devices=["cuda"],
)
def linear(q, k, v, *, causal):
    """q and k [B,H,N,D], v [B,H,N,M]. The package takes [B,N,H,D]."""
    from fla.ops.linear_attn import chunk_linear_attn

    q, k = F.elu(q) + 1, F.elu(k) + 1
    q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
    output, _ = chunk_linear_attn(q, k, v, scale=1.0, normalize=True)
    return output.transpose(1, 2).contiguous()
