"""Counting parameters, partitions, splines, Pierce–Birkhoff, smoothing (spl-01 … spl-04, spl-15)."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import sympy
import torch
from scipy import interpolate
from torch import nn

from fourviews import spline

from .cases import REAL, encoder_block, random_matrix

MAX, MIN = spline.maximum, spline.minimum


# spl-01 -------------------------------------------------------------------------------------------


@pytest.mark.claim("spl-01", verdict="verified")
@pytest.mark.parametrize("n, d", [(1, 4), (2, 2), (2, 5), (3, 4)])
def test_spl_01_parameters_of_sums_and_compositions(n, d):
    """Counted on a tensor-product spline with n values and on layers with one slope a neuron."""
    knots = np.r_[0.0, np.linspace(0, 1, d), 1.0]
    summed = interpolate.NdBSpline((knots,) * n, np.zeros((d,) * n + (n,)), 1)
    layers: list[nn.Module] = [nn.Linear(n, n, bias=False)]
    for _ in range(d - 1):
        layers += [nn.PReLU(n), nn.Linear(n, n, bias=False)]
    composed = sum(p.numel() for p in nn.Sequential(*layers).parameters())
    assert spline.sum_and_composition_parameters(n, d) == (summed.c.size, composed)


@pytest.mark.mutation("spl-01")
def test_spl_01_already_two_functions_a_variable_are_too_many():
    summed, composed = spline.sum_and_composition_parameters(20, 2)
    assert summed == 20 * 2**20 and composed == 2 * 400 + 20
    assert spline.sum_and_composition_parameters(1, 1) == (1, 1)
    with pytest.raises(ValueError):
        spline.sum_and_composition_parameters(0, 1)


# spl-02 -------------------------------------------------------------------------------------------


@pytest.mark.claim("spl-02", verdict="verified")
@pytest.mark.parametrize("b", [1, 2, 3, 4])
def test_spl_02_lines_in_general_position_give_fewer_than_3_to_the_b_classes(b):
    x, y = spline.variables(1, 2)[0]
    partition = spline.SignPartition([(i + 1) * x - y + i * i for i in range(b)])
    classes = partition.lines()
    # Cells, open pieces of lines and corners of b lines in general position.
    assert len(classes) == (1 + b + b * (b - 1) // 2) + b * b + b * (b - 1) // 2
    assert len(classes) <= 3**b
    sampled = partition.classes([random_matrix(random.Random(i), 1, 2) for i in range(200)])
    assert sampled <= classes


@pytest.mark.claim("spl-02", verdict="verified")
def test_spl_02_all_3_to_the_b_classes_can_occur():
    X = spline.variables(1, 3)[0]
    partition = spline.SignPartition(list(X))
    assert len(partition.classes([list(p) for p in product((-1, 0, 1), repeat=3)])) == 27


@pytest.mark.mutation("spl-02")
def test_spl_02_quadratic_polynomials_may_have_several_pieces_in_a_class():
    x = spline.variables(1, 1)[0, 0]
    partition = spline.SignPartition([x * x - 1])
    assert partition.signs(-2) == partition.signs(2) == (1,)
    assert len(partition.classes([-2, -1, 0, 1, 2])) == 3


@pytest.mark.claim("spl-02/triangulations", verdict="corrected")
def test_spl_02_a_triangulation_is_a_union_of_classes_not_a_partition_by_signs():
    """Edges end, lines do not: a triangle with a point inside is cut into more than its triangles.

    Any polynomial of degree 1 that vanishes on an inner edge vanishes on its line, and so changes
    its sign inside the opposite triangle.
    """
    points = np.array([[0, 0], [4, 0], [0, 4], [1, 1]])
    simplices = [[0, 1, 3], [1, 2, 3], [2, 0, 3]]
    partition = spline.triangulation_partition(points, simplices)
    inside: list[set] = []
    for simplex in simplices:
        generator = np.random.default_rng(0)
        shares = generator.integers(1, 60, (300, 3))
        corners = points[simplex].astype(object)
        found = {
            partition.signs([[Fraction(int(v), int(sum(w))) for v in w @ corners]])
            for w in shares.astype(object)
        }
        inside.append(found)
    # Every class lies in one triangle, but triangles consist of several open classes.
    assert all(not inside[i] & inside[j] for i, j in ((0, 1), (0, 2), (1, 2)))
    opened = [{signs for signs in found if 0 not in signs} for found in inside]
    assert all(len(found) >= 2 for found in opened)


# spl-03 -------------------------------------------------------------------------------------------


@pytest.mark.claim("spl-03", verdict="verified")
def test_spl_03_scalar_vector_and_matrix_splines_evaluate():
    X = spline.variables(2, 1)
    x, y = X[:, 0]
    partition = spline.SignPartition([x - y])
    scalar = spline.PiecewisePolynomial(partition, {(1,): x, (0,): x, (-1,): y})
    vector = spline.PiecewisePolynomial(
        partition, {(1,): [x, x * x], (0,): [x, x * x], (-1,): [y, x * y]}
    )
    matrix = spline.PiecewisePolynomial(
        partition, {(None,): np.array([[x, y], [x * y, 1]], dtype=object)}
    )
    assert (scalar.degree, vector.degree, matrix.degree) == (1, 2, 2)
    tensors = torch.tensor([[[3.0], [1.0]], [[-2.0], [5.0]]], dtype=REAL)
    assert scalar([[3], [1]]) == 3 and scalar(tensors).tolist() == [3.0, 5.0]
    assert vector([[-2], [5]]).tolist() == [5, -10]
    assert vector(tensors).tolist() == [[3.0, 9.0], [5.0, -10.0]]
    assert matrix(tensors).shape == (2, 2, 2)
    assert matrix([[3], [1]]).tolist() == [[3, 1], [3, 1]]
    encoder = spline.compile_encoder(MAX(x, y))
    assert torch.equal(encoder(tensors)[:, 0, 0], scalar(tensors))


@pytest.mark.claim("spl-03", verdict="verified")
@pytest.mark.parametrize("degree, cuts", [(1, 1), (2, 3), (3, 4)])
def test_spl_03_on_a_fixed_partition_they_form_a_space_of_finite_dimension(degree, cuts):
    """k + 1 numbers on each of b + 1 intervals, one condition at each of b cuts."""
    rows = []
    width = degree + 1
    for cut in range(cuts):
        powers = [Fraction(cut + 1) ** k for k in range(width)]
        row = [Fraction(0)] * (width * (cuts + 1))
        row[cut * width : (cut + 1) * width] = powers
        row[(cut + 1) * width : (cut + 2) * width] = [-p for p in powers]
        rows.append(row)
    rank = sympy.Matrix([[sympy.Rational(v.numerator, v.denominator) for v in r] for r in rows])
    dimension = width * (cuts + 1) - rank.rank()
    assert dimension == (degree + 1) * (cuts + 1) - cuts
    # The same count as SciPy's basis of continuous splines: inner knots of multiplicity k.
    x = spline.variables(1, 1)[0, 0]
    basis = [x**k for k in range(width)]
    basis += [MAX(x - c - 1, 0) * (x - c - 1) ** k for c in range(cuts) for k in range(degree)]
    points = [Fraction(i, 7) for i in range(0, 7 * (cuts + 2))]
    values = sympy.Matrix([[sympy.Rational(str(f([[p]]))) for f in basis] for p in points])
    assert values.rank() == len(basis) == dimension


@pytest.mark.mutation("spl-03")
def test_spl_03_a_class_with_two_parts_has_one_polynomial():
    """Cut by x² − 1 there are as many places as with x − 1 and x + 1, and fewer splines."""
    one, two = ([x**k for k in range(3)] for x in (-1, 1))
    no = [0, 0, 0]
    neg = lambda row: [-v for v in row]  # noqa: E731
    joined = sympy.Matrix([one + neg(one), two + neg(two)])  # outside, inside
    assert 6 - joined.rank() == 4
    apart = sympy.Matrix([one + neg(one) + no, no + two + neg(two)])
    assert 9 - apart.rank() == 7 == (2 + 1) * (2 + 1) - 2
    x = spline.variables(1, 1)[0, 0]
    partition = spline.SignPartition([x * x - 1])
    assert len(partition.classes([-3, -1, 0, 1, 3])) == 3


@pytest.mark.mutation("spl-03")
def test_spl_03_pieces_are_checked():
    x, y = spline.variables(1, 2)[0]
    partition = spline.SignPartition([x])
    for wrong in (
        {(1,): MAX(x, y)},
        {(1, 1): x},
        {(2,): x},
        {(1,): x, (None,): y},
        {(1,): x, (0,): [x, y]},
    ):
        with pytest.raises(ValueError):
            spline.PiecewisePolynomial(partition, wrong)
    with pytest.raises(ValueError, match="no piece for signs"):
        spline.PiecewisePolynomial(partition, {(1,): x})([[-1, 0]])
    many = spline.SignPartition([x - i for i in range(40)])
    above = spline.PiecewisePolynomial(many, {(1, *[None] * 39): x, (-1, *[None] * 39): -x})
    assert above([[7, 0]]) == 7 and above([[-7, 0]]) == 7
    assert above(torch.tensor([[[7.0, 0.0]], [[-7.0, 0.0]]], dtype=REAL)).tolist() == [7.0, 7.0]
    with pytest.raises(ValueError, match=r"\(1, -1\) is given twice"):
        spline.PiecewisePolynomial(spline.SignPartition([x, y]), {(1, None): x, (None, -1): y})
    for wrong in ([], [MAX(x, 0)], [x, spline.variables(2, 1)[0, 0]]):
        with pytest.raises(ValueError):
            spline.SignPartition(wrong)


# spl-04 -------------------------------------------------------------------------------------------


@pytest.mark.claim("spl-04", verdict="corrected")
def test_spl_04_splines_of_one_and_two_variables_in_sup_inf_form():
    product_, form = spline.product_of_positive_parts()
    x, y = spline.variables(1, 2)[0]
    quadrant = spline.PiecewisePolynomial(
        spline.SignPartition([x, y]),
        {(1, 1): x * y, (1, 0): 0, (1, -1): 0, (0, None): 0, (-1, None): 0},
    )
    generator = random.Random(0)
    for _ in range(300):
        at = random_matrix(generator, 1, 2)
        assert product_(at) == form(at) == quadrant(at)
    encoder = spline.compile_encoder(form)
    for _ in range(20):
        at = random_matrix(generator, 1, 2)
        assert encoder.exact(at) == [[quadrant(at)]]
    parabola = spline.compile_encoder(MAX(x * x - y, 0))
    assert parabola.report.layers == 1
    assert parabola.exact([3, 5]) == [[4]] and parabola.exact([1, 5]) == [[0]]
    # One variable: an encoder is max-definable, and every spline of one variable compiles.
    f = interpolate.CubicSpline(np.arange(4.0), np.array([0.0, 2.0, -1.0, 1.0]))
    assert spline.compile_encoder(f).report.layers == 2


def random_invertible(generator: random.Random):
    return [[Fraction(generator.randint(-9, 9), 3) for _ in range(5)] for _ in range(5)]


def quadratics(generator: random.Random, count: int):
    """Polynomials of degree 2 in 30 coordinates; every third one is a linear function of XY."""
    f = spline.counterexample()
    out = []
    for number in range(count):
        if number % 3 == 0:
            weights = random_invertible(generator)

            def of_product(z, weights=weights):
                X, Y = f.symmetric(z[:15]), f.symmetric(z[15:])
                return sum(
                    weights[i][j] * X[i][k] * Y[k][j]
                    for i in range(5)
                    for j in range(5)
                    for k in range(5)
                )

            out.append(of_product)
        else:
            terms = [
                (generator.randrange(30), generator.randrange(31), generator.randint(-5, 5))
                for _ in range(6)
            ]
            constant = generator.choice([0, 0, Fraction(1, 3)])

            def general(z, terms=terms, constant=constant):
                return constant + sum(c * z[i] * (z[j] if j < 30 else 1) for i, j, c in terms)

            out.append(general)
    return out


def sign(value) -> int:
    return (value > 0) - (value < 0)


@pytest.mark.claim("spl-04", verdict="corrected")
@pytest.mark.parametrize("seed", range(4))
def test_spl_04_no_family_of_quadratics_tells_the_counterexample_s_sign(seed):
    """Lai, Lim and Ren's function: two points with f > 0 and f = 0 that the family does not part."""
    generator = random.Random(seed)
    f = spline.counterexample()
    family = quadratics(generator, 30) + [
        lambda z, label=label: f.labels(f.symmetric(z[:15]), f.symmetric(z[15:]))[label]
        for label in range(40)
    ]
    U = random_invertible(generator)
    for exponent in range(1, 30):
        one, other = spline.twin_points(U, Fraction(1, 10**exponent))
        assert f(*one) == Fraction(1, 100**exponent) and f(*other) == 0
        z, w = f.coordinates(*one), f.coordinates(*other)
        if all(sign(p(z)) == sign(p(w)) for p in family):
            break
    else:
        raise AssertionError("some polynomial of the family tells the points apart")


