"""From coefficients to a network and back, for every head and activation."""

from __future__ import annotations

import itertools

import pytest
import torch

from fourviews import convex

from .heads import ACTIVATIONS, HEADS, POOLS, build
from .training import _drawn, _gates

# ReLU where the program is exact: one column a block.
EXACT = {
    "mlp": dict(c=1),
    "attention": dict(d=1, c=1),
    "mixer": dict(d=1, c=1),
    "fno": dict(c=1),
    "block_fno": dict(c=2),
}
PAIRS = list(itertools.product(HEADS, ACTIVATIONS))


def tiny(name, activation, pool):
    sizes = EXACT[name] if activation == "relu" else {}
    gates = 3 if activation == "gated_relu" else None
    return build(name, activation, pool=pool, n_gates=gates, share=0.05, **sizes)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name, activation", PAIRS)
def test_there_and_back(name, activation, pool):
    """Program, network, program, network: one objective and one set of predictions."""
    problem = tiny(name, activation, pool)
    solution = convex.solve(problem, tol=1e-7, progress=False)
    assert solution.converged and solution.rank > 0
    expected = pytest.approx(solution.objective, rel=1e-8)
    network = solution.network()
    assert problem.network_objective(network) == expected
    lifted = convex.from_network(problem, network)
    assert lifted.objective == expected
    outputs = network(problem.X)
    torch.testing.assert_close(problem.forward(lifted.coefficients), outputs, rtol=1e-8, atol=1e-8)
    # ReLU units on a boundary are booked in one of their cones, and units must stay in cones.
    if activation != "relu":
        Z = lifted.coefficients
        torch.testing.assert_close(Z, solution.coefficients, rtol=1e-8, atol=1e-8)
        again = convex.Solution(problem, Z, lifted.objective, 0.0, 1.0, 0, "", [])
        assert problem.network_objective(again.network()) == expected


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name, activation", PAIRS)
def test_any_network_lifts_to_its_predictions_at_no_higher_price(name, activation, pool):
    problem = tiny(name, activation, pool)
    first, second = _drawn(problem, 5, seed=3)
    network = problem.hidden_layers(3 * first, second, _gates(problem, 5))
    lifted = convex.from_network(problem, network)
    torch.testing.assert_close(
        problem.forward(lifted.coefficients), network(problem.X), rtol=1e-8, atol=1e-8
    )
    # Layers that are not balanced are dearer than their product.
    saved = problem.network_objective(network) - lifted.objective
    assert saved > 0.1 * problem.beta * float(network.weight_decay().detach())


@pytest.mark.parametrize("activation", ["linear", "gated_relu"])
@pytest.mark.parametrize("name", HEADS)
def test_units_dropped_by_the_tolerance(name, activation):
    """A rank that is cut costs what the units left out are worth, and nothing else."""
    problem = build(name, activation, n_gates=3, share=0.02)
    solution = convex.solve(problem, tol=1e-9, progress=False)
    Z = solution.coefficients.reshape(-1, *problem.block_shape)
    u, s, vt = torch.linalg.svd(Z, full_matrices=False)
    order = s.flatten().sort(descending=True).values
    assert order[1] < order[0]
    middle = float(0.5 * (order[0] + order[1]) / order[0])
    network = solution.network(tolerance=middle)
    assert len(network.first) == 1
    cut = (u * (s * (s > middle * s.max())).unsqueeze(-2)) @ vt
    expected = problem.forward(cut.reshape(problem.coefficient_shape))
    torch.testing.assert_close(network(problem.X), expected, rtol=1e-9, atol=1e-9)
    assert float(network.weight_decay().detach()) == pytest.approx(float(order[0]), rel=1e-12)
