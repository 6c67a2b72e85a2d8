"""Relations of a scene: what is known of each pair, two models of it, and the losses to train one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fourviews.data import SceneSet

from .losses import lml_loss, topk_entropy_loss

__all__ = ["Frequencies", "PairNetwork", "Pairs", "relation_losses"]


@dataclass(frozen=True)
class Pairs:
    r"""Ordered pairs of the objects of scenes, :math:`m^2` a scene.

    Attributes
    ----------
    subject, object
        ``(n, m²)``, kinds; 0 where there is no pair.
    geometry
        ``(n, m², 8)``: offset of the centres, their distance, overlap, logarithms of relative width
        and height, area of the subject, offset of the lower edges.
    mask
        ``(n, m²)``, which pairs exist.
    written, truth
        ``(n, m², P)``; truth is None where nobody knows it.
    """

    subject: Int64[Tensor, "n pairs"]
    object: Int64[Tensor, "n pairs"]
    geometry: Float[Tensor, "n pairs 8"]
    mask: Bool[Tensor, "n pairs"]
    written: Bool[Tensor, "n pairs predicates"]
    truth: Bool[Tensor, "n pairs predicates"] | None

    @classmethod
    def of(cls, scenes: SceneSet) -> Pairs:
        """All pairs of the scenes."""
        n, m = scenes.kinds.shape
        kinds = scenes.kinds.clamp_min(0)
        return cls(
            kinds[:, :, None].expand(n, m, m).reshape(n, m * m),
            kinds[:, None, :].expand(n, m, m).reshape(n, m * m),
            _geometry(scenes.boxes).flatten(1, 2),
            scenes.pair_mask.flatten(1),
            scenes.written.flatten(1, 2),
            None if scenes.truth is None else scenes.truth.flatten(1, 2),
        )

    def __len__(self) -> int:
        return len(self.mask)

    def __getitem__(self, rows: slice | Tensor) -> Pairs:
        """Some of the scenes."""
        return Pairs(
            self.subject[rows],
            self.object[rows],
            self.geometry[rows],
            self.mask[rows],
            self.written[rows],
            None if self.truth is None else self.truth[rows],
        )


def _geometry(boxes: Float[Tensor, "n m 4"]) -> Float[Tensor, "n m m 8"]:
    corner, size = boxes[..., :2], boxes[..., 2:].clamp_min(1e-3)
    middle = corner + size / 2
    a, b = (slice(None), slice(None), None), (slice(None), None)
    offset = middle[b] - middle[a]
    low = torch.maximum(corner[a], corner[b])
    high = torch.minimum((corner + size)[a], (corner + size)[b])
    both = (high - low).clamp_min(0).prod(-1)
    area = size.prod(-1)
    overlap = both / torch.minimum(area[a], area[b])
    ratio = (size[b] / size[a]).log()
    edge = (corner + size)[..., 1]
    columns = [
        offset,
        offset.square().sum(-1, keepdim=True).sqrt(),
        overlap[..., None],
        ratio,
        area[a].expand_as(overlap)[..., None],
        (edge[b] - edge[a])[..., None],
    ]
    return torch.cat(columns, -1)


class Frequencies:
    r"""How often a predicate was written for a pair of kinds: the baseline to beat.

    .. math:: \text{score}(a, p, b) = \log\frac{c(a, p, b) + s\,q_p}{c(a, b) + s}

    with c counting written triples and pairs of the training scenes, and :math:`q_p` the share of all
    pairs for which p was written (of one pair and half a triple more, so that none is 0). Boxes
    play no part.

    Parameters
    ----------
    pairs
        Training scenes.
    kinds
        Number of kinds.
    smoothing
        s > 0: how many pairs the average of all kinds counts for.

    Raises
    ------
    ValueError
        If there is no pair, or ``smoothing`` is not positive.
    """

    def __init__(self, pairs: Pairs, kinds: int, smoothing: float = 5.0) -> None:
        if not 0 < smoothing < math.inf:
            raise ValueError(f"smoothing is {smoothing}; it needs to be positive")
        if not bool(pairs.mask.any()):
            raise ValueError("pairs has no pair of objects")
        where = (pairs.subject * kinds + pairs.object)[pairs.mask]
        written = pairs.written[pairs.mask].double()
        count = torch.zeros(kinds**2, dtype=torch.float64).index_add_(
            0, where, torch.ones_like(where, dtype=torch.float64)
        )
        triples = torch.zeros(kinds**2, written.shape[1], dtype=torch.float64)
        triples.index_add_(0, where, written)
        # Half a triple for a predicate that was never written: a finite score for it as well.
        share = (triples.sum(0) + 0.5) / (count.sum() + 1)
        table = (triples + smoothing * share) / (count[:, None] + smoothing)
        self.kinds = kinds
        self.table = table.log().float()

    def __call__(self, pairs: Pairs) -> Float[Tensor, "n pairs predicates"]:
        """Scores of all triples."""
        return self.table[pairs.subject * self.kinds + pairs.object]


class PairNetwork(nn.Module):
    """Scores of predicates from the two kinds and the geometry: frequencies plus a small network.

    It begins as the frequencies themselves, since the last layer begins at zero; what it learns is
    what they lack (as Zellers et al. 2018 build on them).

    Parameters
    ----------
    frequencies
        Fitted on the same training scenes.
    width
        Of the hidden layer.
    seed
        Of the first weights.
    """

    def __init__(self, frequencies: Frequencies, width: int = 64, seed: int = 0) -> None:
        super().__init__()
        self.frequencies = frequencies
        predicates = frequencies.table.shape[1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.subject = nn.Embedding(frequencies.kinds, width)
            self.object = nn.Embedding(frequencies.kinds, width)
            self.geometry = nn.Linear(8, width)
            self.hidden = nn.Linear(width, width)
            self.last = nn.Linear(width, predicates)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, pairs: Pairs) -> Float[Tensor, "n pairs predicates"]:
        """Logits of all triples, those of pairs that do not exist included."""
        x = self.subject(pairs.subject) + self.object(pairs.object) + self.geometry(pairs.geometry)
        return self.frequencies(pairs) + self.last(self.hidden(x.relu()).relu())


RelationLoss = Callable[[Tensor, Tensor, Tensor], Tensor]


def relation_losses(k: int) -> dict[str, RelationLoss]:
    """Losses of logits ``(n, pairs, P)``, written triples of that shape, and the mask of pairs.

    ``"independent"`` counts each triple that was not written as false; ``"pair softmax"`` lets each
    pair choose among its predicates and «nothing», so it counts pairs without a written triple as
    unrelated; ``"scene softmax"``, ``"truncated entropy"`` and ``"LML"`` look at all triples of a
    scene at once and ask for the written ones only.  The first four are sums divided by the number of
    written triples, the last is reduced as :func:`lml_loss` does.

    Parameters
    ----------
    k
        Length of the list, for the last two.

    Returns
    -------
    dict
        Name to loss.

    Raises
    ------
    ValueError
        At the call, as the losses of this package.
    """
    return {
        "independent": _independent,
        "pair softmax": _pair_softmax,
        "scene softmax": lambda x, written, mask: _truncated(x, written, mask, 1),
        "truncated entropy": lambda x, written, mask: _truncated(x, written, mask, k),
        "LML": lambda x, written, mask: _scene_lml(x, written, mask, k),
    }


def _independent(x: Tensor, written: Tensor, mask: Tensor) -> Tensor:
    rows = binary_cross_entropy_with_logits(x[mask], written[mask].to(x.dtype), reduction="sum")
    return rows / written.sum().clamp_min(1)


def _pair_softmax(x: Tensor, written: Tensor, mask: Tensor) -> Tensor:
    x, written = x[mask], written[mask].to(x.dtype)
    logs = torch.cat([x, x.new_zeros(len(x), 1)], 1).log_softmax(1)
    none = (written.sum(1, keepdim=True) == 0).to(x.dtype)
    target = torch.cat([written, none], 1)
    # A pair with two predicates asks for each of them half.
    target = target / target.sum(1, keepdim=True)
    return -(target * logs).sum() / written.sum().clamp_min(1)


def _truncated(x: Tensor, written: Tensor, mask: Tensor, k: int) -> Tensor:
    """One row for each written triple, against all others of its scene."""
    flat = x.masked_fill(~mask[..., None], -torch.inf).flatten(1)
    scene, label = written.flatten(1).nonzero(as_tuple=True)
    # Triples that are written beside it are no mistakes: they are left out of its row.
    rows = flat[scene].masked_fill(written.flatten(1)[scene], -torch.inf)
    own = flat[scene, label]
    rows = rows.scatter(1, label[:, None], own[:, None])
    return topk_entropy_loss(rows, label, min(k, rows.shape[1]))


def _scene_lml(x: Tensor, written: Tensor, mask: Tensor, k: int) -> Tensor:
    every = mask[..., None].expand_as(x).flatten(1)
    # A small scene may have fewer triples than k, and one may have more written than k.
    count = written.flatten(1).sum(1).clamp_min(k).minimum((every.sum(1) - 1).clamp_min(0))
    return lml_loss(x.flatten(1), written.flatten(1), count, mask=every)
