"""Confused labels, linear heads, intervals, and the comparison of losses on them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn.functional import cross_entropy

from fourviews import projection


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- groups and confusion ----------------------------------------------------------------


def test_similar_classes_finds_clusters() -> None:
    for seed in range(5):
        middles = 100 * torch.eye(6)
        cluster = torch.arange(30) % 6
        centres = middles[cluster] + torch.randn(30, 6, generator=generator(seed))
        group = projection.similar_classes(centres, 5)
        assert bool((torch.bincount(group) == 5).all())
        for number in range(6):
            assert len(cluster[group == number].unique()) == 1


def test_equal_centres_are_grouped_all_the_same() -> None:
    group = projection.similar_classes(torch.zeros(12, 3), 4)
    assert torch.bincount(group).tolist() == [4, 4, 4]
    assert projection.similar_classes(torch.randn(4, 2), 1).sort().values.tolist() == [0, 1, 2, 3]


def test_confused_labels_stay_in_their_group_and_have_the_stated_law() -> None:
    group = torch.tensor([0, 1, 0, 1, 2, 2])
    label = torch.arange(6).repeat(20_000)
    for rate in (0.0, 0.3, 1.0):
        noisy = projection.confuse_labels(label, group, rate, generator(1))
        assert torch.equal(group[noisy], group[label])
        stayed = float((noisy == label).double().mean())
        assert stayed == pytest.approx(1 - rate / 2, abs=0.006)
        for c in range(6):
            counts = torch.bincount(noisy[(label == c) & (noisy != c)], minlength=6)
            assert int((counts > 0).sum()) == (1 if rate else 0)
    few = projection.confuse_labels(label, group, 0.2, generator(2))
    many = projection.confuse_labels(label, group, 0.8, generator(2))
    changed = few != label
    assert torch.equal(few[changed], many[changed])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: projection.similar_classes(torch.zeros(5, 2), 2), "divides 5"),
        (lambda: projection.similar_classes(torch.zeros(4, 2), 0), "size is 0"),
        (lambda: projection.similar_classes(torch.zeros(4), 2), "shape"),
        (lambda: projection.similar_classes(torch.full((4, 2), math.nan), 2), "NaN"),
        (
            lambda: projection.confuse_labels(
                torch.tensor([0, 4]), torch.zeros(4, dtype=torch.long), 0.5, generator()
            ),
            "label runs from 0 to 4; group has 4",
        ),
        (
            lambda: projection.confuse_labels(
                torch.tensor([0]), torch.zeros(1, dtype=torch.long), 1.5, generator()
            ),
            "rate is 1.5",
        ),
    ],
)
def test_bad_groups_and_rates_are_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# --- linear heads ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cross-entropy", "LML"])
def test_a_fitted_head_is_stationary(name: str) -> None:
    """The gradient of loss plus penalty vanishes; both losses are convex in the weights."""
    X = torch.randn(200, 4, generator=generator(), dtype=torch.float64) * 10 + 3
    X[:, 3] = 7.0
    label = torch.randint(0, 6, (200,), generator=generator())
    loss = projection.topk_losses(2)[name]
    head = projection.fit_linear_head(X, lambda x: loss(x, label), 6, decay=0.01, iterations=500)
    W, b = (p.clone().requires_grad_() for p in (head.weights, head.bias))
    inputs = (X - head.mean) / head.scale
    value = loss(inputs @ W + b, label) + 0.005 * W.square().sum()
    for gradient in torch.autograd.grad(value, (W, b)):
        assert float(gradient.abs().max()) < 1e-5
    assert torch.allclose(head(X), (inputs @ W + b).detach())
    assert bool((head.weights[3] == 0).all())  # the constant feature


def test_start_and_bad_input_of_heads() -> None:
    X, label = torch.randn(30, 2, generator=generator()), torch.arange(30) % 3

    def loss(x: torch.Tensor) -> torch.Tensor:
        return cross_entropy(x, label)

    head = projection.fit_linear_head(X, loss, 3, decay=0.1, iterations=200)
    again = projection.fit_linear_head(X, loss, 3, decay=0.1, iterations=1, start=head)
    assert torch.allclose(head.weights, again.weights, atol=1e-4)
    for options, message in (({"decay": -1.0}, "decay is -1"), ({"decay": math.nan}, "decay is")):
        with pytest.raises(ValueError, match=message):
            projection.fit_linear_head(X, loss, 3, **options)
    with pytest.raises(ValueError, match="features has shape"):
        projection.fit_linear_head(X[:0], loss, 3, decay=0.1)
    with pytest.raises(ValueError, match="NaN"):
        projection.fit_linear_head(X, lambda x: x.sum() * math.nan, 3, decay=0.1)


# --- intervals ---------------------------------------------------------------------------


def test_intervals_are_those_of_students_test_and_cover() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 6))
    mean, half = projection.paired_interval(a, b)
    wanted = stats.ttest_rel(a, b).confidence_interval()
    assert (mean - half, mean + half) == pytest.approx((wanted.low, wanted.high))
    covered = 0
    for _ in range(1000):
        mean, half = projection.paired_interval(0.3 + rng.normal(size=5), level=0.9)
        covered += abs(mean - 0.3) <= half
    assert 870 <= covered <= 930
    for args, message in (
        (([1.0],), "at least 2"),
        (([1.0, 2.0], [1.0]), "values has 2 numbers, others 1"),
        (([1.0, math.nan],), "not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            projection.paired_interval(*args)
    with pytest.raises(ValueError, match="level is 1"):
        projection.paired_interval([1.0, 2.0], level=1)


# --- the comparison ----------------------------------------------------------------------


def clusters(per_class: int, seed: int, spread: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Twelve classes in four groups of three."""
    places = torch.randn(4, 5, generator=generator(50)).repeat_interleave(3, 0) * 4
    places = places + torch.randn(12, 5, generator=generator(51))
    label = torch.arange(12).repeat(per_class)
    noise = torch.randn(len(label), 5, generator=generator(seed))
    return places[label] + spread * noise, label


