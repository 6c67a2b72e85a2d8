"""Which polynomials of degree two vanish at the limits of the twin points (spl-04)."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from fourviews import spline
from fourviews.spline.functions.inverse import inverse

PRIME = 2**31 - 1
PAIRS = np.triu_indices(31)  # monomials of degree at most two in thirty variables


def rank_mod(rows: np.ndarray) -> int:
    """Rank modulo a prime: never more than the rank over the rationals."""
    M, rank = rows.copy(), 0
    for c in range(M.shape[1]):
        places = np.nonzero(M[rank:, c])[0]
        if not len(places):
            continue
        M[[rank, rank + places[0]]] = M[[rank + places[0], rank]]
        M[rank] = M[rank] * pow(int(M[rank, c]), -1, PRIME) % PRIME
        below = M[rank + 1 :]
        M[rank + 1 :] = (below - below[:, c : c + 1] * M[rank] % PRIME) % PRIME
        rank += 1
    return rank


def limit_points(U: list[list[Fraction]], rank: int = 2) -> list[Fraction]:
    """Coordinates of U diag(1, 1, 0, 0, 0) Uᵀ and U⁻ᵀ diag(0, 0, 1, 1, 0) U⁻¹."""
    f, V = spline.counterexample(), inverse(U)
    X = [[sum(U[i][k] * U[j][k] for k in range(rank)) for j in range(5)] for i in range(5)]
    Y = [[sum(V[k][i] * V[k][j] for k in (2, 3)) for j in range(5)] for i in range(5)]
    return f.coordinates(X, Y)


def conditions(rank: int = 2, count: int = 500) -> np.ndarray:
    """All monomials at random limits, modulo the prime."""
    f, generator, rows = spline.counterexample(), random.Random(0), []
    while len(rows) < count:
        U = [[Fraction(generator.randint(-9, 9)) for _ in range(5)] for _ in range(5)]
        if f.determinant(U) == 0:
            continue
        at = [v.numerator * pow(v.denominator, -1, PRIME) % PRIME for v in limit_points(U, rank)]
        z = np.array([1, *at], dtype=object)
        rows.append(z[PAIRS[0]] * z[PAIRS[1]] % PRIME)
    return np.array(rows, dtype=np.int64)


@pytest.mark.claim("spl-04", verdict="corrected")
def test_spl_04_only_linear_functions_of_the_product_vanish_at_all_limits():
    """496 monomials, and the 25 entries of XY vanish: a rank of 471 leaves nothing else."""
    assert len(PAIRS[0]) == 496
    assert rank_mod(conditions()) == 496 - 25


@pytest.mark.claim("spl-04", verdict="corrected")
def test_spl_04_both_twin_points_tend_to_the_limits():
    generator, f = random.Random(1), spline.counterexample()
    U = [[Fraction(generator.randint(-9, 9)) for _ in range(5)] for _ in range(5)]
    limit = limit_points(U)
    for exponent in (2, 4, 6):
        for point in spline.twin_points(U, Fraction(1, 10**exponent)):
            gaps = [abs(a - b) for a, b in zip(f.coordinates(*point), limit, strict=True)]
            assert 0 < max(gaps) < Fraction(1000, 10**exponent)


@pytest.mark.mutation("spl-04")
def test_spl_04_limits_of_smaller_rank_would_not_do():
    """With X of rank one its minors vanish, too: fewer conditions are independent."""
    assert rank_mod(conditions(rank=1)) < 496 - 25
