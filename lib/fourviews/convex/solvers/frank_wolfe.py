r"""Frank–Wolfe on the penalised problem, made bounded."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..losses import CrossEntropy, Squared
from ..norms import spectral_norm
from ..problem import Problem
from ..solution import Solution, objective_at_zero
from .log import Log

__all__ = ["frank_wolfe"]


def frank_wolfe(
    problem: Problem,
    *,
    tol: float = 1e-6,
    max_iterations: int = 20_000,
    radius: float | None = None,
    step: str = "line_search",
    progress: bool | None = None,
    time_limit: float | None = None,
) -> Solution:
    r"""Solve a linear or gated-ReLU problem with beta > 0 by the conditional-gradient method.

    Frank–Wolfe needs a bounded set.  An optimum satisfies :math:`\beta\|Z^*\| \le L(0)`, so

    .. math:: \min\; L(A(Z)) + \beta\tau \quad\text{over}\quad \|Z\| \le \tau \le T,
              \qquad T = L(0)/\beta,

    has the same solutions.  The linear step goes to :math:`(-T u v^\top, T)` in the block with
    the largest spectral norm of the gradient, or to (0, 0) if that is below beta: one leading
    singular pair an iteration, rank at most the iteration count (Frank and Wolfe 1956, Jaggi
    2013).  :math:`O(1/\varepsilon)` iterations.

    Parameters
    ----------
    problem : Problem with activation "linear" or "gated_relu" and beta > 0
    tol, max_iterations, progress
        As for :func:`fista`.
    radius : float, optional
        T; must be at least the norm of an optimum.  Default L(0)/beta.
    step : {"line_search", "classic"}
        Exact line search, or 2/(k + 2).

    Raises
    ------
    ValueError
        For beta = 0 (no bounded set is known), ReLU, or an unknown step rule.
    """
    if problem.cones:
        raise ValueError('frank_wolfe solves "linear" and "gated_relu", got activation="relu"')
    if problem.beta == 0:
        raise ValueError("frank_wolfe needs beta > 0: without it no bounded set holds the solution")
    if step not in ("line_search", "classic"):
        raise ValueError(f'step must be "line_search" or "classic", got {step!r}')
    at_zero = objective_at_zero(problem)
    radius = at_zero / problem.beta if radius is None else float(radius)
    if not 0 <= radius < float("inf"):
        raise ValueError(f"radius must be finite and >= 0, got {radius}")
    Z = torch.zeros(problem.coefficient_shape, dtype=problem.X.dtype, device=problem.X.device)
    F, level = problem.forward(Z), 0.0
    log = Log(problem, tol, "Frank–Wolfe", max_iterations, progress, time_limit)
    iteration = 0
    try:
        for iteration in range(max_iterations + 1):
            if log.check(iteration, Z):
                break
            if iteration == max_iterations:
                break
            gradient = problem.adjoint(problem.loss.gradient(F))
            atom, length = _extreme_point(gradient, problem, radius)
            atom_F = problem.forward(atom)
            direction, rise = atom_F - F, problem.beta * (length - level)
            if step == "classic":
                rate = 2.0 / (iteration + 2.0)
            else:
                rate = _line_search(problem.loss, F, direction, rise)
            Z = Z + rate * (atom - Z)
            F = F + rate * direction
            level += rate * (length - level)
    finally:
        log.close()
    return log.solution(iteration, "frank_wolfe")


def _extreme_point(
    gradient: Float[Tensor, "*G p q"], problem: Problem, radius: float
) -> tuple[Tensor, float]:
    """Minimiser of <gradient, S> + beta * t over |S| <= t <= radius, and its t."""
    blocks = gradient.reshape(-1, *problem.block_shape)
    atom = torch.zeros_like(blocks)
    sizes = spectral_norm(blocks)
    j = int(sizes.argmax())
    if float(sizes[j]) <= problem.beta:
        return atom.reshape(gradient.shape), 0.0
    u, _, vt = torch.linalg.svd(blocks[j], full_matrices=False)
    atom[j] = -radius * torch.outer(u[:, 0], vt[0])
    return atom.reshape(gradient.shape), radius


def _line_search(loss: Squared | CrossEntropy, F: Tensor, direction: Tensor, rise: float) -> float:
    """Minimiser over [0, 1] of loss(F + rate * direction) + rate * rise (convex in rate)."""

    def slope(rate: float) -> float:
        return float((loss.gradient(F + rate * direction) * direction).sum()) + rise

    if slope(0.0) >= 0:
        return 0.0
    if isinstance(loss, Squared):
        return min(1.0, -slope(0.0) / max(float(direction.square().sum()), 1e-300))
    if slope(1.0) <= 0:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return 0.5 * (low + high)
