"""Memory-efficient attention on a GPU: the package xformers."""

import attnbench

INSTALL = "pip install xformers==0.0.33"


@attnbench.method(
    description="softmax attention by xformers",
    exact="softmax",
    requires={"xformers": INSTALL},
    time_order="O(N²)",
    memory_order="O(N)",
    devices=["cuda"],
    dtypes=["float32", "bfloat16", "float16"],
)
def softmax(q, k, v, *, causal):
    """q, k and v [B,H,N,D]. The package takes [B,N,H,D], which are views here."""
    from xformers.ops import LowerTriangularMask, memory_efficient_attention

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    bias = LowerTriangularMask() if causal else None
    return memory_efficient_attention(q, k, v, attn_bias=bias).transpose(1, 2)
