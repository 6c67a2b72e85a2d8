"""How many of the true labels are among the k best: recall for labels and for relations."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .inputs import check_count, check_logits
from .polytope import hard_topk

__all__ = ["relation_recall", "topk_recall"]


def topk_recall(
    scores: Float[Tensor, "*rows n"], labels: Bool[Tensor, "*rows n"], k: int
) -> Float[Tensor, "*rows"]:
    r"""Share of each row's labels that are among its k highest scores.

    .. math:: \operatorname{recall} = |\operatorname{top}_k(\text{scores}) \cap L| / |L|

    With one label a row its mean is the top-k accuracy. Ties at the cut count by their share: the
    recall expected under a random order of the tied entries.

    Parameters
    ----------
    scores
        Any order-preserving scores, logits or y.
    labels
        ``True`` at the labels L of the row.
    k
        From 0 to n.

    Returns
    -------
    Float[Tensor, "*rows"]
        float64; NaN for rows without labels, which ``nanmean`` leaves out.

    Raises
    ------
    ValueError
        If scores are no floats, labels not boolean of the same shape, or k outside of [0, n].
    """
    check_logits(scores, -1, "scores")
    _check_labels(scores, labels)
    k = check_count(k, scores.shape[-1])
    hits = (hard_topk(scores.detach().double(), k) * labels).sum(-1)
    return hits / labels.sum(-1)


def relation_recall(
    scores: Float[Tensor, "*scenes pairs predicates"],
    labels: Bool[Tensor, "*scenes pairs predicates"],
    k: int,
    *,
    constrained: bool = True,
    mask: Bool[Tensor, "*scenes pairs"] | None = None,
) -> Float[Tensor, "*scenes"]:
    r"""Recall at k of relations in a scene: share of true triples among the k best.

    A triple is a pair of objects with a predicate. Constrained, each pair enters the ranking with
    its best predicate only; unconstrained, with all of them (Lu et al. 2016; Newell & Deng 2017).

    Parameters
    ----------
    scores
        Score of each predicate for each pair of objects.
    labels
        The true triples; a pair may have several, or none.
    k
        Length of the list, 1 or more; a scene with fewer triples is listed completely.
    constrained
        One predicate a pair, or all.
    mask
        Pairs that exist; the padding of scenes with fewer objects is ``False``.

    Returns
    -------
    Float[Tensor, "*scenes"]
        float64; NaN for scenes without true triples. Ties at the cut count by their share; of
        tied best predicates of a pair the first enters.

    Raises
    ------
    ValueError
        If shapes or dtypes do not fit, k is no positive integer, scores have NaN or infinities,
        or a masked pair has labels.
    """
    check_logits(scores, -1, "scores")
    if scores.ndim < 2:
        raise ValueError(
            f"scores has shape {tuple(scores.shape)}; it needs (..., pairs, predicates)"
        )
    _check_labels(scores, labels)
    if check_count(k, 2**62) == 0:
        raise ValueError("k is 0; it needs to be at least 1")
    if not bool(scores.isfinite().all()):
        raise ValueError("scores has infinite entries or NaN; it needs finite scores")
    present = torch.ones(scores.shape[:-1], dtype=torch.bool, device=scores.device)
    if mask is not None:
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != present.shape:
            raise ValueError(f"mask needs to be boolean, of shape {tuple(present.shape)}")
        present = mask
        if bool((labels & ~mask[..., None]).any()):
            raise ValueError("labels has true triples of pairs that mask leaves out")
    ranked = scores.detach().double()
    if constrained:
        best = ranked.argmax(-1, keepdim=True)
        listed = torch.zeros_like(labels).scatter_(-1, best, True)
    else:
        listed = torch.ones_like(labels)
    listed = (listed & present[..., None]).flatten(-2)
    # Fewer than k in the list: all of them.
    counts = listed.sum(-1).clamp_max(k)
    chosen = hard_topk(ranked.flatten(-2), counts, mask=listed)
    return (chosen * labels.flatten(-2)).sum(-1) / labels.flatten(-2).sum(-1)


def _check_labels(scores: Tensor, labels: Tensor) -> None:
    if not isinstance(labels, Tensor) or labels.dtype != torch.bool:
        got = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"labels is {got}; it needs to be a boolean tensor")
    if labels.shape != scores.shape:
        raise ValueError(
            f"labels has shape {tuple(labels.shape)}, scores has {tuple(scores.shape)};"
            " they need the same"
        )
