"""Softmax, sparsemax, hard top-k: optimality conditions, limits, references."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fourviews import projection

INF = math.inf


def logits(seed: int, *shape: int, scale: float = 2.0, ties: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(*shape, generator=generator, dtype=torch.float64)
    return x.round() if ties else x


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("scale", [0.0, 0.1, 2.0, 1e6])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_sparsemax_satisfies_the_optimality_condition(n: int, scale: float, ties: bool) -> None:
    """y is the projection of x iff no vertex has a smaller product with y - x."""
    x = logits(n, 30, n, scale=scale, ties=ties)
    for k in {0, 1, n // 2, n - 1, n}:
        y = projection.sparsemax(x, k)
        assert bool(((y >= 0) & (y <= 1)).all())
        assert bool((y.sum(-1) - k).abs().le(1e-14 * n * (1 + n)).all())
        slope = y - x
        best = slope.topk(k, largest=False).values.sum(-1)
        assert bool(((slope * y).sum(-1) - best).abs().le(1e-14 * n * (1 + scale)).all())


def test_sparsemax_has_the_threshold_of_its_paper() -> None:
    """Martins & Astudillo 2016: for k = 1 the threshold over the sorted support."""
    for seed in range(20):
        x = logits(seed, 9)
        s = x.sort(descending=True).values
        sums = s.cumsum(0)
        j = torch.arange(1, 10)
        size = int((1 + j * s > sums).sum())
        tau = (sums[size - 1] - 1) / size
        assert torch.allclose(projection.sparsemax(x), (x - tau).clamp_min(0), atol=1e-14)


def test_sparsemax_derivatives() -> None:
    x = logits(1, 5, 6).requires_grad_()
    for k in (1, 3):
        assert torch.autograd.gradcheck(lambda x, k=k: projection.sparsemax(x, k), (x,))
        y = projection.sparsemax(x, k)
        g = logits(2, 5, 6)
        (gradient,) = torch.autograd.grad(y, x, g)
        free = (y > 0) & (y < 1)
        mean = (g * free).sum(-1, keepdim=True) / free.sum(-1, keepdim=True).clamp_min(1)
        assert torch.allclose(gradient, torch.where(free, g - mean, 0.0), atol=1e-15)
    mapped = torch.vmap(lambda r: projection.sparsemax(r, 2, infeasible="nan"))(x)
    assert torch.equal(mapped, projection.sparsemax(x, 2))


@given(st.integers(0, 10**6), st.sampled_from([torch.float16, torch.bfloat16, torch.float32]))
def test_sparsemax_in_other_precisions(seed: int, dtype: torch.dtype) -> None:
    x = logits(seed, 4, 8, ties=seed % 2 == 0).to(dtype)
    y = projection.sparsemax(x, 3)
    assert y.dtype == dtype
    assert bool((y.double().sum(-1) - 3).abs().le(16 * torch.finfo(dtype).eps).all())
    wanted = projection.sparsemax(x.double(), 3)
    assert torch.allclose(y.double(), wanted, atol=16 * torch.finfo(dtype).eps, rtol=0)


def test_softmax_is_scaled_and_unbounded() -> None:
    x = logits(3, 4, 5)
    assert torch.allclose(projection.softmax(x, 2), 2 * torch.softmax(x, -1))
    assert float(projection.softmax(10 * x, 2).max()) > 1.5
    assert torch.allclose(projection.softmax(x, 1, 0), torch.softmax(x, 0))
    assert torch.autograd.gradcheck(lambda x: projection.softmax(x, 3), (x.requires_grad_(),))
    assert projection.softmax(torch.tensor([INF, 3.0, -INF])).tolist() == [1, 0, 0]
    quiet = projection.softmax(
        torch.tensor([[INF, INF], [-INF, -INF], [0.0, 0.0]]), infeasible="nan"
    )
    assert bool(quiet[:2].isnan().all()) and quiet[2].tolist() == [0.5, 0.5]
    for k, message in ((torch.tensor([1, 2]), "needs one integer"), (6, "k is 6"), (0.5, "k is 0")):
        with pytest.raises(ValueError, match=message):
            projection.softmax(x, k)
    with pytest.raises(ValueError, match="at least k = 1"):
        projection.softmax(torch.zeros(2), mask=torch.tensor([False, False]))


@pytest.mark.parametrize("name", ["sparsemax", "lml", "softmax"])
def test_cold_and_hot_limits(name: str) -> None:
    """Scaled up: hard top-k with shared ties (softmax: k = 1 only). Scaled down: k/n."""
    function = getattr(projection, name)
    for seed in range(5):
        x = logits(seed, 20, 6, ties=seed % 2 == 1)
        for k in (1, 3) if name != "softmax" else (1,):
            hard = projection.hard_topk(x, k)
            assert torch.allclose(function(1e5 * x, k), hard, atol=1e-12)
            flat = torch.full_like(x, k / 6)
            assert torch.allclose(function(1e-9 * x, k), flat, atol=1e-7)
    assert not torch.allclose(
        projection.softmax(1e5 * logits(0, 6), 3), projection.hard_topk(logits(0, 6), 3)
    )


def test_sparsemax_reaches_the_limit_and_lml_does_not() -> None:
    x = torch.tensor([2.0, 1.0, 0.0, -1.0], dtype=torch.float64)
    assert torch.equal(projection.sparsemax(x, 2), projection.hard_topk(x, 2))
    assert bool((projection.lml(x, 2) - projection.hard_topk(x, 2)).abs().gt(0.01).all())


def test_hard_topk_and_its_ties() -> None:
    x = torch.tensor([[1.0, 3, 1, 1, 0], [5, 4, 3, 2, 1]])
    assert projection.hard_topk(x, 2).tolist()[0] == pytest.approx([1 / 3, 1, 1 / 3, 1 / 3, 0])
    assert projection.hard_topk(x, 2, ties="first").tolist() == [[1, 1, 0, 0, 0]] * 2
    assert projection.hard_topk(x, torch.tensor([0, 5])).tolist() == [[0] * 5, [1] * 5]
    with pytest.raises(ValueError, match="ties is 'last'"):
        projection.hard_topk(x, 2, ties="last")
    for seed in range(5):
        x = logits(seed, 40, 8, ties=True)
        for ties in ("share", "first"):
            y = projection.hard_topk(x, 3, ties=ties)
            assert torch.allclose(y.sum(-1), torch.full((40,), 3.0, dtype=torch.float64))
            assert torch.allclose((x * y).sum(-1), x.topk(3).values.sum(-1))


def test_infinite_logits() -> None:
    x = torch.tensor([INF, 3.0, -INF, 2.5])
    assert projection.sparsemax(x, 2).tolist() == [1, 0.75, 0, 0.25]
    assert projection.hard_topk(x, 2).tolist() == [1, 1, 0, 0]
    assert projection.sparsemax(x, 3).tolist() == [1, 1, 0, 1]
    huge = torch.finfo(torch.float32).max
    assert projection.sparsemax(torch.tensor([huge, -huge, 0.0]), 1).tolist() == [1, 0, 0]
