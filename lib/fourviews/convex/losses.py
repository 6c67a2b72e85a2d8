r"""Convex losses with what a certificate needs of them: value, gradient, dual bound.

For a loss ``L`` and a direction ``R`` in the space of predictions, Fenchel's inequality gives

.. math:: \min_F L(F) + \langle V, AZ - F\rangle = -L^*(V) + \langle A^*V, Z\rangle ,

so every ``V = sR`` whose adjoint image has polar norm at most beta yields the lower bound
``-L*(sR)`` on the optimum.  :meth:`dual_bound` picks the best admissible ``s``.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["CrossEntropy", "Squared"]


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
        return Squared(self.target.to(dtype))

    def value(self, prediction: Float[Tensor, "*shape"]) -> Tensor:
        return 0.5 * (prediction - self.target).square().sum()

    def gradient(self, prediction: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return prediction - self.target

    def conjugate(self, dual: Float[Tensor, "*shape"]) -> Tensor:
        return 0.5 * dual.square().sum() + (dual * self.target).sum()

    def prox(self, point: Float[Tensor, "*shape"], step: float) -> Float[Tensor, "*shape"]:
        r""":math:`\arg\min_F L(F) + \tfrac1{2t}\|F - G\|^2 = (G + tY)/(1 + t)`."""
        return (point + step * self.target) / (1.0 + step)

    def dual_bound(self, residual: Float[Tensor, "*shape"], max_scale: float) -> float:
        r"""Largest :math:`-L^*(sR)` over :math:`|s| \le` ``max_scale``.

        The maximiser is :math:`-\langle R, Y\rangle / \|R\|^2`, clipped.
        """
        energy = float(residual.square().sum())
        if energy == 0.0:
            return 0.0
        scale = -float((residual * self.target).sum()) / energy
        scale = min(max(scale, -max_scale), max_scale)
        return -float(self.conjugate(scale * residual))



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
        return CrossEntropy(self.target.to(dtype))

    def value(self, prediction: Float[Tensor, "*shape k"]) -> Tensor:
        return (torch.logsumexp(prediction, -1) - (self.target * prediction).sum(-1)).sum()

    def gradient(self, prediction: Float[Tensor, "*shape k"]) -> Float[Tensor, "*shape k"]:
        return torch.softmax(prediction, -1) - self.target

    def conjugate(self, dual: Float[Tensor, "*shape k"]) -> Tensor:
        q = dual + self.target
        slack = 64 * torch.finfo(q.dtype).eps
        feasible = bool((q >= -slack).all()) and bool(((q.sum(-1) - 1).abs() <= slack * q.shape[-1]).all())
        if not feasible:
            return torch.tensor(torch.inf, dtype=q.dtype, device=q.device)
        return torch.xlogy(q.clamp_min(0), q.clamp_min(0)).sum()

    def prox(self, point: Float[Tensor, "*shape k"], step: float) -> Float[Tensor, "*shape k"]:
        r""":math:`\arg\min_F L(F) + \tfrac1{2t}\|F - G\|^2`, row by row, by damped Newton steps.

        The Hessian :math:`I/t + \operatorname{diag}(p) - pp^\top` is inverted by the
        Sherman–Morrison formula.
        """
        F = point - step * (torch.softmax(point, -1) - self.target)

        def value(F: Tensor) -> Tensor:
            fit = torch.logsumexp(F, -1) - (self.target * F).sum(-1)
            return fit + (F - point).square().sum(-1) / (2 * step)

        current = value(F)
        for _ in range(50):
            p = torch.softmax(F, -1)
            gradient = p - self.target + (F - point) / step
            inverse = 1.0 / (p + 1.0 / step)
            a, b = inverse * gradient, inverse * p
            newton = a + b * ((p * a).sum(-1, keepdim=True) / (1.0 - (p * b).sum(-1, keepdim=True)))
            # Twice the decrease that the step promises; below rounding there is nothing to gain.
            decrement = (gradient * newton).sum(-1)
            open_rows = decrement > 1e-15 * (1.0 + current.abs())
            if not open_rows.any():
                break
            rate = open_rows.to(F.dtype)
            for _ in range(40):
                trial = F - rate.unsqueeze(-1) * newton
                trial_value = value(trial)
                worse = trial_value > current - 1e-4 * rate * decrement + 1e-14 * current.abs()
                if not worse.any():
                    break
                rate = torch.where(worse, 0.5 * rate, rate)
            F, current = trial, trial_value
        return F

    def dual_bound(self, residual: Float[Tensor, "*shape k"], max_scale: float) -> float:
        r"""Largest :math:`-L^*(sR)` over :math:`0 \le s \le \min(1, \text{max\_scale})`.

        For R = softmax(F) - Y every such s keeps Y + sR in the simplex.  The bound is concave
        in s, so ternary search finds its maximum; each s it tries is valid by itself.
        """
        low, high = 0.0, min(1.0, max_scale)

        def bound(s: float) -> float:
            q = (self.target + s * residual).clamp_min(0)
            return -float(torch.xlogy(q, q).sum())

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
