"""Sentences about films that nobody wrote, for a machine without data and without network."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch

from ..sources import Source
from .texts import CLASSES, TextSet

_THINGS = "plot script film acting cast camera music story ending dialogue pace humour".split()
_PRAISE = "wonderful moving clever funny brilliant charming fresh gripping warm superb".split()
_BLAME = "dull dreadful tedious stupid clumsy boring weak flat lifeless terrible".split()
_FRAMES = (
    "the {a} is {x} and the {b} is {y} .",
    "a {x} {a} with a {y} {b} .",
    "i found the {a} {x} , and so was the {b} , {y} to the last minute .",
    "what a {x} {a} ! even the {b} felt {y} .",
    "{x} {a} , {y} {b} .",
    "nobody told me that the {a} would be so {x} and the {b} so {y} .",
)
_SEEDS = {"train": 0, "dev": 1, "test": 2}


def made_up_reviews(
    split: Literal["train", "dev", "test"] = "train", *, n_per_class: int, seed: int = 0
) -> TextSet:
    """Sentences filled with words of praise or of blame at random.

    They let a lesson run where no review can be had. They say nothing about reviews: half of the
    words give the class away.

    Parameters
    ----------
    split
        Sentences of different splits are drawn independently.
    n_per_class
        Number of sentences of praise, and of blame.
    seed
        Of the draw.

    Raises
    ------
    ValueError
        If ``n_per_class`` is no positive integer or ``split`` is another word.
    """
    if split not in _SEEDS:
        raise ValueError(f"split is {split!r}; it needs to be one of {tuple(_SEEDS)}")
    if not isinstance(n_per_class, int) or isinstance(n_per_class, bool) or n_per_class < 1:
        raise ValueError(f"n_per_class is {n_per_class!r}; it needs to be a positive integer")
    generator = np.random.default_rng([seed, _SEEDS[split]])
    texts, labels = [], []
    for _ in range(n_per_class):
        for label, words in enumerate((_BLAME, _PRAISE)):
            frame = _FRAMES[generator.integers(len(_FRAMES))]
            a, b = generator.choice(_THINGS, 2, replace=False)
            x, y = generator.choice(words, 2, replace=False)
            texts.append(frame.format(a=a, b=b, x=x, y=y))
            labels.append(label)
    source = Source("Made-up sentences about films", "substitute", Path(), "fourviews itself")
    return TextSet(
        tuple(texts), torch.tensor(labels), CLASSES, source, note="made up, no real reviews"
    )
