"""The reported gap is never below the true one, wherever a solver may have stopped."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from fourviews import convex
from fourviews.convex.certificates import relative_gap

PERTURBATIONS = [0.0, *(10.0**k for k in range(-8, 1))]
CASES = [
    (activation, loss, c, share)
    for activation, (loss, c), share in itertools.product(
        ("linear", "gated_relu"),
        (("squared", 1), ("squared", 3), ("cross_entropy", 3)),
        (0.0, 0.05, 0.5),
    )
]


@pytest.fixture(scope="module")
def solved(make_problem):
    """Problems with their optimum from CVXPY, to nine digits."""
    known = {}

    def of(activation, loss, c, share, seed):
        key = activation, loss, c, share, seed
        if key not in known:
            # More rows than coefficients, so that beta = 0 has no trivial optimum.
            options = {"n": 12, "d": 3, "n_gates": 2, "c": c, "seed": seed}
            problem = make_problem(
                activation, loss, share=share or None, beta=None if share else 0.0, **options
            )
            known[key] = problem, convex.reference(problem)
        return known[key]

    return of


def check(problem, optimum, bound, objective):
    """A bound lies below the optimum; then the gap that it reports is at least the true one."""
    assert bound <= optimum * (1 + 1e-9) + 1e-300
    at_zero = float(problem.to(torch.float64).loss.value(torch.zeros_like(problem.loss.target)))
    reported = relative_gap(objective, bound, at_zero)
    assert reported >= relative_gap(objective, optimum * (1 + 1e-9), at_zero)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation, loss, c, share", CASES)
def test_reported_gaps_around_the_optimum(activation, loss, c, share, dtype, solved):
    for seed in range(3):
        problem, reference = solved(activation, loss, c, share, seed)
        Z = reference.coefficients
        generator = torch.Generator().manual_seed(seed)
        size = float(Z.abs().max()) or 1.0
        for perturbation in PERTURBATIONS:
            noise = torch.randn(Z.shape, generator=generator, dtype=torch.float64)
            point = (Z + perturbation * size * noise).to(dtype).double()
            prediction = problem.forward(point)
            bound = convex.lower_bound(problem, prediction.to(dtype))
            objective = problem.objective(point)
            check(problem, reference.objective, bound, objective)
            if perturbation <= 1e-8 and share >= 0.05 and dtype == torch.float64:
                # …and near the optimum it is tight.
                assert bound >= reference.objective * (1 - 1e-4)


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_a_bound_from_below_on_the_polar_is_found_out(share, solved):
    """A power iteration's estimate scales the dual point too far."""
    refuted = 0
    for seed in range(3):
        problem, reference = solved("linear", "squared", 3, share, seed)
        prediction = problem.forward(reference.coefficients)
        residual = problem.loss.gradient(prediction)
        M = problem.adjoint(residual)
        x = torch.randn(M.shape[1], generator=torch.Generator().manual_seed(seed)).double()
        estimate = float((M @ (x / x.norm())).norm())
        bound = problem.loss.dual_bound(residual, problem.beta / estimate)
        try:
            check(problem, reference.objective, bound, reference.objective)
        except AssertionError:
            refuted += 1
    assert refuted >= 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_relu_bounds_hold_around_the_optimum(loss, seed, make_problem):
    problem = make_problem("relu", loss, n=6, d=2, c=3, share=0.2, seed=seed)
    solution = convex.solve(problem, tol=1e-5, progress=False)
    assert solution.converged
    rng = np.random.default_rng(seed)
    network = solution.network()
    for perturbation in PERTURBATIONS:
        with torch.no_grad():
            F = network(problem.X)
        F = F + perturbation * torch.from_numpy(rng.standard_normal(F.shape))
        assert convex.lower_bound(problem, F) <= solution.objective * (1 + 1e-12)