@pytest.mark.claim("spl-04", verdict="corrected")
def test_spl_04_the_counterexample_is_continuous_and_quadratic():
    f = spline.counterexample()
    generator = random.Random(1)
    seen = 0
    for _ in range(400):
        upper = [Fraction(generator.randint(-6, 6), 6) for _ in range(30)]
        X, Y = f.symmetric(upper[:15]), f.symmetric(upper[15:])
        for i in range(5):
            X[i][i] += 9
            Y[i][i] += generator.choice([9, -9])
        h = f.h(X, Y)
        value = f(X, Y)
        assert 0 <= value <= max(h, 0)
        if h > 0:  # strictly diagonally dominant rows: X is invertible
            seen += 1
            P = [[sum(X[i][k] * Y[k][j] for k in range(5)) for j in range(5)] for i in range(5)]
            for i in range(5):
                assert P[i][i] > sum(abs(P[i][j]) for j in range(5) if j != i)
            assert f.determinant(X) != 0
        scaled = [[[3 * v for v in row] for row in M] for M in (X, Y)]
        assert f(*scaled) == 9 * value
    assert seen > 5
    with pytest.raises(ValueError, match="not symmetric"):
        f([[i for i in range(5)]] * 5, X)
    with pytest.raises(ValueError, match="invertible"):
        spline.twin_points([[0] * 5] * 5, 1)


