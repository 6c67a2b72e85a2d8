"""Features in the type that they are kept in."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float

DTYPES = {torch.float16: np.dtype(np.float16), torch.float32: np.dtype(np.float32)}


def numpy_dtype(dtype: torch.dtype) -> np.dtype:
    """Half or single precision; ValueError for anything else."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype}; it needs to be torch.float32 or torch.float16")
    return DTYPES[dtype]


def cast(values: Float[np.ndarray, "*shape"], dtype: np.dtype) -> Float[np.ndarray, "*shape"]:
    """Round to ``dtype``; ValueError if a number overflows or is none."""
    with np.errstate(over="ignore"):
        kept = values.astype(dtype)
    if not np.isfinite(kept).all():
        worst = "NaN" if np.isnan(values).any() else f"numbers up to {np.abs(values).max():.3g}"
        raise ValueError(f"features hold {worst}, which do not fit {dtype}")
    return kept
