"""Lightning attention of MiniMax's models. transformers has no exchangeable kernel for this layer, so the
method `forward` of its class is replaced."""

import hashlib
import importlib
import inspect
from typing import Any

import torch
from torch import Tensor

from attnbench import recurrent
from attnbench.acceleration._counters import PassOn
from attnbench.acceleration._operators import NEUTRAL, dispatching, require_plain_cpu
from attnbench.acceleration._transformers import TESTED_VERSION, SignatureError
from attnbench.acceleration._undo import Undo

NAME = "lightning attention of MiniMax"
MODULE = "transformers.models.minimax.modeling_minimax"
# The SHA-256 of the source of MiniMaxLightningAttention.forward in the tested version. _forward() below repeats its steps.
TESTED_SOURCE = "69bc3f622840097cfc6810b4640b50455db872e89ee2a49d8bb326b65a9f88c5"


def source_digest(function: Any) -> str:
    """The SHA-256 of the source of a function, or "no source" where it has none."""
    try:
        return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()
    except (OSError, TypeError):  # TypeError for an object that is no function of Python
        return "no source"


def replace_lightning_attention(undo: Undo) -> None:
    """Replaces the method until `undo` runs. Raises SignatureError if its source is not that of the tested version."""
    module = importlib.import_module(MODULE)
    layer = module.MiniMaxLightningAttention
    theirs = layer.__dict__["forward"]
    found = source_digest(theirs)
    if found != TESTED_SOURCE:
        raise SignatureError(
            f"attnbench.accelerate: the source of {MODULE}.MiniMaxLightningAttention.forward is not that of transformers "
            f"{TESTED_VERSION}, with which this version of attnbench was tested\n  found  SHA-256 {found}\n  tested SHA-256 "
            f"{TESTED_SOURCE}\nNothing is replaced; install transformers=={TESTED_VERSION}, or do not call attnbench.accelerate"
        )
    call = dispatching(NAME, _forward, theirs, refusals=())

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call(self, *args, **kwargs)

    forward.__wrapped__ = theirs  # type: ignore[attr-defined]  # transformers reads the signature
    layer.forward = forward
    undo.add(lambda: setattr(layer, "forward", theirs))


def _forward(
    self: Any,
    hidden_states: Tensor,
    position_embeddings: Any,
    attention_mask: Tensor | None,
    past_key_values: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """The steps of the replaced method, with `chunk_simple_gla` instead of its loop over blocks: the logarithm
    of the decay of head h is −slope_rate[h], and queries are not scaled. hidden_states [B,T,W] → the output
    [B,T,W] and the state [B,H,K,V]."""
    del position_embeddings  # The replaced method does not use them either.
    require_plain_cpu(hidden_states, attention_mask, self.slope_rate, self.qkv_proj.weight)
    for name, value in kwargs.items():
        if value is not None and value is not False and name not in NEUTRAL and name != "is_causal":
            raise PassOn(f"the argument {name}")
    batch, length, _ = hidden_states.shape
    state = None if past_key_values is None else past_key_values.get_linear_cache(self.layer_idx)
    if state is not None and not isinstance(state, Tensor):
        raise PassOn("a cache whose entry is no tensor")
    qkv = self.act_fn(self.qkv_proj(hidden_states))
    if attention_mask is not None:
        qkv = (qkv * attention_mask[:, :, None]).to(qkv.dtype)
    q, k, v = qkv.reshape(batch, length, self.num_attention_heads, 3 * self.head_dim).split(self.head_dim, dim=3)
    try:
        output, final = recurrent.chunk_simple_gla(
            q, k, v, g_gamma=-self.slope_rate.flatten().float(), scale=1.0, initial_state=state, output_final_state=True
        )
    except (TypeError, ValueError) as error:
        raise PassOn(f"{type(error).__name__}: {str(error).splitlines()[0]}") from None
    assert final is not None
    state = final.to(v.dtype)
    output = self.norm(output.reshape(batch, length, -1))
    output = self.out_proj(torch.sigmoid(self.output_gate(hidden_states)) * output)
    if past_key_values is not None:
        past_key_values.set_linear_cache(self.layer_idx, state)
    return output, state
