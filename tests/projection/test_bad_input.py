"""What the experiments of this part refuse: shapes, number types and numbers out of range."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from fourviews import projection

NAN, INF = math.nan, math.inf
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(20, 3, generator=GENERATOR)
LABEL = torch.arange(20) % 5
GROUP = torch.zeros(5, dtype=torch.int64)
FIVE = {"cross-entropy": cross_entropy}


def _confuse(label, group=GROUP, rate=0.5):
    return projection.confuse_labels(label, group, rate, torch.Generator().manual_seed(0))


def _fit(features=X, loss=lambda z: cross_entropy(z, LABEL), classes=5, **options):
    return projection.fit_linear_head(features, loss, classes, **{"decay": 0.1, **options})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: projection.exactly_k_marginals([1.0], 1), "x is"),
        (lambda: projection.exactly_k_marginals(torch.ones(3, dtype=torch.int64), 1), "x has"),
        (lambda: projection.paired_interval([1.0, 2.0], level="a"), "level"),
        (lambda: _confuse(LABEL.view(4, 5)), "label"),
        (lambda: _confuse(LABEL.float()), "label"),
        (lambda: _confuse(LABEL > 2), "label"),
        (lambda: _confuse([1]), "label"),
        (lambda: _confuse(LABEL, NAN * GROUP), "group"),
        (lambda: _confuse(LABEL, GROUP - 1), "group"),
        (lambda: _confuse(LABEL, rate=True), "rate"),
        (lambda: _fit([[1.0]]), "features"),
        (lambda: _fit(X.long()), "features"),
        (lambda: _fit(NAN * X), "features"),
        (lambda: _fit(X[:, :0]), "features"),
        (lambda: _fit(classes=0), "classes"),
        (lambda: _fit(iterations=0), "iterations"),
        (lambda: _fit(iterations=-1), "iterations"),
        (lambda: _fit(decay="a"), "decay"),
        (lambda: _fit(start=_fit(classes=6)), "start"),
        (lambda: _fit(loss=lambda z: z), "loss"),
        (lambda: _fit(loss=lambda z: 0 * z.sum() + INF), "loss"),
        (lambda: projection.NoisyLabels(X[:0], LABEL[:0], X, LABEL), "features"),
        (lambda: projection.NoisyLabels(X, LABEL, X[:0], LABEL[:0]), "test_features"),
        (lambda: projection.NoisyLabels(X, LABEL.float(), X, LABEL), "label"),
        (lambda: projection.NoisyLabels(X, LABEL, X, LABEL.float()), "test_label"),
        (lambda: projection.NoisyLabels(X, LABEL, X[:, :2], LABEL), "columns"),
        (
            lambda: projection.NoisyLabels(X, LABEL, X, LABEL).run(
                FIVE, rate=0.5, seed=0, decays=[0.1], validate=0.99
            ),
            "validate",
        ),
    ],
)
def test_bad_input_is_named(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_good_input_passes() -> None:
    """The same calls with what they ask for."""
    assert _confuse(LABEL).shape == LABEL.shape
    assert _fit(start=_fit()).weights.shape == (3, 5)
    row = projection.NoisyLabels(X, LABEL, X, LABEL).run(FIVE, rate=0.5, seed=0, decays=[0.1])[0]
    assert 0 <= row["top1"] <= row["topk"] == 1
