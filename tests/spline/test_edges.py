"""Corners of the compiler: constants, identities, dtypes, copies, gradients."""

from __future__ import annotations

import copy
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import interpolate

from fourviews import spline

from .cases import REAL


def test_constants_and_identities_compile():
    flat = spline.compile_encoder(interpolate.PPoly([[0.0, 0.0], [2.5, 2.5]], [0, 1, 3]))
    assert flat.exact(Fraction(1, 2)) == [[Fraction(5, 2)]] and flat.report.layers == 1
    x = torch.tensor([[[0.5]]], dtype=REAL)
    assert flat(x).item() == 2.5 and flat.dense()(x).item() == 2.5
    X = spline.variables(2, 2)
    identity = spline.compile_encoder(X)
    x = torch.randn(3, 2, 2, dtype=REAL)
    assert torch.equal(identity(x), x) and torch.equal(identity.dense()(x), x)
    assert spline.degree(identity) == 1
    vector = spline.compile_encoder(np.array([X[0, 0], 3], dtype=object))
    assert torch.equal(vector(x)[..., 1], torch.full((3, 2), 3.0, dtype=REAL))
    decoder = spline.compile_decoder(np.array([[1], [X[1, 1]]], dtype=object))
    assert decoder.exact([[5, 6], [7, 8]]) == [[1], [8]]


def test_numpy_s_numbers_and_operators_work():
    X = spline.variables(1, 3)
    W = np.array([[1.0, 2.0], [0.0, -1.0], [0.5, 0.25]])
    f = X @ W
    assert f.shape == (1, 2) and f[0, 0] is X[0, 0] + Fraction(1, 2) * X[0, 2]
    x = X[0, 0]
    assert np.float64(2) * x is x * 2 is x + x and x ** np.int64(2) is x * x
    assert spline.maximum(X, 0)[0, 1] is spline.maximum(X[0, 1], 0)
    assert (-X).sum() is -(X[0, 0] + X[0, 1] + X[0, 2])
    assert x - x is spline.Expression.of(0) or (x - x)([[1, 2, 3]]) == 0


def test_copies_and_conversions_keep_the_function():
    f = interpolate.CubicSpline(np.arange(5.0), np.array([0.0, 2, -1, 3, 1]))
    encoder = spline.compile_encoder(f)
    x = torch.linspace(0, 4, 20, dtype=REAL)[:, None, None]
    assert torch.equal(copy.deepcopy(encoder)(x), encoder(x))
    single = copy.deepcopy(encoder).to(torch.float32)
    assert single(x.float()).dtype == torch.float32
    assert torch.allclose(single(x.float()).double(), encoder(x), atol=1e-5)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "tensor"])
def test_gradients_are_those_of_differences(kind):
    torch.manual_seed(0)
    if kind == "tensor":
        t = np.r_[[0.0] * 2, np.linspace(0, 1, 4), [1.0] * 2]
        c = np.random.default_rng(0).standard_normal((5, 5))
        module = spline.compile_encoder(interpolate.NdBSpline((t, t), c, 2))
        x = torch.rand(4, 1, 2, dtype=REAL)
    else:
        X = spline.variables(2, 2)
        f = np.array([[X[0, 0] * X[0, 1]], [spline.maximum(X[1, 0] * X[0, 1], 0.1) ** 2]])
        compile_ = spline.compile_encoder if kind == "encoder" else spline.compile_decoder
        module = compile_(f)
        x = torch.randn(4, 2, 2, dtype=REAL)
    assert torch.autograd.gradcheck(module, x.requires_grad_(), atol=1e-6)


def test_many_points_are_the_same_as_few():
    x = spline.variables(1, 1)[0, 0]
    encoder = spline.compile_encoder(spline.maximum(x**3, 1 - x))
    points = torch.randn(200_001, 1, 1, dtype=REAL)
    together = encoder(points)
    assert torch.equal(together[-3:], encoder(points[-3:]))
    assert encoder(points.reshape(3, 66667, 1, 1)).shape == (3, 66667, 1, 1)


def test_the_report_counts_what_is_there():
    x, y = spline.variables(1, 2)[0]
    encoder = spline.compile_encoder(spline.maximum(x * y, 0))
    report, dense = encoder.report, encoder.dense()
    assert report.layers == len(dense) == 1
    attention, network = dense[0].attention, dense[0].feed_forward
    assert report.heads == (attention.n_heads,)
    assert report.widths == (network.hidden.out_features,)
    learned = [
        attention.weight_q,
        attention.weight_k,
        attention.weight_v,
        attention.offset_q,
        attention.offset_k,
        attention.offset_v,
        *network.parameters(),
    ]
    assert report.dense_parameters == sum(p.numel() for p in learned)
    assert report.parameters == sum(int((p != 0).sum()) for p in learned)
    # v₂ of two variables has six coordinates.
    assert report.source_coordinates == report.source_monomials == 6
    # Degree 5 takes v₂ ∘ v₂ ∘ v₂: 6, then C(8, 2) = 28, then C(30, 2) = 435 coordinates.
    deep = spline.compile_encoder(x**4 * y).report
    assert (deep.source_coordinates, deep.source_monomials) == (435, 45)
