"""attnbench measures attention; this package is its Python side."""

from attnbench._method import method

__all__ = ["method"]
