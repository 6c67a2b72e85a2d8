r"""The normal form :math:`\max_i \min_j \xi_{ij}` of a max-definable expression."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any

from .expression import Expression, exact_matrix, maximum, minimum, variables
from .symbolic import sympy

__all__ = ["NormalForm", "normal_form", "polynomial_ring"]

LARGEST = 20_000  # polynomials in an intermediate form


def polynomial_ring(s: int, d: int) -> tuple[Any, list[list[Any]]]:
    """sympy's ring of rational polynomials in the entries of an s × d matrix, and these entries."""
    sp = sympy()
    names = [f"x{i}_{j}" for i in range(s) for j in range(d)]
    ring, *generators = sp.polys.rings.ring(names, sp.QQ)
    return ring, [generators[i * d : (i + 1) * d] for i in range(s)]


@dataclass(frozen=True)
class NormalForm:
    r"""A function :math:`\max_i \min_j \xi_{ij}`.

    Attributes
    ----------
    polynomials
        ξ_ij: a tuple of tuples of sympy polynomials (elements of one ring).
    shape
        (s, d) of the matrix of variables.
    """

    polynomials: tuple[tuple[Any, ...], ...]
    shape: tuple[int, int]

    def __call__(self, x: Any) -> Fraction:
        """The exact value at a matrix of numbers."""
        sp = sympy()
        rows = exact_matrix(x, *self.shape)
        at = [sp.QQ(v.numerator, v.denominator) for row in rows for v in row]

        def value(polynomial):
            result = polynomial(*at)
            return Fraction(int(result.numerator), int(result.denominator))

        return max(min(map(value, inner)) for inner in self.polynomials)

    def expression(self) -> Expression:
        """The same as an expression."""
        X = variables(*self.shape)
        entries = list(X.flat)

        def of(polynomial):
            total = Expression.of(0)
            for exponents, value in polynomial.terms():
                term = Expression.of(Fraction(int(value.numerator), int(value.denominator)))
                for entry, exponent in zip(entries, exponents, strict=True):
                    term = term * entry**exponent
                total = total + term
            return total

        return maximum(*(minimum(*map(of, inner)) for inner in self.polynomials))

    def __str__(self) -> str:
        inner = (
            str(terms[0]) if len(terms) == 1 else f"min({', '.join(map(str, terms))})"
            for terms in self.polynomials
        )
        return f"max({', '.join(inner)})"


def normal_form(f: Expression) -> NormalForm:
    r"""Reduce a max-definable expression to :math:`\max_i \min_j \xi_{ij}`.

    Sums and maxima distribute, and so do products of polynomials that are nowhere negative. Hence
    with polynomials :math:`u \ge |\xi|` for all ξ of f, and w likewise for g,

    .. math:: fg = (f + u)(g + w) - u g - w f - u w ,

    and if f is a polynomial p itself, :math:`pg = (p + u) g - u g`. For g = y₊ and
    :math:`u = (p^2 + 1)/2` this is
    :math:`p\, y_+ = \max(\min(py,\, (p + u) y),\; \min(0,\, -uy))`.

    Parameters
    ----------
    f
        An expression with at least one variable.

    Returns
    -------
    NormalForm
        Equal to ``f`` everywhere. Without repetitions, but not the smallest.

    Raises
    ------
    ValueError
        If ``f`` is no expression or has no variable, or an intermediate form has more than 20 000
        polynomials: forms may grow exponentially.
    """
    if not isinstance(f, Expression):
        raise ValueError(f"f is a {type(f).__name__}; it needs to be an expression")
    if f.shape is None:
        raise ValueError("f has no variable; take them from spline.variables(s, d)")
    sp = sympy()
    ring, entries = polynomial_ring(*f.shape)
    number = lambda value: sp.QQ(value.numerator, value.denominator)  # noqa: E731
    lattice = _Lattice(ring)
    result = f.fold(
        lambda i, j: _Element(lattice, (frozenset([entries[i][j]]),)),
        lambda values: lattice.largest([lattice.element(v) for v in values]),
        lambda value: _Element(lattice, (frozenset([ring(number(value))]),)),
    )
    ordered = tuple(tuple(sorted(inner, key=str)) for inner in result.sets)
    return NormalForm(tuple(sorted(ordered, key=str)), f.shape)


