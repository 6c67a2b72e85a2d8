"""Which part of a data set: some classes, some members of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def choose(
    counts: Mapping[str, int],
    *,
    n_classes: int | None,
    n_per_class: int | None,
    seed: int,
    at_most: bool,
) -> tuple[list[str], list[tuple[str, int]]]:
    """Choose classes and members of each by a seed.

    The first m of a larger choice are the smaller choice, and members of all classes take turns,
    so each beginning of the result is balanced.

    Parameters
    ----------
    counts
        How many members each class has, in a fixed order.
    n_classes, n_per_class
        How many classes, how many members of each; all if None.
    seed
        Of the random order.
    at_most
        Whether fewer than asked for will do.

    Returns
    -------
    names : list of str
        The chosen classes, in the order of ``counts``.
    picks : list of (str, int)
        Class and number of each member.

    Raises
    ------
    ValueError
        If a number is no positive integer, or more than there is.
    """
    for name, number in (("n_classes", n_classes), ("n_per_class", n_per_class)):
        if number is not None and (
            not isinstance(number, int) or isinstance(number, bool) or number < 1
        ):
            raise ValueError(f"{name} is {number!r}; it needs to be a positive integer or None")
    if n_classes is not None and n_classes > len(counts) and not at_most:
        raise ValueError(f"n_classes is {n_classes}; there are {len(counts)} classes")
    all_names = list(counts)
    order = np.random.default_rng(seed).permutation(len(all_names))
    chosen = set(order[: n_classes if n_classes is not None else len(all_names)].tolist())
    names = [name for row, name in enumerate(all_names) if row in chosen]
    columns = []
    for row, name in enumerate(all_names):
        if row not in chosen:
            continue
        if n_per_class is not None and n_per_class > counts[name] and not at_most:
            raise ValueError(f"n_per_class is {n_per_class}; the class {name!r} has {counts[name]}")
        # A generator of its own: the choice in one class does not depend on the other classes.
        numbers = np.random.default_rng([seed, row]).permutation(counts[name])[:n_per_class]
        columns.append([(name, int(number)) for number in numbers])
    longest = max((len(column) for column in columns), default=0)
    picks = [column[k] for k in range(longest) for column in columns if k < len(column)]
    return names, picks


def shortfall(
    names: Sequence[str],
    picks: Sequence[tuple[str, int]],
    *,
    n_classes: int | None,
    n_per_class: int | None,
) -> str:
    """What to add to a source's description where a choice is smaller than was asked for."""
    if (n_classes or 0) > len(names) or (n_per_class or 0) * len(names) > len(picks):
        return f" ({len(names)} classes and {len(picks)} images, fewer than asked for)"
    return ""
