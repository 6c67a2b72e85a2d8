"""CIFAR-10 and CIFAR-100: 32×32 pixels, 10 and 100 classes (Krizhevsky 2009)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from ..choice import choose, shortfall
from ..files.pickles import read_pickle
from ..sources import Archive, DataNotFoundError, DataSet, Source, Substitute, locate
from . import digits as _digits
from . import glyphs as _glyphs
from .images import ImageSet
from .tiny_imagenet import TINY_IMAGENET, read_tiny_imagenet

_SIDE = 32
_LICENCE = "Photographs from the web, for research and education; not to be republished"
# CIFAR-100's training part is 155 MB.
_MAX_FILE = 250_000_000

CIFAR10 = DataSet(
    name="CIFAR-10",
    folder="cifar-10-batches-py",
    archive=Archive(
        file="cifar-10-python.tar.gz",
        urls=("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
        checksum="md5:c58f30108f718f92721af3b95e74349a",
        n_bytes=170_498_071,
        max_bytes=250_000_000,
    ),
    subset="cifar-10-python-subset.tar.gz",
    subset_max_bytes=250_000_000,
    substitute=Substitute(
        package=_digits.PACKAGE, find=_digits.find, extra="data", instead=_digits.INSTEAD
    ),
    automatic_download=False,
)

CIFAR100 = DataSet(
    name="CIFAR-100",
    folder="cifar-100-python",
    archive=Archive(
        file="cifar-100-python.tar.gz",
        urls=("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
        checksum="md5:eb9058c3a382ffc7106e4002c42a8d85",
        n_bytes=169_001_437,
        max_bytes=250_000_000,
    ),
    subset="cifar-100-python-subset.tar.gz",
    subset_max_bytes=250_000_000,
    substitute=Substitute(
        package=_glyphs.PACKAGE, find=_glyphs.find, extra="data", instead=_glyphs.INSTEAD
    ),
    automatic_download=False,
)


def cifar10(
    split: Literal["train", "test"] = "train",
    *,
    n_classes: int | None = None,
    n_per_class: int | None = None,
    seed: int = 0,
    source: Literal["official", "package"] | None = None,
) -> ImageSet:
    """Load CIFAR-10: photographs of ten kinds of things, 32×32 pixels.

    Looked for in this order: ``FOURVIEWS_DATA`` (the folder ``cifar-10-batches-py/``, the archive
    ``cifar-10-python.tar.gz``, checksum verified, or a subset ``cifar-10-python-subset.tar.gz``),
    an official archive downloaded before, and the handwritten digits that scikit-learn ships. The
    official archive has 170 MB, so it is downloaded only for ``source="official"``. ``.source`` of
    the result says which it was.

    The archive's pickles are read without running what they might ask for.

    Parameters
    ----------
    split
        ``"train"`` (5000 images a class; the subset has 1000) or ``"test"`` (1000; 200).
    n_classes, n_per_class
        How many classes, and images of each, chosen by the seed; all if left out. If there are
        fewer digits than asked for, ``source`` says so.
    seed
        Of the choice; classes take turns in the result.
    source
        ``"official"`` insists on the published archive and downloads it if needed; ``"package"``
        takes the digits; ``None`` follows the order above.

    Returns
    -------
    ImageSet
        ``images`` ``(n, 32, 32, 3)`` uint8, ``labels`` ``(n,)``, ``classes``, ``source``.

    Raises
    ------
    DataNotFoundError
        If nothing is there; the message names the ways to get it.
    UnsafePickleError
        If a file asks for more than arrays, lists, numbers and texts.
    ValueError
        If there are fewer classes or images than asked for, or a file is damaged.
    """
    _check_split(split)
    found = locate(CIFAR10, source=source)
    if found.kind == "substitute":
        return _digits.digits(
            split, n_classes=n_classes, n_per_class=n_per_class, seed=seed, source=found
        )
    if split == "train":
        files = [found.path / f"data_batch_{number}" for number in range(1, 6)]
        files = [file for file in files if file.is_file()]
        if not files:
            raise ValueError(f"the folder {found.path} holds no data_batch_1 to data_batch_5")
    else:
        files = [found.path / "test_batch"]
    names = _names(found.path / "batches.meta", b"label_names")
    return _chosen(
        [_batch(file, b"labels") for file in files],
        names,
        found,
        n_classes=n_classes,
        n_per_class=n_per_class,
        seed=seed,
    )


def cifar100(
    split: Literal["train", "test"] = "train",
    *,
    labels: Literal["fine", "coarse"] = "fine",
    n_classes: int | None = None,
    n_per_class: int | None = None,
    seed: int = 0,
    source: Literal["official", "package"] | None = None,
) -> ImageSet:
    """Load CIFAR-100: photographs of a hundred kinds of things, 32×32 pixels.

    Looked for in this order: ``FOURVIEWS_DATA`` (the folder ``cifar-100-python/``, the archive
    ``cifar-100-python.tar.gz``, checksum verified, or a subset
    ``cifar-100-python-subset.tar.gz``), an official archive downloaded before, a hundred classes of
    Tiny ImageNet, scaled down, where that is at hand, and letters in the typefaces that Matplotlib
    ships. The official archive has 169 MB, so it is downloaded only for ``source="official"``.
    ``.source`` of the result says which it was.

    Parameters
    ----------
    split
        ``"train"`` (500 images a class) or ``"test"`` (100).
    labels
        ``"fine"``: 100 classes. ``"coarse"``: 20 groups of five; what stands in has none.
    n_classes, n_per_class, seed
        As in :func:`cifar10`.
    source
        ``"official"`` insists on the published archive and downloads it if needed; ``"package"``
        takes the letters; ``None`` follows the order above.

    Returns
    -------
    ImageSet
        ``images`` ``(n, 32, 32, 3)`` uint8, ``labels`` ``(n,)``, ``classes``, ``source``.

    Raises
    ------
    DataNotFoundError, UnsafePickleError, ValueError
        As in :func:`cifar10`.
    """
    _check_split(split)
    if labels not in ("fine", "coarse"):
        raise ValueError(f"labels is {labels!r}; it needs to be 'fine' or 'coarse'")
    options = {"n_classes": n_classes, "n_per_class": n_per_class, "seed": seed}
    found, missing = None, None
    try:
        found = locate(CIFAR100, source=source)
    except DataNotFoundError as error:
        missing = error
    if found is not None and found.kind != "substitute":
        return _chosen(
            [_batch(found.path / split, f"{labels}_labels".encode())],
            _names(found.path / "meta", f"{labels}_label_names".encode()),
            found,
            **options,
        )
    tiny = _tiny_imagenet() if source is None else None
    if labels == "coarse" and (tiny is not None or found is not None):
        raise ValueError(
            f"labels is 'coarse'; {tiny or found} has no groups, only CIFAR-100 itself has"
        )
    if tiny is not None:
        return _scaled_down(tiny, split, **options)
    if found is None:
        raise missing
    return _glyphs.glyphs(split, source=found, **options)


def _check_split(split: str) -> None:
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}; it needs to be 'train' or 'test'")


def _tiny_imagenet() -> Source | None:
    """Tiny ImageNet itself, if it is at hand; it is not downloaded for this."""
    try:
        found = locate(TINY_IMAGENET)
    except DataNotFoundError:
        return None
    return None if found.kind == "substitute" else found


def _scaled_down(
    tiny: Source, split: str, *, n_classes: int | None, n_per_class: int | None, seed: int
) -> ImageSet:
    whole = read_tiny_imagenet(
        tiny,
        "train" if split == "train" else "val",
        n_classes=min(n_classes, 100) if n_classes is not None else 100,
        n_per_class=n_per_class,
        seed=seed,
        at_most=True,
    )
    # The mean of each 2×2 square, rounded.
    small = whole.images.unflatten(1, (_SIDE, 2)).unflatten(3, (_SIDE, 2)).float().mean((2, 4))
    name = "Tiny ImageNet scaled to 32×32 pixels, in place of CIFAR-100"
    name += shortfall(
        whole.classes,
        [("", 0)] * len(whole),
        n_classes=n_classes,
        n_per_class=n_per_class,
    )
    return ImageSet(
        small.round().to(torch.uint8),
        whole.labels,
        whole.classes,
        Source(name, tiny.kind, tiny.path),
        whole.licence,
    )


def _chosen(
    batches: list[tuple[UInt8[np.ndarray, "m 3072"], list[int]]],
    names: tuple[str, ...],
    source: Source,
    *,
    n_classes: int | None,
    n_per_class: int | None,
    seed: int,
) -> ImageSet:
    labels = np.array([label for _, listed in batches for label in listed], dtype=np.int64)
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(names):
        raise ValueError(f"{source.name} has labels outside its {len(names)} classes")
    # Python's sort keeps the order of equals, as this one does: rows of a class stay in order.
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(len(names) + 1))
    # By number: two classes might have one name.
    counts = {str(c): int(starts[c + 1] - starts[c]) for c in range(len(names))}
    kept, picks = choose(
        counts, n_classes=n_classes, n_per_class=n_per_class, seed=seed, at_most=False
    )
    rows = np.array([order[starts[int(c)] + k] for c, k in picks], dtype=np.int64)
    pixels = np.empty((len(rows), 3, _SIDE, _SIDE), dtype=np.uint8)
    begin = 0
    for batch, _ in batches:
        inside = (rows >= begin) & (rows < begin + len(batch))
        pixels[inside] = batch[rows[inside] - begin].reshape(-1, 3, _SIDE, _SIDE)
        begin += len(batch)
    index = {c: row for row, c in enumerate(kept)}
    return ImageSet(
        _channels_last(torch.from_numpy(pixels)),
        torch.tensor([index[c] for c, _ in picks], dtype=torch.int64),
        tuple(names[int(c)] for c in kept),
        source,
        _LICENCE,
    )


def _channels_last(pixels: UInt8[Tensor, "n 3 h w"]) -> UInt8[Tensor, "n h w 3"]:
    return pixels.permute(0, 2, 3, 1).contiguous()


def _read(file: Path) -> dict:
    if not file.is_file():
        raise ValueError(f"the folder {file.parent} needs to hold {file.name}")
    if file.stat().st_size > _MAX_FILE:
        raise ValueError(f"{file.name} has more than {_MAX_FILE} bytes; CIFAR's files have less")
    return read_pickle(file.read_bytes(), name=file.name)


def _batch(file: Path, key: bytes) -> tuple[UInt8[np.ndarray, "m 3072"], list[int]]:
    content = _read(file)
    pixels, labels = content.get(b"data"), content.get(key)
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.ndim != 2
        or pixels.shape[1] != 3 * _SIDE**2
    ):
        raise ValueError(f"{file.name} needs an array of bytes of shape (n, 3072) under 'data'")
    if (
        not isinstance(labels, list)
        or len(labels) != len(pixels)
        or not all(type(label) is int for label in labels)
    ):
        raise ValueError(f"{file.name} needs a list of {len(pixels)} integers under {key!r}")
    return pixels, labels


def _names(file: Path, key: bytes) -> tuple[str, ...]:
    listed = _read(file).get(key)
    if not isinstance(listed, list) or not all(isinstance(name, bytes | str) for name in listed):
        raise ValueError(f"{file.name} needs a list of names under {key!r}")
    return tuple(name.decode("utf-8") if isinstance(name, bytes) else name for name in listed)
