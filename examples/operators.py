"""Calls linear attention and LSH attention as PyTorch operators, with gradients.

Usage: python examples/operators.py [BUILD_FOLDER]
"""

import sys
from pathlib import Path

import torch

build = Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
torch.ops.load_library(str(build / "libattn.so"))

# Tensors are [batch, heads, length, dim].
q, k, v = (torch.randn(1, 4, 512, 32, requires_grad=True) for _ in range(3))
output = torch.ops.attn.linear_attention(q, k, v, True)  # causal
output.sum().backward()
print("linear attention:", tuple(output.shape), "gradient of q:", tuple(q.grad.shape))

rotations = torch.randn(32, 2, 8)  # [dim, rounds, buckets / 2]
output = torch.ops.attn.lsh_attention(q, v, rotations, 32, True, profile="trax")
print("LSH attention:", tuple(output.shape))
