"""One thread for small matrices: several would wait for each other longer than they compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["few_threads"]

_LONG = 512  # tokens from which on the matrices of one text are worth sharing


@contextmanager
def few_threads(texts: Sequence[Tensor]) -> Iterator[None]:
    """Use one thread as long as all texts, each ``(n, d)``, are short."""
    threads = torch.get_num_threads()
    if max((len(X) for X in texts), default=0) < _LONG:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
