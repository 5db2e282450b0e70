"""The layer of Mamba-2, with its convolution, steps and normalisation."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from attnbench.convolution import causal_conv1d_fn, causal_conv1d_update
from attnbench.nn._parts import check_sizes, empty_convolution, step_biases
from attnbench.recurrent import chunk_simple_gla, selective_state_update
from attnbench.recurrent._rule import softplus, wide_dtype


class Mamba2Cache(NamedTuple):
    """What a `Mamba2` keeps of the tokens that it has seen. Its size does not depend on their number.

    Attributes:
        conv: the inputs of the convolution at the last W−1 tokens, [batch, channels, W−1].
        state: float32 [batch, heads, head_dim, state_dim]; float64 in a layer of float64.
    """

    conv: Tensor
    state: Tensor


class GroupedRMSNorm(nn.Module):
    """y · weight / √(mean of y² + eps) with y = x · silu(gate); the means are over groups of
    neighbours in the last axis."""

    def __init__(self, dim: int, groups: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.groups, self.eps = groups, eps

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        wide = wide_dtype(x)
        y = (x.to(wide) * silu(gate.to(wide))).unflatten(-1, (self.groups, -1))
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        normalised: Tensor = self.weight * y.flatten(-2).to(x.dtype)
        return normalised


class Mamba2(nn.Module):
    """The layer of Mamba-2 (https://arxiv.org/abs/2405.21060), as Mamba-2, Granite 4 and Nemotron-H
    use it.

    Each token is projected to z, x, B, C and a step of each head. x, B and C go through a causal
    convolution of W tokens for each channel, and silu. With the steps δ = softplus(dt + dt_bias)
    within `dt_limit` and A = −exp(A_log), the state of a head changes by
    S ← e^(A δ) S + δ x Bᵀ, and its output is S C + D · x
    (`attnbench.recurrent.mamba_chunk_scan_combined`). The outputs are multiplied by silu(z),
    normalised in groups and projected to width. No output depends on a later token.

    The parameters have the names and shapes of those of Mamba2Mixer of transformers, so that
    `load_state_dict` takes its weights.

    Attributes:
        in_proj: torch.nn.Linear to z, x, B, C and the steps.
        conv1d: torch.nn.Conv1d, whose weight and bias are those of the convolution.
        dt_bias, A_log, D: [heads].
        norm: the `GroupedRMSNorm` of the outputs.
        out_proj: torch.nn.Linear from heads · head_dim to width.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        head_dim: int | None = None,
        state_dim: int = 128,
        groups: int = 1,
        conv_width: int = 4,
        conv_bias: bool = True,
        bias: bool = False,
        dt_limit: tuple[float, float] = (0.0, math.inf),
        eps: float = 1e-5,
    ) -> None:
        """Makes the parameters: projections with PyTorch's default initialisation, D of ones, A of
        −1, −2, … −heads, and steps softplus(dt_bias) between 0.001 and 0.1.

        Args:
            width: the number of features of every token.
            heads: of x and of the steps.
            head_dim: the dimension of x in a head; None for 2 · width / heads.
            state_dim: the dimension of B and C.
            groups: of heads that share B and C, and of outputs that are normalised together.
            conv_width: W.
            conv_bias, bias: whether the convolution and the projections have biases.
            dt_limit: the least and the largest step.
            eps: of the normalisation of outputs.
        """
        super().__init__()
        check_sizes(width=width, heads=heads, head_dim=head_dim, state_dim=state_dim, groups=groups, conv_width=conv_width)
        if head_dim is None and 2 * width % heads:
            raise ValueError(f"2 · width = {2 * width}, expected a multiple of heads = {heads}, or head_dim")
        if heads % groups:
            raise ValueError(f"heads = {heads}, expected a multiple of groups = {groups}")
        self.width, self.heads, self.state_dim, self.groups = width, heads, state_dim, groups
        self.head_dim = 2 * width // heads if head_dim is None else head_dim
        self.dt_limit = dt_limit
        inner = heads * self.head_dim
        channels = inner + 2 * groups * state_dim
        self.in_proj = nn.Linear(width, inner + channels + heads, bias=bias)
        self.conv1d = nn.Conv1d(channels, channels, conv_width, groups=channels, bias=conv_bias)
        self.dt_bias = nn.Parameter(step_biases(heads))
        self.A_log = nn.Parameter(torch.arange(1, heads + 1, dtype=torch.get_default_dtype()).log())
        self.D = nn.Parameter(torch.ones(heads))
        self.norm = GroupedRMSNorm(inner, groups, eps)
        self.out_proj = nn.Linear(inner, width, bias=bias)

    def empty_cache(self, batch: int) -> Mamba2Cache:
        """The cache before the first token of `batch` sequences."""
        weight = self.conv1d.weight
        wide = wide_dtype(weight)
        return Mamba2Cache(
            empty_convolution(weight, batch),
            weight.new_zeros((batch, self.heads, self.head_dim, self.state_dim), dtype=wide),
        )

    def forward(self, x: Tensor, cache: Mamba2Cache | None = None, *, cu_seqlens: Tensor | None = None) -> Tensor:
        """x [batch, length, width] → [batch, length, width].

        Args:
            cache: what earlier calls have seen of the same sequences; x continues them, and is added
                to it in place. No gradients go through a cache. A call with one token records no
                gradients at all, and is the fastest way to decode.
            cu_seqlens: int64 [N+1]; a batch of 1 holds N sequences, which begin and end there. A
                cache is then one of N sequences.
        """
        if x.dim() != 3 or x.shape[2] != self.width:
            raise ValueError(f"Mamba2: x has shape {list(x.shape)}, expected [batch, length, {self.width}]")
        if cache is not None and x.shape[1] == 1 and cu_seqlens is None:
            with torch.no_grad():
                return self._step(x, cache)
        z, mixed, dt = self._project(x)
        convolved = causal_conv1d_fn(
            mixed.transpose(1, 2), self.conv1d.weight.squeeze(1), self.conv1d.bias, activation="silu",
            cu_seqlens=cu_seqlens, initial_states=None if cache is None else cache.conv.clone(), return_final_states=True,
        )  # fmt: skip
        values, keys, queries = self._heads(convolved[0].transpose(1, 2))
        wide = wide_dtype(x)
        steps = softplus(dt.to(wide) + self.dt_bias.to(wide)).clamp(*self.dt_limit)
        output, state = chunk_simple_gla(
            queries, keys, (values * steps.unsqueeze(-1)).to(x.dtype), -self.A_log.to(wide).exp() * steps, scale=1.0,
            initial_state=None if cache is None else cache.state.clone(), output_final_state=cache is not None,
            state_v_first=True, cu_seqlens=cu_seqlens,
        )  # fmt: skip
        if cache is not None and state is not None:
            with torch.no_grad():
                cache.conv.copy_(convolved[1])
                cache.state.copy_(state)
        return self._join(output + values * self.D.to(x.dtype).unsqueeze(-1), z)

    def _step(self, x: Tensor, cache: Mamba2Cache) -> Tensor:
        """`forward` of one token. All that it does not need to record or to allocate it leaves out."""
        z, mixed, dt = self._project(x)
        convolved = causal_conv1d_update(
            mixed.transpose(1, 2), cache.conv, self.conv1d.weight.squeeze(1), self.conv1d.bias, activation="silu"
        )
        values, keys, queries = (y.squeeze(1) for y in self._heads(convolved.transpose(1, 2)))
        wide = cache.state.dtype
        steps = softplus(dt.to(wide) + self.dt_bias.to(wide)).clamp(*self.dt_limit).squeeze(1)
        sizes = (self.heads, self.head_dim)
        output = selective_state_update(
            cache.state, values, steps.unsqueeze(-1).expand(-1, *sizes),
            (-self.A_log.to(wide).exp()).view(-1, 1, 1).expand(*sizes, self.state_dim), keys, queries,
            self.D.unsqueeze(-1).expand(sizes),
        )  # fmt: skip
        return self._join(output.unsqueeze(1), z)

    def _project(self, x: Tensor) -> list[Tensor]:
        """z [batch, length, heads · head_dim], the inputs of the convolution [batch, length, channels],
        and the steps [batch, length, heads]."""
        inner = self.heads * self.head_dim
        parts: list[Tensor] = self.in_proj(x).split([inner, self.conv1d.weight.shape[0], self.heads], dim=2)
        return parts

    def _heads(self, convolved: Tensor) -> list[Tensor]:
        """x, B and C [batch, length, heads or groups, …] of [batch, length, channels], without a copy."""
        shared = self.groups * self.state_dim
        values, keys, queries = convolved.split([self.heads * self.head_dim, shared, shared], dim=2)
        return [values.unflatten(2, (self.heads, -1)), *(y.unflatten(2, (self.groups, -1)) for y in (keys, queries))]

    def _join(self, output: Tensor, z: Tensor) -> Tensor:
        joined: Tensor = self.out_proj(self.norm(output.flatten(2), z))
        return joined

    def extra_repr(self) -> str:
        return (
            f"width={self.width}, heads={self.heads}, head_dim={self.head_dim}, state_dim={self.state_dim}, "
            f"groups={self.groups}"
        )
