"""L-BFGS: minima, precision, starts that need nothing."""

from __future__ import annotations

import pytest
import torch

from fourviews.convex.solvers.lbfgs import lbfgs


def quadratic(condition, size, dtype, seed=0, scale=1.0):
    """Value and gradient of ½ (x - y)' H (x - y) and y; values in float64 whatever x is."""
    generator = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    H = scale * (basis * torch.logspace(0, -condition, size, dtype=torch.float64)) @ basis.T
    best = torch.randn(size, generator=generator, dtype=torch.float64)

    def function(x):
        error = x.double() - best
        gradient = H @ error
        return float(0.5 * error @ gradient), gradient.to(dtype)

    return function, best


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("condition", [0, 2, 4])
def test_quadratics_of_any_scale(condition, scale):
    function, best = quadratic(condition, 30, torch.float64, scale=scale)
    found = lbfgs(function, torch.zeros(30, dtype=torch.float64), accuracy=1e-14)
    assert torch.allclose(found, best, atol=1e-3)
    assert function(found)[0] <= 1e-8 * function(torch.zeros(30, dtype=torch.float64))[0]


@pytest.mark.parametrize("offset", [0.0, 1.0, 100.0])
def test_float32_gets_as_far_as_its_gradients(offset):
    """The decrease disappears in the offset long before the gradient is small."""
    function, best = quadratic(2, 40, torch.float32)

    def shifted(x):
        value, gradient = function(x)
        return float(torch.tensor(value + offset, dtype=torch.float32)), gradient

    found = lbfgs(shifted, torch.zeros(40), accuracy=0.0, max_iterations=200)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), best, atol=2e-4)


def test_a_curved_valley():
    def rosenbrock(x):
        x = x.detach().requires_grad_()
        value = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
        return value.item(), torch.autograd.grad(value, x)[0]

    start = torch.tensor([-1.2, 1.0] * 3, dtype=torch.float64)
    found = lbfgs(rosenbrock, start, accuracy=1e-12)
    # From there it may also end in the one other minimum, near (-1, 1, …, 1).
    assert float(rosenbrock(found)[1].abs().max()) < 1e-4


def test_the_value_never_rises():
    function, _ = quadratic(6, 50, torch.float64)
    values = []
    for count in range(0, 40, 4):
        start = torch.ones(50, dtype=torch.float64)
        found = lbfgs(function, start, accuracy=0.0, max_iterations=count, memory=3)
        values.append(function(found)[0])
    assert all(b <= a for a, b in zip(values, values[1:], strict=False))
    assert values[0] == function(torch.ones(50, dtype=torch.float64))[0]


def test_nothing_to_do():
    function, best = quadratic(3, 5, torch.float64)
    assert torch.equal(lbfgs(function, best, accuracy=1e-9), best)
    empty = torch.zeros(0, dtype=torch.float64)
    assert lbfgs(lambda x: (1.0, x), empty, accuracy=1e-9).numel() == 0


def test_less_accuracy_takes_fewer_steps():
    function, _ = quadratic(5, 60, torch.float64)
    counts = []
    for accuracy in (1e-2, 1e-5, 1e-8):
        calls = 0

        def counted(x):
            nonlocal calls
            calls += 1
            value, gradient = function(x)
            return value + 1, gradient

        lbfgs(counted, torch.zeros(60, dtype=torch.float64), accuracy=accuracy)
        counts.append(calls)
    assert counts[0] < counts[1] < counts[2]
