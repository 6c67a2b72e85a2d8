"""Random expressions, points and modules for the tests of the spline view."""

from __future__ import annotations

import random
from fractions import Fraction

import torch

from fourviews import spline
from fourviews.attention import DecoderBlock, EncoderBlock, FeedForward, MultiHeadAttention

REAL = torch.float64


def random_expression(generator: random.Random, X, depth: int, products: bool = True):
    """Sums, maxima, minima and, if wanted, products of variables with small rational numbers."""
    if depth == 0:
        number = Fraction(generator.randint(-6, 6), generator.choice([1, 2, 4]))
        variable = generator.choice(list(X.flat))
        return generator.choice([variable, variable + number, number * variable])
    a, b = (random_expression(generator, X, depth - 1, products) for _ in range(2))
    kinds = ["sum", "difference", "maximum", "minimum"] + ["product"] * (2 * products)
    kind = generator.choice(kinds)
    if kind == "sum":
        return a + b
    if kind == "difference":
        return a - b * Fraction(1, 2)
    if kind == "product":
        return a * b
    return (spline.maximum if kind == "maximum" else spline.minimum)(a, b)


def random_matrix(generator: random.Random, s: int, d: int) -> list[list[Fraction]]:
    return [[Fraction(generator.randint(-24, 24), 8) for _ in range(d)] for _ in range(s)]


def relu_attention(d: int = 2, heads: int = 1) -> MultiHeadAttention:
    return MultiHeadAttention(
        d, heads, d_key=2, d_value=2, activation="relu", bias=True, dtype=REAL
    )


def encoder_block(d: int = 2) -> EncoderBlock:
    network = FeedForward(d, 6, dtype=REAL)
    return EncoderBlock(relu_attention(d, 4), network, norm=None, residual=False)


def decoder_block(d: int = 2, cross: bool = True) -> DecoderBlock:
    return DecoderBlock(
        relu_attention(d, 4),
        relu_attention(d, 4) if cross else None,
        FeedForward(d, 6, dtype=REAL),
        norm=None,
        residual=False,
    )