@pytest.mark.mutation("spl-04")
def test_spl_04_the_determinant_tells_the_points_apart():
    """Without the determinant the function is max-definable, and an encoder computes it."""
    f = spline.counterexample()
    U = random_invertible(random.Random(3))
    one, other = spline.twin_points(U, Fraction(1, 8))
    assert f.determinant(one[0]) > 0 > f.determinant(other[0])
    part = f.max_definable_part()
    assert part.degree() == 2
    encoder = spline.compile_encoder(part)
    for point in (one, other):
        z = f.coordinates(*point)
        assert part(z) == f.h(*point) and encoder.exact(z) == [[f.h(*point)]]


@pytest.mark.claim("spl-13/classes", verdict="conditional")
def test_spl_13_some_encoder_is_no_spline_on_a_partition_by_lines():
    """max(x² − y, 0) bends at every point of a parabola, of which a line holds two at most."""
    x, y = spline.variables(1, 2)[0]
    encoder = spline.compile_encoder(MAX(x * x - y, 0))
    for t in range(-5, 6):
        before, after = spline.pieces(encoder, ([[t, t * t + 1]], [[t, t * t - 1]]))
        assert before.stop == after.start == 0.5
        assert before.polynomials[0].is_zero and after.degree == 1


@pytest.mark.claim("spl-13/classes", verdict="conditional")
def test_spl_13_some_spline_is_no_encoder():
    """The classes agree where the conjecture holds; in general splines are more (spl-04).

    For encoders the family can be written down; at twin points that it does not part, the encoder
    has one sign, and the spline f two.
    """
    f = spline.counterexample()
    encoder = spline.compile_encoder(f.max_definable_part())
    for seed in range(3):
        one, other = spline.twin_points(random_invertible(random.Random(seed)), Fraction(1, 50))
        values = [encoder.exact(f.coordinates(*point))[0][0] for point in (one, other)]
        assert sign(values[0]) == sign(values[1])
        assert f(*one) > 0 and f(*other) == 0


