"""Losses: gradients, Fenchel–Young, smoothness, proximal maps and dual bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourviews.convex import CrossEntropy, Squared

cases = st.fixed_dictionaries(
    {
        "rows": st.integers(1, 5),
        "k": st.integers(2, 5),
        "scale": st.sampled_from([1e-6, 1e-2, 1.0, 30.0, 1e3]),
        "target": st.sampled_from(["soft", "hard"]),
        "seed": st.integers(0, 2**31 - 1),
    }
)
both = pytest.mark.parametrize("kind", ["squared", "cross_entropy"])
many = settings(max_examples=60)


def draw(kind, case, dtype=torch.float64):
    """A loss and a prediction, both scaled."""
    generator = torch.Generator().manual_seed(case["seed"])
    shape = (case["rows"], case["k"])
    F = case["scale"] * torch.randn(shape, generator=generator, dtype=torch.float64)
    Y = torch.randn(shape, generator=generator, dtype=torch.float64)
    if kind == "squared":
        return Squared((case["scale"] * Y).to(dtype)), F.to(dtype)
    if case["target"] == "hard":
        Y = torch.nn.functional.one_hot(Y.argmax(1), case["k"]).double()
    else:
        Y = torch.softmax(Y, 1)
    return CrossEntropy(Y.to(dtype)), F.to(dtype)


def other(F, case, salt=1):
    generator = torch.Generator().manual_seed(case["seed"] + salt)
    return case["scale"] * torch.randn(F.shape, generator=generator, dtype=F.dtype)


@both
@given(case=cases)
@many
def test_gradient_is_autograds(kind, case):
    loss, F = draw(kind, case)
    F.requires_grad_()
    loss.value(F).backward()
    assert torch.allclose(
        loss.gradient(F.detach()), F.grad, rtol=1e-12, atol=1e-14 * case["scale"] + 1e-15
    )


@both
def test_gradient_is_the_finite_difference(kind):
    loss, F = draw(kind, {"rows": 3, "k": 4, "scale": 1.0, "target": "soft", "seed": 0})
    direction = torch.randn(F.shape, generator=torch.Generator().manual_seed(1), dtype=F.dtype)
    h = 1e-6
    slope = float(loss.value(F + h * direction) - loss.value(F - h * direction)) / (2 * h)
    assert slope == pytest.approx(float((loss.gradient(F) * direction).sum()), rel=1e-7)


def test_values_are_torchs():
    generator = torch.Generator().manual_seed(0)
    F = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 3, 2, 2, 1, 0])
    hard = CrossEntropy(torch.nn.functional.one_hot(labels, 4).double())
    expected = torch.nn.functional.cross_entropy(F, labels, reduction="sum")
    assert float(hard.value(F)) == pytest.approx(float(expected), rel=1e-14)
    Y = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    expected = 0.5 * torch.nn.functional.mse_loss(F, Y, reduction="sum")
    assert float(Squared(Y).value(F)) == pytest.approx(float(expected), rel=1e-14)


@both
@given(case=cases)
@many
def test_fenchel_young(kind, case):
    """L(F) + L*(V) >= <V, F>, with equality at V = gradient L(F)."""
    loss, F = draw(kind, case)
    V = loss.gradient(F)
    total = float(loss.value(F) + loss.conjugate(V))
    inner = float((V * F).sum())
    size = (
        1e-300
        + float((V * F).abs().sum())
        + abs(float(loss.value(F)))
        + abs(float(loss.conjugate(V)))
    )
    assert abs(total - inner) <= 1e-13 * size * F.numel() + (
        1e-11 if kind == "cross_entropy" else 0
    )
    G = other(F, case)
    # q = V + Y is a probability, so rounding there is absolute; squared loss scales throughout.
    unit = 1.0 if kind == "cross_entropy" else 0.0
    for _ in range(2):
        terms = loss.value(G), loss.conjugate(V), (V * G).abs().sum()
        slack = 1e-12 * (unit + sum(abs(float(term)) for term in terms))
        assert float(loss.value(G) + loss.conjugate(V)) >= float((V * G).sum()) - slack
        F, G, V = G, F, loss.gradient(G)


def test_conjugate_of_cross_entropy_is_infinite_off_the_simplex():
    loss = CrossEntropy(torch.tensor([[0.2, 0.8]], dtype=torch.float64))
    zero = torch.zeros(1, 2, dtype=torch.float64)
    assert torch.isfinite(loss.conjugate(zero))
    for off in ([[0.1, 0.0]], [[-0.3, 0.3]], [[1.0, -1.0]]):
        assert loss.conjugate(torch.tensor(off, dtype=torch.float64)) == torch.inf


@both
@given(case=cases)
@many
def test_convex_and_smooth(kind, case):
    """0 <= L(G) - L(F) - <L'(F), G - F> <= smoothness/2 |G - F|²."""
    loss, F = draw(kind, case)
    G = other(F, case, 2)
    remainder = float(loss.value(G) - loss.value(F) - (loss.gradient(F) * (G - F)).sum())
    slack = 1e-12 * (
        1e-300 + abs(float(loss.value(G))) + abs(float(loss.value(F))) + float((G - F).abs().sum())
    )
    assert -slack <= remainder <= 0.5 * loss.smoothness * float((G - F).square().sum()) + slack
    change = (loss.gradient(G) - loss.gradient(F)).norm()
    assert float(change) <= loss.smoothness * float((G - F).norm()) * (1 + 1e-12) + 1e-15


