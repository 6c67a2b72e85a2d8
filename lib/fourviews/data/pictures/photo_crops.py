"""Two photographs that scikit-learn ships, and labelled crops of them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from ..choice import choose, shortfall
from ..sources import Source
from .images import ImageSet, read_image, resize, stack

PACKAGE = "scikit-learn"
INSTEAD = "Crops of two sample photographs (a temple, a flower)"
LICENCE = (
    "Creative Commons Attribution 2.0; photographs by danielbuechele (temple) and vultilion"
    " (flower), shipped by scikit-learn"
)

_FILES = {"temple": "china.jpg", "flower": "flower.jpg"}
_SIZE = (427, 640)
# Columns of the photographs that crops of a split may use: no pixel is in both.
_COLUMNS = {"train": (0, 416), "val": (448, 640)}
_CROPS = {"train": 200, "val": 50}
_SIDES = (96, 192)


def find() -> Path | None:
    """The folder with the photographs, or None if scikit-learn is not installed."""
    # find_spec("sklearn.datasets") would import scikit-learn.
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "datasets" / "images"
    return folder if all((folder / file).is_file() for file in _FILES.values()) else None


def photographs() -> dict[str, UInt8[Tensor, "height width 3"]]:
    """Two photographs that pages may show: ``"temple"`` and ``"flower"``.

    Returns
    -------
    dict of str to Tensor
        ``(427, 640, 3)`` each, red, green and blue from 0 to 255. Creative Commons Attribution 2.0;
        the authors are danielbuechele and vultilion.

    Raises
    ------
    ImportError
        If scikit-learn or Pillow is not installed.
    """
    folder = find()
    if folder is None:
        raise ImportError(f"the photographs come with {PACKAGE}: pip install 'fourviews[data]'")
    return {name: torch.from_numpy(_read(folder, name).copy()) for name in _FILES}


@cache
def _read(folder: Path, name: str) -> UInt8[np.ndarray, "height width 3"]:
    return read_image(folder / _FILES[name], name=_FILES[name], size=_SIZE)


def crops(
    split: Literal["train", "val"],
    *,
    n_classes: int | None,
    n_per_class: int | None,
    seed: int,
    source: Source,
    side: int = 64,
) -> ImageSet:
    """Square crops of the photographs, labelled by the photograph, scaled to ``side`` pixels.

    Crops for training come from the left two thirds, those for validation from the right; so no
    pixel is in both, though crops of one split overlap each other. If there are fewer classes or
    crops than asked for, the source of the result says so.
    """
    names, picks = choose(
        {name: _CROPS[split] for name in _FILES},
        n_classes=n_classes,
        n_per_class=n_per_class,
        seed=seed,
        at_most=True,
    )
    detail = f"{PACKAGE} {importlib.metadata.version(PACKAGE)}"
    detail += shortfall(names, picks, n_classes=n_classes, n_per_class=n_per_class)
    pictures = [resize(_crop(source.path, split, name, number), side) for name, number in picks]
    return ImageSet(
        stack(pictures, side, side),
        torch.tensor([names.index(name) for name, _ in picks], dtype=torch.int64),
        tuple(names),
        Source(source.name, source.kind, source.path, detail),
        LICENCE,
        may_be_shown=True,
    )


def _crop(folder: Path, split: str, name: str, number: int) -> UInt8[np.ndarray, "height width 3"]:
    left, right = _COLUMNS[split]
    # The crop depends on its number alone, not on how many are asked for.
    rng = np.random.default_rng([list(_COLUMNS).index(split), list(_FILES).index(name), number])
    side = int(rng.integers(_SIDES[0], _SIDES[1] + 1))
    top = int(rng.integers(0, _SIZE[0] - side + 1))
    start = int(rng.integers(left, right - side + 1))
    return _read(folder, name)[top : top + side, start : start + side]
