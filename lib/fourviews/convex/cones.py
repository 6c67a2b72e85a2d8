r"""The cones on which a ReLU neuron is linear, :math:`\{u : Ku \ge 0\}`, and norms restricted to them.

With :math:`K = (2D - I)X` the neuron with weight ``u`` in the cone has pattern ``D``, so that
:math:`(Xu)_+ = DXu`.  Everything here rests on one projection, a non-negative least-squares
problem (Lawson and Hanson 1974), solved by SciPy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import nnls
from torch import Tensor

__all__ = ["ConeDecomposition", "cone_decomposition", "project_cone", "quasi_nuclear_norm"]


class ConeProjection(NamedTuple):
    point: np.ndarray
    multiplier: np.ndarray


def _project(point: np.ndarray, K: np.ndarray) -> ConeProjection:
    r"""Projection onto {u : Ku >= 0} with its multiplier: point + K'λ, λ >= 0.

    By Moreau the projection is the shortest vector point + K'λ; every λ >= 0, converged or
    not, makes its length an upper bound on the length of the projection.
    """
    scale = float(np.abs(point).max(initial=0.0))
    rows = np.linalg.norm(K, axis=1)
    if scale == 0.0 or not rows.any():
        return ConeProjection(point.copy(), np.zeros(len(K)))
    # Unit rows and a unit right-hand side keep the active-set method's tolerances meaningful.
    safe = np.where(rows > 0, rows, 1.0)
    unit = (K / safe[:, None]).T
    multiplier, _ = nnls(unit, -point / scale, maxiter=30 * (len(K) + len(point)))
    multiplier *= scale / safe
    return ConeProjection(point + K.T @ multiplier, multiplier)


def project_cone(point: Float[Tensor, " p"], K: Float[Tensor, "rows p"]) -> Float[Tensor, " p"]:
    r"""Nearest point of the cone :math:`\{u : Ku \ge 0\}`.

    .. math:: P(x) = \arg\min_{Ku \ge 0} \tfrac12\|u - x\|^2 = x + K^\top\lambda,\quad
              \lambda = \arg\min_{\lambda \ge 0} \|x + K^\top\lambda\|

    Parameters
    ----------
    point : (p,) tensor
    K : (rows, p) tensor

    Raises
    ------
    ValueError
        If the shapes do not fit or the data is not finite.
    """
    _check(point, K, "point")
    result = _project(point.detach().cpu().double().numpy(), K.detach().cpu().double().numpy())
    return torch.from_numpy(result.point).to(point)


def _check(vector: Tensor, K: Tensor, name: str) -> None:
    if vector.ndim != 1 or K.ndim != 2 or K.shape[1] != vector.shape[0]:
        raise ValueError(
            f"{name} must have shape (p,) and K shape (rows, p), got {tuple(vector.shape)} and "
            f"{tuple(K.shape)}"
        )
    if not (torch.isfinite(vector).all() and torch.isfinite(K).all()):
        raise ValueError(f"{name} and K must be finite")


class ConeDecomposition(NamedTuple):
    r"""``vector = positive - negative``, both in the cone.

    ``cost`` is :math:`\|a\| + \|b\|`, ``lower_bound`` a proved lower bound on the least cost.
    """

    positive: Tensor
    negative: Tensor
    cost: float
    lower_bound: float


def cone_decomposition(
    vector: Float[Tensor, " p"], K: Float[Tensor, "rows p"], *, tol: float = 1e-9
) -> ConeDecomposition:
    r"""Write a vector as a difference of two cone members of least total length.

    .. math:: \|z\|_{*,K} = \min\{\|a\| + \|b\| : z = a - b,\; Ka \ge 0,\; Kb \ge 0\}

    This is the quasi-nuclear norm (4) of Sahiner et al. (2022) for one column, and what turns
    a gated neuron into two ReLU neurons.  Weighted least squares with weights
    :math:`1/\|a\|`, :math:`1/\|b\|` majorises the cost; each step is a projection onto
    :math:`\{a : Ka \ge (Kz)_+\}`, solved as a least-distance problem by NNLS.

    Parameters
    ----------
    vector : (p,) tensor
        z.
    K : (rows, p) tensor
        The cone :math:`\{u : Ku \ge 0\}`.
    tol : float
        Stop when cost and lower bound agree to this relative accuracy (or no longer improve).

    Returns
    -------
    ConeDecomposition

    Raises
    ------
    ValueError
        If the shapes do not fit, or if no decomposition exists: the cone's linear span does
        not contain z, as for the pattern of a vector that lies on a hyperplane.
    """
    _check(vector, K, "vector")
    z = vector.detach().cpu().double().numpy()
    cone = K.detach().cpu().double().numpy()
    rows = np.linalg.norm(cone, axis=1)
    cone = cone[rows > 0] / rows[rows > 0, None]
    scale = float(np.linalg.norm(z))
    if scale == 0.0:
        return ConeDecomposition(vector.clone(), vector.clone(), 0.0, 0.0)
    z = z / scale
    if not len(cone) or (cone @ z >= 0).all():
        return ConeDecomposition(vector.clone(), torch.zeros_like(vector), scale, scale)
    if (cone @ z <= 0).all():
        return ConeDecomposition(torch.zeros_like(vector), -vector, scale, scale)
    # a in the cone and a - z in the cone: Ka >= (Kz)_+.
    image = cone @ z
    need = np.maximum(image, 0.0)
    weight_a = weight_b = 1.0
    best_cost, best_bound, best_a = np.inf, 1.0, None
    for _ in range(500):
        solution = _least_distance(z * (weight_b / (weight_a + weight_b)), cone, need)
        if solution is None:
            if best_a is None:
                raise ValueError(
                    "vector is no difference of two members of the cone {u : K u >= 0} of length "
                    f"below {_LONGEST:.0e} times its own: the cone has no interior, or hardly any"
                )
            break
        a, multiplier = solution.point, (weight_a + weight_b) * solution.multiplier
        length_a, length_b = np.linalg.norm(a), np.linalg.norm(a - z)
        # Stationarity of this step gives a dual vector w; <w, z> <= |P(w)||a| + |P(-w)||b|
        # for every decomposition makes it a bound, however far the iteration has come.
        w = weight_a * a - cone.T @ np.where(image <= 0, multiplier, 0.0)
        longest = max(np.linalg.norm(_project(sign * w, cone).point) for sign in (1, -1))
        if longest > 0:
            best_bound = max(best_bound, float(w @ z) / longest)
        if length_a + length_b < best_cost:
            best_cost, best_a = length_a + length_b, a
        if best_cost - best_bound <= tol * best_cost:
            break
        weight_a, weight_b = 1.0 / max(length_a, 1e-14), 1.0 / max(length_b, 1e-14)

    def as_tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(scale * array).to(vector)

    return ConeDecomposition(
        as_tensor(best_a),
        as_tensor(best_a - z),
        float(scale * best_cost),
        float(scale * min(best_bound, best_cost)),
    )


_LONGEST = 1e7


def _least_distance(centre: np.ndarray, K: np.ndarray, need: np.ndarray) -> ConeProjection | None:
    """Nearest point to ``centre`` with K a >= need, or None if there is none within reach.

    Lawson and Hanson's reduction of least distance programming to NNLS: the residual r of
    min |E'u - e| with E = [K, h], h = need - K centre, gives a = centre - r[:-1] / r[-1], and
    |r| = 1 / sqrt(1 + |a - centre|^2), so that r = 0 means infeasible.
    """
    h = need - K @ centre
    target = np.zeros(K.shape[1] + 1)
    target[-1] = 1.0
    dual, distance = nnls(np.column_stack([K, h]).T, target, maxiter=30 * sum(K.shape))
    if distance < 1.0 / _LONGEST:
        return None
    multiplier = dual / (1.0 - h @ dual)
    return ConeProjection(centre + K.T @ multiplier, multiplier)


class Bounds(NamedTuple):
    lower: float
    upper: float


def quasi_nuclear_norm(Z: Float[Tensor, "p q"], K: Float[Tensor, "rows p"]) -> Bounds:
    r"""Bounds on the quasi-nuclear norm of one block, equal for one column.

    .. math:: \|Z\|_{*,K} = \min\Big\{\sum_k \|u_k\|\|v_k\| :
              Z = \sum_k u_k v_k^\top,\; K u_k \ge 0\Big\}

    ((4) of Sahiner et al. 2022.)  Computing it is NP-hard in general.  The upper bound is the
    cheaper of two decompositions, by columns and by singular pairs, each part split by
    :func:`cone_decomposition`.  The lower bound is the largest of the nuclear norm and of the
    one-column norms of :math:`Zw` over unit vectors w (columns and right singular vectors):
    multiplying by w shortens no :math:`v_k`.

    Parameters
    ----------
    Z : Tensor (p, q)
        One block.
    K : Tensor (rows, p)
        The cone of left factors is :math:`Ku \ge 0`.

    Raises
    ------
    ValueError
        If the shapes do not fit, the data is not finite, or Z has no decomposition.
    """
    if Z.ndim != 2 or K.ndim != 2 or K.shape[1] != Z.shape[0]:
        raise ValueError(
            f"Z must have shape (p, q) and K shape (rows, p), got {tuple(Z.shape)} and "
            f"{tuple(K.shape)}"
        )
    if not (torch.isfinite(Z).all() and torch.isfinite(K).all()):
        raise ValueError("Z and K must be finite")
    _, s, vt = torch.linalg.svd(Z, full_matrices=False)
    kept = vt[s > s[:1] * max(Z.shape) * torch.finfo(Z.dtype).eps]
    lower, upper = float(s.sum()), float("inf")
    for columns in (Z.T, kept @ Z.T):
        parts = [cone_decomposition(column, K) for column in columns]
        lower = max([lower, *(part.lower_bound for part in parts)])
        upper = min(upper, sum(part.cost for part in parts))
    return Bounds(float(min(lower, upper)), float(upper))
