"""How far a mean over seeds can be trusted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scipy.special import stdtrit

__all__ = ["gains", "paired_interval"]


def paired_interval(
    values: Sequence[float], others: Sequence[float] | None = None, *, level: float = 0.95
) -> tuple[float, float]:
    r"""Mean of paired differences and half the width of its confidence interval (Student's t).

    .. math:: \bar d \pm t_{m-1}\,s/\sqrt m,\qquad d_i = \text{values}_i - \text{others}_i

    Both methods saw the same data under the same seed; their difference varies less than each of
    them. It is an interval for the mean over *seeds*, with the test samples as they are.

    Parameters
    ----------
    values, others
        One number a seed, in the same order; without ``others`` the interval is that of the mean.
    level
        Probability with which the interval covers the mean, if differences are normal.

    Returns
    -------
    mean, half : float

    Raises
    ------
    ValueError
        With fewer than two seeds, other lengths, numbers that are not finite, or a level out of
        range.
    """
    if others is None:
        others = [0.0] * len(values)
    if len(values) != len(others) or len(values) < 2:
        raise ValueError(
            f"values has {len(values)} numbers, others {len(others)}; they need the same, at least 2"
        )
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; it needs to lie between 0 and 1")
    differences = [float(a) - float(b) for a, b in zip(values, others, strict=True)]
    if not all(math.isfinite(d) for d in differences):
        raise ValueError("values or others has numbers that are not finite")
    m = len(differences)
    mean = math.fsum(differences) / m
    spread = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / (m - 1))
    return mean, float(stdtrit(m - 1, (1 + level) / 2)) * spread / math.sqrt(m)


def gains(
    rows: Iterable[Mapping[str, Any]], key: str, base: str, *, level: float = 0.95
) -> list[tuple[str, float, float, float]]:
    """For each loss the mean of a column, its mean gain over a base, and half of the interval.

    Parameters
    ----------
    rows
        Rows of a table with the columns ``loss``, ``seed`` and ``key``, one row a loss and seed.
    key
        The column to compare.
    base
        The loss that others are compared with, seed by seed.
    level
        As in :func:`paired_interval`.

    Returns
    -------
    list of (str, float, float, float)
        Loss, mean, mean gain, half of the interval, in the order of the rows; 0 and 0 for the base.

    Raises
    ------
    ValueError
        If a loss has other seeds than the base, or the same one twice.
    """
    columns: dict[str, dict[Any, float]] = {}
    for row in rows:
        column = columns.setdefault(row["loss"], {})
        if row["seed"] in column:
            raise ValueError(f"rows has {row['loss']!r} with seed {row['seed']} twice")
        column[row["seed"]] = float(row[key])
    if base not in columns:
        raise ValueError(f"base is {base!r}; rows has {', '.join(columns) or 'nothing'}")
    table = []
    for name, column in columns.items():
        if set(column) != set(columns[base]):
            raise ValueError(f"rows has other seeds for {name!r} than for {base!r}")
        seeds = list(columns[base])
        values = [column[seed] for seed in seeds]
        gain, half = paired_interval(values, [columns[base][seed] for seed in seeds], level=level)
        table.append((name, math.fsum(values) / len(values), gain, half))
    return table
