"""Checks of logits, k and masks that every function of this package makes first."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

__all__: list[str] = []

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_logits(x: Any, dim: int, name: str = "x") -> int:
    """Refuse what is no tensor of logits; return ``dim`` counted from the front."""
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} is a {type(x).__name__}; it needs to be a torch tensor")
    if x.dtype not in FLOATS:
        raise ValueError(f"{name} has dtype {x.dtype}; it needs one of {[str(d) for d in FLOATS]}")
    if x.ndim == 0:
        raise ValueError(f"{name} has no axes; it needs at least one")
    if isinstance(dim, bool) or not isinstance(dim, int) or not -x.ndim <= dim < x.ndim:
        raise ValueError(
            f"dim is {dim!r}; it needs to be an integer between {-x.ndim} and {x.ndim - 1},"
            f" since {name} has shape {tuple(x.shape)}"
        )
    dim %= x.ndim
    if x.shape[dim] == 0:
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}, axis {dim} is empty; it needs at least one entry"
        )
    return dim


def check_count(k: Any, n: int, name: str = "k") -> int:
    """An integer from 0 to n; neither a truth value nor a float with an integer value."""
    try:
        if isinstance(k, bool):
            raise TypeError
        count = operator.index(k)
    except (TypeError, RuntimeError):
        raise ValueError(f"{name} is {k!r}; it needs to be an integer") from None
    if not 0 <= count <= n:
        raise ValueError(f"{name} is {count}; it needs to lie between 0 and n = {n}")
    return count


def check_counts(
    k: Any, rows: torch.Size, n: int, device: torch.device
) -> tuple[int, Tensor | None]:
    """k as (integer, None), or as (-1, int64 tensor in the shape of the rows).

    The values of a tensor are checked where they are used: here they may be those of a batch
    that ``vmap`` hides.
    """
    if not isinstance(k, Tensor):
        return check_count(k, n), None
    if k.is_floating_point() or k.is_complex() or k.dtype == torch.bool:
        raise ValueError(f"k has dtype {k.dtype}; it needs an integer dtype")
    if k.device != device and k.ndim:
        raise ValueError(f"k is on {k.device}, x is on {device}; they need the same")
    try:
        fits = torch.broadcast_shapes(k.shape, rows) == rows
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"k has shape {tuple(k.shape)}; it needs to broadcast to the shape of the rows,"
            f" {tuple(rows)}"
        )
    return -1, k.to(device=device, dtype=torch.int64).expand(rows)


def check_mask(x: Tensor, mask: Any) -> None:
    """Refuse what is no boolean tensor that broadcasts to x."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(
            f"mask is {got}; it needs to be a boolean tensor, True where an entry may be chosen"
        )
    try:
        fits = torch.broadcast_shapes(mask.shape, x.shape) == x.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}; it needs to broadcast to {tuple(x.shape)}"
        )


