"""Tokens of many images in a file that is mapped into memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from ..files.cache import cache_dir
from ..pictures.images import ImageSet, check_images
from ..sources import Source
from . import array_file
from . import backbone as networks
from .casting import cast, numpy_dtype
from .feature_cache import kept_features
from .image_tokens import ImageTokens, kept_in

# An interruption loses no more than this many images; each piece has a digest of its own.
PIECE = 256
# Images whose tokens are in memory at a time when a store is read through.
_CHUNK = 32
# To be raised when the files mean something else.
_FORMAT = 1


@dataclass(frozen=True, repr=False, eq=False)
class TokenStore:
    """Tokens of images in a file; they are read where they are used and take no memory.

    ``store[rows]`` loads some of them as :class:`ImageTokens`. A store can be sent to other
    processes: what travels is the name of its folder.

    Attributes
    ----------
    tokens
        ``(n, s, d)``, float16 or float32, read-only and mapped into memory.
    labels, classes, source
        Those of the images; None, ``()`` and None if the images came as a bare tensor.
    grid
        Rows and columns of the tokens.
    backbone
        Name of the network.
    features
        What the features are, in words.
    folder
        Where the file is; whoever needs the space deletes it.
    computed
        How many images were added in this call; the others were there.
    """

    tokens: Float[np.ndarray, "n s d"]
    labels: Int64[Tensor, "n"] | None
    classes: tuple[str, ...]
    source: Source | None
    grid: tuple[int, int]
    backbone: str
    features: str
    folder: Path
    computed: int = 0

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = True) -> TokenStore:
        """A store by its folder, without images and without a network.

        Parameters
        ----------
        folder
            ``store.folder``.
        verify
            Whether all of it is read and compared with its digests, about a second for a gigabyte.

        Raises
        ------
        FileNotFoundError
            If there is none, or it is not whole.
        ChecksumError
            If it is damaged. :func:`token_store` and ``apply`` compute damaged pieces again.
        """
        return _opened(Path(folder).absolute(), verify=verify)

    def verify(self) -> None:
        """Read everything and compare it with the digests; ChecksumError if it is damaged."""
        array_file.verify(self.folder, _layout(array_file.read_about(self.folder)[0]))

    @property
    def digest(self) -> str:
        """SHA-256 that names the tokens: of the digests of all pieces."""
        return array_file.content_digest(
            self.folder, _layout(array_file.read_about(self.folder)[0])
        )

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | Sequence[int] | Tensor) -> ImageTokens:
        """Some of the images, by a slice, a list of indices or a boolean mask, in memory."""
        chosen = torch.arange(len(self))[rows]
        if chosen.ndim != 1:
            raise ValueError(f"rows is {rows}; it needs to be a slice, a list or a mask")
        return ImageTokens(
            torch.from_numpy(self.tokens[chosen.numpy()]),
            None if self.labels is None else self.labels[chosen],
            self.classes,
            self.source,
            self.grid,
            self.backbone,
            0,
        )

    def batches(self, size: int = _CHUNK) -> Iterator[Float[Tensor, "m s d"]]:
        """The tokens from first to last, ``size`` images at a time, in float32."""
        return batches(self.tokens, size)

    def mean(self) -> Float[Tensor, "n d"]:
        """Mean over the tokens of each image, in float32; sums are taken in float64."""
        return token_mean(self.tokens)

    def __repr__(self) -> str:
        n, s, d = self.tokens.shape
        return (
            f"<{n} images of {s} tokens with {d} features on disk ({self.features}),"
            f" {len(self.classes)} classes; {self.source}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.folder, self.computed)


def token_store(
    images: ImageSet | UInt8[Tensor, "n height width 3"],
    *,
    backbone: networks.BackboneName = "efficientnet-lite0",
    dtype: torch.dtype = torch.float16,
    batch_size: int = 16,
    device: str | torch.device = "cpu",
    verify: bool = True,
    progress: bool | None = None,
) -> TokenStore:
    """Turn any number of images into tokens in a file, once.

    The tokens are those of :func:`image_tokens`, without its limit: memory does not grow with the
    number of images. The file is kept in the cache under the SHA-256 of images, labels and weights,
    with preparation, type and kind of device. It is written in pieces of 256 images. A run that was
    interrupted continues after its last whole piece; a second process waits for the first and then
    reads. What :func:`image_tokens` has kept is not computed again.

    Parameters
    ----------
    images
        An :class:`ImageSet`, or uint8 of shape ``(n, height, width, 3)``.
    backbone
        As in :func:`image_tokens`.
    dtype
        ``torch.float16`` or ``torch.float32``. 50 000 images take 2.2 GB with EfficientNet-Lite0 in
        half precision, 5.0 with gMLP-S/16, 7.5 with ViT-S/16. Half precision errs by
        2⁻¹¹ of a number, or 2⁻²⁵ if that is more.
    batch_size
        Images that go through the network together; on a CPU, between two steps of the bar, since
        there each goes alone, and one on each thread.
    device
        Where the network runs. On others than a CPU half precision means that the network runs in
        mixed precision.
    verify
        Whether tokens that are there are read and compared with their digests; damaged pieces
        are computed again, with a warning.
    progress
        Whether a bar is shown; None follows the environment.

    Returns
    -------
    TokenStore
        ``tokens`` ``(n, 196, d)``, mapped into memory.

    Raises
    ------
    ImportError, FileNotFoundError
        If network or weights are missing; the message says what to do.
    OSError
        If the disk is too small (checked before anything is computed) or becomes full; what was
        written is continued by the next call.
    ValueError
        If an argument has another type than named above, the machine has no such device, or
        features do not fit ``dtype``.
    """
    given = images if isinstance(images, ImageSet) else None
    pixels = given.images if given is not None else images
    check_images(pixels)
    kind = numpy_dtype(dtype)
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise ValueError(f"batch_size is {batch_size!r}; it needs to be a positive integer")
    place = networks.available(device)
    network = networks.find(backbone)
    calculation, mixed = networks.arithmetic(place, dtype)
    singly = kept_in(backbone, place, dtype)
    shape = (len(pixels), networks.GRID[0] * networks.GRID[1], network.features)
    about = {
        "kind": "tokens",
        "shape": list(shape),
        "dtype": kind.name,
        "backbone": backbone,
        "weights": networks.weights_digest(backbone),
        "version": network.version,
        "arithmetic": calculation,
        "images": _pixel_digest(pixels),
        "features": f"features of {network.title}",
        "grid": list(networks.GRID),
        **described(given),
    }
    loaded: networks.Backbone | None = None

    def compute(rows: slice, done) -> Float[np.ndarray, "m s d"]:
        nonlocal loaded
        some = pixels[rows].cpu()
        values, missing = kept_features(singly, some, shape=shape[1:], dtype=kind)
        done(len(some) - len(missing))
        for start in range(0, len(missing), batch_size):
            loaded = loaded or networks.load(backbone)
            now = missing[start : start + batch_size]
            tokens = loaded.tokens(some[now], device=place, batch_size=batch_size, mixed=mixed)
            values[now] = cast(tokens.numpy(), kind)
            done(len(now))
        return values

    source = None if given is None else given.source
    return write_store(about, compute, source, "images to tokens", verify=verify, progress=progress)


def described(of: ImageSet | ImageTokens | TokenStore | None) -> dict[str, Any]:
    """Labels and classes that go with the tokens, for JSON."""
    labels = None if of is None else of.labels
    return {
        "labels": None if labels is None else labels.tolist(),
        "classes": [] if of is None else list(of.classes),
    }


def write_store(
    about: dict[str, Any],
    compute: array_file.Compute,
    source: Source | None,
    what: str,
    *,
    verify: bool,
    progress: bool | None,
) -> TokenStore:
    """The store that ``about`` describes, its missing pieces computed."""
    about = {"format": _FORMAT, "piece": PIECE, **about}
    name = array_file.about_digest(about)[:32]
    folder = cache_dir().absolute() / "token-stores" / f"{about['backbone']}-{about['kind']}-{name}"
    computed = array_file.write(
        folder,
        about,
        _layout(about),
        compute,
        what=what,
        note=None if source is None else [source.name, source.kind, source.detail],
        verify=verify,
        progress=progress,
    )
    # It was verified, or is not to be.
    return _opened(folder, verify=False, computed=computed, source=source)


def batches(
    tokens: Float[np.ndarray, "n s d"] | Float[Tensor, "n s d"], size: int = _CHUNK
) -> Iterator[Float[Tensor, "m s d"]]:
    """Copies of ``size`` images at a time, in float32 (float64 stays)."""
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValueError(f"size is {size!r}; it needs to be a positive integer")
    for start in range(0, len(tokens), size):
        some = tokens[start : start + size]
        some = some if isinstance(some, Tensor) else torch.from_numpy(np.array(some))
        yield some if some.dtype == torch.float64 else some.float()


def token_mean(
    tokens: Float[np.ndarray, "n s d"] | Float[Tensor, "n s d"],
) -> Float[Tensor, "n d"]:
    """Mean over the tokens of each image, a part of them in memory at a time."""
    if tokens.shape[1] == 0:
        raise ValueError(f"tokens has shape {tuple(tokens.shape)}; it needs at least one token")
    # One block for all: small results between large passing ones would tear the heap into pieces
    # that no large one fits into, and memory would grow with n after all.
    means = torch.empty(len(tokens), tokens.shape[2])
    first = 0
    for some in batches(tokens):
        means[first : first + len(some)] = some.mean(1, dtype=torch.float64)
        first += len(some)
    return means


def _opened(
    folder: Path, *, verify: bool, computed: int = 0, source: Source | None = None
) -> TokenStore:
    about, note = array_file.read_about(folder)
    if about.get("format") != _FORMAT:
        raise ValueError(f"{folder} has format {about.get('format')}; it needs {_FORMAT}")
    layout = _layout(about)
    if verify:
        array_file.verify(folder, layout)
    if source is None and note is not None:
        name, kind, detail = note
        source = Source(name, kind, folder, detail)
    return TokenStore(
        tokens=array_file.mapped(folder, layout),
        labels=None
        if about["labels"] is None
        else torch.tensor(about["labels"], dtype=torch.int64),
        classes=tuple(about["classes"]),
        source=source,
        grid=(about["grid"][0], about["grid"][1]),
        backbone=about["backbone"],
        features=about["features"],
        folder=folder,
        computed=computed,
    )


def _reopened(folder: Path, computed: int) -> TokenStore:
    return _opened(folder, verify=False, computed=computed)


def _layout(about: dict[str, Any]) -> array_file.Layout:
    return array_file.Layout(tuple(about["shape"]), np.dtype(about["dtype"]), about["piece"])


def _pixel_digest(pixels: UInt8[Tensor, "n height width 3"]) -> str:
    digest = hashlib.sha256(str(tuple(pixels.shape)).encode())
    for some in pixels.split(1024):
        digest.update(np.ascontiguousarray(some.cpu().numpy()))
    return digest.hexdigest()
