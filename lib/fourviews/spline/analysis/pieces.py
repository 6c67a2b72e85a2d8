r"""Where a segment crosses sign classes, and the polynomial on each piece, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from torch import nn

from ..functions.expression import Expression, exact_matrix
from ..functions.symbolic import sympy
from .exact import ExactForward

__all__ = ["Piece", "pieces"]


@dataclass(frozen=True)
class Piece:
    """One sign class along a segment.

    Attributes
    ----------
    start, stop
        Where it begins and ends, between 0 and 1; nearest floats of algebraic numbers.
    isolated
        Rational intervals that hold exactly one root each: the exact start and stop.
    polynomials
        One sympy ``Poly`` in λ for each entry of the output, row by row.
    signs
        Signs of the ReLUs' arguments, in the order of the forward pass.
    """

    start: float
    stop: float
    isolated: tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]
    polynomials: tuple[Any, ...]
    signs: tuple[int, ...]

    @property
    def degree(self) -> int:
        """Largest degree in λ; −1 for the zero polynomial."""
        return max((-1 if p.is_zero else p.degree()) for p in self.polynomials)


def pieces(module: nn.Module | Expression, segment: tuple[Any, Any]) -> list[Piece]:
    r"""The sign classes that a segment :math:`X(\lambda) = (1 - \lambda) A + \lambda B` meets.

    The module is evaluated on polynomials in λ: inside a class every ReLU has an argument of one
    sign. Roots are isolated by sympy in rational arithmetic, so no crossing is missed, however
    close two of them are. Roots where a sign does not change do not end a class.

    Parameters
    ----------
    module
        As for :func:`~fourviews.spline.degree`; the weights' floats count as exact.
    segment
        (A, B), two matrices ``(s, d)`` of numbers.

    Returns
    -------
    list of Piece
        From λ = 0 to λ = 1.

    Raises
    ------
    ValueError
        If the module is no spline, or the matrices do not have the same shape, or not the module's.
    """
    sp = sympy()
    if not isinstance(segment, (tuple, list)) or len(segment) != 2:
        raise ValueError(f"segment is {segment!r}; it needs to be two matrices")
    start, stop = (_matrix(end) for end in segment)
    if [len(row) for row in start] != [len(row) for row in stop]:
        raise ValueError("the segment's ends have different shapes; they need the same")
    if isinstance(module, Expression) and module.shape not in (None, (len(start), len(start[0]))):
        raise ValueError(
            f"the segment's ends are {len(start)} × {len(start[0])}; the expression is in"
            f" variables{module.shape}"
        )
    ring, parameter = sp.polys.rings.ring("lambda", sp.QQ)
    number = lambda value: sp.QQ(value.numerator, value.denominator)  # noqa: E731
    line = [
        [ring(number(a)) + parameter * number(b - a) for a, b in zip(p, q, strict=True)]
        for p, q in zip(start, stop, strict=True)
    ]

    def through(place: Fraction):
        """Outputs and ReLU arguments as polynomials on the class that holds ``place``."""
        arguments = []

        def relu(value):
            value = ring(value)
            sign = value.evaluate(0, number(place))
            arguments.append((value, (sign > 0) - (sign < 0)))
            return value if sign > 0 else ring(0)

        if isinstance(module, Expression):

            def largest(values):
                best = ring(values[0])
                for other in values[1:]:
                    best = best + relu(ring(other) - best)
                return best

            out = [[module.fold(lambda i, j: line[i][j], largest, number)]]
        else:
            out = ExactForward(relu, number)(module, line)
        return [ring(entry) for row in out for entry in row], arguments

    symbol = sp.Symbol("lambda")

    def poly(element):
        return sp.Poly(element.as_expr(), symbol, domain="QQ")

    found: list[Piece] = []
    # The boundary on the left: a polynomial and an interval that holds exactly one of its roots.
    left_poly, left = poly(parameter), (Fraction(0), Fraction(0))
    guess = Fraction(1, 2)
    while True:
        outputs, arguments = through(guess)
        bends = {element: None for element, _ in arguments if element and not element.is_ground}
        at_guess = parameter - number(guess)
        polys = [left_poly, poly(at_guess), *(poly(element) for element in bends)]
        entries = sp.intervals(polys, inf=_sp(sp, left[0]), sup=sp.Integer(1), strict=True)
        here = next(i for i, (_, roots) in enumerate(entries) if 0 in roots)
        inside = next(i for i, (_, roots) in enumerate(entries) if 1 in roots)
        changing = [
            i
            for i, (_, roots) in enumerate(entries)
            if any(k > 1 and multiplicity % 2 for k, multiplicity in roots.items())
        ]
        between = [i for i in changing if here < i < inside]
        if inside in changing or any(k > 1 for k in entries[inside][1]):
            guess = (_fraction(entries[here][0][1]) + guess) / 2  # on a root: move to the left
            continue
        if between:
            low, high = _fraction(entries[here][0][1]), _fraction(entries[between[0]][0][0])
            guess = (low + high) / 2
            continue
        beyond = [i for i in changing if i > inside and _fraction(entries[i][0][0]) < 1]
        if beyond:
            (low, high), roots = entries[beyond[0]]
            right = (_fraction(low), _fraction(high))
            right_poly = polys[next(k for k, m in roots.items() if k > 1 and m % 2)]
        else:
            right, right_poly = (Fraction(1), Fraction(1)), None
        found.append(
            Piece(
                _nearest(sp, left_poly, left),
                1.0 if right_poly is None else _nearest(sp, right_poly, right),
                (left, right),
                tuple(poly(element) for element in outputs),
                tuple(sign for _, sign in arguments),
            )
        )
        if right_poly is None:
            return found
        left_poly, left = right_poly, right
        guess = (right[1] + 1) / 2


def _matrix(x: Any) -> list[list[Fraction]]:
    rows = x.tolist() if hasattr(x, "tolist") else x
    if not isinstance(rows, (list, tuple)):
        rows = [[rows]]
    elif not rows or not isinstance(rows[0], (list, tuple)):
        rows = [list(rows)]
    return exact_matrix(rows, len(rows), len(rows[0]))


def _fraction(value) -> Fraction:
    return Fraction(int(value.p), int(value.q))


def _sp(sp, value: Fraction):
    return sp.Rational(value.numerator, value.denominator)


def _nearest(sp, polynomial, interval: tuple[Fraction, Fraction]) -> float:
    low, high = interval
    if low != high:
        low, high = map(
            _fraction,
            polynomial.refine_root(_sp(sp, low), _sp(sp, high), eps=sp.Rational(1, 10**18)),
        )
    return float((low + high) / 2)
