"""What the unrolled part refuses, and what it makes of numbers that overflow or are none."""

import math

import pytest
import torch

from fourviews import unrolled
from fourviews.unrolled import (
    AdmissibleWeight,
    AttentionEnergy,
    FeedForwardEnergy,
    HopfieldEnergy,
    MLPEnergy,
    NonNegative,
    Smooth,
    SumEnergy,
    UnrolledTransformer,
)

NAN, INF = math.nan, math.inf
Y = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
EYE = torch.eye(3, dtype=torch.float64)
BATCH = Y.expand(2, 5, 3)


def _mask(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.bool)


BOWL = Smooth(lambda Z: 0.5 * Z.square().sum((-2, -1)), lambda Z: Z, 1.0)
FLAT = Smooth(lambda Z: Z.sum(), lambda Z: Z, 1.0)  # one value for a whole batch
RAGGED = Smooth(BOWL.value, lambda Z: Z[..., :1], 1.0)
CLASSIFIER = unrolled.TextClassifier(UnrolledTransformer(3, 1, dtype=torch.float64), 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: AttentionEnergy(confinement="1"), "confinement"),
        (lambda: AttentionEnergy(confinement=torch.ones(2)), "confinement"),
        (lambda: AttentionEnergy(weight=[[1.0]]), "weight"),
        (lambda: AttentionEnergy(weight=NAN * EYE), "weight"),
        (lambda: AttentionEnergy(anchor=[1.0], anchoring=1.0), "anchor"),
        (lambda: AttentionEnergy(anchor=BATCH, anchoring=1.0).value(Y), "anchor"),
        (lambda: AttentionEnergy(anchor=BATCH, anchoring=1.0).step(Y.expand(4, 5, 3)), "anchor"),
        (lambda: AttentionEnergy().step(Y, NAN), "relaxation"),
        (lambda: AttentionEnergy().step(Y, -1.0), "relaxation"),
        (lambda: AttentionEnergy().step(Y, "a"), "relaxation"),
        (lambda: AttentionEnergy().step(Y, torch.ones(7, 5, 3).double()), "relaxation"),
        (lambda: AttentionEnergy().step(BATCH, torch.tensor([[[-1.0]], [[1.0]]])), "relaxation"),
        (lambda: unrolled.half_squared_distances(Y[0]), "Y"),
        (lambda: unrolled.half_squared_distances(Y.half()), "Y"),
        (lambda: unrolled.half_squared_distances(Y.long()), "Y"),
        (lambda: HopfieldEnergy([[1.0]]), "patterns"),
        (lambda: HopfieldEnergy(NAN * Y), "patterns"),
        (lambda: HopfieldEnergy(Y.long()), "patterns"),
        (lambda: HopfieldEnergy(Y, "a"), "beta"),
        (lambda: HopfieldEnergy(Y.float()).step(Y), "patterns"),
        (lambda: HopfieldEnergy(Y[:, :2]).value(Y), "patterns"),
        (lambda: HopfieldEnergy(Y).step(Y[0]), "Y"),
        (lambda: HopfieldEnergy(Y).step(Y, -0.5), "relaxation"),
        (lambda: HopfieldEnergy(Y, tokens=_mask(4)).step(Y), "tokens"),
        (lambda: HopfieldEnergy(Y, tokens=_mask(1)).value(Y), "tokens"),
        (lambda: HopfieldEnergy(Y, tokens=_mask(2, 5)).value(Y), "tokens"),
        (lambda: HopfieldEnergy(Y, tokens=torch.ones(5)).gradient(Y), "tokens"),
        (lambda: FeedForwardEnergy([[1.0]]), "weight"),
        (lambda: FeedForwardEnergy(torch.ones(3, 3, dtype=torch.int64)), "weight"),
        (lambda: FeedForwardEnergy(NAN * EYE), "weight"),
        (lambda: FeedForwardEnergy(EYE.float()).value(Y), "weight"),
        (lambda: FeedForwardEnergy(EYE[:2, :2]).curvature(Y), "weight"),
        (lambda: FeedForwardEnergy(EYE).gradient_step(Y, -1.0), "step_size"),
        (lambda: FeedForwardEnergy(EYE).gradient_step(Y, NAN), "step_size"),
        (lambda: FeedForwardEnergy(EYE).gradient_step(Y[0], 1.0), "Y"),
        (lambda: MLPEnergy(NAN * EYE), "weight"),
        (lambda: MLPEnergy(EYE.long()), "weight"),
        (lambda: MLPEnergy(EYE, sigma=["tanh"]), "sigma"),
        (lambda: MLPEnergy(EYE, "a"), "offset"),
        (lambda: MLPEnergy(EYE, NAN), "offset"),
        (lambda: MLPEnergy(EYE, torch.ones(3)).step(Y), "offset"),
        (lambda: MLPEnergy(EYE, torch.ones(2, 5, 3).double()).step(Y), "offset"),
        (lambda: MLPEnergy(EYE).step(Y.float()), "weight"),
        (lambda: MLPEnergy(EYE).step(Y[:, :2]), "weight"),
        (lambda: NonNegative(torch.ones(5)).value(Y), "tokens"),
        (lambda: NonNegative(_mask(4)).prox(Y), "tokens"),
        (lambda: NonNegative().value(Y.long()), "Y"),
        (lambda: NonNegative().prox([1.0]), "Y"),
        (lambda: SumEnergy([1, 2]), "terms"),
        (lambda: SumEnergy(AttentionEnergy()), "terms"),
        (lambda: unrolled.sphere_step(AttentionEnergy(), Y.long()), "Y"),
        (lambda: unrolled.normalised_attention_step(HopfieldEnergy(Y), Y), "energy"),
        (
            lambda: unrolled.normalised_attention_step(AttentionEnergy(), Y, residual="1"),
            "residual",
        ),
        (lambda: unrolled.constant_norm(Y[0]), "weight"),
        (lambda: unrolled.constant_norm(EYE.long()), "weight"),
        (lambda: unrolled.irls_step(HopfieldEnergy(Y), Y), "energy"),
        (lambda: unrolled.apollonius(Y[0], Y[1, :1], 2.0), "a is"),
        (lambda: unrolled.apollonius(Y[:1], Y[1:2], 2.0), "a has"),
        (lambda: unrolled.apollonius(NAN * Y[0], Y[1], 2.0), "a has"),
        (lambda: unrolled.apollonius(Y[0], Y[1], "2"), "k is"),
        (lambda: unrolled.apollonius(Y[0], Y[1], 2.0).contains(Y[:, :1]), "y is"),
        (lambda: unrolled.threshold(-1.0, 1.0, 1.0), "step_f"),
        (lambda: unrolled.threshold(1.0, NAN, 1.0), "step_g"),
        (lambda: unrolled.threshold(1.0, 1.0, -1.0), "lipschitz_g"),
        (lambda: unrolled.alternating_step(BOWL, BOWL, Y[0], 0.1, 0.1), "Y"),
        (lambda: unrolled.alternating_step(BOWL, BOWL, Y, "a", 0.1), "step_f"),
        (lambda: unrolled.alternating_step(BOWL, BOWL, Y, 0.1, 0.1, lipschitz=-1.0), "lipschitz"),
        (lambda: unrolled.alternating_step(BOWL, BOWL, Y, 0.1, 0.1, lipschitz=NAN), "lipschitz"),
        (lambda: unrolled.alternating_step(FLAT, BOWL, BATCH, 0.1, 0.1), "value of f"),
        (lambda: unrolled.alternating_step(BOWL, RAGGED, Y, 0.1, 0.1), "gradient of g"),
        (lambda: unrolled.alternate(BOWL, BOWL, Y, 0.1, 0.1, 2.5), "steps"),
        (lambda: unrolled.orthant_gain(Y, Y[:, :1]), "step"),
        (lambda: unrolled.orthant_alignment(Y[0], Y[0]), "step"),
        (lambda: AdmissibleWeight(2.5), "d is"),
        (lambda: AdmissibleWeight(2, lower="a"), "lower"),
        (lambda: UnrolledTransformer(2.5, 1), "d is"),
        (lambda: UnrolledTransformer(2, True), "layers"),
        (lambda: UnrolledTransformer(2, 1, step_size=NAN), "step_size"),
        (lambda: UnrolledTransformer(4, 0, dtype=torch.float64)(Y), "X"),
        (lambda: unrolled.descent_certificate(1, Y), "model"),
        (
            lambda: unrolled.descent_certificate(UnrolledTransformer(3, 1), Y),
            "X is torch.float64, the model torch.float32",
        ),
        (lambda: UnrolledTransformer(3, 1)(Y), "X is torch.float64, the model torch.float32"),
        (lambda: unrolled.descent_certificate(UnrolledTransformer(2, 0), Y), "X"),
        (lambda: unrolled.implicit_minimiser(lambda Z: 0 * Z[0], Y), "gradient"),
        (lambda: unrolled.implicit_minimiser(lambda Z: 0 * Z, Y.long()), "Y"),
        (lambda: unrolled.proximal_kind(torch.relu, torch.tensor([0.0, NAN, 1.0])), "points"),
        (lambda: unrolled.proximal_kind(torch.relu, torch.tensor([0.0, INF])), "points"),
        (lambda: unrolled.proximal_kind(torch.relu, torch.arange(4)), "points"),
        (lambda: unrolled.proximal_kind(lambda x: NAN * x, Y[:, 0].sort().values), "activation"),
        (lambda: unrolled.proximal_penalty(lambda x: x[:2], torch.arange(4.0)), "activation"),
        (lambda: unrolled.Rho("number", lambda z: 0.0, lambda z: 0.0), "entrywise"),
        (lambda: unrolled.asymmetric_attention(Y[None], EYE, EYE), "Y"),
        (lambda: unrolled.asymmetric_linear([[1.0]]), "B"),
        (lambda: unrolled.matrix_pair(EYE, EYE, Y[0], Y[0]), "B1"),
        (lambda: unrolled.matrix_pair(EYE.float(), EYE, EYE, EYE), "S"),
        (lambda: unrolled.matrix_pair(EYE[:0, :0], EYE, EYE[:0], EYE[:0]), "B1"),
        (lambda: unrolled.PublishedTransformer(2.5), "d is"),
        (lambda: unrolled.PublishedTransformer(3, clip="a"), "clip"),
        (lambda: unrolled.PublishedTransformer(2)(Y), "weight"),
        (lambda: unrolled.PublishedTransformer(3)(Y), "weight"),
        (lambda: unrolled.energies_along(1, [Y]), "model"),
        (lambda: unrolled.TextClassifier(UnrolledTransformer(3, 1), 4), "d is"),
        (lambda: CLASSIFIER.accuracy([Y, Y], [0, 1]), "labels"),
        (lambda: CLASSIFIER.accuracy([Y, Y], torch.tensor([0, 7])), "labels"),
        (lambda: unrolled.train_online(CLASSIFIER, [Y], torch.tensor([0.0]), steps=1), "labels"),
        (lambda: unrolled.train_online(CLASSIFIER, [Y], torch.tensor([2]), steps=1), "labels"),
        (lambda: unrolled.train_online(CLASSIFIER, [Y], torch.tensor([1]), steps=1.5), "steps"),
        (lambda: unrolled.fit_readout(CLASSIFIER, [NAN * Y], torch.tensor([1])), "texts"),
    ],
)
def test_bad_input_is_named(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_no_number_is_hidden() -> None:
    """A token that is NaN neither becomes 0 nor lies in the orthant nor stays where it was."""
    lost = Y.clone()
    lost[2, 1] = NAN
    others = [0, 1, 3, 4]
    for centre in (True, False):
        normed = unrolled.layer_norm(lost, centre=centre)
        assert normed[2].isnan().all()
        assert torch.equal(normed[others], unrolled.layer_norm(Y, centre=centre)[others])
    assert NonNegative().value(lost.abs()) == INF
    step = unrolled.sphere_step(HopfieldEnergy(Y), lost)
    assert step[2].isnan().all()
    assert torch.isfinite(step[others]).all()


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("size", [NAN, INF, 1e200])
def test_nothing_is_certified_that_is_no_number(size, relu) -> None:
    point = size * Y.abs()
    step = unrolled.alternating_step(BOWL, BOWL, point, 0.1, 0.1, relu=relu)
    assert not bool(step.guaranteed)
    assert not bool(step.printed)
    # From outside of the orthant every step descends, but not from where a number is missing.
    assert (
        "guaranteed"
        not in unrolled.alternating_step(BOWL, BOWL, NAN * Y, 0.1, 0.1, relu=True).status()
    )
    for kind in ("joint", "alternating", "preconditioned"):
        model = UnrolledTransformer(3, 2, step=kind, relu=relu, dtype=torch.float64)
        for layer in unrolled.descent_certificate(model, point):
            assert not bool(layer.guaranteed)
    # The same calls certify what is finite.
    assert bool(unrolled.alternating_step(BOWL, BOWL, Y.abs(), 0.1, 0.1, relu=relu).guaranteed)


def test_padding_may_be_anything_for_a_certificate() -> None:
    tokens = torch.tensor([True, True, True, False, False])
    padded = torch.where(tokens[:, None], Y, NAN)
    model = UnrolledTransformer(3, 2, dtype=torch.float64)
    for layer in unrolled.descent_certificate(model, padded, tokens):
        assert bool(layer.guaranteed)


def test_large_numbers() -> None:
    # A very sharp recall takes the pattern with the largest score.
    sharp = HopfieldEnergy(Y, 1e308)
    scores = Y @ Y.mT
    assert torch.allclose(sharp.step(Y), Y[scores.argmax(1)])
    assert torch.allclose(sharp.per_token(Y), 0.5 * Y.square().sum(1) - scores.amax(1))
    # The alignment does not depend on the unit of length.
    s, y = Y, Y.flip(0).abs()
    for unit in (1e-200, 1e200):
        scaled = unrolled.orthant_alignment(unit * s, unit * y)
        assert torch.allclose(scaled, unrolled.orthant_alignment(s, y))
    # A sphere is kept where squares overflow.
    far = 1e160 * Y
    kept = unrolled.sphere_step(HopfieldEnergy(Y), far) / far.abs().max()
    assert torch.allclose(kept.norm(dim=1), (far / far.abs().max()).norm(dim=1))


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_a_saturated_layer_has_finite_energy(name) -> None:
    """σ̃* is finite where σ only tends to a value, and there the layer still lowers the energy."""
    energy = MLPEnergy(torch.eye(1, dtype=torch.float64), 0.0, name)
    ends = energy.sigma.forward(torch.tensor([-900.0, 900.0]).double())
    assert torch.allclose(energy.sigma.conjugate(ends), torch.full((2,), math.log(2)).double())
    assert energy.sigma.conjugate(ends + torch.tensor([-1e-9, 1e-9])).isinf().all()
    first = energy.step(torch.full((1, 1), 900.0, dtype=torch.float64))
    second = energy.step(first)
    fall = energy.value(first) - energy.value(second)
    assert fall >= 0.5 * (second - first).square().sum() - 1e-12
    # The closed form is Fenchel's equality inside.
    a = torch.linspace(-8, 8, 41, dtype=torch.float64)
    u = energy.sigma.forward(a)
    assert torch.allclose(energy.sigma.conjugate(u), u * a - energy.sigma.integral(a))
