"""The experiment `attnbench models`: small models of the real classes of transformers, alone and with
our operators. docs/models.md describes it."""
