"""Images as attention sees them: 196 tokens with 112 features or more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from fourviews.display import progress

from ..files.cache import cache_dir
from ..pictures.images import ImageSet, check_images
from ..sources import Source
from . import backbone as networks
from .casting import cast, numpy_dtype
from .feature_cache import cached_features


@dataclass(frozen=True, repr=False)
class ImageTokens:
    """Tokens of images.

    Attributes
    ----------
    tokens
        ``(n, s, d)``, here s = 196 and d = 112 for EfficientNet-Lite0, 256 for gMLP-S/16, 384 for
        ViT-S/16; token ``row · 14 + column`` sees the surroundings of that place of the image.
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
    backbone: networks.BackboneName = "efficientnet-lite0",
    dtype: torch.dtype = torch.float32,
    max_images: int | None = 300,
    device: str | torch.device = "cpu",
    cache: bool = True,
) -> ImageTokens:
    """Turn images into tokens by a network trained on ImageNet, once for all lessons.

    The square in the middle of each image is scaled to 224×224 pixels and goes through

    - EfficientNet-Lite0 up to its eleventh block: 112 features;
    - gMLP-S/16, all of it but the classifier: 256 features;
    - ViT-S/16, all of it but the classifier: 384 features; the class token is left out.

    Each gives a 14×14 grid. The network is fixed: it does not learn. On a CPU the tokens of an image
    do not depend on the other images or on the number of threads.

    Features are kept in the cache under the SHA-256 of the weights and of each image, in the type
    asked for, and other kinds of devices apart; a lesson that uses an image again reads them.

    Parameters
    ----------
    images
        An :class:`~fourviews.data.ImageSet`, or uint8 of shape ``(n, height, width, 3)``.
    backbone
        ``"efficientnet-lite0"``, whose weights a package of the extra ``data`` ships;
        ``"gmlp-s16"`` or ``"vit-s16"``, which need the extra ``backbones`` and whose weights, 80 and
        90 MB, are downloaded once (or found under ``FOURVIEWS_DATA``).
    dtype
        ``torch.float32``, or ``torch.float16`` for half the space. On a CPU the latter is the former
        rounded (relative error at most 2⁻¹¹); elsewhere the network then runs in mixed precision.
    max_images
        More images than this are refused: a page has to stay within its time. ``None`` allows any
        number; one image takes 0.09 MB of memory and of cache in float32, and about 0.03 s. For
        more than some thousands use :func:`token_store`.
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
    FileNotFoundError
        If weights have to be downloaded and cannot be; the message says what to do.
    ValueError
        If there are more images than ``max_images``, an argument has another type than named
        above, the machine has no such device, or features do not fit ``dtype``.
    """
    given = images if isinstance(images, ImageSet) else None
    pixels = given.images if given is not None else images
    check_images(pixels)
    kind = numpy_dtype(dtype)
    if max_images is not None and len(pixels) > max_images:
        raise ValueError(
            f"images holds {len(pixels)} images, more than max_images = {max_images}; take fewer,"
            " or set max_images=None outside of pages"
        )
    place = networks.available(device)
    pixels = pixels.cpu()
    shape = (networks.GRID[0] * networks.GRID[1], networks.find(backbone).features)
    folder = kept_in(backbone, place, dtype)
    _, mixed = networks.arithmetic(place, dtype)
    network: networks.Backbone | None = None

    def compute(some: Tensor) -> Tensor:
        nonlocal network
        network = network or networks.load(backbone)
        # In pieces, so that the bar moves.
        bar = progress(some.split(16), label="images to tokens", total=-(-len(some) // 16))
        return torch.cat([network.tokens(piece, device=place, mixed=mixed) for piece in bar])

    if cache:
        tokens, computed = cached_features(folder, pixels, compute, shape=shape, dtype=kind)
    else:
        computed = len(pixels)
        values = compute(pixels) if computed else torch.empty(0, *shape)
        tokens = torch.from_numpy(cast(values.numpy(), kind))
    return ImageTokens(
        tokens,
        given.labels if given is not None else None,
        given.classes if given is not None else (),
        given.source if given is not None else None,
        networks.GRID,
        backbone,
        computed,
    )


def kept_in(backbone: str, device: torch.device, dtype: torch.dtype) -> Path:
    """The folder that keeps features of single images."""
    name, _ = networks.arithmetic(device, dtype)
    weights, version = networks.weights_digest(backbone)[:16], networks.find(backbone).version
    kind = "" if name == "cpu" else f"-{name}"
    return (
        cache_dir()
        / "image-tokens"
        / f"{backbone}-{weights}-v{version}{kind}"
        / str(numpy_dtype(dtype))
    )
