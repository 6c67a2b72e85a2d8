"""Input that does not fit is named, nothing is cut short in silence, nothing runs on without end."""

from __future__ import annotations

import functools
import math
import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import interpolate
from torch import nn

from fourviews import spline
from fourviews.attention import MultiHeadAttention
from fourviews.spline.functions.expression import PRINTED

from .cases import REAL

X = spline.variables(2, 2)
x = X[0, 0]
LINE = spline.variables(1, 1)[0, 0]
CUBIC = interpolate.CubicSpline(np.arange(5.0), [0.0, 1, -1, 2, 0])
STEEP = interpolate.PPoly(np.array([[1e60, 1e60], [0, 1e60]]), [0, 1, 2])
TRIANGLE = ([[0, 0], [1, 0], [0, 1]], [[0, 1, 2]])


def _class(pieces):
    return spline.PiecewisePolynomial(spline.SignPartition([x]), pieces)


_BAD = {
    "dtype is torch.int64": lambda: spline.compile_encoder(CUBIC, dtype=torch.int64),
    "dtype is torch.complex64": lambda: spline.compile_encoder(CUBIC, dtype=torch.complex64),
    "about 2.200 is too large for torch.float32": lambda: spline.compile_encoder(
        STEEP, dtype=torch.float32
    ),
    "about 2.199 is too large": lambda: spline.compile_encoder(STEEP).dense(dtype=torch.float32),
    "too large for torch.float64": lambda: spline.compile_encoder([x * 10**400]),
    "2.1328 is too large": lambda: (x * 10**400)(torch.ones(1, 2, 2)),
    "dtype is torch.int32": lambda: spline.cpwl_network(LINE, dtype=torch.int32),
    "s is 1.5": lambda: spline.variables(1.5, 2),
    "d is True": lambda: spline.variables(1, True),
    r"a constant is tensor": lambda: x + torch.ones(2),
    "a remainder": lambda: 3 % x,
    "rounding": lambda: math.floor(x),
    "rounding or": lambda: 3 // x,
    "jumps": lambda: divmod(x, 2),
    "roots, exponentials": lambda: np.sqrt(x),
    "sines and the like": lambda: np.sin(X),
    r"x\[0, 0\] is no number": lambda: math.exp(x),
    "is no number, and": lambda: float(x),
    "pieces is 3.0": lambda: spline.chen_bound(3.0, 2),
    "n is 1.5": lambda: spline.sum_and_composition_parameters(1.5, 1),
    "encoder_layers is 0.5": lambda: spline.transformer_degree(0.5, 1),
    "k is -1": lambda: spline.veronese([x], -1),
    "k is 0": lambda: spline.veronese_encoder(1, 1, 0),
    "n is 2.5": lambda: spline.monomials(2.5, 2),
    "f is a int; it needs to be an expression": lambda: spline.normal_form(1),
    "f is a float; it needs to be an expression": lambda: spline.difference_of_convex(1.0),
    "functions need": lambda: spline.reduce_maximum([(), ()]),
    "a coefficient is nan": lambda: spline.reduce_maximum([(1, math.nan)]),
    "network is a Linear": lambda: spline.network_block(nn.Linear(1, 1), 2),
    "input is -1": lambda: spline.degree(nn.ReLU(), input=-1),
    "the input is 2 × 1; the encoder needs 1 × 1": lambda: spline.measured_degree(
        spline.compile_encoder(CUBIC), (2, 1)
    ),
    "tokens of 2 numbers; a layer needs 3": lambda: spline.measured_degree(nn.Linear(3, 2), (2, 2)),
    "the offsets are those of 3 tokens; there are 2": lambda: spline.measured_degree(
        MultiHeadAttention(2, 1, activation="relu", offset_tokens=3), (2, 2)
    ),
    "the offsets are those of 3 tokens; there are 4": lambda: spline.pieces(
        MultiHeadAttention(1, 1, activation="relu", offset_tokens=3), ([[0]] * 4, [[1]] * 4)
    ),
    "a side of shape is 0": lambda: spline.measured_degree(nn.ReLU(), (0, 1)),
    "ends are 1 × 1": lambda: spline.pieces(x, ([[0]], [[1]])),
    "segment is": lambda: spline.pieces(LINE, (1,)),
    "the input is 1 × 2": lambda: spline.pieces(
        spline.compile_encoder(CUBIC), ([[0, 1]], [[1, 1]])
    ),
    "no variable": lambda: spline.SignPartition([1]),
    "pieces is empty": lambda: _class({}),
    "the sign vector 1 needs": lambda: _class({1: x}),
    "three places in 3 points": lambda: spline.triangulation_partition(TRIANGLE[0], [[0, 1, 5]]),
    "two equal corners": lambda: spline.triangulation_partition(
        [[0, 0], [0, 0], [0, 1]], TRIANGLE[1]
    ),
    "sharpness is 'a'": lambda: spline.smooth(nn.ReLU(), sharpness="a"),
    "x has shape": lambda: spline.smoothing_errors(nn.ReLU(), torch.zeros(0, 1, 1), [1.0]),
    "U needs to be 5 × 5": lambda: spline.twin_points([[1, 0], [0, 1]], 1),
    "epsilon is nan": lambda: spline.twin_points(np.eye(5).tolist(), math.nan),
    "an entry of X is nan": lambda: spline.counterexample()(
        np.full((5, 5), math.nan).tolist(), np.eye(5).tolist()
    ),
    # Six rows are not dominated by their diagonals any more: the function would jump.
    "size is 6": lambda: spline.Counterexample(6),
}