def apply_mask(x: Tensor, mask: Any) -> Tensor:
    """x with minus infinity where the mask is False."""
    if mask is None:
        return x
    check_mask(x, mask)
    return x.masked_fill(~mask, float("-inf"))


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for the half precisions, the dtype itself otherwise."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def cut(x: Tensor, k: int, ks: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""The k-th and the next largest entry of each row, and the k largest.

    Parameters
    ----------
    x
        ``(rows, n)``.
    k, ks
        As from :func:`check_counts`, ``ks`` of shape ``(rows,)``.

    Returns
    -------
    upper, lower
        ``(rows, 1)``: :math:`x_{(k)}`, ``inf`` for k = 0, and :math:`x_{(k+1)}`, ``-inf`` for k = n.
    values, indices, chosen
        ``(rows, K)`` for the largest k of all rows: the K largest, where they stand, and whether
        they are among the row's own k.
    """
    n = x.shape[-1]
    if ks is None:
        values, indices = x.topk(min(k + 1, n), sorted=True)
        upper = values[:, k - 1 : k] if k else values.new_full((len(x), 1), torch.inf)
        lower = values[:, k : k + 1] if k < n else values.new_full((len(x), 1), -torch.inf)
        values, indices = values[:, :k], indices[:, :k]
        return upper, lower, values, indices, torch.ones_like(values, dtype=torch.bool)
    largest = int(ks.max()) if ks.numel() else 0
    values, indices = x.topk(min(largest + 1, n), sorted=True)
    ks = ks[:, None]
    upper = values.gather(1, (ks - 1).clamp_min(0)).masked_fill(ks == 0, torch.inf)
    lower = values.gather(1, ks.clamp_max(n - 1)).masked_fill(ks == n, -torch.inf)
    values, indices = values[:, :largest], indices[:, :largest]
    return upper, lower, values, indices, torch.arange(largest, device=x.device) < ks


def infeasible_rows(x: Tensor, upper: Tensor, lower: Tensor) -> Tensor:
    """Rows ``(rows,)`` with NaN, with more than k entries at inf or fewer than k above -inf."""
    # amax hands a NaN on.
    return x.amax(-1).isnan() | (lower[:, 0] == torch.inf) | (upper[:, 0] == -torch.inf)


def explain_infeasible(x: Tensor, k: int, ks: Tensor | None) -> str:
    """What is wrong with the first row of x ``(..., n)`` that has no answer."""
    counts = torch.full(x.shape[:-1], k, device=x.device) if ks is None else ks
    infinite, possible = (x == torch.inf).sum(-1), (x > -torch.inf).sum(-1)
    nan = x.isnan().any(-1)
    bad = (nan | (infinite > counts) | (possible < counts)).reshape(-1)
    i = int(bad.to(torch.uint8).argmax())
    where = tuple(int(j) for j in torch.unravel_index(torch.tensor(i), x.shape[:-1]))
    row = f"row {where} of x" if where else "x"
    infinite, possible, count = (int(a.reshape(-1)[i]) for a in (infinite, possible, counts))
    if bool(nan.reshape(-1)[i]):
        return f"{row} has NaN; it needs numbers"
    if infinite > count:
        return f"{row} has {infinite} entries at +inf; it needs at most k = {count}"
    return (
        f"{row} has {possible} entries that are neither masked nor -inf; it needs at least"
        f" k = {count}"
    )


def check_classes(label: Any, classes: int, name: str = "label") -> None:
    """Refuse what is no vector of int64 class numbers below ``classes``."""
    if not isinstance(label, Tensor) or label.dtype != torch.int64 or label.ndim != 1:
        got = (
            f"{tuple(label.shape)} {label.dtype}"
            if isinstance(label, Tensor)
            else type(label).__name__
        )
        raise ValueError(f"{name} is {got}; it needs to be an int64 tensor with one axis")
    if label.numel() and not 0 <= int(label.min()) <= int(label.max()) < classes:
        raise ValueError(
            f"{name} runs from {int(label.min())} to {int(label.max())}; there are {classes} classes"
        )


def check_features(features: Any, name: str = "features") -> None:
    """Refuse what is no finite float matrix with at least one row and one column."""
    if not isinstance(features, Tensor) or features.dtype not in FLOATS[2:] or features.ndim != 2:
        got = (
            f"{tuple(features.shape)} {features.dtype}"
            if isinstance(features, Tensor)
            else type(features).__name__
        )
        raise ValueError(f"{name} is {got}; it needs to be float32 or float64 of shape (n, d)")
    if not features.numel():
        raise ValueError(f"{name} has shape {tuple(features.shape)}; it needs n >= 1 and d >= 1")
    if not bool(features.isfinite().all()):
        raise ValueError(f"{name} has infinite entries or NaN; it needs finite numbers")


def check_count_values(ks: Tensor | None, n: int) -> None:
    """The values of a tensor k."""
    if ks is not None and ks.numel() and (int(ks.min()) < 0 or int(ks.max()) > n):
        raise ValueError(
            f"k runs from {int(ks.min())} to {int(ks.max())};"
            f" each needs to lie between 0 and n = {n}"
        )
