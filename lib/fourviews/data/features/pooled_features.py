"""One vector an image: the mean of its tokens."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..pictures.images import ImageSet
from .backbone import BackboneName
from .image_tokens import image_tokens

# Tokens of this many images are in memory at a time, 44 MB of them.
_PIECE = 512


def pooled_features(
    images: ImageSet,
    *,
    backbone: BackboneName = "efficientnet-lite0",
    device: str | torch.device = "cpu",
    cache: bool = True,
) -> Float[Tensor, "n d"]:
    """Mean over the tokens of each image, as :func:`image_tokens` gives them in half precision.

    Parameters
    ----------
    images
        Any number of images: only a part of their tokens is in memory at a time.
    backbone, device, cache
        As in :func:`image_tokens`.

    Returns
    -------
    Float[Tensor, "n d"]
        float32; d = 112 for EfficientNet-Lite0.

    Raises
    ------
    ImportError, FileNotFoundError, ValueError
        As :func:`image_tokens`.
    """
    rows = [
        image_tokens(
            images[start : start + _PIECE],
            backbone=backbone,
            dtype=torch.float16,
            device=device,
            cache=cache,
            max_images=None,
        )
        .tokens.float()
        .mean(1)
        for start in range(0, max(len(images), 1), _PIECE)
    ]
    return torch.cat(rows)
