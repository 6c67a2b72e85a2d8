"""Checks of the lesson «Compiling a spline into a Transformer»."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy import interpolate
from torch import Generator

from ..spline import Expression, compile_decoder, compile_encoder, maximum, minimum, variables
from .checking import close, exercise, number, require, run, tensor
from .draws import between, gaussian


@exercise("ex-compile-heads")
def product_of_three(generator: Generator, heads: Callable) -> None:
    """The sum of the heads against the product, at points of all signs."""
    for _ in range(4):
        d = between(generator, 1, 4)
        functions = [gaussian(generator, d + 1) for _ in range(3)]
        found = run(heads, *functions)
        require(isinstance(found, Sequence), "heads(a, b, c) is no list of heads")
        points = torch.cat(
            [gaussian(generator, 200, d), torch.ones(200, 1, dtype=torch.float64)], 1
        )
        total = torch.zeros(200, dtype=torch.float64)
        for head in found:
            require(
                isinstance(head, Sequence) and len(head) == 4,
                "a head is no tuple (factor, q, k, v)",
            )
            q, k, v = (tensor(part, (d + 1,), "q, k or v of a head") for part in head[1:])
            score = torch.relu((points @ q) * (points @ k))
            total = total + number(head[0], "the factor of a head") * score * (points @ v)
        values = torch.stack([points @ f for f in functions])
        positive = values[0] * values[1] > 0
        product = values.prod(0)
        close(
            total[positive],
            product[positive],
            "the sum of the heads is not the product where a·b is positive",
        )
        close(
            total[~positive],
            product[~positive],
            "the sum of the heads is not the product where a·b is negative",
        )


@exercise("ex-compile-pieces")
def values_without_cases(generator: Generator, from_pieces: Callable) -> None:
    """Against SciPy inside of the knots, and at both ends beyond them."""
    for cubic in (False, True):
        count = between(generator, 4, 7)
        knots = (0.2 + torch.rand(count, generator=generator, dtype=torch.float64)).cumsum(0)
        knots = knots - 2
        y, kind = gaussian(generator, count), "cubic" if cubic else "linear"
        if cubic:
            f = interpolate.CubicSpline(knots.numpy(), y.numpy())
        else:
            f = interpolate.PPoly(
                np.stack([(y.diff() / knots.diff()).numpy(), y[:-1].numpy()]), knots.numpy()
            )
        c = torch.tensor(f.c)
        share = torch.rand(60, generator=generator, dtype=torch.float64)
        inside = knots[0] + share * (knots[-1] - knots[0])
        got = tensor(run(from_pieces, inside, knots, c), (60,), "from_pieces(x, knots, c)")
        first = inside <= knots[1]
        wanted = torch.tensor(f(inside.numpy()))
        close(got[first], wanted[first], f"{kind}: wrong on the first piece", atol=1e-8)
        close(got, wanted, f"{kind}: wrong on the later pieces", atol=1e-8)
        beyond = torch.stack([knots[0] - 3, knots[-1] + 5])
        got = tensor(run(from_pieces, beyond, knots, c), (2,), "from_pieces(x, knots, c)")
        close(got, y[[0, -1]], "beyond the knots the ends are not held", atol=1e-8)


def _stack_of_terms(
    generator: Generator, x: Expression, other: Expression, degree: int, count: int
) -> Expression:
    """Random coefficients, so that no difference of two polynomials is simpler than both."""
    c = torch.randint(-9999, 9999, (count, count, 3), generator=generator).tolist()
    return maximum(*(minimum(*(p * x**degree + q * other + r for p, q, r in terms)) for terms in c))


@exercise("ex-compile-blocks")
def counted_by_the_compiler(generator: Generator, blocks: Callable) -> None:
    """Against what the compiler needs for functions whose polynomials share nothing."""
    cases = [(1, k, q, True) for k in (1, 2, 4, between(generator, 5, 9)) for q in (1, 2, 5)]
    for k in (1, 2, between(generator, 3, 4)):
        for same in (True, False):
            cases.append((between(generator, 2, 3), k, between(generator, 1, 3), same))
    for tokens, degree, terms, same in cases:
        X = variables(tokens, 1)
        f = _stack_of_terms(generator, X[0, 0], X[-1, 0], degree, terms)
        if same:
            report = compile_encoder(f).report
        else:
            report = compile_encoder(np.array([[f]] * (tokens - 1) + [[X[0, 0]]])).report
        found = number(run(blocks, tokens, degree, terms, same), "blocks(…)")
        words = f"{tokens} token(s), degree {degree}, {terms} terms a level"
        require(found <= report.layers, f"too many blocks for {words}, same={same}")
        require(found >= report.layers, f"too few blocks for {words}, same={same}")


@exercise("ex-compile-queue")
def waits_one_by_one(generator: Generator, waiting: Callable) -> None:
    """The compiled decoder against the queue, customer by customer."""
    for tokens in (between(generator, 1, 3), between(generator, 4, 8), between(generator, 4, 8)):
        rows = np.asarray(run(waiting, tokens), dtype=object)
        require(
            rows.shape == (tokens, 1),
            f"waiting({tokens}) has shape {rows.shape}; it needs ({tokens}, 1)",
        )
        try:
            decoder = compile_decoder(rows)
        except ValueError as error:
            require(False, f"waiting({tokens}) does not compile to a decoder: {error}")
        x = gaussian(generator, 30, tokens, 1)
        out = decoder(x)
        require(out.min() > -1e-9, f"waiting({tokens}) has a customer who waits a negative time")
        wait = torch.zeros(30, 1, dtype=torch.float64)
        for c in range(tokens):
            wait = (wait + x[:, c]).clamp_min(0)
            close(out[:, c], wait, f"waiting({tokens}) is wrong in row {c}")
