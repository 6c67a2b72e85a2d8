"""Networks that turn images into tokens, by name, and how they run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from ..files.checksums import digest
from .efficientnet import EFFICIENTNET_LITE0
from .network import GRID, Network
from .timm_networks import GMLP_S16, VIT_S16

BackboneName = Literal["efficientnet-lite0", "gmlp-s16", "vit-s16"]

NETWORKS: dict[str, Network] = {
    "efficientnet-lite0": EFFICIENTNET_LITE0,
    "gmlp-s16": GMLP_S16,
    "vit-s16": VIT_S16,
}


@dataclass(frozen=True)
class Backbone:
    """A network with its weights.

    Attributes
    ----------
    name
        As asked for.
    network
        Its description.
    weights
        SHA-256 of the file that its weights come from.
    trunk
        Maps prepared images ``(n, 3, 224, 224)`` to tokens ``(n, 196, d)``.
    """

    name: str
    network: Network
    weights: str
    trunk: nn.Module

    def tokens(
        self,
        images: UInt8[Tensor, "n height width 3"],
        *,
        device: torch.device,
        batch_size: int = 64,
        mixed: bool = False,
    ) -> Float[Tensor, "n s d"]:
        """Tokens ``(n, 196, d)`` of images, float32, row by row of the grid.

        On a CPU each image goes through alone and on one thread, and as many images go at once as
        torch has threads: then the result depends neither on the images beside it nor on how many
        threads there are, and small products are not slowed down by sharing them out. Elsewhere
        ``batch_size`` images go together, in half precision where that is safe if ``mixed``.
        """
        if not len(images):
            return torch.empty(0, GRID[0] * GRID[1], self.network.features)
        self.trunk.to(device)

        def some(chunk: Tensor) -> Tensor:
            # Both modes belong to the thread.
            with (
                torch.inference_mode(),
                torch.autocast(device.type, dtype=torch.float16, enabled=mixed),
            ):
                return self.trunk(self.network.prepare(chunk.to(device))).float().cpu()

        threads = torch.get_num_threads()
        with _repeatable(device):
            if device.type == "cpu" and threads > 1:
                with ThreadPoolExecutor(threads) as pool:
                    rows = list(pool.map(some, images.split(1)))
            else:
                rows = [some(x) for x in images.split(1 if device.type == "cpu" else batch_size)]
        # clone: what leaves inference mode can take part in a graph.
        return torch.cat(rows).clone()


def find(name: str) -> Network:
    """The description of the network of that name; ValueError if there is none."""
    if name not in NETWORKS:
        known = ", ".join(repr(known) for known in NETWORKS)
        raise ValueError(f"backbone is {name!r}; it needs to be one of {known}")
    return NETWORKS[name]


def load(name: str) -> Backbone:
    """The backbone of that name, in evaluation mode.

    Raises
    ------
    ImportError
        If a package that it comes from is missing; the message names the extra.
    FileNotFoundError
        If its weights have to be downloaded and cannot be.
    ValueError
        If there is none of that name, or the weights do not fit the network.
    """
    network = find(name)
    file = network.weights_file()
    # The random numbers that fill the network before its weights are loaded are not the reader's.
    with torch.random.fork_rng(devices=[]):
        try:
            trunk = network.load(file)
        except RuntimeError as error:
            raise ValueError(f"{file.name} does not fit {network.title} ({error})") from error
    return Backbone(name, network, digest(file), trunk.eval().requires_grad_(False))


def weights_digest(name: str) -> str:
    """SHA-256 of the weights of a backbone, without loading it."""
    return digest(find(name).weights_file())


def available(device: str | torch.device) -> torch.device:
    """The device of that name; ValueError if this machine has none."""
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    # AssertionError: a torch that was built without CUDA.
    except (AssertionError, RuntimeError, TypeError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"device is {str(device)!r}, which this machine does not have ({why})"
        ) from error
    return place


def arithmetic(device: torch.device, dtype: torch.dtype) -> tuple[str, bool]:
    """What features of this device are called, and whether it computes in mixed precision.

    What is kept in half precision is computed so too, except on a CPU, which gains nothing by it.
    """
    if device.type == "cpu":
        return "cpu", False
    mixed = dtype == torch.float16
    return f"{device.type}{'-mixed' if mixed else ''}", mixed


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