@pytest.mark.parametrize("words", _BAD)
def test_what_does_not_fit_is_named(words):
    with pytest.raises(ValueError, match=words):
        _BAD[words]()


def test_a_maximum_that_is_constant_still_has_variables():
    encoder = spline.compile_encoder([spline.maximum(0 * x, 1)])
    points = torch.randn(3, 2, 2, dtype=REAL)
    assert torch.equal(encoder(points), torch.ones(3, 2, 1, dtype=REAL))
    assert spline.linear_after_veronese(0 * x)[0] == 0


def test_powers_and_printing_take_no_time():
    started = time.process_time()
    assert x**1_000_000 is (x**1000) ** 1000
    assert (x + 1) ** 3 is (x + 1) * (x + 1) * (x + 1) and x**0 is spline.Expression.of(1)
    shared = LINE
    for _ in range(60):
        shared = spline.maximum(shared * shared + LINE, shared)
    assert "…" in repr(shared) and len(repr(shared)) < 40 * PRINTED
    with pytest.raises(ValueError, match="has products"):
        spline.cpwl_network(shared)
    chain = functools.reduce(lambda f, i: spline.maximum(f / 2 + i, 0), range(3000), LINE)
    assert repr(chain).startswith("max(")
    assert time.process_time() - started < 5
    assert repr(2 * X[1, 0] * (x + 1) - 3) == "2·x[1, 0]·(x[0, 0] + 1) + -3"


def _bumps(variables, count):
    """A sum of hinges whose slopes all differ: 2^count sums of pieces."""
    return sum(
        (i * i + 1) * spline.maximum(sum(i**k * v for k, v in enumerate(variables)) - i, 0)
        for i in range(1, count + 1)
    )


def test_in_one_variable_only_functions_that_matter_are_kept():
    f = _bumps([LINE], 40)
    upper, lower = spline.difference_of_convex(f)
    assert len(upper) == 41 and len(lower) == 1
    for point in (Fraction(-5), Fraction(7, 2), Fraction(100)):
        value = max(a * point + b for a, b in upper) - max(a * point + b for a, b in lower)
        assert value == f([[point]])
    network = spline.cpwl_network(_bumps([LINE], 12))
    points = torch.linspace(-3, 15, 50, dtype=REAL)[:, None]
    expected = _bumps([LINE], 12)(points[:, None])
    assert (network(points)[:, 0] - expected).abs().max() <= 1e-11 * expected.abs().max()


def test_forms_that_grow_without_end_stop():
    started = time.process_time()
    with pytest.raises(ValueError, match="more than 20000 affine functions"):
        spline.difference_of_convex(_bumps(spline.variables(1, 3)[0], 40))
    with pytest.raises(ValueError, match="polynomials on the way"):
        spline.normal_form(_bumps([LINE], 30))
    assert time.process_time() - started < 20


def test_closed_gaps_are_added_up_for_each_output():
    gap = 2.0**-36
    c = np.zeros((2, 3, 2))
    c[0] = 1.0
    c[1, :, 0] = [0, 1 + gap, 2 + 2 * gap]  # two gaps
    c[1, :, 1] = [0, 1, 2]
    for order in ([0, 1], [1, 0], [0, 0]):
        encoder = spline.compile_encoder(interpolate.PPoly(c[..., order], [0.0, 1, 2, 3]))
        assert encoder.report.jump == 2 * gap
        at_end = encoder(torch.tensor([[[3.0]]], dtype=REAL))[0, 0, order.index(0)]
        assert abs(float(at_end) - (3 + 2 * gap)) <= encoder.report.jump


@pytest.mark.parametrize("scale", [Fraction(1, 8), Fraction(1, 2), 1, 3])
def test_normal_forms_of_small_factors(scale):
    # A bound u ≥ |p| has to hold where |p| < 2 as well, which p²/2 does not.
    p, y = spline.variables(1, 2)[0]
    for f in (p * spline.maximum(y, 0), spline.maximum(p, y) * spline.minimum(p, 1 - y)):
        form = spline.normal_form(f)
        for point in ([-1, 1], [1, 1], [-1, -1], [1, -2], [-2, 3]):
            at = [[scale * v for v in point]]
            assert form(at) == f(at) == form.expression()(at)
