"""Sums over shards, memory-mapped data, and what is no longer kept when there is much of it."""

from __future__ import annotations

import importlib
import itertools
import warnings

import numpy as np
import pytest
import torch

from fourviews import convex
from fourviews.convex import shards as module
from fourviews.convex.solution import Neurons

from .heads import HEADS, build

problem_module = importlib.import_module("fourviews.convex.problem")
attention_module = importlib.import_module("fourviews.convex.heads.self_attention")
GATES = {"linear": {}, "gated_relu": {"n_gates": 3}}
CASES = list(itertools.product(HEADS, GATES, ("squared", "cross_entropy"), (None, "mean")))


def points(problem, m=3):
    g = torch.Generator().manual_seed(1)
    randn = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    p, q = problem.block_shape
    units = Neurons(randn(m, p), randn(m, q), torch.arange(m) % problem.n_blocks)
    return randn(*problem.coefficient_shape), units


@pytest.mark.parametrize("name, activation, loss, pool", CASES)
def test_sums_over_shards_are_those_of_the_whole(name, activation, loss, pool):
    problem = build(name, activation, loss, pool=pool, n=7, s=3, d=4, c=4, **GATES[activation])
    Z, units = points(problem)
    F = problem.forward(Z)
    for size in (None, 1, 3, 7, 100):
        shards = convex.Shards(problem, size)
        value, gradient = shards.loss_and_gradient(Z)
        assert value == pytest.approx(float(problem.loss.value(F)), rel=1e-12)
        wanted = problem.adjoint(problem.loss.gradient(F))
        assert torch.allclose(gradient, wanted, rtol=1e-10, atol=1e-10)
        assert shards.objective(Z) == pytest.approx(problem.objective(Z), rel=1e-12)
        assert shards.energy(Z) == pytest.approx(float(F.square().sum()), rel=1e-12)
        normal = problem.adjoint(F)
        assert torch.allclose(shards.normal(Z), normal, rtol=1e-10, atol=1e-10)
        found = shards.certificate(Z)
        assert found.objective == pytest.approx(problem.objective(Z), rel=1e-12)
        bound = convex.lower_bound(problem, F)
        assert found.lower_bound == pytest.approx(bound, rel=1e-10, abs=1e-12)
        # Units are the network, and their gradient is what autograd finds.
        network = problem._units(*units)
        output = network(problem.X)
        problem.loss.value(output).backward()
        value, gradient = shards.loss_and_gradient(units)
        assert value == pytest.approx(float(problem.loss.value(output.detach())), rel=1e-12)
        for mine, layer in zip(gradient[:2], (network.first, network.second), strict=True):
            assert torch.allclose(mine, layer.grad, rtol=1e-10, atol=1e-10)
        objective = problem.network_objective(network)
        assert shards.objective(units) == pytest.approx(objective, rel=1e-12)
        bound = convex.lower_bound(problem, output.detach())
        found = shards.certificate(units)
        assert found.lower_bound == pytest.approx(min(bound, objective), rel=1e-9, abs=1e-12)
        top = convex.largest_beta(problem, shard=size or 7)
        assert top == pytest.approx(convex.largest_beta(problem), rel=1e-12)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_residuals_in_a_file_and_products_without_blocks(loss, monkeypatch):
    problem = build("attention", "linear", loss, pool="mean", n=9, s=4, d=3, c=3)
    _, units = points(problem)
    wanted = convex.Shards(problem, 4).certificate(units)
    monkeypatch.setattr(module, "_LARGEST_KEPT", 0)
    monkeypatch.setattr(module, "_PIECE", 5)
    shards = convex.Shards(problem, 4)
    assert shards.certificate(units) == pytest.approx(wanted, rel=1e-12)
    value, residual = shards.loss_and_residual(units)
    F = problem.units_forward(*units)
    assert torch.allclose(residual, problem.loss.gradient(F), atol=1e-12)
    monkeypatch.setattr(module, "LARGEST_BLOCKS", 0)
    free = shards.certificate(units, slack=1e-3)
    assert free.objective == pytest.approx(wanted.objective, rel=1e-12)
    # A looser polar shrinks the dual point, and never lifts the bound.
    assert wanted.lower_bound * (1 - 5e-3) <= free.lower_bound <= wanted.lower_bound * (1 + 1e-9)


@pytest.mark.parametrize("activation", GATES)
@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_fista_in_shards_takes_the_same_steps(activation, loss):
    problem = build("fno", activation, loss, pool="mean", n=11, s=3, d=4, c=3, **GATES[activation])
    whole = convex.fista(problem, tol=1e-7, progress=False)
    parts = convex.fista(problem, tol=1e-7, shard=4, progress=False)
    assert whole.converged and parts.converged and parts.iterations == whole.iterations
    assert torch.allclose(parts.coefficients, whole.coefficients, atol=1e-9)
    assert parts.objective == pytest.approx(problem.objective(parts.coefficients), rel=1e-12)
    single = convex.fista(problem.to(torch.float32), tol=1e-4, shard=4, progress=False)
    assert single.converged and single.coefficients.dtype == torch.float32
    assert single.objective == pytest.approx(whole.objective, rel=1e-3)


def test_what_shards_refuse():
    problem = build("mlp")
    with pytest.raises(ValueError, match="shard must be an integer >= 1, got 0"):
        convex.Shards(problem, 0)
    with pytest.raises(ValueError, match='got activation="relu"'):
        convex.Shards(build("mlp", "relu", beta=1.0), 2)
    with pytest.raises(ValueError, match="no process has any samples"):
        convex.Shards(problem.part(slice(0, 0)))
    with pytest.raises(ValueError, match="beta > 0"):
        convex.fista(problem.with_beta(0.0), shard=2)
    with pytest.raises(ValueError, match="timeout must be a number of seconds > 0"):
        with convex.processes(timeout=0):
            pass


