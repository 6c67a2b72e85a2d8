"""The factored solver: ranks that grow, shards, and certificates without matrices."""

from __future__ import annotations

import importlib

import pytest
import torch

from fourviews import convex
from fourviews.convex import matrix_free

module = importlib.import_module("fourviews.convex.solvers.factored")

KINDS = [
    ("linear", "squared", {}),
    ("linear", "cross_entropy", {}),
    ("gated_relu", "squared", {"n_gates": 5}),
    ("gated_relu", "cross_entropy", {"n_gates": 5}),
]


def factors(problem, shard):
    return module._Factors(convex.Shards(problem, shard), 1e-9)


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
        X,
        Y,
        beta=1.0,
        activation=activation,
        loss=loss,
        pool=pool,
        **({} if loss == "squared" else {"classes": 4}),
        **options,
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


# The second layer eliminated -------------------------------------------------------------------


def attention(n=30, s=5, d=4, c=3, share=0.05, seed=0, dtype=torch.float64, rank=2):
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, s, d, generator=g, dtype=torch.float64) / s**0.5
    Y = torch.randn(n, rank, generator=g, dtype=torch.float64) @ torch.randn(
        rank, c, generator=g, dtype=torch.float64
    )
    problem = convex.SelfAttention(X.to(dtype), Y.to(dtype), beta=1.0, pool="mean")
    return problem.with_beta(share * convex.largest_beta(problem))


@pytest.mark.parametrize("rows, width", [(1, 1), (7, 20), (20, 7), (9, 9), (5, 1), (1, 5)])
@pytest.mark.parametrize("beta", [1e-6, 1.0, 1e3])
def test_ridge_by_its_normal_equations(rows, width, beta):
    g = torch.Generator().manual_seed(rows + width)
    H = torch.randn(rows, width, generator=g, dtype=torch.float64)
    Y = torch.randn(rows, 3, generator=g, dtype=torch.float64)
    second, residual = module._ridge(H, Y, beta)
    assert torch.allclose(H @ second - Y, residual, atol=1e-8)
    assert torch.allclose(H.T @ residual, -beta * second, atol=1e-8 * (1 + beta))


@pytest.mark.parametrize("n", [8, 30, 120])
@pytest.mark.parametrize("share", [0.3, 0.02])
def test_with_and_without_elimination_the_optimum_is_the_same(n, share, monkeypatch):
    problem = attention(n=n, share=share)
    assert factors(problem, n)._eliminates(3)
    exact = convex.solve(problem, tol=1e-8, progress=False)
    one = convex.factored(problem, tol=1e-6, progress=False)
    monkeypatch.setattr(module, "_LARGEST_SYSTEM", 0)
    assert not factors(problem, n)._eliminates(3)
    both = convex.factored(problem, tol=1e-6, progress=False)
    for solution in (one, both):
        assert solution.converged
        assert solution.objective == pytest.approx(exact.objective, rel=2e-6)
        assert solution.lower_bound <= exact.objective * (1 + 1e-9)


def test_elimination_needs_whole_data_squared_loss_and_hidden_values():
    problem = attention()
    assert factors(problem, 30)._eliminates(3)
    assert not factors(problem, 10)._eliminates(3)
    assert not factors(problem_of(*KINDS[0]), 30)._eliminates(3)  # an MLP
    labels = torch.arange(30) % 3
    classes = convex.SelfAttention(problem.X, labels, beta=1.0, pool="mean", loss="cross_entropy")
    assert not factors(classes, 30)._eliminates(3)


def test_hidden_values_times_the_second_layer_are_the_predictions():
    problem = attention(d=3, c=2)
    g = torch.Generator().manual_seed(1)
    first = torch.randn(4, 9, generator=g, dtype=torch.float64)
    second = torch.randn(4, 6, generator=g, dtype=torch.float64)
    block = torch.zeros(4, dtype=torch.long)
    hidden = problem.units_hidden(first, block)
    network = problem.hidden_layers(first, second, None)
    assert torch.allclose(hidden @ second.view(hidden.shape[1], 2), network(problem.X))


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_single_precision_passes_give_way_to_double(tol, dtype, monkeypatch):
    """Passes start in float32; the certificate, in float64, decides when they no longer do."""
    seen = []
    forward = convex.SelfAttention.units_hidden

    def watched(problem, first, block):
        seen.append(first.dtype)
        return forward(problem, first, block)

    problem = attention(n=60, s=6, d=5, c=4, share=0.02, rank=4, dtype=dtype)
    exact = convex.solve(problem.to(torch.float64), tol=1e-8, progress=False)
    monkeypatch.setattr(convex.SelfAttention, "units_hidden", watched)
    monkeypatch.setattr(module, "_LARGEST_PRECISE", 0)
    monkeypatch.setattr(module, "_LARGEST_BLOCKS", 0)
    solution = convex.factored(problem, tol=tol, progress=False)
    assert torch.float32 in seen
    assert solution.lower_bound <= exact.objective * (1 + 1e-9)
    assert solution.relative_gap <= tol or dtype == torch.float32
    assert solution.objective == pytest.approx(exact.objective, rel=2 * max(tol, 1e-5))


