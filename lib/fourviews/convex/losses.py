r"""Convex losses with what a certificate needs of them: value, gradient, dual bound.

For a loss ``L`` and a direction ``R`` in the space of predictions, Fenchel's inequality gives

.. math:: \min_F L(F) + \langle V, AZ - F\rangle = -L^*(V) + \langle A^*V, Z\rangle ,

so every ``V = sR`` whose adjoint image has polar norm at most beta yields the lower bound
``-L*(sR)`` on the optimum.  :meth:`dual_bound` picks the best admissible ``s``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["CrossEntropy", "Squared"]

#: Sums a term of a loss and a residual over all parts of the samples.
Total = Callable[[Callable[["Squared | CrossEntropy", Tensor], Tensor]], float]


class Squared:
    r""":math:`L(F) = \tfrac12 \sum (F - Y)^2`, summed over everything, not averaged.

    Conjugate :math:`L^*(V) = \tfrac12\|V\|^2 + \langle V, Y\rangle`; the gradient
    :math:`F - Y` is 1-Lipschitz.

    Parameters
    ----------
    target : tensor
        Y, in the shape of the predictions.
    """

    name = "squared"
    smoothness = 1.0

    def __init__(self, target: Float[Tensor, "*shape"]) -> None:
        self.target = target

    def to(self, dtype: torch.dtype) -> Squared:
        """The same loss with its target in another precision."""
        return Squared(self.target.to(dtype))

    def value(self, prediction: Float[Tensor, "*shape"]) -> Tensor:
        r""":math:`\tfrac12\sum(F - Y)^2`; predictions in the shape of Y."""
        return 0.5 * (prediction - self.target).square().sum()

    def gradient(self, prediction: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        r""":math:`F - Y`."""
        return prediction - self.target

    def conjugate(self, dual: Float[Tensor, "*shape"]) -> Tensor:
        r""":math:`\tfrac12\|V\|^2 + \langle V, Y\rangle`."""
        return 0.5 * dual.square().sum() + (dual * self.target).sum()

    def prox(self, point: Float[Tensor, "*shape"], step: float) -> Float[Tensor, "*shape"]:
        r""":math:`\arg\min_F L(F) + \tfrac1{2t}\|F - G\|^2 = (G + tY)/(1 + t)`.

        Parameters
        ----------
        point : Tensor
            The point G, of the shape of the targets.
        step : float
            The step t > 0.
        """
        return (point + step * self.target) / (1.0 + step)

    def dual_bound(
        self, residual: Float[Tensor, "*shape"], max_scale: float, total: Total | None = None
    ) -> float:
        r"""Largest :math:`-L^*(sR)` over :math:`|s| \le` ``max_scale``.

        The maximiser is :math:`-\langle R, Y\rangle / \|R\|^2`, clipped.

        Parameters
        ----------
        residual : Tensor
            R, of the shape of the targets.
        max_scale : float
            The largest scale that keeps the dual point feasible for the norm.
        total : callable, optional
            Sums a term of loss and residual over all parts of the samples; by itself over this
            residual alone.
        """
        total = total or (lambda term: float(term(self, residual)))
        energy = total(lambda loss, R: R.square().sum())
        if energy == 0.0:
            return 0.0
        scale = -total(lambda loss, R: (R * loss.target).sum()) / energy
        scale = min(max(scale, -max_scale), max_scale)
        return -total(lambda loss, R: loss.conjugate(scale * R))


class CrossEntropy:
    r""":math:`L(F) = \sum_i \big(\log\sum_k e^{F_{ik}} - \sum_k Y_{ik} F_{ik}\big)`, summed.

    Rows of the target are probability vectors.  The conjugate is the negative entropy,
    :math:`L^*(V) = \sum_{ik} q_{ik}\log q_{ik}` with :math:`q = V + Y`, where every row of q is
    a probability vector, and :math:`+\infty` elsewhere.  The gradient softmax(F) - Y is
    1/2-Lipschitz: its derivative diag(p) - pp' is a covariance, and no distribution on numbers
    with spread at most :math:`\sqrt 2` (a unit vector's) has variance above 1/2.

    Parameters
    ----------
    target : tensor
        Y, in the shape of the predictions; last axis: classes.
    """

    name = "cross_entropy"
    smoothness = 0.5

    def __init__(self, target: Float[Tensor, "*shape k"]) -> None:
        self.target = target

    def to(self, dtype: torch.dtype) -> CrossEntropy:
        """The same loss with its target in another precision."""
        return CrossEntropy(self.target.to(dtype))

    def value(self, prediction: Float[Tensor, "*shape k"]) -> Tensor:
        r""":math:`\sum_i(\log\sum_k e^{F_{ik}} - \sum_k Y_{ik}F_{ik})`; predictions in the shape of Y."""
        return (torch.logsumexp(prediction, -1) - (self.target * prediction).sum(-1)).sum()

    def gradient(self, prediction: Float[Tensor, "*shape k"]) -> Float[Tensor, "*shape k"]:
        r""":math:`\operatorname{softmax}(F) - Y`, row by row."""
        return torch.softmax(prediction, -1) - self.target

    def conjugate(self, dual: Float[Tensor, "*shape k"]) -> Tensor:
        r""":math:`\sum_{ik} q_{ik}\log q_{ik}` with q = V + Y, infinite where a row of q is no probability vector."""
        q = dual + self.target
        slack = 64 * torch.finfo(q.dtype).eps
        feasible = bool((q >= -slack).all()) and bool(
            ((q.sum(-1) - 1).abs() <= slack * q.shape[-1]).all()
        )
        if not feasible:
            return torch.tensor(torch.inf, dtype=q.dtype, device=q.device)
        return torch.xlogy(q.clamp_min(0), q.clamp_min(0)).sum()

    def prox(self, point: Float[Tensor, "*shape k"], step: float) -> Float[Tensor, "*shape k"]:
        r""":math:`\arg\min_F L(F) + \tfrac1{2t}\|F - G\|^2`, row by row.

        With p = softmax(F) and :math:`\lambda = \log\sum_k e^{F_k}` the optimality condition
        :math:`F + tp = G + tY` reads :math:`tp_k + \log p_k = G_k + tY_k - \lambda`.  So
        :math:`tp_k = \omega(G_k + tY_k - \lambda + \log t)` with Wright's function,
        :math:`\omega + \log\omega = z`, and one number λ a row makes p sum to 1.  Both equations
        are convex and monotone: Newton's method started on the right side cannot fail.

        Parameters
        ----------
        point : Tensor
            The point G, of the shape of the targets.
        step : float
            The step t > 0.
        """
        t = torch.as_tensor(step, dtype=point.dtype, device=point.device)
        shifted = point + t * self.target
        # The largest entry alone has tp = t here: the sum is at least t, and λ only grows.
        level = shifted.amax(-1, keepdim=True) - t
        eps = torch.finfo(point.dtype).eps
        for _ in range(100):
            log_omega = _log_wright_omega(shifted - level + t.log())
            omega = log_omega.exp()
            excess = omega.sum(-1, keepdim=True) - t
            move = excess / (omega / (1 + omega)).sum(-1, keepdim=True)
            level = level + move
            if bool((move.abs() <= 4 * eps * (1 + level.abs())).all()):
                break
        log_omega = _log_wright_omega(shifted - level + t.log())
        # Two forms of the same F: each without cancellation on its side of t = 1.
        F = shifted - log_omega.exp() if step <= 1 else level + log_omega - t.log()
        # λ carries the rounding of tY; a Newton step on F itself removes it (Sherman–Morrison,
        # with 1 - sum p²/(p + 1/t) written as sum p/(tp + 1)).
        p = torch.softmax(F, -1)
        gradient = p - self.target + (F - point) / t
        share = p / (p + 1 / t)
        correction = t * (share * gradient).sum(-1, keepdim=True) / share.sum(-1, keepdim=True)
        return F - gradient / (p + 1 / t) - share * correction

    def dual_bound(
        self, residual: Float[Tensor, "*shape k"], max_scale: float, total: Total | None = None
    ) -> float:
        r"""Largest :math:`-L^*(sR)` over :math:`0 \le s \le \min(1, \text{max\_scale})`.

        For R = softmax(F) - Y every such s keeps Y + sR in the simplex.  The bound is concave
        in s, so ternary search finds its maximum; each s it tries is valid by itself.

        Parameters
        ----------
        residual : Tensor
            R, of the shape of the targets.
        max_scale : float
            The largest scale that keeps the dual point feasible for the norm.
        total : callable, optional
            Sums a term of loss and residual over all parts of the samples; by itself over this
            residual alone.
        """
        total = total or (lambda term: float(term(self, residual)))
        low, high = 0.0, min(1.0, max_scale)

        def entropy(loss: CrossEntropy, R: Tensor, s: float) -> Tensor:
            q = torch.add(loss.target, R, alpha=s).clamp_min_(0)
            return torch.special.entr(q).sum()

        def bound(s: float) -> float:
            return total(lambda loss, R: entropy(loss, R, s))

        best = max(bound(0.0), bound(high))
        for _ in range(40):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            b_left, b_right = bound(left), bound(right)
            best = max(best, b_left, b_right)
            if b_left < b_right:
                low = left
            else:
                high = right
            if high - low < 1e-9:
                break
        return best


def _log_wright_omega(z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""y with :math:`e^y + y = z`, by Newton's method from above, where it is monotone."""
    y = torch.minimum(z, z.clamp_min(1.0).log())
    # Five steps reach float64 from here, for every z.
    for _ in range(5):
        power = y.exp()
        y = y - (power + y - z) / (power + 1)
    return y
