r"""Normalisation as a constraint: every token stays on a sphere, and the energy still falls."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..inputs import check_matrix, check_number, check_tokens
from .attention_energy import AttentionEnergy
from .energy import Energy

__all__ = ["constant_norm", "layer_norm", "normalised_attention_step", "sphere_step"]


def layer_norm(
    Y: Float[Tensor, "*batch n d"], *, centre: bool = True
) -> Float[Tensor, "*batch n d"]:
    r"""Project every token on the sphere of radius √d, after taking out its mean if ``centre``.

    This is layer normalisation without gain and offset (root-mean-square normalisation without
    ``centre``): the nearest point of the constraint set.  A token equal to its mean is equally
    far from the whole sphere; it stays 0.

    Parameters
    ----------
    Y
        Tokens.
    centre
        Whether the mean of each token is taken out first.
    """
    check_tokens(Y)
    if Y.shape[-1] == 0:
        return Y
    noise = 4 * torch.finfo(Y.dtype).eps * Y.abs().amax(-1, keepdim=True)
    if centre:
        Y = Y - Y.mean(-1, keepdim=True)
    # Scaled first, so that squares neither overflow nor vanish; what is left of a token equal to
    # its mean is rounding, and has no direction.
    size = Y.abs().amax(-1, keepdim=True)
    # The opposite comparison, so that NaN is used, and shows.
    usable = ~(size <= noise) if centre else ~(size <= 0)
    Y = torch.where(usable, Y / torch.where(usable, size, 1), 0)
    if centre:  # again: what the first subtraction left was small beside the token, not beside this
        Y = Y - Y.mean(-1, keepdim=True)
    norm = Y.norm(dim=-1, keepdim=True)
    return Y.shape[-1] ** 0.5 * Y / torch.where(norm == 0, 1, norm)


def _length(Y: Tensor) -> Tensor:
    """Norm of every token, by numbers around 1: squares neither overflow nor vanish."""
    if not Y.shape[-1]:
        return Y.new_zeros((*Y.shape[:-1], 1))
    size = Y.detach().abs().amax(-1, keepdim=True)
    safe = torch.where((size > 0) & torch.isfinite(size), size, 1)
    return safe * (Y / safe).norm(dim=-1, keepdim=True)


def _with_norm(direction: Tensor, norms: Tensor, fallback: Tensor) -> Tensor:
    length = _length(direction)
    # A direction that is no number is no reason to stay: NaN shows.
    usable = ~(length == 0)
    return torch.where(usable, norms * (direction / torch.where(usable, length, 1)), fallback)


def sphere_step(
    energy: Energy, Y: Float[Tensor, "*batch n d"], *, centre: bool = False
) -> Float[Tensor, "*batch n d"]:
    r"""Lower any energy while every token keeps its norm.

    .. math:: y_i \leftarrow \|y_i\|\,\frac{c_i y_i - g_i}{\|c_i y_i - g_i\|}

    with the gradient g and the curvatures c of the energy's majoriser.  *Proof.*  For
    :math:`\|z_i\| = \|y_i\|` the majoriser's change is
    :math:`\langle g_i, z_i - y_i\rangle + \tfrac{c_i}2\|z_i-y_i\|^2 = \text{const} -
    \langle c_i y_i - g_i, z_i\rangle`, which the step minimises over the sphere.  It is 0 at
    z = y, so the energy does not rise. ∎

    With ``centre`` the tokens also keep mean 0, as layer normalisation demands; the direction is
    projected on the vectors of mean 0, and the proof stands because y and z are such vectors.

    Parameters
    ----------
    energy
        With gradient and curvatures.
    Y
        Tokens; each keeps its norm.
    centre
        Whether tokens also keep mean 0.

    Raises
    ------
    ValueError
        If Y is no tensor of tokens, or ``centre`` and a token's mean is not 0 to rounding.
    """
    check_tokens(Y)
    majoriser = energy.majoriser(Y)
    direction = majoriser.curvature * Y - majoriser.gradient
    if centre:
        mean = Y.mean(-1, keepdim=True)
        bound = 32 * torch.finfo(Y.dtype).eps * _length(Y)
        if bool((mean.abs() > bound).any()):
            raise ValueError("Y has tokens whose mean is not 0; apply layer_norm first")
        direction = direction - direction.mean(-1, keepdim=True)
    return _with_norm(direction, _length(Y), Y)


def normalised_attention_step(
    energy: AttentionEnergy, Y: Float[Tensor, "*batch n d"], *, residual: float | None = None
) -> Float[Tensor, "*batch n d"]:
    r"""Attention, perhaps with a residual connection, followed by normalisation.

    .. math:: v_i = r D_i u_i + \sum_j w_{ij} u_j + \tfrac\mu2 (XW)_i, \qquad
              u_i \leftarrow \|u_i\|\, v_i / \|v_i\|, \qquad U = YW .

    Every :math:`\|u_i\|` is kept (and, without weight and anchor, the mean 0 of centred tokens).
    With :math:`r \ge 1`, which is «add attention to the token, then normalise», the energy never
    rises, for any ρ and graph.  With r = 0, attention then normalisation alone, it never rises if
    w is positive semidefinite: for exp, log1, log2 without a graph.

    *Proof.*  Norms are fixed, so :math:`\tfrac12\|u_i-u_j\|^2` is a constant less
    :math:`u_i^\top u_j`, and Q of :class:`AttentionEnergy` is a constant less
    :math:`\operatorname{tr}(U^\top S U) + \mu\langle XW, U\rangle` with :math:`S = w + rD`, whose
    diagonal part adds a constant only.  :math:`w + D \succeq 0` always, so S ⪰ 0 in both cases,
    the trace is convex and lies above its tangent :math:`2\langle SU^t, U\rangle + \text{const}`;
    the step maximises tangent plus anchor over the spheres. ∎

    The softmax's denominator drops out in the normalisation, and if all norms are equal so do the
    β: this is the canonical softmax attention.  Confinement is a constant here.

    Parameters
    ----------
    energy
        The pair energy.  With a weight, the rows of YW keep their norms: each row of the step is
        scaled.
    residual
        r ≥ 0; left out, it is 0 where that is safe and 1 elsewhere.

    Raises
    ------
    ValueError
        If ``residual`` is negative or not finite, or ``energy`` no AttentionEnergy.
    """
    if not isinstance(energy, AttentionEnergy):
        raise ValueError(f"energy is a {type(energy).__name__}; it needs to be an AttentionEnergy")
    if residual is None:
        residual = 0.0 if energy.semidefinite else 1.0
    check_number(residual, "residual", 0.0)
    clean, pairs = energy._prepare(Y)
    w = energy._value_and_weights(clean, pairs)[1]
    v = w @ clean
    if residual:
        v = v + residual * w.sum(-1, keepdim=True) * clean
    if energy.anchor is not None:
        anchor = energy.anchor.expand_as(clean)
        if energy.tokens is not None:
            anchor = torch.where(energy.tokens[..., None], anchor, 0)
        v = v + 0.5 * energy.anchoring * anchor
    if energy.weight is None:
        new = _with_norm(v, _length(clean), clean)
    else:
        norms, length = _length(clean @ energy.weight), _length(v @ energy.weight)
        usable = ~(length == 0)
        new = torch.where(usable, norms * (v / torch.where(usable, length, 1)), clean)
    return new if energy.tokens is None else torch.where(energy.tokens[..., None], new, Y)


def constant_norm(weight: Float[Tensor, "d r"], *, centre: bool = True) -> bool:
    r"""Whether all tokens that leave :func:`layer_norm` have the same :math:`\|zW\|`.

    Then the factors β are equal and softmax needs no reweighting.  :math:`zWW^\top z^\top` is
    constant on a sphere exactly if :math:`WW^\top` is a multiple of the identity there:
    :math:`P WW^\top P = cP`, with P the projection on vectors of mean 0 if ``centre`` and the
    identity otherwise.  An orthogonal W will do, an invertible one in general not.

    The comparison allows for rounding in the product :math:`WW^\top`.

    Parameters
    ----------
    weight
        W.
    centre
        Whether :func:`layer_norm` takes out the mean.

    Raises
    ------
    ValueError
        If ``weight`` is no finite matrix.
    """
    check_matrix(weight, "weight", "(d, r)")
    d = weight.shape[0]
    A = weight @ weight.mT
    rank = d
    if centre and d:
        A = A - A.mean(0, keepdim=True)
        A = A - A.mean(1, keepdim=True)
        rank = d - 1
    if rank <= 1:
        return True
    P = torch.eye(d, dtype=A.dtype, device=A.device)
    if centre:
        P = P - 1 / d
    gap = torch.linalg.matrix_norm(A - A.trace() / rank * P)
    scale = weight.square().sum()
    return bool(gap <= 16 * d * torch.finfo(A.dtype).eps * scale)
