r"""The Pierce–Birkhoff conjecture: what is known, and a function that refutes it.

The conjecture says that every continuous piecewise polynomial function is a maximum of minima of
finitely many polynomials. It is

- true for n ≤ 2 variables (Mahé 1984; independently Efroymson),
- reported true for every n if the pieces are cut out by *linear* polynomials (Lai and Lim 2025,
  arXiv:2507.07976),
- reported *false* in general: Lai, Lim and Ren (2026, preprint «Pierce–Birkhoff conjecture is
  false», https://github.com/7pocheR/Pierce-Birkhoff) give the function of :func:`counterexample`
  on pairs of symmetric 5 × 5 matrices, with a proof by hand and one in Lean, and others from 5
  variables on.

Together with theorem 3.8 of Lai, Lim and Liu (2024) this orders the functions strictly: splines on
partitions by hyperplanes, then ReLU encoders, which are the max-definable functions, then splines.
The first step is strict by :math:`\max(x_1^2 - x_2, 0)`, which bends along a parabola, the second by
:func:`counterexample`; for n ≤ 2 the last two agree.

As of this writing the preprint is not refereed; :func:`twin_points` lets one check its heart in
rational arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .expression import Expression, maximum, minimum, rational, variables, whole_number
from .inverse import inverse
from .symbolic import sympy

__all__ = [
    "Counterexample",
    "counterexample",
    "product_of_positive_parts",
    "twin_points",
]

Matrix = list[list[Fraction]]


def product_of_positive_parts() -> tuple[Expression, Expression]:
    r"""A spline of two variables as it is cut, and in sup–inf form.

    It is xy in the first quadrant and 0 elsewhere: :math:`x_+ y_+`. As a maximum of minima of
    polynomials it is :math:`\max(0, \min(xy,\; x(1 + y^2),\; y(1 + x^2)))`: in the first quadrant
    :math:`1 + t^2 \ge t` makes xy the smallest, elsewhere one of the three is not positive.

    Returns
    -------
    tuple
        The product :math:`x_+ y_+` and its normal form, both expressions in ``variables(1, 2)``.
    """
    x, y = variables(1, 2)[0]
    product = maximum(x, 0) * maximum(y, 0)
    return product, maximum(0, minimum(x * y, x * (1 + y * y), y * (1 + x * x)))


@dataclass(frozen=True)
class Counterexample:
    r"""The function of Lai, Lim and Ren (2026) on pairs (X, Y) of symmetric 5 × 5 matrices.

    With P = XY and :math:`h = \min_{i \ne j} \min(P_{ii} + 4 P_{ij},\, P_{ii} - 4 P_{ij})`,

    .. math:: f(X, Y) = h \text{ where } h > 0 \text{ and } \det X > 0, \quad 0 \text{ elsewhere.}

    It is continuous: where h > 0, every row of P is strictly diagonally dominant, since
    :math:`P_{ii} > 4 |P_{ij}|` for its four other entries; so P and X are invertible, and the sign
    of det X is locally constant there. For size 5 it is a spline of degree 5 on 30 variables (quadratic
    pieces, cut by forty quadratic polynomials, their differences and one determinant), and it is no
    maximum of minima of polynomials: no ReLU encoder computes it.
    """

    size: int = 5

    def __post_init__(self) -> None:
        if not 2 <= whole_number(self.size, "size") <= 5:
            raise ValueError(
                f"size is {self.size}; the function is continuous for sizes from 2 to 5, where a row"
                " of P has no more than four other entries"
            )

    def labels(self, X: Any, Y: Any) -> list[Any]:
        """The forty quadratic forms, for matrices of numbers, expressions or tensors' entries.

        Parameters
        ----------
        X, Y
            The two symmetric matrices.
        """
        n = self.size
        P = [[sum(X[i][k] * Y[k][j] for k in range(n)) for j in range(n)] for i in range(n)]
        return [
            P[i][i] + 4 * sign * P[i][j]
            for i in range(n)
            for j in range(n)
            if i != j
            for sign in (1, -1)
        ]

    def h(self, X: Matrix, Y: Matrix) -> Fraction:
        """The smallest label.

        Parameters
        ----------
        X, Y
            The two symmetric matrices.
        """
        return min(self.labels(X, Y))

    def __call__(self, X: Any, Y: Any) -> Fraction:
        """The exact value.

        Raises
        ------
        ValueError
            If the matrices are not symmetric of this size.
        """
        X, Y = self._checked("X", X), self._checked("Y", Y)
        smallest = self.h(X, Y)
        return smallest if smallest > 0 and self.determinant(X) > 0 else Fraction(0)

    def determinant(self, X: Matrix) -> Fraction:
        """det X, exactly."""
        sp = sympy()
        rows = [[sp.QQ(v.numerator, v.denominator) for v in row] for row in X]
        value = sp.polys.matrices.DomainMatrix(rows, (self.size, self.size), sp.QQ).det()
        return Fraction(int(value.numerator), int(value.denominator))

    def _checked(self, name: str, X: Any) -> Matrix:
        rows = [[rational(v, f"an entry of {name}") for v in row] for row in X]
        n = self.size
        if len(rows) != n or any(len(row) != n for row in rows):
            raise ValueError(f"{name} needs to be {n} × {n}")
        if any(rows[i][j] != rows[j][i] for i in range(n) for j in range(i)):
            raise ValueError(f"{name} is not symmetric")
        return rows

    def max_definable_part(self) -> Expression:
        """:math:`h_+` as an expression in ``variables(1, 30)``: upper triangles of X, then Y.

        The function itself differs from it by the factor 1[det X > 0] only.
        """
        n = self.size
        entries = list(variables(1, n * (n + 1))[0])
        X, Y = (
            self.symmetric(entries[: n * (n + 1) // 2]),
            self.symmetric(entries[n * (n + 1) // 2 :]),
        )
        return maximum(0, minimum(*self.labels(X, Y)))

    def symmetric(self, upper: Sequence[Any]) -> list[list[Any]]:
        """The symmetric matrix with this upper triangle, row by row."""
        n = self.size
        places = iter(upper)
        rows: list[list[Any]] = [[None] * n for _ in range(n)]
        for i in range(n):
            for j in range(i, n):
                rows[i][j] = rows[j][i] = next(places)
        return rows

    def coordinates(self, X: Matrix, Y: Matrix) -> list[Fraction]:
        """The 30 coordinates: upper triangles of X, then of Y.

        Parameters
        ----------
        X, Y
            The two symmetric matrices.
        """
        n = self.size
        return [M[i][j] for M in (X, Y) for i in range(n) for j in range(i, n)]


def counterexample() -> Counterexample:
    """The 30-variable function of Lai, Lim and Ren.

    Returns
    -------
    Counterexample
        Of size 5.
    """
    return Counterexample()


def twin_points(
    U: Sequence[Sequence[Any]], epsilon: Any
) -> tuple[tuple[Matrix, Matrix], tuple[Matrix, Matrix]]:
    r"""Two points at which f is :math:`\varepsilon^2` and 0, but which polynomials hardly tell apart.

    With :math:`D_X = \operatorname{diag}(1, 1, \varepsilon^2, \varepsilon^2, \pm\varepsilon)` and
    :math:`D_Y = \operatorname{diag}(\varepsilon^2, \varepsilon^2, 1, 1, \pm\varepsilon)` take

    .. math:: X_\pm = U D_X U^\top, \qquad Y_\pm = U^{-\top} D_Y U^{-1} .

    Then :math:`X_\pm Y_\pm = \varepsilon^2 I` for both signs: all labels agree, and so does every
    linear function of XY; but :math:`\det X_+ > 0 > \det X_-`. A quadratic polynomial that is not
    of that kind is not zero at the common limit for almost every U, and has one sign at both points
    once ε is small. So no finite family of polynomials of degree at most two determines the sign of
    f; and if f were a maximum of minima of polynomials, f(tx)/t² for t → 0 would show such a family.

    Parameters
    ----------
    U
        Invertible 5 × 5 matrix of rationals.
    epsilon
        A positive rational.

    Returns
    -------
    tuple
        (X_+, Y_+) and (X_−, Y_−), exactly.

    Raises
    ------
    ValueError
        If U is not 5 × 5 and invertible, or ε not positive.
    """
    e = rational(epsilon, "epsilon")
    if e <= 0:
        raise ValueError(f"epsilon is {epsilon}; it needs to be positive")
    rows = [[rational(v, "an entry of U") for v in row] for row in U]
    if len(rows) != 5 or any(len(row) != 5 for row in rows):
        raise ValueError("U needs to be 5 × 5")
    try:
        inverted = inverse(rows)
    except ValueError:
        raise ValueError("U is not invertible") from None
    n = range(len(rows))
    transposed = [[inverted[j][i] for j in n] for i in n]

    def congruent(A: Matrix, diagonal: list[Fraction]) -> Matrix:
        return [[sum(A[i][k] * diagonal[k] * A[j][k] for k in n) for j in n] for i in n]

    points = []
    for sign in (1, -1):
        d_x = [Fraction(1), Fraction(1), e * e, e * e, sign * e]
        d_y = [e * e, e * e, Fraction(1), Fraction(1), sign * e]
        points.append((congruent(rows, d_x), congruent(transposed, d_y)))
    return points[0], points[1]
