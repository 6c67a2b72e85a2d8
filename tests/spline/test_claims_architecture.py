"""Offsets and heads that the constructions need (spl-13), and how many blocks decoders have."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

from fourviews import spline
from fourviews.attention import EncoderBlock, FeedForward, MultiHeadAttention

from .cases import REAL


def block(d: int, tokens: int, heads: int = 3, **options) -> EncoderBlock:
    attention = MultiHeadAttention(
        d, heads, d_key=2, d_value=2, activation="relu", scale=1.0, dtype=REAL, **options
    )
    return EncoderBlock(attention, FeedForward(d, 40, dtype=REAL), norm=None, residual=False)


def two_blocks(d: int, tokens: int, seed: int, **options) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    stack = torch.nn.Sequential(*(block(d, tokens, **options) for _ in range(2)))
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.normal_()
    return stack


@pytest.mark.claim("spl-13/needed", verdict="corrected")
@pytest.mark.parametrize("seed", range(4))
def test_spl_13_without_offsets_an_encoder_is_flat_to_third_order(seed):
    """f(tX) − f(0) shrinks eightfold where t is halved, however the networks' offsets are."""
    stack = two_blocks(2, 3, seed, bias=False)
    assert stack[0].attention.offset_q is None
    x = torch.randn(5, 3, 2, dtype=REAL)
    with torch.no_grad():
        first, second = (
            (stack(t * x) - stack(0 * x)).flatten(1).norm(dim=1) / t**3 for t in (1e-3, 5e-4)
        )
    assert (second > 0).any()
    assert torch.allclose(first, second, rtol=1e-2)


@pytest.mark.mutation("spl-13")
def test_spl_13_with_offsets_it_is_not_flat():
    stack = two_blocks(2, 3, 0, offset_tokens=3)
    x = torch.randn(5, 3, 2, dtype=REAL)
    with torch.no_grad():
        small, smaller = (
            (stack(t * x) - stack(0 * x)).flatten(1).norm(dim=1) / t for t in (1e-6, 5e-7)
        )
    assert (small > 0.1).all() and torch.allclose(small, smaller, rtol=1e-3)


@pytest.mark.claim("spl-13/needed", verdict="corrected")
def test_spl_13_offsets_that_tokens_share_leave_it_equivariant():
    order = torch.tensor([2, 0, 1])
    x = torch.randn(4, 3, 2, dtype=REAL)
    shared = two_blocks(2, 3, 1, bias=True)
    assert torch.allclose(shared(x[:, order]), shared(x)[:, order])
    own = two_blocks(2, 3, 1, offset_tokens=3)
    assert not torch.allclose(own(x[:, order]), own(x)[:, order])


def one_head(d: int, score: int, query, key, value) -> MultiHeadAttention:
    """One head for one token; every part is (weights, offsets)."""
    attention = MultiHeadAttention(
        d,
        1,
        d_key=score,
        d_value=len(value[1]),
        activation="relu",
        scale=1.0,
        offset_tokens=1,
        project=False,
        dtype=REAL,
    )
    with torch.no_grad():
        for name, (weights, offsets) in zip("qkv", (query, key, value), strict=True):
            getattr(attention, f"weight_{name}")[0] = torch.tensor(weights, dtype=REAL)
            getattr(attention, f"offset_{name}")[0, 0] = torch.tensor(offsets, dtype=REAL)
    return attention


def network(hidden, output) -> FeedForward:
    (w, b), (v, c) = hidden, output
    result = FeedForward(len(w[0]), len(w), len(v), dtype=REAL)
    with torch.no_grad():
        for linear, weight, bias in ((result.hidden, w, b), (result.output, v, c)):
            linear.weight.copy_(torch.tensor(weight, dtype=REAL))
            linear.bias.copy_(torch.tensor(bias, dtype=REAL))
    return result


