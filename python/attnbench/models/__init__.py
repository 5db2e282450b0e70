"""Whole models: those that `attnbench models` measures, with its worker (docs/models.md), and
`fast_transformers`, the encoders of the authors of "Transformers are RNNs" around our operators."""
