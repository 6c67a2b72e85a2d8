"""Mean and covariance of more tokens than memory holds."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from fourviews.display import progress

from ..files.cache import atomic_write, locked
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
    if found is None:
        with locked(store.folder):
            found = _read(file)  # another process may have been faster
            if found is None:
                store.verify()  # what is kept must not come from damaged bytes
                with progress(
                    total=len(store), label="tokens to covariance", enabled=enabled
                ) as bar:
                    found = mean_and_covariance(store.batches(), bar.update)
                _write(file, *found)
    return found


def _write(
    file: Path, count: int, mean: Float64[Tensor, "d"], covariance: Float64[Tensor, "d d"]
) -> None:
    arrays = {"count": np.array(count), "mean": mean.numpy(), "covariance": covariance.numpy()}
    with atomic_write(file) as handle:
        np.savez(handle, sha256=np.array(_digest(arrays)), **arrays)


def _read(file: Path) -> tuple[int, Float64[Tensor, "d"], Float64[Tensor, "d d"]] | None:
    """What the file holds; None if it is missing or damaged."""
    try:
        with np.load(file, allow_pickle=False) as held:
            arrays = {name: held[name] for name in ("count", "mean", "covariance")}
            if str(held["sha256"]) != _digest(arrays):
                return None
    except (FileNotFoundError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    mean, covariance = arrays["mean"], arrays["covariance"]
    return int(arrays["count"]), torch.from_numpy(mean), torch.from_numpy(covariance)


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in arrays.values():
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()
