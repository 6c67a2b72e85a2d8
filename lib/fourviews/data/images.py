"""Labelled images, and how picture files become tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from .sources import Source


@dataclass(frozen=True, repr=False)
class ImageSet:
    """Images of one size with their labels.

    Attributes
    ----------
    images
        ``(n, height, width, 3)``, red, green and blue from 0 to 255.
    labels
        ``(n,)``, indices into ``classes``.
    classes
        Names of the classes.
    source
        Where the images come from.
    licence
        What may be done with them, in a sentence.
    may_be_shown
        Whether the licence lets a published page show the images themselves. If not, show what is
        computed from them.

    Raises
    ------
    ValueError
        If shapes, types or labels do not fit.
    """

    images: UInt8[Tensor, "n height width 3"]
    labels: Int64[Tensor, "n"]
    classes: tuple[str, ...]
    source: Source
    licence: str
    may_be_shown: bool = False

    def __post_init__(self) -> None:
        check_images(self.images)
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"labels has shape {tuple(self.labels.shape)} and dtype {self.labels.dtype}; it"
                f" needs {len(self.images)} integers of dtype int64"
            )
        if len(self.labels) and not (
            0 <= int(self.labels.min()) and int(self.labels.max()) < len(self.classes)
        ):
            raise ValueError(
                f"labels run from {int(self.labels.min())} to {int(self.labels.max())}; they need"
                f" to be indices of {len(self.classes)} classes"
            )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: slice | Sequence[int] | Tensor) -> ImageSet:
        """Some of the images, by a slice, a list of indices or a boolean mask; same classes."""
        if isinstance(rows, int):
            raise ValueError(f"rows is {rows}; it needs to be a slice, a list or a mask")
        return ImageSet(
            self.images[rows],
            self.labels[rows],
            self.classes,
            self.source,
            self.licence,
            self.may_be_shown,
        )

    def __repr__(self) -> str:
        _, height, width, _ = self.images.shape
        return (
            f"<{len(self)} images of {height}×{width} pixels, {len(self.classes)} classes;"
            f" {self.source}>"
        )


def check_images(images: Tensor) -> None:
    """Raise ValueError unless ``images`` is uint8 of shape (n, height, width, 3)."""
    if not isinstance(images, Tensor):
        raise ValueError(f"images is of type {type(images).__name__}; it needs to be a tensor")
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != torch.uint8:
        raise ValueError(
            f"images has shape {tuple(images.shape)} and dtype {images.dtype}; it needs uint8 of"
            " shape (n, height, width, 3)"
        )


def read_image(
    file: Path | bytes, *, name: str, size: tuple[int, int] | None = None
) -> UInt8[np.ndarray, "height width 3"]:
    """Decode a picture; greyscale and palettes become red, green and blue.

    Parameters
    ----------
    file
        A file, or its content.
    name
        What to call it in messages.
    size
        Height and width that it needs to have.

    Raises
    ------
    ImportError
        If Pillow is missing.
    ValueError
        If the file is damaged, or has another size.
    """
    pillow = _pillow()
    try:
        with pillow.open(BytesIO(file) if isinstance(file, bytes) else file) as picture:
            if size is not None and (picture.height, picture.width) != size:
                raise ValueError(
                    f"{name} has {picture.height}×{picture.width} pixels; it needs"
                    f" {size[0]}×{size[1]}"
                )
            return np.array(picture.convert("RGB"))
    except (OSError, SyntaxError, pillow.DecompressionBombError) as error:
        raise ValueError(f"{name} is damaged or no picture ({error})") from error


def resize(
    image: UInt8[np.ndarray, "height width 3"], side: int
) -> UInt8[np.ndarray, "side side 3"]:
    """Scale a square picture, averaging where it shrinks."""
    pillow = _pillow()
    picture = pillow.fromarray(image).resize((side, side), pillow.Resampling.BILINEAR)
    return np.array(picture)


def _pillow():
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("reading pictures needs Pillow: pip install 'fourviews[data]'") from error
    return Image


def choose(
    counts: Mapping[str, int],
    *,
    n_classes: int | None,
    n_per_class: int | None,
    seed: int,
    at_most: bool,
) -> tuple[list[str], list[tuple[str, int]]]:
    """Choose classes and images of each by a seed.

    The first m of a larger choice are the smaller choice, and images of all classes take turns, so
    each beginning of the result is balanced.

    Parameters
    ----------
    counts
        How many images each class has, in a fixed order.
    n_classes, n_per_class
        How many classes, how many images of each; all if None.
    seed
        Of the random order.
    at_most
        Whether fewer than asked for will do.

    Returns
    -------
    names : list of str
        The chosen classes, in the order of ``counts``.
    picks : list of (str, int)
        Class and number of each image.

    Raises
    ------
    ValueError
        If a number is no positive integer, or more than there is.
    """
    for name, number in (("n_classes", n_classes), ("n_per_class", n_per_class)):
        if number is not None and (
            not isinstance(number, int) or isinstance(number, bool) or number < 1
        ):
            raise ValueError(f"{name} is {number!r}; it needs to be a positive integer or None")
    if n_classes is not None and n_classes > len(counts) and not at_most:
        raise ValueError(f"n_classes is {n_classes}; there are {len(counts)} classes")
    all_names = list(counts)
    order = np.random.default_rng(seed).permutation(len(all_names))
    chosen = set(order[: n_classes if n_classes is not None else len(all_names)].tolist())
    names = [name for row, name in enumerate(all_names) if row in chosen]
    columns = []
    for row, name in enumerate(all_names):
        if row not in chosen:
            continue
        if n_per_class is not None and n_per_class > counts[name] and not at_most:
            raise ValueError(
                f"n_per_class is {n_per_class}; the class {name!r} has {counts[name]} images"
            )
        # A generator of its own: the choice in one class does not depend on the other classes.
        numbers = np.random.default_rng([seed, row]).permutation(counts[name])[:n_per_class]
        columns.append([(name, int(number)) for number in numbers])
    longest = max((len(column) for column in columns), default=0)
    picks = [column[k] for k in range(longest) for column in columns if k < len(column)]
    return names, picks


def stack(
    pictures: Sequence[UInt8[np.ndarray, "height width 3"]], height: int, width: int
) -> UInt8[Tensor, "n height width 3"]:
    """One tensor of pictures of one size, with n = 0 allowed."""
    if not pictures:
        return torch.empty((0, height, width, 3), dtype=torch.uint8)
    return torch.from_numpy(np.stack(pictures))
