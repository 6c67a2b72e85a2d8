"""Handwritten digits that scikit-learn ships, in place of CIFAR-10."""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from ..choice import choose, shortfall
from ..sources import Source
from .images import ImageSet

PACKAGE = "scikit-learn"
INSTEAD = "Handwritten digits, grey, 8×8 pixels enlarged to 32×32"
LICENCE = (
    "Creative Commons Attribution 4.0; Optical Recognition of Handwritten Digits, UCI, by Alpaydin"
    " and Kaynak, shipped by scikit-learn"
)
_FILE = "digits.csv.gz"
_SIDE, _ENLARGED = 8, 32


def find() -> Path | None:
    """The folder with the digits, or None if scikit-learn is not installed."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "datasets" / "data"
    return folder if (folder / _FILE).is_file() else None


def digits(
    split: Literal["train", "test"],
    *,
    n_classes: int | None,
    n_per_class: int | None,
    seed: int,
    source: Source,
) -> ImageSet:
    """1797 digits, every fifth of them for testing; as many as there are where more is asked for."""
    with gzip.open(source.path / _FILE, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)
    if table.shape[1] != _SIDE**2 + 1 or table[:, :-1].max() > 16 or table.min() < 0:
        raise ValueError(f"{_FILE} needs 64 numbers from 0 to 16 and a digit in each line")
    table = table[(np.arange(len(table)) % 5 == 4) == (split == "test")]
    rows = {str(digit): np.flatnonzero(table[:, -1] == digit) for digit in range(10)}
    names, picks = choose(
        {name: len(members) for name, members in rows.items()},
        n_classes=n_classes,
        n_per_class=n_per_class,
        seed=seed,
        at_most=True,
    )
    chosen = table[[rows[name][k] for name, k in picks], :-1].reshape(-1, _SIDE, _SIDE)
    grey = np.minimum(chosen * 16, 255).astype(np.uint8)
    scale = _ENLARGED // _SIDE
    enlarged = grey.repeat(scale, axis=1).repeat(scale, axis=2)[..., None].repeat(3, axis=3)
    detail = f"{PACKAGE} {importlib.metadata.version(PACKAGE)}" + shortfall(
        names, picks, n_classes=n_classes, n_per_class=n_per_class
    )
    return ImageSet(
        torch.from_numpy(enlarged),
        torch.tensor([names.index(name) for name, _ in picks], dtype=torch.int64),
        tuple(names),
        Source(source.name, source.kind, source.path, detail),
        LICENCE,
        may_be_shown=True,
    )
