"""Linear, LSH and sparse attention as functions of tensors.

The functions call PyTorch operators of libattn, which have kernels for CPUs (AVX-512, AVX2 and
portable ones) and, in a build with CUDA, for GPUs. They run on the device of their tensors, record
gradients unless they say otherwise, and work inside torch.compile.

Shapes are [batch, heads, length, dim]: B is the batch size, H the number of heads, N the number of
queries, L the number of keys, D the dimension of queries and keys, and M that of values. Tensors of
one call share a floating dtype and a device. `key_lengths`, int64 [B], says how many keys of each
batch entry are valid; the keys behind them are hidden. The output of a query that sees no key is
zero.

Wrong shapes, dtypes, devices and options raise ValueError, which names the argument, what was found
and what was expected. `implementation` is "auto" for the best implementation, "composed" for
PyTorch operations, or the name of one, such as "avx2"; one that cannot run is a ValueError, and no
other takes its place.
"""

from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from attnbench import _library

_library.load()

FeatureMap = Literal["elu", "elu0.1", "relu", "taylor", "polynomial-2", "favor", "rff"]
Profile = Literal["trax", "fast-transformers"]

# For each profile of LSH attention: the positions in a chunk by default.
_CHUNKS: dict[str, int] = {"trax": 64, "fast-transformers": 32}


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    key_lengths: Tensor | None = None,
    feature_map: FeatureMap = "elu",
    eps: float = 1e-6,
    projection: Tensor | None = None,
    chunk: int = 128,
    implementation: str = "auto",
    cp_group: ProcessGroup | None = None,
) -> Tensor:
    """Linear attention: q [B,H,N,D], k [B,H,L,D], v [B,H,L,M] → [B,H,N,M], in time O(N + L).

    The output of query i is φ(q_i)ᵀ S_i / (φ(q_i)ᵀ Z_i + eps) with S_i = Σ φ(k_j) v_jᵀ and Z_i = Σ
    φ(k_j) over the keys j that it sees ("Transformers are RNNs", https://arxiv.org/abs/2006.16236,
    equations 4 to 12). Tensors of half precision are accumulated in float32. Differentiable once in
    q, k and v.

    Args:
        causal: whether query i sees only the keys 0 to i, which needs as many keys as queries.
        key_lengths: int64 [B], the number of valid keys of each batch entry; None if all are valid.
        feature_map: φ. "elu" is elu(x) + 1, "elu0.1" is elu(x; 0.1) + 1, and "relu" is max(x, 0).
            "taylor" and "polynomial-2" expand the softmax kernel. "favor" and "rff" are random
            features that approximate it, with directions from `projection`.
        eps: is added to the normalizer.
        projection: [P,D], the random directions of "favor" and "rff"; None for the other maps.
        chunk: positions in a chunk of the composed causal form; kernels have chunks of their own.
        implementation: see the documentation of this module.
        cp_group: a process group of torch.distributed over whose ranks a longer sequence is split, see
            attnbench.distributed; not with key_lengths, and with the maps "elu", "elu0.1" and "relu".
    """
    if cp_group is not None:
        if key_lengths is not None:
            raise ValueError("linear_attention: key_lengths does not go with cp_group")
        from attnbench.distributed import _linear

        return _linear.linear_attention(q, k, v, causal, feature_map, eps, implementation, cp_group)
    output: Tensor = torch.ops.attn.linear_attention(
        q, k, v, causal, key_lengths, feature_map, eps, projection, chunk, implementation
    )
    return output


