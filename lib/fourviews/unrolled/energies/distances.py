r"""Half squared distances between all pairs of tokens, accurate and without an n × n × d tensor."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..inputs import check_tokens

__all__ = ["half_squared_distances"]


def half_squared_distances(Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n n"]:
    r"""The matrix :math:`z_{ij} = \tfrac12\|y_i - y_j\|^2`.

    Tokens are centred first, so that a common shift costs nothing beyond its own rounding.  Then
    :math:`\tfrac12\|y_i\|^2 + \tfrac12\|y_j\|^2 - y_i^\top y_j` takes one matrix product; its error
    is a small multiple of :math:`\varepsilon \max\|y_i\|^2`.  Where that would exceed a rounding
    error of a sum over :math:`n^2` pairs, as with few tokens or a far outlier, the differences are
    taken one by one instead: slower, and accurate to a few ε for each pair.

    Gradients of any order pass; memory is linear in d and quadratic in n.

    Raises
    ------
    ValueError
        If Y is no tensor (..., n, d) of float32 or float64.
    """
    check_tokens(Y)
    return _HalfSquaredDistances.apply(Y)


class _HalfSquaredDistances(torch.autograd.Function):
    # With cotangent G the gradient of token i is sum_j (G_ij + G_ji)(y_i - y_j): one product, while
    # differentiating the formula entry by entry would store what it does not need, and
    # differentiating a root of squares would give NaN for equal tokens.
    generate_vmap_rule = True

    @staticmethod
    def forward(Y: Tensor) -> Tensor:
        centred = _centred(Y)
        if centred.numel() == 0:
            return Y.new_zeros((*Y.shape[:-1], Y.shape[-2]))
        squares = centred.square().sum(-1)
        n = Y.shape[-2]
        if 16 * float(squares.max()) <= n**2:
            z = centred @ centred.mT
            half = squares.mul_(0.5)
            z.neg_().add_(half[..., :, None]).add_(half[..., None, :]).clamp_min_(0)
            z.diagonal(dim1=-2, dim2=-1).zero_()
            return z
        # Not the centred tokens: a difference of two stored numbers has no error beyond its own.
        distances = torch.cdist(Y, Y, compute_mode="donot_use_mm_for_euclid_dist")
        return distances.square_().mul_(0.5)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, G: Tensor) -> Tensor:
        (Y,) = ctx.saved_tensors
        centred = _centred(Y)
        S = G + G.mT
        return S.sum(-1, keepdim=True) * centred - S @ centred


def _centred(Y: Tensor) -> Tensor:
    if Y.shape[-2] == 0:
        return Y
    return Y - Y.mean(-2, keepdim=True)
