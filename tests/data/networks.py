"""A network that costs nothing, in the place of one that was trained."""

from __future__ import annotations

import torch
from torch import nn

from fourviews.data.features import backbone
from fourviews.data.features.network import Network, middle_square


class Patches(nn.Module):
    """Mean and largest value of each of the 14×14 patches, in each colour."""

    seen = 0

    def forward(self, images):
        type(self).seen += len(images)
        means = nn.functional.avg_pool2d(images, 16)
        return torch.cat([means, nn.functional.max_pool2d(images, 16)], 1).flatten(2).mT


def install(folder, name="patches"):
    """Make it a backbone of that name, its weights a file in ``folder``; returns its module."""
    file = folder / "weights"
    if not file.exists():
        file.write_bytes(b"no weights")
    Patches.seen = 0
    backbone.NETWORKS[name] = Network(
        title="Patches",
        features=6,
        weights_file=lambda: file,
        load=lambda _: Patches(),
        prepare=lambda images: middle_square(images, "bilinear") / 64,
        version=1,
    )
    return Patches
