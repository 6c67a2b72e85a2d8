"""SciPy's splines compile to encoders: accuracy, exactness, counts, speed and bad input."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import interpolate

from fourviews import spline

ACCURATE = 1e-10
CLAMPED = np.r_[[0.0] * 3, np.linspace(0, 1, 9), [1.0] * 3]


def values(encoder, x, dtype=torch.float64):
    x = np.asarray(x, dtype=float)
    points = torch.tensor(x if x.ndim == 2 else x[:, None], dtype=dtype)[:, None]
    return encoder(points)[:, 0].double().numpy()


def relative_error(encoder, f, x, dtype=torch.float64):
    wanted = np.asarray(f(x), dtype=float).reshape(len(x), -1)
    return np.abs(values(encoder, x, dtype) - wanted).max() / np.abs(wanted).max()


@st.composite
def knots(draw, most=50):
    count = draw(st.integers(3, most))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    widths = 10 ** generator.uniform(-draw(st.sampled_from([0, 1, 3])), 0, count - 1)
    scale = 10.0 ** draw(st.integers(-3, 3))
    shift = draw(st.sampled_from([0.0, 1.0, -7.5]))
    return generator, scale * (np.r_[0.0, np.cumsum(widths)] + shift * widths.sum())


def inside(generator, x, count=400):
    drawn = generator.uniform(x[0], x[-1], count)
    return np.sort(np.r_[x, (x[1:] + x[:-1]) / 2, drawn])


@settings(max_examples=25, deadline=None)
@given(knots(), st.sampled_from(["not-a-knot", "natural", "clamped"]))
def test_cubic_splines_agree(drawn, ends):
    generator, x = drawn
    f = interpolate.CubicSpline(x, generator.standard_normal(len(x)), bc_type=ends)
    encoder = spline.compile_encoder(f)
    assert relative_error(encoder, f, inside(generator, x)) <= ACCURATE
    assert encoder.report.layers == 2  # ⌈log₃ 3⌉ + 1, whatever the number of knots
    assert encoder.report.jump <= 1e-9 * np.abs(f(x)).max()


@settings(max_examples=25, deadline=None)
@given(knots(), st.integers(1, 5), st.sampled_from(["error", "extend"]))
def test_b_splines_of_several_values_agree(drawn, degree, outside):
    generator, x = drawn
    t = np.r_[[x[0]] * degree, x, [x[-1]] * degree]
    f = interpolate.BSpline(t, generator.standard_normal((len(t) - degree - 1, 2)), degree)
    encoder = spline.compile_encoder(f, outside=outside)
    assert encoder.d_out == 2
    assert relative_error(encoder, f, inside(generator, x)) <= ACCURATE
    assert encoder.report.layers == max(1, math.ceil(math.log(degree, 3) - 1e-12) + 1)


@pytest.mark.parametrize("kind", [interpolate.PchipInterpolator, interpolate.Akima1DInterpolator])
def test_other_piecewise_polynomials_agree(kind):
    generator = np.random.default_rng(0)
    x = np.sort(generator.uniform(-2, 3, 20))
    f = kind(x, generator.standard_normal(20))
    assert relative_error(spline.compile_encoder(f), f, inside(generator, x)) <= ACCURATE


def test_the_number_of_blocks_does_not_depend_on_the_number_of_knots():
    for count in (3, 10, 50, 200):
        for degree, blocks in ((1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (9, 3), (10, 4)):
            t = np.r_[[0.0] * degree, np.linspace(0, 1, count), [1.0] * degree]
            if degree > 5 and count > 10:
                continue
            c = np.cos(np.arange(len(t) - degree - 1.0))
            report = spline.compile_encoder(interpolate.BSpline(t, c, degree)).report
            assert report.layers == blocks
            assert report.degree == degree


def basis_value(t, k, i, x):
    """B_i by the recursive definition, in rationals."""
    if k == 0:
        last = t[i + 1] == t[-1] and x == t[-1] and t[i] < t[i + 1]
        return Fraction(int(t[i] <= x < t[i + 1] or last))
    total = Fraction(0)
    if t[i + k] > t[i]:
        total += (x - t[i]) / (t[i + k] - t[i]) * basis_value(t, k - 1, i, x)
    if t[i + k + 1] > t[i + 1]:
        total += (t[i + k + 1] - x) / (t[i + k + 1] - t[i + 1]) * basis_value(t, k - 1, i + 1, x)
    return total


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_b_splines_are_exact_in_rationals(degree):
    generator = np.random.default_rng(degree)
    x = np.sort(generator.uniform(-1, 1, 6))
    t = np.r_[[x[0]] * degree, x, [x[-1]] * degree]
    f = interpolate.BSpline(t, generator.standard_normal(len(t) - degree - 1), degree)
    encoder = spline.compile_encoder(f)
    exact_t = [Fraction(v) for v in t.tolist()]
    for point in [
        *t.tolist()[degree : len(t) - degree],
        *generator.uniform(x[0], x[-1], 5).tolist(),
    ]:
        at = Fraction(point)
        wanted = sum(
            Fraction(c) * basis_value(exact_t, degree, i, at) for i, c in enumerate(f.c.tolist())
        )
        assert encoder.exact(at) == [[wanted]]


def test_integer_piecewise_polynomials_are_exact_also_beyond_their_ends():
    c = np.array([[1.0, -1.0, 2.0], [0.0, 3.0, -1.0], [2.0, -1.0, 0.0], [5.0, 0, 0]])
    x = np.array([-1.0, 1.0, 2.0, 4.0])
    for i in (1, 2):
        h = x[i] - x[i - 1]
        c[3, i] = ((c[0, i - 1] * h + c[1, i - 1]) * h + c[2, i - 1]) * h + c[3, i - 1]
    encoder = spline.compile_encoder(interpolate.PPoly(c, x), outside="extend")
    assert encoder.report.jump == 0
    for point in [Fraction(n, 6) for n in range(-20, 40)]:
        i = sum(point >= knot for knot in (1, 2))
        u = point - int(x[i])
        wanted = sum(int(c[3 - k, i]) * u**k for k in range(4))
        assert encoder.exact(point) == [[wanted]]


def test_single_precision_keeps_its_digits():
    # Six digits near the truth: the offsets of the knots round like x itself.
    generator = np.random.default_rng(1)
    x = np.sort(generator.uniform(0, 1, 50))
    f = interpolate.CubicSpline(np.linspace(0, 1, 50), generator.standard_normal(50))
    encoder = spline.compile_encoder(f, dtype=torch.float32)
    x = x.astype(np.float32)
    assert relative_error(encoder, f, x, torch.float32) <= 2e-5


def test_outside_is_an_error_or_the_outermost_polynomials():
    f = interpolate.CubicSpline([0.0, 1.0, 2.5, 3.0], [1.0, -1.0, 0.5, 2.0])
    beyond = np.array([-0.7, 3.9])
    with pytest.raises(ValueError, match=r"2 points lie outside the domain, the first is.*-0\.7"):
        values(spline.compile_encoder(f), beyond)
    extended = spline.compile_encoder(f, outside="extend")
    assert relative_error(extended, f, np.r_[beyond, 1.0]) <= ACCURATE
    single = spline.compile_encoder(f, dtype=torch.float32)
    values(single, np.array([0.0, 3.0], dtype=np.float32), torch.float32)


@pytest.mark.parametrize("outside", ["error", "extend"])
@pytest.mark.parametrize("degrees", [(3, 3), (1, 2), (2, 3, 1)])
def test_tensor_products_agree(degrees, outside):
    generator = np.random.default_rng(len(degrees))
    axes = []
    for k in degrees:
        x = np.sort(generator.uniform(-1, 2, 5))
        axes.append(np.r_[[x[0]] * k, x, [x[-1]] * k])
    shape = [len(t) - k - 1 for t, k in zip(axes, degrees, strict=True)]
    f = interpolate.NdBSpline(tuple(axes), generator.standard_normal((*shape, 2)), degrees)
    encoder = spline.compile_encoder(f, outside=outside)
    low, high = (np.array([t[end] for t in axes]) for end in (0, -1))
    slack = 0.2 if outside == "extend" else 0.0
    x = generator.uniform(low - slack, high + slack, (500, len(degrees)))
    assert relative_error(encoder, f, x) <= ACCURATE
    assert encoder.report.degree == sum(degrees)


def test_a_grid_of_8_by_8_cells_compiles_quickly():
    f = interpolate.NdBSpline(
        (CLAMPED, CLAMPED), np.random.default_rng(0).standard_normal((11, 11)), 3
    )
    started = time.process_time()
    encoder = spline.compile_encoder(f)
    assert time.process_time() - started < 30
    assert encoder.report.layers == 3
    assert max(encoder.report.heads) <= 30


def test_a_cubic_spline_compiles_in_a_second_and_evaluates_fast_enough():
    generator = np.random.default_rng(0)
    f = interpolate.CubicSpline(np.linspace(0, 1, 50), generator.standard_normal(50))
    started = time.process_time()
    encoder = spline.compile_encoder(f)
    assert time.process_time() - started < 1
    x = generator.uniform(0, 1, 100_000)
    points = torch.tensor(x)[:, None, None]

    def best(call):
        times = []
        for _ in range(5):
            begun = time.process_time()
            call()
            times.append(time.process_time() - begun)
        return min(times)

    assert best(lambda: encoder(points)) <= 50 * best(lambda: f(x))


def test_gradients_are_those_of_the_spline():
    f = interpolate.CubicSpline(np.arange(6.0), np.array([0.0, 2, -1, 3, 1, 0]))
    x = torch.linspace(0.1, 4.9, 9, dtype=torch.float64)[:, None, None].requires_grad_()
    spline.compile_encoder(f)(x).sum().backward()
    assert np.allclose(x.grad[:, 0, 0], f(x.detach()[:, 0, 0].numpy(), 1), atol=1e-12)


def test_dense_blocks_of_the_attention_module_compute_the_same():
    f = interpolate.CubicSpline(np.arange(5.0), np.array([0.0, 2, -1, 3, 1]))
    encoder = spline.compile_encoder(f)
    x = torch.linspace(0, 4, 50, dtype=torch.float64)[:, None, None]
    assert torch.allclose(encoder.dense()(x), encoder(x), rtol=0, atol=1e-13)
    assert {type(block).__name__ for block in encoder.dense()} == {"EncoderBlock"}


# --- bad input ------------------------------------------------------------------------------------


def bad(f, message, **options):
    with pytest.raises(ValueError, match=message):
        spline.compile_encoder(f, **options)


def test_discontinuous_functions_say_where():
    bad(interpolate.PPoly([[0.0, 0.0], [1.0, 2.0]], [0, 1, 2]), "jumps from 1.0 to 2.0 at 1.0")
    t = [0.0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5, 1, 1, 1, 1]
    bad(interpolate.BSpline(t, np.arange(8.0), 3), "discontinuous.* at 0.5")
    step = interpolate.NdBSpline(([0.0, 1, 2], [0.0, 0, 1, 1]), np.eye(2), (0, 1))
    bad(step, "the basis of axis 0 is discontinuous")


def test_knots_and_coefficients_are_checked():
    f = interpolate.PPoly.construct_fast(np.ones((2, 2)), np.array([0.0, 2.0, 1.0]))
    bad(f, "breakpoints are not increasing: number 1 is 2.0, number 2 is 1.0")
    bad(interpolate.PPoly([[1.0, 1.0], [0.0, -1.0]], [2, 1, 0]), "not increasing")
    bad(interpolate.PPoly([[np.nan], [0.0]], [0, 1]), "c has nan")
    bad(interpolate.PPoly([[1j], [0.0]], [0, 1]), "complex")


def test_extrapolation_that_cannot_be_honoured_is_refused():
    x = np.linspace(0, 1, 5)
    periodic = interpolate.CubicSpline(x, [0.0, 1, 0, -1, 0], bc_type="periodic")
    bad(periodic, "infinitely many pieces", outside="extend")
    spline.compile_encoder(periodic)
    cut = interpolate.CubicSpline(x, x, extrapolate=False)
    bad(cut, "extrapolate=False", outside="extend")
    spline.compile_encoder(cut)
    bad(cut, "outside is 'nan'", outside="nan")
    hull = interpolate.LinearNDInterpolator(np.array([[0.0, 0], [1, 0], [0, 1]]), np.ones(3))
    bad(hull, "convex hull", outside="extend")


def test_other_objects_are_refused():
    bad(np.sin, "it needs to be a PPoly")
    bad(interpolate.RegularGridInterpolator(([0, 1],), [0, 1]), "it needs to be a PPoly")


def test_inputs_of_the_module_are_checked():
    encoder = spline.compile_encoder(interpolate.CubicSpline([0.0, 1, 2], [0.0, 1, 0]))
    with pytest.raises(ValueError, match="float32"):
        encoder(torch.zeros(1, 1))
    with pytest.raises(ValueError, match="shape"):
        encoder(torch.zeros(2, 1, dtype=torch.float64))
    with pytest.raises(ValueError, match="outside"):
        encoder(torch.full((1, 1), float("nan"), dtype=torch.float64))
    assert encoder(torch.zeros(0, 1, 1, dtype=torch.float64)).shape == (0, 1, 1)
