"""Polars of cones by branch and bound, against sampling, projections and the definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fourviews import convex
from fourviews.convex import faces
from fourviews.convex.faces import ConeFaces

CASES = {
    "plane": (6, 2),
    "space": (8, 3),
    "more features than rows": (3, 5),
    "one row": (1, 3),
    "one feature": (4, 1),
    "same hyperplane": (7, 3),
    "row of zeros": (7, 3),
    "rank two of four": (7, 4),
    "grid": (9, 3),
    "five dimensions": (8, 5),
}


def data(case: str, seed: int = 0) -> np.ndarray:
    n, d = CASES[case]
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if case == "same hyperplane":
        X[3], X[4] = -2 * X[1], X[2]
    if case == "row of zeros":
        X[0] = 0
    if case == "rank two of four":
        X = rng.standard_normal((n, 2)) @ rng.standard_normal((2, d))
    if case == "grid":
        X = rng.integers(-1, 2, (n, d)).astype(float)
    return X


def blocks_of(X: np.ndarray, masks: np.ndarray, R: np.ndarray) -> np.ndarray:
    return np.einsum("nd,pn,nc->pdc", X, masks.astype(float), R)


def check_polars(X, masks, M, polars, directions, rng):
    signs = np.where(masks, 1.0, -1.0)
    # attained: each direction is a unit vector of its cone (or the polar is zero) …
    reached = np.linalg.norm(np.einsum("pdc,pd->pc", M, directions), axis=1)
    scale = np.abs(M).max() + 1e-300
    assert np.allclose(reached, polars, atol=1e-7 * scale)
    assert ((directions @ X.T) * signs).min() >= -1e-6 * np.abs(X).max()
    lengths = np.linalg.norm(directions, axis=1)
    assert np.allclose(lengths[polars > 1e-7 * scale], 1)
    # … and nothing in the cone does better.
    for _ in range(20):
        U = rng.standard_normal((2000, X.shape[1]))
        U /= np.linalg.norm(U, axis=1, keepdims=True)
        inner = U @ X.T
        for j in range(len(masks)):
            inside = (inner * signs[j] >= 0).all(axis=1)
            if inside.any():
                values = np.linalg.norm(U[inside] @ M[j], axis=1)
                assert values.max() <= polars[j] * (1 + 1e-12) + 1e-12 * scale


@pytest.mark.parametrize("c", [1, 2, 4])
@pytest.mark.parametrize("case", CASES)
def test_polars_are_attained_and_never_exceeded(case, c):
    rng = np.random.default_rng(c)
    X = data(case)
    masks = convex.arrangements(torch.from_numpy(X)).numpy()
    M = blocks_of(X, masks, rng.standard_normal((len(X), c)))
    polars, directions = ConeFaces(X, masks).polars(M)
    check_polars(X, masks, M, polars, directions, rng)
    assert (polars <= np.linalg.norm(M, ord=2, axis=(1, 2)) * (1 + 1e-9) + 1e-300).all()


def test_a_check_of_polars_can_fail():
    rng = np.random.default_rng(0)
    X = data("space")
    masks = convex.arrangements(torch.from_numpy(X)).numpy()
    M = blocks_of(X, masks, rng.standard_normal((len(X), 3)))
    polars, directions = ConeFaces(X, masks).polars(M)
    with pytest.raises(AssertionError):
        check_polars(X, masks, M, 0.99 * polars, directions, rng)
    with pytest.raises(AssertionError):
        check_polars(X, masks, M, polars, -directions, rng)


@pytest.mark.parametrize("seed", range(5))
def test_one_column_is_the_longer_projection(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((9, 3)), rng.standard_normal(9)
    problem = convex.MLP(X, y, beta=1.0, activation="relu")
    R = problem.loss.gradient(torch.zeros_like(problem.loss.target))
    projections = problem.cone_polars(R).max(axis=0)
    exact = ConeFaces(problem.effective_matrix(), problem.masks.numpy() > 0)
    polars, _ = exact.polars(problem.adjoint(R).numpy())
    assert np.allclose(polars, projections, rtol=1e-7, atol=1e-9)


def test_below_the_floor_the_spectral_norm_stands():
    X = data("space")
    masks = convex.arrangements(torch.from_numpy(X)).numpy()
    M = blocks_of(X, masks, np.random.default_rng(1).standard_normal((len(X), 3)))
    exact = ConeFaces(X, masks)
    polars, _ = exact.polars(M)
    spectral = np.linalg.norm(M, ord=2, axis=(1, 2))
    floor = float(np.median(spectral))
    cut, directions = exact.polars(M, floor=floor)
    low = spectral <= floor * (1 - 1e-9)
    assert np.allclose(cut[low], spectral[low]) and (directions[low] == 0).all()
    assert (cut >= polars * (1 - 1e-12)).all()
    above = polars > floor
    assert np.allclose(cut[above], polars[above])


def test_facets_of_a_cube_of_hyperplanes():
    # Three coordinate planes: eight orthants with three facets each.
    masks = convex.arrangements(torch.eye(3)).numpy()
    bounded = faces._facets(np.eye(3), masks)
    assert [len(rows) for rows in bounded] == [3] * 8


@pytest.mark.parametrize("most", [1, 10, 100])
def test_a_search_that_is_cut_short_keeps_bounds_true(most):
    X = np.random.default_rng(3).standard_normal((9, 4))
    masks = convex.arrangements(torch.from_numpy(X)).numpy()
    M = blocks_of(X, masks, np.random.default_rng(1).standard_normal((len(X), 3)))
    whole, short = ConeFaces(X, masks), ConeFaces(X, masks, most=most)
    exact, _ = whole.polars(M)
    bounds, directions = short.polars(M)
    assert whole.complete and not short.complete
    spectral = np.linalg.norm(M, ord=2, axis=(1, 2))
    assert (bounds >= exact * (1 - 1e-12)).all() and (bounds <= spectral * (1 + 1e-9)).all()
    assert (bounds > exact * (1 + 1e-6)).any()  # it was cut
    reached = np.linalg.norm(np.einsum("pdc,pd->pc", M, directions), axis=1)
    assert (reached <= exact * (1 + 1e-9)).all()


@pytest.mark.parametrize("apart", [0.0, 1e-13, 1e-9, 1e-5])
def test_equal_and_almost_equal_singular_values(apart):
    """M with two or three equal singular values: every direction of a plane, or all, are maximal."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((7, 3))
    masks = convex.arrangements(torch.from_numpy(X)).numpy()
    Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    for values in ((1, 1 - apart, 0.3), (1, 1 - apart, 1 - 2 * apart), (1, 0.5, 0.5 - apart)):
        M = np.broadcast_to(Q * np.array(values), (len(masks), 3, 3))
        faces = ConeFaces(X, masks)
        polars, directions = faces.polars(M)
        check_polars(X, masks, M, polars, directions, rng)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_scales_change_nothing(scale):
    X = data("space")
    masks = convex.arrangements(torch.from_numpy(X)).numpy()
    M = blocks_of(X, masks, np.random.default_rng(1).standard_normal((len(X), 2)))
    one, _ = ConeFaces(X, masks).polars(M)
    other, _ = ConeFaces(scale * X, masks).polars(scale * M)
    assert np.allclose(other, scale * one, rtol=1e-9)


