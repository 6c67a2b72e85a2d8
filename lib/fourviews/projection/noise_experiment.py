"""Losses for the k best on fixed features whose labels were confused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy, one_hot

from .inputs import check_classes, check_count, check_features
from .label_noise import confuse_labels, similar_classes
from .linear_head import fit_linear_head
from .losses import lml_loss, smooth_topk_svm_loss, topk_entropy_loss
from .metrics import topk_recall

__all__ = ["NoisyLabels", "topk_losses"]

Loss = Callable[[Tensor, Tensor], Tensor]


def topk_losses(k: int) -> dict[str, Loss]:
    """The four losses of the comparison, each a mean over rows of logits with one label a row.

    Cross-entropy, truncated top-k entropy (Lapin et al. 2016), the likelihood of LML with k labels
    (Amos et al. 2019) and the smooth top-k SVM (Berrada et al. 2018).

    Parameters
    ----------
    k
        How many guesses are allowed.

    Returns
    -------
    dict
        Name to function of logits ``(rows, n)`` and labels ``(rows,)``.

    Raises
    ------
    ValueError
        At the call of a loss, as the functions of this package.
    """
    return {
        "cross-entropy": cross_entropy,
        "truncated entropy": lambda x, label: topk_entropy_loss(x, label, k),
        "LML": lambda x, label: lml_loss(x, label, k),
        "smooth SVM": lambda x, label: smooth_topk_svm_loss(x, label, k),
    }


@dataclass(frozen=True)
class NoisyLabels:
    """Fixed features, clean labels, and who may be confused with whom.

    Attributes
    ----------
    features, label
        ``(n, d)`` and ``(n,)``: what training and validation samples are drawn from.
    test_features, test_label
        Test samples, whose labels stay clean.
    group
        Group of each class, as from :func:`similar_classes`; made from the features if left out,
        in groups of k.
    k
        How many guesses are allowed.
    """

    features: Float[Tensor, "n d"]
    label: Int64[Tensor, "n"]
    test_features: Float[Tensor, "m d"]
    test_label: Int64[Tensor, "m"]
    k: int = 5
    group: Int64[Tensor, "c"] | None = None

    def __post_init__(self) -> None:
        for name, features, label in (
            ("", self.features, self.label),
            ("test_", self.test_features, self.test_label),
        ):
            check_features(features, f"{name}features")
            check_classes(label, 2**62, f"{name}label")
        if self.features.shape[1] != self.test_features.shape[1]:
            raise ValueError(
                f"features has {self.features.shape[1]} columns, test_features"
                f" {self.test_features.shape[1]}; they need the same"
            )
        if len(self.features) != len(self.label) or len(self.test_features) != len(self.test_label):
            raise ValueError(
                f"features has {len(self.features)} rows for {len(self.label)} labels,"
                f" test_features {len(self.test_features)} for {len(self.test_label)};"
                " they need one label a row"
            )
        classes = int(self.label.max()) + 1
        if int(self.test_label.max()) >= classes or len(self.label.unique()) != classes:
            raise ValueError("label needs every class from 0 on, test_label no other")
        check_count(self.k, classes)
        if self.group is None:
            scaled = self.features / self.features.std(0).clamp_min(1e-12)
            centres = torch.stack([scaled[self.label == c].mean(0) for c in range(classes)])
            object.__setattr__(self, "group", similar_classes(centres, self.k))
        elif len(self.group) != classes:
            raise ValueError(f"group has {len(self.group)} classes; it needs {classes}")

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.group)

    def run(
        self,
        losses: Mapping[str, Loss],
        *,
        rate: float,
        seed: int,
        decays: Sequence[float],
        validate: float = 0.25,
        iterations: int = 60,
    ) -> list[dict[str, float | str]]:
        """Train with each loss on the same confused labels, and test on clean ones.

        A share of the samples of each class, by the seed, is for validation. The weight decay is the
        one with the best recall at k of the *confused* validation labels: whoever has noisy labels
        has no others to choose by. Each fit begins at the one with the next larger decay.

        Parameters
        ----------
        losses
            Name and loss of logits and labels.
        rate
            Of the confusion, see :func:`confuse_labels`.
        seed
            Of the confusion and the split.
        decays
            Candidates.
        validate
            Share of the samples that is for validation.
        iterations
            Of each fit.

        Returns
        -------
        list of dict
            One a loss: ``loss``, ``rate``, ``seed``, ``decay``, and on the test samples ``top1`` and
            ``topk``, the shares whose clean label is first and among the k first.

        Raises
        ------
        ValueError
            If a number is out of range.
        """
        if not decays:
            raise ValueError("decays is empty; it needs at least one candidate")
        if not isinstance(validate, int | float) or not 0 < validate < 1:
            raise ValueError(f"validate is {validate!r}; it needs to lie between 0 and 1")
        generator = Generator().manual_seed(seed)
        order = torch.randperm(len(self.label), generator=generator)
        noisy = confuse_labels(self.label, self.group, rate, generator)
        held_out = self._balanced(order, validate)
        train, check = order[~held_out[order]], order[held_out[order]]
        if not len(train):
            raise ValueError(f"validate is {validate}; it leaves no sample for training")
        rows: list[dict[str, float | str]] = []
        seen = one_hot(noisy[check], self.classes).bool()
        clean = one_hot(self.test_label, self.classes).bool()
        for name, loss in losses.items():
            best, head = -1.0, None
            for decay in sorted(decays, reverse=True):
                head = fit_linear_head(
                    self.features[train],
                    lambda x, loss=loss: loss(x, noisy[train]),
                    self.classes,
                    decay=decay,
                    iterations=iterations,
                    start=head,
                )
                found = float(topk_recall(head(self.features[check]), seen, self.k).mean())
                if found > best:
                    best, chosen, used = found, head, decay
            scores = chosen(self.test_features)
            rows.append(
                {
                    "loss": name,
                    "rate": rate,
                    "seed": seed,
                    "decay": used,
                    "top1": float(topk_recall(scores, clean, 1).mean()),
                    "topk": float(topk_recall(scores, clean, self.k).mean()),
                }
            )
        return rows

    def _balanced(self, order: Tensor, share: float) -> Tensor:
        """Which samples are held out: the first of each class in the given order."""
        held_out = torch.zeros(len(self.label), dtype=torch.bool)
        for c in range(self.classes):
            rows = order[self.label[order] == c]
            held_out[rows[: max(1, round(share * len(rows)))]] = True
        return held_out