# spl-15 -------------------------------------------------------------------------------------------


def surface():
    x, y = spline.variables(1, 2)[0]
    return spline.compile_encoder(MAX(x * x - y, 0) * MAX(y, x))


def points(count=200, scale=1.0):
    torch.manual_seed(0)
    return scale * torch.randn(count, 1, 2, dtype=REAL)


@pytest.mark.claim("spl-15", verdict="verified")
def test_spl_15_softplus_keeps_close_and_the_error_falls_like_1_over_sharpness():
    errors = spline.smoothing_errors(surface(), points(), [10.0, 100.0, 1000.0, 10000.0])
    for error, sharper in zip(errors, errors[1:], strict=False):
        assert 5 < error / sharper < 20
    torch.manual_seed(0)
    block = encoder_block()
    x = torch.randn(50, 3, 2, dtype=REAL)
    errors = spline.smoothing_errors(block, x, [100.0, 1000.0, 10000.0])
    assert errors[0] > 5 * errors[1] > 25 * errors[2]


@pytest.mark.claim("spl-15/softmax", verdict="verified")
def test_spl_15_softmax_tends_to_no_relu():
    # One token: softmax is the constant 1, whatever the sharpness.
    errors = spline.smoothing_errors(surface(), points(), [1.0, 100.0, 1e4], "softmax")
    assert errors[0] == errors[1] == errors[2] > 1
    # Several tokens: it tends to the value of the best key, scores and all sizes forgotten.
    torch.manual_seed(0)
    block = encoder_block()
    x = 3 * torch.randn(50, 3, 2, dtype=REAL)
    errors = spline.smoothing_errors(block, x, [1.0, 100.0, 1e4, 1e6], "softmax")
    assert min(errors) > 0.3 * max(errors) and abs(errors[-1] - errors[-2]) < 0.1 * errors[-1]
    softplus = spline.smoothing_errors(block, x, [1e4])[0]
    assert softplus < 1e-2 * min(errors)


