"""The factored solver: ranks that grow, shards, and certificates without matrices."""

from __future__ import annotations

import importlib

import pytest
import torch

from fourviews import convex

module = importlib.import_module("fourviews.convex.solvers.factored")

KINDS = [
    ("linear", "squared", {}),
    ("linear", "cross_entropy", {}),
    ("gated_relu", "squared", {"n_gates": 5}),
    ("gated_relu", "cross_entropy", {"n_gates": 5}),
]


def problem_of(activation, loss, options, *, tokens=False, pool=None, share=0.1, seed=0):
    g = torch.Generator().manual_seed(seed)
    shape = (30, 2, 6) if tokens else (30, 6)
    X = torch.randn(*shape, generator=g, dtype=torch.float64)
    leading = shape[:-1] if pool is None else shape[:1]
    if loss == "squared":
        Y = torch.randn(*leading, 4, generator=g, dtype=torch.float64)
    else:
        Y = torch.randint(0, 4, leading, generator=g)
    problem = convex.MLP(
        X, Y, beta=1.0, activation=activation, loss=loss, pool=pool,
        **({} if loss == "squared" else {"classes": 4}), **options,
    )
    return problem.with_beta(share * convex.largest_beta(problem))


@pytest.mark.parametrize("activation, loss, options", KINDS)
@pytest.mark.parametrize("shard", [4, 7, 1000])
def test_shards_change_nothing(activation, loss, options, shard):
    problem = problem_of(activation, loss, options, tokens=True)
    whole = convex.factored(problem, tol=1e-6, progress=False)
    parts = convex.factored(problem, tol=1e-6, shard=shard, progress=False)
    assert whole.converged and parts.converged
    assert parts.objective == pytest.approx(whole.objective, rel=2e-6)


def test_no_more_samples_than_a_shard_go_through_the_network(monkeypatch):
    problem, seen = problem_of(*KINDS[2]), []
    forward = convex.MLPNetwork.forward

    def watched(network, X):
        seen.append(len(X))
        return forward(network, X)

    monkeypatch.setattr(convex.MLPNetwork, "forward", watched)
    convex.factored(problem, tol=1e-3, shard=4, progress=False)
    assert max(seen) == 4


@pytest.mark.parametrize("activation, loss, options", KINDS)
def test_without_matrices_it_finds_the_same(activation, loss, options, monkeypatch):
    problem = problem_of(activation, loss, options, pool="mean", tokens=True)
    exact = convex.factored(problem, tol=1e-6, progress=False)
    monkeypatch.setattr(module, "_LARGEST_BLOCKS", 0)
    # q = 4 columns: Lanczos is complete, and the bound is that of singular values.
    free = convex.factored(problem, tol=1e-6, progress=False)
    assert free.converged
    assert free.objective == pytest.approx(exact.objective, rel=2e-6)


def test_the_way_to_the_network_and_to_coefficients(monkeypatch):
    problem = problem_of(*KINDS[2])
    solution = convex.factored(problem, tol=1e-7, progress=False)
    assert problem.network_objective(solution.network()) == pytest.approx(
        solution.objective, rel=1e-10
    )
    assert problem.objective(solution.coefficients) == pytest.approx(solution.objective, rel=1e-8)
    assert torch.allclose(solution.predict(problem.X), problem.forward(solution.coefficients))
    back = convex.from_network(problem, solution.network())
    assert torch.allclose(back.coefficients, solution.coefficients, atol=1e-10)
    # Balanced: both layers of each unit have one length.
    units = solution.neurons
    assert torch.allclose(units.first.norm(dim=1), units.second.norm(dim=1), rtol=1e-6)


def test_the_rank_grows_only_as_far_as_the_certificate_asks():
    g = torch.Generator().manual_seed(5)
    X = torch.randn(200, 30, generator=g, dtype=torch.float64)
    W = torch.randn(30, 2, generator=g, dtype=torch.float64)
    Y = X @ W @ torch.randn(2, 20, generator=g, dtype=torch.float64)
    problem = convex.MLP(X, Y, beta=1.0)
    problem = problem.with_beta(0.02 * convex.largest_beta(problem))
    solution = convex.factored(problem, tol=1e-7, progress=False)
    assert solution.converged and solution.rank == 2


def test_zero_is_found_at_once():
    problem = problem_of(*KINDS[0], share=1.1)
    solution = convex.factored(problem, progress=False)
    assert solution.converged and solution.iterations == 0 and solution.rank == 0
    assert float(solution.coefficients.abs().max()) == 0


def test_float32():
    problem = problem_of(*KINDS[2]).to(torch.float32)
    solution = convex.factored(problem, tol=1e-5, progress=False)
    assert solution.converged and solution.neurons.first.dtype == torch.float32
    assert solution.predict(problem.X).dtype == torch.float32
