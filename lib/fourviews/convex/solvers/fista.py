r"""Accelerated proximal gradient (FISTA) with adaptive restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torch import Tensor

from ..distributed import Group
from ..least_squares import least_squares_coefficients
from ..losses import Squared
from ..problem import Problem
from ..shards import Shards
from ..solution import Solution
from ..spectral import squared_operator_norm
from .log import Log

__all__ = ["fista"]


@runtime_checkable
class Composite(Protocol):
    """What the iteration needs: a linear map, its adjoint, a smooth loss, a proximal map."""

    loss: object

    def forward(self, Z: Tensor) -> Tensor: ...
    def adjoint(self, R: Tensor) -> Tensor: ...
    def prox(self, Z: Tensor, step: float) -> Tensor: ...


class _Whole:
    """Images A(Z) of a composite model, kept as they are."""

    def __init__(self, model: Composite) -> None:
        self.model, self.smoothness = model, model.loss.smoothness
        self.forward, self.prox = model.forward, model.prox

    def gradient(self, F: Tensor) -> Tensor:
        r""":math:`A^*\nabla L(F)`."""
        return self.model.adjoint(self.model.loss.gradient(F))

    def energy(self, F: Tensor) -> float:
        return float(F.square().sum())

    def normal(self, Z: Tensor) -> Tensor:
        r""":math:`A^*A(Z)`."""
        return self.model.adjoint(self.model.forward(Z))


class _InShards:
    """Images that are too large to keep: each is known by the coefficients that it comes from."""

    def __init__(self, shards: Shards) -> None:
        self.shards, self.smoothness = shards, shards.problem.loss.smoothness
        self.prox = shards.problem.prox

    def forward(self, Z: Tensor) -> Tensor:
        return Z

    def gradient(self, Z: Tensor) -> Tensor:
        return self.shards.loss_and_gradient(Z)[1].to(Z)

    def energy(self, Z: Tensor) -> float:
        return self.shards.energy(Z)

    def normal(self, Z: Tensor) -> Tensor:
        return self.shards.normal(Z).to(Z)


def iterate(
    model: Composite | Shards,
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
    forward and one adjoint a step.  In shards no predictions are kept: two forwards.
    """
    model = _InShards(model) if isinstance(model, Shards) else _Whole(model)
    smoothness = model.smoothness
    bound = smoothness * squared_operator_norm(model.normal, start)
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
        gradient = model.gradient(bar_F)
        while True:
            new = model.prox(bar - step * gradient, step)
            new_F = model.forward(new)
            moved = float((new - bar).square().sum())
            if step * smoothness * model.energy(new_F - bar_F) <= moved * (1 + 1e-6):
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
    shard: int | None = None,
    group: Group | None = None,
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
    shard, group
        Samples at a time and processes that hold the others, for data that are larger than the
        memory, and beta > 0: see :func:`factored`.  The coefficients have to fit.
    progress : bool, optional
        Show a bar; by default after a second.

    Raises
    ------
    ValueError
        For ReLU, or if ``start`` is not finite or has another shape; for beta = 0 in shards.
    """
    if problem.cones:
        raise ValueError('fista solves "linear" and "gated_relu", got activation="relu"')
    point = problem.first_point(start, problem.X.dtype)
    shards = None
    if shard is not None or group is not None:
        if problem.beta == 0:
            raise ValueError("fista in shards needs beta > 0, got 0")
        shards = Shards(problem, shard, group=group)
        point = point.to(shards.device)
        shards.agree(
            "options",
            f"tol={tol!r}, max_iterations={max_iterations}, time_limit={time_limit}, start with sum "
            f"{float(point.double().sum())!r} and length {float(point.double().norm())!r}",
        )
    log = Log(problem, tol, "FISTA", max_iterations, progress, time_limit, shards=shards)

    def check(iteration: int, Z: Tensor, F: Tensor) -> bool:
        # Momentum makes F drift by rounding: the certificate takes its own predictions.
        return log.check(iteration, Z)

    if start is None and problem.beta == 0 and isinstance(problem.loss, Squared):
        point = least_squares_coefficients(problem, problem.loss.target).to(point)
    try:
        iterations = iterate(shards or problem, point, max_iterations=max_iterations, check=check)
    finally:
        log.close()
    log.best = log.best.to(problem.X.device)
    return log.solution(iterations, "fista")
