"""Cones of activation patterns: projection, decomposition into two members, quasi-nuclear norm."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourviews import convex
from fourviews.convex import cone_decomposition, project_cone, quasi_nuclear_norm

cases = st.fixed_dictionaries(
    {
        "rows": st.integers(0, 8),
        "p": st.integers(1, 5),
        "scale": st.sampled_from([1e-6, 1.0, 1e6]),
        "row_scale": st.booleans(),
        "integers": st.booleans(),
        "seed": st.integers(0, 2**31 - 1),
    }
)
many = settings(max_examples=150)


def draw(case):
    """A point and a cone {u : Ku >= 0}, any cone: pointed, empty inside, a half-space, all."""
    rng = np.random.default_rng(case["seed"])
    shape = (case["rows"], case["p"])
    K = rng.integers(-2, 3, shape).astype(float) if case["integers"] else rng.standard_normal(shape)
    if case["row_scale"]:
        K *= 10.0 ** rng.integers(-6, 7, (case["rows"], 1))
    point = rng.standard_normal(case["p"]) * case["scale"]
    return torch.from_numpy(point), torch.from_numpy(K)


def pattern_cone(n, p, seed):
    """A cone with interior: that of a Gaussian vector's pattern."""
    rng = np.random.default_rng(seed)
    X, u = rng.standard_normal((n, p)), rng.standard_normal(p)
    return torch.from_numpy(np.where(X @ u >= 0, 1.0, -1.0)[:, None] * X), u


def unit_rows(K):
    size = K.norm(dim=1, keepdim=True)
    return K / torch.where(size > 0, size, 1.0)


@given(case=cases)
@many
def test_projection_satisfies_the_kkt_conditions(case):
    """P in the cone, point - P in the polar cone, and orthogonal: exactly these say P = projection."""
    x, K = draw(case)
    P = project_cone(x, K)
    size = float(x.norm())
    assert (unit_rows(K) @ P >= -1e-9 * size).all()
    assert abs(float(P @ (x - P))) <= 1e-9 * size**2
    # x - P = -K'λ with λ >= 0: its own projection onto the cone is zero.
    assert float(project_cone(x - P, K).norm()) <= 1e-8 * size
    # By Moreau the two are the projections onto the cone and its polar.
    assert float(P.norm() ** 2 + (x - P).norm() ** 2) == pytest.approx(size**2, rel=1e-8)


@given(case=cases)
@many
def test_projection_is_nearest_idempotent_and_homogeneous(case):
    x, K = draw(case)
    P = project_cone(x, K)
    size = float(x.norm())
    assert torch.allclose(project_cone(P, K), P, atol=1e-8 * size, rtol=0)
    assert torch.allclose(project_cone(3.0 * x, K), 3.0 * P, atol=1e-8 * size, rtol=0)
    rng = np.random.default_rng(case["seed"])
    for _ in range(5):
        member = project_cone(torch.from_numpy(case["scale"] * rng.standard_normal(case["p"])), K)
        assert float((x - P).norm()) <= float((x - member).norm()) + 1e-9 * size


