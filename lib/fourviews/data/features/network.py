"""What is known of a network before it is loaded, and the square of an image that it sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float, UInt8
from torch import Tensor, nn

from ..pictures.images import check_images

SIDE = 224  # pixels of every network's input
GRID = (14, 14)


@dataclass(frozen=True)
class Network:
    """A way to turn images into a 14×14 grid of tokens.

    Attributes
    ----------
    title
        Its name in the literature.
    features
        Numbers in a token.
    weights_file
        Finds the file of its weights, or raises an error that says how to get it.
    load
        Builds it with the weights of that file: a module from prepared images
        ``(n, 3, 224, 224)`` to tokens ``(n, 196, features)``.
    prepare
        Maps uint8 images ``(n, height, width, 3)`` to ``(n, 3, 224, 224)``.
    version
        Part of the name under which features are kept: to be raised when preparation or network
        change.
    """

    title: str
    features: int
    weights_file: Callable[[], Path]
    load: Callable[[Path], nn.Module]
    prepare: Callable[[Tensor], Tensor]
    version: int


def middle_square(
    images: UInt8[Tensor, "n height width 3"], mode: str
) -> Float[Tensor, "n 3 224 224"]:
    """Cut the square in the middle and scale it to 224 pixels, with values from 0 to 255."""
    check_images(images)
    height, width = images.shape[1:3]
    side = min(height, width)
    if side == 0:
        raise ValueError(f"images has shape {tuple(images.shape)}; it needs at least one pixel")
    top, left = (height - side) // 2, (width - side) // 2
    square = images[:, top : top + side, left : left + side].permute(0, 3, 1, 2).float()
    if side != SIDE:
        square = nn.functional.interpolate(
            square, (SIDE, SIDE), mode=mode, align_corners=False, antialias=True
        )
    # Cubic interpolation overshoots at edges.
    return square.clamp_(0, 255) if mode == "bicubic" else square
