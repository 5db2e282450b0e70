"""A layer of a causal language model with linear attention."""

from typing import Literal

import torch
from torch import Tensor, nn

from attnbench.functional import FeatureMap, LinearAttentionState
from attnbench.nn._attention import LinearAttention


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
