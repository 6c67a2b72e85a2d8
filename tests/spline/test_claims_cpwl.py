"""Piecewise-linear functions: triangulations, few arguments, depth (spl-06)."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import interpolate
from torch import nn

from fourviews import spline
from fourviews.spline.compiler.cpwl import _affine_pieces, _without_flat_ones

from .cases import REAL, random_expression, random_matrix


def error(encoder, f, x) -> float:
    got = encoder(torch.tensor(x)[:, None])[:, 0].numpy()
    wanted = f(x).reshape(len(x), -1)
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def inside(f, generator, count=1000):
    points = f.tri.points
    shares = generator.dirichlet(np.ones(points.shape[1] + 1), count)
    chosen = generator.integers(len(f.tri.simplices), size=count)
    return np.einsum("ns,nsd->nd", shares, points[f.tri.simplices[chosen]])


@settings(max_examples=15, deadline=None)
@given(st.integers(3, 30), st.integers(1, 2), st.integers(0, 2**32 - 1))
def test_planar_interpolators_agree_in_one_block(count, values, seed):
    generator = np.random.default_rng(seed)
    points = generator.uniform(-1, 1, (count, 2)) * 10.0 ** generator.integers(-2, 3)
    f = interpolate.LinearNDInterpolator(points, generator.standard_normal((count, values)))
    encoder = spline.compile_encoder(f)
    assert encoder.report.layers == 1
    assert error(encoder, f, inside(f, generator)) <= 1e-9  # slivers have steep pieces


@pytest.mark.parametrize("shape", [(2, 2), (3, 5), (6, 6)])
def test_grids_with_straight_boundaries_agree_exactly(shape):
    generator = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1).reshape(-1, 2)
    values = generator.integers(-5, 6, len(grid)).astype(float)
    f = interpolate.LinearNDInterpolator(grid.astype(float), values)
    encoder = spline.compile_encoder(f)
    for point, value in zip(grid.tolist(), values.tolist(), strict=True):
        assert encoder.exact(point) == [[value]]
    assert error(encoder, f, inside(f, generator)) <= 1e-12


@pytest.mark.parametrize("dimension, count, seed", [(3, 12, 2), (3, 12, 3), (3, 25, 0), (4, 10, 1)])
def test_interpolators_of_more_variables_agree(dimension, count, seed):
    # For (3, 12, 3) max_i min_j over pieces not below piece i on its simplex errs by 1.3.
    generator = np.random.default_rng(seed)
    points = generator.uniform(-1, 1, (count, dimension))
    f = interpolate.LinearNDInterpolator(points, generator.standard_normal((count, 1)))
    encoder = spline.compile_encoder(f)
    assert error(encoder, f, inside(f, generator)) <= 1e-10


def test_a_maximum_over_simplices_of_minima_is_not_the_interpolant():
    """max_i min_j, j over the pieces that are nowhere below piece i on simplex i, in rationals.

    Two simplices may need different pieces between them at different pairs of points, so in three
    variables the form needs cells on which all affine functions keep their order.
    """
    generator = np.random.default_rng(3)
    points = generator.uniform(-1, 1, (12, 3))
    f = interpolate.LinearNDInterpolator(points, generator.standard_normal((12, 1)))
    exact = [[Fraction(v) for v in row] for row in points.tolist()]
    heights = [[Fraction(v) for v in row] for row in f.values.tolist()]
    simplices = f.tri.simplices.tolist()
    pieces = [_affine_pieces(exact, heights, simplex)[0] for simplex in simplices]

    def at(g, x):
        return g[-1] + sum(a * v for a, v in zip(g, x, strict=False))

    above = [
        [g for g in pieces if all(at(g, exact[v]) >= at(own, exact[v]) for v in simplex)]
        for simplex, own in zip(simplices, pieces, strict=True)
    ]
    encoder = spline.compile_encoder(f)
    worst = Fraction(0)
    for simplex, own in zip(simplices, pieces, strict=True):
        for shares in ((1, 1, 1, 1), (4, 1, 1, 1), (1, 4, 1, 1), (1, 1, 4, 1), (1, 1, 1, 4)):
            x = [
                sum(w * exact[v][i] for w, v in zip(shares, simplex, strict=True)) / sum(shares)
                for i in range(3)
            ]
            assert encoder.exact(x) == [[at(own, x)]]
            lattice = max(min(at(g, x) for g in members) for members in above)
            worst = max(worst, lattice - at(own, x))
    assert worst > Fraction(1, 10)


def test_rescaled_interpolators_and_points_outside():
    generator = np.random.default_rng(0)
    points = generator.uniform(0, 1, (12, 2)) * [1.0, 1e4]
    f = interpolate.LinearNDInterpolator(points, generator.standard_normal(12), rescale=True)
    encoder = spline.compile_encoder(f)
    x = points.mean(0) + 0.2 * (points - points.mean(0))
    assert error(encoder, f, x) <= 1e-10
    with pytest.raises(ValueError, match="outside the domain"):
        encoder(torch.tensor([[5.0, 5.0]], dtype=REAL))
    bad = interpolate.LinearNDInterpolator(points, np.full(12, np.nan))
    with pytest.raises(ValueError, match="value at point 0 is not finite"):
        spline.compile_encoder(bad)


def hidden_layers(network) -> list[int]:
    return [m.out_features for m in network if isinstance(m, nn.Linear)][:-1]


@pytest.mark.claim("spl-06", verdict="verified")
@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_spl_06_expressions_within_the_depth_bound(n, seed):
    """Depth counts the layers of weights: hidden layers and the output layer."""
    generator = random.Random(seed)
    X = spline.variables(1, n)
    f = random_expression(generator, X, 3, products=False) + X[0, 0]
    network = spline.cpwl_network(f)
    assert len(hidden_layers(network)) + 1 <= math.ceil(math.log2(n + 1)) + 1
    x = torch.tensor([[float(v) for v in random_matrix(generator, 1, n)[0]] for _ in range(50)])
    x = x.to(REAL)
    assert torch.allclose(network(x)[:, 0], f(x[:, None]), atol=1e-9)


@pytest.mark.claim("spl-06", verdict="verified")
def test_spl_06_triangulations_within_the_depth_bound_and_the_published_count():
    generator = np.random.default_rng(0)
    for count in (5, 20, 60):
        points = generator.uniform(-1, 1, (count, 2))
        f = interpolate.LinearNDInterpolator(points, generator.standard_normal(count))
        network = spline.cpwl_network(f)
        layers = hidden_layers(network)
        assert len(layers) + 1 == math.ceil(math.log2(3)) + 1
        pieces = len(f.tri.simplices)
        assert sum(layers) <= 12 * pieces  # linear in the pieces
        if count >= 20:
            assert sum(layers) < spline.chen_bound(pieces, pieces)
        x = inside(f, generator, 300)
        assert np.abs(network(torch.tensor(x)).detach().numpy()[:, 0] - f(x)).max() < 1e-9


@pytest.mark.claim("spl-06", verdict="verified")
def test_spl_06_a_network_is_a_linear_spline():
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)
    ).double()
    found = spline.pieces(network, ([[-3, 1]], [[2, -2]]))
    assert len(found) > 3
    assert all(piece.degree <= 1 for piece in found)
    ends = [(p.polynomials[0].eval(1), p) for p in found]
    assert len(ends) == len(found)


def bend(f, point, normal, step=1e-3) -> float:
    """Jump of the derivative along ``normal`` at a point, by a second difference."""
    x = torch.tensor(point, dtype=REAL)
    n = step * torch.tensor(normal, dtype=REAL)
    with torch.no_grad():
        values = f(torch.stack([x - n, x, x + n]))
    return float(values[0] - 2 * values[1] + values[2]) / step


@pytest.mark.mutation("spl-06")
def test_spl_06_one_hidden_layer_less_is_not_enough_in_the_plane():
    """With one hidden layer all bends are whole lines; those of max(0, x, y) are three rays."""
    x, y = spline.variables(1, 2)[0]
    f = spline.maximum(0, x, y)
    corner = lambda z: f(z[:, None])  # noqa: E731
    assert bend(corner, [2.0, 2.0], [1.0, -1.0]) == pytest.approx(2.0)
    assert bend(corner, [-2.0, -2.0], [1.0, -1.0]) == pytest.approx(0.0)
    torch.manual_seed(0)
    shallow = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 1)).double()
    with torch.no_grad():
        shallow[0].weight[0] = torch.tensor([1.0, -1.0])
        shallow[0].bias[0] = 0.0
    along = [bend(lambda z: shallow(z)[:, 0], [t, t], [1.0, -1.0]) for t in (-7.3, 0.1, 9.7)]
    assert along == pytest.approx([along[0]] * 3, abs=1e-8) and abs(along[0]) > 1e-3
    assert list(map(len, spline.reduce_maximum([(0, 0, 0), (1, 0, 0), (0, 1, 0)]))) == [3]


@pytest.mark.parametrize("n, count", [(1, 6), (2, 3), (2, 8), (3, 7)])
def test_maxima_reduce_to_n_plus_1_arguments(n, count):
    generator = np.random.default_rng(count)
    functions = [tuple(map(int, row)) for row in generator.integers(-4, 5, (count, n + 1))]
    functions.append(functions[0])  # a repetition
    terms = spline.reduce_maximum(functions)
    assert all(1 <= len(members) <= n + 1 for members in terms)
    for x in generator.integers(-9, 10, (50, n)).tolist():
        at = [sum(a * v for a, v in zip(f, [*x, 1], strict=True)) for f in functions]
        assert max(at) == sum(c * max(at[i] for i in s) for s, c in terms.items())


def test_what_is_not_piecewise_linear_is_refused():
    x, y = spline.variables(1, 2)[0]
    for wrong in (x * y, spline.variables(2, 1)[0, 0], np.sin):
        with pytest.raises(ValueError):
            spline.cpwl_network(wrong)
    for sizes in ((0, 0), (2, 3)):
        with pytest.raises(ValueError):
            spline.chen_bound(*sizes)
    assert spline.chen_bound(1, 1) == 0


@pytest.mark.parametrize("angle, noise", [(0.1, 0.0), (0.7, 0.0), (1.3, 0.0), (0.0, 4e-15)])
def test_rounding_on_a_straight_side_of_the_hull_does_no_harm(angle, noise):
    """Its angles are straight but for 1e-16, or there are triangles of height 1e-15."""
    generator = np.random.default_rng(0)
    c, s = math.cos(angle), math.sin(angle)
    grid = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), -1).reshape(-1, 2)
    points = grid @ [[c, -s], [s, c]] + noise * generator.uniform(-1, 1, grid.shape)
    f = interpolate.LinearNDInterpolator(points, generator.normal(size=36))
    corners = f.tri.points[f.tri.simplices]
    edges = corners - np.roll(corners, 1, axis=1)
    area = abs(edges[:, 0, 0] * edges[:, 1, 1] - edges[:, 0, 1] * edges[:, 1, 0])
    assert (area < 1e-12).any() == (noise > 0)
    corners = corners[area > 1e-3]
    shares = generator.dirichlet(np.ones(3), (len(corners), 4))
    x = np.einsum("qrc,qcd->qrd", shares, corners).reshape(-1, 2)
    assert error(spline.compile_encoder(f), f, x) < 1e-11
    network = spline.cpwl_network(f)(torch.tensor(x)).detach().numpy()
    assert np.abs(network[:, 0] - f(x)).max() < 1e-11 * np.abs(f.values).max()


def test_triangles_too_thin_for_their_rounding_are_refused():
    points = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [0.5, 0.5], [0.5 + 1e-13, 0.5]])
    f = interpolate.LinearNDInterpolator(points, np.array([0.0, 1, -1, 2, 0, 1]))
    with pytest.raises(ValueError, match="is too thin"):
        spline.compile_encoder(f)
    low = [[Fraction(v) for v in row] for row in [[0.0, 0.0], [1.0, 1e-16], [2.0, 0.0]]]
    with pytest.raises(ValueError, match="lie on a line up to rounding"):
        _without_flat_ones(low, [[0, 1, 2]])
