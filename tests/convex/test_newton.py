"""Newton's method on the dual: its derivatives, its screening, and hard cases."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

from fourviews import convex

module = importlib.import_module("fourviews.convex.solvers.newton")


def medium(seed=0, n=60, d=5, gates=30, share=0.05, **options):
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, d, generator=g, dtype=torch.float64)
    y = torch.randn(n, generator=g, dtype=torch.float64)
    problem = convex.MLP(X, y, beta=1.0, activation="gated_relu", n_gates=gates, **options)
    return problem.with_beta(share * convex.largest_beta(problem))


@pytest.mark.parametrize("share, most", [(0.9, 40), (0.3, 40), (0.03, 40), (1e-3, 60), (1e-5, 150)])
@pytest.mark.parametrize("seed", range(3))
def test_it_closes_in_few_steps(seed, share, most):
    problem = medium(seed, share=share)
    solution = convex.newton(problem, tol=1e-9, progress=False)
    assert solution.converged
    assert convex.newton(problem, tol=1e-6, progress=False).iterations <= most
    other = convex.splitting(problem, tol=1e-8, progress=False)
    assert solution.objective == pytest.approx(other.objective, rel=1e-7)


@pytest.mark.parametrize("pool", [None, "mean"])
def test_hessian_is_the_derivative_of_the_gradient(pool):
    g = torch.Generator().manual_seed(3)
    X = torch.randn(6, 3, 4, generator=g, dtype=torch.float64)
    Y = torch.randn(6, 1, generator=g, dtype=torch.float64)
    Y = Y if pool else Y[:, None].expand(6, 3, 1).contiguous()
    problem = convex.MLP(X, Y, beta=1.5, activation="gated_relu", n_gates=8, pool=pool)
    blocks, sigma = module._Blocks(problem), 0.4
    Z = 0.3 * torch.randn(len(blocks.index), 4, generator=g, dtype=torch.float64)
    V = 0.3 * torch.randn(Y.shape, generator=g, dtype=torch.float64)
    tau = sigma * problem.beta

    def parts(V):
        x = Z - sigma * blocks.adjoint(V)
        size = torch.linalg.vector_norm(x, dim=1)
        on = torch.nonzero(size > tau)[:, 0]
        return x, size, on, tau / size[on]

    def gradient(V):
        x, size, on, share = parts(V)
        return V + Y - module._predict(problem, (1 - share)[:, None] * x[on], on)

    x, size, on, share = parts(V)
    assert 0 < len(on) < len(size), size / tau
    W = torch.randn(Y.shape, generator=g, dtype=torch.float64)
    step = 1e-6
    moved = (gradient(V + step * W) - gradient(V - step * W)) / (2 * step)
    back = module._solve(problem, on, x[on], size[on], share, sigma, moved)
    assert torch.allclose(back, W, atol=1e-6)


def test_screened_blocks_are_zero_at_the_optimum():
    problem = medium(share=0.4)
    exact = convex.newton(problem, tol=1e-12, progress=False)
    sizes = torch.linalg.vector_norm(exact.coefficients[..., 0], dim=1)
    gone = set()
    screen = module._Blocks.screen

    def watched(blocks, image, radius):
        before = set(blocks.index.tolist())
        keep = screen(blocks, image, radius)
        gone.update(before - set(blocks.index.tolist()))
        return keep

    module._Blocks.screen = watched
    try:
        convex.newton(problem, tol=1e-9, progress=False)
    finally:
        module._Blocks.screen = screen
    assert len(gone) >= 10  # it does something
    assert float(sizes[sorted(gone)].max()) < 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mixed_scales_shifts_and_ties(dtype):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4)) * [1e-3, 1, 1, 1e3] + [0, 0, 5, 0]
    X[10:20] = X[:10]
    X[5] = 0
    y = rng.standard_normal(30) + 100
    X, y = torch.from_numpy(X).to(dtype), torch.from_numpy(y).to(dtype)
    problem = convex.MLP(X, y, beta=1.0, activation="gated_relu", n_gates=12)
    for share in (0.5, 0.01):
        p = problem.with_beta(share * convex.largest_beta(problem))
        solution = convex.newton(p, tol=1e-5, progress=False)
        assert solution.converged, str(solution)
        assert solution.coefficients.dtype == dtype


def test_memory_is_that_of_the_gram_matrix():
    """[D_1 X … D_P X] would hold N·P·d numbers; the largest tensor made holds N·max(N, P)."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        most = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else (out,):
                if isinstance(tensor, torch.Tensor):
                    self.most = max(self.most, tensor.numel())
            return out

    for n, gates in ((60, 40), (120, 40), (60, 160)):
        problem = medium(n=n, d=30, gates=gates, share=0.2)
        with Largest() as seen:
            module._rounds(problem, torch.zeros(len(problem.masks), 30, dtype=torch.float64),
                           module.Log(problem, 1e-6, "", 100, False), 100)
        assert seen.most <= max(n * max(n, len(problem.masks)), len(problem.masks) * 30)