@pytest.mark.parametrize("apart", [3e-10, 2.6e-9, 1e-8, 1e-7, 1e-6, 1e-4])
@pytest.mark.parametrize("seed", range(3))
def test_no_neuron_passes_the_bound_between_almost_parallel_rows(apart, seed):
    """Cells thinner than rounding are not listed, but a maximum may lie along them."""
    rng = np.random.default_rng(seed)
    X, R = rng.standard_normal((6, 3)), rng.standard_normal((6, 3))
    X[1] = X[0] + apart * X[1]
    masks = convex.arrangements(torch.from_numpy(X)).numpy()
    bound = ConeFaces(X, masks).polars(blocks_of(X, masks, R))[0].max()

    def reached(u):
        return np.linalg.norm(R.T @ np.maximum(X @ u, 0)) / np.linalg.norm(u)

    best = 0.0
    for _ in range(60):
        u = rng.standard_normal(3)
        for _ in range(300):  # the power method for a convex homogeneous function climbs
            hidden = np.maximum(X @ u, 0)
            u = X.T @ ((hidden > 0) * (R @ (R.T @ hidden)))
            if not np.linalg.norm(u):
                break
            u /= np.linalg.norm(u)
            best = max(best, reached(u))
    assert best <= bound * (1 + 1e-9)
    assert bound <= np.linalg.norm(blocks_of(X, masks, R), ord=2, axis=(1, 2)).max() * (1 + 1e-9)


def test_small_polars_of_large_blocks_are_exact():
    """A cone almost orthogonal to the block's leading direction."""
    X = np.array([[1e-3, 0, 1], [1e-3, 0, -1], [-0.1, 1, 0.0]])
    masks = convex.arrangements(torch.from_numpy(X)).numpy()
    M = np.zeros((len(masks), 3, 1))
    M[:, 2] = 1
    cell = int(np.flatnonzero(masks.all(axis=1))[0])
    faces = ConeFaces(X, masks)
    polars, directions = faces.polars(M)
    assert polars[cell] == pytest.approx(np.linalg.norm(M[cell].T @ directions[cell]), rel=1e-9)
    assert faces.polars(M, floor=9.97e-4)[0][cell] <= 9.97e-4


def test_blocks_outside_the_row_space_are_refused():
    X = np.array([[1.0, 0.0]])
    with pytest.raises(ValueError, match="row space"):
        ConeFaces(X, np.array([[True], [False]])).polars(np.ones((2, 2, 1)))
