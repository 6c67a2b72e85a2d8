r"""Semismooth Newton method on the dual, for squared loss and one output column."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..least_squares import least_squares_coefficients
from ..problem import Problem
from ..solution import Solution
from .log import Log

__all__ = ["newton"]

# First penalty, in units of 1 / (mean of the Gram operator's diagonal), and its growth a round.
_FIRST_PENALTY, _GROWTH = 100.0, 10.0
# Largest penalty, in the same units: rounding in Z − σA*V grows with it.
_LARGEST_PENALTY = 1e6
_STALLED = 2  # steps without progress after which a small gradient is taken for rounding
_MOST_STEPS = 60  # Newton steps a round; a handful is usual
_SUFFICIENT = 1e-4  # Armijo


class _Blocks:
    """The blocks that may still be non-zero, and the map restricted to them."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.index = torch.arange(1 if problem.masks is None else len(problem.masks))
        self.index = self.index.to(problem.X.device)
        self.bounds = problem.block_norm_bounds()

    def adjoint(self, V: Tensor) -> Float[Tensor, "G p"]:
        masks = None if self.problem.masks is None else self.problem.masks[self.index]
        return self.problem.lifted_adjoint(self.problem._spread(V), masks)[..., 0]

    def screen(self, image: Float[Tensor, "G p"], radius: float) -> Tensor:
        r"""Which blocks stay: those with :math:`\|A_j^*V\| + r\|A_j\| \ge \beta`.

        The dual objective of the squared loss is 1-strongly concave, so the dual optimum lies
        within :math:`r = \sqrt{2(\text{objective} - \text{bound})}` of an admissible V.
        """
        bounds = self.bounds[self.index]
        keep = torch.linalg.vector_norm(image, dim=1) + radius * bounds >= self.problem.beta
        self.index = self.index[keep]
        return keep


def newton(
    problem: Problem,
    *,
    tol: float = 1e-6,
    max_iterations: int = 20_000,
    start: Tensor | None = None,
    progress: bool | None = None,
    time_limit: float | None = None,
) -> Solution:
    r"""Solve a linear or gated-ReLU problem with one output column and squared loss.

    The augmented Lagrangian of the dual

    .. math:: \min_V\; \tfrac12\|V\|^2 + \langle V, Y\rangle
              \quad\text{s.t.}\quad \|A_j^*V\| \le \beta

    with multiplier Z and penalty σ is

    .. math:: \varphi(V) = \tfrac12\|V\|^2 + \langle V, Y\rangle
              + \tfrac1{2\sigma}\sum_j\big(\|Z_j - \sigma A_j^*V\| - \sigma\beta\big)_+^2 ,

    once differentiable, with :math:`\nabla\varphi = V + Y - A Z^+` and
    :math:`Z^+ = \operatorname{prox}_{\sigma\beta\|\cdot\|}(Z - \sigma A^*V)`.  Each round
    minimises φ by Newton's method, sets :math:`Z \leftarrow Z^+` and multiplies σ (Rockafellar 1976;
    Li, Sun and Toh 2018 for the lasso).  With :math:`x_j = Z_j - \sigma A_j^*V`,
    :math:`\hat x = x/\|x\|` and J the blocks with :math:`\|x_j\| > \sigma\beta`, a generalised Hessian is

    .. math:: I + \sigma\sum_{j\in J}\Big[\Big(1 - \tfrac{\sigma\beta}{\|x_j\|}\Big)A_jA_j^*
              + \tfrac{\sigma\beta}{\|x_j\|}(A_j\hat x_j)(A_j\hat x_j)^*\Big].

    For an MLP the first sum is :math:`(XX^\top)\circ(M^\top\operatorname{diag}(w)M)` with the masks M, so that a
    step costs :math:`O(N^2(d + |J|) + N^3)` and :math:`[D_1X\;\dots\;D_PX]` is never formed.
    Twenty to forty steps reach a gap of 1e-6 where beta is not tiny.  Blocks that the certificate proves zero leave
    the run.  Works in float64 whatever the input's precision is.

    Parameters
    ----------
    problem : Problem
        Squared loss, one column, activation "linear" or "gated_relu".
    tol, max_iterations, progress
        As for :func:`solve`; an iteration is a Newton step.
    start : tensor, optional
        First coefficients, such as the solution for another beta; zero if not given.

    Raises
    ------
    ValueError
        For another loss, several columns or ReLU, or if ``start`` does not fit.
    """
    if problem.cones or problem.loss.name != "squared" or problem.block_shape[1] != 1:
        raise ValueError(
            "newton solves squared loss with one output column and activation "
            f'"linear" or "gated_relu"; got loss "{problem.loss.name}", '
            f'{problem.block_shape[1]} columns, activation "{problem.activation}"'
        )
    exact = problem.to(torch.float64)
    log = Log(problem, tol, "Newton", max_iterations, progress, time_limit)
    point = problem.first_point(start, torch.float64).reshape(-1, *exact.block_shape)[..., 0]
    steps = 0
    try:
        if exact.beta == 0:
            solution = least_squares_coefficients(exact, exact.loss.target)
            log.note(0, solution)
        elif not log.note(0, point.reshape(exact.coefficient_shape)):
            steps = _rounds(exact, point, log, max_iterations)
    finally:
        log.close()
    return log.solution(steps, "newton")


