"""The linear map of a problem: adjoint, Gram operator, explicit sum over gates, network."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourviews import convex
from fourviews.convex.heads import portions

ACTIVATIONS = ("linear", "gated_relu", "relu")
LAYOUTS = ("rows", "tokens", "pool")
EVERY = list(itertools.product(ACTIVATIONS, LAYOUTS, (1, 3), (torch.float32, torch.float64)))
every = pytest.mark.parametrize("activation, layout, c, dtype", EVERY)


def draw(problem, seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    Z = torch.randn(problem.coefficient_shape, generator=generator, dtype=torch.float64)
    R = torch.randn(problem.loss.target.shape, generator=generator, dtype=torch.float64)
    return (scale * Z).to(problem.X), (scale * R).to(problem.X)


def by_loops(problem, Z):
    """Predictions from the definition, row by row and gate by gate."""
    X = problem.X.double()
    rows = X.reshape(-1, X.shape[-1])
    blocks = Z.double().reshape(-1, *Z.shape[-2:])
    out = torch.zeros(len(rows), Z.shape[-1], dtype=torch.float64)
    for i, j in itertools.product(range(len(rows)), range(len(blocks))):
        if problem.gates is None or rows[i] @ problem.gates[j].double() >= 0:
            out[i] += rows[i] @ blocks[j]
    out = out.reshape(*X.shape[:-1], -1)
    return out.mean(1) if problem.pool == "mean" else out


@every
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_adjoint_identity(activation, layout, c, dtype, scale, make_problem):
    problem = make_problem(activation, layout=layout, c=c, dtype=dtype, n=5, s=2, d=2, beta=0.1)
    for seed in range(3):
        Z, R = draw(problem, seed, scale)
        AZ, AR = problem.forward(Z), problem.adjoint(R)
        left = float((AZ.double() * R.double()).sum())
        right = float((Z.double() * AR.double()).sum())
        size = float(
            AZ.double().norm() * R.double().norm() + Z.double().norm() * AR.double().norm()
        )
        assert abs(left - right) <= 20 * torch.finfo(dtype).eps * size
        assert AZ.dtype == AR.dtype == dtype
        assert AR.shape == problem.coefficient_shape and AZ.shape == problem.loss.target.shape


@given(
    n=st.integers(1, 6),
    s=st.integers(1, 4),
    d=st.integers(1, 4),
    c=st.integers(1, 4),
    P=st.integers(1, 5),
    layout=st.sampled_from(LAYOUTS),
    activation=st.sampled_from(("linear", "gated_relu")),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=60)
def test_adjoint_identity_for_all_sizes(n, s, d, c, P, layout, activation, seed, make_problem):
    problem = make_problem(
        activation, layout=layout, n=n, s=s, d=d, c=c, n_gates=P, beta=0.1, seed=seed
    )
    Z, R = draw(problem, seed)
    AZ, AR = problem.forward(Z), problem.adjoint(R)
    assert float((AZ * R).sum()) == pytest.approx(float((Z * AR).sum()), rel=1e-10, abs=1e-10)
    assert torch.allclose(AZ, by_loops(problem, Z), atol=1e-12)


@every
def test_map_is_the_sum_over_gates(activation, layout, c, dtype, make_problem):
    problem = make_problem(activation, layout=layout, c=c, dtype=dtype, n=5, s=2, d=2, beta=0.1)
    Z, _ = draw(problem, 0)
    tolerance = 50 * torch.finfo(dtype).eps * (1 + float(by_loops(problem, Z).abs().max()))
    assert torch.allclose(problem.forward(Z).double(), by_loops(problem, Z), atol=tolerance)


@every
def test_gram_is_the_map_after_its_adjoint(activation, layout, c, dtype, make_problem):
    problem = make_problem(activation, layout=layout, c=c, dtype=dtype, n=5, s=2, d=2, beta=0.1)
    explicit = convex.Problem.gram(problem)
    size = problem.loss.target.numel()
    assert explicit.shape == (size, size)
    gram = problem.gram()
    assert gram.shape == (problem.gram_size, problem.gram_size)
    # One column of the outputs is like another: the Kronecker product with I_c.
    expected = torch.kron(gram, torch.eye(c, dtype=dtype))
    scale = float(expected.abs().max())
    assert torch.allclose(explicit, expected, atol=50 * torch.finfo(dtype).eps * scale)
    assert torch.allclose(gram, gram.T, atol=20 * torch.finfo(dtype).eps * scale)


@pytest.mark.parametrize("portion", [1, 7, 40])
@pytest.mark.parametrize("activation, layout", list(itertools.product(ACTIVATIONS[1:], LAYOUTS)))
def test_portions_of_gates_change_nothing(portion, activation, layout, make_problem, monkeypatch):
    problem = make_problem(activation, layout=layout, c=3, n=5, s=2, d=2, beta=0.1)
    Z, R = draw(problem, 1)
    forward, adjoint = problem.forward(Z), problem.adjoint(R)
    monkeypatch.setattr(portions, "LARGEST", portion)
    assert len(portions.portions(len(problem.masks), len(problem._rows) * problem.n_outputs)) > 1
    assert torch.allclose(problem.forward(Z), forward, atol=1e-13)
    assert torch.allclose(problem.adjoint(R), adjoint, atol=1e-13)


@every
def test_rank_one_coefficients_are_a_hidden_unit(activation, layout, c, dtype, make_problem):
    problem = make_problem(activation, layout=layout, c=c, dtype=dtype, n=5, s=2, d=2, beta=0.1)
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(1, c, generator=generator, dtype=torch.float64).to(dtype)
    blocks = 1 if problem.masks is None else len(problem.masks)
    for j in range(blocks):
        # A ReLU neuron must lie in the cone of its pattern: the witness does.
        u = (
            problem.gates[j : j + 1]
            if activation == "relu"
            else torch.randn(1, 2, generator=generator).to(dtype)
        )
        gates = problem.gates[j : j + 1] if activation == "gated_relu" else None
        network = problem.hidden_layers(u, v, gates)
        Z = torch.zeros(problem.coefficient_shape, dtype=dtype).reshape(-1, 2, c)
        Z[j] = u.T @ v
        with torch.no_grad():
            outputs = network(problem.X)
        forward = problem.forward(Z.reshape(problem.coefficient_shape))
        assert torch.allclose(
            outputs, forward, atol=30 * torch.finfo(dtype).eps * (1 + float(forward.abs().max()))
        )


@pytest.mark.parametrize(
    "activation, layout, c, dtype", [case for case in EVERY if case[0] != "relu"]
)
def test_network_of_any_coefficients_computes_the_map(activation, layout, c, dtype, make_problem):
    problem = make_problem(activation, layout=layout, c=c, dtype=dtype, n=5, s=2, d=4, beta=0.1)
    Z, _ = draw(problem, 2)
    solution = convex.Solution(problem, Z, 1.0, 0.0, 1e-6, 0, "none", [])
    network = solution.network()
    forward = problem.forward(Z)
    with torch.no_grad():
        outputs = network(problem.X)
    slack = 200 * torch.finfo(dtype).eps * (1 + float(forward.abs().max()))
    assert torch.allclose(outputs, forward, atol=slack)
    lengths = torch.stack([network.first.norm(dim=1), network.second.norm(dim=1)])
    assert torch.allclose(lengths[0], lengths[1], rtol=1e3 * torch.finfo(dtype).eps)
    assert float(network.weight_decay().detach()) == pytest.approx(
        float(convex.nuclear_norm(Z)), rel=1e-5
    )


@every
def test_other_precision_keeps_masks_and_values(activation, layout, c, dtype, make_problem):
    problem = make_problem(activation, layout=layout, c=c, dtype=dtype, n=5, s=2, d=2, beta=0.1)
    other = torch.float64 if dtype == torch.float32 else torch.float32
    twin = problem.to(other)
    assert twin.X.dtype == other and problem.X.dtype == dtype
    if problem.masks is not None:
        assert torch.equal(twin.masks, problem.masks.to(other))
    Z, _ = draw(problem, 3)
    assert torch.allclose(
        twin.forward(Z.to(other)).double(), problem.forward(Z).double(), rtol=1e-4, atol=1e-4
    )


def test_pooling_averages_over_tokens(make_problem):
    pooled = make_problem("gated_relu", layout="pool", c=2, beta=0.1)
    tokens = convex.MLP(
        pooled.X,
        torch.zeros(*pooled.X.shape[:2], 2, dtype=torch.float64),
        beta=0.1,
        activation="gated_relu",
        gates=pooled.gates,
    )
    Z, _ = draw(pooled, 4)
    assert torch.allclose(pooled.forward(Z), tokens.forward(Z).mean(1))


def test_order_of_samples_and_tokens_does_not_matter(make_problem):
    problem = make_problem("gated_relu", layout="tokens", c=2, beta=0.1)
    Z, _ = draw(problem, 5)
    forward = problem.forward(Z)
    assert torch.allclose(
        problem.with_data(problem.X.flip(0)).lifted(Z, problem.with_data(problem.X.flip(0)).masks),
        forward.flip(0),
    )
    assert torch.allclose(
        problem.with_data(problem.X.flip(1)).lifted(Z, problem.with_data(problem.X.flip(1)).masks),
        forward.flip(1),
    )


def test_drawn_gates_are_kept_once_and_on_at_zero():
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    problem = convex.MLP(X, X[:, :1], beta=0.1, activation="gated_relu", n_gates=50)
    assert len(problem.gates) == 2
    assert (problem.masks[:, 2] == 1).all(), "a gate is on where its pre-activation is 0"


@given(seed=st.integers(0, 2**31 - 1), layout=st.sampled_from(LAYOUTS), c=st.integers(1, 3))
@settings(max_examples=30)
def test_relu_polars_bound_every_neuron(seed, layout, c, make_problem):
    """polar(R) >= |<A(uv'), R>| over ReLU neurons with unit weights, listed patterns or not."""
    full = make_problem("relu", layout=layout, c=c, n=4, s=2, d=2, beta=0.1, seed=seed)
    some = convex.MLP(
        full.X, full.loss.target, beta=0.1, activation="relu", pool=full.pool, n_gates=2
    )
    _, R = draw(full, seed)
    generator = torch.Generator().manual_seed(seed)
    u = torch.nn.functional.normalize(torch.randn(500, 2, generator=generator, dtype=torch.float64))
    rows = full.X.reshape(-1, 2)
    spread = full._spread(R).reshape(-1, c)
    best = float((torch.relu(u @ rows.T) @ spread).norm(dim=1).max())
    for problem in (full, some):
        assert best <= problem.polar(R) * (1 + 1e-12)
        assert best <= problem.relu_polar_bound(full._spread(R)) * (1 + 1e-12)
    if c == 1:
        # Exact for one output: fine sampling of the circle comes close, with the rays between two
        # cones, where a maximum may be a kink that no grid meets.
        angles = torch.linspace(0, 2 * torch.pi, 20_001, dtype=torch.float64)
        circle = torch.stack([angles.cos(), angles.sin()], 1)
        rays = torch.nn.functional.normalize(torch.stack([-rows[:, 1], rows[:, 0]], 1))
        circle = torch.cat([circle, rays, -rays])
        fine = float((torch.relu(circle @ rows.T) @ spread).abs().max())
        assert fine == pytest.approx(full.polar(R), rel=1e-6, abs=1e-12)
