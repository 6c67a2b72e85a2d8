"""Energies that each make one kind of layer (opt-01 … opt-05, opt-14, opt-16)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fourviews.attention import attention
from fourviews.unrolled import (
    PROXIMAL_MAPS,
    SIGMAS,
    AttentionEnergy,
    FeedForwardEnergy,
    HopfieldEnergy,
    MLPEnergy,
    NonNegative,
    Sigma,
    SumEnergy,
    implicit_minimiser,
    irls_step,
    proximal_kind,
    proximal_penalty,
)

from .cases import batches, rises


def randn(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


# opt-01 -----------------------------------------------------------------------------------


def gradients_agree(iterations: int, anchoring: float) -> None:
    """Unrolled and implicit gradients of a meta loss at the minimiser of a convex energy."""
    X, W = randn(0, 6, 3), 0.5 * randn(1, 3, 3)
    H = randn(2, 3, 3)
    H = H @ H.mT / 3
    target = randn(3, 6, 3)

    def slope(Y: Tensor, W: Tensor, H: Tensor, X: Tensor) -> Tensor:
        # log cosh of each feature of YW, a quadratic, and an anchor: strongly convex in Y.
        return torch.tanh(Y @ W) @ W.mT + 0.5 * Y @ (H + H.mT) + anchoring * (Y - X)

    leaves = [p.clone().requires_grad_() for p in (W, H, X)]
    Y = X.clone()
    for _ in range(iterations):
        Y = Y - 0.1 * slope(Y, *leaves)
    unrolled = torch.autograd.grad((Y - target).square().sum(), leaves)
    with torch.no_grad():
        best = X.clone()
        for _ in range(3000):
            best = best - 0.1 * slope(best, W, H, X)
    Z = implicit_minimiser(slope, best, *leaves)
    assert torch.equal(Z, best)
    implicit = torch.autograd.grad((Z - target).square().sum(), leaves)
    for a, b in zip(unrolled, implicit, strict=True):
        assert float((a - b).norm() / b.norm()) < 1e-7


@pytest.mark.claim("opt-01", verdict="verified")
@pytest.mark.parametrize("anchoring", [0.3, 2.0])
def test_opt_01_implicit_and_unrolled_gradients_agree(anchoring) -> None:
    gradients_agree(600, anchoring)


@pytest.mark.mutation("opt-01")
def test_opt_01_an_unconverged_minimiser_is_noticed() -> None:
    with pytest.raises(AssertionError):
        gradients_agree(5, 0.3)


@pytest.mark.claim("opt-01", verdict="verified")
def test_opt_01_through_attention() -> None:
    """The attention energy with a strong anchor is convex near it; its steps are unrolled."""
    X, W = randn(4, 5, 3), randn(5, 3, 3)
    leaves = [W.clone().requires_grad_(), X.clone().requires_grad_()]

    def energy(W: Tensor, X: Tensor) -> AttentionEnergy:
        return AttentionEnergy(weight=W, anchor=X, anchoring=8.0)

    Y = X
    for _ in range(300):
        Y = energy(*leaves).step(Y)
    unrolled = torch.autograd.grad(Y.pow(3).sum(), leaves)
    Z = implicit_minimiser(lambda Y, W, X: energy(W, X).gradient(Y), Y.detach(), *leaves)
    implicit = torch.autograd.grad(Z.pow(3).sum(), leaves)
    for a, b in zip(unrolled, implicit, strict=True):
        assert float((a - b).norm() / b.norm()) < 1e-7


def test_implicit_refuses_what_has_no_gradient() -> None:
    Y = torch.ones(2, 1, dtype=torch.float64)
    p = torch.ones((), dtype=torch.float64, requires_grad=True)
    with pytest.raises(ValueError, match="stationary"):
        implicit_minimiser(lambda Y, p: p * Y, Y, p)
    saddle = implicit_minimiser(lambda Y, p: p * Y * torch.tensor([[1.0], [-1.0]]), 0 * Y, p)
    with pytest.raises(RuntimeError, match="positive definite"):
        saddle.sum().backward()


# opt-02, opt-03 ---------------------------------------------------------------------------


def prox_by_definition(sigma: Sigma | str, layer=None) -> None:
    """E(z) + ½‖z − y‖² is smallest at the layer: no gradient there, and larger elsewhere."""
    for seed in range(5):
        # Small enough that tanh does not saturate: its inverse is ill-conditioned there.
        W, b, Y = randn(seed, 4, 4), randn(seed + 10, 4), 0.5 * randn(seed + 20, 6, 4)
        energy = MLPEnergy(W, b, sigma)
        Z = energy.step(Y) if layer is None else layer(energy, Y)
        assert float((energy.gradient(Z) + Z - Y).abs().max()) < 1e-8

        def objective(Z: Tensor, energy=energy, Y=Y) -> Tensor:
            return energy.per_token(Z) + 0.5 * (Z - Y).square().sum(-1)

        least = objective(Z)
        for scale in (1e-2, 0.1, 1.0):
            other = objective(Z + scale * randn(seed + 30, *Z.shape))
            assert bool((other > least).all())


@pytest.mark.claim("opt-02", verdict="corrected")
@pytest.mark.parametrize("name", list(SIGMAS))
def test_opt_02_proximal_map_is_a_layer(name) -> None:
    prox_by_definition(name)


@pytest.mark.claim("opt-02", verdict="corrected")
@pytest.mark.parametrize("name", list(SIGMAS))
def test_opt_02_the_layer_lowers_the_energy(name) -> None:
    energy = MLPEnergy(randn(1, 4, 4), randn(2, 4), name)
    Y = energy.step(3 * randn(0, 35_000, 1, 4))  # a point where the energy is finite
    for _ in range(3):
        Z = energy.step(Y)
        before, after = energy.value(Y), energy.value(Z)
        fall = 0.5 * (Z - Y).square().sum((-2, -1))
        finite = torch.isfinite(before)
        assert int(finite.sum()) > 17_500
        slack = 1e-10 * (1 + before.abs())
        assert bool((after <= before - fall + slack)[finite].all())
        Y = Z


def least_over_all_factors(neurons) -> None:
    """E(z) + ½‖z − y‖² over all z = Wᵀu, from the definition: for ReLU σ̃*(u) = ½u² on u ≥ 0.

    W is not square and not of full rank, so there is no inverse, and many u have the same z.
    """
    for seed, (m, d) in enumerate(((3, 5), (6, 2), (4, 4), (1, 1))):
        W, b, u = randn(seed, m, d), randn(seed + 9, m), randn(seed + 5, 4000, m).relu()
        if m > 3:
            W[-1] = W[0]
        for y in (randn(seed + 7, 4000, d), u @ W):  # the second have a finite energy

            def objective(u: Tensor, W=W, b=b, y=y) -> Tensor:
                z = u @ W
                energy = 0.5 * u.square().sum(-1) - u @ b - 0.5 * z.square().sum(-1)
                return energy + 0.5 * (z - y).square().sum(-1)

            best = neurons(y @ W.mT, b)
            for other in (u, (best + 0.1 * randn(seed + 3, 4000, m)).relu()):
                assert bool((objective(best) <= objective(other) + 1e-12).all())


@pytest.mark.claim("opt-02", verdict="corrected")
def test_opt_02_any_matrix_and_relu() -> None:
    least_over_all_factors(lambda p, b: (p + b).relu())


@pytest.mark.mutation("opt-02")
def test_opt_02_other_neurons_are_noticed() -> None:
    for neurons in (lambda p, b: p.relu() + 0 * b, lambda p, b: (p - b).relu()):
        with pytest.raises(AssertionError):
            least_over_all_factors(neurons)


@pytest.mark.mutation("opt-02")
def test_opt_02_the_printed_layer_and_falling_activations_are_noticed() -> None:
    # As printed there is W where Wy belongs; and Wᵀ has to stand outside.
    printed = lambda e, Y: e.sigma.forward(e.weight.sum(0) + e.offset) @ e.weight + 0 * Y  # noqa: E731
    outside = lambda e, Y: e.sigma.forward(Y @ e.weight.mT + e.offset) @ e.weight.mT  # noqa: E731
    for layer in (printed, outside):
        with pytest.raises(AssertionError):
            prox_by_definition("asinh", layer)
    falling = Sigma("falling", lambda a: -0.5 * a, lambda u: -2 * u, lambda a: -0.25 * a * a)
    with pytest.raises(AssertionError):
        prox_by_definition(falling)
    with pytest.raises(ValueError, match="singular"):
        MLPEnergy(torch.ones(3, 3))


def test_conjugates_and_gradient_of_the_mlp_energy() -> None:
    a = torch.linspace(-3, 3, 61, dtype=torch.float64)
    for sigma in SIGMAS.values():
        assert torch.allclose(sigma.inverse(sigma.forward(a)), a, atol=1e-9)
        free = a.clone().requires_grad_()
        (slope,) = torch.autograd.grad(sigma.integral(free).sum(), free)
        assert torch.allclose(slope, sigma.forward(a))
        u = sigma.forward(a)
        young = sigma.conjugate(u)[:, None] + sigma.integral(a) - u[:, None] * a
        assert float(young.min()) > -1e-9 and float(young.diagonal().abs().max()) < 1e-9
    assert torch.isinf(SIGMAS["tanh"].conjugate(torch.tensor([1.5]).double())).all()
    energy = MLPEnergy(randn(0, 3, 3), randn(1, 3), "asinh")
    Y = randn(2, 5, 3).requires_grad_()
    (slope,) = torch.autograd.grad(energy.value(Y), Y)
    assert torch.allclose(slope, energy.gradient(Y))


@pytest.mark.claim("opt-03", verdict="verified")
def test_opt_03_two_layers_see_a_semidefinite_matrix() -> None:
    for seed, (m, d) in enumerate(((4, 4), (3, 5), (6, 2))):
        W, b, Y = randn(seed, m, d), randn(seed + 9, m), randn(seed + 5, 7, d)
        layer = lambda Y, W=W, b=b: torch.tanh(Y @ W.mT + b) @ W  # noqa: E731
        inner = torch.tanh(Y @ W.mT + b)
        assert torch.allclose(layer(layer(Y)), torch.tanh(inner @ (W @ W.mT) + b) @ W)
        values = torch.linalg.eigvalsh(W @ W.mT)
        assert float(values.min()) > -1e-12
        assert int((values > 1e-10).sum()) == min(m, d)


@pytest.mark.mutation("opt-03")
def test_opt_03_the_other_order_is_noticed() -> None:
    W, Y = randn(0, 4, 4), randn(1, 7, 4)
    inner = torch.tanh(Y @ W.mT)
    two = torch.tanh((inner @ W) @ W.mT) @ W
    assert not torch.allclose(two, torch.tanh(inner @ (W.mT @ W)) @ W)
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    assert torch.equal(turn @ turn, -torch.eye(2))  # untied transposes give anything


# opt-04 -----------------------------------------------------------------------------------


def hopfield_never_rises(step) -> None:
    generator = torch.Generator().manual_seed(0)
    seen = 0
    for dtype in (torch.float64, torch.float32):
        for m, d, beta in ((1, 2, 1.0), (5, 3, 0.2), (7, 4, 30.0), (3, 3, 2.0)):
            for scale in (0.1, 10.0):
                S = (scale * torch.randn(m, d, generator=generator)).to(dtype)
                energy = HopfieldEnergy(S, beta)
                Y = torch.randn(8000, 1, d, generator=generator)
                Y = (Y * 10 ** (4 * torch.rand(8000, 1, 1, generator=generator) - 2)).to(dtype)
                Z = step(energy, Y)
                size = Y.abs().amax((-2, -1)) + Z.abs().amax((-2, -1)) + scale * 5
                slack = 50 * torch.finfo(dtype).eps * size**2 + (10 * torch.finfo(dtype).eps / beta)
                assert bool((energy.value(Z) <= energy.value(Y) + slack).all())
                seen += len(Y)
    assert seen >= 100_000


@pytest.mark.claim("opt-04/repaired", verdict="corrected")
@pytest.mark.parametrize("relaxation", [0.5, 1.0, 2.0])
def test_opt_04_hopfield_step_never_raises_the_energy(relaxation) -> None:
    hopfield_never_rises(lambda e, Y: e.step(Y, relaxation))


@pytest.mark.mutation("opt-04")
def test_opt_04_longer_steps_and_another_sharpness_are_noticed() -> None:
    with pytest.raises(AssertionError):
        hopfield_never_rises(lambda e, Y: e.step(Y, 2.1))
    with pytest.raises(AssertionError):
        hopfield_never_rises(lambda e, Y: HopfieldEnergy(e.patterns, 3 * e.beta).step(Y))


@pytest.mark.claim("opt-04/printed", verdict="corrected")
def test_opt_04_counterexample_to_the_printed_step() -> None:
    S = torch.tensor([[0.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    energy, y = HopfieldEnergy(S), torch.zeros(1, 2, dtype=torch.float64)
    printed = (S @ torch.softmax(S @ y[0], 0))[None]
    assert printed.tolist() == [[1.0, 0.0]]
    assert float(energy.value(printed) - energy.value(y)) == 0.5
    assert energy.value(energy.step(y)) < energy.value(y)


@pytest.mark.claim("opt-04/repaired", verdict="corrected")
def test_opt_04_the_step_is_cross_attention() -> None:
    S, Y = randn(0, 7, 3), randn(1, 4, 5, 3)
    assert torch.allclose(HopfieldEnergy(S, 2.5).step(Y), attention(Y, S, S, scale=2.5))
    free = Y.clone().requires_grad_()
    energy = HopfieldEnergy(S, 2.5)
    (slope,) = torch.autograd.grad(energy.value(free).sum(), free)
    assert torch.allclose(slope, energy.gradient(Y))


# opt-05 -----------------------------------------------------------------------------------


@pytest.mark.claim("opt-05", verdict="verified")
def test_opt_05_a_jacobi_sweep_of_reweighted_least_squares_is_attention_on_a_graph() -> None:
    generator = torch.Generator().manual_seed(0)
    for n in (2, 5, 12):
        Y, X = randn(n, n, 3), randn(n + 1, n, 3)
        adjacency = torch.rand(n, n, generator=generator) < 0.5
        adjacency = adjacency | adjacency.mT | torch.eye(n, dtype=torch.bool)
        energy = AttentionEnergy(graph=adjacency, anchor=X, anchoring=0.6)
        w = energy.weights(Y)
        off = w - torch.diag(w.diagonal())
        # The system (2L + μ) Y = μX, split into its diagonal with the loops' 2w_ii added on both
        # sides, and the rest.
        diagonal = 2 * w.sum(-1) + 0.6
        sweep = (2 * off @ Y + 2 * w.diagonal()[:, None] * Y + 0.6 * X) / diagonal[:, None]
        assert torch.allclose(energy.step(Y), sweep)
        # Without the anchor it is softmax over the neighbours, so this route does give it.
        plain = AttentionEnergy(graph=adjacency).step(Y)
        scores = (Y @ Y.mT - 0.5 * Y.square().sum(-1)).masked_fill(~adjacency, -torch.inf)
        assert torch.allclose(plain, torch.softmax(scores, -1) @ Y)


@pytest.mark.claim("opt-05", verdict="verified")
@pytest.mark.parametrize("rho", ["exp", "log1"])
def test_opt_05_reweighted_least_squares_never_raises_the_energy(rho) -> None:
    seen = 0
    for Y, generator in batches(100_000, torch.float64):
        X = torch.randn(Y.shape, generator=generator, dtype=torch.float64)
        # With the anchor near the tokens, else the first solve jumps and is never near a tie.
        energy = AttentionEnergy(rho, anchor=Y + X, anchoring=0.5)
        rise, Z = rises(energy, lambda Y, e=energy: irls_step(e, Y), Y)
        assert float(rise.max()) <= 1
        # An exact minimiser of the majoriser gains at least as much there as attention does.
        gain = energy.quadratic(Y, Z) - energy.quadratic(Y, energy.step(Y))
        size = energy.value(Y).abs() + energy._quadratic_terms(Y)
        far = Y.abs().amax((-2, -1)) > 1e3  # the solve's own rounding
        assert bool((gain <= 1e-9 * (1 + size))[~far].all())
        seen += len(Y)
    assert seen >= 100_000
    with pytest.raises(ValueError, match="confinement"):
        irls_step(AttentionEnergy(), Y)


@pytest.mark.mutation("opt-05")
def test_opt_05_a_wrong_diagonal_is_noticed() -> None:
    Y, X = randn(0, 5, 3), randn(1, 5, 3)
    energy = AttentionEnergy(anchor=X, anchoring=0.6)
    w = energy.weights(Y)
    wrong = (2 * w @ Y + 0.6 * X) / (w.sum(-1) + 0.6)[:, None]
    assert not torch.allclose(energy.step(Y), wrong)


# opt-14 -----------------------------------------------------------------------------------


def linear_map_is_a_gradient_step(formula) -> None:
    W, U = randn(0, 4, 4), randn(1, 3, 5, 4)
    energy = FeedForwardEnergy(W)
    free = U.clone().requires_grad_()
    value = 0.5 * torch.einsum("bia,ac,bic->b", free, W, free) + 0.5 * free.square().sum((-2, -1))
    assert torch.allclose(energy.value(U), value)
    (slope,) = torch.autograd.grad(value.sum(), free)
    assert torch.allclose(energy.gradient(U), slope)
    for alpha in (0.1, 1.0, 1.7):
        assert torch.allclose(U - alpha * slope, U @ formula(W, alpha))
        assert torch.allclose(U - alpha * slope, energy.gradient_step(U, alpha))


@pytest.mark.claim("opt-14", verdict="verified")
def test_opt_14_linear_map_is_a_gradient_step() -> None:
    linear_map_is_a_gradient_step(
        lambda W, a: (1 - a) * torch.eye(4, dtype=W.dtype) - a * (W + W.mT) / 2
    )


@pytest.mark.mutation("opt-14")
def test_opt_14_without_symmetrisation_is_noticed() -> None:
    with pytest.raises(AssertionError):
        linear_map_is_a_gradient_step(lambda W, a: (1 - a) * torch.eye(4, dtype=W.dtype) - a * W)


@pytest.mark.claim("opt-14", verdict="verified")
def test_opt_14_admissible_step_sizes() -> None:
    for seed in range(20):
        W = randn(seed, 4, 4)
        W = W @ W.mT - 0.5 * torch.eye(4, dtype=W.dtype)
        energy = FeedForwardEnergy(W)
        top = float(torch.linalg.eigvalsh(energy.hessian)[-1])
        Y = randn(seed + 50, 5000, 1, 4)
        after = energy.value(energy.gradient_step(Y, 2 / top))
        assert bool((after <= energy.value(Y) * (1 + 1e-12)).all())
        worst = torch.linalg.eigh(energy.hessian)[1][:, -1][None, None]
        assert bool(
            (energy.value(energy.gradient_step(worst, 2.01 / top)) > energy.value(worst)).all()
        )


# opt-16 -----------------------------------------------------------------------------------


@pytest.mark.claim("opt-16/maps", verdict="verified")
@pytest.mark.parametrize("name", list(PROXIMAL_MAPS))
def test_opt_16_activations_that_are_proximal_maps(name) -> None:
    entry = PROXIMAL_MAPS[name]
    y = torch.linspace(-3, 3, 121, dtype=torch.float64)
    z = torch.linspace(-10, 10, 20_001, dtype=torch.float64)
    objective = 0.5 * (z - y[:, None]).square() + entry.penalty(z)
    best = z[objective.argmin(-1)]
    assert float((best - entry.forward(y)).abs().max()) < 2e-2 / 10
    kind = proximal_kind(entry.forward, torch.linspace(-5, 5, 10_001, dtype=torch.float64))
    assert kind == ("convex" if entry.convex else "non-convex")
    # The general formula gives the same penalty up to a constant, on the values that occur.
    x = torch.linspace(-3, 3, 60_001, dtype=torch.float64)
    values, phi = proximal_penalty(entry.forward, x)
    known = entry.penalty(values)
    assert float((phi - known - (phi - known)[30_000]).abs().max()) < 1e-6


@pytest.mark.claim("opt-16/relu", verdict="verified")
def test_opt_16_relu_for_every_step_size_and_metric() -> None:
    y, scale = randn(0, 1000, 3, 4), randn(1, 1000, 3, 4).abs() + 0.1
    z = NonNegative().prox(y)
    other = randn(2, 1000, 3, 4).abs()
    assert bool((scale * (z - y) ** 2 <= scale * (other - y) ** 2).all())
    assert float(NonNegative().value(z).max()) == 0
    assert bool(torch.isinf(NonNegative().value(y)).any())


@pytest.mark.claim("opt-16/wider-choice", verdict="conditional")
def test_opt_16_gelu_and_silu_are_proximal_maps_of_nothing() -> None:
    x = torch.linspace(-6, 6, 4001, dtype=torch.float64)
    functional = torch.nn.functional
    for activation in (functional.gelu, functional.silu, functional.mish):
        assert proximal_kind(activation, x) == "none"
        with pytest.raises(ValueError, match="decreases"):
            proximal_penalty(activation, x)
        # A proof on two points: y < y' with z > z', while a minimiser is non-decreasing in y.
        assert float(activation(x.new_tensor(-5.0))) > float(activation(x.new_tensor(-1.0)))
    assert proximal_kind(functional.softplus, x) == "convex"
    assert proximal_kind(functional.elu, x) == "convex"
    assert proximal_kind(lambda y: 2 * torch.relu(y), x) == "non-convex"
    with pytest.raises(ValueError, match="points"):
        proximal_kind(torch.relu, x.flip(0))


@pytest.mark.mutation("opt-16")
def test_opt_16_a_wrong_penalty_is_noticed() -> None:
    y = torch.linspace(-3, 3, 121, dtype=torch.float64)
    z = torch.linspace(-10, 10, 20_001, dtype=torch.float64)
    wrong = torch.where(z > 0, 0.0, 5.0 * z * z)  # (1/s) z²/2 in place of (1/s − 1) z²/2
    best = z[(0.5 * (z - y[:, None]).square() + wrong).argmin(-1)]
    assert float((best - PROXIMAL_MAPS["leaky_relu"].forward(y)).abs().max()) > 1e-2


# Sums -------------------------------------------------------------------------------------


@pytest.mark.parametrize("relaxation", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_sum_never_rises(dtype, relu, relaxation) -> None:
    seen = 0
    for Y, generator in batches(100_000, dtype):
        d = Y.shape[-1]
        H = torch.randn(d, d, generator=generator).to(dtype)
        W = torch.randn(d, 3, generator=generator).to(dtype)
        energy = SumEnergy(
            (
                AttentionEnergy(confinement=0.5, weight=W),
                FeedForwardEnergy(H),
                HopfieldEnergy(H, 2.0),
            ),
            NonNegative() if relu else None,
        )
        if relu:
            Y = Y.abs()
        Z = energy.step(Y, relaxation)
        before, after = energy.value(Y), energy.value(Z)
        # The largest of the cancelling terms sets the rounding.
        size = energy.curvature(Y).amax((-2, -1)) * (Y.square() + Z.square()).sum((-2, -1))
        slack = 16 * torch.finfo(dtype).eps * (Y.shape[1] ** 2 + size)
        assert bool((after <= before + slack).all())
        seen += len(Y)
    assert seen >= 100_000
    with pytest.raises(ValueError, match="relaxation"):
        energy.step(Y, 2.5)
    with pytest.raises(ValueError, match="terms"):
        SumEnergy(())


def test_majorisers_lie_above() -> None:
    d = 3
    W, H = randn(0, d, d), randn(1, d, d)
    for energy in (
        AttentionEnergy("log2", confinement=0.4, weight=W),
        FeedForwardEnergy(H),
        HopfieldEnergy(H, 3.0),
        SumEnergy((AttentionEnergy(weight=W), FeedForwardEnergy(H))),
    ):
        Y = 2 * randn(2, 4000, 4, d)
        Z = Y + 10 ** (3 * torch.rand(4000, 1, 1).double() - 2) * randn(3, 4000, 4, d)
        upper, exact = energy.majoriser(Y)(Z), energy.value(Z)
        assert bool((upper >= exact - 1e-10 * (1 + upper.abs() + exact.abs())).all())
        free = Y.clone().requires_grad_()
        (slope,) = torch.autograd.grad(energy.value(free).sum(), free)
        assert torch.allclose(slope, energy.gradient(Y), atol=1e-10)
        assert torch.equal(energy(Y), energy.value(Y))


def test_padding_of_token_energies() -> None:
    tokens = torch.tensor([True, True, False])
    S, Y = randn(0, 4, 2), randn(1, 3, 2)
    Y[2] = float("nan")
    for energy, alone in (
        (HopfieldEnergy(S, tokens=tokens), HopfieldEnergy(S)),
        (FeedForwardEnergy(S[:2], tokens=tokens), FeedForwardEnergy(S[:2])),
        (MLPEnergy(S[:2], 0.1, "asinh", tokens=tokens), MLPEnergy(S[:2], 0.1, "asinh")),
    ):
        assert torch.allclose(energy.value(Y), alone.value(Y[:2]))
        assert torch.allclose(energy.gradient(Y)[:2], alone.gradient(Y[:2]))
        assert float(energy.gradient(Y)[2].abs().max()) == 0
        step = energy.step(Y)
        assert torch.allclose(step[:2], alone.step(Y[:2])) and bool(step[2].isnan().all())


def test_bad_energies() -> None:
    for make, message in (
        (lambda: HopfieldEnergy(torch.zeros(0, 2)), "patterns"),
        (lambda: HopfieldEnergy(torch.zeros(3, 2), 0.0), "beta"),
        (lambda: FeedForwardEnergy(torch.zeros(3, 2)), "weight"),
        (lambda: MLPEnergy(torch.zeros(3, 2)), "weight"),
        (lambda: MLPEnergy(torch.eye(2), sigma="relu6"), "sigma"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
    with pytest.raises(NotImplementedError):
        MLPEnergy(torch.eye(2)).curvature(torch.zeros(1, 2))
