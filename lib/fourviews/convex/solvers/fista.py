r"""Accelerated proximal gradient (FISTA) with adaptive restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ..least_squares import least_squares_coefficients
from ..losses import Squared
from ..problem import Problem
from ..solution import Solution
from .log import Log

__all__ = ["fista"]


@runtime_checkable
class Composite(Protocol):
    """What the iteration needs: a linear map, its adjoint, a smooth loss, a proximal map."""

    loss: object

    def forward(self, Z: Tensor) -> Tensor: ...
    def adjoint(self, R: Tensor) -> Tensor: ...
    def prox(self, Z: Tensor, step: float) -> Tensor: ...


def squared_operator_norm(model: Composite, like: Tensor, iterations: int = 20) -> float:
    r"""Estimate of :math:`\|A\|^2` by power iteration (from below: a first guess for the step)."""
    generator = torch.Generator().manual_seed(0)
    Z = torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)
    value = 0.0
    for _ in range(iterations):
        size = torch.linalg.vector_norm(Z)
        if size == 0:
            return 0.0
        Z = model.adjoint(model.forward(Z / size))
        value = float(torch.linalg.vector_norm(Z))
    return value


def iterate(
    model: Composite,
    start: Tensor,
    *,
    max_iterations: int,
    check: Callable[[int, Tensor, Tensor], bool],
) -> int:
    r"""Run FISTA from ``start`` until ``check(iteration, Z, A(Z))`` says so.

    .. math:: Z^{+} = \operatorname{prox}_{t}(\bar Z - t A^*\nabla L(A\bar Z)),\qquad
              \bar Z = Z + \tfrac{\theta - 1}{\theta^+}(Z - Z^{-})

    (Beck and Teboulle 2009).  The momentum restarts when it points uphill (O'Donoghue and
    Candès 2015).  The step halves until :math:`t\,\ell\,\|A\Delta\|^2 \le \|\Delta\|^2` for
    the loss's smoothness :math:`\ell`, a test without cancellation that implies descent of
    the quadratic model.  Predictions of the extrapolated point come from linearity: one
    forward and one adjoint a step.
    """
    smoothness = model.loss.smoothness
    bound = smoothness * squared_operator_norm(model, start)
    Z, F = start, model.forward(start)
    if check(0, Z, F):
        return 0
    step = 1.0 / bound if bound > 0 else 1.0
    previous, previous_F, theta = Z, F, 1.0
    for iteration in range(1, max_iterations + 1):
        theta_next = 0.5 * (1.0 + (1.0 + 4.0 * theta * theta) ** 0.5)
        momentum = (theta - 1.0) / theta_next
        bar = Z + momentum * (Z - previous)
        bar_F = F + momentum * (F - previous_F)
        gradient = model.adjoint(model.loss.gradient(bar_F))
        while True:
            new = model.prox(bar - step * gradient, step)
            new_F = model.forward(new)
            moved = float((new - bar).square().sum())
            if step * smoothness * float((new_F - bar_F).square().sum()) <= moved * (1 + 1e-6):
                break
            step *= 0.5
        if float(((bar - new) * (new - Z)).sum()) > 0:
            theta_next = 1.0
        previous, previous_F, Z, F, theta = Z, F, new, new_F, theta_next
        if check(iteration, Z, F):
            return iteration
    return max_iterations


def fista(
    problem: Problem,
    *,
    tol: float = 1e-6,
    max_iterations: int = 20_000,
    start: Tensor | None = None,
    progress: bool | None = None,
    time_limit: float | None = None,
) -> Solution:
    r"""Solve a linear or gated-ReLU problem by accelerated proximal gradient.

    At most :math:`O(1/\sqrt\varepsilon)` iterations to objective error ε; often linear in the
    end, when the rank is found.

    Parameters
    ----------
    problem : Problem with activation "linear" or "gated_relu"
    tol : float
        Relative gap at which to stop.
    max_iterations : int
    start : tensor, optional
        First coefficients; zero if not given.
    progress : bool, optional
        Show a bar; by default after a second.

    Raises
    ------
    ValueError
        For ReLU, or if ``start`` is not finite or has another shape.
    """
    if problem.cones:
        raise ValueError('fista solves "linear" and "gated_relu", got activation="relu"')
    point = problem.first_point(start, problem.X.dtype)
    log = Log(problem, tol, "FISTA", max_iterations, progress, time_limit)

    def check(iteration: int, Z: Tensor, F: Tensor) -> bool:
        # Momentum makes F drift by rounding: the certificate takes its own predictions.
        return log.check(iteration, Z)

    if start is None and problem.beta == 0 and isinstance(problem.loss, Squared):
        point = least_squares_coefficients(problem, problem.loss.target).to(point)
    try:
        iterations = iterate(problem, point, max_iterations=max_iterations, check=check)
    finally:
        log.close()
    return log.solution(iterations, "fista")
