"""FAVOR+ attention of the package performer-pytorch, without the causal mask."""

import functools
import sys
import types

import attnbench
import torch

INSTALL = "pip install --no-deps performer-pytorch==1.1.4 einops==0.8.2 axial-positional-embedding==0.3.12"
EPSILON = 1e-4


@functools.cache
def fast_attention(head_dim, features, device):
    """The package's FastAttention, whose random projection is drawn once."""
    # The package imports this for a part that is not used here.
    if "local_attention" not in sys.modules:
        sys.modules["local_attention"] = types.ModuleType("local_attention")
        sys.modules["local_attention"].LocalAttention = None
    from performer_pytorch import FastAttention

    torch.manual_seed(0)
    return FastAttention(dim_heads=head_dim, nb_features=features, causal=False).to(device)


def positive_features(x, projection, is_query):
    """exp(w·x/D^¼ − |x|²/(2√D)), divided by its largest value and raised by EPSILON."""
    scaled = x * x.shape[-1] ** -0.25
    logits = scaled @ projection.mT
    largest = logits.amax(-1, keepdim=True) if is_query else logits.amax((-1, -2), keepdim=True)
    norm = scaled.square().sum(-1, keepdim=True) / 2
    return torch.exp(logits - norm - largest.detach()) + EPSILON


def reference(q, k, v, *, rows, features):
    """The definition in float64, with the same projection."""
    projection = fast_attention(q.shape[-1], features, q.device).projection_matrix.double()
    q = positive_features(q.index_select(2, rows), projection, is_query=True)
    k = positive_features(k, projection, is_query=False)
    weights = q @ k.mT
    return weights @ v / weights.sum(-1, keepdim=True)


@attnbench.method(
    description="FAVOR+ by performer-pytorch",
    reference=reference,
    approximates="softmax",
    requires={"performer_pytorch": INSTALL, "einops": INSTALL, "axial_positional_embedding": INSTALL},
    options={"features": {"min": 1, "max": 65536}},
    time_order="O(N)",
    memory_order="O(N)",
    causal=False,
    dtypes=["float32"],
)
def favor(q, k, v, *, features=256):
    """q and k [B,H,N,D], v [B,H,N,M]."""
    return fast_attention(q.shape[-1], features, q.device)(q, k, v)