class LinearAttentionState(NamedTuple):
    """What causal linear attention keeps of the tokens that `linear_attention_step` has seen.

    Attributes:
        sums: S = Σ φ(k_j) v_jᵀ, [B,H,F,M], where F is the number of features that φ makes of D
            entries.
        normalizers: Z = Σ φ(k_j), [B,H,F].
    """

    sums: Tensor
    normalizers: Tensor

    @classmethod
    def empty(
        cls,
        batch: int,
        heads: int,
        head_dim: int,
        value_dim: int | None = None,
        *,
        feature_map: FeatureMap = "elu",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> "LinearAttentionState":
        """The state before the first token.

        Args:
            value_dim: M; by default as head_dim, which is D.
            feature_map: as in `linear_attention`, except "favor" and "rff", which have no decoding
                step.
            dtype: that of q, k and v. The state has float64 for float64, and float32 otherwise.
        """
        features = _feature_count(feature_map, head_dim)
        state_dtype = torch.float64 if dtype == torch.float64 else torch.float32
        sums = torch.zeros(
            batch, heads, features, value_dim or head_dim, dtype=state_dtype, device=device
        )
        return cls(sums, torch.zeros(batch, heads, features, dtype=state_dtype, device=device))


def _feature_count(feature_map: str, head_dim: int) -> int:
    if feature_map in ("elu", "elu0.1", "relu"):
        return head_dim
    if feature_map == "taylor":
        return 1 + head_dim
    if feature_map == "polynomial-2":
        return 1 + head_dim + head_dim * (head_dim + 1) // 2
    raise ValueError(
        f"feature_map = {feature_map!r}, expected one with a decoding step: elu, elu0.1, relu, "
        "taylor or polynomial-2"
    )


@torch.no_grad()
def linear_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: LinearAttentionState,
    *,
    feature_map: FeatureMap = "elu",
    eps: float = 1e-6,
    implementation: str = "auto",
) -> Tensor:
    """Decodes one token of linear attention: q and k [B,H,1,D], v [B,H,1,M] → [B,H,1,M].

    Adds the token to `state` in place, in a time that does not depend on how many came before. The
    output is the row of the token in `linear_attention(…, causal=True)` over all tokens so far.
    Records no gradients.

    Args:
        state: begins as `LinearAttentionState.empty(…)` with the same feature map.
        feature_map, eps, implementation: as in `linear_attention`.
    """
    output: Tensor = torch.ops.attn.linear_attention_step(
        q, k, v, *state, feature_map, eps, implementation
    )
    return output


