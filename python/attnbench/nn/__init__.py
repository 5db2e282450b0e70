"""Modules with linear attention, gated delta attention, Mamba-2 and LSH attention, for sequences [batch, length, width].

The attention modules have their own projections, as torch.nn.MultiheadAttention does, but take one
sequence x and its key_lengths and return one tensor. The width is divided among the heads: every head has width / heads dimensions unless
`head_dim` says otherwise.
"""

from attnbench.nn._attention import LinearAttention as LinearAttention
from attnbench.nn._attention import LSHAttention as LSHAttention
from attnbench.nn._gated_delta_net import GatedDeltaNet as GatedDeltaNet
from attnbench.nn._gated_delta_net import GatedDeltaNetCache as GatedDeltaNetCache
from attnbench.nn._language_model import CausalLMLayer as CausalLMLayer
from attnbench.nn._mamba2 import Mamba2 as Mamba2
from attnbench.nn._mamba2 import Mamba2Cache as Mamba2Cache
