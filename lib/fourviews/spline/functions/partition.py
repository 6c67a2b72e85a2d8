r"""Partitions by signs of polynomials, and splines on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .expression import Expression, exact_matrix, variables, whole_number

__all__ = [
    "PiecewisePolynomial",
    "SignPartition",
    "sum_and_composition_parameters",
    "triangulation_partition",
]

Signs = tuple[int, ...]
Pattern = tuple[int | None, ...]  # None: any sign


class SignPartition:
    r"""Classes :math:`\Pi_\theta = \{x : \operatorname{sign} \pi_i(x) = \theta_i\}` of polynomials.

    Definition 2.1 of Lai, Lim and Liu (2024). Of the :math:`3^b` sign vectors many belong to
    empty classes.

    Parameters
    ----------
    polynomials
        π_1, …, π_b: expressions without maxima, in the same variables.

    Raises
    ------
    ValueError
        If there is none, or one is no polynomial.
    """

    def __init__(self, polynomials: Sequence[Expression]):
        self.polynomials = [Expression.of(p) for p in polynomials]
        if not self.polynomials:
            raise ValueError("polynomials is empty; a partition needs one or more")
        for place, polynomial in enumerate(self.polynomials):
            _check_polynomial(polynomial, f"polynomial {place}")
        shapes = {p.shape for p in self.polynomials if p.shape is not None}
        if not shapes:
            raise ValueError("the polynomials have no variable; take them from spline.variables")
        if len(shapes) != 1:
            raise ValueError(
                f"the polynomials are in variables{sorted(shapes)}; they need the same"
            )
        self.shape: tuple[int, int] = shapes.pop()

    @property
    def degree(self) -> int:
        """Largest degree of a polynomial."""
        return max(p.degree() for p in self.polynomials)

    def signs(self, x: Any) -> Signs | Tensor:
        """Sign vector of an exact matrix, or for a floating-point tensor (..., s, d) the signs
        (..., b) of its values, rounding included."""
        if isinstance(x, Tensor) and x.is_floating_point():
            return torch.stack([p(x).sign().long() for p in self.polynomials], -1)
        values = (p(exact_matrix(x, *self.shape)) for p in self.polynomials)
        return tuple((value > 0) - (value < 0) for value in values)

    def classes(self, points: Sequence[Any]) -> set[Signs]:
        """The sign vectors that exact points have: a lower bound of the number of classes."""
        return {self.signs(point) for point in points}

    def lines(self, bound: int = 1000) -> set[Signs]:
        """All classes of a partition of the plane by affine functions, lines and corners included.

        Every face of an arrangement of lines has a corner in its closure, or a line if all are
        parallel; so corners, points between corners on every line, and points beside them meet
        every class. ``bound`` limits the number of test points.

        Raises
        ------
        ValueError
            If there are not two variables, or a polynomial is not affine.
        """
        if self.shape != (1, 2) or self.degree > 1:
            raise ValueError("lines needs polynomials of degree 1 in variables(1, 2)")
        at = lambda p, x, y: p([[x, y]])  # noqa: E731
        lines = []
        for p in self.polynomials:
            c = at(p, 0, 0)
            lines.append((at(p, 1, 0) - c, at(p, 0, 1) - c, c))
        corners = set()
        for i, (a, b, c) in enumerate(lines):
            for e, f, g in lines[:i]:
                if a * f != b * e:
                    det = a * f - b * e
                    corners.add(((b * g - c * f) / det, (c * e - a * g) / det))
        reach = max((abs(v) for p in corners for v in p), default=Fraction(1)) + 1
        points = set(corners) | {(Fraction(0), Fraction(0))}
        for a, b, c in lines:
            if not (a or b):
                continue
            foot = (-a * c / (a * a + b * b), -b * c / (a * a + b * b))
            along = sorted(
                {
                    (x - foot[0]) * -b + (y - foot[1]) * a
                    for x, y in corners
                    if a * x + b * y + c == 0
                }
            ) or [Fraction(0)]
            far = [along[0] - 1, *along, along[-1] + 1]
            middles = [(u + v) / 2 for u, v in zip(far, far[1:], strict=False)]
            for t in [far[0], *middles, far[-1]]:
                x = foot[0] - b * t / (a * a + b * b)
                y = foot[1] + a * t / (a * a + b * b)
                # Near enough that no other line lies between.
                others = [
                    abs(e * x + f * y + g) / (abs(e) + abs(f))
                    for e, f, g in lines
                    if (e or f) and e * x + f * y + g
                ]
                step = min(others, default=reach) / (4 * (abs(a) + abs(b)))
                points |= {(x, y), (x + a * step, y + b * step), (x - a * step, y - b * step)}
        if len(points) > bound:
            raise ValueError(f"{len(points)} test points are needed; bound is {bound}")
        return self.classes([[[x, y]] for x, y in points])


class PiecewisePolynomial:
    r"""One polynomial for every class of a sign partition (definition 2.2).

    It is a spline if it is continuous; whether it is, is not decided here. Classes without a piece
    are outside of its domain.

    Parameters
    ----------
    partition
        The partition.
    pieces
        {sign vector: value}; a value is a polynomial expression, or for vector- and matrix-valued
        splines an array of them, all of one shape. A sign vector with ``None`` entries stands for
        all three signs there.

    Raises
    ------
    ValueError
        If there is no piece, a sign vector has a wrong length or is given twice, or a value is no
        polynomial.
    """

    def __init__(self, partition: SignPartition, pieces: Mapping[tuple, Any]):
        self.partition = partition
        b = len(partition.polynomials)
        self.pieces: dict[Pattern, np.ndarray] = {}
        self.value_shape: tuple[int, ...] | None = None
        if not pieces:
            raise ValueError("pieces is empty; it needs one or more")
        for signs, value in pieces.items():
            if (
                not isinstance(signs, tuple)
                or len(signs) != b
                or any(sign not in (-1, 0, 1, None) for sign in signs)
            ):
                raise ValueError(f"the sign vector {signs} needs {b} entries −1, 0, 1 or None")
            values = np.asarray(value, dtype=object)
            if self.value_shape is None:
                self.value_shape = values.shape
            if values.shape != self.value_shape:
                raise ValueError(
                    f"the value at {signs} has shape {values.shape}, another {self.value_shape}"
                )
            entries = np.empty(values.shape, dtype=object)
            for index in np.ndindex(values.shape):
                entries[index] = Expression.of(values[index])
                _check_polynomial(entries[index], f"the value at {signs}")
            for other in self.pieces:
                if all(a is None or b is None or a == b for a, b in zip(signs, other, strict=True)):
                    both = tuple(b if a is None else a for a, b in zip(signs, other, strict=True))
                    raise ValueError(f"the sign vector {both} is given twice")
            self.pieces[signs] = entries

    @property
    def degree(self) -> int:
        """Largest degree of a piece and of a polynomial that cuts."""
        inner = (e.degree() for piece in self.pieces.values() for e in piece.flat)
        return max(self.partition.degree, max(inner, default=0))

    def __call__(self, x: Any) -> Any:
        """Value: for an exact matrix a Fraction, or an array of them; for a tensor (..., s, d) a
        tensor (..., *value_shape).

        Raises
        ------
        ValueError
            If a point lies in a class that has no piece.
        """
        if isinstance(x, Tensor) and x.is_floating_point():
            signs = self.partition.signs(x)
            out = x.new_full((*x.shape[:-2], *self.value_shape), float("nan"))
            done = torch.zeros(x.shape[:-2], dtype=torch.bool, device=x.device)
            for theta, piece in self.pieces.items():
                here = torch.ones_like(done)
                for place, sign in enumerate(theta):
                    if sign is not None:
                        here &= signs[..., place] == sign
                if bool(here.any()):
                    values = [entry(x[here]) for entry in piece.flat]
                    out[here] = torch.stack(values, -1).reshape(-1, *self.value_shape)
                    done |= here
            if not bool(done.all()):
                raise ValueError(f"no piece for signs {signs[~done][0].tolist()}")
            return out
        theta = self.partition.signs(x)
        piece = next((p for pattern, p in self.pieces.items() if _fits(pattern, theta)), None)
        if piece is None:
            raise ValueError(f"no piece for signs {theta}")
        rows = exact_matrix(x, *self.partition.shape)
        values = np.empty(piece.shape, dtype=object)
        for index in np.ndindex(piece.shape):
            # A constant knows no shape; give it the partition's.
            entry = piece[index]
            values[index] = entry(rows) if entry.shape else entry.constant
        return values if piece.shape else values[()]


def _fits(pattern: Pattern, signs: Signs) -> bool:
    return all(a is None or a == b for a, b in zip(pattern, signs, strict=True))


def _check_polynomial(expression: Expression, name: str) -> None:
    stack = [expression]
    while stack:
        node = stack.pop()
        if node.kind == "maximum":
            raise ValueError(f"{name} is {expression}; it needs to be a polynomial, without maxima")
        if node.kind in ("sum", "product"):
            stack += [term for term, _ in node.terms]


def triangulation_partition(points: Any, simplices: Any) -> SignPartition:
    """Lines whose sign classes refine a triangulation of the plane: all lines through edges.

    Parameters
    ----------
    points
        ``(n, 2)``, as of ``scipy.spatial.Delaunay``.
    simplices
        Three places in ``points`` each.

    Returns
    -------
    SignPartition

    Raises
    ------
    ValueError
        If the points are not in the plane, or a simplex is no triangle of three of them.
    """
    points = np.asarray(points)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"points has shape {points.shape}; it needs (n, 2)")
    x, y = variables(1, 2)[0]
    lines: dict[Expression, None] = {}
    for simplex in simplices:
        corners = [int(place) for place in simplex]
        if len(corners) != 3 or not all(0 <= place < len(points) for place in corners):
            raise ValueError(f"the simplex {corners} needs three places in {len(points)} points")
        if len({tuple(points[place].tolist()) for place in corners}) < 3:
            raise ValueError(f"the simplex {corners} has two equal corners")
        for i in range(3):
            p, q = (points[simplex[(i + k) % 3]].tolist() for k in (0, 1))
            (a, b), (c, d) = sorted([p, q])
            line = (Fraction(d) - Fraction(b)) * (x - Fraction(a)) - (Fraction(c) - Fraction(a)) * (
                y - Fraction(b)
            )
            lines[line] = None
    return SignPartition(list(lines))


def sum_and_composition_parameters(n: int, d: int) -> tuple[int, int]:
    r"""Parameters of a map :math:`\mathbb R^n \to \mathbb R^n` as a sum and as a composition.

    As a sum, n coordinates in the tensor products of d functions of one variable each:
    :math:`n d^n`. As a composition of d linear layers with d − 1 activations of one parameter a
    neuron between them: :math:`d n^2 + (d - 1) n`.

    Parameters
    ----------
    n, d
        1 or more.

    Returns
    -------
    tuple of int
        Of the sum, of the composition.

    Raises
    ------
    ValueError
        If a number is no positive whole number.
    """
    n, d = whole_number(n, "n", 1), whole_number(d, "d", 1)
    return n * d**n, d * n * n + (d - 1) * n
