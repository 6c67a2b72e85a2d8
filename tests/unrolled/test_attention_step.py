"""The attention step never raises its energy; as printed it does (opt-07, opt-08)."""

from __future__ import annotations

import decimal
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fourviews.attention import attention, causal_mask, padding_mask
from fourviews.unrolled import RHOS, AttentionEnergy, Rho, attention_energy, attention_step

from .cases import batches, rises, rounding

CASES = 100_000
# Concave and non-decreasing with a slope that ends: its weights need not be semidefinite.
CAPPED = Rho(
    "capped", lambda z: torch.where(z < 1, z - 0.5 * z * z, 0.5), lambda z: (1 - z).clamp_min(0)
)
PENALTIES = [*RHOS.values(), CAPPED]
DTYPES = [torch.float64, torch.float32]


def never_rises(
    energies: Callable[[Tensor, torch.Generator], AttentionEnergy],
    step: Callable[[AttentionEnergy, Tensor], Tensor],
    dtype: torch.dtype = torch.float64,
    cases: int = CASES,
    seed: int = 0,
) -> None:
    """From awkward token sets, and again from where the steps have led, close to fixed points."""
    seen = 0
    for Y, generator in batches(cases // 2, dtype, seed):
        energy = energies(Y, generator)
        for again in (1, 4):
            rise, Z = rises(energy, lambda X, e=energy: step(e, X), Y)
            assert torch.isfinite(Z).all()
            assert not rise.isnan().any()
            assert float(rise.max()) <= 1, (float(rise.max()), Y[rise.argmax()])
            seen += len(Y)
            for _ in range(again):
                Y = step(energy, Y)
    assert seen >= cases


def random_graph(Y: Tensor, generator: torch.Generator) -> Tensor:
    n = Y.shape[-2]
    a = torch.rand(len(Y), n, n, generator=generator, dtype=torch.float64)
    a = torch.where(torch.rand(a.shape, generator=generator) < 0.5, a, 0.0)
    return (a + a.mT).to(Y.dtype)


# opt-07 -----------------------------------------------------------------------------------


@pytest.mark.claim("opt-07/repaired", verdict="corrected")
@pytest.mark.parametrize("confinement", [0.0, 1e-3, 1.0, 30.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opt_07_corrected_step_never_raises_the_energy(dtype, confinement) -> None:
    never_rises(
        lambda Y, _: AttentionEnergy(confinement=confinement), lambda e, Y: e.step(Y), dtype
    )


def softmax_step(energy: AttentionEnergy, Y: Tensor) -> Tensor:
    """The step as printed: λ is nowhere in it."""
    return attention_step(Y, energy.rho)


@pytest.mark.mutation("opt-07")
def test_opt_07_uncorrected_step_is_noticed() -> None:
    with pytest.raises(AssertionError):
        never_rises(lambda Y, _: AttentionEnergy(confinement=1.0), softmax_step)


@pytest.mark.claim("opt-07/printed", verdict="corrected")
def test_opt_07_counterexample_to_the_printed_step() -> None:
    Y = torch.tensor([[30.0], [31.0], [31.0]], dtype=torch.float64)
    before = attention_energy(Y, confinement=1.0)
    printed = attention_energy(attention_step(Y), confinement=1.0)
    repaired = attention_energy(attention_step(Y, confinement=1.0), confinement=1.0)
    assert float(printed - before) == pytest.approx(0.742353, abs=1e-6)
    assert repaired < before
    # The same in 60 decimal digits, without this library.
    with decimal.localcontext(decimal.Context(prec=60)):
        q = decimal.Decimal("-0.5").exp()
        a, b = decimal.Decimal(30), decimal.Decimal(31)

        def energy(x: decimal.Decimal, y: decimal.Decimal) -> decimal.Decimal:
            return -(5 + 4 * (-((x - y) ** 2) / 2).exp()) + (x * x + 2 * y * y) / 2

        rise = energy((a + 2 * q * b) / (1 + 2 * q), (q * a + 2 * b) / (q + 2)) - energy(a, b)
        assert rise > decimal.Decimal("0.74")
    assert float(printed - before) == pytest.approx(float(rise), rel=1e-9)


@pytest.mark.claim("opt-07/printed", verdict="corrected")
def test_opt_07_how_often_the_printed_step_fails() -> None:
    worse = seen = 0
    for Y, _ in batches(30_000, torch.float64, seed=1):
        rise, _ = rises(AttentionEnergy(confinement=1.0), lambda X: attention_step(X, "exp"), Y)
        worse, seen = worse + int((rise > 100).sum()), seen + len(Y)
    assert 1e-4 < worse / seen < 1e-1


@pytest.mark.claim("opt-07/equality", verdict="corrected")
def test_opt_07_equality_and_fixed_points() -> None:
    # As printed: equality for one token away from the origin, which is no stationary point.
    y = torch.tensor([[3.0]], dtype=torch.float64)
    energy = AttentionEnergy(confinement=1.0)
    assert torch.equal(attention_step(y), y)
    assert float(energy.gradient(y).abs()) == 3
    # Repaired: the fall is at least a positive definite form of the move, and the move is the
    # gradient over positive numbers.
    generator = torch.Generator().manual_seed(0)
    for confinement in (0.0, 0.7):
        energy = AttentionEnergy(confinement=confinement)
        Y = torch.randn(2000, 5, 3, generator=generator, dtype=torch.float64)
        Z, w = energy.step(Y), energy.weights(Y)
        D = w.sum(-1, keepdim=True)
        move = Z - Y
        assert torch.allclose(move, -energy.gradient(Y) / (2 * D + confinement), atol=1e-13)
        both = (move[:, :, None] + move[:, None, :]).square().sum(-1)
        least = 0.5 * (w * both).sum((-2, -1)) + 0.5 * confinement * move.square().sum((-2, -1))
        fall = energy.value(Y) - energy.value(Z)
        assert bool((fall >= least - 1e-11).all())
        assert bool((least >= move.square().sum((-2, -1))).all())  # loops have weight 1


# opt-08 -----------------------------------------------------------------------------------


@pytest.mark.claim("opt-08/rho", verdict="verified")
@pytest.mark.parametrize("rho", PENALTIES, ids=lambda r: r.name)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opt_08_any_concave_increasing_rho(dtype, rho) -> None:
    for confinement, seed in ((0.0, 0), (0.5, 1)):
        never_rises(
            lambda Y, _, c=confinement: AttentionEnergy(rho, confinement=c),
            lambda e, Y: e.step(Y),
            dtype,
            CASES // 2,
            seed,
        )


@pytest.mark.mutation("opt-08")
def test_opt_08_a_convex_rho_is_refused_and_would_fail() -> None:
    with pytest.raises(ValueError, match="concave"):
        Rho("square", lambda z: z * z, lambda z: 2 * z)
    with pytest.raises(ValueError, match="non-decreasing"):
        Rho("falling", lambda z: -z, lambda z: -torch.ones_like(z))
    with pytest.raises(ValueError, match="value does not grow"):
        Rho("other", lambda z: 2 * torch.log1p(z), lambda z: 1 / (1 + z))
    with pytest.raises(ValueError, match="finite"):
        Rho("root", torch.sqrt, lambda z: 0.5 * z.rsqrt())
    # Weights of another penalty: the majoriser no longer lies above.
    growing = AttentionEnergy("exp")
    with pytest.raises(AssertionError):
        never_rises(
            lambda Y, _: growing,
            lambda e, Y: Y + 2.5 * (e.step(Y) - Y),
            cases=CASES // 10,
        )


@pytest.mark.claim("opt-08/residual", verdict="conditional")
@pytest.mark.parametrize("rho", PENALTIES, ids=lambda r: r.name)
@pytest.mark.parametrize("confinement", [0.0, 2.0])
def test_opt_08_relaxed_steps_within_the_safe_range(rho, confinement) -> None:
    def step(energy: AttentionEnergy, Y: Tensor) -> Tensor:
        share = torch.rand(len(Y), 1, 1, generator=torch.Generator().manual_seed(3))
        share = torch.where(share > 0.7, 1.0, share).to(Y.dtype)
        longest = energy.safe_relaxation(Y)[:, None, None].clamp_max(1e3)
        return energy.step(Y, share * longest)

    never_rises(lambda Y, _: AttentionEnergy(rho, confinement=confinement), step)


@pytest.mark.claim("opt-08/residual", verdict="conditional")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opt_08_residual_connections_on_graphs(dtype) -> None:
    def step(energy: AttentionEnergy, Y: Tensor) -> Tensor:
        longest = energy.safe_relaxation(Y)[:, None, None]
        assert bool((longest >= 1 - 1e-6).all())
        return energy.step(Y, longest.clamp_max(1e3))

    never_rises(
        lambda Y, g: AttentionEnergy(confinement=0.3, graph=random_graph(Y, g)), step, dtype
    )


@pytest.mark.claim("opt-08/residual", verdict="conditional")
def test_opt_08_without_semidefinite_weights_no_factor_above_one_is_safe() -> None:
    graph = ~torch.eye(2, dtype=torch.bool)
    Y = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    energy = AttentionEnergy(graph=graph)
    assert torch.equal(energy.step(Y), Y.flip(0))
    assert float(energy.safe_relaxation(Y)) == 1
    assert energy.value(energy.step(Y, 1.05)) > energy.value(Y) + 0.05
    # With loops the weights are semidefinite, and 2 is safe but not more.
    full = AttentionEnergy()
    assert float(full.safe_relaxation(Y)) >= 2
    single = torch.ones(1, 1, dtype=torch.float64)
    assert float(AttentionEnergy(confinement=4.0).safe_relaxation(single)) == pytest.approx(3)


@pytest.mark.claim("opt-08/residual", verdict="conditional")
def test_opt_08_semidefinite_weights() -> None:
    for rho in RHOS.values():
        for Y, _ in batches(3000, torch.float64, seed=5):
            w = AttentionEnergy(rho).weights(Y)
            assert float(torch.linalg.eigvalsh(w)[:, 0].min()) > -1e-12
    # The capped penalty's are not, in several dimensions.
    corners = torch.cat([torch.eye(8), -torch.eye(8), torch.zeros(1, 8)]).double() * 1.2
    assert float(torch.linalg.eigvalsh(AttentionEnergy(CAPPED).weights(corners)).min()) < -0.1


@pytest.mark.claim("opt-08/graph", verdict="conditional")
@pytest.mark.parametrize("rho", PENALTIES, ids=lambda r: r.name)
def test_opt_08_symmetric_graphs(rho) -> None:
    for confinement, seed in ((0.0, 0), (1.0, 1)):
        never_rises(
            lambda Y, g, c=confinement: AttentionEnergy(
                rho, confinement=c, graph=random_graph(Y, g)
            ),
            lambda e, Y: e.step(Y),
            cases=CASES // 2,
            seed=seed,
        )


@pytest.mark.claim("opt-08/graph", verdict="conditional")
def test_opt_08_causal_masks_have_no_energy() -> None:
    """Token 1 never moves; token 2 moves towards token 1.  If positive scales s_i made
    (0, s_2 F_2) a gradient, s_2 F_2 would not depend on y_1; it is 0 at y_1 = y_2, hence for every
    y_1: but F_2 is not."""

    def move(Y: Tensor) -> Tensor:
        return attention(Y, Y, Y, causal=True, scale=1.0) - Y

    Y = torch.tensor([[0.3, 0.0], [1.0, 0.5]], dtype=torch.float64)
    J = torch.autograd.functional.jacobian(move, Y)
    assert float(J[0].abs().max()) < 1e-15
    assert float(J[1, :, 0].abs().max()) > 0.1
    assert float(move(Y)[1].abs().max()) > 0.1
    twins = Y[:1].expand(2, 2)
    assert float(move(twins).abs().max()) < 1e-15
    with pytest.raises(ValueError, match="symmetric"):
        attention_step(Y, graph=causal_mask(2))


# All parts together -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rank", [1, 4])
def test_weight_anchor_graph_and_padding_together(dtype, rank) -> None:
    def energies(Y: Tensor, g: torch.Generator) -> AttentionEnergy:
        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype)

        cases, n, d = Y.shape
        return AttentionEnergy(
            "log1",
            confinement=0.2,
            weight=normal(d, rank),
            graph=random_graph(Y, g),
            tokens=torch.rand(cases, n, generator=g) < 0.8,
            anchor=normal(cases, n, d),
            anchoring=0.7,
        )

    never_rises(energies, lambda e, Y: e.step(Y), dtype)


def test_random_cases_hold_what_they_promise() -> None:
    sizes, twins, far, huge = set(), 0, 0, 0
    for Y, _ in batches(6000, torch.float64):
        sizes.add(Y.shape[1])
        twins += int((torch.cdist(Y, Y) + torch.eye(Y.shape[1]) == 0).flatten(1).any(1).sum())
        spread = (Y - Y.mean(1, keepdim=True)).flatten(1).norm(dim=1)
        far += int((Y.mean(1).norm(dim=1) > 100 * spread).sum())
        huge += int((Y.flatten(1).norm(dim=1) > 1e5).sum())
    assert 1 in sizes and min(twins, far, huge) > 200


def test_rounding_is_small_where_tokens_are_of_unit_size() -> None:
    Y = torch.randn(100, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    energy = AttentionEnergy(confinement=1.0)
    assert float(rounding(energy, Y, energy.step(Y)).max()) < 1e-12


# Numbers, gradients, memory ---------------------------------------------------------------


def slow_energy(Y: Tensor, rho: Rho, confinement: float) -> Tensor:
    total = sum(rho(0.5 * (a - b).square().sum()) for a in Y for b in Y)
    return total + 0.5 * confinement * Y.square().sum()


@pytest.mark.parametrize("rho", PENALTIES, ids=lambda r: r.name)
def test_value_step_and_gradient_against_the_definition(rho) -> None:
    generator = torch.Generator().manual_seed(2)
    for n, scale, shift in ((1, 1, 0), (4, 0.5, 1e4), (40, 0.2, 3), (7, 1e3, 0)):
        Y = torch.randn(n, 3, generator=generator, dtype=torch.float64) * scale + shift
        W = torch.randn(3, 2, generator=generator, dtype=torch.float64)
        U = Y @ W
        want = slow_energy(U, rho, 0.6)
        assert torch.allclose(attention_energy(Y, rho, 0.6, W), want, rtol=1e-9)
        w = rho.slope(0.5 * (U[:, None] - U).square().sum(-1))
        step = (w @ Y) / (w.sum(-1, keepdim=True) + 0.3)
        assert torch.allclose(attention_step(Y, rho, 0.6, W), step, rtol=1e-9)
        energy = AttentionEnergy(rho, confinement=0.6, weight=W)
        free = Y.clone().requires_grad_()
        (slope,) = torch.autograd.grad(slow_energy(free @ W, rho, 0.6), free)
        assert torch.allclose(energy.gradient(Y), slope, rtol=1e-7, atol=1e-7)
        Z = Y + torch.randn(n, 3, generator=generator, dtype=torch.float64)
        assert torch.allclose(energy.quadratic(Y, Y), energy.value(Y))
        for upper in (energy.quadratic(Y, Z), energy.majoriser(Y)(Z)):
            assert float(upper) >= float(energy.value(Z)) - 1e-9 * abs(float(upper))


@pytest.mark.parametrize("shift", [0.0, 1e3])
@pytest.mark.parametrize("size", [0.3, 3.0, 30.0])
def test_one_product_in_float32_is_as_accurate_as_the_sum_needs(size, shift) -> None:
    n, d = 300, 50
    generator = torch.Generator().manual_seed(0)
    Y = (size / d**0.5 * torch.randn(n, d, generator=generator) + shift).float()
    for rho in RHOS:
        energy = AttentionEnergy(rho, confinement=0.1)
        value, step = energy.value_and_step(Y)
        want, exact = energy.value_and_step(Y.double())
        terms = attention_energy(Y.double(), rho).abs() + 0.05 * Y.double().square().sum()
        assert float((value - want).abs()) <= n**2 * 1.2e-7 * float(terms) / 100
        scale = Y.abs().max() + size
        assert float((step - exact).abs().max()) <= 1e-5 * float(scale)


def test_gradients_of_both_orders_and_at_equal_tokens() -> None:
    Y = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y[1] = Y[0]
    Y.requires_grad_()
    W = torch.eye(3, dtype=torch.float64, requires_grad=True)
    for many in (1, 20):  # few tokens by differences, many by one product
        X = Y.repeat(many, 1) if many == 1 else 0.3 * torch.cat([Y] * 4)

        def value(X, W):
            return attention_energy(X, "log1", 0.3, W)

        X = X.detach().requires_grad_()
        assert torch.autograd.gradcheck(value, (X, W))
        assert torch.autograd.gradgradcheck(value, (X, W))


@pytest.mark.parametrize("n", [3, 200])
def test_padding_does_not_exist(n) -> None:
    generator = torch.Generator().manual_seed(1)
    lengths = [n, n - 2, 1]
    tokens = padding_mask(lengths, n)[:, 0]
    Y = torch.randn(3, n, 4, generator=generator, dtype=torch.float64) + 1e3
    Y = torch.where(tokens[..., None], Y, float("nan")).requires_grad_()
    value, step = AttentionEnergy(confinement=0.5, tokens=tokens).value_and_step(Y)
    (slope,) = torch.autograd.grad(value.sum(), Y, retain_graph=True)
    for b, length in enumerate(lengths):
        alone = AttentionEnergy(confinement=0.5)
        short = Y[b, :length].detach()
        assert torch.allclose(value[b], alone.value(short))
        assert torch.allclose(step[b, :length], alone.step(short))
        assert torch.allclose(slope[b, :length], alone.gradient(short))
        assert bool((slope[b, length:] == 0).all())


class Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """Size of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, Tensor):
                self.size = max(self.size, x.numel())
        return out


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_no_tensor_is_larger_than_n_squared(scale) -> None:
    n, d = 100, 30
    Y = (torch.randn(n, d, dtype=torch.float64) * scale).requires_grad_()
    energy = AttentionEnergy(confinement=1.0, weight=torch.eye(d, dtype=torch.float64))
    with Largest() as largest:
        value, step = energy.value_and_step(Y)
        torch.autograd.grad(value + step.sum(), Y)
        energy.gradient(Y), energy.curvature(Y)
    assert 0 < largest.size <= n * n


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_token_and_no_neighbour(dtype) -> None:
    assert attention_step(torch.zeros(2, 0, 3, dtype=dtype)).shape == (2, 0, 3)
    assert torch.equal(
        attention_energy(torch.zeros(2, 0, 3, dtype=dtype)), torch.zeros(2).to(dtype)
    )
    Y = torch.randn(4, 3).to(dtype)
    assert torch.equal(attention_step(Y, graph=torch.zeros(4, 4, dtype=torch.bool)), Y)
    far = torch.tensor([[0.0], [1e9]], dtype=dtype)
    assert torch.equal(attention_step(far), far)


def test_twins_stay_twins_far_from_the_origin() -> None:
    Y = torch.tensor([[1e5, 1.0], [1e5, 1.0], [1e5, 2.0]])
    Z = attention_step(Y)
    assert torch.equal(Z[0], Z[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rho": "cube"}, "rho"),
        ({"confinement": -1.0}, "confinement"),
        ({"weight": torch.zeros(3, 2)}, "weight"),
        ({"graph": -torch.ones(4, 4, dtype=torch.float64)}, "graph"),
        ({"graph": torch.ones(3, 3, dtype=torch.bool)}, "graph"),
        ({"graph": torch.ones(4, 4)}, "graph"),
        ({"tokens": torch.ones(4)}, "tokens"),
        ({"tokens": torch.ones(5, dtype=torch.bool)}, "tokens"),
        ({"anchor": torch.zeros(4, 2, dtype=torch.float64)}, "anchor"),
        ({"anchoring": 1.0}, "anchor"),
        ({"anchor": torch.zeros(3, 2, dtype=torch.float64), "anchoring": 1.0}, "anchor"),
    ],
)
def test_bad_input(arguments, message) -> None:
    Y = torch.zeros(4, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match=message):
        attention_energy(Y, **arguments)
    for bad in (torch.zeros(3), torch.zeros(3, 2, dtype=torch.int64), [[1.0]]):
        with pytest.raises(ValueError, match="Y"):
            attention_step(bad)
