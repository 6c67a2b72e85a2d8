r"""Softmax, sparsemax and hard top-k in the frame of the LML layer.

All are :math:`\arg\min_y -x^\top y + \Omega(y)` over y that sum to k:

============================  ============================================  ==================
function                      Ω(y)                                          constraints
============================  ============================================  ==================
:func:`softmax`               :math:`\sum_i y_i\log y_i`                    y ≥ 0
:func:`sparsemax`             :math:`\tfrac12\|y\|^2`                       0 ≤ y ≤ 1
:func:`fourviews.projection.  :math:`\sum_i y_i\log y_i +                   0 < y < 1
lml`                          (1-y_i)\log(1-y_i)`
:func:`hard_topk`             0                                             0 ≤ y ≤ 1
============================  ============================================  ==================

A temperature τ in front of Ω is ``f(x / tau)``. As τ falls to 0, sparsemax and LML tend to hard
top-k, which they reach (sparsemax) or approach (LML); as it grows, all but hard top-k tend to
k/n. For k = 1 the constraint y ≤ 1 follows from the others. For k ≥ 2 softmax has no such bound:
it gives one entry up to k.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .inputs import (
    accumulation_dtype,
    apply_mask,
    check_count_values,
    check_counts,
    check_logits,
    cut,
    explain_infeasible,
    infeasible_rows,
)

__all__ = ["hard_topk", "softmax", "sparsemax"]


class _Rows:
    """Checked logits as (rows, n), and where the cut between k and the rest runs."""

    def __init__(self, x, k, dim, mask, infeasible) -> None:
        if infeasible not in ("raise", "nan"):
            raise ValueError(f"infeasible is {infeasible!r}; it needs to be 'raise' or 'nan'")
        self.dim = check_logits(x, dim)
        self.dtype = x.dtype
        moved = apply_mask(x, mask).movedim(self.dim, -1)
        self.shape = moved.shape
        n = moved.shape[-1]
        k, ks = check_counts(k, moved.shape[:-1], n, x.device)
        check_count_values(ks, n)
        self.x = moved.reshape(-1, n).to(accumulation_dtype(x.dtype))
        flat = None if ks is None else ks.reshape(-1)
        with torch.no_grad():
            self.upper, self.lower, *_ = cut(self.x.detach(), k, flat)
            self.bad = infeasible_rows(self.x.detach(), self.upper, self.lower)[:, None]
        if infeasible == "raise" and bool(self.bad.any()):
            raise ValueError(explain_infeasible(moved.detach(), k, ks))
        self.k = torch.full_like(self.upper, k) if flat is None else flat[:, None].to(self.x.dtype)

    def restore(self, y: Tensor) -> Tensor:
        y = y.masked_fill(self.bad, torch.nan)
        return y.to(self.dtype).reshape(self.shape).movedim(-1, self.dim)


def softmax(
    x: Float[Tensor, "..."],
    k: int = 1,
    dim: int = -1,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    infeasible: Literal["raise", "nan"] = "raise",
) -> Float[Tensor, "..."]:
    r"""k times the softmax: the entropic projection without the bound :math:`y \le 1`.

    .. math:: y(x) = \arg\min\{-x^\top y + \textstyle\sum_i y_i\log y_i :
              y \ge 0,\ \mathbf 1^\top y = k\} = k\,e^{x}/\textstyle\sum_i e^{x_i}

    An entry at ``-inf``, or masked, gets 0; one entry at ``inf`` gets k.

    Parameters
    ----------
    x, dim, mask, infeasible
        As in :func:`fourviews.projection.lml`; infeasible are rows with NaN, with two entries at
        ``inf`` or with nothing above ``-inf``.
    k
        An integer from 0 to n.

    Returns
    -------
    Float[Tensor, "..."]
        y in shape and dtype of ``x``.

    Raises
    ------
    ValueError
        As :func:`fourviews.projection.lml`.
    """
    if isinstance(k, Tensor) and k.ndim:
        raise ValueError(f"k has shape {tuple(k.shape)}; softmax needs one integer")
    dim = check_logits(x, dim)
    count, _ = check_counts(
        int(k) if isinstance(k, Tensor) else k, torch.Size(), x.shape[dim], x.device
    )
    rows = _Rows(x, 1, dim, mask, infeasible)
    certain = rows.upper == torch.inf
    finite = torch.where(certain, torch.where(rows.x == torch.inf, 0.0, -torch.inf), rows.x)
    # Rows without an answer are overwritten at the end; until then they must not be 0/0.
    y = torch.softmax(finite.masked_fill(rows.bad, 0.0), -1)
    return rows.restore(count * y)


def sparsemax(
    x: Float[Tensor, "..."],
    k: int | Int[Tensor, "..."] = 1,
    dim: int = -1,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    infeasible: Literal["raise", "nan"] = "raise",
) -> Float[Tensor, "..."]:
    r"""Euclidean projection of the logits on the vectors in :math:`[0,1]^n` that sum to k.

    .. math:: y(x) = \arg\min\{-x^\top y + \tfrac12\|y\|^2 : 0 \le y \le 1,\ \mathbf 1^\top y = k\}
              = \min(1, \max(0, x + \nu))

    For k = 1 it is the sparsemax of Martins & Astudillo (2016). ν is exact up to rounding: the sum
    is piecewise linear in ν, and its 2n breakpoints are sorted. The gradient is that of the piece:
    :math:`g_F - \operatorname{mean}(g_F)` on the entries F strictly between 0 and 1, 0 elsewhere;
    the second derivative is 0. ``vmap`` works for integer k and ``infeasible="nan"``.

    Parameters
    ----------
    x, k, dim, mask, infeasible
        As in :func:`fourviews.projection.lml`.

    Returns
    -------
    Float[Tensor, "..."]
        y in shape and dtype of ``x``.

    Raises
    ------
    ValueError
        As :func:`fourviews.projection.lml`.
    """
    rows = _Rows(x, k, dim, mask, infeasible)
    largest = torch.finfo(rows.x.dtype).max
    upper = rows.upper.clamp(max=largest)
    # Measured from the k-th entry. What is more than 1 below it gets 0, what is more than 1 above
    # the next one gets 1; clamping there changes nothing else, and removes what is infinite.
    ceiling = (1 - (rows.upper - rows.lower)).nan_to_num(nan=0.0).clamp(0, 1)
    a = (rows.x - upper).nan_to_num(nan=0.0, posinf=largest, neginf=-largest)
    a = torch.maximum(a, a.new_tensor(-1.0)).minimum(ceiling)
    with torch.no_grad():
        nu = _breakpoint_root(a.detach(), rows.k)
        free = (a + nu > 0) & (a + nu < 1)
        ones = (a + nu >= 1).sum(-1, keepdim=True)
        size = free.sum(-1, keepdim=True)
    level = (rows.k - ones - (a * free).sum(-1, keepdim=True)) / size.clamp_min(1)
    level = torch.where(size > 0, level, nu)
    y = torch.where(free, (a + level).clamp(0, 1), (a + nu >= 1).to(a.dtype))
    return rows.restore(y)


def _breakpoint_root(a: Tensor, k: Tensor) -> Tensor:
    """ν with Σ clip(a + ν, 0, 1) = k, row by row."""
    points, order = torch.cat([-a, 1 - a], -1).sort(-1)
    change = torch.where(order < a.shape[-1], 1, -1)
    slope = change.cumsum(-1)[:, :-1]
    rise = (points[:, 1:] - points[:, :-1]) * slope
    values = torch.cat([torch.zeros_like(k), rise.cumsum(-1)], -1)
    # The last breakpoint at which the sum is at most k.
    i = ((values <= k).sum(-1, keepdim=True) - 1).clamp_max(slope.shape[-1] - 1)
    nu = points.gather(-1, i) + (k - values.gather(-1, i)) / slope.gather(-1, i).clamp_min(1)
    # At k = 0 and k = n the sum stays there: nothing is free.
    nu = torch.where(k == 0, points[:, :1] - 1, nu)
    return torch.where(k == a.shape[-1], points[:, -1:] + 1, nu)


def hard_topk(
    x: Float[Tensor, "..."],
    k: int | Int[Tensor, "..."],
    dim: int = -1,
    *,
    ties: Literal["share", "first"] = "share",
    mask: Bool[Tensor, "..."] | None = None,
    infeasible: Literal["raise", "nan"] = "raise",
) -> Float[Tensor, "..."]:
    r"""Indicator of the k largest entries: a minimiser of :math:`-x^\top y` on the same polytope.

    .. math:: y(x) \in \arg\max\{x^\top y : 0 \le y \le 1,\ \mathbf 1^\top y = k\}

    The maximiser is unique if the k-th entry and the next differ. With a tie at the cut all convex
    combinations are optimal, and ``ties`` chooses: ``"share"`` gives every tied entry the same,
    which is the limit of :func:`sparsemax` and :func:`fourviews.projection.lml` as x is scaled up;
    ``"first"`` gives 1 to those with the smallest index. The gradient is zero.

    Parameters
    ----------
    x, k, dim, mask, infeasible
        As in :func:`fourviews.projection.lml`.
    ties
        ``"share"`` or ``"first"``.

    Returns
    -------
    Float[Tensor, "..."]
        y in shape and dtype of ``x``.

    Raises
    ------
    ValueError
        If ``ties`` is unknown, and as :func:`fourviews.projection.lml`.
    """
    if ties not in ("share", "first"):
        raise ValueError(f"ties is {ties!r}; it needs to be 'share' or 'first'")
    rows = _Rows(x, k, dim, mask, infeasible)
    values = rows.x.detach()
    above, equal = values > rows.upper, values == rows.upper
    left = rows.k - above.sum(-1, keepdim=True)
    if ties == "share":
        share = left / equal.sum(-1, keepdim=True).clamp_min(1)
    else:
        share = equal.cumsum(-1) <= left
    return rows.restore(above + equal * share)
