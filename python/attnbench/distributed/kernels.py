"""Measures in one process the times of what a rank computes, from which `simulation` predicts the times of many ranks."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnbench.distributed import _recurrent
from attnbench.distributed.operators import Operator, Sizes


def measure(operator: Operator, sizes: Sizes, repeats: int) -> dict[str, Any]:
    """Median times in seconds, by name.

    One process computes `forward`, and `both` with the backward pass. For recurrent operators a rank in the middle also computes
    `end` (its end state and transition) and `gradient` (the gradient of its initial state); `first_end` is the end state alone,
    which is all that the first rank computes. `fold` applies a transition to a state and adds another state, and `compose`, a step
    of a scan, joins two transitions as well.

    Softmax has `forward` and `both`, and also `pair_forward` and `pair_both`: attention without a mask between the queries of one
    rank and the keys of another, half of which is the work of a step of the causal ring.
    """
    tensors = operator.inputs(sizes, seed=1)
    gradient = torch.ones_like(tensors["v"])
    given = [x.requires_grad_() for x in tensors.values()]

    def both(call: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            torch.autograd.grad(call(), given, gradient)

        return run

    def plain(call: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                call()

        return run

    def call() -> Tensor:
        return operator.call(**tensors)

    found = {"forward": _median(plain(call), repeats), "both": _median(both(call), repeats)}
    if operator.transition == "ring":
        from attnbench import functional

        def pair() -> Tensor:
            result = functional.sparse_attention(*(tensors[name].transpose(1, 2) for name in ("q", "k", "v")))
            assert isinstance(result, Tensor)
            return result.transpose(1, 2)

        return found | {"pair_forward": _median(plain(pair), repeats), "pair_both": _median(both(pair), repeats)}

    q, k, v, g, beta = (
        None if tensors.get(name) is None else tensors[name].detach().transpose(1, 2) for name in ("q", "k", "v", "g", "beta")
    )
    assert q is not None and k is not None and v is not None
    options = _recurrent.Options(operator.rule, sizes.dim**-0.5, operator.rule == "delta")
    state, transition = _recurrent.end_of_slice(options, k, v, g, beta)
    end = _median(plain(lambda: _recurrent.end_of_slice(options, k, v, g, beta)), repeats)
    first_end = _median(plain(lambda: _recurrent.end_from(options, k, v, g, beta, state)), repeats)
    gradients = gradient.transpose(1, 2)
    of_begin = _median(plain(lambda: _recurrent.gradient_of_begin(options, q, k, gradients, g, beta)), repeats)
    fold = _median(plain(lambda: state + _recurrent.apply(transition, state)), repeats)
    compose = 0.0
    if transition is not None:
        compose = _median(plain(lambda: transition @ transition if transition.dim() == 4 else transition * transition), repeats)
    return found | {"end": end, "first_end": first_end, "gradient": of_begin, "fold": fold, "compose": fold + compose}


def _median(run: Callable[[], None], repeats: int) -> float:
    samples = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        run()
        samples.append(time.perf_counter() - began)
    return statistics.median(samples[1:])
