"""Alternating inexact minimisation: theorems as printed and repaired (opt-10 … opt-13, 17, 18)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from fourviews.unrolled import (
    AlternatingStep,
    alternate,
    alternating_step,
    apollonius,
    matrix_pair,
    orthant_alignment,
    orthant_gain,
    threshold,
)

from .quadratics import quadratic, random_pair


def line(curvature: float, centre: float):
    return quadratic(
        torch.tensor([[curvature]], dtype=torch.float64),
        torch.tensor([[centre]], dtype=torch.float64),
    )


def never_rises(
    condition: Callable[[AlternatingStep], Tensor],
    *,
    relu: bool = False,
    cases: int = 100_000,
    unequal: bool = True,
) -> None:
    """Where the condition holds, h does not rise; and it holds in many of the random cases."""
    generator = torch.Generator().manual_seed(0)
    held = 0
    for d in (1, 2, 4):
        for _ in range(2 if unequal else 1):
            f, g, lipschitz, _ = random_pair(cases // 5, d, generator)
            for ratio, share in ((1.0, 1.0), (0.7, 1.0), (1.3, 0.5)):
                if ratio != 1.0 and not unequal:
                    continue
                step_g = (share / lipschitz)[:, None, None]
                # Step sizes differ from case to case: absorb them into the objectives.
                scaled_f, scaled_g = _scale(f, step_g), _scale(g, step_g)
                size = 10 ** (4 * torch.rand(cases // 5, 1, 1, generator=generator) - 2).double()
                Y = f.minimiser + size * torch.randn(
                    cases // 5, 1, d, generator=generator, dtype=torch.float64
                )
                if relu:
                    Y = torch.where(torch.rand(Y.shape, generator=generator) < 0.3, 0, Y.abs())
                step = alternating_step(
                    scaled_f, scaled_g, Y, ratio, 1.0, relu=relu, lipschitz=share + 0 * lipschitz
                )
                sure = condition(step)
                held += int(sure.sum())
                rise = step.after - step.before
                slack = 1e-12 * (step.after.abs() + step.before.abs())
                assert bool((rise <= slack)[sure].all()), float((rise - slack)[sure].max())
    assert held > cases // 10


def _scale(f, step: Tensor):
    """step · f, so that a step of size 1 on it is one of size ``step`` on f."""
    s = step[:, 0, 0]
    return type(f)(
        lambda Y: s * f.value(Y), lambda Y: step * f.gradient(Y), s * f.lipschitz, 0.0, f.minimiser
    )


# opt-10 -----------------------------------------------------------------------------------


@pytest.mark.claim("opt-10/repaired", verdict="corrected")
def test_opt_10_descent_under_the_gradient_ratio() -> None:
    never_rises(lambda step: step.by_gradient)


@pytest.mark.claim("opt-10/repaired", verdict="corrected")
def test_opt_10_descent_under_the_noise_ratio_of_one() -> None:
    never_rises(lambda step: step.by_noise)


@pytest.mark.mutation("opt-10")
def test_opt_10_the_printed_condition_is_noticed() -> None:
    with pytest.raises(AssertionError):
        never_rises(lambda step: step.printed)


@pytest.mark.mutation("opt-10")
def test_opt_10_a_larger_constant_is_noticed() -> None:
    with pytest.raises(AssertionError):
        never_rises(lambda step: step.step_sizes_fit & (step.noise_ratio <= 1.05), unequal=False)
    with pytest.raises(AssertionError):
        never_rises(
            lambda step: step.step_sizes_fit & (step.gradient_ratio <= 1.3 * step.threshold)
        )


@pytest.mark.claim("opt-10/printed", verdict="corrected")
def test_opt_10_counterexample_on_a_line() -> None:
    f, g = line(1.0, -3.0), line(1.0, 2.0)
    step = alternating_step(f, g, torch.zeros(1, 1, dtype=torch.float64), 0.5, 0.5)
    assert bool(step.printed) and not bool(step.guaranteed)
    assert float(step.noise_ratio) == 1.5 and float(step.threshold) == 2
    assert float(step.gradient_ratio) == 3
    assert float(step.after - step.before) == 0.3125 and step.status() == ["broken"]
    # The same in exact fractions, without this library.
    half = Fraction(1, 2)
    u = 0 - half * (0 + 3)
    y = u - half * (u - 2)

    def h(x: Fraction) -> Fraction:
        return ((x + 3) ** 2 + (x - 2) ** 2) / 2

    assert h(y) - h(Fraction(0)) == Fraction(5, 16)
    # Lipschitz constants of the gradients are meant: a quadratic has none for its values.
    assert float(f.lipschitz) == 1


# opt-10b ----------------------------------------------------------------------------------


def far_descent(ratio: float) -> None:
    """α₁ = ratio · α₂.  For ratio 1 the gradient ratio L_f‖y−y_f‖/(c_h‖y−y_h‖) tends to a constant
    far away, and 𝓛 = 1/(αL_g) exceeds it for small α."""
    generator = torch.Generator().manual_seed(1)
    f, g, lipschitz, c = random_pair(20_000, 3, generator)
    direction = torch.randn(20_000, 1, 3, generator=generator, dtype=torch.float64)
    Y = 1e8 * direction / direction.norm(dim=-1, keepdim=True)
    alpha = (0.5 * c / (f.lipschitz * g.lipschitz)).minimum(1 / lipschitz)[:, None, None]
    step = alternating_step(_scale(f, alpha), _scale(g, alpha), Y, ratio, 1.0)
    assert bool((step.after < step.before).all())


@pytest.mark.claim("opt-10b", verdict="conditional")
def test_opt_10b_equal_small_steps_descend_far_away() -> None:
    far_descent(1.0)


@pytest.mark.mutation("opt-10b")
def test_opt_10b_unequal_steps_are_noticed() -> None:
    with pytest.raises(AssertionError):
        far_descent(0.02)


@pytest.mark.claim("opt-10b", verdict="conditional")
def test_opt_10b_counterexample_with_unequal_steps() -> None:
    """A fixed ratio α₁/α₂ ≠ 1 rises however small the steps and however far away."""
    a, b = torch.tensor([1.0, 0.0]), torch.tensor([0.98, 0.19899749])
    weak = 1e-3 * torch.eye(2)
    F, G = (torch.outer(a, a) + weak).double(), (torch.outer(b, b) + weak).double()
    zero = torch.zeros(1, 2, dtype=torch.float64)
    f, g = quadratic(F, zero), quadratic(G, zero)
    ratio = 0.1
    # y H (ratio F + G) y < 0 for the worst direction
    M = (F + G) @ (ratio * F + G)
    value, vectors = torch.linalg.eigh(M + M.mT)
    assert float(value[0]) < 0
    for distance in (1.0, 1e3, 1e6):
        Y = distance * vectors[:, 0][None]
        for step_g in (1e-2, 1e-4, 1e-6):
            step = alternating_step(f, g, Y, ratio * step_g, step_g)
            assert float(step.after - step.before) > 1e2 * 1e-16 * float(step.before)
    # What does descend is the weighted sum ratio·f + g, to which equal steps belong.
    share = torch.full((1, 1, 1), ratio, dtype=torch.float64)
    weighted = alternating_step(_scale(f, share), g, Y[None], 1e-2, 1e-2)
    assert float(weighted.after) < float(weighted.before)


# opt-11 -----------------------------------------------------------------------------------


@pytest.mark.claim("opt-11", verdict="corrected")
def test_opt_11_limits_of_the_threshold() -> None:
    # equal steps: 1/(α L_g), one power of α and none of L_f
    for alpha in (1e-1, 1e-3, 1e-6):
        assert float(threshold(alpha, alpha, 2.0)) == pytest.approx(1 / (2 * alpha))
    # another ratio: bounded by 1/|1 − r|
    for r in (0.3, 0.9, 1.5):
        values = [float(threshold(r * a, a, 2.0)) for a in (1e-2, 1e-5, 1e-8)]
        assert values[-1] == pytest.approx(1 / abs(1 - r), rel=1e-6)
        assert max(values) <= 1 / abs(1 - r)
    # α₁ → 0 alone: 1, where the printed growth says infinity
    assert float(threshold(1e-12, 0.1, 2.0)) == pytest.approx(1)
    for small in (1e-4, 1e-8):
        assert float(threshold(small, 0.1, 2.0)) < 1e-2 / (small * 0.1 * 1.0 * 2.0)
    # L_g → 0 likewise; even equal steps grow like 1/α and not like 1/α²
    assert float(threshold(0.05, 0.1, 1e-12)) == pytest.approx(2)
    assert float(threshold(1e-6, 1e-6, 1.0)) < 1e-5 / (1e-6 * 1e-6)


@pytest.mark.mutation("opt-11")
def test_opt_11_the_printed_growth_is_noticed() -> None:
    printed = [1 / (a * a) for a in (1e-2, 1e-4)]
    found = [float(threshold(a, a, 1.0)) for a in (1e-2, 1e-4)]
    assert found[1] / found[0] == pytest.approx(100)
    assert printed[1] / printed[0] == pytest.approx(10_000)


# opt-12 -----------------------------------------------------------------------------------


@pytest.mark.claim("opt-12/circle", verdict="corrected")
@pytest.mark.parametrize("k", [0.2, 0.9, 1.0, 1.1, 5.0])
def test_opt_12_circle_of_apollonius(k) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    region = apollonius(a, b, k)
    y = 5 * torch.randn(20_000, 3, generator=generator, dtype=torch.float64) + a
    inside = region.contains(y)
    assert bool(region.contains(a)) and not bool(region.contains(b))
    if k == 1:
        assert region.kind == "half-space"
        assert torch.equal(inside, ((y - (a + b) / 2) @ (a - b)) >= 0)
        return
    distance = (y - region.centre).norm(dim=-1)
    within = distance <= region.radius if k < 1 else distance >= region.radius
    assert torch.equal(inside, within)
    assert region.kind == ("ball" if k < 1 else "complement")
    # Not centred at a or b, as the source has it.
    assert float((region.centre - a).norm()) > 1e-2 and float((region.centre - b).norm()) > 1e-2
    # Equality holds on the sphere.
    direction = torch.randn(100, 3, generator=generator, dtype=torch.float64)
    edge = region.centre + region.radius * direction / direction.norm(dim=-1, keepdim=True)
    assert torch.allclose((edge - a).norm(dim=-1), k * (edge - b).norm(dim=-1))


def test_opt_12_degenerate_regions() -> None:
    a = torch.zeros(2)
    assert apollonius(a, a, 0.5).kind == "point" and apollonius(a, a, 1.0).kind == "everything"
    assert float(apollonius(a, a + 1, 0.0).radius) == 0
    with pytest.raises(ValueError, match="k"):
        apollonius(a, a + 1, -1.0)


def lemma(scale: float) -> None:
    """In S(𝓛) the gradient ratio is at most 𝓛, and so is the noise ratio (indeed at most 1)."""
    generator = torch.Generator().manual_seed(2)
    F = torch.diag(torch.tensor([1.0, 2.0])).double()
    G = torch.diag(torch.tensor([1.5, 0.5])).double()
    p, q = torch.tensor([[1.0, 2.0]]).double(), torch.tensor([[-1.0, 0.0]]).double()
    f, g = quadratic(F, p), quadratic(G, q)
    minimiser = torch.linalg.solve(F + G, p @ F + q @ G, left=False)
    c = float(torch.linalg.eigvalsh(F + G)[0])
    for alpha in (0.35, 0.1):
        limit = float(threshold(alpha, alpha, g.lipschitz))
        region = apollonius(p[0], minimiser[0], scale * c * limit / float(f.lipschitz))
        Y = 4 * torch.randn(20_000, 1, 2, generator=generator, dtype=torch.float64)
        step = alternating_step(f, g, Y, alpha, alpha)
        inside = region.contains(Y[:, 0])
        assert 500 < int(inside.sum()) < 20_000
        assert bool((step.gradient_ratio[inside] <= limit * (1 + 1e-12)).all())
        assert bool((step.noise_ratio[inside] <= 1 + 1e-12).all())


@pytest.mark.claim("opt-12/lemma", verdict="verified")
def test_opt_12_lemma() -> None:
    lemma(1.0)


@pytest.mark.mutation("opt-12")
def test_opt_12_a_larger_region_is_noticed() -> None:
    with pytest.raises(AssertionError):
        lemma(2.5)


@pytest.mark.claim("opt-12/exchange", verdict="corrected")
def test_opt_12_exchanging_the_roles_is_about_half_steps() -> None:
    """Half steps are alternating steps with g first; a fall of h along them says nothing of y."""
    generator = torch.Generator().manual_seed(0)
    f, g, lipschitz, _ = random_pair(20_000, 2, generator)
    alpha = (1 / lipschitz)[:, None, None]
    f, g = _scale(f, alpha), _scale(g, alpha)
    one = 1 + 0 * lipschitz
    Y = 3 * torch.randn(20_000, 1, 2, generator=generator, dtype=torch.float64)
    first = alternating_step(f, g, Y, 1.0, 1.0, lipschitz=one)
    second = alternating_step(f, g, first.new, 1.0, 1.0, lipschitz=one)
    swapped = alternating_step(g, f, first.half, 1.0, 1.0, lipschitz=one)
    assert torch.allclose(swapped.half, first.new) and torch.allclose(swapped.new, second.half)
    sure = swapped.by_gradient
    slack = 1e-12 * (swapped.before + swapped.after)
    assert bool((swapped.after <= swapped.before + slack)[sure].all())
    at_y = alternating_step(g, f, Y, 1.0, 1.0, lipschitz=one)  # its condition, but for y
    assert bool((at_y.by_gradient & (first.after > first.before * (1 + 1e-3))).any())


# opt-13 -----------------------------------------------------------------------------------


def settled(values: Tensor) -> bool:
    return float((values[-10:].diff().abs() / values[-9:]).max()) < 1e-4


@pytest.mark.mutation("opt-13")
def test_opt_13_a_zigzag_would_be_noticed() -> None:
    assert settled(torch.ones(20)) and not settled(1 + 1e-3 * (-1.0) ** torch.arange(20))


@pytest.mark.claim("opt-13", verdict="conditional")
def test_opt_13_synthetic_example() -> None:
    n, d = 500, 128
    generator = torch.Generator().manual_seed(0)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    # The scale of S is not given; take that of W.
    S, W = 0.1 * randn(n, n), 0.1 * randn(d, d)
    f, g, h = matrix_pair(S, W, randn(n, d), randn(n, d))
    Y = 2 * torch.rand(n, d, generator=generator, dtype=torch.float64)
    for function in (f, g, h):
        assert float(function.gradient(function.minimiser).norm()) < 1e-8
    size = 0.05
    assert size > 2 / h.lipschitz  # the theorem says nothing here
    full = alternate(f, g, Y, size, size, 100, lipschitz=h.lipschitz)
    best = float(h.value(h.minimiser))
    values = full.values
    assert not any(bool(step.guaranteed) for step in full.steps)
    # Full cycles fall from far away and settle without a zigzag, not at the minimiser.
    assert bool((values[:20].diff() < 0).all())
    assert settled(values)
    assert float(values[-1]) > best * (1 + 1e-3)
    # Half steps go on between two values, one after f and one after g: that is the zigzag.
    halves = torch.stack([h.value(step.half) for step in full.steps])
    assert settled(halves)
    both = torch.stack([halves, values[1:]], 1).flatten()
    assert not settled(both)
    assert float(both[-20:].diff().abs().min() / both[-1]) > 1e-2
    # Inside the theorem's step sizes, descent is certified while far away and only there.
    small = alternate(f, g, 100 * Y, 1e-3, 1e-3, 60, lipschitz=h.lipschitz)
    assert small.steps[0].status() == ["guaranteed"]
    assert "guaranteed" in small.report()
    for step in small.steps:
        assert bool(step.fell) or not bool(step.guaranteed)


# opt-17 -----------------------------------------------------------------------------------


def two_forms(sign: float) -> None:
    generator = torch.Generator().manual_seed(0)
    f, g, _, _ = random_pair(2000, 3, generator)
    Y = torch.randn(2000, 1, 3, generator=generator, dtype=torch.float64).abs()
    a1, a2 = 0.2, 0.3
    step = alternating_step(f, g, Y, a1, a2, relu=True)
    grad_h = f.gradient(Y) + g.gradient(Y)
    noise = grad_h - a1 / a2 * f.gradient(Y) - g.gradient(Y - a1 * f.gradient(Y))
    centre = Y - a2 * grad_h + sign * a2 * noise
    # The minimiser of ‖z − centre‖² over z ≥ 0, by its optimality conditions.
    z, slope = step.new, step.new - centre
    scale = 1e-10 * (1 + centre.abs())
    assert bool(
        (z >= 0).all() and (slope >= -scale).all() and ((z * slope).abs() <= scale * (1 + z)).all()
    )


@pytest.mark.claim("opt-17", verdict="verified")
def test_opt_17_alternating_proximal_step_is_a_noisy_proximal_gradient_step() -> None:
    two_forms(1.0)


@pytest.mark.mutation("opt-17")
def test_opt_17_sign_of_the_noise_is_noticed() -> None:
    with pytest.raises(AssertionError):
        two_forms(-1.0)


# opt-18 -----------------------------------------------------------------------------------


@pytest.mark.claim("opt-18/repaired", verdict="corrected")
def test_opt_18_descent_with_relu() -> None:
    never_rises(lambda step: step.by_gradient, relu=True)
    never_rises(lambda step: step.by_noise, relu=True)


@pytest.mark.mutation("opt-18")
def test_opt_18_without_the_loss_at_the_boundary_is_noticed() -> None:
    with pytest.raises(AssertionError):
        never_rises(lambda step: step.step_sizes_fit & (step.noise_ratio <= 1), relu=True)
    with pytest.raises(AssertionError):
        never_rises(lambda step: step.printed, relu=True)


@pytest.mark.claim("opt-18/printed", verdict="corrected")
def test_opt_18_counterexample() -> None:
    # The pair of opt-10 far inside the orthant, where ReLU does nothing and 𝔇 = 0: δ = 1.4.
    f, g = line(1.0, 97.2), line(1.0, 101.8)
    step = alternating_step(
        f, g, torch.full((1, 1), 100.0, dtype=torch.float64), 0.5, 0.5, relu=True
    )
    assert float(step.kappa) == 0 and float(step.noise_ratio) == pytest.approx(1.4)
    # 𝓛' = 2 √(1−κ)/√2 ≥ 1.4 for κ ≤ 0.02
    assert bool(step.printed) and float(step.after - step.before) == pytest.approx(0.24)


@pytest.mark.claim("opt-18/constant", verdict="corrected")
def test_opt_18_the_gain_is_what_an_exact_step_gains() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(50_000, 1, 3, generator=generator, dtype=torch.float64).relu()
    s = torch.randn(50_000, 1, 3, generator=generator, dtype=torch.float64)
    p = (y - s).relu() - y
    exact = -(2 * s * p + p * p).sum((-2, -1))  # 2α (F(y) − F(p)) with α ∇h = s
    gain, kappa = orthant_gain(s, y), -orthant_alignment(s, y)
    assert torch.allclose(gain, exact)
    assert bool((gain >= (1 - kappa) * s.square().sum((-2, -1)) - 1e-12).all())


@pytest.mark.claim("opt-18/region", verdict="corrected")
def test_opt_18_the_region_grows_with_kappa_and_misses_the_faces() -> None:
    generator = torch.Generator().manual_seed(4)
    W = torch.randn(2, 2, generator=generator, dtype=torch.float64)
    b = torch.randn(2, generator=generator, dtype=torch.float64)
    grid = torch.arange(-120, 121, dtype=torch.float64) / 40
    y = torch.cartesian_prod(grid, grid)[:, None]
    slope = 2 * (y @ (W.mT @ W)) + 2 * (y - b)
    alignment = orthant_alignment(0.1 * slope, y)
    shares = [float((alignment >= -kappa).double().mean()) for kappa in (0.2, 0.4, 0.6, 0.8, 1.0)]
    assert shares == sorted(shares) and shares[0] < shares[3] and shares[4] == 1
    # Smaller steps: the region fills the plane except for the faces y_i = 0.
    interior = (y != 0).all(-1).all(-1)
    for small in (1e-2, 1e-4, 1e-8):
        alignment = orthant_alignment(small * slope, y)
    assert float((alignment[interior] >= -0.01).double().mean()) == 1
    face = ~interior
    assert float((alignment[face] < -0.2).double().mean()) > 0.3
    # There 𝔇 is at most minus the share of the gradient across the face, and in the end equal to it:
    # faces with a small share are reached, the others by no step.
    squares = slope.square()
    share = torch.where(y == 0, squares, 0.0).sum((-2, -1)) / squares.sum((-2, -1))
    for size in (1.0, 0.1, 1e-4):
        assert bool((orthant_alignment(size * slope, y) <= 1e-12 - share).all())
    assert torch.allclose(alignment, -share)
    assert float((share[face] < 0.4).double().mean()) > 0.1


def test_bad_steps() -> None:
    f, g = line(1.0, 0.0), line(1.0, 1.0)
    Y = torch.zeros(1, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="step_f"):
        alternating_step(f, g, Y, 0.0, 1.0)
    with pytest.raises(ValueError, match="step_g"):
        alternating_step(f, g, Y, 1.0, float("nan"))
    with pytest.raises(ValueError, match="steps"):
        alternate(f, g, Y, 1.0, 1.0, -1)
    assert alternate(f, g, Y, 0.5, 0.5, 0).values.shape == (0,)
    with pytest.raises(ValueError, match="fit"):
        matrix_pair(Y, Y, torch.zeros(2, 1), torch.zeros(2, 2))
