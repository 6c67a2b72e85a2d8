r"""Asymmetric weights from symmetric ones, in a space twice as wide."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..inputs import check_matrix
from .attention_energy import AttentionEnergy
from .feed_forward import FeedForwardEnergy

__all__ = ["asymmetric_attention", "asymmetric_linear"]


def asymmetric_linear(B: Float[Tensor, "d d"]) -> FeedForwardEnergy:
    r"""Feed-forward energy on 2d features whose gradient step of size 1 maps (y, 0) to (0, yB).

    With :math:`W_f = -\begin{pmatrix}0 & B\\ B^\top & 0\end{pmatrix}`, which is symmetric, the step is
    :math:`(u, v) \mapsto (vB^\top, uB)`.  The Hessian has the eigenvalues :math:`1 \pm
    \sigma_i(B)`: the step never raises the energy exactly if :math:`\|B\|_2 \le 1`.  The next layer
    reads the other half; applied twice with the same weights, it comes back as :math:`yBB^\top`.

    Raises
    ------
    ValueError
        If B is not square.
    """
    check_matrix(B, "B", "(d, d)", square=True)
    zero = torch.zeros_like(B)
    return FeedForwardEnergy(-torch.cat([torch.cat([zero, B], 1), torch.cat([B.mT, zero], 1)]))


def asymmetric_attention(
    Y: Float[Tensor, "n d"], query: Float[Tensor, "d r"], key: Float[Tensor, "d r"]
) -> tuple[AttentionEnergy, Float[Tensor, "m e"]]:
    r"""Energy and wide tokens whose attention step has the scores :math:`Y W_q W_k^\top Y^\top`.

    Each token appears twice, as a query :math:`(y_i, 0)` and as a key :math:`(0, y_j)`, in 2d
    features; the weight stacks :math:`W_q` over :math:`W_k`, and the graph, symmetric, joins
    queries with keys only.  One step turns the query tokens into

    .. math:: \Bigl(0,\ \sum_j \operatorname{softmax}_\beta(Y W_q W_k^\top Y^\top)_{ij}\, y_j\Bigr),
              \qquad \beta_j = e^{-\|y_j W_k\|^2/2} ,

    attention with an asymmetric matrix, and never raises the symmetric energy.

    Parameters
    ----------
    Y
        Tokens.
    query, key
        Weights :math:`W_q` and :math:`W_k`.

    Returns
    -------
    AttentionEnergy
        With weight ``(2d, r)`` and graph ``(2n, 2n)``.
    Float[Tensor, "2n 2d"]
        The wide tokens, queries first.

    Raises
    ------
    ValueError
        If shapes do not fit.
    """
    for name, matrix in (("Y", Y), ("query", query), ("key", key)):
        check_matrix(matrix, name, "(n, d)" if name == "Y" else "(d, r)")
    n, d = Y.shape
    if query.shape != key.shape or query.shape[0] != d:
        raise ValueError(
            f"query {tuple(query.shape)} and key {tuple(key.shape)} need the same shape ({d}, r)"
        )
    zero = torch.zeros_like(Y)
    wide = torch.cat([torch.cat([Y, zero], 1), torch.cat([zero, Y], 1)])
    side = torch.arange(2 * n, device=Y.device) < n
    energy = AttentionEnergy(weight=torch.cat([query, key]), graph=side[:, None] != side)
    return energy, wide
