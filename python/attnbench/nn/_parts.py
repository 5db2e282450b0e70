"""What the layers with a convolution and steps, Gated DeltaNet and Mamba-2, have in common."""

import math

import torch
from torch import Tensor


def check_sizes(**sizes: int | None) -> None:
    """Raises ValueError for a size below 1, with its name."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{name} = {size}, expected at least 1")


def step_biases(heads: int) -> Tensor:
    """dt_bias [heads], drawn so that the steps softplus(dt_bias) are between 0.001 and 0.1, as in Mamba-2."""
    steps = torch.empty(heads).uniform_(math.log(0.001), math.log(0.1)).exp()
    return steps.expm1().log()


def empty_convolution(weight: Tensor, batch: int) -> Tensor:
    """The inputs of a convolution [channels,1,W] before the first token of `batch` sequences: zeros [batch,channels,W−1]."""
    return weight.new_zeros(batch, weight.shape[0], weight.shape[2] - 1)
