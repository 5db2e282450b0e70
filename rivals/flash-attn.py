"""FlashAttention on a GPU: the package flash-attn."""

import attnbench

INSTALL = "pip install --no-build-isolation flash-attn==2.8.3"


@attnbench.method(
    description="softmax attention by flash-attn",
    exact="softmax",
    requires={"flash_attn": INSTALL},
    time_order="O(N²)",
    memory_order="O(N)",
    dtypes=["bfloat16", "float16"],
    devices=["cuda"],
)
def softmax(q, k, v, *, causal):
    """q, k and v [B,H,N,D]. The package takes [B,N,H,D], which are views here."""
    from flash_attn import flash_attn_func

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return flash_attn_func(q, k, v, causal=causal).transpose(1, 2)
