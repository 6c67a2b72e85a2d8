"""Degrees of a Transformer's parts, by rule and measured exactly (spl-07, spl-08, spl-16)."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
import torch
from torch import nn

from fourviews import spline
from fourviews.attention import FeedForward, MultiHeadAttention

from .cases import REAL, decoder_block, encoder_block, random_expression, relu_attention

LINES = 6


def seeded(make, seed=0):
    torch.manual_seed(seed)
    return make()


# spl-07 -------------------------------------------------------------------------------------------


def line_degree(f, generator) -> int:
    """Degree on the first piece of a random line."""
    ends = [[[Fraction(generator.randint(-30, 30), 7) for _ in range(2)]] for _ in range(2)]
    return max(piece.degree for piece in spline.pieces(f, tuple(ends)))


@pytest.mark.claim("spl-07", verdict="verified")
@pytest.mark.parametrize("seed", range(5))
def test_spl_07_degrees_add_in_products_and_multiply_in_compositions(seed):
    generator = random.Random(seed)
    X = spline.variables(1, 2)
    x, y = X[0]
    f = spline.maximum(x**2 + y, random_expression(generator, X, 1))
    g = spline.maximum(x, y) ** 3 + random_expression(generator, X, 1, products=False)
    assert (f.degree(), g.degree()) == (2, 3)
    assert (f * g).degree() == 5 and (f + g).degree() == 3
    assert spline.maximum(f, g).degree() == 3
    composed = g.fold(lambda _, j: (f, y)[j], lambda v: spline.maximum(*v))
    assert composed.degree() == 6
    for h in (f, g, f * g, f + g, composed):
        assert line_degree(h, generator) <= h.degree()
    # Generic positions reach the bound.
    assert max(line_degree(f * g, generator) for _ in range(4)) == 5
    assert max(line_degree(composed, generator) for _ in range(4)) == 6


@pytest.mark.mutation("spl-07")
def test_spl_07_the_larger_degree_is_not_that_of_a_product():
    x = spline.variables(1, 1)[0, 0]
    f, g = spline.maximum(x**2, 1), spline.maximum(x**3, x)
    assert spline.pieces(f * g, ([[2]], [[3]]))[0].degree == 5 > max(f.degree(), g.degree())


# spl-08 -------------------------------------------------------------------------------------------


@pytest.mark.claim("spl-08", verdict="verified")
@pytest.mark.parametrize("causal", [False, True])
def test_spl_08_attention_and_masked_attention_are_cubic(causal):
    attention = seeded(lambda: relu_attention(heads=2))
    assert spline.degree(attention) == 3
    assert spline.measured_degree(attention, (3, 2), causal=causal, lines=LINES) == 3


@pytest.mark.claim("spl-08", verdict="verified")
def test_spl_08_cross_attention_is_cubic_quadratic_in_the_memory_and_linear_in_the_queries():
    attention = seeded(lambda: relu_attention(heads=2))
    measured = {
        moving: spline.measured_degree(
            attention, (2, 2), memory_shape=(3, 2), moving=moving, limit=3, lines=LINES
        )
        for moving in ("both", "memory", "input")
    }
    assert measured == {"both": 3, "memory": 2, "input": 1}


@pytest.mark.claim("spl-08", verdict="verified")
def test_spl_08_encoder_and_decoder_blocks_are_cubic_encoder_decoder_blocks_quintic():
    encoder, decoder, both = seeded(
        lambda: (encoder_block(), decoder_block(cross=False), decoder_block())
    )
    assert [spline.degree(m) for m in (encoder, decoder, both)] == [3, 3, 5]
    assert spline.measured_degree(encoder, (2, 2), lines=LINES) == 3
    assert spline.measured_degree(decoder, (2, 2), lines=LINES) == 3
    for moving, wanted in (("both", 5), ("memory", 2), ("input", 3)):
        measured = spline.measured_degree(
            both, (2, 2), memory_shape=(2, 2), moving=moving, lines=LINES
        )
        assert measured == wanted


@pytest.mark.claim("spl-08", verdict="verified")
@pytest.mark.parametrize("kind", [encoder_block, lambda: decoder_block(cross=False)])
@pytest.mark.parametrize("layers, lines", [(1, LINES), (2, LINES), (3, 4)])
def test_spl_08_t_layers_have_degree_3_to_the_t(kind, layers, lines):
    stack = seeded(lambda: nn.ModuleList([kind() for _ in range(layers)]), 2)
    assert spline.degree(stack) == 3**layers
    assert spline.measured_degree(stack, (2, 2), lines=lines) == 3**layers


@pytest.mark.claim("spl-08/encoder-decoder", verdict="verified")
@pytest.mark.parametrize("s, t", [(0, 1), (0, 2), (1, 1), (2, 1), (1, 2)])
def test_spl_08_encoder_decoders_have_degree_3_to_s_plus_t_plus_3_to_t_minus_3_to_s(s, t):
    encoder, decoder = seeded(
        lambda: (
            nn.Sequential(*[encoder_block() for _ in range(s)]),
            nn.ModuleList([decoder_block() for _ in range(t)]),
        ),
        3,
    )
    wanted = 3 ** (s + t) + 3**t - 3**s
    assert spline.transformer_degree(s, t) == wanted
    assert spline.degree(decoder, memory=spline.degree(encoder)) == wanted
    measured = spline.measured_degree(
        decoder, (2, 2), memory_shape=(2, 2), encoder=encoder, lines=4 if s + t < 3 else 1
    )
    assert measured == wanted


@pytest.mark.mutation("spl-08")
def test_spl_08_other_formulas_fail():
    assert spline.transformer_degree(0, 1) == 5 and spline.transformer_degree(3, 0) == 1
    assert spline.transformer_degree(2, 1) not in (3**3, 3**3 + 3, 2 * 3**2 + 5)
    assert spline.transformer_degree(1, 2) != 5 * 3**2


@pytest.mark.claim("spl-08/autoregressive", verdict="corrected")
def test_spl_08_cross_attention_is_autoregressive_in_its_queries_only():
    """Masked attention and decoders see no later token; encoder–decoder attention sees the whole
    memory, so it is autoregressive in one argument only, like the blocks made of it."""
    torch.manual_seed(0)
    masked, cross, decoder = relu_attention(), relu_attention(), decoder_block(cross=False)
    x, z = torch.randn(4, 2, dtype=REAL), torch.randn(4, 2, dtype=REAL)
    later_x, later_z = x.clone(), z.clone()
    later_x[3] += 1.0
    later_z[3] += 1.0
    for module in (lambda a: masked(a, causal=True), decoder):
        assert torch.equal(module(x)[:3], module(later_x)[:3])
    assert torch.allclose(cross(x, z)[:3], cross(later_x, z)[:3])
    assert float((cross(x, z)[:3] - cross(x, later_z)[:3]).detach().abs().max()) > 1e-3


def test_what_is_no_spline_has_no_degree():
    for module in (
        MultiHeadAttention(2),
        nn.LayerNorm(2),
        nn.Sequential(nn.Linear(2, 2), nn.Tanh()),
    ):
        with pytest.raises(ValueError):
            spline.degree(module)
    block = encoder_block()
    assert spline.degree(FeedForward(2, 3)) == 1 and spline.degree(block, input=2) == 6
    with pytest.raises(ValueError, match="limit is 2"):
        spline.measured_degree(seeded(relu_attention), (2, 2), limit=2, lines=LINES)
    with pytest.raises(ValueError, match="moving"):
        spline.measured_degree(block, (2, 2), moving="x")


# spl-16 and pieces --------------------------------------------------------------------------------


@pytest.mark.claim("spl-16", verdict="verified")
def test_spl_16_degree_and_pieces_grow_exponentially_with_depth():
    """One block x ↦ x³ composed t times has degree 3^t; one tent map composed t times 2^t pieces."""
    x = spline.variables(1, 1)[0, 0]
    cube = spline.compile_encoder(x**3)
    tent = spline.compile_encoder(spline.minimum(2 * x, 2 - 2 * x))
    assert cube.report.layers == tent.report.layers == 1
    for t in range(1, 5):
        assert spline.pieces(nn.Sequential(*[cube] * t), ([[1]], [[2]]))[0].degree == 3**t
        slopes = [
            piece.polynomials[0].coeff_monomial(piece.polynomials[0].gen)
            for piece in spline.pieces(nn.Sequential(*[tent] * t), ([[0]], [[1]]))
        ]
        bends = sum(a != b for a, b in zip(slopes, slopes[1:], strict=False))
        assert bends + 1 == 2**t
        assert set(map(abs, slopes)) == {2**t}


@pytest.mark.mutation("spl-16")
def test_spl_16_one_layer_does_not_grow():
    x = spline.variables(1, 1)[0, 0]
    wide = sum(spline.maximum(x - i, 0) for i in range(10)) ** 3
    assert spline.compile_encoder(wide).report.degree == 3


def test_pieces_agree_with_the_module_and_cover_the_segment():
    torch.manual_seed(1)
    block = encoder_block()
    a, b = torch.randn(2, 2, 2, dtype=REAL) * 6
    found = spline.pieces(block, (a, -b))
    assert found[0].start == 0.0 and found[-1].stop == 1.0
    assert len(found) > 3 and len({piece.signs for piece in found}) == len(found)
    for piece, following in zip(found, found[1:], strict=False):
        assert piece.stop == following.start
    for piece in found:
        for share in (0.0, 0.5, 1.0):
            place = piece.start + share * (piece.stop - piece.start)
            wanted = block((1 - place) * a - place * b).flatten().tolist()
            got = [float(p.eval(Fraction(place))) for p in piece.polynomials]
            assert got == pytest.approx(wanted, abs=1e-10)


def test_crossings_are_found_exactly_however_close():
    x = spline.variables(1, 1)[0, 0]
    tiny = Fraction(1, 10**15)
    f = spline.maximum(x - Fraction(1, 3), 0) + spline.maximum(x - Fraction(1, 3) - tiny, 0)
    starts = [piece.start for piece in spline.pieces(f, (0, 1))]
    assert len(starts) == 3
    exact = [piece.isolated[0] for piece in spline.pieces(f, (0, 1))]
    assert exact[1][0] <= Fraction(1, 3) <= exact[1][1] < exact[2][1]
    root = spline.pieces(spline.maximum(x * x - 2, 0), (0, 2))
    assert root[1].start == pytest.approx(0.5**0.5, abs=1e-16)
    assert len(spline.pieces(spline.maximum((x - 1) ** 2, 0), (0, 2))) == 1  # touches, no crossing


def test_segments_are_checked():
    x = spline.variables(1, 2)[0, 0]
    with pytest.raises(ValueError, match="shapes"):
        spline.pieces(x, ([[0, 1]], [[1], [2]]))
