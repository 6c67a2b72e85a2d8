r"""Who attends to whom: graphs on tokens, and padding behind texts of different lengths."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["check_tokens", "pair_weights"]


def check_tokens(Y: Tensor, name: str = "Y") -> None:
    """Refuse what is no tensor (..., n, d) of float32 or float64."""
    if not isinstance(Y, Tensor):
        raise ValueError(f"{name} is a {type(Y).__name__}; it needs to be a torch tensor")
    if Y.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{name} has dtype {Y.dtype}; it needs float32 or float64")
    if Y.ndim < 2:
        raise ValueError(f"{name} has shape {tuple(Y.shape)}; it needs (..., tokens, features)")


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
        if not isinstance(graph, Tensor) or not _fits(graph, (*Y.shape[:-2], n, n)):
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
        if not isinstance(tokens, Tensor) or tokens.dtype != torch.bool:
            got = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
            raise ValueError(f"tokens is {got}; it needs booleans, True where there is a token")
        if not _fits(tokens, Y.shape[:-1]) or tokens.shape[-1:] != (n,):
            raise ValueError(
                f"tokens has shape {tuple(tokens.shape)}; it needs to broadcast to"
                f" {tuple(Y.shape[:-1])}"
            )
        both = (tokens[..., :, None] & tokens[..., None, :]).to(Y.dtype)
        weights = both if weights is None else weights * both
    return weights


def _fits(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    try:
        return torch.broadcast_shapes(tensor.shape, shape) == torch.Size(shape)
    except RuntimeError:
        return False
