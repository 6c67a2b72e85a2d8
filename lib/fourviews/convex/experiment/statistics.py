"""Paired statistics over seeds, and what they say about the three findings of the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from .config import ALTERNATIVES

__all__ = ["Comparison", "findings", "holm", "paired", "summary"]

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """Differences of two heads, seed by seed.

    Attributes
    ----------
    differences
        First minus second, one a seed.
    mean, low, high
        Mean and its 95 % interval by Student's t.
    p
        Two-sided, of the paired t test or Wilcoxon's signed ranks. Where all differences are one
        number, of the sign test: accuracies are counts, and equal counts are no certainty.
    """

    differences: Float[np.ndarray, "m"]
    mean: float
    low: float
    high: float
    p: float

    def equivalence(self, margin: float) -> float:
        """p of «the mean lies outside of ±margin»: the larger of two one-sided t tests (TOST)."""
        return self._one_sided(margin - abs(self.mean))

    def beyond(self, margin: float) -> float:
        """p of «the mean lies within ±margin»: twice a one-sided t test from the nearer end.

        At most 0.05 if the 95 % interval misses ±margin, unless all differences are one number.
        """
        return min(1.0, 2 * self._one_sided(abs(self.mean) - margin))

    def _one_sided(self, distance: float) -> float:
        m, error = len(self.differences), _standard_error(self.differences)
        if error == 0:
            return 0.5**m if distance > 0 else 1.0
        return float(stats.t.sf(distance / error, m - 1))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: reject those up to the level, and the family's error keeps to it.

    With :math:`p_{(1)} \\le \\dots \\le p_{(m)}`, the k-th is
    :math:`\\max_{j \\le k}\\min(1, (m - j + 1)p_{(j)})` (Holm 1979).

    Raises
    ------
    ValueError
        If a value lies outside of [0, 1].
    """
    values = np.asarray(p, dtype=float)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"p is {list(p)}; it needs numbers from 0 to 1")
    order = np.argsort(values, kind="stable")
    steps = np.minimum(1.0, values[order] * (len(values) - np.arange(len(values))))
    adjusted = np.empty(len(values))
    adjusted[order] = np.maximum.accumulate(steps) if len(values) else steps
    return adjusted.tolist()


def paired(
    rows: Sequence[Row],
    first: Row,
    second: Row,
    *,
    metric: str = "top1",
    test: str = "t",
) -> Comparison:
    """Compare the rows that have the entries of `first` with those of `second`, paired by seed.

    Parameters
    ----------
    rows
        As from :func:`heads_experiment`.
    first, second
        Entries that pick one row a seed, such as ``{"head": "mlp", "input": "scaled"}``.
    metric
        Column to compare.
    test
        ``"t"`` or ``"wilcoxon"``.

    Raises
    ------
    ValueError
        If a seed has several rows or is on one side only, there are fewer than two, or the test is
        another.
    """
    if test not in ("t", "wilcoxon"):
        raise ValueError(f"test is {test!r}; it may be 't' or 'wilcoxon'")
    sides = [_by_seed(rows, which, metric) for which in (first, second)]
    if set(sides[0]) != set(sides[1]):
        raise ValueError(
            f"seeds differ: {sorted(sides[0])} of {dict(first)}, {sorted(sides[1])} of {dict(second)}"
        )
    seeds = sorted(sides[0])
    return _comparison(np.array([sides[0][k] - sides[1][k] for k in seeds]), test)


def _by_seed(rows: Sequence[Row], which: Row, metric: str) -> dict[int, float]:
    found: dict[int, float] = {}
    for row in rows:
        if all(row.get(name) == value for name, value in which.items()):
            if row["seed"] in found:
                raise ValueError(f"seed {row['seed']} has several rows with {dict(which)}")
            found[row["seed"]] = float(row[metric])
    return found


def _comparison(differences: np.ndarray, test: str = "t") -> Comparison:
    m = len(differences)
    if m < 2:
        raise ValueError(f"there are {m} pairs of rows; two seeds or more are needed")
    mean, error = float(differences.mean()), _standard_error(differences)
    half = float(stats.t.ppf(0.975, m - 1)) * error
    if not differences.any():
        p = 1.0  # no difference at all: neither test has a number for it
    elif test == "wilcoxon":
        p = float(stats.wilcoxon(differences).pvalue)
    else:
        # One number, m times: t would be infinite, and the sign test is what is left.
        p = 0.5 ** (m - 1) if error == 0 else float(2 * stats.t.sf(abs(mean) / error, m - 1))
    return Comparison(differences, mean, mean - half, mean + half, p)


