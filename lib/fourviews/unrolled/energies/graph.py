r"""Iteratively reweighted least squares on a graph, and the attention that it becomes."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from .attention_energy import AttentionEnergy

__all__ = ["irls_step"]


def irls_step(
    energy: AttentionEnergy, Y: Float[Tensor, "*batch n d"]
) -> Float[Tensor, "*batch n d"]:
    r"""Minimise the reweighted least squares problem of the current tokens exactly.

    With the weights w of the current tokens, the quadratic

    .. math:: \sum_{ij} w_{ij}\tfrac12\|y_i - y_j\|^2 + \tfrac\lambda2\|Y\|^2 + \tfrac\mu2\|Y - X\|^2

    lies above the energy and touches it; its minimiser solves
    :math:`(2L + (\lambda + \mu)I)\,Y = \mu X`.  So the energy never rises.  One Jacobi sweep for
    this system from the current tokens, :math:`2w + \mu X` over :math:`2D + \lambda + \mu`, is the
    step of :class:`AttentionEnergy`: attention on a graph, the softmax over neighbours for ρ = exp
    (in contrast to Yang et al. 2022, Section 2.2, who say that this route does not give it).

    For an invertible weight the system is the same; for others it is one of many minimisers.

    Parameters
    ----------
    energy
        With its graph, confinement λ and anchoring μ to the tokens X.
    Y
        The current tokens.

    Raises
    ------
    ValueError
        If λ + μ is 0: the minimiser is then any constant per connected component. If ``energy``
        is no AttentionEnergy.
    """
    if not isinstance(energy, AttentionEnergy):
        raise ValueError(f"energy is a {type(energy).__name__}; it needs to be an AttentionEnergy")
    kappa = energy.confinement + energy.anchoring
    if kappa == 0:
        raise ValueError(
            "energy has confinement 0 and no anchor; the least squares problem needs one of them"
        )
    clean, pairs = energy._prepare(Y)
    w = energy._value_and_weights(clean, pairs)[1]
    system = -2 * w
    system.diagonal(dim1=-2, dim2=-1).add_(2 * w.sum(-1) + kappa)
    right = torch.zeros_like(clean)
    if energy.anchor is not None:
        anchor = energy.anchor.expand_as(clean)
        if energy.tokens is not None:
            anchor = torch.where(energy.tokens[..., None], anchor, 0)
        right = energy.anchoring * anchor
    new = torch.linalg.solve(system, right)
    return new if energy.tokens is None else torch.where(energy.tokens[..., None], new, Y)