def lsh_attention(
    qk: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    key_lengths: Tensor | None = None,
    rounds: int = 1,
    chunk: int | None = None,
    buckets: int | None = None,
    profile: Profile = "trax",
    seed: int = 0,
    implementation: str = "auto",
    cp_group: ProcessGroup | None = None,
) -> Tensor:
    """LSH attention with shared queries and keys: qk [B,H,N,D], v [B,H,N,M] → [B,H,N,M], in time
    O(N log N).

    In each round a random hash puts every position into a bucket, positions are sorted by bucket,
    and a query sees the keys of its own chunk of the sorted sequence and of the chunk before it
    (Reformer, https://arxiv.org/abs/2001.04451). This is what the method `lsh` with the same
    options computes. Differentiable once in qk and v.

    Args:
        causal: whether query i sees only the keys 0 to i.
        key_lengths: int64 [B], the number of valid positions of each batch entry; None if all are
            valid.
        rounds: rounds of hashing, at least 1. More rounds approximate softmax attention better.
        chunk: positions in a chunk; None for the profile's default, 64 (trax) or 32
            (fast-transformers).
        buckets: an even number of buckets; None for the profile's default, 2·⌈N/chunk⌉ (trax) or 64
            (fast-transformers).
        profile: "trax" attends as Reformer's own code does, "fast-transformers" as the code that
            "Transformers are RNNs" compares with.
        seed: the seed of the random hashes. Equal seeds give equal hashes on every device; a training
            may use another seed for each step.
        implementation: see the documentation of this module.
        cp_group: must be None; any other value raises ValueError, because a sequence that is split over
            processes cannot be sorted as a whole.
    """
    if cp_group is not None:
        raise ValueError("lsh_attention: cp_group is not supported, because LSH attention sorts the whole sequence")
    if chunk is None:
        chunk = _CHUNKS.get(profile, 64)
    if buckets is None:
        # Invalid dimensions and chunks must reach the operator, whose error messages name them.
        length = max(qk.shape[2], 1) if qk.dim() == 4 else 1
        buckets = 2 * -(-length // max(chunk, 1)) if profile == "trax" else 64
    rotations, factors = _rotations(qk.shape[-1], rounds, buckets, seed, qk.device)
    output: Tensor = torch.ops.attn.lsh_attention(
        qk, v, rotations, chunk, causal, key_lengths, profile, factors or None, implementation
    )
    return output


@torch.compiler.disable
@lru_cache(maxsize=32)
def _rotations(
    head_dim: int, rounds: int, buckets: int, seed: int, device: torch.device
) -> tuple[Tensor, tuple[int, ...]]:
    """The random rotations of the hashes, and the factors of the number of buckets, () if it is not factored.

    They are cached, because a layer asks for the same ones in every step. They must not become constants of a
    compiled graph, which would then have the same rotations for every seed.
    """
    # A tensor of the inference mode could not be saved for the backward pass of a later call.
    with torch.inference_mode(False):
        rotations, factors = torch.ops.attn.lsh_rotations(head_dim, rounds, buckets, seed)
        return rotations.to(device), tuple(factors)


class SparseAttentionOutput(NamedTuple):
    """What `sparse_attention` returns with `return_log_sum_exp`.

    Attributes:
        output: [B,H,N,M].
        log_sum_exp: [B,H,N], the logarithm of the sum of e^score over the keys that a query sees,
            in float64 for float64 tensors and in float32 for others; -inf where it sees none.
    """

    output: Tensor
    log_sum_exp: Tensor


def sparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    pattern: str = "all",
    key_lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    sinks: Tensor | None = None,
    chosen_blocks: Tensor | None = None,
    block: int = 64,
    scale: float | None = None,
    return_log_sum_exp: bool = False,
    implementation: str = "auto",
    cp_group: ProcessGroup | None = None,
) -> Tensor | SparseAttentionOutput:
    """Softmax attention over the keys that a pattern leaves visible.

    q [B,H,N,D], k [B,G,L,D], v [B,G,L,M] → [B,H,N,M], where G divides H: neighbouring heads of q
    share those of k and v. Computes the visible pairs alone and stores no matrix of them.
    Differentiable once in q, k, v and sinks, also through the log-sum-exp.

    Args:
        causal: whether query i sees only the keys 0 to i + L - N.
        pattern: "all", "window:W" (the last W keys with the causal mask, otherwise those nearer
            than W), "window:W+first:k", "window:W+global:m", "global:m", "strided:l",
            "dilated:W/d" or "block:B/c"; docs/patterns.md defines them.
        key_lengths: int64 [B], the number of valid keys of each batch entry; None if all are valid.
        cu_seqlens: int64 [S+1], where each batch entry packs S sequences: the positions at which
            they begin and end. A query sees keys of its own sequence. Not with key_lengths.
        sinks: [H], for each head a score that is added to the denominator of the softmax alone, in
            float64 for float64 tensors and in float32 for others.
        chosen_blocks: int64 [B,C,N,K], where C divides H: for each query and each of C groups of
            neighbouring heads the numbers of the K blocks of `block` keys that it sees, in any order;
            -1 for none. Not with a pattern or cu_seqlens. The choice gets no gradient.
        block: the number of keys of a chosen block.
        scale: the factor of the scores; by default 1/√D.
        return_log_sum_exp: whether to return a `SparseAttentionOutput` instead of the output.
        implementation: see the documentation of this module.
        cp_group: a process group of torch.distributed over whose ranks a longer sequence is split; not
            with a pattern, key_lengths, cu_seqlens or chosen_blocks, nor with the composed
            implementation. The slices are equally long, and with causal=True rank r has the positions
            of `attnbench.distributed.zigzag`.
    """
    if cp_group is not None:
        refused = {"key_lengths": key_lengths, "cu_seqlens": cu_seqlens, "chosen_blocks": chosen_blocks}
        for name, value in (*refused.items(), ("pattern", None if pattern == "all" else pattern)):
            if value is not None:
                raise ValueError(f"sparse_attention: {name} does not go with cp_group")
        from attnbench.distributed._softmax import ring_attention

        split = SparseAttentionOutput(*ring_attention(q, k, v, sinks, causal, scale, implementation, cp_group))
        return split if return_log_sum_exp else split.output
    results = SparseAttentionOutput(
        *torch.ops.attn.sparse_attention(
            q, k, v, sinks, causal, pattern, key_lengths, cu_seqlens, scale, implementation, chosen_blocks, block
        )
    )
    return results if return_log_sum_exp else results.output