def kink(module, at=0.0) -> float:
    """Jump of the first derivative: second difference over the step."""
    step = 1e-4
    x = torch.tensor([at - step, at, at + step], dtype=REAL)[:, None, None]
    y = module(x).detach()[:, 0, 0]
    return abs(float(y[0] - 2 * y[1] + y[2])) / step


@pytest.mark.claim("spl-15/networks", verdict="corrected")
def test_spl_15_smoothing_the_attention_alone_leaves_the_networks_kinks():
    """The usual Transformer keeps ReLU networks, so it is not of class C^∞, nor C¹."""
    x = spline.variables(1, 1)[0, 0]
    # A network that computes |x|: the attention only hands x on.
    from fourviews.attention import FeedForward

    network = FeedForward(1, 2, dtype=REAL)
    with torch.no_grad():
        network.hidden.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        network.hidden.bias.zero_()
        network.output.weight.fill_(1.0)
        network.output.bias.zero_()
    block = spline.network_block(network, 1)
    for activation in ("softplus", "softmax"):
        kept = spline.smooth(block, activation, 10.0, networks=False)
        assert kink(kept) > 1.0
        assert kink(spline.smooth(block, activation, 10.0, networks=True)) < 1e-2
    assert kink(spline.smooth(spline.compile_encoder(MAX(x, 0)), "softplus", 10.0)) < 1e-2
    assert kink(spline.compile_encoder(MAX(x, 0))) > 0.5


@pytest.mark.mutation("spl-15")
def test_spl_15_smoothing_is_checked():
    encoder = surface()
    for wrong in ({"activation": "gelu"}, {"sharpness": 0.0}, {"sharpness": float("inf")}):
        with pytest.raises(ValueError):
            spline.smooth(encoder, **wrong)
    with pytest.raises(ValueError, match="LayerNorm"):
        spline.smooth(nn.LayerNorm(2))
    # At low sharpness softplus is far away, too.
    assert spline.smoothing_errors(encoder, points(), [1.0])[0] > 0.5
