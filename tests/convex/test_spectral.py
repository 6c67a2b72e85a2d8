"""Bounds on spectral norms from products alone."""

from __future__ import annotations

import pytest
import torch

from fourviews.convex.spectral import lanczos_bound, squared_operator_norm


def bound(M, steps, **options):
    return lanczos_bound(
        lambda v: M @ v, lambda u: M.T @ u, M.shape[1], steps=steps, like=M, **options
    )


@pytest.mark.parametrize("shape", [(50, 40), (40, 60), (200, 150), (7, 1), (1, 7)])
@pytest.mark.parametrize("kind", ["gaussian", "clustered", "rank one", "zero"])
def test_the_bound_lies_above_and_what_is_found_below(shape, kind):
    generator = torch.Generator().manual_seed(0)
    M = torch.randn(*shape, generator=generator, dtype=torch.float64)
    if kind == "clustered":
        u, s, vt = torch.linalg.svd(M, full_matrices=False)
        M = u @ torch.diag(1 - 1e-6 * torch.arange(len(s), dtype=torch.float64)) @ vt
    if kind == "rank one":
        M = torch.outer(M[:, 0], M[0])
    if kind == "zero":
        M = torch.zeros_like(M)
    true = float(torch.linalg.matrix_norm(M, 2))
    for steps in (20, 40, 100):
        result = bound(M, steps)
        assert result.found <= true * (1 + 1e-12)
        assert result.bound >= true
        assert torch.allclose(M @ result.right, result.found * result.left, atol=1e-9 * true)
        if steps >= M.shape[1]:
            assert result.bound <= true * (1 + 1e-10)


def test_the_bound_tightens_as_its_formula_says():
    generator = torch.Generator().manual_seed(1)
    M = torch.randn(400, 300, generator=generator, dtype=torch.float64)
    true = float(torch.linalg.matrix_norm(M, 2))
    ratios = [bound(M, steps).bound / true for steps in (30, 60, 120, 240)]
    assert all(b < a for a, b in zip(ratios, ratios[1:], strict=False))
    # epsilon falls like 1/(2k - 1)²: from 120 to 240 steps by a factor of four.
    assert (ratios[2] - 1) / (ratios[3] - 1) == pytest.approx(4, rel=0.15)


def test_a_power_iteration_would_not_do():
    """What is found after few steps may lie far below; the bound never does."""
    M = torch.diag(torch.linspace(0.99, 1, 500, dtype=torch.float64))
    result = bound(M, 20)
    assert result.found < 1 - 1e-5 and result.bound >= 1


@pytest.mark.parametrize(
    "options, match",
    [
        (dict(steps=0), "at least 1"),
        (dict(steps=3), "bound nothing"),
        (dict(steps=50, failure_probability=0.0), "failure_probability"),
        (dict(steps=50, failure_probability=1.0), "failure_probability"),
    ],
)
def test_bad_arguments(options, match):
    with pytest.raises(ValueError, match=match):
        bound(torch.ones(30, 20, dtype=torch.float64), **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(50, 40), (40, 60), (7, 1), (1, 7)])
def test_power_steps_come_near_from_below(shape, dtype):
    generator = torch.Generator().manual_seed(2)
    M = 1e3 * torch.randn(*shape, generator=generator, dtype=torch.float64)
    true = float(torch.linalg.matrix_norm(M, 2)) ** 2
    M = M.to(dtype)
    found = [
        squared_operator_norm(lambda z: M.T @ (M @ z), M[0], steps) for steps in (1, 10, 20, 200)
    ]
    rounding = 1 + 100 * torch.finfo(dtype).eps
    assert all(a <= b * rounding for a, b in zip(found, found[1:], strict=False))
    assert 0.8 * true < found[1] and found[-1] <= true * rounding
    assert found[-1] == pytest.approx(true, rel=1e-2)
    assert squared_operator_norm(lambda z: 0 * z, M[0]) == 0.0