def test_pairs_inside_of_the_units_spaces_are_not_new():
    problem = attention()
    model = factors(problem, 30)
    g = torch.Generator().manual_seed(2)
    basis = lambda k: torch.linalg.qr(torch.randn(k, k, generator=g, dtype=torch.float64))[0]  # noqa: E731
    U, V = basis(16), basis(12)
    block = torch.zeros(3, dtype=torch.long)
    units = module.Neurons(3 * U[:3], 0.5 * V[:3], block)
    mixed = torch.linalg.qr(torch.randn(3, 3, generator=g, dtype=torch.float64))[0]
    inside = model._outside(units, mixed @ U[:3], mixed.T @ V[:3], block)
    assert not inside.any()
    assert model._outside(units, mixed @ U[:3], V[3:6], block).all()
    assert model._outside(units, U[5:8], V[:3], block).all()
    assert model._outside(model.none(), U[:3], V[:3], block).all()


def test_the_slack_costs_the_bound_what_is_allowed():
    problem = attention(share=0.1)
    exact = convex.solve(problem, tol=1e-9, progress=False)
    F = problem.forward(exact.coefficients)
    loss = float(problem.loss.value(F)) / exact.objective
    for allowed in (1e-1, 1e-2, 1e-4):
        t = module._slack(allowed, loss)
        bound = convex.lower_bound(problem, F, polar=problem.beta * (1 + t))
        assert 1 - bound / exact.objective <= 1.05 * allowed + 1e-8
        assert 1 - bound / exact.objective >= 0.5 * allowed - 1e-8


def test_every_bound_draws_its_own_starts_and_together_they_fail_as_stated(monkeypatch):
    """A residual depends on the starts of the bounds before: the same ones would not be random to it."""
    seen = []

    def watched(*args, **options):
        seen.append((options["seed"], options["failure_probability"]))
        return convex.spectral.lanczos_bound(*args, **options)

    monkeypatch.setattr(matrix_free, "lanczos_bound", watched)
    monkeypatch.setattr(module, "_LARGEST_BLOCKS", 0)
    problem = problem_of(*KINDS[2], share=0.05)
    convex.factored(problem, tol=1e-6, failure_probability=1e-3, progress=False)
    assert len(seen) > problem.n_blocks
    seeds, failures = zip(*seen, strict=True)
    assert len(set(seeds)) == len(seeds)
    assert sum(failures) <= 1e-3


def test_a_system_beyond_single_precision_is_solved_in_double(monkeypatch):
    """With a tiny beta float32 has no Cholesky factor, and float64 takes over at once."""
    problem = attention(share=1e-9)
    monkeypatch.setattr(module, "_LARGEST_PRECISE", 0)
    exact = problem.polar(problem.loss.gradient(torch.zeros_like(problem.loss.target)))
    assert problem.beta < 1e-8 * exact
    solution = convex.factored(problem, tol=1e-3, max_iterations=5, progress=False)
    assert (
        solution.lower_bound
        <= solution.objective
        < 0.1 * problem.objective(torch.zeros(problem.coefficient_shape, dtype=torch.float64))
    )


def test_no_tolerance_at_all_ends(monkeypatch):
    """At tol = 0 neither bounds nor descent are asked for more than numbers can hold."""
    monkeypatch.setattr(module, "_LARGEST_BLOCKS", 0)
    problem = attention(n=12, d=3, c=2, share=0.1)
    solution = convex.factored(problem, tol=0.0, max_iterations=6, progress=False)
    assert solution.relative_gap < 1e-6
    zero = attention(n=12, d=3, c=2, share=1.1)
    assert convex.factored(zero, tol=0.0, max_iterations=6, progress=False).rank == 0