def _standard_error(values: Float[np.ndarray, "m"]) -> float:
    """Of the mean; zero where the values differ by rounding alone."""
    if np.ptp(values) <= 1e-12 * np.abs(values).max():
        return 0.0
    return float(values.std(ddof=1) / len(values) ** 0.5)


def summary(
    rows: Sequence[Row], metric: str = "top1"
) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Mean and standard error over seeds of each head, activation and form of the input.

    Parameters
    ----------
    rows : sequence of rows
        Of :func:`heads_experiment`.
    metric : str
        The column that is averaged.
    """
    groups: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        groups.setdefault((row["head"], row["activation"], row["input"]), []).append(row[metric])
    return {
        key: (float(np.mean(v)), float(stats.sem(v)) if len(v) > 1 else float("nan"))
        for key, v in groups.items()
    }


def findings(
    rows: Sequence[Row],
    *,
    form: str,
    margin: float = 0.02,
    level: float = 0.05,
    metric: str = "top1",
    test: str = "t",
) -> list[dict[str, Any]]:
    """The source's three findings as statements about means over seeds.

    1. Attention, mixer, Fourier and block-diagonal heads, linear and gated, against the linear head
       and the gated MLP. Corrected by Holm's method.
    2. Gated minus linear for attention, mixer and Fourier head: is it shown to lie within ±margin,
       or outside? Exactly one of a head's two hypotheses is true, so that three of the six are, and
       each p is multiplied by three.
    3. Gated minus linear for the block-diagonal head; and that minus the same of each other head,
       with their signs. Corrected by Holm's method.

    Parameters
    ----------
    rows
        Of one task.
    form
        Which form of the input.
    margin
        What counts as little, above 0, to be chosen before the rows are seen.
    level, metric, test
        Error of each of the three families; column; test of 1 and 3 (2 is always by t tests).

    Returns
    -------
    list of dict
        ``finding, comparison, mean, low, high`` (the interval is not corrected), ``p`` (adjusted),
        ``verdict``: "above", "below" or "no difference shown"; for 2 "small", "large" or "neither
        shown", with the p of the hypothesis that the mean speaks against.

    Raises
    ------
    ValueError
        As :func:`paired`, and for a margin that is not above 0.
    """
    if not margin > 0:
        raise ValueError(f"margin is {margin!r}; it needs a number above 0")

    def one(head: str, activation: str) -> dict[str, str]:
        return {"head": head, "activation": activation, "input": form}

    def compare(a: dict, b: dict) -> Comparison:
        return paired(rows, a, b, metric=metric, test=test)

    out: list[dict[str, Any]] = []

    def entry(number: int, name: str, c: Comparison, p: float, verdict: str) -> None:
        out.append(
            {
                "finding": number,
                "comparison": name,
                "mean": c.mean,
                "low": c.low,
                "high": c.high,
                "p": p,
                "verdict": verdict,
            }
        )

    def against_zero(number: int, members: Mapping[str, Comparison]) -> None:
        adjusted = holm([c.p for c in members.values()])
        for (name, c), p in zip(members.items(), adjusted, strict=True):
            shown = "above" if c.mean > 0 else "below"
            entry(number, name, c, p, shown if p <= level else "no difference shown")

    def against_margin(number: int, members: Mapping[str, Comparison]) -> None:
        for name, c in members.items():
            inside = abs(c.mean) < margin
            p = c.equivalence(margin) if inside else c.beyond(margin)
            p = min(1.0, len(members) * p)
            shown = "small" if inside else "large"
            entry(number, name, c, p, shown if p <= level else "neither shown")

    against_zero(
        1,
        {
            f"{head} {activation} - {base[0]}": compare(one(head, activation), one(*base))
            for head in ALTERNATIVES
            for activation in ("linear", "gated_relu")
            for base in (("linear", "linear"), ("mlp", "gated_relu"))
        },
    )
    gaps = {head: compare(one(head, "gated_relu"), one(head, "linear")) for head in ALTERNATIVES}
    others = [head for head in ALTERNATIVES if head != "block_fno"]
    against_margin(2, {f"{head} gated - linear": gaps[head] for head in others})
    own = gaps["block_fno"]
    against_zero(
        3,
        {
            "block_fno gated - linear": own,
            **{
                f"that minus that of {head}": _comparison(
                    own.differences - gaps[head].differences, test
                )
                for head in others
            },
        },
    )
    return out
