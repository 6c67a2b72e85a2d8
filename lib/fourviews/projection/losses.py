r"""Losses for the k best: exactly-k likelihood, truncated entropy, smooth top-k SVM.

All act on the last axis, compute half precisions in float32 and return that, and share

- ``ignore_index``: labels with this value do not count;
- ``weight``: a factor for each class, in the way of :func:`torch.nn.functional.cross_entropy`;
- ``reduction``: ``"none"`` one value a row, ``"sum"``, or ``"mean"`` over labels, weighted by
  ``weight``. The mean over no labels is 0, with gradient 0.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from .inputs import accumulation_dtype, check_count, check_logits, check_mask
from .lml import lml_logits
from .subsets import _log_elementary

__all__ = ["lml_loss", "smooth_topk_svm_loss", "topk_entropy_loss"]

Reduction = Literal["none", "sum", "mean"]


def lml_loss(
    logits: Float[Tensor, "*rows n"],
    labels: Bool[Tensor, "*rows n"] | Int[Tensor, "..."],
    k: int | Int[Tensor, "..."],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    weight: Float[Tensor, "n"] | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Float[Tensor, "..."]:
    r"""Negative log-likelihood of the known labels under the LML layer.

    .. math:: \ell = -\sum_{i \in L} \log y_i,\qquad y = \operatorname{lml}_k(x)

    L are the labels that are known. The others are not counted as wrong: with k above the number
    of known labels the layer has mass left for labels that nobody wrote down (Amos, Koltun &
    Kolter 2019). The logarithm is taken of :math:`\sigma(x + \nu)` without forming y, so that
    value and gradient stay exact where y rounds to 0 or 1.

    Parameters
    ----------
    logits
        ``(..., n)``.
    labels
        Boolean ``(..., n)``, ``True`` at the labels; or class indices ``(..., m)``, filled up with
        ``ignore_index``, a repeated one counting once; or ``(...)``, one index a row. Zeros and
        ones in place of booleans are refused: as indices they would name the classes 0 and 1.
    k
        Number of labels, as in :func:`fourviews.projection.lml`.
    mask
        ``True`` where an entry may be chosen.
    weight
        A factor for each class, in the way of :func:`torch.nn.functional.cross_entropy`.
    ignore_index
        Labels with this value do not count. Rows without labels count for nothing, whatever
        their logits.
    reduction
        ``"none"``, one value a row; ``"sum"``; or ``"mean"`` over labels, weighted by ``weight``.
        The mean over no labels is 0, with gradient 0.

    Returns
    -------
    Float[Tensor, "..."]
        A number, or one a row. Infinite where a label has the logit ``-inf``, or k = 0.

    Raises
    ------
    ValueError
        If shapes or dtypes do not fit, a label lies outside of [0, n) or is masked, a row with
        labels is infeasible, or integer labels have the shape of the logits, n > 2, and are all
        0 or 1.
    """
    check_logits(logits, -1, "logits")
    chosen = _label_set(logits, labels, ignore_index)
    scale = _class_weights(logits, weight)
    present = chosen.any(-1, keepdim=True)
    if mask is not None:
        check_mask(logits, mask)
        if bool((chosen & ~mask).any()):
            raise ValueError("labels has entries that mask leaves out")
        mask = mask | ~present
    # A row without labels must not be refused for its logits, nor for having fewer than k of them.
    z = lml_logits(torch.where(present, logits, 0.0), k, mask=mask)
    terms = torch.where(chosen, -logsigmoid(z), 0.0)
    if scale is not None:
        terms = terms * scale
    counts = chosen.to(z.dtype) if scale is None else chosen * scale
    return _reduce(terms.sum(-1), counts.sum(-1), reduction)


def topk_entropy_loss(
    logits: Float[Tensor, "*rows n"],
    label: Int[Tensor, "*rows"],
    k: int,
    *,
    weight: Float[Tensor, "n"] | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Float[Tensor, "..."]:
    r"""Truncated top-k entropy (Lapin, Hein & Schiele 2016).

    .. math:: \ell = \log\Bigl(1 + \sum_{j\in J} e^{x_j - x_y}\Bigr)

    J are the n - k smallest of the other logits: the k - 1 largest others cost nothing. For k = 1
    it is the cross-entropy, for k = n it is 0. At least log 2 where k others reach the label's
    logit; it is not convex for k ≥ 2. Where two logits tie at the border of J, the value does not
    depend on which of them is left out, the gradient does.

    Parameters
    ----------
    logits
        ``(..., n)``, below ``inf``.
    label
        One class a row.
    k
        From 1 to n.
    weight
        A factor for each class, in the way of :func:`torch.nn.functional.cross_entropy`.
    ignore_index
        Labels with this value do not count.
    reduction
        ``"none"``, one value a row; ``"sum"``; or ``"mean"`` over labels, weighted by ``weight``.
        The mean over no labels is 0, with gradient 0.

    Returns
    -------
    Float[Tensor, "..."]
        A number, or one a row. Infinite where the label has the logit ``-inf`` and J has not.

    Raises
    ------
    ValueError
        If shapes or dtypes do not fit, k is no integer in [1, n], a label lies outside of [0, n),
        or a row that counts has NaN or ``inf``.
    """
    x, index, active = _single(logits, label, ignore_index)
    k = _positive(k, x.shape[-1])
    own = x.gather(-1, index[..., None])[..., 0]
    others = _others(x, index)
    if k == x.shape[-1]:
        values = _zero(own)
    else:
        kept = others
        if k > 1:
            largest = others.detach().topk(k - 1, sorted=False).indices
            kept = others.scatter(-1, largest, float("-inf"))
        empty = (kept == -torch.inf).all(-1)
        total = kept.masked_fill(empty[..., None], 0.0).logsumexp(-1)
        values = (-logsigmoid(own - total)).masked_fill(empty, 0.0)
    return _weigh(values, logits, index, active, weight, reduction)


def smooth_topk_svm_loss(
    logits: Float[Tensor, "*rows n"],
    label: Int[Tensor, "*rows"],
    k: int,
    *,
    tau: float = 1.0,
    margin: float = 1.0,
    weight: Float[Tensor, "n"] | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Float[Tensor, "..."]:
    r"""Smooth top-k SVM (Berrada, Zisserman & Kumar 2018).

    .. math:: \ell = \tau\log\sum_{|S|=k} \exp\tfrac1\tau\Bigl(m\,[y\notin S]
              + \tfrac1k\sum_{j\in S}x_j\Bigr)
              - \tau\log\sum_{|S|=k,\ y\in S}\exp\tfrac1{k\tau}\sum_{j\in S}x_j

    The sums run over sets of k labels. With :math:`u = x/(k\tau)` and the elementary symmetric
    polynomials of the others,
    :math:`\ell = \tau\log\bigl(1 + e^{m/\tau - u_y}\,e_k/e_{k-1}\bigr)`. For k = 1, τ = 1, m = 0
    it is the cross-entropy; for k = n it is 0.

    Parameters
    ----------
    logits
        ``(..., n)``, finite.
    label
        One class a row.
    k
        From 1 to n.
    tau, margin
        Temperature τ > 0 and margin m ≥ 0.
    weight
        A factor for each class, in the way of :func:`torch.nn.functional.cross_entropy`.
    ignore_index
        Labels with this value do not count.
    reduction
        ``"none"``, one value a row; ``"sum"``; or ``"mean"`` over labels, weighted by ``weight``.
        The mean over no labels is 0, with gradient 0.

    Returns
    -------
    Float[Tensor, "..."]
        A number, or one a row.

    Raises
    ------
    ValueError
        If shapes or dtypes do not fit, k is no integer in [1, n], a label lies outside of [0, n),
        ``tau`` or ``margin`` is out of range, or a row that counts has entries that are not finite.
    """
    x, index, active = _single(logits, label, ignore_index)
    k = _positive(k, x.shape[-1])
    if not (isinstance(tau, int | float) and 0 < tau < math.inf):
        raise ValueError(f"tau is {tau}; it needs to be positive and finite")
    if not (isinstance(margin, int | float) and 0 <= margin < math.inf):
        raise ValueError(f"margin is {margin}; it needs to be finite and at least 0")
    if bool(x.isinf().any()):
        raise ValueError("logits has entries at -inf; it needs finite numbers")
    if k == x.shape[-1]:
        values = _zero(x[..., 0])
    else:
        u = x / (k * tau)
        n = x.shape[-1]
        places = torch.arange(n - 1, device=x.device)
        places = places + (places >= index[..., None])
        logs = _log_elementary(u.gather(-1, places), k)
        own = u.gather(-1, index[..., None])[..., 0]
        values = -tau * logsigmoid(own + logs[..., k - 1] - logs[..., k] - margin / tau)
    return _weigh(values, logits, index, active, weight, reduction)


def _others(x: Tensor, index: Tensor) -> Tensor:
    return x.scatter(-1, index[..., None], float("-inf"))


def _zero(x: Tensor) -> Tensor:
    """Zeros that backward can be called on."""
    return x.masked_fill(torch.ones_like(x, dtype=torch.bool), 0.0)


def _positive(k: Any, n: int) -> int:
    k = check_count(k, n)
    if k == 0:
        raise ValueError("k is 0; it needs to be at least 1")
    return k


def _check_integers(labels: Any, name: str) -> None:
    if not isinstance(labels, Tensor):
        raise ValueError(f"{name} is a {type(labels).__name__}; it needs to be a torch tensor")
    if labels.dtype not in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        raise ValueError(f"{name} has dtype {labels.dtype}; it needs an integer dtype")


def _indices(labels: Tensor, n: int, ignore_index: int, name: str) -> tuple[Tensor, Tensor]:
    """Indices, 0 where ignored, and which count."""
    labels = labels.long()
    active = labels != ignore_index
    index = labels.masked_fill(~active, 0)
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= n):
        raise ValueError(
            f"{name} runs from {int(index.min())} to {int(index.max())}; each needs to lie between"
            f" 0 and {n - 1}, or to be ignore_index = {ignore_index}"
        )
    return index, active


def _label_set(logits: Tensor, labels: Any, ignore_index: int) -> Tensor:
    """Labels as a boolean tensor in the shape of the logits."""
    if isinstance(labels, Tensor) and labels.dtype == torch.bool:
        if labels.shape != logits.shape:
            raise ValueError(
                f"labels has shape {tuple(labels.shape)}, logits has {tuple(logits.shape)};"
                " boolean labels need the same"
            )
        return labels
    if isinstance(labels, Tensor) and labels.is_floating_point():
        raise ValueError(
            f"labels has dtype {labels.dtype}; it needs booleans, one an entry of logits, or integer"
            " class indices"
        )
    _check_integers(labels, "labels")
    rows = logits.shape[:-1]
    if labels.shape == rows and labels.ndim < logits.ndim:
        labels = labels[..., None]
    if labels.shape[:-1] != rows or labels.ndim != logits.ndim:
        raise ValueError(
            f"labels has shape {tuple(labels.shape)}, logits has {tuple(logits.shape)}; indices"
            " need that of the rows, or of the rows and one axis of padded indices"
        )
    n = logits.shape[-1]
    # More than two indices a row that are all 0 or 1 repeat themselves: no list of classes is
    # written so, a mask of zeros and ones is.
    if labels.shape == logits.shape and n > 2 and labels.numel() and int(labels.min()) >= 0:
        if int(labels.max()) <= 1:
            raise ValueError(
                f"labels has zeros and ones of {labels.dtype} in the shape of logits,"
                f" {tuple(logits.shape)}; a mask needs booleans (labels.bool()), integers are class"
                " indices"
            )
    index, active = _indices(labels, n, ignore_index, "labels")
    # Ignored ones are written into a column of their own, which is cut off.
    target = torch.zeros(*rows, n + 1, dtype=torch.bool, device=logits.device)
    return target.scatter(-1, index.masked_fill(~active, n), True)[..., :n]


def _single(logits: Any, label: Any, ignore_index: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits in the accumulation dtype, 0 in ignored rows; label; rows that count."""
    check_logits(logits, -1, "logits")
    _check_integers(label, "label")
    if label.shape != logits.shape[:-1]:
        raise ValueError(
            f"label has shape {tuple(label.shape)}, logits has {tuple(logits.shape)};"
            " it needs one index a row"
        )
    index, active = _indices(label, logits.shape[-1], ignore_index, "label")
    x = torch.where(active[..., None], logits, 0.0).to(accumulation_dtype(logits.dtype))
    if bool((x.isnan() | (x == torch.inf)).any()):
        raise ValueError("logits has NaN or entries at +inf; it needs numbers below inf")
    return x, index, active


def _class_weights(logits: Tensor, weight: Any) -> Tensor | None:
    if weight is None:
        return None
    n = logits.shape[-1]
    if not isinstance(weight, Tensor) or weight.shape != (n,) or not weight.is_floating_point():
        got = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise ValueError(f"weight is {got}; it needs to be a float tensor of shape ({n},)")
    if not bool((weight >= 0).all() & weight.isfinite().all()):
        raise ValueError("weight has entries that are negative or not finite")
    return weight.to(accumulation_dtype(logits.dtype))


def _weigh(
    values: Tensor, logits: Tensor, index: Tensor, active: Tensor, weight: Any, reduction: str
) -> Tensor:
    scale = _class_weights(logits, weight)
    weights = active.to(values.dtype) if scale is None else scale[index] * active
    # Not a product: an infinite value of weight 0 would be NaN.
    values = torch.where(weights > 0, values, 0.0) * weights
    return _reduce(values, weights, reduction)


def _reduce(values: Tensor, weights: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return values
    if reduction == "sum":
        return values.sum()
    if reduction == "mean":
        total = weights.sum()
        return values.sum() / torch.where(total > 0, total, 1.0)
    raise ValueError(f"reduction is {reduction!r}; it needs to be 'none', 'sum' or 'mean'")
