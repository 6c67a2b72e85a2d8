r"""Programs of SciPy's splines.

One variable. The truncated powers :math:`(x - x_i)_+^k` of the textbooks lose ten digits with
fifty knots. Here every piece gets its own clamped coordinate,

.. math:: t_i = 1 - (1 - (x - x_i)_+ / h_i)_+ \in [0, 1] , \qquad h_i = x_{i+1} - x_i ,

which is exactly 0 left and exactly 1 right of its piece, and a continuous spline is the sum
:math:`f(x) = f(x_0) + \sum_i [p_i(x_i + h_i t_i) - p_i(x_i)]`: no term is larger than the spline's
variation on its piece.

Several variables. A tensor product is a sum over basis functions of one variable, which are
non-negative, so that one head multiplies; the last axis costs no product at all.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from scipy import interpolate
from torch import Tensor

from .cpwl import interpolator_forms
from .program import ONE, ZERO, Form, Program

GAP = Fraction(1, 10**10)  # relative; smaller gaps at knots are rounding, and closed


class Box:
    """Points whose features lie between two vectors, up to rounding of their dtype."""

    def __init__(self, low: list[float], high: list[float]):
        self.low, self.high = low, high

    def __call__(self, x: Tensor) -> Tensor:
        low, high = (x.new_tensor(bound, dtype=torch.float64) for bound in (self.low, self.high))
        slack = torch.finfo(x.dtype).eps * torch.maximum(low.abs(), high.abs())
        wide = x.double()
        return ((wide >= low - slack) & (wide <= high + slack)).all(-1).all(-1)


class Pieces:
    """A piecewise polynomial of one variable in exact numbers.

    ``coefficients[r][i][k]`` belongs to :math:`(x - x_i)^k` on piece i of output r.
    """

    def __init__(self, knots: list[Fraction], coefficients: list[list[list[Fraction]]]):
        self.knots, self.coefficients = knots, coefficients
        self.degree = max(
            (k for f in coefficients for piece in f for k, c in enumerate(piece) if c), default=0
        )


def forms_of(
    program: Program, f: Any, outside: str
) -> tuple[list[Form], int, Callable[[Tensor], Tensor] | None, float, int]:
    """Outputs, number of features, domain, closed gaps and degree of a SciPy spline."""
    if isinstance(f, interpolate.BPoly):
        f = interpolate.PPoly.from_bernstein_basis(f, f.extrapolate)
    if isinstance(f, (interpolate.PPoly, interpolate.BSpline)):
        _check_outside(f.extrapolate, outside, f)
        extend = outside == "extend"
        pieces = _from_ppoly(f, extend) if isinstance(f, interpolate.PPoly) else _from_bspline(f)
        forms, jump = piecewise(program, program.variable(0, 0), pieces, extend)
        domain = Box([float(pieces.knots[0])], [float(pieces.knots[-1])])
        return forms, 1, _only(domain, outside), jump, pieces.degree
    if isinstance(f, interpolate.NdBSpline):
        _check_outside(f.extrapolate, outside, f)
        return _tensor_product(program, f, outside)
    if isinstance(f, interpolate.LinearNDInterpolator):
        return interpolator_forms(program, f, outside)
    raise ValueError(
        f"f is a {type(f).__name__}; it needs to be a PPoly, BSpline, CubicSpline, NdBSpline,"
        " LinearNDInterpolator, an expression or an array of expressions"
    )


def _only(domain, outside):
    return domain if outside == "error" else None


def _check_outside(extrapolate: Any, outside: str, f: Any) -> None:
    if outside == "error" or extrapolate is True or (extrapolate and extrapolate != "periodic"):
        return
    kind = type(f).__name__
    if extrapolate == "periodic":
        raise ValueError(
            f'the {kind} is periodic: it has infinitely many pieces, and outside="extend" cannot'
            ' be honoured; compile one period with outside="error"'
        )
    raise ValueError(
        f'the {kind} has extrapolate=False, it is NaN outside of its knots; outside="extend"'
        ' contradicts that: give the spline extrapolate=True or compile with outside="error"'
    )


def _check_real(values: np.ndarray, name: str) -> None:
    if np.iscomplexobj(values):
        raise ValueError(f"{name} is complex; it needs real numbers")
    if not np.isfinite(values).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise ValueError(f"{name} has {values[where]} at {where}; it needs finite numbers")


def _check_sorted(knots: np.ndarray, name: str) -> None:
    _check_real(knots, name)
    wrong = np.diff(knots) < 0
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"{name} are not increasing: number {i} is {knots[i]}, number {i + 1} is {knots[i + 1]}"
        )


def _from_ppoly(f: interpolate.PPoly, extend: bool) -> Pieces:
    _check_sorted(f.x, "the breakpoints")
    _check_real(f.c, "c")
    x = [Fraction(float(value)) for value in f.x]
    c = np.asarray(f.c, dtype=float).reshape(f.c.shape[0], f.c.shape[1], -1)
    if not c.shape[2]:
        raise ValueError(f"c has shape {f.c.shape}; it needs at least one output")
    # SciPy's conversion from B-splines repeats breakpoints: pieces between them have no width.
    wide = [i for i in range(len(x) - 1) if x[i] < x[i + 1]]
    if not wide:
        raise ValueError(f"the breakpoints are all {f.x[0]}; they need an interval between them")

    def piece(i: int, r: int) -> list[Fraction]:
        return [Fraction(value) for value in c[::-1, i, r].tolist()]

    pieces = Pieces(
        [x[i] for i in wide] + [x[-1]],
        [[piece(i, r) for i in wide] for r in range(c.shape[2])],
    )
    # SciPy goes on with the outermost piece, and takes the value at the last breakpoint from it.
    ends = [(len(x) - 2, wide[-1], len(c) if extend else 1)] + [(0, wide[0], len(c))] * extend
    for outer, inner, terms in ends:
        width = x[inner + 1] - x[inner]
        for r in range(c.shape[2]):
            p = _scaled(piece(outer, r), width)
            q = _scaled(_shifted(piece(inner, r), x[outer] - x[inner]), width)
            size = sum(map(abs, q), ZERO)
            if any(abs(a - b) > GAP * size for a, b in zip(p[:terms], q, strict=False)):
                raise ValueError(
                    f"piece {outer} has no width, and its polynomial for output {r} is not that of"
                    f" piece {inner}: f jumps at {f.x[outer]}, or beyond it"
                )
    return pieces


def _multiply_linear(p: list[Fraction], constant: Fraction, slope: Fraction) -> list[Fraction]:
    out = [constant * value for value in p] + [ZERO]
    for k, value in enumerate(p):
        out[k + 1] += slope * value
    return out


def _add(p: list[Fraction], q: list[Fraction]) -> list[Fraction]:
    longer, shorter = (p, q) if len(p) >= len(q) else (q, p)
    return [a + b for a, b in zip(longer, shorter, strict=False)] + longer[len(shorter) :]


def basis_pieces(t: list[Fraction], k: int) -> tuple[list[Fraction], list[dict[int, list]]]:
    """Breakpoints of the base interval and, on every piece, {i: coefficients of B_i in x − x_m},
    by the Cox–de Boor recursion in exact numbers."""
    n = len(t) - k - 1
    knots, pieces = [], []
    for m in range(k, n):
        if t[m] == t[m + 1]:
            continue
        knots.append(t[m])
        basis: dict[int, list[Fraction]] = {m: [ONE]}
        for d in range(1, k + 1):
            new: dict[int, list[Fraction]] = {}
            for i in range(m - d, m + 1):
                total = [ZERO]
                if i in basis:
                    width = t[i + d] - t[i]
                    total = _multiply_linear(basis[i], (t[m] - t[i]) / width, 1 / width)
                if i + 1 in basis:
                    width = t[i + d + 1] - t[i + 1]
                    other = _multiply_linear(
                        basis[i + 1], (t[i + d + 1] - t[m]) / width, -1 / width
                    )
                    total = _add(total, other)
                new[i] = total
            basis = new
        pieces.append(basis)
    knots.append(t[n])
    return knots, pieces


def _knots_of(t: np.ndarray, k: int, n: int, name: str) -> list[Fraction]:
    _check_sorted(t, name)
    if len(t) != n + k + 1 or n < k + 1 or t[k] >= t[n]:
        raise ValueError(
            f"{name} are {len(t)} for {n} coefficients of degree {k}; they need to be {n + k + 1},"
            " with an interval between numbers k and n"
        )
    return [Fraction(float(value)) for value in t]


def _from_bspline(f: interpolate.BSpline) -> Pieces:
    _check_real(f.c, "c")
    # SciPy ignores what is beyond n = len(t) − k − 1 coefficients.
    n = len(f.t) - f.k - 1
    c = np.asarray(f.c, dtype=float)[:n].reshape(n, -1)
    knots, basis = basis_pieces(_knots_of(f.t, f.k, n, "the knots"), f.k)
    exact = [[Fraction(value) for value in row] for row in c.tolist()]
    outputs = []
    for r in range(c.shape[1]):
        pieces = []
        for piece in basis:
            total = [ZERO]
            for i, p in piece.items():
                total = _add(total, [exact[i][r] * value for value in p])
            pieces.append(total)
        outputs.append(pieces)
    return Pieces(knots, outputs)


# --- one variable ---------------------------------------------------------------------------------


def _value(p: list[Fraction], u: Fraction) -> Fraction:
    total = ZERO
    for c in reversed(p):
        total = total * u + c
    return total


def _shifted(p: list[Fraction], u: Fraction) -> list[Fraction]:
    """Coefficients of p(u + ·)."""
    out = list(p)
    for start in range(len(out)):
        for k in range(len(out) - 2, start - 1, -1):
            out[k] += u * out[k + 1]
    return out


def piecewise(
    program: Program, x: Form, pieces: Pieces, extend: bool, name: str = "f"
) -> tuple[list[Form], float]:
    """Forms of all outputs of a continuous piecewise polynomial of the form ``x``."""
    knots = pieces.knots
    widths = [b - a for a, b in zip(knots, knots[1:], strict=False)]
    jump = _check_continuous(pieces, widths, name)

    coordinates: list[tuple[Form, list[list[Fraction]]]] = []
    if extend:
        # Beyond the ends the outermost polynomials go on, in coordinates that are not clamped.
        beyond = program.relu(program.combine([(x, -ONE)], knots[0]))
        t = program.combine([(beyond, 1 / widths[0])])
        first = [_scaled(f[0], -widths[0]) for f in pieces.coefficients]
        coordinates.append((t, first))
    for i, h in enumerate(widths):
        begun = program.relu(program.combine([(x, ONE)], -knots[i]))
        left = program.relu(program.combine([(begun, -1 / h)], ONE))
        t = program.assume_non_negative(program.combine([(left, -ONE)], ONE))
        coordinates.append((t, [_scaled(f[i], h) for f in pieces.coefficients]))
    if extend:
        beyond = program.relu(program.combine([(x, ONE)], -knots[-1]))
        t = program.combine([(beyond, 1 / widths[-1])])
        last = [_scaled(_shifted(f[-1], widths[-1]), widths[-1]) for f in pieces.coefficients]
        coordinates.append((t, last))

    parts: list[list[tuple[Form, Fraction]]] = [[] for _ in pieces.coefficients]
    for t, scaled in coordinates:
        for k in range(1, max(map(len, scaled))):
            factors = [p[k] if k < len(p) else ZERO for p in scaled]
            if any(factors):
                power = program.product([t] * k)
                for r, factor in enumerate(factors):
                    if factor:
                        parts[r].append((power, factor))
    return [
        program.combine(part, f[0][0]) for part, f in zip(parts, pieces.coefficients, strict=True)
    ], jump


def _scaled(p: list[Fraction], h: Fraction) -> list[Fraction]:
    return [value * h**k for k, value in enumerate(p)]


def _check_continuous(pieces: Pieces, widths: list[Fraction], name: str) -> float:
    totals = []
    for r, f in enumerate(pieces.coefficients):
        total = ZERO
        for i in range(len(f) - 1):
            end, start = _value(f[i], widths[i]), f[i + 1][0]
            gap = abs(end - start)
            size = sum((abs(c) for c in _scaled(f[i], widths[i])), abs(start))
            if gap > GAP * size:
                raise ValueError(
                    f"{name} is discontinuous: output {r} jumps from {float(end)} to"
                    f" {float(start)} at {float(pieces.knots[i + 1])}"
                )
            total += gap
        totals.append(total)
    return float(max(totals))


# --- tensor products ------------------------------------------------------------------------------


def _tensor_product(program: Program, f: interpolate.NdBSpline, outside: str):
    _check_real(np.asarray(f.c), "c")
    axes = len(f.t)
    degrees = [int(k) for k in (f.k if np.ndim(f.k) else [f.k] * axes)]
    c = np.asarray(f.c, dtype=float)
    counts = c.shape[:axes]
    factors: list[list[Form]] = []
    low, high = [], []
    for axis, k in enumerate(degrees):
        exact = _knots_of(np.asarray(f.t[axis]), k, counts[axis], f"the knots of axis {axis}")
        knots, basis = basis_pieces(exact, k)
        pieces = Pieces(
            knots, [[piece.get(i, [ZERO]) for piece in basis] for i in range(counts[axis])]
        )
        forms, _ = piecewise(
            program,
            program.variable(0, axis),
            pieces,
            outside == "extend",
            f"the basis of axis {axis}",
        )
        if outside == "error":  # beyond the ends basis functions change their sign
            forms = [program.assume_non_negative(form) for form in forms]
        factors.append(forms)
        low.append(float(knots[0]))
        high.append(float(knots[-1]))
    # The last axis of the contraction is free, so let it be the longest.
    order = sorted(range(axes), key=lambda axis: (counts[axis], axis))
    flat = c.reshape(*counts, -1)
    outputs = []
    for r in range(flat.shape[-1]):
        weights = {
            tuple(index[axis] for axis in order): Fraction(float(flat[(*index, r)]))
            for index in np.ndindex(*counts)
        }
        outputs.append(program.contraction([factors[axis] for axis in order], weights))
    return outputs, axes, _only(Box(low, high), outside), 0.0, sum(degrees)
