"""Checks of the lab «Learning for the five best»."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Generator

from .checking import close, exercise, require, run, tensor
from .draws import between, gaussian


def _two(value: object, name: str) -> tuple[float, float]:
    require(isinstance(value, tuple | list) and len(value) == 2, f"{name} needs to give two floats")
    found = tuple(float(v) for v in value)
    require(all(math.isfinite(v) for v in found), f"{name} gives a number that is not finite")
    return found


@exercise("ex-topk-paired")
def paired_differences(generator: Generator, paired: Callable) -> None:
    """Against sums over all pairs of seeds, which need no mean."""
    for _ in range(3):
        m = between(generator, 2, 9)
        a, b = gaussian(generator, m), gaussian(generator, m)
        quantile = float(1 + torch.rand((), generator=generator))
        name = "paired(values, others, quantile)"
        mean, half = _two(run(paired, a, b, quantile), name)
        close(mean * m, (a - b).sum(), "the mean difference is wrong")
        require(half >= 0, "half the width is negative")
        d = a - b
        # Σ over pairs of (d_i - d_j)² is 2m times the sum of squared deviations.
        squares = float((d[:, None] - d[None, :]).square().sum())
        close(
            half**2 * 2 * m**2 * (m - 1),
            quantile**2 * squares,
            "half the width is not the quantile times the standard error of the differences",
        )


@exercise("ex-topk-frequencies")
def smoothed_counts(generator: Generator, frequencies: Callable) -> None:
    """Entries by entries, counted over the list of pairs."""
    for _ in range(2):
        r, kinds, P = between(generator, 20, 60), between(generator, 3, 5), between(generator, 2, 4)
        subject, other = torch.randint(0, kinds, (2, r), generator=generator)
        written = torch.rand(r, P, generator=generator) < 0.4
        smoothing = float(0.5 + 3 * torch.rand((), generator=generator))
        name = "frequencies(subject, object_, written, kinds, smoothing)"
        table = tensor(
            run(frequencies, subject, other, written, kinds, smoothing),
            (kinds, kinds, P),
            name,
            dtype=torch.float64,
        )
        for a, b, p in itertools.product(range(kinds), range(kinds), range(P)):
            met = [i for i in range(r) if int(subject[i]) == a and int(other[i]) == b]
            hits = sum(bool(written[i, p]) for i in met)
            share = torch.tensor(sum(written[:, p].tolist()) / r, dtype=torch.float64)
            close(
                table[a, b, p] * (len(met) + smoothing) - hits,
                smoothing * share,
                f"the entry of kinds ({a}, {b}) and predicate {p} is not the smoothed frequency",
            )


@exercise("ex-topk-lists")
def two_lists(generator: Generator, recalls: Callable) -> None:
    """Against sorting all triples by hand."""
    for _ in range(4):
        pairs, P = between(generator, 3, 6), between(generator, 2, 4)
        scores = 5 * gaussian(generator, pairs, P)
        labels = torch.rand(pairs, P, generator=generator) < 0.4
        labels[between(generator, 0, pairs - 1), between(generator, 0, P - 1)] = True
        order = sorted(itertools.product(range(pairs), range(P)), key=lambda t: -float(scores[t]))
        total = int(labels.sum())
        for k in (1, between(generator, 2, pairs), pairs * P):
            found = _two(run(recalls, scores, labels, k), f"recalls(scores, labels, {k})")
            seen: set[int] = set()
            once = [t for t in order if not (t[0] in seen or seen.add(t[0]))]
            for name, value, full in (
                ("constrained", found[0], once),
                ("unconstrained", found[1], order),
            ):
                hits = sum(bool(labels[t]) for t in full[:k])
                close(value * total, float(hits), f"the {name} recall at {k} is wrong", atol=1e-5)


@exercise("ex-topk-propensity")
def mean_over_writers(generator: Generator, fair_loss: Callable) -> None:
    """The exact expectation: all subsets of the true labels with their probabilities."""
    n = between(generator, 5, 8)
    k = between(generator, 2, n - 2)
    logits = 2 * gaussian(generator, n)
    q = 0.1 + 0.85 * torch.rand(n, generator=generator, dtype=torch.float64)
    true = torch.randperm(n, generator=generator)[: between(generator, 2, 4)].tolist()
    mean = 0.0
    for subset in itertools.product((False, True), repeat=len(true)):
        written = torch.zeros(n, dtype=torch.bool)
        probability = 1.0
        for j, said in zip(true, subset, strict=True):
            written[j] = said
            probability *= float(q[j]) if said else 1 - float(q[j])
        value = tensor(
            run(fair_loss, logits, written, q, k), (), "fair_loss(logits, written, propensity, k)"
        )
        require(bool(value.isfinite()), "fair_loss is not finite")
        mean += probability * float(value)
    low, high = -60.0, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        below = float(torch.sigmoid(logits + middle).sum()) < k
        low, high = (middle, high) if below else (low, middle)
    wanted = -torch.nn.functional.logsigmoid(logits + low)[true].sum()
    close(
        mean,
        wanted,
        "the mean over writers is not the negative log-likelihood of all true labels",
        rtol=1e-6,
    )
