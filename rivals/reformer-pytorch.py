"""LSH attention of the package reformer-pytorch.

Its rotations are drawn in each call, here from a fixed seed. There is no independent definition of
what it computes for them, so its results are unverified.
"""

import functools
import sys
import types

import attnbench
import torch

INSTALL = "pip install --no-deps reformer-pytorch==1.4.4 einops==0.8.2 axial-positional-embedding==0.3.12"


@functools.cache
def lsh_attention(causal, rounds, chunk):
    """The package's LSHAttention."""
    # The package imports these for parts that are not used here.
    for unused in ("product_key_memory", "local_attention"):
        if unused not in sys.modules:
            module = sys.modules[unused] = types.ModuleType(unused)
            module.PKM = module.LocalAttention = None
    from reformer_pytorch import LSHAttention

    return LSHAttention(bucket_size=chunk, n_hashes=rounds, causal=causal, dropout=0.0)


@attnbench.method(
    description="LSH attention by reformer-pytorch",
    requires={"reformer_pytorch": INSTALL, "einops": INSTALL, "axial_positional_embedding": INSTALL},
    options={"rounds": {"min": 1, "max": 64}, "chunk": {"min": 1, "max": 64}},
    time_order="O(N log N)",
    memory_order="O(N)",
    cross_attention=False,
    multiple_of=128,
    key_lengths=False,
    dtypes=["float32"],
)
def lsh(q, k, v, *, causal, rounds=1, chunk=64):
    """q and v [B,H,N,D]; k is ignored, because keys are the queries. N must be a multiple of
    2 · chunk, where chunk is at most 64."""
    torch.manual_seed(0)
    output, _, _ = lsh_attention(causal, rounds, chunk)(q.flatten(0, 1), v.flatten(0, 1))
    return output.unflatten(0, q.shape[:2])