def test_projections_that_are_known():
    K = torch.eye(3, dtype=torch.float64)
    x = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    assert torch.allclose(project_cone(x, K), x.clamp_min(0))
    assert torch.equal(project_cone(x, K[:0]), x)
    assert torch.equal(project_cone(x, 0 * K), x)
    line = torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]], dtype=torch.float64)
    assert torch.allclose(project_cone(x, line), x - x.mean())
    point_only = torch.cat([K, -K])
    assert torch.allclose(
        project_cone(x, point_only), torch.zeros(3, dtype=torch.float64), atol=1e-12
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_of_the_answer_is_the_points(dtype):
    K, _ = pattern_cone(4, 3, 0)
    x = torch.randn(3, generator=torch.Generator().manual_seed(0), dtype=dtype)
    assert project_cone(x, K.to(dtype)).dtype == dtype
    parts = cone_decomposition(x, K.to(dtype))
    assert parts.positive.dtype == parts.negative.dtype == dtype
    assert torch.allclose(parts.positive - parts.negative, x, atol=10 * torch.finfo(dtype).eps)


def by_cvxpy(z, K):
    """Least |a| + |b| with z = a - b, both in the cone; in units of |z| and unit rows."""
    size = float(np.linalg.norm(z))
    a, b = cp.Variable(len(z)), cp.Variable(len(z))
    rows = unit_rows(torch.from_numpy(K)).numpy()
    constraints = [a - b == z / size, rows @ a >= 0, rows @ b >= 0]
    problem = cp.Problem(cp.Minimize(cp.norm(a) + cp.norm(b)), constraints)
    problem.solve(solver="CLARABEL")
    assert problem.status == "optimal"
    return size * float(problem.value)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_decomposition_agrees_with_cvxpy(seed, scale):
    n, p = 2 + seed % 5, 1 + seed % 4
    K, _ = pattern_cone(n, p, seed)
    z = torch.from_numpy(scale * np.random.default_rng(100 + seed).standard_normal(p))
    parts = cone_decomposition(z, K)
    check_parts(parts, z, K)
    expected = by_cvxpy(z.numpy(), K.numpy())
    # Clarabel is good to about 1e-7 here.
    assert parts.lower_bound <= expected * (1 + 1e-6)
    assert parts.cost >= expected * (1 - 1e-6)
    assert parts.cost == pytest.approx(expected, rel=1e-5)


def check_parts(parts, z, K):
    size = max(float(z.norm()), float(parts.positive.norm()), 1e-300)
    assert torch.allclose(parts.positive - parts.negative, z, atol=1e-12 * size, rtol=0)
    for part in (parts.positive, parts.negative):
        assert (unit_rows(K) @ part >= -1e-8 * size).all()
    cost = float(parts.positive.norm() + parts.negative.norm())
    assert parts.cost == pytest.approx(cost, rel=1e-12, abs=1e-300)
    assert float(z.norm()) * (1 - 1e-12) <= parts.lower_bound <= parts.cost


@given(n=st.integers(1, 7), p=st.integers(1, 5), seed=st.integers(0, 2**31 - 1))
@settings(max_examples=80)
def test_decomposition_is_feasible_and_bounded(n, p, seed):
    K, inside = pattern_cone(n, p, seed)
    z = torch.from_numpy(np.random.default_rng(seed + 1).standard_normal(p))
    try:
        parts = cone_decomposition(z, K)
    except ValueError as error:
        # Only a cone so thin that a decomposition is ten million times longer may be refused.
        assert "hardly any" in str(error)
        widest = float((unit_rows(K) @ torch.from_numpy(inside)).min()) / np.linalg.norm(inside)
        assert widest < 1e-6
        return
    check_parts(parts, z, K)
    # Any other decomposition costs no less than the bound: go far into the cone and back.
    u = torch.from_numpy(inside)
    depth = (unit_rows(K) @ u).clamp_min(1e-300)
    reach = float(((unit_rows(K) @ z).clamp_max(0).abs() / depth).max())
    a = z + reach * u
    assert parts.lower_bound <= float(a.norm() + reach * u.norm()) * (1 + 1e-9)


@given(n=st.integers(1, 6), p=st.integers(1, 4), seed=st.integers(0, 2**31 - 1))
@settings(max_examples=40)
def test_bound_and_cost_meet(n, p, seed):
    K, _ = pattern_cone(n, p, seed)
    z = torch.from_numpy(np.random.default_rng(seed + 2).standard_normal(p))
    parts = cone_decomposition(z, K)
    assert parts.cost - parts.lower_bound <= 1e-6 * parts.cost


def test_members_and_their_negatives_need_one_part():
    K, inside = pattern_cone(5, 3, 3)
    u = torch.from_numpy(inside)
    plus, minus = cone_decomposition(u, K), cone_decomposition(-u, K)
    assert torch.equal(plus.positive, u) and not plus.negative.any()
    assert torch.equal(minus.negative, u) and not minus.positive.any()
    assert plus.cost == plus.lower_bound == minus.cost == pytest.approx(float(u.norm()))
    zero = cone_decomposition(0 * u, K)
    assert (
        zero.cost == zero.lower_bound == 0 and not zero.positive.any() and not zero.negative.any()
    )
    free = cone_decomposition(u, K[:0])
    assert free.cost == pytest.approx(float(u.norm()))


@pytest.mark.parametrize("width", [1e-1, 1e-2, 1e-3, 1e-4])
def test_thin_cones_cost_as_much_as_they_are_thin(width):
    # {|y| <= width x}: writing (0, 1) takes two members (1/(2 width), ±1/2).
    K = torch.tensor([[width, 1.0], [width, -1.0]], dtype=torch.float64)
    parts = cone_decomposition(torch.tensor([0.0, 1.0], dtype=torch.float64), K)
    assert parts.cost == pytest.approx(np.sqrt(1 + 1 / width**2), rel=1e-6)
    assert parts.lower_bound == pytest.approx(parts.cost, rel=1e-6)


@pytest.mark.parametrize(
    "K",
    [
        [[0.0, 1.0], [0.0, -1.0]],  # the x-axis
        [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]],  # the origin
        [[0.0, 1.0], [1.0, -1.0], [-1.0, -1.0]],  # the origin again, without opposite rows
    ],
)
def test_a_cone_that_does_not_span_the_vector_is_refused(K):
    with pytest.raises(ValueError, match="no difference of two members"):
        cone_decomposition(
            torch.tensor([0.5, 1.0], dtype=torch.float64), torch.tensor(K, dtype=torch.float64)
        )


