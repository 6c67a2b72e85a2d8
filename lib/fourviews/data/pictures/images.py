"""Labelled images, and how picture files become tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from ..sources import Source


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


def stack(
    pictures: Sequence[UInt8[np.ndarray, "height width 3"]], height: int, width: int
) -> UInt8[Tensor, "n height width 3"]:
    """One tensor of pictures of one size, with n = 0 allowed."""
    if not pictures:
        return torch.empty((0, height, width, 3), dtype=torch.uint8)
    return torch.from_numpy(np.stack(pictures))
