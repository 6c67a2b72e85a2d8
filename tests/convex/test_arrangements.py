"""Activation patterns against linear programming, counting formulas and their own witnesses."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fourviews.convex import arrangement_bound, arrangements


def as_set(patterns):
    return {tuple(row) for row in np.asarray(patterns).tolist()}


def by_linear_programs(rows):
    """Every sign vector whose open cone is not empty: x_i·u >= 1 where on, <= -1 where off."""
    rows = np.asarray(rows, dtype=float)
    found = set()
    live = np.flatnonzero(np.abs(rows).sum(axis=1) > 0)
    # Directions only: rows of one length keep the program well scaled.
    unit = rows[live] / np.linalg.norm(rows[live], axis=1, keepdims=True)
    for signs in itertools.product((True, False), repeat=len(live)):
        sign = np.where(signs, 1.0, -1.0)
        answer = linprog(
            np.zeros(rows.shape[1]),
            A_ub=-sign[:, None] * unit,
            b_ub=-np.ones(len(live)),
            bounds=(None, None),
        )
        assert answer.status in (0, 2, 4), answer.message
        if answer.status == 0:
            pattern = np.ones(len(rows), dtype=bool)
            pattern[live] = signs
            found.add(tuple(pattern.tolist()))
    return found


def circulant(row):
    return np.array([np.roll(row, k) for k in range(len(row))])


DEGENERATE = {
    "one row": [[1.0, -2.0, 0.5]],
    "one zero row": [[0.0, 0.0]],
    "zero rows only": [[0.0], [0.0]],
    "one feature": [[2.0], [-3.0], [1e-8], [0.0]],
    "duplicates": [[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]],
    "multiples": [[1.0, 2.0, 0.0], [3.0, 6.0, 0.0], [1e-9, 2e-9, 0.0], [0.0, 1.0, 1.0]],
    "antiparallel": [[1.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]],
    "braid": [[1, -1, 0], [1, 0, -1], [0, 1, -1]],
    "through one line": [[1, 0, 0], [0, 1, 0], [1, 1, 0], [1, -1, 0], [0, 0, 1]],
    "coordinate planes with diagonals": [
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
        [1, 1, 0],
        [0, 1, 1],
        [1, 1, 1],
    ],
    "sum of two": [[1, 2, 3], [3, 1, 2], [4, 3, 5], [0, 0, 0], [-1, -2, -3]],
    "Kronecker": np.kron([[1.0, 2.0], [1.0, -1.0]], [[1.0, 2.0], [1.0, -1.0]])[:, :3],
    "Kronecker, four features": np.kron([[1.0, 2.0], [3.0, -1.0]], [[1.0, 2.0], [3.0, -1.0]]),
    "Kronecker of a degenerate matrix": np.kron([[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]]),
    "circulant": circulant([1.0, 2.0, -3.0]),
    "circulant of rank one": circulant([1.0, 1.0, 1.0]),
    "circulant of even length": circulant([1.0, 0.0, -1.0, 0.0]),
    "circulant with its blocks": np.vstack(
        [circulant([1.0, 0.5, 0.0]), circulant([0.0, 1.0, 1.0])]
    ),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_rows_lose_and_invent_no_cell(name):
    rows = np.array(DEGENERATE[name], dtype=float)
    assert as_set(arrangements(rows)) == by_linear_programs(rows)


@given(
    rows=st.integers(1, 3).flatmap(
        lambda d: st.lists(
            st.lists(st.integers(-2, 2), min_size=d, max_size=d), min_size=1, max_size=6
        )
    )
)
@settings(max_examples=25)
def test_small_integer_rows_agree_with_linear_programs(rows):
    rows = np.array(rows, dtype=float)
    patterns = arrangements(rows)
    assert as_set(patterns) == by_linear_programs(rows)
    assert len(patterns) == len(as_set(patterns))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_mixed_scale_agree_with_linear_programs(seed, dtype):
    rng = np.random.default_rng(seed)
    d = 2 + seed % 2
    rows = (rng.standard_normal((6, d)) * 10.0 ** rng.integers(-8, 9, (6, 1))).astype(dtype)
    assert as_set(arrangements(rows)) == by_linear_programs(rows)


@given(
    n=st.integers(1, 9),
    d=st.integers(1, 5),
    scale=st.integers(-6, 6),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=60)
def test_general_position_has_covers_count(n, d, scale, seed):
    X = 10.0**scale * np.random.default_rng(seed).standard_normal((n, d))
    patterns = arrangements(X)
    expected = 2 * sum(math.comb(n - 1, k) for k in range(d))
    assert len(patterns) == expected == arrangement_bound(n, min(n, d))


@pytest.mark.parametrize("n, d", [(40, 2), (25, 3), (16, 4), (14, 5), (12, 6), (10, 12)])
def test_larger_arrangements_have_covers_count(n, d):
    X = np.random.default_rng(n).standard_normal((n, d))
    assert len(arrangements(X)) == arrangement_bound(n, min(n, d))


@given(
    rows=st.integers(1, 4).flatmap(
        lambda d: st.lists(
            st.lists(st.integers(-3, 3), min_size=d, max_size=d), min_size=1, max_size=9
        )
    ),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@settings(max_examples=60)
def test_gates_realise_the_patterns_and_opposites_are_listed(rows, dtype):
    X = torch.tensor(rows, dtype=dtype)
    patterns, gates = arrangements(X, return_gates=True)
    zero = (X == 0).all(dim=1)
    assert gates.dtype == dtype and gates.shape == (len(patterns), X.shape[1])
    values = gates.double() @ X.double().T
    assert torch.equal(values >= 0, patterns)
    assert (values[:, ~zero] != 0).all(), "a gate lies on a hyperplane"
    assert as_set(patterns) == as_set(~patterns | zero)
    rank = int(torch.linalg.matrix_rank(X.double()))
    assert len(patterns) <= arrangement_bound(len(X), rank)


@given(seed=st.integers(0, 2**31 - 1), n=st.integers(1, 8), d=st.integers(1, 4))
@settings(max_examples=30)
def test_order_scale_and_sign_of_rows_do_not_matter(seed, n, d):
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, (n, d)).astype(float)
    patterns = arrangements(X).numpy()
    order = rng.permutation(n)
    assert as_set(arrangements(X[order])) == as_set(patterns[:, order])
    assert as_set(arrangements(X * 10.0 ** rng.integers(-5, 6, (n, 1)))) == as_set(patterns)
    flip = rng.integers(0, 2, n).astype(bool)
    zero = ~X.any(axis=1)
    expected = (patterns ^ flip) | zero
    assert as_set(arrangements(np.where(flip[:, None], -X, X))) == as_set(expected)
    square = np.linalg.qr(rng.standard_normal((d, d)))[0]
    assert as_set(arrangements(X @ square)) == as_set(patterns)


@given(seed=st.integers(0, 2**31 - 1), n=st.integers(1, 8), d=st.integers(1, 4))
@settings(max_examples=30)
def test_every_sampled_pattern_is_enumerated(seed, n, d):
    X = np.random.default_rng(seed).integers(-3, 4, (n, d)).astype(float)
    patterns, gates = arrangements(X, n_samples=200, seed=seed, return_gates=True)
    assert as_set(patterns) <= as_set(arrangements(X))
    assert len(patterns) == len(as_set(patterns))
    assert np.array_equal(gates.numpy() @ X.T >= 0, patterns.numpy())


def test_many_samples_find_all_cells_of_a_small_arrangement():
    X = np.random.default_rng(0).standard_normal((5, 2))
    assert as_set(arrangements(X, n_samples=20_000)) == as_set(arrangements(X))


def test_sampling_repeats_with_its_seed():
    X = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
    first, again = (arrangements(X, n_samples=30, seed=4) for _ in range(2))
    assert torch.equal(first, again)
    assert as_set(first) != as_set(arrangements(X, n_samples=30, seed=5))


def test_tokens_are_rows():
    X = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.equal(arrangements(X), arrangements(X.reshape(6, 2)))


def test_the_limit_is_checked_before_enumerating_and_names_the_count():
    X = np.random.default_rng(0).standard_normal((60, 12))
    count = arrangement_bound(60, 12)
    with pytest.raises(ValueError, match=f"{count:,}.*60.*rank 12.*limit = 100,000.*n_samples"):
        arrangements(X)
    small = X[:5, :3]
    exact = arrangement_bound(5, 3)
    assert len(arrangements(small, limit=exact)) == exact
    with pytest.raises(ValueError, match=f"{exact}.*limit = {exact - 1}"):
        arrangements(small, limit=exact - 1)


def test_a_huge_limit_that_counts_hyperplanes_ignores_copies():
    X = np.tile(np.random.default_rng(0).standard_normal((3, 3)), (200, 1))
    assert len(arrangements(X, limit=8)) == 8


@pytest.mark.parametrize("width", [1e-2, 1e-4, 1e-6, 1e-8])
def test_thin_cells_are_not_lost(width):
    # Three planes that all but share a line: two cells of this width, 14 in all.
    X = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, width], [0.0, 0.0, 1.0]])
    assert len(arrangements(X)) == arrangement_bound(4, 3)


@pytest.mark.parametrize("width", [0.0, 1e-16, 1e-13])
def test_cells_thinner_than_rounding_count_as_closed(width):
    X = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, width], [0.0, 0.0, 1.0]])
    assert len(arrangements(X)) == 12


@pytest.mark.parametrize(
    "X, match",
    [
        (np.zeros(3), "X.*shape"),
        (np.zeros((0, 3)), "X.*non-empty"),
        (np.zeros((3, 0)), "X.*non-empty"),
        (np.ones((2, 2), dtype=int), "X.*floating"),
        (np.ones((2, 2), dtype=bool), "X.*floating"),
        (np.array([[1.0, np.nan]]), "X.*finite"),
        (np.array([[1.0, np.inf]]), "X.*finite"),
    ],
)
def test_bad_data_is_refused(X, match):
    with pytest.raises(ValueError, match=match):
        arrangements(X)


@pytest.mark.parametrize("n_samples", [0, -1])
def test_bad_sample_count_is_refused(n_samples):
    with pytest.raises(ValueError, match="n_samples"):
        arrangements(np.ones((2, 2)), n_samples=n_samples)


@pytest.mark.parametrize(
    "arguments, match",
    [
        ((-1, 0), "n_rows"),
        ((2.0, 1), "n_rows"),
        ((3, 4), "rank"),
        ((3, -1), "rank"),
        ((3, 1, "other"), "kind"),
    ],
)
def test_bad_bounds_are_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        arrangement_bound(*arguments)


@pytest.mark.parametrize("n", range(2, 12))
def test_the_printed_bound_holds_from_two_rows_on(n):
    for r in range(1, n + 1):
        assert arrangement_bound(n, r) <= arrangement_bound(n, r, "paper") * (1 + 1e-12)
