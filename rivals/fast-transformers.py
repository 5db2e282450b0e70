"""Linear attention of the authors of Transformers are RNNs: the package pytorch-fast-transformers.

`causal_product` is its C++ kernel for causal attention; without the causal mask it multiplies with
einsum.
"""

import attnbench
import torch
import torch.nn.functional as F

INSTALL = "pip install --no-build-isolation --no-deps pytorch-fast-transformers==0.4.0"
EPSILON = 1e-6


def feature_map(x):
    """elu(x) + 1."""
    return F.elu(x) + 1


@attnbench.method(
    description="linear attention by pytorch-fast-transformers",
    exact="linear",
    requires={"fast_transformers": INSTALL},
    time_order="O(N)",
    memory_order="O(N)",
    key_lengths=False,
    dtypes=["float32"],
)
def linear(q, k, v, *, causal):
    """q and k [B,H,N,D], v [B,H,N,M], as its CausalLinearAttention and LinearAttention compute."""
    q, k = feature_map(q), feature_map(k)
    if causal:
        from fast_transformers.causal_product import causal_dot_product

        normaliser = 1 / (torch.einsum("bhnd,bhnd->bhn", q, k.cumsum(2)) + EPSILON)
        return causal_dot_product(q.contiguous(), k.contiguous(), v.contiguous()) * normaliser[..., None]
    sums = torch.einsum("bhnd,bhnm->bhmd", k, v)
    normaliser = 1 / (torch.einsum("bhnd,bhd->bhn", q, k.sum(2)) + EPSILON)
    return torch.einsum("bhnd,bhmd,bhn->bhnm", q, sums, normaliser).contiguous()
