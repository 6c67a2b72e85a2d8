r"""Lower bounds on the optimum of a convex program, from any prediction.

For :math:`p^* = \min_Z L(A(Z)) + \beta\|Z\|` and every V with polar :math:`\|A^*V\|^\circ \le \beta`,

.. math:: p^* \;\ge\; -L^*(V).

With :math:`R = \nabla L(F)` at any predictions F the point :math:`V = sR` is admissible for
:math:`|s| \le \beta/\|A^*R\|^\circ`.  At an optimum s = 1 is admissible and the bound is tight.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from .least_squares import kernel_part
from .losses import Squared
from .problem import Problem

__all__ = ["lower_bound", "relative_gap"]


def lower_bound(
    problem: Problem, prediction: Float[Tensor, "n *s c"], *, polar: float | None = None
) -> float:
    r"""Lower bound on the optimal value of ``problem`` from the dual point at ``prediction``.

    Evaluated in float64.  The bound holds whatever the predictions are; only its tightness
    depends on them.

    With beta = 0 and squared loss the residual is projected onto the kernel of A* (all
    residuals of a least-squares fit lie there); the bound is then exact up to the rounding of
    that projection.  With beta = 0 and cross-entropy it is the entropy of the targets, 0 for
    labels: the infimum may be that of a separating direction, which no finite point reaches.

    Parameters
    ----------
    problem : Problem
    prediction : tensor in the shape of the targets
    polar : float, optional
        A known upper bound on ``problem.polar(gradient)``, to save its computation.

    Raises
    ------
    ValueError
        If the prediction is no tensor, has another shape than the targets, or is not finite.
    """
    if not isinstance(prediction, Tensor):
        raise ValueError(f"prediction must be a torch tensor, got {type(prediction).__name__}")
    if prediction.shape != problem.loss.target.shape:
        raise ValueError(
            f"prediction must have the targets' shape {tuple(problem.loss.target.shape)}, "
            f"got {tuple(prediction.shape)}"
        )
    if not torch.isfinite(prediction).all():
        raise ValueError("prediction must be finite, got NaN or inf")
    loss = problem.loss.to(torch.float64)
    residual = loss.gradient(prediction.to(torch.float64))
    if problem.beta == 0.0:
        problem = problem.to(torch.float64)
        listed = not problem.cones or problem.all_patterns
        if isinstance(problem.loss, Squared) and listed:
            part = kernel_part(problem, residual)
            return 0.0 if part is None else max(0.0, loss.dual_bound(part, np.inf))
        return loss.dual_bound(residual, 0.0)
    polar = problem.to(torch.float64).polar(residual) if polar is None else polar
    return loss.dual_bound(residual, problem.beta / polar if polar > 0 else np.inf)


def relative_gap(objective: float, bound: float, objective_at_zero: float) -> float:
    r"""(objective − lower bound) / max(lower bound, 10⁻¹² · objective at zero).

    The floor keeps the gap finite where the optimum is 0; there it is an absolute gap in units
    of the trivial objective.  0/0 is 0: zero is already optimal.
    """
    scale = max(bound, 1e-12 * objective_at_zero)
    gap = max(objective - bound, 0.0)
    return gap / scale if scale > 0 else (0.0 if gap == 0 else float("inf"))
