r"""Veronese maps, and one-layer networks, as encoder blocks."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement
from math import comb

import numpy as np
import torch

from ...attention import EncoderBlock, FeedForward, MultiHeadAttention
from ..functions.expression import Expression, maximum, minimum, variables, whole_number
from ..functions.normal_form import normal_form
from .compile import compile_encoder
from .encoder import CompiledEncoder

__all__ = ["linear_after_veronese", "monomials", "network_block", "veronese", "veronese_encoder"]

Exponents = tuple[int, ...]


def monomials(n: int, k: int) -> list[Exponents]:
    r"""Exponents of the :math:`\binom{n+k}{k}` monomials of degree at most k in n variables.

    By degree, from 0 on; within one degree the first variables come first.

    Parameters
    ----------
    n, k
        Number of variables, and largest degree.

    Returns
    -------
    list of tuple
        n exponents of each.

    Raises
    ------
    ValueError
        If n or k is negative, or not whole.
    """
    n, k = whole_number(n, "n"), whole_number(k, "k")
    out = []
    for degree in range(k + 1):
        for chosen in combinations_with_replacement(range(n), degree):
            out.append(tuple(chosen.count(i) for i in range(n)))
    assert len(out) == comb(n + k, k)
    return out


def veronese(X: np.ndarray | list, k: int) -> np.ndarray:
    """The Veronese map v_k: all monomials of degree at most k in the entries of ``X``.

    Parameters
    ----------
    X
        Array of expressions or numbers; its entries are read row by row.
    k
        Largest degree.

    Returns
    -------
    numpy.ndarray
        One entry a monomial, in the order of :func:`monomials`.

    Raises
    ------
    ValueError
        If k is negative, or not whole.
    """
    k = whole_number(k, "k")
    entries = list(np.asarray(X, dtype=object).flat)
    out = np.empty(comb(len(entries) + k, k), dtype=object)
    for place, exponents in enumerate(monomials(len(entries), k)):
        value = Fraction(1)
        for entry, exponent in zip(entries, exponents, strict=True):
            if exponent:
                value = value * entry**exponent
        out[place] = value
    return out


def veronese_encoder(s: int, d: int, k: int = 2) -> CompiledEncoder:
    r"""An encoder each of whose tokens holds all monomials of degree at most k of the matrix.

    Lemma 3.6 of Lai, Lim and Liu (2024) for k = 2: two blocks if there are several tokens, the
    first brings all of them into every token, the second multiplies. One token needs one block.
    For three tokens or more no single block does it: in token i of one attention every summand
    depends on token i and one other, so the product of entries of two others is missing on every
    piece, and a network of linear pieces adds none. For two tokens there is a single block that
    does it, but its network subtracts the sum of all squares from numbers of that size, which
    costs digits; here two tokens take two blocks, too.

    Parameters
    ----------
    s, d
        Tokens and features.
    k
        Largest degree.

    Returns
    -------
    CompiledEncoder
        ``(..., s, d)`` to ``(..., s, C(sd + k, k))``.

    Raises
    ------
    ValueError
        If a number is no positive whole number.
    """
    whole_number(k, "k", 1)
    return compile_encoder(veronese(variables(s, d), k))


def linear_after_veronese(f: Expression) -> tuple[int, Expression]:
    r"""A linear spline ℓ with :math:`f = \ell \circ v_k`: lemma 3.5's constructive direction.

    In the normal form :math:`\max_i \min_j \xi_{ij}` every polynomial is an affine function of the
    monomials.

    Parameters
    ----------
    f
        A max-definable expression.

    Returns
    -------
    tuple
        k, and ℓ as an expression without products in ``variables(1, C(n + k, k))``, in the order
        of :func:`monomials`.

    Raises
    ------
    ValueError
        As for :func:`normal_form`.
    """
    form = normal_form(f)
    n = form.shape[0] * form.shape[1]
    degrees = (sum(e) for inner in form.polynomials for p in inner for e in p.itermonoms())
    k = max(degrees, default=0)
    places = {exponents: place for place, exponents in enumerate(monomials(n, k))}
    z = variables(1, len(places))[0]

    def of(polynomial):
        total = 0 * z[0]
        for exponents, value in polynomial.terms():
            total = (
                total
                + Fraction(int(value.numerator), int(value.denominator)) * z[places[exponents]]
            )
        return total

    return k, maximum(*(minimum(*map(of, inner)) for inner in form.polynomials))


def network_block(network: FeedForward, tokens: int) -> EncoderBlock:
    r"""A one-hidden-layer network as the encoder block :math:`\varphi \circ \alpha` (lemma 3.7).

    The attention α is the identity: queries and keys are the constant unit vectors of the tokens,
    so that token i attends to itself alone, with weight 1. The offsets make this possible: without
    them queries and keys are linear in X, and scores near X = 0 are near 0.

    Parameters
    ----------
    network
        The network.
    tokens
        Number of tokens.

    Returns
    -------
    fourviews.attention.EncoderBlock
        Without residual connections and norms; equal to ``network`` on ``(..., tokens, d)``.

    Raises
    ------
    ValueError
        If ``tokens`` is no positive whole number, or ``network`` no ``FeedForward``.
    """
    tokens = whole_number(tokens, "tokens", 1)
    if not isinstance(network, FeedForward):
        raise ValueError(f"network is a {type(network).__name__}; it needs to be a FeedForward")
    weight = network.hidden.weight
    attention = MultiHeadAttention(
        network.d_model,
        1,
        d_key=tokens,
        d_value=network.d_model,
        activation="relu",
        scale=1.0,
        offset_tokens=tokens,
        project=False,
        device=weight.device,
        dtype=weight.dtype,
    )
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.zero_()
        attention.offset_q[0] = torch.eye(tokens, dtype=weight.dtype, device=weight.device)
        attention.offset_k[0] = attention.offset_q[0]
        attention.weight_v[0] = torch.eye(network.d_model, dtype=weight.dtype, device=weight.device)
    return EncoderBlock(attention, network, norm=None, residual=False)