# Data in files -----------------------------------------------------------------------------------


@pytest.fixture
def mapped(tmp_path):
    """A read-only memory-mapped array (n, s, d) of float32."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "X.npy", rng.standard_normal((40, 6, 4)).astype(np.float32))
    return np.load(tmp_path / "X.npy", mmap_mode="r")


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("activation", GATES)
def test_a_read_only_file_is_taken_as_it_is(name, activation, mapped):
    from .heads import head

    Y = np.arange(40) % 4
    options = {"beta": 1.0, "pool": "mean", "activation": activation, **GATES[activation]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem = head(name, mapped, Y, **options)
        assert problem.X.data_ptr() == mapped.__array_interface__["data"][0]
        solution = convex.factored(problem, shard=16, tol=1e-3, max_iterations=3, progress=False)
    again = head(name, torch.from_numpy(np.array(mapped)), Y, **options)
    same = convex.factored(again, shard=16, tol=1e-3, max_iterations=3, progress=False)
    assert torch.equal(solution.neurons.first, same.neurons.first)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", [0, 17, 39])
def test_what_is_not_finite_is_found_in_every_piece(value, where, mapped, monkeypatch):
    monkeypatch.setattr(problem_module, "_PIECE", 24)
    X = np.array(mapped)
    assert convex.MLP(X, X[..., :2].copy(), beta=1.0).X.shape == (40, 6, 4)
    X[where, 2, 1] = value
    with pytest.raises(ValueError, match="X must be finite"):
        convex.MLP(X, mapped[..., :2].copy(), beta=1.0)
    with pytest.raises(ValueError, match="Y must be finite"):
        convex.MLP(mapped, X, beta=1.0)


def test_the_magnitude_in_pieces_is_that_of_the_whole(monkeypatch):
    for dtype, scale in ((torch.float32, 1e30), (torch.float64, 1e-140), (torch.float64, 1e140)):
        X = scale * torch.randn(50, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
        wanted = np.log10(scale) + np.log10(float((X.double() / scale).norm()))
        for piece in (1, 7, 2**22):
            monkeypatch.setattr(problem_module, "_PIECE", piece)
            assert problem_module._magnitude(X) == pytest.approx(wanted, abs=1e-9)
    assert problem_module._magnitude(torch.zeros(3)) == -np.inf


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masks_too_many_to_keep_are_those_of_each_part(name, dtype, monkeypatch):
    options = {"n": 6, "s": 3, "d": 2, "c": 2, "n_gates": 40, "beta": 1.0, "dtype": dtype}
    kept = build(name, "gated_relu", **options)
    monkeypatch.setattr(problem_module, "_LARGEST_MASKS", 0)
    monkeypatch.setattr(problem_module, "_PIECE", 40 * 18 * 2)
    lazy = build(name, "gated_relu", **options)
    assert kept._masks is not None and lazy._masks is None
    assert torch.equal(lazy.gates, kept.gates), "equal patterns are dropped alike"
    assert name != "mlp" or len(lazy.gates) < 40, "some patterns are equal"
    assert lazy.coefficient_shape == kept.coefficient_shape and lazy.n_blocks == kept.n_blocks
    part = lazy.part(slice(2, 5))
    assert lazy._masks is None
    assert torch.equal(part.masks, kept.part(slice(2, 5)).masks)
    given = build(name, "gated_relu", **{**options, "n_gates": None}, gates=kept.gates)
    assert given._masks is None and torch.equal(given.masks, kept.masks)
    assert torch.equal(lazy.masks, kept.masks)


@pytest.mark.parametrize("d, m", [(4, 1), (4, 2), (4, 7), (7, 3)])
def test_attention_with_and_without_moments(d, m, monkeypatch):
    """Parts of many samples keep no Gram matrices: products go through the tokens, or form them anew."""
    problem = build("attention", pool="mean", n=8, s=5, d=d, c=3, beta=1.0)
    assert problem._moments_suffice
    _, units = points(problem, m)
    kept = convex.Shards(problem, 3).loss_and_gradient(units)
    monkeypatch.setattr(attention_module, "_LARGEST_MOMENTS", 0)
    problem._derived.clear()
    value, gradient = convex.Shards(problem, 3).loss_and_gradient(units)
    assert not problem._derived
    assert value == pytest.approx(kept[0], rel=1e-12)
    for mine, wanted in zip(gradient[:2], kept[1][:2], strict=True):
        assert torch.allclose(mine, wanted, rtol=1e-10, atol=1e-10)


def test_single_precision_over_large_data_gives_way_to_double(monkeypatch):
    factored = importlib.import_module("fourviews.convex.solvers.factored")
    seen, passes = [], convex.MLP.units_passes

    def watched(problem, first, *rest):
        seen.append(first.dtype)
        return passes(problem, first, *rest)

    monkeypatch.setattr(convex.MLP, "units_passes", watched)
    monkeypatch.setattr(factored, "_LARGEST_PRECISE_DATA", 0)
    problem = build("mlp", n=30, s=2, d=6, c=4, share=0.1, dtype=torch.float32)
    solution = convex.factored(problem, shard=8, tol=1e-6, progress=False)
    assert seen[0] == torch.float32 and solution.relative_gap <= 1e-5
    exact = convex.solve(problem.to(torch.float64), tol=1e-9, progress=False)
    assert solution.lower_bound <= exact.objective * (1 + 1e-9)
    assert solution.objective == pytest.approx(exact.objective, rel=2e-5)
