"""Heads, one a file: each says how its first layer acts on the data, and what its network is."""

from .fourier import FNO, BlockFNO, FNONetwork, circulant
from .mixer import Mixer, MixerNetwork
from .mlp import MLP
from .self_attention import SelfAttention, SelfAttentionNetwork

__all__ = [
    "FNO",
    "MLP",
    "BlockFNO",
    "FNONetwork",
    "Mixer",
    "MixerNetwork",
    "SelfAttention",
    "SelfAttentionNetwork",
    "circulant",
]