def test_a_cone_that_spans_the_vector_without_interior_is_enough():
    axis = torch.tensor([[0.0, 1.0], [0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    parts = cone_decomposition(torch.tensor([-2.0, 0.0], dtype=torch.float64), axis)
    assert parts.cost == pytest.approx(2.0)


@given(
    p=st.integers(1, 4),
    q=st.integers(1, 4),
    n=st.integers(0, 5),
    zero=st.booleans(),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=60)
def test_quasi_nuclear_norm_brackets(p, q, n, zero, seed):
    K, _ = pattern_cone(n, p, seed)
    if zero:
        K = torch.zeros_like(K)
    Z = torch.from_numpy(np.random.default_rng(seed + 3).standard_normal((p, q)))
    try:
        low, high = quasi_nuclear_norm(Z, K)
    except ValueError as error:
        assert "hardly any" in str(error)
        return
    nuclear = float(convex.nuclear_norm(Z))
    assert nuclear * (1 - 1e-12) <= low <= high
    if not K.any():
        # No constraint: columns cost more, singular pairs cost the nuclear norm.
        assert low == pytest.approx(nuclear, rel=1e-10) and high == pytest.approx(
            nuclear, rel=1e-10
        )
    if q == 1:
        parts = cone_decomposition(Z[:, 0], K)
        assert high == pytest.approx(parts.cost, rel=1e-6)
        assert low == pytest.approx(high, rel=1e-6)
    twice = quasi_nuclear_norm(2 * Z, K)
    assert twice.lower <= 2 * high * (1 + 1e-9) and 2 * low <= twice.upper * (1 + 1e-9)


@given(
    p=st.integers(1, 3), q=st.integers(1, 3), m=st.integers(1, 5), seed=st.integers(0, 2**31 - 1)
)
@settings(max_examples=60)
def test_the_lower_bound_holds_for_every_sum_of_units(p, q, m, seed):
    K, _ = pattern_cone(4, p, seed)
    rng = np.random.default_rng(seed + 4)
    first = torch.stack(
        [project_cone(torch.from_numpy(rng.standard_normal(p)), K) for _ in range(m)]
    )
    second = torch.from_numpy(rng.standard_normal((m, q)))
    Z = first.T @ second
    if float(Z.norm()) < 1e-9:
        return
    try:
        low, _ = quasi_nuclear_norm(Z, K)
    except ValueError as error:
        assert "hardly any" in str(error)
        return
    assert low <= float((first.norm(dim=1) * second.norm(dim=1)).sum()) * (1 + 1e-8)


def test_zero_block_costs_nothing():
    K, _ = pattern_cone(3, 2, 0)
    assert quasi_nuclear_norm(torch.zeros(2, 3, dtype=torch.float64), K) == (0.0, 0.0)


def test_quasi_nuclear_norm_in_float32():
    K, _ = pattern_cone(3, 2, 0)
    Z = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    single = quasi_nuclear_norm(Z, K.float())
    double = quasi_nuclear_norm(Z.double(), K)
    assert single.lower == pytest.approx(double.lower, rel=1e-4)
    assert single.upper == pytest.approx(double.upper, rel=1e-4)