def test_smoothness_of_cross_entropy_is_attained():
    # Two classes at even odds, along (1, -1)/√2: the second derivative is 1/2.
    loss = CrossEntropy(torch.tensor([[0.5, 0.5]], dtype=torch.float64))
    direction = torch.tensor([[1.0, -1.0]], dtype=torch.float64) / np.sqrt(2)
    rate = float((loss.gradient(1e-4 * direction) - loss.gradient(-1e-4 * direction)).norm()) / 2e-4
    assert rate == pytest.approx(loss.smoothness, rel=1e-6)


@both
@pytest.mark.parametrize("step", [1e-8, 1e-3, 1.0, 1e3, 1e8])
@given(case=cases)
@settings(max_examples=20)
def test_prox_is_optimal(kind, step, case):
    """P = prox(G) exactly when P + step L'(P) = G; distances shrink."""
    loss, G = draw(kind, case)
    P = loss.prox(G, step)
    assert torch.isfinite(P).all()

    def value(F):
        return float(loss.value(F) + (F - G).square().sum() / (2 * step))

    best = value(P)
    # Cross-entropy is a difference of scores: they, not the loss, set the rounding.
    slack = 1e-12 * (1e-300 + abs(best) + abs(float(loss.value(P))))
    slack += 1e-15 * float(P.abs().sum()) if kind == "cross_entropy" else 0.0
    for candidate in (
        G,
        P + 1e-3 * other(G, case, 3),
        P - 1e-6 * other(G, case, 4),
        torch.zeros_like(G),
    ):
        assert best <= value(candidate) + slack
    # Strong convexity with modulus 1/step turns a residual into a distance.
    residual = loss.gradient(P) + (P - G) / step
    assert float(residual.norm()) * step <= 1e-6 * (float(P.norm()) + step)


@both
@given(case=cases, cap=st.sampled_from([0.0, 1e-6, 0.3, 1.0, 10.0]))
@many
def test_dual_bound_is_attained_and_admissible(kind, case, cap):
    """It is -L*(sR) for an admissible s, and no admissible s on a grid gives more."""
    loss, F = draw(kind, case)
    R = loss.gradient(F)
    bound = loss.dual_bound(R, cap)
    top = min(1.0, cap) if kind == "cross_entropy" else cap
    grid = np.linspace(0.0 if kind == "cross_entropy" else -top, top, 101)
    values = [-float(loss.conjugate(s * R)) for s in grid]
    size = 1e-300 + max(abs(v) for v in values if np.isfinite(v))
    assert bound >= max(values) - 1e-9 * size
    # With cap infinite in the polar's place the bound is one on the minimum of L over F = 0·Z.
    assert bound <= float(loss.value(torch.zeros_like(F))) * (1 + 1e-12)


@both
@given(case=cases)
@many
def test_dual_bound_lies_below_every_penalised_objective(kind, case):
    """With cap = 1/|R|: below L(F) + |F| for every F (the identity map, Euclidean norm)."""
    loss, F = draw(kind, case)
    R = loss.gradient(F)
    size = float(R.norm())
    bound = loss.dual_bound(R, 1.0 / size if size > 0 else np.inf)
    for scale in (0.0, 1e-3, 1.0, 1e3):
        G = scale * other(F, case, 5)
        assert bound <= float(loss.value(G) + G.norm()) * (1 + 1e-12) + 1e-300


@both
def test_dual_bound_is_tight_at_the_optimum(kind):
    """At the prox of the norm the bound equals the objective."""
    loss, _ = draw(kind, {"rows": 3, "k": 3, "scale": 2.0, "target": "soft", "seed": 4})
    F = torch.zeros_like(loss.target).requires_grad_()
    weight = 0.05
    with torch.no_grad():
        Z = torch.zeros_like(F)
        for _ in range(5000):
            point = Z - loss.gradient(Z)
            length = point.norm()
            Z = max(0.0, 1 - weight / float(length)) * point
    R = loss.gradient(Z)
    objective = float(loss.value(Z) + weight * Z.norm())
    assert loss.dual_bound(R, weight / float(R.norm())) == pytest.approx(objective, rel=1e-8)


@both
@pytest.mark.parametrize("scale", [1e4, 1e8])
def test_huge_scores_stay_finite(kind, scale):
    loss, F = draw(kind, {"rows": 3, "k": 4, "scale": scale, "target": "hard", "seed": 1})
    for result in (
        loss.value(F),
        loss.gradient(F),
        loss.conjugate(loss.gradient(F)),
        loss.prox(F, 1.0),
    ):
        assert torch.isfinite(result).all()
    assert np.isfinite(loss.dual_bound(loss.gradient(F), 1.0))


@both
def test_precision_follows(kind):
    loss, F = draw(
        kind, {"rows": 2, "k": 3, "scale": 1.0, "target": "soft", "seed": 2}, torch.float32
    )
    assert loss.gradient(F).dtype == loss.prox(F, 0.5).dtype == torch.float32
    assert loss.to(torch.float64).target.dtype == torch.float64
    single, double = loss.prox(F, 0.5), loss.to(torch.float64).prox(F.double(), 0.5)
    assert torch.allclose(single.double(), double, atol=1e-5)
