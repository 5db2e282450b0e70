"""Recurrent attention as flash-linear-attention computes it without Triton: the references in PyTorch operations that its own
kernels are tested against. They run on a CPU; the package itself cannot be imported without Triton, so that their files are
loaded by themselves."""

import importlib.util
from pathlib import Path

import attnbench

REQUIRES = {"fla": "pip install --no-deps fla-core==0.6.0", "einops": "pip install einops==0.8.2"}
# What all functions below have in common.
COMMON = {
    "requires": REQUIRES, "time_order": "O(N)", "memory_order": "O(N)", "full": False, "cross_attention": False,
    "key_lengths": False, "dtypes": ["float32", "bfloat16"],
}  # fmt: skip


def reference(operator, name):
    """A function of fla/ops/OPERATOR/naive.py."""
    path = Path(importlib.util.find_spec("fla").submodule_search_locations[0], "ops", operator, "naive.py")
    spec = importlib.util.spec_from_file_location(f"fla_naive_{operator}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def positions_first(*tensors):
    """Tensors [B,H,N,…] as [B,N,H,…], the layout of the package."""
    return (x.transpose(1, 2) for x in tensors)


def of_length_one(x):
    """Rows of length 1, as the gated delta rule takes them."""
    return (x.float() * (x.float().square().sum(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype)


@attnbench.method(description="the gated delta rule by flash-linear-attention (PyTorch operations)", exact="gated-delta", **COMMON)
def gated_delta(q, k, v, *, causal, g, beta):
    """q and k [B,H,N,D], v [B,H,N,M], g and beta [B,H,N]."""
    del causal
    q, k, v, g, beta = positions_first(of_length_one(q), of_length_one(k), v, g, beta)
    output, _ = reference("gated_delta_rule", "naive_chunk_gated_delta_rule")(q, k, v, g, beta)
    return output.transpose(1, 2).to(v.dtype).contiguous()


@attnbench.method(description="linear attention with a decay by flash-linear-attention (PyTorch operations)", exact="simple-gla", **COMMON)
def simple_gla(q, k, v, *, causal, g):
    """q and k [B,H,N,D], v [B,H,N,M], g [B,H,N]."""
    del causal
    q, k, v, g = positions_first(q, k, v, g)
    output, _ = reference("simple_gla", "naive_chunk_simple_gla")(q, k, v, g)
    return output.transpose(1, 2).to(v.dtype).contiguous()
