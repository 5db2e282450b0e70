"""The layer Gated DeltaNet, and what it keeps of the tokens that it has seen."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from attnbench.convolution import causal_conv1d_fn, causal_conv1d_update
from attnbench.nn._parts import check_sizes, empty_convolution, step_biases
from attnbench.recurrent import chunk_gated_delta_rule
from attnbench.recurrent._rule import wide_dtype


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
        wide = wide_dtype(x)
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
        check_sizes(
            width=width, heads=heads, value_heads=value_heads, head_dim=head_dim, value_dim=value_dim, conv_width=conv_width
        )
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
        self.dt_bias = nn.Parameter(step_biases(value_heads))
        self.A_log = nn.Parameter(torch.empty(value_heads).uniform_(0.01, 16).log())
        self.norm = GatedRMSNorm(self.value_dim, eps)
        self.out_proj = nn.Linear(values, width, bias=False)

    def empty_cache(self, batch: int) -> GatedDeltaNetCache:
        """The cache before the first token of `batch` sequences."""
        weight = self.conv1d.weight
        state = (batch, self.value_heads, self.head_dim, self.value_dim)
        return GatedDeltaNetCache(
            empty_convolution(weight, batch),
            weight.new_zeros(state, dtype=wide_dtype(weight)),
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
