"""How far heads look: measured on attention maps over a grid."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["head_reach"]


def head_reach(
    maps: Float[Tensor, "*batch heads h w h w"],
    *,
    queries: Float[Tensor, "h w"] | None = None,
) -> Float[Tensor, "heads"]:
    r"""Mean distance in pixels between a query and what its head attends to,

    .. math:: \frac1{|Q|}\sum_{q\in Q}\sum_k A^h_{qk}\,\|k - q\| ,

    averaged over images too.  A head on the pixel itself has 0, one on a neighbour 1; attention that
    is uniform over the grid gives the reach of ``torch.full(..., 1 / (h * w))``, about half a side.

    Parameters
    ----------
    maps
        Rows and columns of queries, then of keys, as ``attention_maps`` gives them.
    queries
        Weights of the queries; all the same if left out.

    Returns
    -------
    Tensor
        One distance a head.

    Raises
    ------
    ValueError
        If the maps are none, not square or not floats, or weights of queries do not fit or are negative.
    """
    if not maps.is_floating_point():
        raise ValueError(f"maps is {maps.dtype}; it needs to be floats")
    if maps.ndim < 5 or maps.shape[-4:-2] != maps.shape[-2:]:
        raise ValueError(
            f"maps has shape {tuple(maps.shape)}; it needs to be (..., heads, h, w, h, w)"
        )
    if not maps.numel():
        raise ValueError(f"maps has shape {tuple(maps.shape)}; a mean needs at least one map")
    h, w = maps.shape[-2:]
    if queries is None:
        queries = maps.new_ones(h, w)
    fits = queries.shape == (h, w) and bool((queries >= 0).all())
    if not fits or not 0 < float(queries.sum()) < math.inf:
        raise ValueError(
            f"queries has shape {tuple(queries.shape)} and sum {float(queries.sum())}; it needs"
            f" ({h}, {w}), no negative numbers and a positive sum"
        )
    rows, columns = (torch.arange(n, dtype=maps.dtype, device=maps.device) for n in (h, w))
    distance = torch.hypot(
        (rows[:, None] - rows)[:, None, :, None], (columns[:, None] - columns)[None, :, None, :]
    )
    reach = torch.einsum("...ijkl,ijkl,ij->...", maps, distance, queries.to(maps) / queries.sum())
    return reach.reshape(-1, reach.shape[-1]).mean(0)
