"""Fewer units with the same outputs: a sparse point among non-negative weights."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog, nnls

__all__ = ["fewer_weights"]


def fewer_weights(
    outputs: Float[np.ndarray, "N m"], costs: Float[np.ndarray, "m"]
) -> Float[np.ndarray, "m"]:
    r"""Weights w >= 0 with :math:`\sum_kw_kF_k = \sum_kF_k`, no larger cost, and few that are positive.

    A vertex of this set with least :math:`\sum_kw_ka_k`, found by linear programming, has at
    most N positive weights (Carathéodory's theorem for cones).  Where rounding makes
    the linear program fail, the cost is kept as one more equation, and an active-set
    method for non-negative least squares ends at independent columns, at most N + 1 of them.  Where that
    fails as well, all weights stay 1.

    Parameters
    ----------
    outputs : (N, m) array
        Columns :math:`F_k`.
    costs : (m,) array
        :math:`a_k > 0`.
    """
    N, m = outputs.shape
    every = np.ones(m)
    scale = np.abs(outputs).max(initial=0.0)
    if m < 2 or scale == 0:
        return every
    columns = np.vstack([outputs / scale, costs / costs.max()])
    total = columns.sum(axis=1)

    def accurate(weights: np.ndarray) -> bool:
        same = np.allclose(columns[:-1] @ weights, total[:-1], rtol=0, atol=1e-10 * m)
        return bool(same and costs @ weights <= costs.sum() * (1 + 1e-10))

    vertex = linprog(costs, A_eq=columns[:-1], b_eq=total[:-1], method="highs-ds")
    if vertex.x is not None:
        kept = np.flatnonzero(vertex.x > 1e-9 * vertex.x.max(initial=0.0))
        weights = np.zeros(m)
        # The basis is known: its weights are those of a linear system, without a tolerance.
        weights[kept] = np.linalg.lstsq(columns[:-1, kept], total[:-1], rcond=None)[0]
        if weights.min() >= 0 and accurate(weights):
            return weights
    try:
        weights, _ = nnls(columns, total)
    except RuntimeError:
        return every
    return weights if accurate(weights) else every