class _Lattice:
    """Maxima of minima of polynomials, as tuples of frozensets."""

    def __init__(self, ring):
        self.ring = ring

    def element(self, value) -> _Element:
        return value if isinstance(value, _Element) else _Element(self, (frozenset([value]),))

    def simplified(self, sets) -> tuple:
        self.check(sum(map(len, sets)))
        # A minimum over more polynomials is smaller, and adds nothing to the maximum.
        kept: list[frozenset] = []
        for _, same in groupby(sorted(set(sets), key=len), key=len):
            smaller = len(kept)
            kept += [one for one in same if not any(kept[i] <= one for i in range(smaller))]
        return tuple(kept)

    @staticmethod
    def check(count: int, bound: int = LARGEST) -> None:
        if count > bound:
            raise ValueError(f"the normal form has more than {bound} polynomials on the way")

    def check_pairs(self, sets, others) -> None:
        """Before all pairs are formed; many may be equal."""
        self.check(sum(map(len, sets)) * sum(map(len, others)), 10 * LARGEST)

    def largest(self, elements) -> _Element:
        return _Element(self, self.simplified([s for e in elements for s in e.sets]))

    def smallest(self, elements) -> _Element:
        sets = elements[0].sets
        for other in elements[1:]:
            self.check(len(sets) * len(other.sets), 10 * LARGEST)
            sets = self.simplified([a | b for a in sets for b in other.sets])
        return _Element(self, sets)


class _Element:
    def __init__(self, lattice: _Lattice, sets, factors: tuple | None = None):
        # A product remembers its factors: −fg is smaller as (−f)g than as the negative of fg.
        self.lattice, self.sets, self.factors = lattice, sets, factors

    @property
    def polynomial(self):
        only = len(self.sets) == 1 and len(self.sets[0]) == 1
        return next(iter(self.sets[0])) if only else None

    def __add__(self, other):
        self.lattice.check_pairs(self.sets, other.sets)
        return _Element(
            self.lattice,
            self.lattice.simplified(
                [frozenset(p + q for p in a for q in b) for a in self.sets for b in other.sets]
            ),
        )

    def negative(self) -> _Element:
        # −max min ξ = min max −ξ, and the minimum distributes over the maxima.
        parts = [_Element(self.lattice, tuple(frozenset([-p]) for p in s)) for s in self.sets]
        return self.lattice.smallest(parts)

    def times_non_negative(self, polynomial) -> _Element:
        """Product with a polynomial that is nowhere negative: it distributes."""
        return self.times_all([[polynomial]])

    def times_all(self, sets) -> _Element:
        """Product of two forms whose polynomials are all nowhere negative."""
        self.lattice.check_pairs(self.sets, sets)
        products = [frozenset(p * q for p in a for q in b) for a in self.sets for b in sets]
        return _Element(self.lattice, self.lattice.simplified(products))

    def bound(self):
        """A polynomial that is nowhere below |ξ| for any polynomial ξ of the form."""
        ring = self.lattice.ring
        total = ring(0)
        for p in {p for inner in self.sets for p in inner}:
            total += abs(p.LC) if p.is_ground else (p**2 + 1) / 2
        return ring(total)

    def __mul__(self, other):
        p, q = self.polynomial, other.polynomial
        if p is not None and q is not None:
            return self.lattice.element(p * q)
        if p is None and q is not None:
            self, other, p = other, self, q
        if p is not None and p.is_ground:
            if p.LC >= 0:
                return other.times_non_negative(p)
            if other.factors is not None:
                f, g = other.factors
                return (f.negative() * g).times_non_negative(-p)
            return other.negative().times_non_negative(-p)
        u = self.bound()
        shifted = _Element(self.lattice, tuple(frozenset(x + u for x in a) for a in self.sets))
        if p is not None:
            result = shifted.times_all(other.sets) + other.negative().times_non_negative(u)
            return _Element(self.lattice, result.sets, (self, other))
        w = other.bound()
        product = shifted.times_all([[x + w for x in b] for b in other.sets])
        rest = other.negative().times_non_negative(u) + self.negative().times_non_negative(w)
        result = product + rest + self.lattice.element(-u * w)
        return _Element(self.lattice, result.sets, (self, other))

    def __pow__(self, exponent):
        result = self
        for _ in range(exponent - 1):
            result = result * self
        return result
