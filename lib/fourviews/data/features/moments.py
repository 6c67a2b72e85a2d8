"""Mean and covariance of more tokens than memory holds."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from fourviews.display import progress

from ..files import sealed
from ..files.cache import locked
from .token_store import TokenStore


def mean_and_covariance(
    pieces: Iterable[Float[Tensor, "m s d"]],
    done: Callable[[int], Any] = lambda images: None,
) -> tuple[int, Float64[Tensor, "d"], Float64[Tensor, "d d"]]:
    """Number of tokens N, their mean μ = Σx/N and covariance Σ(x − μ)(x − μ)ᵀ/N, in one pass.

    Sums are taken in float64 and about the mean of the first piece: what is subtracted at the end,
    N times the square of the distance of two means, is then small beside what it is subtracted from.
    ``done`` is called with the number of images of each piece.

    Raises
    ------
    ValueError
        If there is no token, or a number is not finite.
    """
    count, shift, total, products = 0, None, None, None
    for piece in pieces:
        rows = piece.flatten(0, 1).double()
        if not len(rows):
            continue
        if shift is None:
            shift = rows.mean(0)
            total = torch.zeros_like(shift)
            products = torch.zeros(len(shift), len(shift), dtype=torch.float64)
        rows = rows - shift  # not in place: float64 tokens are the caller's
        count += len(rows)
        total += rows.sum(0)
        products.addmm_(rows.T, rows)
        done(len(piece))
    if shift is None:
        raise ValueError("train holds no token; it needs at least one")
    offset = total / count
    covariance = products / count - torch.outer(offset, offset)
    mean = shift + offset
    if not (mean.isfinite().all() and covariance.isfinite().all()):
        raise ValueError("train holds numbers that are not finite, or too large for float64")
    return count, mean, covariance


def moments_of(
    store: TokenStore, *, enabled: bool | None = None
) -> tuple[int, Float64[Tensor, "d"], Float64[Tensor, "d d"]]:
    """:func:`mean_and_covariance` of a store, computed once and kept beside its tokens.

    Sums depend in their last digits on the number of threads.  Kept, they are the same for every
    process, and so is the name under which reduced tokens are found again. ``enabled`` is that of
    :func:`fourviews.display.progress`.
    """
    file = store.folder / "moments.npz"
    found = _read(file)
    # On a disk that is only read, they are computed each time.
    places = (store.folder, store.folder.parent)
    if found is None and all(os.access(place, os.W_OK) for place in places):
        with locked(store.folder):
            found = _read(file)  # another process may have been faster
            if found is None:
                found = _computed(store, enabled)
                _write(file, *found)
    return _computed(store, enabled) if found is None else found


def _computed(
    store: TokenStore, enabled: bool | None
) -> tuple[int, Float64[Tensor, "d"], Float64[Tensor, "d d"]]:
    store.verify()  # what is kept must not come from damaged bytes
    with progress(total=len(store), label="tokens to covariance", enabled=enabled) as bar:
        return mean_and_covariance(store.batches(), bar.update)


def _write(
    file: Path, count: int, mean: Float64[Tensor, "d"], covariance: Float64[Tensor, "d d"]
) -> None:
    content = io.BytesIO()
    np.savez(content, count=np.array(count), mean=mean.numpy(), covariance=covariance.numpy())
    sealed.write(file, content.getvalue())


def _read(file: Path) -> tuple[int, Float64[Tensor, "d"], Float64[Tensor, "d d"]] | None:
    """What the file holds; None if it is missing or damaged."""
    content = sealed.read(file)
    if content is None:
        return None
    with np.load(io.BytesIO(content), allow_pickle=False) as held:
        count, mean, covariance = (held[name] for name in ("count", "mean", "covariance"))
    return int(count), torch.from_numpy(mean), torch.from_numpy(covariance)
