"""Whole models: those that `attnbench models` measures (docs/models.md), with its worker, and in the module
`fast_transformers` the encoders of the authors of "Transformers are RNNs" with our operators."""
