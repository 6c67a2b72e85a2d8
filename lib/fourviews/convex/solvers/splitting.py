r"""Alternating direction method with one eigendecomposition of the Gram operator AA*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from ..least_squares import least_squares_coefficients
from ..losses import Squared
from ..problem import Problem
from ..solution import Solution
from .fista import Composite
from .log import Log

__all__ = ["splitting"]

# Up to this side the Gram operator is decomposed in seconds; beyond, it depends on the problem.
_SMALL_GRAM = 2000
# Largest memory of the Gram operator, its eigenvectors and what finding them takes, in bytes.
_LARGEST_MEMORY = 2 * 2**30
# Iterations by which the decomposition shortens a solve: FISTA takes thousands.
_SAVED = 2000


@runtime_checkable
class GramComposite(Composite, Protocol):
    """Also the Gram operator; the loss needs a proximal map."""

    def gram(self) -> Tensor: ...


def decomposition_pays(problem: Problem) -> bool:
    r"""Whether an eigendecomposition of AA* costs less memory and time than the iterations it saves.

    It takes about 10 N³ operations for N rows, an iteration the two maps (a multiplication and an
    addition for each prediction and coefficient that it sees) and a singular value decomposition
    of each block.
    """
    size = problem.gram_size
    if size <= _SMALL_GRAM:
        return True
    p, q = problem.block_shape
    seen = problem.n_blocks * p * q / problem.n_outputs
    maps = 4 * problem.loss.target.numel() * seen
    decompositions = 20 * problem.n_blocks * p * q * min(p, q)
    return 4 * 8 * size**2 <= _LARGEST_MEMORY and 10 * size**3 <= _SAVED * (maps + decompositions)


class GramSolver:
    r"""Applies :math:`(AA^* + \kappa I)^{-1}` for any κ after one eigendecomposition.

    The Gram operator acts on the predictions' leading axes alone (size N) if every output
    column sees the same map, as in an MLP, or on all entries.
    """

    def __init__(self, gram: Float[Tensor, "N N"], like: Tensor):
        self.values, self.vectors = torch.linalg.eigh(gram)
        self.values = self.values.clamp_min(0)
        self.columns = like.numel() // len(gram)

    def __call__(self, R: Tensor, kappa: float) -> Tensor:
        flat = R.reshape(len(self.values), self.columns)
        inner = (self.vectors.T @ flat) / (self.values + kappa).unsqueeze(-1)
        return (self.vectors @ inner).reshape(R.shape)


def iterate(
    model: GramComposite,
    start: Tensor,
    *,
    max_iterations: int,
    check: Callable[[int, Tensor, Tensor], bool],
) -> int:
    r"""Run until ``check(iteration, W, F)`` says so; W is the norm's iterate, F the loss's.

    .. math:: \min\; L(F) + \beta\|W\| \quad\text{s.t.}\quad F = AZ,\; W = Z

    alternates Z against (F, W), with penalties :math:`\rho_F` (the loss's smoothness) and
    :math:`\rho_W`.  With :math:`\kappa = \rho_W/\rho_F` the Z-step is

    .. math:: Z = Q + A^*(AA^* + \kappa I)^{-1}(F - U_F - AQ),\qquad Q = W - U_W .

    :math:`\rho_W` follows the ratio of primal to dual residual; any value costs the same after
    the eigendecomposition.  Over-relaxation 1.6.
    """
    loss = model.loss
    W, F = start, model.forward(start)
    if check(0, W, F):
        return 0
    solve = GramSolver(model.gram(), F)
    rho_F = loss.smoothness
    # In units of AA*, whatever they are; any will do if the map is zero.
    rho_W = rho_F * (float(solve.values.mean()) or 1.0)
    U_W, U_F = torch.zeros_like(W), torch.zeros_like(F)
    relaxation = 1.6
    for iteration in range(1, max_iterations + 1):
        Q = W - U_W
        correction = solve(F - U_F - model.forward(Q), rho_W / rho_F)
        Z = Q + model.adjoint(correction)
        image = model.forward(Z)
        mixed = relaxation * Z + (1 - relaxation) * W
        mixed_F = relaxation * image + (1 - relaxation) * F
        W_old = W
        W = model.prox(mixed + U_W, 1.0 / rho_W)
        F = loss.prox(mixed_F + U_F, 1.0 / rho_F)
        U_W = U_W + mixed - W
        U_F = U_F + mixed_F - F
        if check(iteration, W, F):
            return iteration
        # Rarely enough that the method converges, often enough that a bad start does not matter.
        if iteration in (5, 10, 20, 40, 80) or iteration % 100 == 0:
            primal = float((Z - W).norm()) / max(float(Z.norm()), float(W.norm()), 1e-300)
            dual = float((W - W_old).norm()) / max(float(U_W.norm()), 1e-300)
            factor = min(max((primal / max(dual, 1e-300)) ** 0.5, 0.1), 10.0)
            if factor > 1.5 or factor < 1 / 1.5:
                rho_W *= factor
                U_W = U_W / factor
    return max_iterations


def splitting(
    problem: Problem,
    *,
    tol: float = 1e-6,
    max_iterations: int = 20_000,
    start: Tensor | None = None,
    progress: bool | None = None,
    time_limit: float | None = None,
) -> Solution:
    r"""Solve a linear or gated-ReLU problem by the alternating direction method.

    Takes tens to hundreds of iterations where FISTA takes thousands, for one eigendecomposition
    of AA*: N×N for N rows, so for small and medium N.  Runs in float64 whatever the input's
    precision.  With beta = 0 and squared loss it starts at the least-squares solution.

    Result and errors as for :func:`fista`.

    Parameters
    ----------
    problem : Problem
        Linear or gated ReLU.
    tol, max_iterations, start, progress, time_limit
        As for :func:`fista`.
    """
    exact = problem.to(torch.float64)
    if problem.cones:
        raise ValueError('splitting solves "linear" and "gated_relu", got activation="relu"')
    point = problem.first_point(start, torch.float64)
    log = Log(problem, tol, "ADMM", max_iterations, progress, time_limit)

    if start is None and problem.beta == 0 and isinstance(exact.loss, Squared):
        point = least_squares_coefficients(exact, exact.loss.target)
    try:
        iterations = iterate(exact, point, max_iterations=max_iterations, check=log.check)
    finally:
        log.close()
    return log.solution(iterations, "splitting")
