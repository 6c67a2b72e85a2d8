"""Newton's method on the sizes: its derivatives, its screening, and hard cases."""

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


@pytest.mark.parametrize("share, most", [(0.9, 12), (0.3, 12), (0.03, 12), (1e-3, 20), (1e-5, 30)])
@pytest.mark.parametrize("seed", range(3))
def test_it_closes_in_few_steps(seed, share, most):
    problem = medium(seed, share=share)
    solution = convex.newton(problem, tol=1e-9, progress=False)
    assert solution.converged
    assert convex.newton(problem, tol=1e-6, progress=False).iterations <= most
    other = convex.splitting(problem, tol=1e-8, progress=False)
    assert solution.objective == pytest.approx(other.objective, rel=1e-7)


def pooled(pool, seed=3):
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(6, 3, 4, generator=g, dtype=torch.float64)
    Y = torch.randn(6, 1, generator=g, dtype=torch.float64)
    Y = Y if pool else Y[:, None].expand(6, 3, 1).contiguous()
    return convex.MLP(X, Y, beta=0.7, activation="gated_relu", n_gates=8, pool=pool)


@pytest.mark.parametrize("pool", [None, "mean"])
def test_derivatives_agree_with_differences(pool):
    problem = pooled(pool)
    phi = module._Sizes(problem)
    sizes = torch.rand(phi.count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    index = torch.arange(phi.count)

    def gradient(sizes):
        images = phi.images(phi.solve(sizes)[0])
        return (problem.beta**2 - images.square().sum(1)) / (2 * problem.beta)

    images = phi.images(phi.solve(sizes)[0])
    hessian = phi.hessian(images, index)
    step = 1e-6
    for j in index:
        moved = step * torch.nn.functional.one_hot(j, phi.count)
        up, down = sizes + moved, sizes - moved
        values = [phi.solve(at)[1] for at in (up, down)]
        slope = (values[0] - values[1]) / (2 * step)
        assert slope == pytest.approx(float(gradient(sizes)[j]), rel=1e-6, abs=1e-7)
        assert torch.allclose((gradient(up) - gradient(down)) / (2 * step), hessian[j], atol=1e-6)


@pytest.mark.parametrize("pool", [None, "mean"])
def test_sizes_give_coefficients_with_residual_minus_v_and_phi_above_the_objective(pool):
    problem = pooled(pool)
    phi = module._Sizes(problem)
    for seed in range(5):
        g = torch.Generator().manual_seed(seed)
        sizes = torch.rand(phi.count, generator=g, dtype=torch.float64) * 10.0 ** (seed - 2)
        sizes[::3] = 0
        v, value = phi.solve(sizes)
        Z = (phi.images(v) * (sizes / problem.beta)[:, None]).reshape(problem.coefficient_shape)
        assert torch.allclose(problem.forward(Z), problem.loss.target - v, atol=1e-9)
        assert problem.objective(Z) <= value * (1 + 1e-12)
    # The bound is attained where every size is the length of its block: at the optimum.
    best = convex.newton(problem, tol=1e-11, progress=False)
    sizes = torch.linalg.vector_norm(best.coefficients[..., 0], dim=1)
    assert phi.solve(sizes)[1] == pytest.approx(best.objective, rel=1e-8)


def test_screened_blocks_are_zero_at_the_optimum(monkeypatch):
    problem = medium(share=0.4)
    exact = convex.newton(problem, tol=1e-12, progress=False)
    lengths = torch.linalg.vector_norm(exact.coefficients[..., 0], dim=1)
    gone = []
    note = module._Sizes.note

    def watched(self, *arguments):
        done = note(self, *arguments)
        gone.append(~self.alive)
        return done

    monkeypatch.setattr(module._Sizes, "note", watched)
    convex.newton(problem, tol=1e-9, progress=False)
    assert int(gone[-1].sum()) >= 10  # it does something
    assert float(lengths[gone[-1]].max()) < 1e-9


@pytest.mark.parametrize("share", [0.3, 0.01, 1e-4])
def test_large_problems_are_halved_and_factored_in_single_precision(share, monkeypatch):
    problem = medium(n=120, share=share)
    exact = convex.newton(problem, tol=1e-10, progress=False)
    monkeypatch.setattr(module, "_SMALL", 20)
    seen = set()
    factored = module._Sizes.factored

    def watched(self, sizes):
        factor = factored(self, sizes)
        seen.add((len(factor), factor.dtype))
        return factor

    monkeypatch.setattr(module._Sizes, "factored", watched)
    solution = convex.newton(problem, tol=1e-8, progress=False)
    assert solution.converged and solution.objective == pytest.approx(exact.objective, rel=1e-7)
    assert {(120, torch.float32), (60, torch.float32), (15, torch.float64)} <= seen


def test_refinement_reaches_its_accuracy_or_takes_double_precision(monkeypatch):
    monkeypatch.setattr(module, "_SMALL", 20)
    problem = medium(n=120, share=0.1)
    for scale in (1.0, 1e3, 1e7):  # the condition of M grows with the sizes
        phi = module._Sizes(problem)
        sizes = scale * torch.rand(phi.count, dtype=torch.float64)
        v, value = phi.solve(sizes, accuracy=1e-10)
        matrix = problem.gram(torch.arange(phi.count), sizes / problem.beta)
        matrix.diagonal().add_(1)
        y = problem.loss.target
        assert float((y - matrix @ v).norm()) <= 1e-8 * float(y.norm())
        best = 0.5 * float((y * torch.linalg.solve(matrix, y)).sum())
        energy = value - 0.5 * problem.beta * float(sizes.sum())
        assert energy == pytest.approx(best, rel=1e-9, abs=1e-14 * value)


def test_equal_gates_and_a_failing_newton_step(monkeypatch):
    """Equal blocks make the Hessian singular; without Newton's step the gradient's is left."""
    problem = medium(share=0.1, gates=6)
    twice = convex.MLP(
        problem.X, problem.loss.target, beta=problem.beta, activation="gated_relu",
        gates=torch.cat([problem.gates, problem.gates]),
    )  # fmt: skip
    assert len(twice.masks) == 2 * len(problem.masks)
    one = convex.newton(problem, tol=1e-9, progress=False)
    two = convex.newton(twice, tol=1e-9, progress=False)
    assert two.converged and two.objective == pytest.approx(one.objective, rel=1e-8)
    worst = lambda hessian, linear, start, ridge: 1e9 * linear.abs()  # noqa: E731
    monkeypatch.setattr(module, "_least_non_negative", worst)
    slow = convex.newton(problem, tol=1e-3, max_iterations=3000, progress=False)
    assert slow.converged and slow.objective == pytest.approx(one.objective, rel=1e-3)


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
    """[D_1 X … D_P X] would hold N·P·d numbers; the largest tensors made hold N·max(N, P)
    and, for the model, the square of the number of blocks in it."""
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
            convex.newton(problem, tol=1e-6, progress=False)
        P = len(problem.masks)
        model = min(P, module._FIRST_BLOCKS) ** 2
        assert seen.most <= max(n * max(n, P), P * 30, model) < n * P * 30


@pytest.mark.parametrize("share", [0.5, 0.03, 1e-3])
@pytest.mark.parametrize("seed", range(8))
def test_many_gates_in_few_dimensions(seed, share):
    """Gates that see almost the same rows: the model's minimum needs exchanges both ways."""
    rng = np.random.default_rng(seed)
    n, d, gates = rng.choice([20, 40, 80]), rng.choice([2, 3]), rng.choice([60, 150])
    problem = medium(int(rng.integers(10**6)), n=int(n), d=int(d), gates=int(gates), share=share)
    if seed % 2:
        ones = torch.ones_like(problem.loss.target)
        problem = convex.MLP(
            problem.X, ones, beta=1.0, activation="gated_relu", gates=problem.gates
        )
        problem = problem.with_beta(share * convex.largest_beta(problem))
    solution = convex.newton(problem, tol=1e-6, progress=False)
    assert solution.converged and solution.iterations <= 60, str(solution)


def test_a_model_s_minimum_satisfies_its_conditions():
    g = torch.Generator().manual_seed(0)
    for rank, size in ((30, 30), (5, 30), (1, 4)):
        for _ in range(20):
            A = torch.randn(rank, size, generator=g, dtype=torch.float64)
            A = A * 10.0 ** torch.randint(-6, 7, (size,), generator=g)
            hessian = A.T @ A
            linear = A.T @ torch.randn(rank, generator=g, dtype=torch.float64)
            start = torch.rand(size, generator=g) < 0.5
            x = module._least_non_negative(hessian, linear, start, 1e-10)
            slope = (hessian @ x + linear) / hessian.diagonal().sqrt()
            assert (x >= 0).all()
            assert float(slope.min()) >= -1e-5 and float((slope * (x > 0)).abs().max()) <= 1e-5


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_zero_is_optimal_only_if_the_adjoint_of_the_target_vanishes(rows):
    X, y = torch.ones(rows, 1, dtype=torch.float64), torch.ones(rows, dtype=torch.float64)
    problem = convex.MLP(X, y, beta=0.1 * rows**0.5, activation="linear")
    assert convex.newton(problem, progress=False).converged
    signs = torch.ones(4, dtype=torch.float64)
    signs[::2] = -1
    none = convex.MLP(torch.ones(4, 1).double(), signs, beta=1e-3, activation="linear")
    solution = convex.newton(none, progress=False)
    assert solution.converged and solution.rank == 0
    far = convex.newton(none, start=torch.ones(1, 1).double(), progress=False)
    assert far.converged and far.objective == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
@pytest.mark.parametrize("small", [20, 1500])
def test_extreme_scales_in_both_precisions(scale, small, monkeypatch):
    monkeypatch.setattr(module, "_SMALL", small)
    problem = medium(n=60, gates=10)
    scaled = convex.MLP(
        scale * problem.X, problem.loss.target, beta=1.0, activation="gated_relu",
        gates=problem.gates,
    )  # fmt: skip
    scaled = scaled.with_beta(0.05 * convex.largest_beta(scaled))
    assert convex.newton(scaled, time_limit=20, progress=False).converged
    for start in (1e100, 1e200):
        far = torch.full(problem.coefficient_shape, start, dtype=torch.float64)
        assert convex.newton(problem, start=far, time_limit=20, progress=False).converged


def test_fewer_steps_than_allowed_and_none_in_vain():
    problem = medium(share=0.05)
    for most in (1, 2, 3):
        solution = convex.newton(problem, tol=0, max_iterations=most, progress=False)
        assert solution.iterations == most
        assert solution.history[-1].iteration == most


@pytest.mark.parametrize("pool", [None, "mean"])
def test_a_part_of_the_samples_is_a_part_of_the_map(pool):
    problem = pooled(pool)
    Z = torch.randn(problem.coefficient_shape, dtype=torch.float64)
    whole = problem.forward(Z)
    for samples in (slice(0, None, 2), slice(1, 5), slice(None), slice(1, 6, 3)):
        part = problem.part(samples)
        assert torch.allclose(part.forward(Z), whole[samples])
        R = torch.zeros_like(whole)
        R[samples] = torch.randn(part.loss.target.shape, dtype=torch.float64)
        assert torch.allclose(part.adjoint(R[samples]), problem.adjoint(R))


@pytest.mark.parametrize("pool", [None, "mean"])
def test_norm_bounds_of_the_blocks(pool):
    problem = pooled(pool)
    bounds = problem.block_norm_bounds()
    entries = problem.loss.target.numel()
    for j in range(len(problem.masks)):
        columns = []
        for i in range(entries):
            R = torch.zeros(entries, dtype=torch.float64)
            R[i] = 1
            columns.append(problem.adjoint(R.reshape(problem.loss.target.shape))[j].ravel())
        norm = float(torch.linalg.matrix_norm(torch.stack(columns, 1), 2))
        assert norm <= float(bounds[j]) <= 3 * norm + 1e-9
