"""Checks of the lesson «Where the view stops»."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Generator

from .checking import close, exercise, require, run, tensor
from .draws import between, gaussian
from .spline_01_attention_is_cubic import check_polynomials, rows_of_numbers


@exercise("ex-view-limit")
def best_keys(generator: Generator, hard_attention: Callable) -> None:
    """Softmax attention, sharp enough that only the best keys are left; with a repeated key."""
    m, s, d, c = 9, between(generator, 5, 7), 3, 2
    for _ in range(3):
        # Small scores: no fixed sharpness is large enough. Whole numbers in keys and, up to a power
        # of two, in queries: scores have no rounding, in whatever order they are summed, so that a
        # repeated key has exactly the same score.
        Q = (gaussian(generator, m, d) * 2**20).round() / 2**26
        V = gaussian(generator, s, c)
        K = torch.randint(-5, 6, (s, d), generator=generator).double()
        first = int((Q @ K.mT)[0].argmax())
        K[(first + 1) % s] = K[first]
        scores = Q @ K.mT
        tied = (scores == scores.amax(1, keepdim=True)).sum(1) > 1
        distinct = (Q @ K.unique(dim=0).mT).topk(2, dim=1).values
        alpha = 60 / float((distinct[:, 0] - distinct[:, 1]).clamp_min(1e-9).min())
        got = tensor(run(hard_attention, Q, K, V), (m, c), "hard_attention(Q, K, V)")
        sharp = torch.softmax(alpha * scores, dim=1) @ V
        close(
            got[~tied],
            sharp[~tied],
            "the output is not what softmax attention tends to when the sharpness grows",
            rtol=1e-6,
            atol=1e-6,
        )
        close(
            got[tied],
            sharp[tied],
            "two keys that are equal share the weight of the best score: take the mean of their "
            "values",
            rtol=1e-6,
            atol=1e-6,
        )


@exercise("ex-view-line")
def expression_of_pieces(generator: Generator, as_expression: Callable) -> None:
    """Values on and between the knots."""
    from .. import spline

    x = spline.variables(1, 1)[0, 0]
    for count in range(1, 5):
        places = torch.randperm(40, generator=generator)[:count] - 20
        knots = [Fraction(int(place), 3) for place in places.sort().values]
        pieces = [[Fraction(between(generator, -4, 4)) for _ in range(3)]]
        for t in knots:
            new = [Fraction(between(generator, -4, 4)) for _ in range(between(generator, 1, 4))]
            before = sum(a * t**k for k, a in enumerate(pieces[-1]))
            new[0] += before - sum(a * t**k for k, a in enumerate(new))
            pieces.append(new)
        # Expressions are not copied: equal ones have to stay the same object.
        f = as_expression(list(knots), [list(piece) for piece in pieces], x)
        require(
            isinstance(f, spline.Expression),
            f"as_expression must return an expression made of x, not {type(f).__name__}",
        )
        for at in [*knots, *(Fraction(between(generator, -60, 60), 4) for _ in range(20))]:
            piece = pieces[sum(t <= at for t in knots)]
            side = "to the left of all knots" if at < knots[0] else "beyond the first knot"
            require(
                f([[at]]) == sum(a * at**k for k, a in enumerate(piece)),
                f"with {count} knots the expression has a wrong value {side}",
            )


@exercise("ex-view-parabola")
def above_the_parabola(generator: Generator, above_parabola: Callable) -> None:
    """The values at random rational points on both sides of the parabola, and below the axis."""
    check_polynomials(above_parabola, "above_parabola", most=3)
    for _ in range(60):
        a = Fraction(between(generator, -30, 30), 8)
        step = Fraction(between(generator, 1, 60), 8)
        for b, where in (
            (-step, "below the x axis"),
            (a * a + step, "above the parabola"),
            (a * a - step, "below the parabola"),
        ):
            height = b - a * a
            value = max(
                min(row) for row in rows_of_numbers(run(above_parabola, a, b), "above_parabola")
            )
            require(
                value == (b * height if height > 0 else 0),
                f"the maximum of the minima is wrong at a point {where}",
            )
