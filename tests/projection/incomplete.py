"""A linear teacher with exactly k labels a sample, of which one is written down.

Each loss trains the same linear model from the same start; the weight decay is chosen on
validation samples by the recall of their written labels, which is all that a user has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fourviews import projection

Loss = Callable[[Tensor, Tensor], Tensor]
N, D, K = 20, 6, 5
TRAIN, VALIDATE, TEST = 400, 400, 2000
DECAYS = (1e-4, 1e-3, 1e-2, 1e-1)


def sample(seed: int, noise: float) -> tuple[Tensor, Tensor, Tensor]:
    """Features, all K labels, and the index of the one that was written down, at random."""
    generator = torch.Generator().manual_seed(seed)
    rows = TRAIN + VALIDATE + TEST
    teacher = 2 * torch.randn(D, N, generator=generator) / D**0.5
    X = torch.randn(rows, D, generator=generator)
    scores = X @ teacher + noise * torch.randn(rows, N, generator=generator)
    truth = projection.hard_topk(scores, K).bool()
    lottery = torch.rand(rows, N, generator=generator).masked_fill(~truth, -1)
    return X, truth, lottery.argmax(-1)


def fit(X: Tensor, label: Tensor, loss: Loss, decay: float) -> Tensor:
    weights = torch.zeros(D + 1, N, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(X @ weights[:-1] + weights[-1], label) + decay / 2 * weights.square().sum()
        value.backward()
        return value

    optimizer.step(closure)
    return weights.detach()


def recalls(losses: Mapping[str, Loss], seed: int, noise: float) -> dict[str, float]:
    """Recall at K of all labels of the test samples, for each loss."""
    X, truth, label = sample(seed, noise)
    train, validate, test = (
        slice(0, TRAIN),
        slice(TRAIN, TRAIN + VALIDATE),
        slice(TRAIN + VALIDATE, None),
    )
    written = torch.nn.functional.one_hot(label, N).bool()
    found = {}
    for name, loss in losses.items():
        best = -1.0
        for decay in DECAYS:
            weights = fit(X[train], label[train], loss, decay)
            scores = X @ weights[:-1] + weights[-1]
            seen = float(projection.topk_recall(scores[validate], written[validate], K).mean())
            if seen > best:
                best = seen
                found[name] = float(projection.topk_recall(scores[test], truth[test], K).mean())
    return found


def interval(differences: list[float]) -> tuple[float, float]:
    """Mean and half the 95 % interval of paired differences, by Student's t (8 pairs: 2.365)."""
    assert len(differences) == 8
    values = torch.tensor(differences, dtype=torch.float64)
    return float(values.mean()), 2.365 * float(values.std()) / math.sqrt(len(values))