def _rounds(problem: Problem, Z: Tensor, log: Log, max_iterations: int) -> int:
    blocks = _Blocks(problem)
    Y, beta = problem.loss.target, problem.beta
    whole = torch.zeros_like(Z)
    curvature = float(problem.gram().diagonal().mean())
    if curvature == 0:
        return 0  # A = 0: zero was optimal, and the log has said so
    sigma = _FIRST_PENALTY / curvature
    V = problem.loss.gradient(problem.forward(Z.reshape(problem.coefficient_shape)))
    image = blocks.adjoint(V)
    steps, gap = 0, min(1.0, log.gap)
    while steps < max_iterations:
        tau, least, stalled = sigma * beta, float("inf"), 0
        steps += 1  # a round counts even if it begins at its minimum
        for _ in range(_MOST_STEPS):
            x = Z - sigma * image
            size = torch.linalg.vector_norm(x, dim=1)
            on = torch.nonzero(size > tau)[:, 0]
            share = tau / size[on]
            new = (1 - share)[:, None] * x[on]
            F = _predict(problem, new, blocks.index[on])
            gradient = V + Y - F
            length = float(gradient.norm())
            stalled = stalled + 1 if length > 0.5 * least else 0
            least = min(least, length)
            if length <= 0.1 * gap * float(V.norm()) or steps >= max_iterations:
                break
            if stalled > _STALLED and length <= 1e-6 * float(V.norm()):
                break  # what is left is rounding
            direction = -_solve(problem, blocks.index[on], x[on], size[on], share, sigma, gradient)
            moved = blocks.adjoint(direction)
            step = _line_search(V, direction, Y, Z, image, moved, sigma, tau, gradient)
            steps += 1
            if step == 0:
                break  # rounding decides: the multiplier has to move
            V, image = V + step * direction, image + step * moved
        Z = torch.zeros_like(Z)
        Z[on] = new
        whole = torch.zeros_like(whole)
        whole[blocks.index] = Z
        if log.note(steps, whole.reshape(problem.coefficient_shape)):
            break
        gap = min(1.0, log.gap)
        # The residual of these predictions is an admissible dual point once it is scaled.
        R = F - Y
        own = blocks.adjoint(R)
        polar = max(float(torch.linalg.vector_norm(own, dim=1).max()), 1e-300) * (1 + 1e-12)
        scale = min(1.0, beta / polar)
        value = -float(problem.loss.conjugate(scale * R))
        radius = (2 * max(log.objective - value, 0.0)) ** 0.5 * (1 + 1e-9)
        keep = blocks.screen(scale * own, radius)
        Z, image = Z[keep], image[keep]
        sigma = min(sigma * _GROWTH, _LARGEST_PENALTY / curvature)
    return steps


def _predict(problem: Problem, Z: Float[Tensor, "G p"], index: Tensor) -> Tensor:
    if len(index) == 0:
        return torch.zeros_like(problem.loss.target)
    masks = None if problem.masks is None else problem.masks[index]
    return problem._pooled(problem.lifted(Z[..., None], masks))


def _solve(
    problem: Problem,
    index: Tensor,
    x: Float[Tensor, "J p"],
    size: Float[Tensor, "J"],
    share: Float[Tensor, "J"],
    sigma: float,
    right: Tensor,
) -> Tensor:
    """Newton direction: the generalised Hessian's inverse times ``right``."""
    if len(index) == 0:
        return right.clone()
    hessian = problem.gram(index, sigma * (1 - share))
    spikes = problem.block_predictions(x / size[:, None], index).reshape(len(index), -1)
    spikes = spikes * (sigma * share).sqrt()[:, None]
    hessian = hessian.addmm(spikes.T, spikes)
    # The second term is below the rounding of the sum; it keeps the factorisation alive.
    shift = 1.0 + 4 * torch.finfo(hessian.dtype).eps * float(hessian.diagonal().sum())
    hessian.diagonal().add_(shift)
    factor = torch.linalg.cholesky(hessian)
    return torch.cholesky_solve(right.reshape(-1, 1), factor).reshape(right.shape)


def _line_search(V, direction, Y, Z, image, moved, sigma, tau, gradient) -> float:
    """Largest of 1, 1/2, 1/4, … with sufficient decrease; 0 if none is left above rounding."""
    slope = float((gradient * direction).sum())

    def value(step: float) -> float:
        W = V + step * direction
        x = Z - sigma * (image + step * moved)
        excess = (torch.linalg.vector_norm(x, dim=1) - tau).clamp_min(0)
        return float(0.5 * W.square().sum() + (W * Y).sum() + excess.square().sum() / (2 * sigma))

    now, step = value(0.0), 1.0
    # φ is known to a few units of its last place; near the minimum the full step is right.
    slack = 1e-14 * abs(now)
    while step > 1e-8:
        if value(step) <= now + _SUFFICIENT * step * slope + slack:
            return step
        step *= 0.5
    return 0.0