@pytest.mark.claim("spl-13/needed", verdict="corrected")
def test_spl_13_two_blocks_with_one_head_each_compute_a_square_beside_its_root():
    """(x, x²) on the whole line: score 1 + |x|, then a clamp brings x back."""
    first = EncoderBlock(
        one_head(1, 1, ([[0.0]], [1.0]), ([[0.0]], [1.0]), ([[1.0]], [0.0])),
        network(([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, -1.0], [1.0, 1.0]], [0.0, 0.0])),
        norm=None,
        residual=False,
    )
    # Of (x, |x|): values 1, x, |x| with the score 1 + |x|.
    value = ([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [1.0, 0.0, 0.0])
    attention = one_head(2, 1, ([[0.0], [1.0]], [1.0]), ([[0.0], [0.0]], [1.0]), value)
    # Of (1 + a, b, a + x²): relu(b + a), relu(b − a), a itself, and x² = third − a.
    hidden = [[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [-1.0, 0.0, 1.0]]
    second = EncoderBlock(
        attention,
        network(
            (hidden, [-1.0, 1.0, -1.0, 1.0]),
            ([[1.0, -1.0, -1.0, 0.0], [0.0, 0.0, 0.0, 1.0]], [0.0, 0.0]),
        ),
        norm=None,
        residual=False,
    )
    x = torch.cat([torch.linspace(-50, 50, 2001, dtype=REAL), torch.tensor([0.0, 1e-9, -1e4])])
    out = second(first(x[:, None, None]))[:, 0]
    scale = 1 + x.abs() ** 2
    assert ((out[:, 0] - x).abs() / scale).max() < 1e-14
    assert ((out[:, 1] - x**2).abs() / scale).max() < 1e-14


@pytest.mark.claim("spl-13/needed", verdict="corrected")
@pytest.mark.parametrize("seed", range(5))
def test_spl_13_one_head_is_constant_where_its_score_is_not_positive(seed):
    """Hence no block with one head has x₁x₂: a score that fits it is negative somewhere."""
    torch.manual_seed(seed)
    attention = MultiHeadAttention(
        2, 1, d_key=3, d_value=4, activation="relu", scale=1.0, offset_tokens=1, dtype=REAL
    )
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_()
    one = EncoderBlock(
        attention, FeedForward(attention.d_out, 8, dtype=REAL), norm=None, residual=False
    )
    x = 3 * torch.randn(4000, 1, 2, dtype=REAL)
    q = x @ attention.weight_q[0] + attention.offset_q[0]
    k = x @ attention.weight_k[0] + attention.offset_k[0]
    off = (q * k).sum(-1)[:, 0] <= 0
    with torch.no_grad():
        out = one(x)[:, 0]
    if off.sum() > 1:
        assert torch.equal(out[off], out[off][:1].expand_as(out[off]))
        products = x[off, 0].prod(-1)
        assert products.max() - products.min() > 0


@pytest.mark.claim("spl-14/count", verdict="verified")
@pytest.mark.parametrize("tokens", [1, 2, 3])
@pytest.mark.parametrize("degree, q", [(1, 1), (1, 4), (2, 1), (3, 2), (4, 5), (8, 3)])
def test_spl_14_a_decoder_doubles_the_degree_in_a_block(tokens, degree, q):
    generator = random.Random(degree + q)
    X = spline.variables(tokens, 1)
    draw = lambda: generator.randint(-999, 999)  # noqa: E731
    x = sum(X[:, 0])

    def polynomial():
        return draw() * x**degree + draw() * X[0, 0] + draw()

    f = spline.maximum(*(spline.minimum(*(polynomial() for _ in range(q))) for _ in range(q)))
    rows = np.array([[X[c, 0]] for c in range(tokens - 1)] + [[f]], dtype=object)
    decoder = spline.compile_decoder(rows)
    bound = math.ceil(math.log2(degree)) + math.ceil(math.log2(q)) + 2 * (tokens > 1)
    assert decoder.report.layers <= max(1, bound)
    point = [[generator.randint(-20, 20)] for _ in range(tokens)]
    assert decoder.exact(point) == [[entry(point) for entry in row] for row in rows]
