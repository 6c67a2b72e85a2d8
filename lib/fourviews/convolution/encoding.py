r"""The quadratic relative encoding, and how fast its softmax turns into one pixel.

With

.. math:: r_\delta = (\|\delta\|^2, \delta_1, \dots, \delta_m), \qquad
          v = -\alpha\,(1, -2\Delta_1, \dots, -2\Delta_m)

the score of the key at offset δ is :math:`v^\top r_\delta = -\alpha\|\delta - \Delta\|^2 +
\alpha\|\Delta\|^2`; the softmax forgets the last term.  Among integer offsets Δ wins, with a lead of
at least α, so that the attention tends to one pixel as α grows.  For no finite α is it one pixel
(Lemma 2 of Cordonnier, Loukas and Jaggi 2020 holds as a limit).
"""

from __future__ import annotations

import math
import numbers

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["leak_bound", "offset_query", "quadratic_encoding"]


def quadratic_encoding(delta: Float[Tensor, "*shape m"]) -> Float[Tensor, "*shape r"]:
    r"""The encoding :math:`r_\delta = (\|\delta\|^2, \delta)` of dimension m + 1.

    Parameters
    ----------
    delta
        Offsets, key minus query, m numbers each.

    Returns
    -------
    Tensor
        In the dtype of ``delta``, which has to hold the squares.

    Raises
    ------
    ValueError
        If ``delta`` is a single number, or not of floats.
    """
    if not delta.ndim or not delta.is_floating_point():
        raise ValueError(
            f"delta is {delta.dtype} of shape {tuple(delta.shape)}; it needs to be floats, (…, m)"
        )
    return torch.cat([delta.square().sum(-1, keepdim=True), delta], -1)


def offset_query(
    offsets: Float[Tensor, "*shape m"], alpha: float | Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape r"]:
    r"""The vector :math:`v = -\alpha(1, -2\Delta)` of a head that means the offset Δ.

    Parameters
    ----------
    offsets
        Δ of each head, m numbers.
    alpha
        Sharpness, one number or one a head.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If alpha is not positive and finite or does not fit, or the offsets are not floats.
    """
    if not offsets.ndim or not offsets.is_floating_point():
        raise ValueError(
            f"offsets is {offsets.dtype} of shape {tuple(offsets.shape)}; it needs to be floats,"
            " (…, m)"
        )
    alpha = torch.as_tensor(alpha, dtype=offsets.dtype, device=offsets.device)
    if not bool(((alpha > 0) & alpha.isfinite()).all()):
        raise ValueError(f"alpha is {alpha.tolist()}; it needs to be positive and finite")
    if alpha.ndim and alpha.shape != offsets.shape[:-1]:
        raise ValueError(
            f"alpha has shape {tuple(alpha.shape)}; it needs to be one number or"
            f" {tuple(offsets.shape[:-1])}"
        )
    alpha = alpha.expand(offsets.shape[:-1])[..., None]
    return torch.cat([-alpha, 2 * alpha * offsets], -1)


def leak_bound(alpha: float, dims: int = 2) -> float:
    r"""Bound on the weight ε that a head of sharpness α gives to all pixels but the one it means.

    .. math:: \varepsilon(\alpha) \le 1 - \theta_3(e^{-\alpha})^{-m}
              \le \theta_3(e^{-\alpha})^m - 1 \approx 2 m e^{-\alpha},
              \qquad \theta_3(z) = \sum_{j\in\mathbb Z} z^{j^2} .

    On an unbounded grid the first is an equality; a border only takes terms of the sum away.

    Parameters
    ----------
    alpha
        Sharpness; 0 gives 1, infinity 0.
    dims
        Dimension m of the grid.

    Returns
    -------
    float
        :math:`1 - \theta_3^{-m}`, without cancellation for large α.

    Raises
    ------
    ValueError
        If alpha is negative or NaN, or ``dims`` is not positive.
    """
    if not isinstance(alpha, numbers.Real) or not alpha >= 0:
        raise ValueError(f"alpha is {alpha!r}; it needs to be a number, 0 or more")
    if not isinstance(dims, int) or dims < 1:
        raise ValueError(f"dims is {dims}; it needs to be 1 or more")
    if alpha == 0:
        return 1.0
    # Jacobi's identity turns the slow sum for small α into a quick one.
    if alpha < 1:
        terms = sum(math.exp(-((math.pi * j) ** 2) / alpha) for j in range(1, 10))
        return -math.expm1(-dims * math.log(math.sqrt(math.pi / alpha) * (1 + 2 * terms)))
    tail = 2 * sum(math.exp(-alpha * j * j) for j in range(1, 10))
    return -math.expm1(-dims * math.log1p(tail))
