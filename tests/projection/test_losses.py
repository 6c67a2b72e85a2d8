"""Losses against their definitions, references, edge cases; gradients; bad input."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from fourviews import projection

INF = math.inf
N = 7


def batch(seed: int, rows: int = 12, n: int = N, scale: float = 2.0):
    generator = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(rows, n, generator=generator, dtype=torch.float64)
    label = torch.randint(0, n, (rows,), generator=generator)
    weight = torch.rand(n, generator=generator, dtype=torch.float64) + 0.1
    return x.requires_grad_(), label, weight


# --- the laws of subsets -----------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 6, 9])
def test_elementary_polynomials_by_enumeration(n: int) -> None:
    x, _, _ = batch(n, 5, n, scale=5)
    for k in range(n + 1):
        found = projection.log_elementary(x, k)
        assert found.shape == (5, k + 1)
        for j in range(k + 1):
            sums = [x[:, list(s)].sum(-1) for s in itertools.combinations(range(n), j)]
            wanted = torch.logsumexp(torch.stack(sums), 0)
            assert torch.allclose(found[:, j], wanted, rtol=1e-13, atol=1e-13)


def test_marginals_by_enumeration() -> None:
    x, _, _ = batch(0, 4, 6)
    for k in range(7):
        subsets = list(itertools.combinations(range(6), k))
        law = torch.softmax(torch.stack([x[:, list(s)].sum(-1) for s in subsets], -1), -1)
        member = torch.tensor([[i in s for i in range(6)] for s in subsets]).double()
        found = projection.exactly_k_marginals(x, k)
        assert torch.allclose(found, law @ member, atol=1e-13)
    assert torch.allclose(projection.exactly_k_marginals(x, 1), torch.softmax(x, -1))
    assert not projection.exactly_k_marginals(x.detach(), 2).requires_grad
    assert torch.autograd.gradcheck(lambda x: projection.exactly_k_marginals(x, 2), (x,))
    far = torch.tensor([800.0, 0.0, -900.0, 799.0])
    assert projection.exactly_k_marginals(far, 2).tolist() == pytest.approx([1, 0, 0, 1])
    with pytest.raises(ValueError, match="finite"):
        projection.log_elementary(torch.tensor([0.0, INF]), 1)


# --- values ------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_k_of_1_is_cross_entropy_in_every_option(reduction: str, weighted: bool) -> None:
    x, label, weight = batch(1)
    label[3] = label[7] = -100
    options = {"reduction": reduction, "weight": weight if weighted else None}
    wanted = cross_entropy(x, label, **options)
    assert torch.allclose(projection.topk_entropy_loss(x, label, 1, **options), wanted)
    assert torch.allclose(projection.smooth_topk_svm_loss(x, label, 1, margin=0, **options), wanted)


@pytest.mark.parametrize("k", range(1, N + 1))
def test_topk_entropy_by_its_definition(k: int) -> None:
    for seed, scale in enumerate((0.5, 2.0, 20.0)):
        x, label, _ = batch(seed, scale=scale)
        found = projection.topk_entropy_loss(x, label, k, reduction="none")
        for i, y in enumerate(label.tolist()):
            others = sorted(x[i, j].item() for j in range(N) if j != y)
            total = sum(math.exp(v - x[i, y].item()) for v in others[: N - k])
            assert float(found[i].detach()) == pytest.approx(math.log1p(total), rel=1e-12)


@pytest.mark.parametrize("k", range(1, N + 1))
@pytest.mark.parametrize("tau, margin", [(1.0, 1.0), (0.3, 2.0), (5.0, 0.0)])
def test_smooth_svm_by_enumeration(k: int, tau: float, margin: float) -> None:
    x, label, _ = batch(2, scale=3)
    found = projection.smooth_topk_svm_loss(x, label, k, tau=tau, margin=margin, reduction="none")
    for i, y in enumerate(label.tolist()):
        every, having = [], []
        for subset in itertools.combinations(range(N), k):
            mean = sum(x[i, j] for j in subset) / k
            every.append((mean + margin * (y not in subset)) / tau)
            if y in subset:
                having.append(mean / tau)
        wanted = tau * (
            torch.logsumexp(torch.stack(every), 0) - torch.logsumexp(torch.stack(having), 0)
        )
        assert torch.allclose(found[i], wanted, rtol=1e-11, atol=1e-12)


def test_smooth_svm_tends_to_the_hinge() -> None:
    """τ → 0: max(0, m + mean of the k largest others - mean of the k largest with y)."""
    x, label, _ = batch(4)
    k = 3
    found = projection.smooth_topk_svm_loss(x, label, k, tau=1e-4, reduction="none")
    for i, y in enumerate(label.tolist()):
        others = x[i, [j for j in range(N) if j != y]].topk(k).values
        without = others.mean() + 1.0
        having = (x[i, y] + others[: k - 1].sum()) / k
        assert float((found[i] - (without - having).clamp_min(0)).detach()) == pytest.approx(
            0, abs=1e-3
        )


@pytest.mark.parametrize("k", [1, 3, N - 1])
def test_lml_loss_by_its_definition_and_in_all_forms_of_labels(k: int) -> None:
    x, _, weight = batch(5)
    labels = torch.rand(12, N, generator=torch.Generator().manual_seed(k)) < 0.3
    labels[0] = False
    y = projection.lml(x, k)
    rows = -(y.log() * labels * weight).sum(-1)
    none = projection.lml_loss(x, labels, k, weight=weight, reduction="none")
    assert torch.allclose(none, rows, rtol=1e-12)
    total = projection.lml_loss(x, labels, k, weight=weight, reduction="sum")
    assert torch.allclose(total, rows.sum(), rtol=1e-12)
    mean = projection.lml_loss(x, labels, k, weight=weight)
    assert torch.allclose(mean, rows.sum() / (labels * weight).sum(), rtol=1e-12)
    padded = torch.full((12, N + 2), -100)
    for i in range(12):
        found = labels[i].nonzero()[:, 0]
        padded[i, : len(found)] = found
        padded[i, len(found) : len(found) + 2] = found[0] if len(found) else -100  # repeated
    assert torch.allclose(projection.lml_loss(x, padded, k, weight=weight), mean)
    ks = torch.full((12,), k)
    assert torch.allclose(projection.lml_loss(x, labels, ks, weight=weight), mean)
    one = labels.int().argmax(-1)
    single = projection.lml_loss(x, one, k, reduction="none")
    assert torch.allclose(single, -y.gather(1, one[:, None])[:, 0].log(), rtol=1e-12)


def test_lml_loss_is_a_loss_where_y_rounds_to_0_or_1() -> None:
    """Value and gradient in closed form for two entries: log y = log σ((x1 - x2)/2)."""
    for gap in (-1e4, -200.0, -40.0, 0.0, 40.0, 200.0):
        for dtype in (torch.float32, torch.float64):
            x = torch.tensor([gap, 0.0], dtype=dtype, requires_grad=True)
            loss = projection.lml_loss(x, torch.tensor(0), 1)
            (g,) = torch.autograd.grad(loss, x)
            exact = math.log1p(math.exp(-abs(gap) / 2)) + max(-gap / 2, 0)
            rel = 8 * torch.finfo(dtype).eps
            assert float(loss.detach()) == pytest.approx(exact, rel=rel)
            slope = 0.5 / (1 + math.exp(min(gap / 2, 700)))
            assert g.tolist() == pytest.approx([-slope, slope], rel=rel)


def test_half_precision_is_summed_in_float32() -> None:
    x, label, _ = batch(6, 400, 60)
    for dtype in (torch.float16, torch.bfloat16):
        low = x.detach().to(dtype).requires_grad_()
        for loss in (
            projection.lml_loss,
            projection.topk_entropy_loss,
            projection.smooth_topk_svm_loss,
        ):
            value = loss(low, label, 3)
            assert value.dtype == torch.float32
            assert float(value.detach()) == pytest.approx(
                float(loss(low.detach().double(), label, 3)), rel=1e-5
            )
            (gradient,) = torch.autograd.grad(value, low)
            assert gradient.dtype == dtype and bool(gradient.isfinite().all())


@pytest.mark.parametrize("k", [1, 2, N])
def test_gradients(k: int) -> None:
    x, label, weight = batch(7, 5)
    label[2] = -100
    losses = [projection.topk_entropy_loss, projection.smooth_topk_svm_loss]
    if k < N:
        losses.append(projection.lml_loss)
    for loss in losses:

        def function(x, loss=loss):
            return loss(x, label, k, weight=weight)

        assert torch.autograd.gradcheck(function, (x,))
        assert torch.autograd.gradgradcheck(function, (x,))
        (gradient,) = torch.autograd.grad(function(x), x)
        assert torch.equal(gradient[2], torch.zeros(N, dtype=torch.float64))


def test_ignored_rows_may_hold_anything() -> None:
    x, label, _ = batch(8, 4)
    label[1] = -100
    bad = x.detach().clone()
    bad[1] = torch.nan
    bad.requires_grad_()
    for loss in (
        projection.lml_loss,
        projection.topk_entropy_loss,
        projection.smooth_topk_svm_loss,
    ):
        value = loss(bad, label, 2)
        assert torch.allclose(value, loss(x, label, 2))
        (gradient,) = torch.autograd.grad(value, bad)
        assert torch.equal(gradient[1], torch.zeros(N, dtype=torch.float64))
        nothing = loss(bad, torch.full((4,), -100), 2)
        assert float(nothing.detach()) == 0
        (gradient,) = torch.autograd.grad(nothing, bad)
        assert bool((gradient == 0).all())


def test_infinite_logits_in_losses() -> None:
    x = torch.tensor([[0.0, 1.0, -INF, 2.0]], dtype=torch.float64, requires_grad=True)
    label = torch.tensor([1])
    rest = x[:, [0, 1, 3]]
    for k in (1, 2):
        value = projection.topk_entropy_loss(x, label, k)
        assert torch.allclose(value, projection.topk_entropy_loss(rest, label, k))
        assert bool(torch.autograd.grad(value, x)[0].isfinite().all())
        value = projection.lml_loss(x, label, k)
        assert torch.allclose(value, projection.lml_loss(rest, label, k))
        assert bool(torch.autograd.grad(value, x)[0].isfinite().all())
    # Nothing left in J that counts: loss 0.
    last = projection.topk_entropy_loss(x, label, 3)
    assert float(last.detach()) == 0 and bool(torch.autograd.grad(last, x)[0].isfinite().all())
    for loss in (projection.topk_entropy_loss, projection.lml_loss):
        assert float(loss(x, torch.tensor([2]), 1).detach()) == INF


def test_masked_labels_and_masked_rows() -> None:
    x, _, _ = batch(9, 3)
    mask = torch.ones(3, N, dtype=torch.bool)
    mask[0, 4] = False
    mask[2] = False  # a row that has no labels either
    label = torch.tensor([1, 2, -100])
    found = projection.lml_loss(x, label, 2, mask=mask, reduction="none")
    alone = projection.lml_loss(x[0, [0, 1, 2, 3, 5, 6]], torch.tensor(1), 2)
    assert torch.allclose(found[0], alone) and float(found[2].detach()) == 0
    with pytest.raises(ValueError, match="mask leaves out"):
        projection.lml_loss(x, torch.tensor([4, 2, -100]), 2, mask=mask)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"label": torch.tensor([0, N])}, f"runs from 0 to {N}"),
        ({"label": torch.tensor([0, -1])}, "runs from -1"),
        ({"label": torch.tensor([0.0, 1.0])}, "dtype torch.float32"),
        ({"label": torch.tensor([0, 1, 2])}, r"shape \(3,\)"),
        ({"label": [0, 1]}, "is a list"),
        ({"k": N + 1}, f"k is {N + 1}"),
        ({"k": -1}, "k is -1"),
        ({"k": 1.0}, "k is 1.0"),
        ({"logits": torch.zeros(2, N, dtype=torch.long)}, "logits has dtype torch.int64"),
        ({"logits": torch.full((2, N), torch.nan)}, "NaN"),
        ({"logits": torch.full((2, N), INF)}, "inf"),
        ({"weight": torch.ones(N - 1)}, "weight is"),
        ({"weight": -torch.ones(N)}, "negative"),
        ({"reduction": "max"}, "reduction is 'max'"),
    ],
)
def test_bad_input_is_refused(change: dict, message: str) -> None:
    for loss in (
        projection.lml_loss,
        projection.topk_entropy_loss,
        projection.smooth_topk_svm_loss,
    ):
        arguments = {"logits": torch.zeros(2, N), "label": torch.tensor([0, 1]), "k": 2} | change
        positional = [arguments.pop(name) for name in ("logits", "label", "k")]
        with pytest.raises(ValueError, match=message):
            loss(*positional, **arguments)


def test_bad_input_of_single_losses() -> None:
    x, label = torch.zeros(2, N), torch.tensor([0, 1])
    for loss in (projection.topk_entropy_loss, projection.smooth_topk_svm_loss):
        with pytest.raises(ValueError, match="k is 0; it needs to be at least 1"):
            loss(x, label, 0)
    for options in ({"tau": 0.0}, {"tau": INF}, {"margin": -1.0}, {"margin": torch.nan}):
        with pytest.raises(ValueError, match=next(iter(options))):
            projection.smooth_topk_svm_loss(x, label, 2, **options)
    with pytest.raises(ValueError, match="-inf"):
        projection.smooth_topk_svm_loss(torch.full((2, N), -INF), label, 2)
    for mask in (torch.ones(3, dtype=torch.bool), torch.ones(2, N), [True] * N):
        with pytest.raises(ValueError, match="mask"):
            projection.lml_loss(x, label, 2, mask=mask)
    with pytest.raises(ValueError, match="boolean labels need the same"):
        projection.lml_loss(x, torch.zeros(2, 3, dtype=torch.bool), 2)
    with pytest.raises(ValueError, match="float32; it needs booleans"):
        projection.lml_loss(x, torch.zeros(2, N), 2)


def test_a_mask_of_integers_is_not_taken_for_indices() -> None:
    """As indices, zeros and ones would name the classes 0 and 1, whatever the mask says."""
    x = torch.zeros(2, N, dtype=torch.float64)
    labels = torch.zeros(2, N, dtype=torch.bool)
    labels[0, 3], labels[1, 5:] = True, True
    for dtype in (torch.uint8, torch.int64):
        for mask in (labels, torch.zeros_like(labels), torch.ones_like(labels)):
            with pytest.raises(ValueError, match="zeros and ones of .*labels.bool"):
                projection.lml_loss(x, mask.to(dtype), 2)
    # Lists of classes in the same shape: every class, two classes, and one, filled up.
    every = projection.lml_loss(x, torch.arange(N).expand(2, N), 2)
    assert torch.equal(every, projection.lml_loss(x, torch.ones_like(labels), 2))
    two = torch.zeros(1, 2, dtype=torch.float64)
    assert torch.isfinite(projection.lml_loss(two, torch.tensor([[0, 1]]), 1))
    filled = torch.full((2, N), -100)
    filled[:, :2] = torch.tensor([0, 1])
    first = torch.arange(N).expand(2, N) < 2
    assert torch.equal(projection.lml_loss(x, filled, 2), projection.lml_loss(x, first, 2))
