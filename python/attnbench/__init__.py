"""Attention with linear cost for PyTorch, and the benchmark that measures it.

    import attnbench

    output = attnbench.linear_attention(q, k, v, causal=True)  # [batch, heads, length, dim]
    layer = attnbench.CausalLMLayer(width=256, heads=8)  # [batch, length, width]
    frame = attnbench.records("results/figure1")  # the records of a sweep as a pandas data frame
    record = attnbench.measure("mine.py:attention", query_len=4096, causal=True)
    with attnbench.accelerate():  # models of transformers compute with our operators
        model.generate(…)

`functional` has the functions and `nn` the modules; this package also has all of their names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnbench import functional, nn
    from attnbench._measuring import MeasureError, measure
    from attnbench._method import method
    from attnbench._records import records
    from attnbench.acceleration import accelerate
    from attnbench.functional import (
        LinearAttentionState,
        SparseAttentionOutput,
        linear_attention,
        linear_attention_step,
        lsh_attention,
        sparse_attention,
    )
    from attnbench.nn import (
        CausalLMLayer,
        GatedDeltaNet,
        GatedDeltaNetCache,
        LinearAttention,
        LSHAttention,
        Mamba2,
        Mamba2Cache,
    )

__all__ = [
    "CausalLMLayer",
    "GatedDeltaNet",
    "GatedDeltaNetCache",
    "LSHAttention",
    "LinearAttention",
    "LinearAttentionState",
    "Mamba2",
    "Mamba2Cache",
    "MeasureError",
    "SparseAttentionOutput",
    "accelerate",
    "functional",
    "linear_attention",
    "linear_attention_step",
    "lsh_attention",
    "measure",
    "method",
    "nn",
    "records",
    "sparse_attention",
]

# By public name: the module that defines it. A module is imported when one of its names is first
# used, so that the program `attnbench` starts without importing torch, and records can be read
# without it.
_DEFINED_IN = {
    "CausalLMLayer": "nn",
    "GatedDeltaNet": "nn",
    "GatedDeltaNetCache": "nn",
    "LSHAttention": "nn",
    "LinearAttention": "nn",
    "LinearAttentionState": "functional",
    "Mamba2": "nn",
    "Mamba2Cache": "nn",
    "MeasureError": "_measuring",
    "SparseAttentionOutput": "functional",
    "accelerate": "acceleration",
    "linear_attention": "functional",
    "linear_attention_step": "functional",
    "lsh_attention": "functional",
    "measure": "_measuring",
    "method": "_method",
    "records": "_records",
    "sparse_attention": "functional",
}


def __getattr__(name: str) -> Any:
    if name in ("functional", "nn"):
        return import_module(f"attnbench.{name}")
    if name == "__version__":
        return import_module("attnbench._installation").build_facts()["version"]
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'attnbench' has no attribute '{name}'")
    value = getattr(import_module(f"attnbench.{_DEFINED_IN[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
