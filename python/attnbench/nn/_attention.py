"""Multi-head self-attention whose heads are linear attention or LSH attention."""

import torch
from torch import Tensor, nn

from attnbench.functional import (
    FeatureMap,
    LinearAttentionState,
    Profile,
    linear_attention,
    linear_attention_step,
    lsh_attention,
)


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
