"""Every head solved: against CVXPY, against each other, against training, and back to networks."""

from __future__ import annotations

import itertools

import pytest
import torch

from fourviews import convex
from fourviews.convex.solvers.solve import _choice

from .heads import HEADS, NEW_HEADS, POOLS, build
from .training import train, train_runs

CONVEX = ("linear", "gated_relu")
LOSSES = ("squared", "cross_entropy")
# With seed 0 the pooled MLP is nearly degenerate, and the alternating directions crawl.
SEED = {name: int(name == "mlp") for name in HEADS}
EVERY = list(itertools.product(HEADS, CONVEX, LOSSES, POOLS))
every = pytest.mark.parametrize("name, activation, loss, pool", EVERY)


@every
def test_cvxpy_network_and_back(name, activation, loss, pool):
    problem = build(name, activation, loss, pool=pool, n=4, n_gates=3, seed=SEED[name])
    solution = convex.solve(problem, tol=1e-7, progress=False)
    assert solution.converged
    reference = convex.reference(problem)
    assert reference.objective == pytest.approx(solution.objective, rel=1e-5)
    assert reference.lower_bound <= solution.objective * (1 + 1e-12)
    network = solution.network()
    assert problem.network_objective(network) == pytest.approx(solution.objective, rel=1e-8)
    torch.testing.assert_close(network(problem.X), problem.forward(solution.coefficients))
    torch.testing.assert_close(solution.predict(problem.X), problem.forward(solution.coefficients))
    lifted = convex.from_network(problem, network)
    torch.testing.assert_close(lifted.coefficients, solution.coefficients, rtol=1e-9, atol=1e-9)
    assert lifted.objective == pytest.approx(solution.objective, rel=1e-8)
    assert convex.head_count(solution).heads <= convex.head_count(solution).by_rank


@every
def test_all_methods_agree(name, activation, loss, pool):
    problem = build(name, activation, loss, pool=pool, n=4, n_gates=3, seed=SEED[name])
    best = convex.solve(problem, tol=1e-8, progress=False)
    for method, tol in (("splitting", 1e-6), ("fista", 1e-6), ("factored", 1e-6), ("frank_wolfe", 1e-2)):  # fmt: skip
        other = convex.solve(problem, method=method, tol=tol, progress=False, max_iterations=5000)
        assert other.converged, (method, str(other))
        assert other.objective == pytest.approx(best.objective, rel=2 * tol)
        assert other.lower_bound <= best.objective * (1 + 1e-12)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("activation", CONVEX)
@pytest.mark.parametrize(
    "name, sizes", [("attention", dict(d=1)), ("mixer", dict(d=1)), ("fno", {})]
)
def test_newton_for_one_column(name, sizes, activation, pool):
    problem = build(name, activation, pool=pool, n=5, c=1, share=0.1, **sizes)
    newton = convex.solve(problem, tol=1e-9, progress=False)
    assert newton.method == "newton" and newton.converged
    other = convex.solve(problem, method="splitting", tol=1e-8, progress=False)
    assert newton.objective == pytest.approx(other.objective, rel=1e-7)


def test_newton_refuses_groups():
    problem = build("block_fno", c=2)
    with pytest.raises(ValueError, match="one group"):
        convex.solve(problem, method="newton")
    assert convex.solve(problem, progress=False).converged


@every
def test_float32(name, activation, loss, pool):
    problem = build(
        name, activation, loss, pool=pool, n=4, n_gates=3, seed=SEED[name], dtype=torch.float32
    )
    solution = convex.solve(problem, tol=1e-4, progress=False)
    assert solution.converged and solution.coefficients.dtype == torch.float32
    exact = convex.solve(problem.to(torch.float64), tol=1e-8, progress=False)
    assert solution.objective == pytest.approx(exact.objective, rel=2e-4)
    assert solution.network()(problem.X).dtype == torch.float32


@pytest.mark.parametrize("name, activation", list(itertools.product(HEADS, CONVEX)))
def test_largest_beta_and_path(name, activation):
    problem = build(name, activation, n_gates=3, beta=1.0)
    top = convex.largest_beta(problem)
    assert not convex.solve(problem.with_beta(top), progress=False).coefficients.any()
    assert convex.solve(problem.with_beta(0.99 * top), progress=False).coefficients.any()
    path = convex.regularization_path(problem, count=4, smallest=0.05, tol=1e-5, progress=False)
    assert all(solution.converged for solution in path)
    objectives = [solution.objective for solution in path]
    assert all(b <= a * (1 + 1e-6) for a, b in itertools.pairwise(objectives))


@pytest.mark.parametrize("activation", CONVEX)
@pytest.mark.parametrize("name", NEW_HEADS)
@pytest.mark.parametrize("pool", POOLS)
def test_no_training_run_goes_below(name, activation, pool):
    problem = build(name, activation, pool=pool, n=4, n_gates=2)
    solution = convex.solve(problem, tol=1e-8, progress=False)
    units = problem.n_blocks * min(problem.block_shape)
    best = train_runs(problem, units).min()
    assert solution.lower_bound * (1 - 1e-12) <= best <= solution.objective * (1 + 1e-5)


