"""Heads that look at places only: dense weights, and weights as a product over the axes."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["apply_separable", "axis_weights", "mix_separable"]

# Numbers in the largest intermediate result; more heads than fit go in turns.
_CHUNK = 2**25


def axis_weights(
    squared_distances: Float[Tensor, "heads q k"], alpha: Float[Tensor, "heads"]
) -> Float[Tensor, "heads q k"]:
    r"""Softmax of :math:`-\alpha_h d^2` along the keys of one axis.

    The squared distance in the plane is a sum over the axes, its exponential a product, and the
    keys are a grid: so the softmax over all pixels is the product of one softmax an axis.

    α = ∞ means the limit: weight one on the nearest key, shared among equally near ones.
    """
    hard, alpha = alpha.isinf(), alpha.to(squared_distances)
    soft = torch.softmax(-alpha.masked_fill(hard, 1.0)[:, None, None] * squared_distances, -1)
    if not bool(hard.any()):
        return soft
    nearest = squared_distances == squared_distances.amin(-1, keepdim=True)
    limit = nearest.to(soft) / nearest.sum(-1, keepdim=True)
    return torch.where(hard[:, None, None], limit, soft)


def apply_separable(
    x: Float[Tensor, "n *grid d"],
    weights: list[Float[Tensor, "heads _ _"]],
    weight_v: Float[Tensor, "heads d e"],
    weight_o: Float[Tensor, "heads e o"],
) -> Float[Tensor, "n *out o"]:
    r"""Heads :math:`\sum_h (A^h_1 \otimes A^h_2) X W_{val}^h W_{out}^h` without the large matrix.

    Rows are mixed first, then columns: H·W·(H + W) products a head and feature where the full
    matrix takes (H·W)².

    Parameters
    ----------
    x
        Images, features last; one or two axes of pixels.
    weights
        For each axis, weights of outputs over pixels.
    weight_v, weight_o
        Values and output projection of each head.
    """
    heads, d, e = weight_v.shape
    # Attention acts on places, the matrices on features: they commute, so the narrower goes first.
    early = e < d
    width = min(d, e)
    last = weight_o if early else weight_v @ weight_o
    sides = [w.shape[1] for w in weights]
    largest = max(sides[0], x.shape[1]) * x.shape[2:-1].numel()
    step = max(1, _CHUNK // max(1, x.shape[0] * largest * width))
    out = x.new_zeros(x.shape[0], *sides, weight_o.shape[-1])
    for start in range(0, heads, step):
        part = slice(start, start + step)
        if early:
            values = torch.einsum("n...d,hde->hn...e", x, weight_v[part])
        else:
            values = x.expand(weight_v[part].shape[0], *x.shape)
        values = mix_separable(values, [w[part] for w in weights])
        out = out + torch.einsum("hn...e,heo->n...o", values, last[part])
    return out


def mix_separable(
    values: Float[Tensor, "heads n *grid e"], weights: list[Float[Tensor, "heads _ _"]]
) -> Float[Tensor, "heads n *out e"]:
    """Attention that is a product over the axes, applied to each head's values axis by axis."""
    if len(weights) == 1:
        return torch.einsum("hqs,hnse->hnqe", weights[0], values)
    rows = torch.einsum("hqs,hnste->hnqte", weights[0], values)
    return torch.einsum("hpt,hnqte->hnqpe", weights[1], rows)
