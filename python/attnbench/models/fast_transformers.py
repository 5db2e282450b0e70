"""The models of the authors of "Transformers are RNNs", with our operators.

`TransformerEncoderBuilder` builds the same encoder as the builder of this name in the package
pytorch-fast-transformers 0.4. It takes the same arguments, and the weights have the same names and shapes, so
that weights of one can be loaded into the other. A program that uses the package changes only its imports:

    from attnbench.models.fast_transformers import LengthMask, TransformerEncoderBuilder, TriangularCausalMask

    builder = TransformerEncoderBuilder.from_kwargs(attention_type="linear", n_layers=4, n_heads=8)
    model = builder.get()
    output = model(x, length_mask=LengthMask(lengths))  # x [batch, length, heads · query_dimensions]

Attention types are "full", "linear", "causal-linear" and "reformer". The package has more of them, and also
recurrent encoders and decoders; asking for one of those here is an error.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbench.functional import linear_attention, lsh_attention, sparse_attention


class FullMask:
    """All `N` queries see all `M` keys; M is N by default. Raises ValueError if N is not an int, such as a tensor."""

    causal = False

    def __init__(self, N: int, M: int | None = None, device: Any = "cpu") -> None:
        if not isinstance(N, int):
            raise ValueError(f"FullMask: N = {N!r}, expected a number; masks of any other form are not supported")
        self.shape = (N, N if M is None else M)


class TriangularCausalMask:
    """Query i of `N` sees the keys 0 to i."""

    causal = True

    def __init__(self, N: int, device: Any = "cpu") -> None:
        self.shape = (N, N)


class LengthMask:
    """Of the `max_len` positions of sequence i the first `lengths[i]` are valid: integers [batch]. By default max_len is the largest
    length."""

    def __init__(self, lengths: Tensor, max_len: int | None = None, device: Any = None) -> None:
        self.lengths = lengths.to(device=device, dtype=torch.int64)
        self.max_len = int(lengths.max()) if max_len is None else max_len


# The parameters of each attention type, with the defaults of the package.
ATTENTION: dict[str, dict[str, Any]] = {
    "full": {"softmax_temp": None, "attention_dropout": 0.1},
    "linear": {"feature_map": None},
    "causal-linear": {"feature_map": None},
    "reformer": {
        "chunk_size": 32, "bits": 63, "rounds": 4, "masked": False, "softmax_temp": None, "attention_dropout": 0.1,
    },
}  # fmt: skip


class InnerAttention(nn.Module):
    """Attention of the type `kind`, a key of ATTENTION: q and k [batch, heads, length, query_dim] and v [batch, heads, length,
    value_dim] → [batch, heads, length, value_dim]. Raises ValueError for options that are not supported, and RuntimeError, as the
    package does, if linear attention gets a mask of the wrong form."""

    def __init__(self, kind: str, options: dict[str, Any]) -> None:
        super().__init__()
        self.kind, self.options = kind, options
        if options.get("feature_map") is not None:
            raise ValueError(f"attention_type {kind!r}: feature_map is not supported, which by default is elu(x) + 1")
        if kind == "reformer":
            if options["masked"]:
                raise ValueError("attention_type 'reformer': masked=True is not supported")
            if options["softmax_temp"] is not None:
                raise ValueError("attention_type 'reformer': softmax_temp is not supported, which by default is 1/√dim")
            if options["attention_dropout"]:
                raise ValueError("attention_type 'reformer': attention_dropout is not supported, expected attention_dropout=0")

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool, key_lengths: Tensor | None) -> Tensor:
        if self.kind == "reformer":
            # Each training step has other hashes. PyTorch's generator draws the seed, because activation checkpointing restores the
            # generator's state.
            seed = int(torch.randint(2**31, ())) if self.training else 0
            return lsh_attention(
                q, v, causal=causal, key_lengths=key_lengths, rounds=self.options["rounds"], chunk=self.options["chunk_size"],
                buckets=2 * self.options["bits"], profile="fast-transformers", seed=seed,
            )  # fmt: skip
        if self.kind in ("linear", "causal-linear"):
            if causal != (self.kind == "causal-linear"):
                wanted = "a TriangularCausalMask" if self.kind == "causal-linear" else "no mask, or a FullMask"
                raise RuntimeError(f"attention_type {self.kind!r} needs {wanted} as attn_mask")
            return linear_attention(q, k, v, causal=causal, key_lengths=key_lengths)
        scale, dropout = self.options["softmax_temp"], self.options["attention_dropout"]
        if self.training and dropout:  # Our operator has no dropout.
            visible = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
            visible = (visible.tril() if causal else visible)[None, None]
            if key_lengths is not None:
                visible = visible & (torch.arange(k.shape[2], device=q.device) < key_lengths[:, None])[:, None, None]
            return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, dropout_p=dropout, scale=scale)
        output = sparse_attention(q, k, v, causal=causal, key_lengths=key_lengths, scale=scale)
        assert isinstance(output, Tensor)
        return output


class AttentionLayer(nn.Module):
    """Attention with its projections: [batch, length, width] → [batch, length, width]."""

    def __init__(self, attention: InnerAttention, width: int, heads: int, query_dim: int, value_dim: int) -> None:
        super().__init__()
        self.inner_attention = attention
        self.query_projection = nn.Linear(width, query_dim * heads)
        self.key_projection = nn.Linear(width, query_dim * heads)
        self.value_projection = nn.Linear(width, value_dim * heads)
        self.out_projection = nn.Linear(value_dim * heads, width)
        self.n_heads = heads

    def forward(self, x: Tensor, causal: bool, key_lengths: Tensor | None) -> Tensor:
        q, k, v = (
            projection(x).unflatten(2, (self.n_heads, -1)).transpose(1, 2)
            for projection in (self.query_projection, self.key_projection, self.value_projection)
        )
        output: Tensor = self.inner_attention(q, k, v, causal, key_lengths)
        projected: Tensor = self.out_projection(output.transpose(1, 2).flatten(2))
        return projected


class TransformerEncoderLayer(nn.Module):
    """Attention and a feed-forward network, each followed by a residual connection and a normalisation: [batch, length, width] →
    [batch, length, width]."""

    def __init__(self, attention: AttentionLayer, width: int, inner: int, dropout: float, activation: str) -> None:
        super().__init__()
        self.attention = attention
        self.linear1, self.linear2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.activation = F.relu if activation == "relu" else F.gelu

    def forward(self, x: Tensor, causal: bool, key_lengths: Tensor | None) -> Tensor:
        x = x + self.dropout(self.attention(x, causal, key_lengths))
        y = x = self.norm1(x)
        y = self.dropout(self.activation(self.linear1(y)))
        output: Tensor = self.norm2(x + self.dropout(self.linear2(y)))
        return output


class TransformerEncoder(nn.Module):
    """Layers, followed by `norm_layer` unless it is None."""

    def __init__(self, layers: list[TransformerEncoderLayer], norm_layer: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm_layer

    def forward(
        self,
        x: Tensor,
        attn_mask: FullMask | TriangularCausalMask | None = None,
        length_mask: LengthMask | None = None,
    ) -> Tensor:
        """x [batch, length, width] → [batch, length, width].

        Raises ValueError for masks of another class or size.
        """
        batch, length, _ = x.shape
        if attn_mask is not None:
            if not isinstance(attn_mask, FullMask | TriangularCausalMask):
                raise ValueError(f"attn_mask is a {type(attn_mask).__name__}, expected a FullMask or a TriangularCausalMask")
            if attn_mask.shape != (length, length):
                raise ValueError(
                    f"attn_mask is for {attn_mask.shape[0]} queries and {attn_mask.shape[1]} keys, expected {length} of each"
                )
        lengths = None
        if length_mask is not None:
            if length_mask.lengths.shape != (batch,) or length_mask.max_len != length:
                raise ValueError(
                    f"length_mask is for {len(length_mask.lengths)} sequences of up to {length_mask.max_len} positions, expected "
                    f"{batch} of {length}"
                )
            lengths = length_mask.lengths
        for layer in self.layers:
            x = layer(x, attn_mask is not None and attn_mask.causal, lengths)
        return x if self.norm is None else self.norm(x)


class TransformerEncoderBuilder:
    """Builds a TransformerEncoder from attributes that have the names and defaults of the package. Setting an unknown attribute
    raises AttributeError, and an unknown attention type or activation ValueError."""

    def __init__(self) -> None:
        self.n_layers = 4
        self.n_heads = 4
        self.query_dimensions = 64
        self.value_dimensions = 64
        self.feed_forward_dimensions = 1024
        self.dropout = 0.1
        self.activation = "relu"
        self.final_normalization = True
        self.attention_type = "full"

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "attention_type" and value not in ATTENTION:
            raise ValueError(f"attention_type = {value!r}, expected one of {', '.join(ATTENTION)}")
        if name == "activation" and value not in ("relu", "gelu"):
            raise ValueError(f"activation = {value!r}, expected 'relu' or 'gelu'")
        if name not in _ATTRIBUTES:
            raise AttributeError(f"TransformerEncoderBuilder has no parameter {name!r}; it has {', '.join(sorted(_ATTRIBUTES))}")
        object.__setattr__(self, name, value)

    @classmethod
    def from_kwargs(cls, **parameters: Any) -> "TransformerEncoderBuilder":
        """A builder with these attributes. Raises AttributeError for an unknown name."""
        return cls.from_dictionary(parameters)

    @classmethod
    def from_dictionary(cls, parameters: dict[str, Any], strict: bool = True) -> "TransformerEncoderBuilder":
        """A builder with these attributes. Unknown names raise AttributeError or, with strict=False, are ignored."""
        builder = cls()
        for name, value in parameters.items():
            if strict or name in _ATTRIBUTES:
                setattr(builder, name, value)
        return builder

    def get(self) -> TransformerEncoder:
        """The encoder. Raises ValueError for values that the attention type does not support. Attributes of other attention types
        are ignored, as in the package."""
        options = {name: getattr(self, name, default) for name, default in ATTENTION[self.attention_type].items()}
        width = self.value_dimensions * self.n_heads

        def layer() -> TransformerEncoderLayer:
            attention = AttentionLayer(
                InnerAttention(self.attention_type, options), width, self.n_heads, self.query_dimensions, self.value_dimensions
            )
            return TransformerEncoderLayer(attention, width, self.feed_forward_dimensions, self.dropout, self.activation)

        layers = [layer() for _ in range(self.n_layers)]
        return TransformerEncoder(layers, nn.LayerNorm(width) if self.final_normalization else None)


_ATTRIBUTES = frozenset(
    {
        "n_layers", "n_heads", "query_dimensions", "value_dimensions", "feed_forward_dimensions", "dropout", "activation",
        "final_normalization", "attention_type",
    }
).union(*ATTENTION.values())  # fmt: skip
