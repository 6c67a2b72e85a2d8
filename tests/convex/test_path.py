"""Paths over beta, and the value from which on zero is the solution."""

from __future__ import annotations

import pytest
import torch

from fourviews import convex


def problem_of(activation, c, seed=0, **options):
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(8, 3, generator=g, dtype=torch.float64)
    Y = torch.randn(8, c, generator=g, dtype=torch.float64)
    return convex.MLP(X, Y, beta=1.0, activation=activation, **options)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("activation", ["linear", "gated_relu", "relu"])
def test_zero_is_optimal_from_the_largest_beta_on_and_not_below(activation, c, seed):
    problem = problem_of(activation, c, seed)
    top = convex.largest_beta(problem)
    above = convex.solve(problem.with_beta(1.0001 * top), tol=1e-9, progress=False)
    below = convex.solve(problem.with_beta(0.99 * top), tol=1e-7, progress=False)
    assert above.converged and above.rank == 0
    assert below.converged and below.rank >= 1
    at_zero = float(problem.loss.value(torch.zeros_like(problem.loss.target)))
    assert below.objective < at_zero * (1 - 1e-9)


def test_relu_needs_less_than_its_relaxation():
    problem = problem_of("relu", 3)
    assert convex.largest_beta(problem) <= convex.largest_beta(problem.gated_relaxation())


@pytest.mark.parametrize("method", ["auto", "fista", "splitting", "factored"])
@pytest.mark.parametrize("activation", ["linear", "gated_relu"])
def test_a_path_is_certified_and_falls(activation, method):
    problem = problem_of(activation, 2)
    path = convex.regularization_path(
        problem, count=6, smallest=0.05, tol=1e-6, method=method, progress=False
    )
    betas = [solution.problem.beta for solution in path]
    assert betas == sorted(betas, reverse=True)
    assert betas[0] == pytest.approx(convex.largest_beta(problem))
    assert betas[-1] == pytest.approx(0.05 * betas[0])
    assert all(solution.converged for solution in path)
    # The optimal value is concave and rising in beta; the norm of the solution falls with beta.
    values = [solution.objective for solution in path]
    norms = [float(convex.nuclear_norm(solution.coefficients)) for solution in path]
    assert all(b <= a * (1 + 1e-9) for a, b in zip(values, values[1:], strict=False))
    assert all(b >= a * (1 - 1e-4) for a, b in zip(norms, norms[1:], strict=False))
    assert path[0].rank == 0 < path[-1].rank


def test_warm_starts_save_iterations():
    g = torch.Generator().manual_seed(0)
    X = torch.randn(80, 6, generator=g, dtype=torch.float64)
    Y = torch.randn(80, 3, generator=g, dtype=torch.float64)
    problem = convex.MLP(X, Y, beta=1.0, activation="gated_relu", n_gates=20)
    top = convex.largest_beta(problem)
    betas = [top * 0.8**k for k in range(1, 12)]
    options = {"tol": 1e-6, "method": "fista", "progress": False}
    warm = convex.regularization_path(problem, betas, **options)
    cold = [convex.solve(problem.with_beta(beta), **options) for beta in betas]
    assert all(s.converged for s in (*warm, *cold))
    assert sum(s.iterations for s in warm) < sum(s.iterations for s in cold)


def test_relu_paths():
    path = convex.regularization_path(problem_of("relu", 1), count=4, smallest=0.1, progress=False)
    assert all(solution.converged for solution in path)


@pytest.mark.parametrize(
    "options, match",
    [
        (dict(betas=[]), "one or more"),
        (dict(betas=[1.0, 1.0]), "different"),
        (dict(betas=[-1.0]), "beta must be"),
        (dict(betas=[float("nan")]), "beta must be"),
        (dict(count=1), "count must be"),
        (dict(smallest=1.0), "smallest must"),
    ],
)
def test_bad_paths(options, match):
    with pytest.raises(ValueError, match=match):
        convex.regularization_path(problem_of("linear", 2), progress=False, **options)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_gates", [None, 5])
def test_without_the_blocks_the_largest_beta_is_at_most_a_thousandth_above(
    seed, n_gates, monkeypatch
):
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(9, 4, 5, generator=g, dtype=torch.float64) * 10.0 ** torch.randn(5, generator=g)
    Y = torch.randn(9, 6, generator=g, dtype=torch.float64)
    gated = {"activation": "gated_relu", "n_gates": n_gates} if n_gates else {}
    problem = convex.SelfAttention(X, Y, beta=1.0, pool="mean", **gated)
    exact = convex.largest_beta(problem)
    monkeypatch.setattr("fourviews.convex.path.LARGEST_BLOCKS", 0)
    for layout in (problem, problem.to(torch.float32)):
        assert exact * (1 - 1e-12) <= convex.largest_beta(layout) * (
            1 + 1e-6 * (layout is not problem)
        )
        assert convex.largest_beta(layout) <= exact * (1 + 1.01e-3)
