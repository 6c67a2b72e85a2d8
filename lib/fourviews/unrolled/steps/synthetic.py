r"""The matrix pair on which alternating minimisation is watched (Yang et al. 2022, Figs 2–3)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..inputs import check_matrix
from .alternating import Smooth

__all__ = ["matrix_pair"]


def matrix_pair(
    S: Float[Tensor, "m n"],
    W: Float[Tensor, "d r"],
    B1: Float[Tensor, "n d"],
    B2: Float[Tensor, "n d"],
) -> tuple[Smooth, Smooth, Smooth]:
    r""":math:`f(Y) = \|SY\|^2 + \|Y - B_1\|^2`, :math:`g(Y) = \|YW\|^2 + \|Y - B_2\|^2`, and f + g.

    The gradients are linear with Hessians :math:`2(S^\top S + I) \otimes I` and
    :math:`I \otimes 2(WW^\top + I)`, which commute; so all constants are exact:
    :math:`L_h = L_f + L_g`, :math:`c_h = c_f + c_g`.  The minimiser of f + g solves the Sylvester
    equation :math:`(S^\top S + I)Y + Y(WW^\top + I) = B_1 + B_2`.

    Parameters
    ----------
    S
        Acts on tokens.
    W
        Acts on features.
    B1, B2
        The points to which f and g draw.

    Raises
    ------
    ValueError
        If sizes or dtypes do not fit, or entries are not finite.
    """
    for name, matrix in (("S", S), ("W", W), ("B1", B1), ("B2", B2)):
        check_matrix(matrix, name, "two axes")
    n, d = B1.shape
    if not n or not d:
        raise ValueError(f"B1 has shape {tuple(B1.shape)}; it needs at least one row and column")
    if B2.shape != B1.shape or S.shape[1] != n or W.shape[0] != d:
        raise ValueError(
            f"S {tuple(S.shape)}, W {tuple(W.shape)}, B1 {tuple(B1.shape)}, B2"
            f" {tuple(B2.shape)} do not fit; they need (m, n), (d, r), (n, d), (n, d)"
        )
    if {S.dtype, W.dtype, B2.dtype} != {B1.dtype}:
        raise ValueError(
            f"S, W, B1, B2 have dtypes {S.dtype}, {W.dtype}, {B1.dtype}, {B2.dtype};"
            " they need the same"
        )
    left, U = torch.linalg.eigh(S.mT @ S)
    right, V = torch.linalg.eigh(W @ W.mT)
    left, right = 1 + left.clamp_min(0), 1 + right.clamp_min(0)
    L, R = (U * left) @ U.mT, (V * right) @ V.mT

    def distance(Y: Tensor, B: Tensor) -> Tensor:
        return (Y - B).square().sum((-2, -1))

    f = Smooth(
        lambda Y: (S @ Y).square().sum((-2, -1)) + distance(Y, B1),
        lambda Y: 2 * (L @ Y - B1),
        2 * float(left.max()),
        2 * float(left.min()),
        U @ ((U.mT @ B1) / left[:, None]),
    )
    g = Smooth(
        lambda Y: (Y @ W).square().sum((-2, -1)) + distance(Y, B2),
        lambda Y: 2 * (Y @ R - B2),
        2 * float(right.max()),
        2 * float(right.min()),
        ((B2 @ V) / right) @ V.mT,
    )
    both = (U.mT @ (B1 + B2) @ V) / (left[:, None] + right)
    h = Smooth(
        lambda Y: f.value(Y) + g.value(Y),
        lambda Y: f.gradient(Y) + g.gradient(Y),
        f.lipschitz + g.lipschitz,
        f.convexity + g.convexity,
        U @ both @ V.mT,
    )
    return f, g, h
