"""Heads, one a file: each says how its first layer acts on the data, and its network."""

from .mlp import MLP

__all__ = ["MLP"]
