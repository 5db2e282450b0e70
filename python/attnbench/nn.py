"""Modules with linear attention, gated delta attention and LSH attention, for sequences [batch, length, width].

The attention modules have their own projections, as torch.nn.MultiheadAttention does, but take one
sequence x and its key_lengths and return one tensor. The width is divided among the heads: every head has width / heads dimensions unless
`head_dim` says otherwise.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from attnbench.convolution import causal_conv1d_fn, causal_conv1d_update
from attnbench.functional import (
    FeatureMap,
    LinearAttentionState,
    Profile,
    linear_attention,
    linear_attention_step,
    lsh_attention,
)
from attnbench.recurrent import chunk_gated_delta_rule

__all__ = ["CausalLMLayer", "GatedDeltaNet", "GatedDeltaNetCache", "LSHAttention", "LinearAttention"]


class _Attention(nn.Module):
    """What the attention modules share: the sizes of the heads, and the last projection."""

    def __init__(
        self, width: int, heads: int, head_dim: int | None, causal: bool, bias: bool
    ) -> None:
        super().__init__()
        for name, size in (("width", width), ("heads", heads), ("head_dim", head_dim)):
            if size is not None and size < 1:
                raise ValueError(f"{name} = {size}, expected at least 1")
        if head_dim is None and width % heads:
            raise ValueError(
                f"width = {width}, expected a multiple of heads = {heads}, or head_dim"
            )
        self.width, self.heads, self.head_dim = width, heads, head_dim or width // heads
        self.causal = causal
        self.output = nn.Linear(self.heads * self.head_dim, width, bias=bias)

    def _projection(self, bias: bool) -> nn.Linear:
        return nn.Linear(self.width, self.heads * self.head_dim, bias=bias)

    def _check(self, x: Tensor, length: int | None = None) -> None:
        right = x.dim() == 3 and x.shape[2] == self.width and length in (None, x.shape[1])
        if not right:
            expected = f"[batch, {'length' if length is None else length}, {self.width}]"
            raise ValueError(
                f"{type(self).__name__}: x has shape {list(x.shape)}, expected {expected}"
            )

    def _split(self, x: Tensor) -> Tensor:
        """[batch, length, heads · head_dim] → [batch, heads, length, head_dim]."""
        return x.unflatten(2, (self.heads, self.head_dim)).transpose(1, 2)

    def _join(self, heads: Tensor) -> Tensor:
        """[batch, heads, length, head_dim] → [batch, length, width], by the last projection."""
        joined: Tensor = self.output(heads.transpose(1, 2).flatten(2))
        return joined

    def extra_repr(self) -> str:
        return f"width={self.width}, heads={self.heads}, head_dim={self.head_dim}, causal={self.causal}"


class LinearAttention(_Attention):
    """Multi-head self-attention whose heads are `attnbench.linear_attention`.

    Attributes:
        query, key, value: the projections of x, torch.nn.Linear from width to heads · head_dim.
        output: the projection of the joined heads, torch.nn.Linear from heads · head_dim to width.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool = False,
        head_dim: int | None = None,
        feature_map: FeatureMap = "elu",
        eps: float = 1e-6,
        bias: bool = True,
    ) -> None:
        """Makes the projections with PyTorch's default initialisation.

        Args:
            width: the number of features of every position.
            causal: whether a position sees only itself and those before it.
            head_dim: dimension of queries, keys and values of a head; None for width / heads.
            feature_map, eps: as in `attnbench.linear_attention`, without the random maps "favor"
                and "rff".
            bias: whether the projections have biases.
        """
        super().__init__(width, heads, head_dim, causal, bias)
        if feature_map in ("favor", "rff"):
            raise ValueError(
                f"feature_map = {feature_map!r}, expected a map without random directions"
            )
        self.feature_map, self.eps = feature_map, eps
        self.query, self.key, self.value = (self._projection(bias) for _ in range(3))

    def forward(self, x: Tensor, key_lengths: Tensor | None = None) -> Tensor:
        """x [batch, length, width] → [batch, length, width].

        Args:
            key_lengths: int64 [batch], the number of valid positions of each sequence; None if all
                are valid.
        """
        self._check(x)
        q, k, v = (self._split(projection(x)) for projection in (self.query, self.key, self.value))
        return self._join(
            linear_attention(
                q,
                k,
                v,
                causal=self.causal,
                key_lengths=key_lengths,
                feature_map=self.feature_map,
                eps=self.eps,
            )
        )

    def empty_state(self, batch: int) -> LinearAttentionState:
        """The state of `step` before the first token of `batch` sequences."""
        weight = self.key.weight
        return LinearAttentionState.empty(
            batch,
            self.heads,
            self.head_dim,
            feature_map=self.feature_map,
            dtype=weight.dtype,
            device=weight.device,
        )

    @torch.no_grad()
    def step(self, x: Tensor, state: LinearAttentionState) -> Tensor:
        """The output of the next token: x [batch, 1, width] → [batch, 1, width].

        Adds the token to `state` in place. The outputs of all tokens are those of `forward`.
        Records no gradients. Raises ValueError if the attention is not causal, since earlier
        outputs then depend on later tokens.
        """
        if not self.causal:
            raise ValueError("LinearAttention: step needs causal=True")
        self._check(x, length=1)
        q, k, v = (self._split(projection(x)) for projection in (self.query, self.key, self.value))
        return self._join(
            linear_attention_step(q, k, v, state, feature_map=self.feature_map, eps=self.eps)
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, feature_map={self.feature_map!r}"


class LSHAttention(_Attention):
    """Multi-head self-attention whose heads are `attnbench.lsh_attention`.

    Queries and keys are shared.

    Attributes:
        query_key, value: the projections of x, torch.nn.Linear from width to heads · head_dim.
        output: the projection of the joined heads, torch.nn.Linear from heads · head_dim to width.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool = False,
        head_dim: int | None = None,
        rounds: int = 1,
        chunk: int | None = None,
        buckets: int | None = None,
        profile: Profile = "trax",
        seed: int | None = 0,
        bias: bool = True,
    ) -> None:
        """Makes the projections with PyTorch's default initialisation.

        Args:
            width: the number of features of every position.
            causal: whether a position sees only itself and those before it.
            head_dim: dimension of queries, keys and values of a head; None for width / heads.
            rounds, chunk, buckets, profile: as in `attnbench.lsh_attention`.
            seed: of the random hashes, which are the same in every call; None for new ones in every
                call, drawn from PyTorch's default generator, as Reformer is trained.
            bias: whether the projections have biases.
        """
        super().__init__(width, heads, head_dim, causal, bias)
        self.rounds, self.chunk, self.buckets, self.seed = rounds, chunk, buckets, seed
        self.profile: Profile = profile
        self.query_key, self.value = self._projection(bias), self._projection(bias)

    def forward(self, x: Tensor, key_lengths: Tensor | None = None) -> Tensor:
        """x [batch, length, width] → [batch, length, width].

        Args:
            key_lengths: int64 [batch], the number of valid positions of each sequence; None if all
                are valid.
        """
        self._check(x)
        seed = int(torch.randint(2**31, ())) if self.seed is None else self.seed
        return self._join(
            lsh_attention(
                self._split(self.query_key(x)), self._split(self.value(x)),
                causal=self.causal, key_lengths=key_lengths, rounds=self.rounds, chunk=self.chunk,
                buckets=self.buckets, profile=self.profile, seed=seed,
            )
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rounds={self.rounds}, profile={self.profile!r}, seed={self.seed}"


class CausalLMLayer(nn.Module):
    """A layer of a causal language model: causal linear attention, then a feed-forward network.

    Each of the two is added to its input:

        norm="pre":   y = x + attention(norm1(x));  output = y + feed_forward(norm2(y))
        norm="post":  y = norm1(x + attention(x));  output = norm2(y + feed_forward(y))

    In training, dropout applies to what attention and feed_forward return. A model is an embedding
    with positions, some of these layers, and a linear layer to the logits; with norm="pre" also a
    last torch.nn.LayerNorm before that one.

    Attributes:
        attention: the `LinearAttention`.
        feed_forward: torch.nn.Linear to the hidden width, GELU, torch.nn.Linear back to width.
        norm1, norm2: torch.nn.LayerNorm.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        head_dim: int | None = None,
        feed_forward: int | None = None,
        norm: Literal["pre", "post"] = "pre",
        dropout: float = 0.0,
        feature_map: FeatureMap = "elu",
        eps: float = 1e-6,
    ) -> None:
        """Makes the parameters with PyTorch's default initialisation.

        Args:
            width, heads, head_dim, feature_map, eps: as in `LinearAttention`.
            feed_forward: the hidden width of the feed-forward network; None for 4 · width.
            norm: whether layers are normalised before attention and network ("pre") or after the
                sums ("post").
            dropout: the probability with which a number is set to zero in training.
        """
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f"norm = {norm!r}, expected 'pre' or 'post'")
        hidden = 4 * width if feed_forward is None else feed_forward
        self.attention = LinearAttention(
            width, heads, causal=True, head_dim=head_dim, feature_map=feature_map, eps=eps
        )
        self.feed_forward = nn.Sequential(
            nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)
        )
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.norm = norm

    def forward(self, x: Tensor, key_lengths: Tensor | None = None) -> Tensor:
        """x [batch, length, width] → [batch, length, width].

        No output depends on a later position.

        Args:
            key_lengths: int64 [batch], the number of valid positions of each sequence; None if all
                are valid.
        """
        return self._after_attention(x, self.attention(self._before_attention(x), key_lengths))

    def empty_state(self, batch: int) -> LinearAttentionState:
        """The state of `step` before the first token of `batch` sequences.

        Its size does not depend on their length.
        """
        return self.attention.empty_state(batch)

    @torch.no_grad()
    def step(self, x: Tensor, state: LinearAttentionState) -> Tensor:
        """The output of the next token: x [batch, 1, width] → [batch, 1, width].

        Adds the token to `state` in place. The outputs of all tokens are those of `forward` without
        dropout, which `eval()` turns off. Records no gradients.
        """
        return self._after_attention(x, self.attention.step(self._before_attention(x), state))

    def _before_attention(self, x: Tensor) -> Tensor:
        normalised: Tensor = self.norm1(x) if self.norm == "pre" else x
        return normalised

    def _after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        y = x + self.dropout(attended)
        if self.norm == "post":
            y = self.norm1(y)
        output: Tensor = y + self.dropout(
            self.feed_forward(self.norm2(y) if self.norm == "pre" else y)
        )
        return output if self.norm == "pre" else self.norm2(output)

    def extra_repr(self) -> str:
        return f"norm={self.norm!r}"


