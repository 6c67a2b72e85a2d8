"""Images as attention sees them: 196 tokens with 112 features each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from fourviews.display import progress

from . import backbone as networks
from .cache import cache_dir
from .feature_cache import cached_features
from .images import ImageSet, check_images
from .sources import Source

_DTYPES = {torch.float16: np.dtype(np.float16), torch.float32: np.dtype(np.float32)}


@dataclass(frozen=True, repr=False)
class ImageTokens:
    """Tokens of images.

    Attributes
    ----------
    tokens
        ``(n, s, d)``, here s = 196 and d = 112; token ``row · 14 + column`` sees the surroundings of
        that place of the image.
    labels, classes, source
        Those of the images; None, ``()`` and None if the images came as a bare tensor.
    grid
        Rows and columns of the tokens.
    backbone
        Name of the network.
    computed
        How many images were computed in this call; the others were read from the cache.
    """

    tokens: Float[Tensor, "n s d"]
    labels: Int64[Tensor, "n"] | None
    classes: tuple[str, ...]
    source: Source | None
    grid: tuple[int, int]
    backbone: str
    computed: int

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        n, s, d = self.tokens.shape
        return (
            f"<{n} images of {s} tokens with {d} features from {self.backbone},"
            f" {len(self.classes)} classes; {self.source}>"
        )


def image_tokens(
    images: ImageSet | UInt8[Tensor, "n height width 3"],
    *,
    backbone: Literal["efficientnet-lite0"] = "efficientnet-lite0",
    dtype: torch.dtype = torch.float32,
    max_images: int | None = 300,
    device: str | torch.device = "cpu",
    cache: bool = True,
) -> ImageTokens:
    """Turn images into tokens by a network trained on ImageNet, once for all lessons.

    The square in the middle of each image is scaled to 224×224 pixels and goes through
    EfficientNet-Lite0 up to its eleventh block, whose output is a 14×14 grid of 112 features. The
    network is fixed: it does not learn. On a CPU the tokens of an image do not depend on the other
    images or on the number of threads.

    Features are kept in the cache under the SHA-256 of the weights and of each image, in the type
    asked for, and other kinds of devices apart; a lesson that uses an image again reads them.

    Parameters
    ----------
    images
        An :class:`~fourviews.data.ImageSet`, or uint8 of shape ``(n, height, width, 3)``.
    backbone
        ``"efficientnet-lite0"``.
    dtype
        ``torch.float32``, or ``torch.float16`` for half the space (relative error below 0.0005).
    max_images
        More images than this are refused: a page has to stay within its time. ``None`` allows any
        number; one image takes 0.09 MB of memory and of cache in float32, and about 0.03 s.
    device
        Where the network runs; the tokens come back on the CPU.
    cache
        ``False`` computes everything anew and keeps nothing.

    Returns
    -------
    ImageTokens
        ``tokens`` ``(n, 196, 112)``, and labels, classes and source of the images.

    Raises
    ------
    ImportError
        If the network or its weights are not installed; the message names the extra.
    ValueError
        If there are more images than ``max_images``, or an argument has another type than named
        above.
    """
    given = images if isinstance(images, ImageSet) else None
    pixels = given.images if given is not None else images
    check_images(pixels)
    if dtype not in _DTYPES:
        raise ValueError(f"dtype is {dtype}; it needs to be torch.float32 or torch.float16")
    if max_images is not None and len(pixels) > max_images:
        raise ValueError(
            f"images holds {len(pixels)} images, more than max_images = {max_images}; take fewer,"
            " or set max_images=None outside of pages"
        )
    place = torch.device(device)
    pixels = pixels.cpu()
    weights = networks.weights_digest(backbone)
    network: networks.Backbone | None = None

    def compute(some: Tensor) -> Tensor:
        nonlocal network
        network = network or networks.load(backbone)
        # In pieces, so that the bar moves.
        bar = progress(some.split(16), label="images to tokens", total=-(-len(some) // 16))
        return torch.cat([network.tokens(piece, device=place) for piece in bar])

    shape = (networks.GRID[0] * networks.GRID[1], networks.FEATURES)
    if cache:
        kind = "" if place.type == "cpu" else f"-{place.type}"
        folder = (
            cache_dir()
            / "image-tokens"
            / f"{backbone}-{weights[:16]}-v{networks.VERSION}{kind}"
            / str(_DTYPES[dtype])
        )
        tokens, computed = cached_features(
            folder, pixels, compute, shape=shape, dtype=_DTYPES[dtype]
        )
    else:
        computed = len(pixels)
        tokens = compute(pixels).to(dtype) if computed else torch.empty((0, *shape), dtype=dtype)
    return ImageTokens(
        tokens,
        given.labels if given is not None else None,
        given.classes if given is not None else (),
        given.source if given is not None else None,
        networks.GRID,
        backbone,
        computed,
    )
