"""Loads libattn, which contains the operators that the functions of this package call."""

from functools import cache

import torch

from attnbench import _installation


@cache
def load() -> None:
    """Registers the operators torch.ops.attn.… if they are not registered yet.

    Raises ImportError if libattn was built for another version of torch, and FileNotFoundError if
    it has not been built.
    """
    if refusal := _installation.refusal_of_torch(torch.__version__):
        raise ImportError(refusal)
    library = _installation.require(_installation.find().library)
    torch.ops.load_library(str(library))
    # A build with the CUDA kernels has them in a library of its own, which needs libtorch_cuda.
    cuda = library.with_name("libattn-cuda.so")
    if cuda.exists() and torch.cuda.is_available():
        torch.ops.load_library(str(cuda))
