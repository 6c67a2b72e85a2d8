"""Labels that were confused with similar ones (in the way of Berrada, Zisserman & Kumar 2018)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

__all__ = ["confuse_labels", "similar_classes"]


def similar_classes(centres: Float[Tensor, "c d"], size: int) -> Int64[Tensor, "c"]:
    """Split classes into groups of the same size whose centres are close.

    Greedy: the class that is farthest from the mean of those that are left starts a group and takes
    its nearest free neighbours. So classes at the border are grouped while there is a choice.

    Parameters
    ----------
    centres
        One point a class.
    size
        Classes of a group; has to divide c.

    Returns
    -------
    Int64[Tensor, "c"]
        Number of the group of each class.

    Raises
    ------
    ValueError
        If shapes do not fit, centres are not finite, or ``size`` does not divide c.
    """
    if not isinstance(centres, Tensor) or centres.ndim != 2 or not centres.is_floating_point():
        raise ValueError("centres needs to be a float tensor of shape (c, d)")
    if not bool(centres.isfinite().all()):
        raise ValueError("centres has infinite entries or NaN; it needs finite numbers")
    c = len(centres)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1 or c % size:
        raise ValueError(f"size is {size!r}; it needs to be a positive integer that divides {c}")
    group = torch.full((c,), -1, dtype=torch.int64)
    for number in range(c // size):
        free = (group < 0).nonzero()[:, 0]
        points = centres[free].double()
        first = (points - points.mean(0)).square().sum(1).argmax()
        near = (points - points[first]).square().sum(1).argsort(stable=True)[:size]
        group[free[near]] = number
    return group


def confuse_labels(
    label: Int64[Tensor, "n"],
    group: Int64[Tensor, "c"],
    rate: float,
    generator: Generator,
) -> Int64[Tensor, "n"]:
    """With probability ``rate``, replace a label by one of its group, drawn uniformly.

    The label itself may be drawn again: with g classes a group, a label stays with probability
    1 − rate + rate/g, and for rate 1 nothing but the group is left of it. So the g best are known as
    well as before, while the best one is not.

    Parameters
    ----------
    label
        Class of each sample.
    group
        Group of each class, as from :func:`similar_classes`.
    rate
        From 0 to 1.
    generator
        Of the draws. Labels that are replaced at a smaller rate are replaced at a larger one too.

    Returns
    -------
    Int64[Tensor, "n"]
        The confused labels.

    Raises
    ------
    ValueError
        If ``rate`` is out of range, or a label has no group.
    """
    if not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise ValueError(f"rate is {rate!r}; it needs to lie between 0 and 1")
    if label.numel() and not 0 <= int(label.min()) <= int(label.max()) < len(group):
        raise ValueError(
            f"label runs from {int(label.min())} to {int(label.max())}; group has {len(group)}"
            " classes"
        )
    replaced = torch.rand(label.shape, generator=generator) < rate
    # The largest of one random number a class, among the classes of the group.
    lottery = torch.rand(len(label), len(group), generator=generator)
    drawn = lottery.masked_fill(group[label][:, None] != group[None, :], -1.0).argmax(1)
    return torch.where(replaced, drawn, label)
