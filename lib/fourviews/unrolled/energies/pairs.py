r"""Who attends to whom: graphs on tokens, and padding behind texts of different lengths."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..inputs import broadcasts, check_mask

__all__ = ["pair_weights"]


def pair_weights(
    Y: Float[Tensor, "*batch n d"],
    graph: Tensor | None,
    tokens: Bool[Tensor, "*batch n"] | None,
) -> Float[Tensor, "*pairs n n"] | None:
    r"""Symmetric non-negative weights :math:`a_{ij}` of the pairs, or None for all ones.

    Raises
    ------
    ValueError
        If ``graph`` does not broadcast to ``(..., n, n)``, is negative, not finite or not
        symmetric (a causal mask is not: an energy sees pairs, and a pair has no direction), or if
        ``tokens`` is not boolean or does not broadcast to ``(..., n)``.
    """
    n = Y.shape[-2]
    weights = None
    if graph is not None:
        if not isinstance(graph, Tensor) or not broadcasts(graph, (*Y.shape[:-2], n, n)):
            got = tuple(graph.shape) if isinstance(graph, Tensor) else type(graph).__name__
            raise ValueError(
                f"graph is {got}; it needs a tensor that broadcasts to (..., {n}, {n})"
            )
        if graph.dtype != torch.bool and graph.dtype != Y.dtype:
            raise ValueError(f"graph has dtype {graph.dtype}; it needs bool or {Y.dtype}, as Y")
        weights = graph.to(Y.dtype)
        if weights.shape[-2:] != (n, n):
            weights = weights.expand(torch.broadcast_shapes(weights.shape, (n, n)))
        if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
            raise ValueError("graph has negative or non-finite weights; they need to be >= 0")
        if not torch.equal(weights, weights.mT):
            raise ValueError(
                "graph is not symmetric; a pair energy has no direction, so that causal"
                " masks have none"
            )
    if tokens is not None:
        check_mask(tokens, Y)
        both = (tokens[..., :, None] & tokens[..., None, :]).to(Y.dtype)
        weights = both if weights is None else weights * both
    return weights
