"""gMLP-S/16 and ViT-S/16, trained on ImageNet-1k, as the package timm builds them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from jaxtyping import Float, UInt8
from torch import Tensor, nn

from ..files.download import offline
from ..sources import data_dir
from .network import Network, middle_square

_FILE = "model.safetensors"
_EXTRA = "pip install 'fourviews[backbones]'"


class _Trunk(nn.Module):
    """All blocks and the last normalisation; tokens that stand for no place are left out."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network
        # A ViT puts its class token before the others; an MLP has none.
        self.skip = getattr(network, "num_prefix_tokens", 0)

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n s d"]:
        return self.network.forward_features(images)[:, self.skip :]


def prepare(images: UInt8[Tensor, "n height width 3"]) -> Float[Tensor, "n 3 224 224"]:
    """Cut the square in the middle, scale it to 224 pixels, map 0…255 to [−1, 1].

    Mean and standard deviation 0.5 and cubic interpolation are what both networks were trained
    with.
    """
    return middle_square(images, "bicubic") / 127.5 - 1.0


def weights_file(model: str) -> Path:
    """The file of a model's weights: under ``FOURVIEWS_DATA``, or the hub's, fetched once.

    Raises
    ------
    ImportError
        If timm is missing.
    FileNotFoundError
        If the file is neither here nor to be had; the message names both ways to get it.
    """
    name = f"{model}.safetensors"
    root = data_dir()
    if root is not None and (root / name).is_file():
        return root / name
    _timm()
    try:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(f"timm/{model}", _FILE, local_files_only=offline()))
    # Several kinds, by version: no connection, a refusal, not in the hub's cache.
    except Exception as error:
        why = (
            "and FOURVIEWS_OFFLINE forbids to download them"
            if offline()
            else f"and could not be downloaded ({type(error).__name__}: {error})"
        )
        raise FileNotFoundError(
            f"the weights of {model} are not on this machine, {why}. Connect to the network once,"
            f" about 90 MB; or take {_FILE} of timm/{model} from the Hugging Face hub and put it as"
            f" {name} into the folder that FOURVIEWS_DATA names"
        ) from error


def load(file: Path, model: str) -> nn.Module:
    """The network without its classifier; ValueError if the file holds other weights."""
    timm = _timm()
    try:
        network = timm.create_model(
            model,
            pretrained=True,
            # The file in the package's own layout, not the one of the network's first authors.
            pretrained_cfg_overlay={"file": str(file), "custom_load": False},
        )
    # Of several kinds: other shapes, other names, a damaged file.
    except Exception as error:
        raise ValueError(
            f"{file.name} does not hold the weights of {model} ({type(error).__name__}: {error});"
            " if it was downloaded, delete it and run this again"
        ) from error
    return _Trunk(network)


def _timm():
    try:
        import timm
    # Beside a torch that it was not built for, torchvision, which timm needs, raises RuntimeError.
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            f"gMLP-S/16 and ViT-S/16 need timm, and a torchvision that fits torch: {_EXTRA}"
            f" ({error})"
        ) from error
    return timm


def _network(title: str, model: str, features: int) -> Network:
    return Network(
        title=title,
        features=features,
        weights_file=partial(weights_file, model),
        load=partial(load, model=model),
        prepare=prepare,
        version=1,
    )


GMLP_S16 = _network("gMLP-S/16", "gmlp_s16_224.ra3_in1k", 256)
VIT_S16 = _network("ViT-S/16", "vit_small_patch16_224.augreg_in1k", 384)
