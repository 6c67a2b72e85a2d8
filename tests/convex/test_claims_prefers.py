"""Claims cvx-24 and cvx-25: what attention does to similar tokens, and what the optimum fixes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fourviews import convex

from .heads import build, dense_map
from .training import train


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def token_maps(X, Z):
    d = X.shape[-1]
    return torch.einsum("nkl,kalb->nab", X.mT @ X, Z.reshape(d, d, d, -1))


# cvx-24: tokens ------------------------------------------------------------------------------


def ratios(X, Z):
    """Ratio of output to token distance over its bound, the largest over pairs."""
    f = X @ token_maps(X, Z)
    size = torch.linalg.matrix_norm(X.mT @ X, 2) * convex.nuclear_norm(Z)
    upper = torch.ones(X.shape[1], X.shape[1]).triu(1).bool()
    return (torch.cdist(f, f)[:, upper] / torch.cdist(X, X)[:, upper] / size[:, None]).max()


@pytest.mark.claim("cvx-24/similarity", verdict="corrected")
@pytest.mark.parametrize("delta", [1.0, 0.3, 0.02])
def test_near_tokens_are_separated_and_far_ones_merged(delta):
    X = torch.tensor([[1, delta], [-1, delta], [1, -delta], [-1, -delta]], dtype=torch.float64)
    sign = X[:, 1:].sign()
    for share in (0.05, 0.5, 0.99):
        beta = share * 16 * delta
        problem = convex.SelfAttention(X[None], sign[None], beta=beta)
        assert convex.largest_beta(problem) == pytest.approx(16 * delta, rel=1e-12)
        solution = convex.solve(problem, tol=1e-12, progress=False)
        f = problem.forward(solution.coefficients)[0]
        # The gap bounds the distance of training outputs to the optimal ones (cvx-25).
        radius = (2 * max(solution.objective - solution.lower_bound, 0.0)) ** 0.5 + 1e-9
        assert (f - (1 - share) * sign).norm() <= radius
        assert radius < 0.1 * (1 - share)


@pytest.mark.claim("cvx-24/bound", verdict="corrected")
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_similar_tokens_are_told_apart_only_at_a_price(scale):
    for seed in range(10):
        X = scale * randn(3, 5, 3, seed=seed)
        Z = randn(9, 6, seed=seed + 50)
        assert ratios(X, Z) <= 1 + 1e-12
        problem = convex.SelfAttention(X, randn(3, 5, 2, seed=seed), beta=1.0)
        torch.testing.assert_close(problem.forward(Z), X @ token_maps(X, Z))
        order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(token_maps(X[:, order], Z), token_maps(X, Z))
        # Attained: Z = g gᵀ ⊗ a bᵀ / ‖G‖, and two tokens that differ along a.
        a = randn(3, seed=seed + 7)
        x = torch.cat([X[0], X[0, :1] + scale * a])[None]
        values, vectors = torch.linalg.eigh(x[0].T @ x[0])
        sharp = torch.kron(
            torch.outer(vectors[:, -1], vectors[:, -1]) / values[-1], torch.outer(a, randn(2))
        )
        assert ratios(x, sharp) == pytest.approx(1, rel=1e-9)


@pytest.mark.mutation("cvx-24")
def test_the_bound_needs_the_size_of_the_gram_matrix():
    X, Z = 100 * randn(3, 5, 3), randn(9, 6, seed=1)
    f = X @ token_maps(X, Z)
    without = torch.cdist(f, f) / torch.cdist(X, X).clamp_min(1e-9) / convex.nuclear_norm(Z)
    assert without.max() > 1


@pytest.mark.claim("cvx-24/one-sample", verdict="corrected")
def test_one_sample_is_a_linear_model_with_another_beta():
    for seed in range(3):
        X, Y = randn(1, 5, 3, seed=seed), randn(1, 5, 2, seed=seed + 20)
        size = float(torch.linalg.matrix_norm(X[0].T @ X[0], 2))
        linear = convex.MLP(X, Y, beta=1.0)
        beta = 0.2 * convex.largest_beta(linear)
        plain = convex.solve(linear.with_beta(beta), tol=1e-9, progress=False)
        attention = convex.SelfAttention(X, Y, beta=beta * size)
        head = convex.solve(attention, tol=1e-9, progress=False)
        assert head.objective == pytest.approx(plain.objective, rel=1e-8)
        unscaled = convex.solve(attention.with_beta(beta), tol=1e-9, progress=False)
        assert abs(unscaled.objective - plain.objective) > 1e-3 * plain.objective


# cvx-25: seeds -------------------------------------------------------------------------------


def two_samples(beta):
    X = torch.eye(2, dtype=torch.float64)[:, None]
    return convex.SelfAttention(X, torch.ones(2, 1, 1, dtype=torch.float64), beta=beta)


@pytest.mark.claim("cvx-25/prediction", verdict="corrected")
@pytest.mark.parametrize("beta", [0.01, 0.4, 0.9])
def test_one_value_many_predictions(beta):
    problem = two_samples(beta)
    least = convex.solve(problem, tol=1e-10, progress=False)
    assert least.lower_bound == pytest.approx(2 * beta - beta**2, rel=1e-8)
    predictions = []
    for b in np.linspace(-(1 - beta), 1 - beta, 5):
        coefficients = torch.zeros(4, 2, dtype=torch.float64)
        coefficients[0, 0] = coefficients[3, 1] = 1 - beta
        coefficients[0, 1] = coefficients[3, 0] = float(b)
        assert float(problem.objective(coefficients)) == pytest.approx(
            2 * beta - beta**2, rel=1e-12
        )
        X = torch.ones(1, 1, 2, dtype=torch.float64)
        predictions.append(float((X @ token_maps(X, coefficients)).squeeze()))
    assert predictions[0] == pytest.approx(0, abs=1e-12)
    assert predictions[-1] == pytest.approx(4 * (1 - beta), rel=1e-12)


@pytest.mark.mutation("cvx-25")
def test_more_freedom_than_that_is_not_optimal():
    problem = two_samples(0.4)
    coefficients = torch.zeros(4, 2, dtype=torch.float64)
    coefficients[0, 0] = coefficients[3, 1] = 0.6
    coefficients[0, 1] = coefficients[3, 0] = 0.7
    assert float(problem.objective(coefficients)) > 2 * 0.4 - 0.4**2 + 0.05


@pytest.mark.claim("cvx-25/gap", verdict="verified")
@pytest.mark.parametrize("pool", [None, "mean"])
def test_a_small_gap_fixes_training_outputs(pool):
    problem = build("attention", n=4, s=3, d=2, c=2, pool=pool)
    best = convex.solve(problem, tol=1e-11, progress=False)
    F = problem.forward(best.coefficients)
    slack = (2 * max(best.objective - best.lower_bound, 0.0)) ** 0.5
    tight = 0.0
    for seed in range(20):
        step = 10.0 ** -(seed % 5) * randn(*problem.coefficient_shape, seed=seed)
        Z = best.coefficients + step
        radius = (2 * (float(problem.objective(Z)) - best.lower_bound)) ** 0.5 + slack
        distance = float((problem.forward(Z) - F).norm())
        assert distance <= radius * (1 + 1e-12)
        tight = max(tight, distance / radius)
    # The factor 2 inside the root is needed: half of the radius is not enough.
    assert tight > 0.5


@pytest.mark.claim("cvx-25/seeds", verdict="conditional")
def test_starts_do_not_move_the_convex_value_but_few_heads_do():
    problem = build("attention", n=6, s=3, d=3, c=2, share=0.05)
    values = []
    for seed in range(10):
        start = randn(*problem.coefficient_shape, seed=seed)
        run = convex.fista(problem, tol=1e-7, start=start, progress=False)
        assert run.converged
        values.append(run.objective)
    assert max(values) - min(values) <= 1e-7 * max(values)
    few = [train(problem, 1, seed) for seed in range(10)]
    assert max(few) - min(few) > 1e-3 * min(few)
    # With enough heads and time instability is gone: no law of non-convex training.
    many = [train(problem, min(problem.block_shape), seed) for seed in range(10)]
    assert max(many) - min(many) <= 1e-4 * min(many)


def near_optimal_points_agree(factor):
    """Two points with objective at most p* + ε differ in ⟨A* w, Z⟩ by at most factor·‖w‖√(2ε)."""
    problem = build("attention", n=3, s=2, d=2, c=1, share=0.1)
    best = convex.solve(problem, tol=1e-11, progress=False)
    A = torch.from_numpy(dense_map(problem))
    w = randn(len(A), seed=4)
    phi = A.T @ w
    steps = [1e-2 * randn(*problem.coefficient_shape, seed=seed) for seed in range(20)]
    # Along A⁺w the loss grows as fast as the prediction allows, and far out it outweighs the norm.
    steps += [t * (torch.linalg.pinv(A) @ w).view(problem.coefficient_shape) for t in (1, 1e4)]
    for step in steps:
        pair = best.coefficients + step, best.coefficients - step
        gap = max(float(problem.objective(Z)) for Z in pair) - best.lower_bound
        moved = abs(float(phi @ (pair[0] - pair[1]).flatten()))
        assert moved <= factor * float(w.norm()) * (2 * gap) ** 0.5


@pytest.mark.claim("cvx-25/determined", verdict="corrected")
def test_predictions_in_the_row_space_are_determined():
    near_optimal_points_agree(2)


@pytest.mark.mutation("cvx-25")
def test_a_smaller_difference_of_predictions_is_noticed():
    with pytest.raises(AssertionError):
        near_optimal_points_agree(1.9)
