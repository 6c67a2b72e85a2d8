"""What the checks of exercises draw from their generator."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def gaussian(generator: Generator, *shape: int) -> Tensor:
    """Independent standard normal numbers in float64."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def between(generator: Generator, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included."""
    return int(torch.randint(low, high + 1, (1,), generator=generator))