class GatedDeltaNetCache(NamedTuple):
    """What a `GatedDeltaNet` keeps of the tokens that it has seen. Its size does not depend on their
    number.

    Attributes:
        conv: the inputs of the convolution at the last W−1 tokens, [batch, channels, W−1].
        state: float32 [batch, value heads, head_dim, value_dim]; float64 in a layer of float64.
    """

    conv: Tensor
    state: Tensor


class GatedRMSNorm(nn.Module):
    """x · weight / √(mean of x² + eps), multiplied by silu(gate); the mean is over the last axis."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        y = x.to(wide)
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        normalised: Tensor = (self.weight * y * silu(gate.to(wide))).to(x.dtype)
        return normalised


class GatedDeltaNet(nn.Module):
    """Gated DeltaNet (https://arxiv.org/abs/2412.06464), as the models Qwen3-Next use it.

    Each token is projected to q, k, v, z and the two gates. q, k and v go through a causal
    convolution of W tokens for each channel, and silu. The heads are those of
    `attnbench.recurrent.chunk_gated_delta_rule` with q and k of length 1, the decays
    −exp(A_log) · softplus(a + dt_bias), and β = sigmoid(b). Their outputs are normalised, multiplied
    by silu(z) and projected to width. No output depends on a later token.

    The parameters have the names, shapes and order of those of Qwen3NextGatedDeltaNet of
    transformers, so that `load_state_dict` takes its weights.

    Attributes:
        in_proj_qkvz: torch.nn.Linear to q, k, v and z, for one head of keys after the other.
        in_proj_ba: torch.nn.Linear to b and a, for one head of keys after the other.
        conv1d: torch.nn.Conv1d, whose weight is that of the convolution.
        dt_bias, A_log: [value_heads].
        norm: the `GatedRMSNorm` of the outputs of a head.
        out_proj: torch.nn.Linear from value_heads · value_dim to width.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        value_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        conv_width: int = 4,
        eps: float = 1e-6,
    ) -> None:
        """Makes the parameters: projections with PyTorch's default initialisation, and gates as in
        Mamba-2, whose steps softplus(dt_bias) are between 0.001 and 0.1, and exp(A_log) below 16.

        Args:
            width: the number of features of every token.
            heads: of queries and keys.
            value_heads: a multiple of heads; None for heads.
            head_dim: the dimension of a query and a key; None for width / heads.
            value_dim: the dimension of a value; None for head_dim.
            conv_width: W.
            eps: of the normalisation of outputs.
        """
        super().__init__()
        sizes = {
            "width": width, "heads": heads, "value_heads": value_heads, "head_dim": head_dim,
            "value_dim": value_dim, "conv_width": conv_width,
        }  # fmt: skip
        for name, size in sizes.items():
            if size is not None and size < 1:
                raise ValueError(f"{name} = {size}, expected at least 1")
        if head_dim is None and width % heads:
            raise ValueError(f"width = {width}, expected a multiple of heads = {heads}, or head_dim")
        value_heads = heads if value_heads is None else value_heads
        if value_heads % heads:
            raise ValueError(f"value_heads = {value_heads}, expected a multiple of heads = {heads}")
        self.width, self.heads, self.value_heads = width, heads, value_heads
        self.head_dim = width // heads if head_dim is None else head_dim
        self.value_dim = self.head_dim if value_dim is None else value_dim
        keys, values = heads * self.head_dim, value_heads * self.value_dim
        self.in_proj_qkvz = nn.Linear(width, 2 * keys + 2 * values, bias=False)
        self.in_proj_ba = nn.Linear(width, 2 * value_heads, bias=False)
        channels = 2 * keys + values
        self.conv1d = nn.Conv1d(channels, channels, conv_width, groups=channels, bias=False)
        steps = torch.empty(value_heads).uniform_(math.log(0.001), math.log(0.1)).exp()
        self.dt_bias = nn.Parameter(steps.expm1().log())  # softplus of this is the step
        self.A_log = nn.Parameter(torch.empty(value_heads).uniform_(0.01, 16).log())
        self.norm = GatedRMSNorm(self.value_dim, eps)
        self.out_proj = nn.Linear(values, width, bias=False)

    def empty_cache(self, batch: int) -> GatedDeltaNetCache:
        """The cache before the first token of `batch` sequences."""
        weight = self.conv1d.weight
        wide = torch.float64 if weight.dtype == torch.float64 else torch.float32
        state = (batch, self.value_heads, self.head_dim, self.value_dim)
        return GatedDeltaNetCache(
            weight.new_zeros(batch, weight.shape[0], weight.shape[2] - 1),
            weight.new_zeros(state, dtype=wide),
        )

    def forward(
        self,
        x: Tensor,
        cache: GatedDeltaNetCache | None = None,
        *,
        cu_seqlens: Tensor | None = None,
    ) -> Tensor:
        """x [batch, length, width] → [batch, length, width].

        Args:
            cache: what earlier calls have seen of the same sequences; x continues them, and is added
                to it in place. No gradients go through a cache. A call with one token records no
                gradients at all, and is the fastest way to decode.
            cu_seqlens: int64 [N+1]; a batch of 1 holds N sequences, which begin and end there. A
                cache is then one of N sequences.
        """
        if x.dim() != 3 or x.shape[2] != self.width:
            raise ValueError(
                f"GatedDeltaNet: x has shape {list(x.shape)}, expected [batch, length, {self.width}]"
            )
        if cache is not None and x.shape[1] == 1 and cu_seqlens is None:
            with torch.no_grad():
                return self._step(x, cache)
        mixed, z, b, a = self._project(x)
        convolved = causal_conv1d_fn(
            mixed.transpose(1, 2), self.conv1d.weight.squeeze(1), activation="silu", cu_seqlens=cu_seqlens,
            initial_states=None if cache is None else cache.conv.clone(), return_final_states=True,
        )  # fmt: skip
        q, k, v = self._heads(convolved[0].transpose(1, 2))
        output, state = chunk_gated_delta_rule(
            q, k, v, a, b, initial_state=None if cache is None else cache.state.clone(),
            output_final_state=cache is not None, use_qk_l2norm_in_kernel=True, use_beta_sigmoid_in_kernel=True,
            use_gate_in_kernel=True, A_log=self.A_log, dt_bias=self.dt_bias, cu_seqlens=cu_seqlens,
        )  # fmt: skip
        if cache is not None and state is not None:
            with torch.no_grad():
                cache.conv.copy_(convolved[1])
                cache.state.copy_(state)
        return self._join(output, z)

    def _step(self, x: Tensor, cache: GatedDeltaNetCache) -> Tensor:
        """`forward` of one token. All that it does not need to record or to allocate it leaves out."""
        mixed, z, b, a = self._project(x)
        convolved = causal_conv1d_update(
            mixed.transpose(1, 2), cache.conv, self.conv1d.weight.squeeze(1), activation="silu"
        )
        q, k, v = (y.transpose(1, 2) for y in self._heads(convolved.transpose(1, 2)))
        wide = cache.state.dtype
        g = -self.A_log.to(wide).exp() * softplus(a.to(wide) + self.dt_bias.to(wide))
        output = torch.ops.attn.recurrent_attention_step(
            q, k, v, cache.state, g.transpose(1, 2), b.to(wide).sigmoid().transpose(1, 2), normalize=True
        )
        return self._join(output.transpose(1, 2), z)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The inputs of the convolution [batch, length, channels], z [batch, length, value_heads,
        value_dim], and b and a [batch, length, value_heads]."""
        shared = self.value_heads // self.heads
        of_values = shared * self.value_dim
        q, k, v, z = (
            self.in_proj_qkvz(x)
            .unflatten(2, (self.heads, -1))
            .split([self.head_dim, self.head_dim, of_values, of_values], dim=3)
        )
        b, a = self.in_proj_ba(x).unflatten(2, (self.heads, -1)).split([shared, shared], dim=3)
        mixed = torch.cat([y.flatten(2) for y in (q, k, v)], dim=2)
        return mixed, z.unflatten(3, (shared, self.value_dim)).flatten(2, 3), b.flatten(2), a.flatten(2)

    def _heads(self, convolved: Tensor) -> list[Tensor]:
        """q, k and v [batch, length, heads, …] of [batch, length, channels], without a copy."""
        keys = self.heads * self.head_dim
        q, k, v = convolved.split([keys, keys, self.value_heads * self.value_dim], dim=2)
        return [y.unflatten(2, (-1, d)) for y, d in ((q, self.head_dim), (k, self.head_dim), (v, self.value_dim))]

    def _join(self, output: Tensor, z: Tensor) -> Tensor:
        joined: Tensor = self.out_proj(self.norm(output, z).flatten(2))
        return joined

    def extra_repr(self) -> str:
        return (
            f"width={self.width}, heads={self.heads}, value_heads={self.value_heads}, "
            f"head_dim={self.head_dim}, value_dim={self.value_dim}"
        )
