r"""Continuous piecewise-linear functions: of triangulations, and as networks of little depth.

**In the plane.** The indicator of a triangle is the alternating sum of the indicators of its
tangent cones at vertices, edges and the triangle itself (Brianchon and Gram). Hence a
piecewise-linear f is the sum over vertices of the function that continues what f does around the
vertex, minus the sum over inner edges of what f does around the edge, plus the sum of all affine
pieces. Around a vertex, f is known by the rays along which it bends and their weights
:math:`\kappa_j`, :math:`\sum_j \kappa_j r_j = 0`; every ray is completed to three balanced ones,
which are the maximum of three affine functions. So f is a combination of maxima of at most three,
their number is linear in the number of triangles, and one block suffices.

**In any dimension.** :func:`reduce_maximum` writes a maximum of affine functions in n variables as
a combination of maxima of at most n + 1 of them (Wang and Sun 2005), which gives the depth of
Arora et al. (2018), theorem 2.1.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cmp_to_key
from itertools import combinations
from typing import Any

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor, nn

from ..functions.expression import Expression, float_maker, rational, whole_number
from ..functions.inverse import inverse
from ..functions.symbolic import sympy
from .program import ONE, ZERO, Form, Program
from .schedule import Affine, network_layers

__all__ = ["chen_bound", "cpwl_network", "difference_of_convex", "reduce_maximum"]

AffineFunction = tuple[Fraction, ...]  # slopes, then the constant
LARGEST = 20_000  # affine functions in an intermediate form
FLAT = 64 * 2.0**-52  # relative height of a triangle that its corners' rounding may have made
NEARLY_STRAIGHT = Fraction(1, 10**8)  # sine of an angle
THIN = Fraction(1, 10**6)  # change by rounding of coordinates, relative to the largest value


# --- interpolation on triangulations --------------------------------------------------------------


class _Hull:
    """Points in the convex hull of a triangulation."""

    def __init__(self, triangulation: Any, scale: np.ndarray, offset: np.ndarray):
        self.triangulation, self.scale, self.offset = triangulation, scale, offset

    def __call__(self, x: Tensor) -> Tensor:
        points = x[..., 0, :].detach().double().cpu().numpy()
        tolerance = 100 * torch.finfo(x.dtype).eps
        found = self.triangulation.find_simplex((points - self.offset) / self.scale, tol=tolerance)
        return torch.as_tensor(np.asarray(found >= 0), device=x.device).reshape(x.shape[:-2])


def interpolator_forms(program: Program, f: Any, outside: str):
    """Outputs of a ``LinearNDInterpolator`` on its convex domain."""
    if outside == "extend":
        raise ValueError(
            "a LinearNDInterpolator is NaN outside of the convex hull of its points;"
            ' outside="extend" cannot be honoured: compile with outside="error"'
        )
    values = np.asarray(f.values)
    if np.iscomplexobj(values) and np.any(values.imag):
        raise ValueError("the values are complex; they need to be real")
    values = values.real.reshape(len(values), -1)
    if not np.isfinite(values).all():
        where = int(np.argwhere(~np.isfinite(values).all(1))[0, 0])
        raise ValueError(f"the value at point {where} is not finite")
    tri = f.tri
    dimension = tri.points.shape[1]
    scale = np.ones(dimension) if f.scale is None else np.asarray(f.scale, float)
    offset = np.zeros(dimension) if f.scale is None else np.asarray(f.offset, float)
    coordinates = [
        program.combine(
            [(program.variable(0, j), 1 / Fraction(float(scale[j])))],
            -Fraction(float(offset[j])) / Fraction(float(scale[j])),
        )
        for j in range(dimension)
    ]
    points = [[Fraction(v) for v in row] for row in tri.points.tolist()]
    exact = [[Fraction(v) for v in row] for row in values.tolist()]
    simplices = [list(map(int, simplex)) for simplex in tri.simplices]
    if dimension == 2:
        simplices = _without_flat_ones(points, simplices)
    affine = [_affine_pieces(points, exact, simplex) for simplex in simplices]
    _check_not_thin(points, exact, simplices, affine)
    if dimension == 2:
        forms = _planar(program, coordinates, points, simplices, affine)
    else:
        forms = _convex_difference(program, coordinates, points, exact, simplices, affine)
    return forms, dimension, _Hull(tri, scale, offset), 0.0, 1


def _without_flat_ones(points, simplices: list[list[int]]) -> list[list[int]]:
    """The triangulation without triangles at the hull that are flat up to rounding.

    Points on a straight side of the hull are rounded, so that Delaunay's triangles among them have
    heights of the size of this rounding, slopes of its inverse, and hold no points of their own.
    """
    height = Fraction(FLAT) * max(abs(v) for point in points for v in point)
    kept = list(simplices)
    while True:
        owners: dict[tuple[int, int], int] = {}
        for simplex in kept:
            for edge in combinations(sorted(simplex), 2):
                owners[edge] = owners.get(edge, 0) + 1
        rest = [s for s in kept if not _flat_at_the_hull(points, s, owners, height)]
        if len(rest) == len(kept):
            return kept
        if not rest:
            raise ValueError("the points lie on a line up to rounding; they need to span the plane")
        kept = rest


def _flat_at_the_hull(points, simplex, owners, height: Fraction) -> bool:
    for u, v in combinations(sorted(simplex), 2):
        if owners[u, v] > 1:
            continue
        (w,) = set(simplex) - {u, v}
        side, up = (
            tuple(b - a for a, b in zip(points[u], points[end], strict=True)) for end in (v, w)
        )
        length = side[0] ** 2 + side[1] ** 2
        along = side[0] * up[0] + side[1] * up[1]
        if 0 <= along <= length and _cross(side, up) ** 2 <= height**2 * length:
            return True
    return False


def _check_not_thin(points, values, simplices, affine) -> None:
    """A slope turns the rounding of a coordinate into an error, wherever the function is."""
    largest = max(abs(v) for row in values for v in row)
    reach = [max(abs(point[j]) for point in points) for j in range(len(points[0]))]
    for simplex, pieces in zip(simplices, affine, strict=True):
        for piece in pieces:
            error = sum(abs(a) * r for a, r in zip(piece, reach, strict=False)) / 2**52
            if error > THIN * largest:
                raise ValueError(
                    f"the simplex of points {simplex} is too thin: f is so steep there that the"
                    f" rounding of coordinates changes it by {float(error):.0e}; leave one of"
                    " the points out"
                )


def _affine_pieces(points, values, simplex) -> list[AffineFunction]:
    """The affine function through the corners, for every output."""
    p0, *others = (points[v] for v in simplex)
    rows = [[a - b for a, b in zip(p, p0, strict=True)] for p in others]
    inverted = inverse(rows)
    pieces = []
    for r in range(len(values[0])):
        v0, *rest = (values[v][r] for v in simplex)
        slopes = [
            sum((inverted[i][j] * (v - v0) for j, v in enumerate(rest)), ZERO)
            for i in range(len(p0))
        ]
        constant = v0 - sum((s * x for s, x in zip(slopes, p0, strict=True)), ZERO)
        pieces.append((*slopes, constant))
    return pieces


AUXILIARY = ((ONE, ZERO), (ZERO, ONE), (-ONE, -ONE))  # counter-clockwise, they span positively


def _cross(a, b):
    return a[0] * b[1] - a[1] * b[0]


def _turned(a):
    return (-a[1], a[0])


def _counter_clockwise(rays):
    """Sorted by angle, exactly."""

    def lower(ray):
        return not (ray[1] > 0 or (ray[1] == 0 and ray[0] > 0))

    def compare(a, b):
        turn = _cross(b, a)
        return (lower(a) > lower(b)) - (lower(a) < lower(b)) or (turn > 0) - (turn < 0)

    return sorted(rays, key=cmp_to_key(compare))


def _completed(ray) -> tuple[list[tuple], dict[int, Fraction]]:
    """Gradients of the convex function that bends along ``ray`` with weight 1 and along two
    auxiliary rays, and the weights of these."""
    for i in range(3):
        a, b = AUXILIARY[i], AUXILIARY[(i + 1) % 3]
        determinant = _cross(a, b)
        alpha = _cross((-ray[0], -ray[1]), b) / determinant
        beta = _cross(a, (-ray[0], -ray[1])) / determinant
        if alpha >= 0 and beta >= 0:
            weights = {i: alpha, (i + 1) % 3: beta}
            break
    rays = [ray] + [(w * AUXILIARY[i][0], w * AUXILIARY[i][1]) for i, w in weights.items() if w]
    gradients = [(ZERO, ZERO)]
    for edge in map(_turned, _counter_clockwise(rays)[:-1]):
        gradients.append((gradients[-1][0] + edge[0], gradients[-1][1] + edge[1]))
    return gradients, weights


def _planar(program, coordinates, points, simplices, affine) -> list[Form]:
    outputs = len(affine[0])
    parts: list[list[tuple[Form, Fraction]]] = [[] for _ in range(outputs)]
    total = [[ZERO] * 3 for _ in range(outputs)]  # affine part of every output

    def linear(gradient, at) -> Form:
        constant = -(gradient[0] * at[0] + gradient[1] * at[1])
        return program.combine(list(zip(coordinates, gradient, strict=True)), constant)

    def add_affine(r, function, sign=1):
        for i, value in enumerate(function):
            total[r][i] += sign * value

    edges: dict[tuple[int, int], list[int]] = {}
    around: dict[int, list[int]] = {}
    for c, simplex in enumerate(simplices):
        for u, v in combinations(sorted(simplex), 2):
            edges.setdefault((u, v), []).append(c)
        for v in simplex:
            around.setdefault(v, []).append(c)
        for r in range(outputs):
            add_affine(r, affine[c][r])

    bends: dict[int, list[tuple[tuple, list[Fraction]]]] = {}
    inner: dict[int, int] = {}
    for (u, v), cells in edges.items():
        if len(cells) == 1:
            inner[u] = inner.get(u, 0) + 1
            inner[v] = inner.get(v, 0) + 1
            # What one triangle does around its outer edge is its affine piece.
            for r in range(outputs):
                add_affine(r, affine[cells[0]][r], -1)
            continue
        left, right = cells
        ray = (points[v][0] - points[u][0], points[v][1] - points[u][1])
        third = next(w for w in simplices[left] if w not in (u, v))
        side = _cross(ray, (points[third][0] - points[u][0], points[third][1] - points[u][1]))
        if side < 0:
            left, right = right, left
        normal = _turned(ray)
        place = 0 if normal[0] else 1
        kappa = [
            (affine[left][r][place] - affine[right][r][place]) / normal[place]
            for r in range(outputs)
        ]
        if not any(kappa):
            for r in range(outputs):
                add_affine(r, affine[right][r], -1)
            continue
        crease = program.relu(linear(normal, points[u]))
        for r in range(outputs):
            add_affine(r, affine[right][r], -1)
            if kappa[r]:
                parts[r].append((crease, -kappa[r]))
        bends.setdefault(u, []).append((ray, kappa))
        bends.setdefault(v, []).append(((-ray[0], -ray[1]), kappa))

    for v, cells in around.items():
        rays = list(bends.get(v, []))
        first = cells[0]
        if not rays:
            for r in range(outputs):
                add_affine(r, affine[first][r])
            continue
        if v in inner:  # on the boundary: let it bend outside of the domain, so as to balance
            rays += _balancing(points, simplices, cells, v, rays, outputs)
        elements: list[tuple[list[tuple], list[Fraction]]] = []
        residual = [[ZERO] * outputs for _ in range(3)]
        for ray, kappa in rays:
            gradients, weights = _completed(ray)
            elements.append((gradients, kappa))
            for i, weight in weights.items():
                for r in range(outputs):
                    residual[i][r] -= kappa[r] * weight
        if any(residual[0]):
            last = [(ZERO, ZERO)]
            for edge in (_turned(AUXILIARY[0]), _turned(AUXILIARY[1])):
                last.append((last[-1][0] + edge[0], last[-1][1] + edge[1]))
            elements.append((last, residual[0]))
        corner = points[v]
        directions = [
            (points[w][0] - corner[0], points[w][1] - corner[1]) for w in simplices[first] if w != v
        ]
        value = [[ZERO, ZERO] for _ in range(outputs)]
        for gradients, kappa in elements:
            form = program.maximum(linear(gradient, corner) for gradient in gradients)
            heights = [max(g[0] * d[0] + g[1] * d[1] for g in gradients) for d in directions]
            for r in range(outputs):
                if kappa[r]:
                    parts[r].append((form, kappa[r]))
                    for i, height in enumerate(heights):
                        value[r][i] += kappa[r] * height
        inverted = inverse([list(d) for d in directions])
        for r in range(outputs):
            slopes = [inverted[i][0] * value[r][0] + inverted[i][1] * value[r][1] for i in (0, 1)]
            add_affine(r, affine[first][r])
            add_affine(r, (*slopes, -(slopes[0] * corner[0] + slopes[1] * corner[1])), -1)
    return [
        program.combine(
            [*parts[r], (coordinates[0], total[r][0]), (coordinates[1], total[r][1])], total[r][2]
        )
        for r in range(outputs)
    ]


def _balancing(points, simplices, cells, v, rays, outputs):
    """Two rays outside of the cone of the triangles around v, weighted so that all balance."""
    corner = points[v]
    boundary: dict[int, int] = {}
    for c in cells:
        for w in simplices[c]:
            if w != v:
                boundary[w] = boundary.get(w, 0) + 1
    first, second = (
        (points[w][0] - corner[0], points[w][1] - corner[1]) for w, n in boundary.items() if n == 1
    )
    if _cross(first, second) < 0:
        first, second = second, first
    lengths = [a * a + b * b for a, b in (first, second)]
    if _cross(first, second) ** 2 <= NEARLY_STRAIGHT**2 * lengths[0] * lengths[1]:
        # A straight angle, up to rounding: outside is a half-plane.
        centre = (first[1], -first[0])
        inwards = sum(
            centre[0] * (points[w][0] - corner[0]) + centre[1] * (points[w][1] - corner[1])
            for c in cells
            for w in simplices[c]
        )
        if inwards > 0:
            centre = (-centre[0], -centre[1])
        outer = (
            (centre[0] + first[0] / 4, centre[1] + first[1] / 4),
            (centre[0] - first[0] / 4, centre[1] - first[1] / 4),
        )
    else:
        outer = ((-first[0], -first[1]), (-second[0], -second[1]))
    determinant = _cross(*outer)
    weights = [[ZERO] * outputs for _ in range(2)]
    for r in range(outputs):
        missing = (
            -sum((kappa[r] * ray[0] for ray, kappa in rays), ZERO),
            -sum((kappa[r] * ray[1] for ray, kappa in rays), ZERO),
        )
        weights[0][r] = _cross(missing, outer[1]) / determinant
        weights[1][r] = _cross(outer[0], missing) / determinant
    return [(ray, weight) for ray, weight in zip(outer, weights, strict=True) if any(weight)]


def _convex_difference(program, coordinates, points, values, simplices, affine) -> list[Form]:
    r"""f = max(f + w) − max w with a convex w on the same triangulation that bends at least as much.

    The familiar form max_i min_j, with j over the pieces that are nowhere below piece i on piece
    i, is *wrong* for simplices in three variables: it needs pieces on which all affine functions
    keep their order, and these are far more.
    """
    outputs = range(len(values[0]))
    weights = _convex_weights(points, values, simplices)
    lifted = [[w] for w in weights]
    convex = [_affine_pieces(points, lifted, simplex)[0] for simplex in simplices]

    def largest(functions):
        return program.maximum(
            program.combine(list(zip(coordinates, g, strict=False)), g[-1])
            for g in dict.fromkeys(functions)
        )

    subtracted = largest(convex)
    forms = []
    for r in outputs:
        added = [
            tuple(x + y for x, y in zip(piece[r], w, strict=True))
            for piece, w in zip(affine, convex, strict=True)
        ]
        forms.append(program.combine([(largest(added), ONE), (subtracted, -ONE)]))
    return forms


def _convex_weights(points, values, simplices) -> list[Fraction]:
    """Heights whose interpolant w, and every f + w, is convex: a linear program finds them, the
    bends are checked in exact numbers."""
    facets: dict[frozenset, list[tuple[int, int]]] = {}
    for c, simplex in enumerate(simplices):
        for v in simplex:
            facets.setdefault(frozenset(simplex) - {v}, []).append((c, v))
    rows: list[dict[int, Fraction]] = []
    for cells in facets.values():
        if len(cells) == 2:
            (c, v), (_, other) = cells
            rows.append(_bend(points, simplices[c], other))

    def bend(row, heights):
        return sum((factor * heights[v] for v, factor in row.items()), ZERO)

    columns = range(len(values[0]))
    needed = [max(abs(bend(row, [x[r] for x in values])) for r in columns) for row in rows]
    count = len(points)
    matrix = np.zeros((len(rows), count + 1))
    for i, row in enumerate(rows):
        scale = max(map(abs, row.values()))
        for v, factor in row.items():
            matrix[i, v] = -float(factor / scale)
    scales = [max(map(abs, row.values())) for row in rows]
    bound = [-float(need / scale) for need, scale in zip(needed, scales, strict=True)]
    size = max((abs(b) for b in bound), default=1.0) or 1.0
    sides = np.zeros((2 * count, count + 1))
    sides[:count, :count], sides[count:, :count] = np.eye(count), -np.eye(count)
    sides[:, -1] = -1
    result = linprog(
        [*([0.0] * count), 1.0],
        A_ub=np.vstack([matrix, sides]),
        b_ub=np.array([*(b / size - 1e-9 for b in bound), *([0.0] * (2 * count))]),
        bounds=[(None, None)] * (count + 1),
    )
    if result.status == 0:
        heights = [Fraction(float(w)) * Fraction(size) for w in result.x[:count]]
        for _ in range(60):
            bends = [bend(row, heights) for row in rows]
            if all(b >= need for b, need in zip(bends, needed, strict=True)):
                return heights
            heights = [w * Fraction(3, 2) for w in heights]
    raise ValueError(
        "the triangulation is not regular: no convex function bends at every facet, and the"
        " interpolator cannot be written as a difference of two on it"
    )


def _bend(points, simplex, other) -> dict[int, Fraction]:
    """Value at the vertex beyond a facet minus the affine continuation: coefficients of heights."""
    p0, *rest = (points[v] for v in simplex)
    inverted = inverse([[a - b for a, b in zip(p, p0, strict=True)] for p in rest])
    step = [a - b for a, b in zip(points[other], p0, strict=True)]
    shares = [
        sum((step[i] * inverted[i][j] for i in range(len(step))), ZERO) for j in range(len(rest))
    ]
    row = {other: ONE, simplex[0]: -(ONE - sum(shares, ZERO))}
    for v, share in zip(simplex[1:], shares, strict=True):
        row[v] = -share
    return row


# --- few arguments --------------------------------------------------------------------------------


def reduce_maximum(functions: list[AffineFunction]) -> dict[frozenset[int], int]:
    r"""A maximum of affine functions of n variables as a combination of maxima of at most n + 1.

    Among n + 2 functions :math:`\ell_i(x) = a_i \cdot x + b_i` there is a dependence
    :math:`\sum \lambda_i (a_i, 1) = 0`, which can be signed so that :math:`\sum \lambda_i b_i \ge
    0`. Let P and N hold its positive and negative places. A mean over P is then nowhere below a
    mean over N, so at every x some member of N is not above :math:`\max_P`, and leaving it out
    changes no maximum over a set that contains P. Hence for every :math:`S \supseteq P \cup N`

    .. math:: \sum_{T \subseteq N} (-1)^{|T|} \max_{S \setminus T} = 0 ,

    which expresses :math:`\max_S` by maxima of fewer functions. This proves the theorem of Wang
    and Sun (2005); all is exact.

    Parameters
    ----------
    functions
        Affine functions: n slopes, then the constant.

    Returns
    -------
    dict
        {places in ``functions``: integer factor}; all sets have at most n + 1 members.

    Raises
    ------
    ValueError
        If there is no function, or their lengths differ.
    """
    if not functions or not functions[0] or any(len(f) != len(functions[0]) for f in functions):
        raise ValueError("functions need to be one or more, all of the same length, 1 or more")
    functions = [tuple(rational(v, "a coefficient") for v in f) for f in functions]
    limit = len(functions[0])  # n + 1
    best: dict[tuple, int] = {}
    for i, f in enumerate(functions):  # of equal slopes the largest constant remains
        if f[:-1] not in best or functions[best[f[:-1]]][-1] < f[-1]:
            best[f[:-1]] = i
    pending = {frozenset(best.values()): 1}
    done: dict[frozenset[int], int] = {}
    dependences: dict[tuple, tuple[list[int], list[int]]] = {}
    while pending:
        members = max(pending, key=lambda s: (len(s), sorted(s)))
        factor = pending.pop(members)
        if not factor:
            continue
        if len(members) <= limit:
            done[members] = factor
            continue
        few = tuple(sorted(members)[: limit + 1])
        if few not in dependences:
            dependences[few] = _dependence([functions[i] for i in few], few)
        _, negative = dependences[few]
        for size in range(1, len(negative) + 1):
            for left_out in combinations(negative, size):
                rest = members - frozenset(left_out)
                pending[rest] = pending.get(rest, 0) - factor * (-1) ** size
    return done


def _dependence(functions, places) -> tuple[list[int], list[int]]:
    sp = sympy()
    matrix = sp.polys.matrices.DomainMatrix(
        [[sp.QQ(x.numerator, x.denominator) for x in (*f[:-1], ONE)] for f in functions],
        (len(functions), len(functions[0])),
        sp.QQ,
    ).transpose()
    weights = [
        Fraction(int(x.numerator), int(x.denominator)) for x in matrix.nullspace().to_list()[0]
    ]
    if sum((w * f[-1] for w, f in zip(weights, functions, strict=True)), ZERO) < 0:
        weights = [-w for w in weights]
    positive = [place for place, w in zip(places, weights, strict=True) if w > 0]
    negative = [place for place, w in zip(places, weights, strict=True) if w < 0]
    return positive, negative


def difference_of_convex(f: Expression) -> tuple[list[AffineFunction], list[AffineFunction]]:
    r"""Affine functions with :math:`f = \max_i a_i - \max_j b_j`, exactly.

    Sums add all pairs, and :math:`\max(g - h, g' - h') = \max(g + h', g' + h) - (h + h')`. In one
    variable only functions that are the largest somewhere are kept; in several, their number may
    grow exponentially with the expression.

    Parameters
    ----------
    f
        An expression without products, of one token.

    Returns
    -------
    tuple
        Two lists of affine functions: d slopes, then the constant.

    Raises
    ------
    ValueError
        If ``f`` is no expression, has products or more than one token, or needs more than 20 000
        functions on the way.
    """
    if not isinstance(f, Expression):
        raise ValueError(f"f is a {type(f).__name__}; it needs to be an expression")
    if f.shape is not None and f.shape[0] != 1:
        raise ValueError(f"f is in variables{f.shape}; a piecewise-linear network needs one token")
    if f.degree() > 1:
        raise ValueError(f"f = {f} has products; it needs to be piecewise linear")
    d = f.shape[1] if f.shape is not None else 0
    unit = tuple(ZERO for _ in range(d + 1))

    def plus(a: set, b: set) -> set:
        if len(a) * len(b) > 25 * LARGEST:
            raise ValueError(f"f needs more than {LARGEST} affine functions on the way")
        return _reduced({tuple(x + y for x, y in zip(p, q, strict=True)) for p in a for q in b})

    class Pair:
        """g − h for convex g, h, each the largest of a set of affine functions."""

        def __init__(self, g, h):
            self.g, self.h = g, h

        def __add__(self, other):
            other = other if isinstance(other, Pair) else Pair({(*unit[:-1], other)}, {unit})
            return Pair(plus(self.g, other.g), plus(self.h, other.h))

        __radd__ = __add__

        def __rmul__(self, factor):
            g = {tuple(abs(factor) * x for x in p) for p in self.g}
            h = {tuple(abs(factor) * x for x in p) for p in self.h}
            return Pair(g, h) if factor >= 0 else Pair(h, g)

    def variable(_, j):
        return Pair({tuple(ONE if i == j else ZERO for i in range(d + 1))}, {unit})

    def largest(values):
        values = [v if isinstance(v, Pair) else Pair({(*unit[:-1], v)}, {unit}) for v in values]
        result = values[0]
        for other in values[1:]:
            g = _reduced(plus(result.g, other.h) | plus(other.g, result.h))
            result = Pair(g, plus(result.h, other.h))
        return result

    result = f.fold(variable, largest)
    if not isinstance(result, Pair):
        return [(*unit[:-1], result)], [unit]
    return sorted(result.g), sorted(result.h)


def _reduced(functions: set) -> set:
    best: dict[tuple, Fraction] = {}
    for f in functions:
        best[f[:-1]] = max(f[-1], best.get(f[:-1], f[-1]))
    if best and len(next(iter(best))) == 1:
        best = _upper_envelope(best)
    if len(best) > LARGEST:
        raise ValueError(f"f needs more than {LARGEST} affine functions on the way")
    return {(*slopes, constant) for slopes, constant in best.items()}


def _upper_envelope(best: dict[tuple, Fraction]) -> dict[tuple, Fraction]:
    """Functions of one variable that are the largest somewhere: the upper hull of (slope, constant)."""
    kept: list[tuple[Fraction, Fraction]] = []
    for (slope,), constant in sorted(best.items()):
        while len(kept) > 1:
            (a, b), (c, d) = kept[-2:]
            if (d - b) * (slope - a) > (constant - b) * (c - a):
                break
            kept.pop()
        kept.append((slope, constant))
    return {(slope,): constant for slope, constant in kept}


def cpwl_network(f: Any, *, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    r"""A ReLU network for a continuous piecewise-linear function, within the depth of Arora et al.

    It has :math:`\lceil\log_2(n+1)\rceil` hidden layers, depth
    :math:`\lceil\log_2(n+1)\rceil + 1` if the output layer is counted as well.

    Parameters
    ----------
    f
        An expression without products, of one token with n features; or a
        ``LinearNDInterpolator`` in the plane, n = 2, which the network equals on its domain.
    dtype
        Of the weights.

    Returns
    -------
    torch.nn.Sequential
        Linear and ReLU layers, from ``(..., n)`` to ``(..., r)``.

    Raises
    ------
    ValueError
        If ``f`` is something else, or has products, or a weight does not fit ``dtype``.
    """
    if isinstance(f, Expression):
        if f.shape is None:
            raise ValueError("f has no variable; take them from spline.variables(1, n)")
        program, n = Program(), f.shape[1]
        coordinates = [program.variable(0, j) for j in range(n)]
        parts = []
        for sign, functions in zip((1, -1), difference_of_convex(f), strict=True):
            forms = [
                program.combine(list(zip(coordinates, g, strict=False)), g[-1]) for g in functions
            ]
            for members, factor in reduce_maximum(functions).items():
                largest = program.maximum(forms[i] for i in sorted(members))
                parts.append((largest, Fraction(sign * factor)))
        forms = [program.combine(parts)]
    else:
        from scipy.interpolate import LinearNDInterpolator

        if not isinstance(f, LinearNDInterpolator) or f.tri.points.shape[1] != 2:
            raise ValueError(
                f"f is a {type(f).__name__}; it needs to be an expression without products or a"
                " LinearNDInterpolator of points in the plane"
            )
        program = Program()
        forms, n, *_ = interpolator_forms(program, f, "error")
    layers = network_layers(program, forms, n)
    modules: list[nn.Module] = []
    columns = n
    for place, affine in enumerate(layers):
        modules.append(_linear(affine, columns, dtype))
        if place + 1 < len(layers):
            modules.append(nn.ReLU())
        columns = len(affine.rows)
    return nn.Sequential(*modules)


def _linear(affine: Affine, columns: int, dtype: torch.dtype) -> nn.Linear:
    to_float = float_maker(dtype)
    linear = nn.Linear(columns, len(affine.rows), dtype=dtype)
    with torch.no_grad():
        linear.weight.zero_()
        for i, row in enumerate(affine.rows):
            for j, value in row.items():
                linear.weight[i, j] = to_float(value)
        linear.bias.copy_(torch.tensor([to_float(c) for c in affine.constants], dtype=dtype))
    return linear


def chen_bound(pieces: int, distinct: int) -> int:
    r"""Hidden neurons that suffice for q pieces of k distinct affine functions.

    .. math:: (3 \cdot 2^{\lceil\log_2 k\rceil} + 2\lceil\log_2 k\rceil - 3)\, q
       + 3 \cdot 2^{\lceil\log_2 q\rceil} - 2\lceil\log_2 k\rceil - 3 ,

    the bound of Chen, Garudadri and Rao (2022), which holds in every dimension.

    Parameters
    ----------
    pieces, distinct
        q and k, with 1 ≤ k ≤ q.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If they are not 1 ≤ distinct ≤ pieces.
    """
    pieces, distinct = whole_number(pieces, "pieces", 1), whole_number(distinct, "distinct", 1)
    if distinct > pieces:
        raise ValueError(
            f"distinct is {distinct}, pieces is {pieces}; it needs 1 ≤ distinct ≤ pieces"
        )
    k, q = (distinct - 1).bit_length(), (pieces - 1).bit_length()
    return (3 * 2**k + 2 * k - 3) * pieces + 3 * 2**q - 2 * k - 3
