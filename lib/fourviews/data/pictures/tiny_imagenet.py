"""Tiny ImageNet: photographs of 200 kinds of things, 64×64 pixels (Stanford, CS231n)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

from ..choice import choose
from ..sources import Archive, DataSet, Source, Substitute, locate
from . import photo_crops
from .images import ImageSet, read_image, stack

_SIDE = 64
_LICENCE = "Images of ImageNet, for non-commercial research and education; not to be republished"

TINY_IMAGENET = DataSet(
    name="Tiny ImageNet",
    folder="tiny-imagenet-200",
    archive=Archive(
        file="tiny-imagenet-200.zip",
        urls=(
            "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        ),
        checksum="md5:90528d7ca1a48142e341f4ef8d21d0de",
        n_bytes=248_100_043,
        max_bytes=600_000_000,
        skip=("tiny-imagenet-200/test/",),  # 10 000 images without labels
    ),
    subset="tiny-imagenet-100.tar",
    subset_folder="tiny-imagenet-100",
    subset_max_bytes=400_000_000,
    substitute=Substitute(
        package=photo_crops.PACKAGE,
        find=photo_crops.find,
        extra="data",
        instead=photo_crops.INSTEAD,
    ),
    automatic_download=False,
)


def tiny_imagenet(
    split: Literal["train", "val"] = "train",
    *,
    n_classes: int | None = None,
    n_per_class: int | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
    source: Literal["official", "package"] | None = None,
) -> ImageSet:
    """Load images of Tiny ImageNet, 64×64 pixels, with labels.

    Looked for in this order: ``FOURVIEWS_DATA`` (the folder ``tiny-imagenet-200/``, the archive
    ``tiny-imagenet-200.zip``, checksum verified, or a subset ``tiny-imagenet-100.tar``), an
    official archive downloaded before, and crops of two photographs that scikit-learn ships. The
    official archive has 248 MB and 120 000 files, so it is downloaded only for
    ``source="official"``. ``.source`` of the result says which it was.

    Classes and images are chosen by the seed. A larger choice begins with the smaller one, images
    of all classes take turns, and the same seed gives the same classes for both splits.

    Parameters
    ----------
    split
        ``"train"`` (500 images a class; the subset has 100) or ``"val"`` (50; 20).
    n_classes, n_per_class
        How many classes, and images of each; all if left out. The photographs have two classes with
        200 and 50 crops each; if more is asked for, ``source`` says how many there are.
    classes
        Names or WordNet ids of the classes, instead of ``n_classes``.
    seed
        Of the choice.
    source
        ``"official"`` insists on Stanford's archive and downloads it if needed; ``"package"`` takes
        the photographs; ``None`` follows the order above.

    Returns
    -------
    ImageSet
        ``images`` ``(n, 64, 64, 3)`` uint8, ``labels`` ``(n,)``, ``classes``, ``source``.

    Raises
    ------
    DataNotFoundError
        If nothing is there; the message names the ways to get it.
    ImportError
        If Pillow, which decodes the images, is missing.
    ValueError
        If there are fewer classes or images than asked for, a class has another name, or a file is
        damaged.
    """
    if split not in ("train", "val"):
        raise ValueError(f"split is {split!r}; it needs to be 'train' or 'val'")
    if classes is not None and n_classes is not None:
        raise ValueError("n_classes and classes are both given; only one of them can be")
    if isinstance(classes, str):
        raise ValueError(f"classes is {classes!r}; it needs to be a list of names")
    found = locate(TINY_IMAGENET, source=source)
    if found.kind == "substitute":
        if classes is not None:
            raise ValueError(
                f"classes is {list(classes)}; {found} has none of Tiny ImageNet's classes"
            )
        return photo_crops.crops(
            split, n_classes=n_classes, n_per_class=n_per_class, seed=seed, source=found
        )
    return read_tiny_imagenet(
        found, split, n_classes=n_classes, n_per_class=n_per_class, classes=classes, seed=seed
    )


def read_tiny_imagenet(
    found: Source,
    split: Literal["train", "val"],
    *,
    n_classes: int | None,
    n_per_class: int | None,
    classes: Sequence[str] | None = None,
    seed: int,
    at_most: bool = False,
) -> ImageSet:
    """Images from a folder in one of the two layouts; with ``at_most`` fewer than asked for will
    do."""
    files = _files(found.path, split)
    labels = _names(found.path, list(files))
    if classes is not None:
        files = {wnid: files[wnid] for wnid in _wanted(classes, labels)}
    names, picks = choose(
        {wnid: len(listed) for wnid, listed in files.items()},
        n_classes=n_classes,
        n_per_class=n_per_class,
        seed=seed,
        at_most=at_most,
    )
    pictures = [
        read_image(files[wnid][k], name=files[wnid][k].name, size=(_SIDE, _SIDE))
        for wnid, k in picks
    ]
    index = {wnid: row for row, wnid in enumerate(names)}
    return ImageSet(
        stack(pictures, _SIDE, _SIDE),
        torch.tensor([index[wnid] for wnid, _ in picks], dtype=torch.int64),
        tuple(labels[wnid] for wnid in names),
        found,
        _LICENCE,
    )


def _files(root: Path, split: str) -> dict[str, list[Path]]:
    """Image files of each class, both sorted, in the official layout or in one folder a class."""
    listed: dict[str, list[Path]] = {}
    annotations = root / "val" / "val_annotations.txt"
    if split == "val" and annotations.is_file():
        for number, line in enumerate(annotations.read_text(encoding="utf-8").splitlines(), 1):
            fields = line.split("\t")
            if len(fields) < 2 or Path(fields[0]).name != fields[0]:
                raise ValueError(
                    f"val_annotations.txt, line {number}: it needs a file's name and a class"
                )
            listed.setdefault(fields[1], []).append(root / "val" / "images" / fields[0])
    elif (root / split).is_dir():
        for folder in (root / split).iterdir():
            if folder.is_dir():
                inside = folder / "images"
                files = (inside if inside.is_dir() else folder).glob("*.JPEG")
                listed[folder.name] = list(files)
    listed = {wnid: sorted(files) for wnid, files in sorted(listed.items()) if files}
    if not listed:
        raise ValueError(f"the folder {root} holds no images in {split}/CLASS/")
    return listed


def _names(root: Path, wnids: list[str]) -> dict[str, str]:
    """The first word for each class; all its words where two classes share the first."""
    glosses: dict[str, str] = {}
    words = root / "words.txt"
    if words.is_file():
        for line in words.read_text(encoding="utf-8").splitlines():
            wnid, _, gloss = line.partition("\t")
            glosses[wnid] = gloss.strip()
    full = [glosses.get(wnid) or wnid for wnid in wnids]
    short = [gloss.split(",")[0] for gloss in full]
    return {
        wnid: name if short.count(name) == 1 else gloss
        for wnid, name, gloss in zip(wnids, short, full, strict=True)
    }


def _wanted(classes: Sequence[str], names: dict[str, str]) -> list[str]:
    """WordNet ids of the classes asked for, in the order of the data set."""
    by_name = {name: wnid for wnid, name in names.items()}
    unknown = [name for name in classes if name not in names and name not in by_name]
    if unknown or len(set(classes)) != len(classes) or not classes:
        known = ", ".join(list(by_name)[:5])
        raise ValueError(
            f"classes is {list(classes)}; it needs to be different names among {len(names)}"
            f" ({known}, …) or their WordNet ids"
        )
    chosen = {name if name in names else by_name[name] for name in classes}
    return [wnid for wnid in names if wnid in chosen]