def test_noise_in_groups_hurts_the_first_guess_more_than_the_best_three() -> None:
    X, y = clusters(40, 0)
    Xt, yt = clusters(60, 1)
    task = projection.NoisyLabels(X, y, Xt, yt, k=3)
    for c in range(12):  # the groups that the data were made with
        assert len(task.group[(c // 3) * 3 : (c // 3) * 3 + 3].unique()) == 1
    found = {
        rate: task.run(projection.topk_losses(3), rate=rate, seed=0, decays=(1e-2, 1e-1))
        for rate in (0.0, 1.0)
    }
    assert [row["loss"] for row in found[0.0]] == list(projection.topk_losses(3))
    for clean, noisy in zip(found[0.0], found[1.0], strict=True):
        assert clean["topk"] > 0.9
        # Which group it is can still be learnt, and nothing else.
        assert clean["topk"] - noisy["topk"] < 0.08
        assert clean["top1"] - noisy["top1"] > 0.15 and noisy["top1"] < 0.5
        assert clean["decay"] in (1e-2, 1e-1)
    assert found[1.0] == task.run(projection.topk_losses(3), rate=1.0, seed=0, decays=(1e-1, 1e-2))
    other = task.run(projection.topk_losses(3), rate=1.0, seed=1, decays=(1e-1, 1e-2))
    assert other != found[1.0]


def test_bad_comparisons_are_refused() -> None:
    X, y = clusters(4, 0)
    task = projection.NoisyLabels(X, y, X, y, k=3)
    losses = projection.topk_losses(3)
    with pytest.raises(ValueError, match="decays is empty"):
        task.run(losses, rate=0.0, seed=0, decays=())
    with pytest.raises(ValueError, match="validate is 1"):
        task.run(losses, rate=0.0, seed=0, decays=(1.0,), validate=1.0)
    with pytest.raises(ValueError, match="one label a row"):
        projection.NoisyLabels(X[:-1], y, X, y)
    with pytest.raises(ValueError, match="every class"):
        projection.NoisyLabels(X, y + 1, X, y)
    with pytest.raises(ValueError, match="group has 3"):
        projection.NoisyLabels(X, y, X, y, group=torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="divides 12"):
        projection.NoisyLabels(X, y, X, y, k=5)


def test_gains_are_paired_by_seed() -> None:
    rows = [
        {"loss": loss, "seed": seed, "topk": value}
        for loss, values in (("a", (0.1, 0.5, 0.3)), ("b", (0.2, 0.6, 0.5)))
        for seed, value in enumerate(values)
    ]
    table = projection.gains(rows[::-1], "topk", "a")
    assert [row[0] for row in table] == ["b", "a"]
    mean, half = projection.paired_interval([0.2, 0.6, 0.5], [0.1, 0.5, 0.3])
    assert table[0][1:] == pytest.approx((1.3 / 3, mean, half))
    assert table[1][2:] == (0, 0)
    for wrong, message in (
        (rows + rows[:1], "twice"),
        (rows[:-1], "other seeds for 'b'"),
        (rows[3:], "base is 'a'; rows has b"),
    ):
        with pytest.raises(ValueError, match=message):
            projection.gains(wrong, "topk", "a")