ONE_COLUMN = [
    ("mlp", dict(c=1)),
    ("attention", dict(d=1, c=1, n=4, s=3)),
    ("mixer", dict(d=1, c=1, n=4)),
    ("fno", dict(c=1)),
    ("fno", dict(c=1, s=4, d=1, n=2, grid=(2, 2))),
    ("block_fno", dict(c=2)),
    # One column in each group, and a loss that couples the groups.
    ("block_fno", dict(c=2, loss="cross_entropy")),
]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name, sizes", ONE_COLUMN)
def test_relu_with_one_column_is_exact(name, sizes, pool):
    problem = build(name, "relu", pool=pool, **sizes)
    solution = convex.solve(problem, tol=1e-6, progress=False)
    assert solution.converged
    reference = convex.reference(problem)
    assert reference.objective == pytest.approx(solution.objective, rel=1e-5)
    network = solution.network()
    assert problem.network_objective(network) == pytest.approx(solution.objective, rel=1e-8)
    lifted = convex.from_network(problem, network)
    assert lifted.objective == pytest.approx(solution.objective, rel=1e-8)
    torch.testing.assert_close(problem.forward(lifted.coefficients), network(problem.X))
    best = train_runs(problem, 10).min()
    assert solution.lower_bound * (1 - 1e-12) <= best <= solution.objective * (1 + 1e-3)
    # The two programs whose cones are dropped: never above.
    gated = convex.solve(problem.gated_relaxation(), tol=1e-6, progress=False)
    assert gated.lower_bound <= solution.objective * (1 + 1e-9)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name", ["attention", "mixer"])
@pytest.mark.parametrize("loss", LOSSES)
def test_relu_with_several_columns_by_enumeration(name, loss, pool):
    """d = c = 2: all cells, each cone's spectral norm by its faces; exact to the stated gap."""
    problem = build(name, "relu", loss, pool=pool, n=2, s=2)
    solution = convex.solve(problem, tol=1e-6, progress=False)
    assert solution.converged and solution.method == "fully corrective"
    best = train_runs(problem, 12).min()
    assert solution.lower_bound <= best * (1 + 1e-12)
    assert best <= solution.objective * (1 + 1e-4)
    network = solution.network()
    assert problem.network_objective(network) == pytest.approx(solution.objective, rel=1e-8)
    lifted = convex.from_network(problem, network)
    assert lifted.objective == pytest.approx(solution.objective, rel=1e-8)
    torch.testing.assert_close(problem.forward(lifted.coefficients), network(problem.X))
    count, fewer = convex.head_count(solution), convex.fewer_heads(solution)
    assert len(fewer.first) <= count.by_predictions
    assert problem.network_objective(fewer) <= solution.objective * (1 + 1e-8)
    torch.testing.assert_close(fewer(problem.X), network(problem.X))
    top = convex.largest_beta(problem)
    zero = float(problem.loss.value(torch.zeros_like(problem.loss.target)))
    at_top = [train(problem.with_beta(1.001 * top), 6, seed) for seed in range(4)]
    assert min(at_top) >= zero * (1 - 1e-9)
    assert min(train(problem.with_beta(0.95 * top), 12, seed) for seed in range(8)) < zero


@pytest.mark.parametrize("name, loss, pool", list(itertools.product(HEADS, LOSSES, POOLS)))
def test_relu_beyond_enumeration_has_true_bounds(name, loss, pool):
    """Some patterns only: the bound holds for every neuron, and for the best of twenty runs."""
    problem = build(name, "relu", loss, pool=pool, n=2, s=3, d=2, c=2, n_gates=20, beta=0.1)
    solution = convex.solve(problem, tol=1e-4, progress=False, max_iterations=300)
    assert 0 < solution.lower_bound <= solution.objective
    assert solution.lower_bound <= train_runs(problem, 8).min()
    assert problem.network_objective(solution.network()) == pytest.approx(solution.objective, rel=1e-8)  # fmt: skip


@pytest.mark.parametrize("name", NEW_HEADS)
@pytest.mark.parametrize("pool", POOLS)
def test_relu_polar_bound_holds_for_every_neuron(name, pool):
    options = {"grid": (2, 2)} if "fno" in name else {}
    problem = build(name, "relu", pool=pool, n=4, s=4, d=4, c=2, n_gates=2, beta=0.5, **options)
    generator = torch.Generator().manual_seed(0)
    R = torch.randn(problem.loss.target.shape, generator=generator, dtype=torch.float64)
    bound = problem.polar(R)
    u = torch.randn(200, problem.block_shape[0], generator=generator, dtype=torch.float64)
    u /= u.norm(dim=1, keepdim=True)
    best = 0.0
    for _ in range(30):  # ascent: the best second weight is the image itself, then its gradient
        u.requires_grad_()
        v = torch.ones(len(u), problem.block_shape[1], dtype=torch.float64, requires_grad=True)
        network = problem.hidden_layers(u, v, None)
        value = (network(problem.X) * R).sum()
        image = torch.autograd.grad(value, network.second)[0]
        best = max(best, float(image.norm(dim=1).max()))
        aligned = problem.hidden_layers(u, image.detach(), None)
        step = torch.autograd.grad((aligned(problem.X) * R).sum(), aligned.first)[0]
        u = step / step.norm(dim=1, keepdim=True).clamp_min(1e-30)
    assert 0.2 * bound < best <= bound


@pytest.mark.parametrize(
    "options, method",
    [
        # Few rows and dear iterations; many rows and cheap ones; more rows than memory allows.
        (
            dict(name="attention", activation="gated_relu", n=64, s=32, d=8, c=8, n_gates=8),
            "splitting",
        ),
        (dict(name="mlp", n=300, s=8, d=2, c=2), "fista"),
        (
            dict(name="attention", activation="gated_relu", n=500, s=24, d=6, c=6, n_gates=4),
            "fista",
        ),
        (dict(name="attention", n=5, s=2, d=2, c=2), "splitting"),
    ],
)
def test_what_decides_whether_the_gram_operator_is_decomposed(options, method):
    assert _choice(build(**options, beta=1.0)) == method
