"""Sparse weights with the same outputs and no larger cost."""

from __future__ import annotations

import numpy as np
import pytest

from fourviews.convex.caratheodory import fewer_weights


@pytest.mark.parametrize("kind", ["plain", "low rank", "copies", "mixed scales", "zero columns"])
@pytest.mark.parametrize(("N", "m"), [(1, 1), (1, 9), (5, 4), (6, 40), (20, 60)])
@pytest.mark.parametrize("seed", range(4))
def test_same_outputs_less_cost_few_weights(kind, N, m, seed):
    rng = np.random.default_rng(seed)
    outputs, costs = rng.standard_normal((N, m)), rng.random(m) + 0.1
    if kind == "low rank":
        outputs = rng.standard_normal((N, 1)) @ rng.standard_normal((1, m))
    if kind == "copies":
        outputs = outputs[:, rng.integers(0, m, m)]
    if kind == "mixed scales":
        factors = 10.0 ** rng.integers(-8, 9, m)
        outputs, costs = outputs * factors, costs * factors
    if kind == "zero columns":
        outputs[:, rng.random(m) < 0.5] = 0
    weights = fewer_weights(outputs, costs)
    lengths = np.linalg.norm(outputs, axis=0)
    rank = np.linalg.matrix_rank(outputs / np.where(lengths > 0, lengths, 1), tol=1e-10)
    assert (weights >= 0).all() and (weights > 0).sum() <= rank
    size = np.abs(outputs).sum(axis=1)
    assert (np.abs(outputs @ weights - outputs.sum(axis=1)) <= 1e-11 * m * size.max()).all()
    assert weights @ costs <= costs.sum() * (1 + 1e-11)


def test_nothing_to_do():
    assert (fewer_weights(np.eye(3), np.ones(3)) == 1).all()
    assert fewer_weights(np.zeros((3, 0)), np.zeros(0)).shape == (0,)
    assert (fewer_weights(np.zeros((3, 2)), np.ones(2)) == 0).all()
