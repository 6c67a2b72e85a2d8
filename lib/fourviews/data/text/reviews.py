"""Film reviews, long or short, from whatever is at hand."""

from __future__ import annotations

from typing import Literal

import torch

from ..choice import choose
from ..sources import DataNotFoundError
from .imdb import imdb
from .made_up import made_up_reviews
from .sst2 import sst2
from .texts import CLASSES, TextSet

_JOINED = 8  # sentences that stand for one long review


def reviews(
    kind: Literal["long", "short"],
    split: Literal["train", "test"] = "train",
    *,
    n_per_class: int,
    seed: int = 0,
) -> TextSet:
    """Labelled reviews for an experiment: at most ``n_per_class`` of each class, never nothing.

    ``"long"`` is :func:`~fourviews.data.imdb`, ``"short"`` :func:`~fourviews.data.sst2` with its
    development sentences as test part, as the test part has no labels. Where these are not to be
    had, rated sentences take their place, as their loaders do; eight of one class are joined to
    stand for a long review. Where even those are missing, sentences are made up. ``.source`` and
    ``.note`` say what it was.

    Parameters
    ----------
    kind
        ``"long"`` or ``"short"``.
    split
        ``"train"`` or ``"test"``.
    n_per_class
        Reviews of each class; fewer where there are fewer.
    seed
        Of the choice.

    Returns
    -------
    TextSet
        Classes take turns, so that each beginning is balanced.

    Raises
    ------
    ValueError
        On another kind or split, and if ``n_per_class`` is no positive integer.
    """
    if kind not in ("long", "short"):
        raise ValueError(f"kind is {kind!r}; it needs to be 'long' or 'short'")
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}; it needs to be 'train' or 'test'")
    try:
        found = imdb(split) if kind == "long" else sst2("dev" if split == "test" else "train")
    except DataNotFoundError:
        many = n_per_class * (_JOINED if kind == "long" else 1)
        found = made_up_reviews(split, n_per_class=many, seed=seed)
    join = _JOINED if kind == "long" and found.source.kind == "substitute" else 1
    members = [(found.labels == label).nonzero()[:, 0].tolist() for label in range(len(CLASSES))]
    _, picks = choose(
        {name: len(rows) // join for name, rows in zip(CLASSES, members, strict=True)},
        n_classes=None,
        n_per_class=n_per_class,
        seed=seed,
        at_most=True,
    )
    texts, labels = [], []
    for name, number in picks:
        label = CLASSES.index(name)
        rows = members[label][join * number : join * (number + 1)]
        texts.append(" ".join(found.texts[row] for row in rows))
        labels.append(label)
    notes = [found.note] if found.note else []
    if join > 1:
        notes.append(f"joined, {join} to a text")
    if len(picks) < 2 * n_per_class:
        notes.append("fewer than asked for")
    return TextSet(
        tuple(texts),
        torch.tensor(labels, dtype=torch.int64),
        CLASSES,
        found.source,
        note="; ".join(notes),
    )
