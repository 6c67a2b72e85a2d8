r"""Block norms: the nuclear norm, its polar and its proximal map.

A *block* is a p×q matrix; leading axes run over blocks, and the norm of a stack is the sum of
the norms of its blocks (one block a gate).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["nuclear_norm", "polar_upper_bound", "singular_value_threshold", "spectral_norm"]


def _check_blocks(name: str, blocks: Tensor) -> None:
    if blocks.ndim < 2:
        raise ValueError(f"{name} must have shape (..., p, q), got {tuple(blocks.shape)}")


def nuclear_norm(Z: Float[Tensor, "*blocks p q"]) -> Float[Tensor, ""]:
    r"""Sum over the blocks of :math:`\|Z_j\|_* = \sum_i \sigma_i(Z_j)`.

    It is the smallest :math:`\tfrac12(\|U\|_F^2 + \|V\|_F^2)` over all factorisations
    :math:`Z = UV^\top` (Srebro et al. 2004): weight decay on two layers.

    Raises
    ------
    ValueError
        If Z has fewer than two axes.
    """
    _check_blocks("Z", Z)
    if Z.shape[-1] == 1 or Z.shape[-2] == 1:
        return torch.linalg.vector_norm(Z, dim=(-2, -1)).sum()
    return torch.linalg.svdvals(Z).sum()


def spectral_norm(M: Float[Tensor, "*blocks p q"]) -> Float[Tensor, "*blocks"]:
    r"""Largest singular value of each block: the polar of the nuclear norm.

    :math:`\|M\|_2 = \max\{\langle M, Z\rangle : \|Z\|_* \le 1\}`.

    Raises
    ------
    ValueError
        If M has fewer than two axes.
    """
    _check_blocks("M", M)
    if M.shape[-1] == 1 or M.shape[-2] == 1:
        return torch.linalg.vector_norm(M, dim=(-2, -1))
    return torch.linalg.svdvals(M)[..., 0]


def polar_upper_bound(M: Float[Tensor, "*blocks p q"]) -> float:
    """Largest spectral norm over the blocks, rounded up.

    A certificate must not scale its dual point too far, so the computed value is enlarged by
    the backward error of the decomposition.  (A power iteration would come from below and
    certify nothing.)
    """
    if M.numel() == 0:
        return 0.0
    slack = 8 * max(M.shape[-2:]) * torch.finfo(M.dtype).eps
    return float(spectral_norm(M).max()) * (1.0 + slack)


def singular_value_threshold(
    Z: Float[Tensor, "*blocks p q"], threshold: float
) -> Float[Tensor, "*blocks p q"]:
    r"""Proximal map of :math:`\tau\|\cdot\|_*`: every singular value shrinks by τ, down to 0.

    .. math:: \operatorname{prox}(Z) = \arg\min_W \tfrac12\|W - Z\|_F^2 + \tau\sum_j\|W_j\|_*
              = \sum_i (\sigma_i - \tau)_+\, u_i v_i^\top

    (Cai, Candès and Shen 2010, Theorem 2.1).  For blocks with one column it is the group
    soft-threshold :math:`(1 - \tau/\|z\|)_+\, z`.

    Parameters
    ----------
    Z : Tensor (..., p, q)
        One or several matrices.
    threshold : float
        τ ≥ 0.

    Raises
    ------
    ValueError
        If ``threshold`` is negative or not finite, or if Z has fewer than two axes.
    """
    if not 0 <= threshold < float("inf"):
        raise ValueError(f"threshold must be finite and >= 0, got {threshold}")
    _check_blocks("Z", Z)
    if Z.shape[-1] == 1 or Z.shape[-2] == 1:
        size = torch.linalg.vector_norm(Z, dim=(-2, -1), keepdim=True)
        shrunk = (size - threshold).clamp_min(0)
        return torch.where(size > 0, shrunk / size.clamp_min(torch.finfo(Z.dtype).tiny), 0) * Z
    u, s, vt = torch.linalg.svd(Z, full_matrices=False)
    return (u * (s - threshold).clamp_min(0).unsqueeze(-2)) @ vt
