"""Scores of attention with absolute and with relative positions, term by term."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

__all__ = ["ScoreTerms", "absolute_scores", "relative_scores"]


class ScoreTerms(NamedTuple):
    """The four terms of a score, each ``(..., q, k)`` or broadcasting to it."""

    content_content: Tensor
    content_position: Tensor
    position_content: Tensor
    position_position: Tensor

    @property
    def total(self) -> Tensor:
        """Their sum: the score."""
        return sum(self[1:], self[0])


def absolute_scores(
    x: Float[Tensor, "*#batch s d"],
    positions: Float[Tensor, "*#batch s d"],
    weight_q: Float[Tensor, "*#batch d e"],
    weight_k: Float[Tensor, "*#batch d e"],
) -> ScoreTerms:
    r"""Terms of :math:`(X + P) W_{qry} W_{key}^\top (X + P)^\top`, with P added to the tokens.

    Parameters
    ----------
    x, positions
        Tokens X and encodings P of their places.
    weight_q, weight_k
        :math:`W_{qry}` and :math:`W_{key}`.

    Returns
    -------
    ScoreTerms
        :math:`X W X^\top,\ X W P^\top,\ P W X^\top,\ P W P^\top` with
        :math:`W = W_{qry} W_{key}^\top`.

    Raises
    ------
    ValueError
        If the sizes do not fit.
    """
    if x.shape[-2:] != positions.shape[-2:]:
        raise ValueError(
            f"positions has shape {tuple(positions.shape)}, x has {tuple(x.shape)}; tokens and"
            " features need to agree"
        )
    _check_features("weight_q", weight_q, x)
    _check_features("weight_k", weight_k, x)
    _check_keys(weight_q, weight_k)
    qx, qp = x @ weight_q, positions @ weight_q
    kx, kp = x @ weight_k, positions @ weight_k
    return ScoreTerms(qx @ kx.mT, qx @ kp.mT, qp @ kx.mT, qp @ kp.mT)


def relative_scores(
    queries: Float[Tensor, "*#batch q d"],
    keys: Float[Tensor, "*#batch k d"],
    encoding: Float[Tensor, "*#batch q k p"],
    weight_q: Float[Tensor, "*#batch d e"],
    weight_k: Float[Tensor, "*#batch d e"],
    weight_r: Float[Tensor, "*#batch p e"],
    u: Float[Tensor, "*#batch e"],
    v: Float[Tensor, "*#batch e"],
) -> ScoreTerms:
    r"""Terms of the score with a relative encoding r_δ, δ = key - query.

    .. math:: A_{qk} = x_q W_{qry} W_{key}^\top x_k^\top + x_q W_{qry} \widehat W_{key}^\top r_\delta
              + u^\top W_{key}^\top x_k^\top + v^\top \widehat W_{key}^\top r_\delta .

    In the expansion of :func:`absolute_scores`, the key's position :math:`P_k W_{key}` has become
    :math:`r_\delta \widehat W_{key}`, and the query's :math:`P_q W_{qry}` the same vector for all
    queries: u beside the content of the key, v beside its place.  The fourth term alone makes a
    layer look at a place whatever the content; without it, attention is uniform where X = 0.

    Parameters
    ----------
    queries, keys
        Content of the tokens that ask and of those that answer.
    encoding
        r_δ of every pair.
    weight_q, weight_k, weight_r
        :math:`W_{qry}`, :math:`W_{key}`, :math:`\widehat W_{key}`.
    u, v
        What stands for the query's place.

    Returns
    -------
    ScoreTerms

    Raises
    ------
    ValueError
        If the sizes do not fit.
    """
    pairs = (queries.shape[-2], keys.shape[-2])
    if encoding.shape[-3:-1] != pairs:
        raise ValueError(
            f"encoding is for {tuple(encoding.shape[-3:-1])} pairs, there are {pairs} queries and"
            " keys"
        )
    _check_features("weight_q", weight_q, queries)
    _check_features("weight_k", weight_k, keys)
    _check_features("weight_r", weight_r, encoding)
    _check_keys(weight_q, weight_k)
    if weight_r.shape[-1] != weight_q.shape[-1]:
        raise ValueError(
            f"weight_r makes {weight_r.shape[-1]} features; weight_q makes {weight_q.shape[-1]}"
        )
    for name, vector in (("u", u), ("v", v)):
        if vector.shape[-1] != weight_q.shape[-1]:
            raise ValueError(
                f"{name} has {vector.shape[-1]} entries; weight_q makes {weight_q.shape[-1]}"
            )
    q, k = queries @ weight_q, keys @ weight_k
    # r_δ is applied to the small vectors first: the (q, k, e) tensor of projected encodings is
    # never formed.
    per_query = q @ weight_r.mT
    return ScoreTerms(
        q @ k.mT,
        (encoding @ per_query[..., None]).squeeze(-1),
        (k @ u[..., None]).mT,
        (encoding @ (weight_r @ v[..., None])[..., None, :, :]).squeeze(-1),
    )


def _check_keys(weight_q: Tensor, weight_k: Tensor) -> None:
    if weight_q.shape[-1] != weight_k.shape[-1]:
        raise ValueError(
            f"weight_q makes {weight_q.shape[-1]} features, weight_k {weight_k.shape[-1]}; they need"
            " the same number"
        )


def _check_features(name: str, weight: Tensor, x: Tensor) -> None:
    if weight.shape[-2] != x.shape[-1]:
        raise ValueError(
            f"{name} takes {weight.shape[-2]} features; what it is applied to has {x.shape[-1]}"
        )
