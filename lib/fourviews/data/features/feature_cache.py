"""Features of single images, computed once and shared by all lessons."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from ..files import sealed
from ..files.cache import locked
from .casting import cast

# An interruption loses no more than this many images.
_PIECE = 64


def key(image: Tensor) -> str:
    """SHA-256 of an image's shape, type and content."""
    array = np.ascontiguousarray(image.numpy())
    head = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(head + array.tobytes()).hexdigest()


def cached_features(
    folder: Path,
    images: Shaped[Tensor, "n *shape"],
    compute: Callable[[Tensor], Tensor],
    *,
    shape: tuple[int, ...],
    dtype: np.dtype,
) -> tuple[Shaped[Tensor, "n *features"], int]:
    """Features of each image, read where they are kept, computed and kept where not.

    Each image has a file of its own, named by its content, which appears complete or not at all;
    so lessons share what they have in common. While something is missing, the folder is locked:
    other processes wait and then read. A damaged file counts as missing.

    Parameters
    ----------
    folder
        Where features of this network and type are kept.
    images
        Any number of images.
    compute
        Features of some of them, ``(m, *shape)``.
    shape, dtype
        Of the features of one image.

    Returns
    -------
    features : Tensor
        ``(n, *shape)``.
    computed : int
        How many images were computed in this call.

    Raises
    ------
    ValueError
        If features do not fit the type (an overflow, or NaN).
    """
    keys = [key(image) for image in images]
    features = np.empty((len(keys), *shape), dtype=dtype)

    def read(rows: list[int]) -> list[int]:
        """Fill in what is there; return the rows that are not."""
        missing = []
        for row in rows:
            found = _read(_file(folder, keys[row]), shape, dtype)
            if found is None:
                missing.append(row)
            else:
                features[row] = found
        return missing

    missing = read(list(range(len(keys))))
    computed = 0
    if missing:
        with locked(folder):
            # Another process may have computed them while this one waited.
            missing = read(missing)
            # The same image twice is computed once.
            first = {keys[row]: row for row in reversed(missing)}
            todo = sorted(first.values())
            for start in range(0, len(todo), _PIECE):
                rows = todo[start : start + _PIECE]
                values = compute(images[rows]).numpy()
                if values.shape != (len(rows), *shape):
                    raise ValueError(f"features have shape {values.shape[1:]}; they need {shape}")
                kept = cast(values, dtype)
                for row, value in zip(rows, kept, strict=True):
                    _write(_file(folder, keys[row]), value)
                    features[row] = value
                computed += len(rows)
            for row in missing:
                features[row] = features[first[keys[row]]]
    return torch.from_numpy(features), computed


def kept_features(
    folder: Path, images: Shaped[Tensor, "n *shape"], *, shape: tuple[int, ...], dtype: np.dtype
) -> tuple[Shaped[np.ndarray, "n *features"], list[int]]:
    """What :func:`cached_features` has kept of these images, and the rows that it has not."""
    features = np.empty((len(images), *shape), dtype=dtype)
    missing = []
    for row, image in enumerate(images):
        found = _read(_file(folder, key(image)), shape, dtype)
        if found is None:
            missing.append(row)
        else:
            features[row] = found
    return features, missing


def _file(folder: Path, name: str) -> Path:
    return folder / name[:2] / f"{name}.npy"


def _read(file: Path, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray | None:
    content = sealed.read(file)
    if content is None:
        return None
    value = np.load(io.BytesIO(content), allow_pickle=False)
    return value if value.shape == shape and value.dtype == dtype else None


def _write(file: Path, value: np.ndarray) -> None:
    content = io.BytesIO()
    np.save(content, value, allow_pickle=False)
    sealed.write(file, content.getvalue())
