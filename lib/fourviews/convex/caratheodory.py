"""Fewer units with the same outputs: a sparse point among non-negative weights."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

__all__ = ["fewer_weights"]

# Singular values below this times the largest are zero: columns depend on each other.
_DEPENDENT = 1e-12


def fewer_weights(
    outputs: Float[np.ndarray, "N m"], costs: Float[np.ndarray, "m"]
) -> Float[np.ndarray, "m"]:
    r"""Weights w >= 0 with :math:`\sum_kw_kF_k = \sum_kF_k`, no larger cost :math:`\sum_kw_ka_k` than
    :math:`\sum_ka_k`, and at most N of them positive.

    Carathéodory's argument, step by step: while the columns :math:`F_k` in use depend on each
    other, some d ≠ 0 has :math:`\sum_kd_kF_k = 0`.  Of d and −d take one along which the cost does not
    rise and some weight falls, and go until the first weight is zero.

    Parameters
    ----------
    outputs : (N, m) array
        Columns :math:`F_k`.
    costs : (m,) array
        :math:`a_k \ge 0`.
    """
    N, m = outputs.shape
    scale = np.linalg.norm(outputs, axis=0)
    weights = np.ones(m)
    if not scale.any():
        return np.zeros(m)
    # Columns of unit length, weights in units of their lengths: all of one size for rounding.
    weights[scale == 0] = 0.0
    kept = np.flatnonzero(scale)
    columns = outputs[:, kept] / scale[kept]
    amounts, prices = scale[kept].astype(float), costs[kept] / scale[kept]
    while len(kept):
        _, singular, right = np.linalg.svd(columns, full_matrices=True)
        if len(kept) <= N and singular[-1] > _DEPENDENT * singular[0]:
            break
        direction = right[-1]
        rise = float(prices @ direction)
        if rise > 0 or (rise == 0 and direction.min() >= 0):
            direction = -direction
        falling = direction < 0
        if not falling.any():
            break  # a cost of zero
        steps = np.where(falling, amounts / np.where(falling, -direction, 1.0), np.inf)
        amounts = np.maximum(amounts + steps.min() * direction, 0.0)
        amounts[steps.argmin()] = 0.0
        used = amounts > 0
        weights[kept[~used]] = 0.0
        kept, columns = kept[used], columns[:, used]
        amounts, prices = amounts[used], prices[used]
    weights[kept] = amounts / scale[kept]
    return weights
