r"""Max-definable expressions: what :math:`+`, :math:`\cdot` and :math:`\max` make of variables.

An expression is a function of a matrix ``X`` of ``s`` tokens with ``d`` features. It is kept as a
graph with exact rational coefficients; equal subexpressions are one object, so that a compiler
computes them once. Expressions evaluate in torch and, exactly, in rationals.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

__all__ = ["Expression", "exact_matrix", "maximum", "minimum", "rational", "variables"]

PRINTED = 1000  # subexpressions that are written out
PRINTED_DEPTH = 50


def rational(value: Any, name: str = "value") -> Fraction:
    """The exact rational number that an int, a float or a Fraction stands for.

    Parameters
    ----------
    value
        A finite real number; numpy scalars and tensors of one element count.
    name
        What the error calls it.

    Returns
    -------
    Fraction

    Raises
    ------
    ValueError
        If it is no real number, or not finite.
    """
    if isinstance(value, np.generic) or (
        isinstance(value, (np.ndarray, Tensor)) and math.prod(value.shape) == 1
    ):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (numbers.Rational, float)):
        try:  # sympy's numbers know their numerator and denominator
            return Fraction(int(value.p), int(value.q))
        except (AttributeError, TypeError):
            pass
        raise ValueError(f"{name} is {value!r}; it needs to be a real number")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is {value}; it needs to be finite")
    return Fraction(value)


def whole_number(value: Any, name: str, least: int = 0) -> int:
    """``value`` itself, if it is an integer that is large enough; ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name} is {value!r}; it needs to be a whole number, {least} or more")
    return int(value)


def float_maker(dtype: Any) -> Callable[[Any], float]:
    """From exact numbers to floats, with an error where one is too large for the dtype."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"dtype is {dtype!r}; it needs to be a floating-point dtype of torch")
    largest = torch.finfo(dtype).max

    def convert(value):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if abs(number) > largest:
            exact = Fraction(value)
            size = exact.numerator.bit_length() - exact.denominator.bit_length()
            raise ValueError(f"a coefficient of about 2^{size} is too large for {dtype}")
        return number

    return convert


def exact_matrix(x: Any, s: int, d: int) -> list[list[Fraction]]:
    """The s × d matrix ``x`` as rows of rationals; a number stands for a 1 × 1 matrix."""
    rows = x.tolist() if isinstance(x, (np.ndarray, Tensor)) else x
    if s == d == 1 and not isinstance(rows, Sequence):
        rows = [[rows]]
    elif s == 1 and isinstance(rows, Sequence) and len(rows) == d:
        if not any(isinstance(entry, Sequence) for entry in rows):
            rows = [rows]
    fits = isinstance(rows, Sequence) and len(rows) == s
    if not fits or any(not isinstance(row, Sequence) or len(row) != d for row in rows):
        raise ValueError(f"x is {x!r}; it needs {s} rows of {d} numbers")
    return [[rational(entry, "an entry of x") for entry in row] for row in rows]


class Expression:
    r"""A function of a matrix, built from :func:`variables` with ``+ - *``, integer powers,
    :func:`maximum`, :func:`minimum`, ``abs`` and division by numbers.

    Calling it evaluates it: a floating-point tensor ``(..., s, d)`` gives a tensor ``(...)``, a
    matrix of numbers gives an exact :class:`~fractions.Fraction`.

    Attributes
    ----------
    kind
        ``"variable"``, ``"sum"``, ``"product"`` or ``"maximum"``.
    terms
        Of a sum: pairs (expression, rational coefficient); of a product: pairs (expression,
        exponent); of a maximum: expressions; of a variable: (token, feature).
    constant
        The constant that a sum adds.
    shape
        (s, d) of the matrix of variables; None for a number.

    Raises
    ------
    ValueError
        Where an operation leads out of the max-definable functions: division by an expression,
        powers that are no natural numbers, comparisons, roots, exponentials and the like, numbers
        that are not real and finite.
    """

    __slots__ = ("__weakref__", "_number", "constant", "kind", "shape", "terms")
    __hash__ = object.__hash__  # equal expressions are identical objects
    _all: WeakValueDictionary = WeakValueDictionary()
    _numbers = itertools.count()  # order of creation: terms are sorted the same in every run

    kind: str
    terms: tuple
    constant: Fraction
    shape: tuple[int, int] | None

    def __init__(self) -> None:
        raise ValueError("expressions are made by spline.variables and operators")

    @classmethod
    def _make(cls, kind, terms, shape, constant=Fraction(0)) -> Expression:
        key = (kind, terms, constant, shape)
        found = cls._all.get(key)
        if found is None:
            found = object.__new__(cls)
            found.kind, found.terms, found.constant, found.shape = kind, terms, constant, shape
            found._number = next(cls._numbers)
            cls._all[key] = found
        return found

    # Sums are kept flat, with one coefficient a term.
    @staticmethod
    def _sum(parts: Iterable[tuple[Expression, Fraction]], constant: Fraction) -> Expression:
        total: dict[Expression, Fraction] = {}
        shape = None
        for part, factor in parts:
            shape = _common_shape(shape, part.shape)
            if part.kind == "sum":
                constant += factor * part.constant
                inner = part.terms
            else:
                inner = ((part, Fraction(1)),)
            for term, coefficient in inner:
                total[term] = total.get(term, Fraction(0)) + factor * coefficient
        terms = tuple((term, value) for term, value in total.items() if value)
        if len(terms) == 1 and terms[0][1] == 1 and not constant:
            return terms[0][0]
        return Expression._make("sum", tuple(sorted(terms, key=_order)), shape, constant)

    @staticmethod
    def _product(left: Expression, right: Expression) -> Expression:
        shape = _common_shape(left.shape, right.shape)
        scale = Fraction(1)
        powers: dict[Expression, int] = {}
        for part in (left, right):
            if part.kind == "sum" and not part.terms:
                scale *= part.constant
                continue
            if part.kind == "sum" and len(part.terms) == 1 and not part.constant:
                scale *= part.terms[0][1]
                part = part.terms[0][0]
            for factor, exponent in part.terms if part.kind == "product" else ((part, 1),):
                powers[factor] = powers.get(factor, 0) + exponent
        if not powers or not scale:
            return Expression._make("sum", (), shape, scale)
        terms = tuple(sorted(powers.items(), key=_order))
        if terms[0][1] == 1 and len(terms) == 1:
            result = terms[0][0]
        else:
            result = Expression._make("product", terms, shape)
        return result if scale == 1 else Expression._sum([(result, scale)], Fraction(0))

    @staticmethod
    def of(value: Any) -> Expression:
        """``value`` itself, or the constant expression of a number."""
        if isinstance(value, Expression):
            return value
        return Expression._make("sum", (), None, rational(value, "a constant"))

    def __add__(self, other):
        if isinstance(other, np.ndarray):
            return NotImplemented
        other = Expression.of(other)
        return Expression._sum([(self, Fraction(1)), (other, Fraction(1))], Fraction(0))

    __radd__ = __add__

    def __neg__(self):
        return Expression._sum([(self, Fraction(-1))], Fraction(0))

    def __pos__(self):
        return self

    def __sub__(self, other):
        if isinstance(other, np.ndarray):
            return NotImplemented
        other = Expression.of(other)
        return Expression._sum([(self, Fraction(1)), (other, Fraction(-1))], Fraction(0))

    def __rsub__(self, other):
        return Expression.of(other) - self

    def __mul__(self, other):
        if isinstance(other, np.ndarray):
            return NotImplemented
        return Expression._product(self, Expression.of(other))

    __rmul__ = __mul__

    def __truediv__(self, other):
        if isinstance(other, np.ndarray):
            return NotImplemented
        other = Expression.of(other)
        if other.kind != "sum" or other.terms:
            raise ValueError(f"division by {other}: quotients are not max-definable")
        if not other.constant:
            raise ValueError("division by zero")
        return Expression._sum([(self, 1 / other.constant)], Fraction(0))

    def __rtruediv__(self, other):
        raise ValueError(f"division by {self}: quotients are not max-definable")

    def __pow__(self, exponent):
        if not isinstance(exponent, numbers.Integral) or isinstance(exponent, bool) or exponent < 0:
            raise ValueError(
                f"the power {exponent!r} of {self} is not max-definable; it needs a natural number"
            )
        result, square = Expression.of(1), self
        exponent = int(exponent)
        while exponent:
            if exponent % 2:
                result = result * square
            exponent //= 2
            square = square * square if exponent else square
        return result

    def __rpow__(self, base):
        raise ValueError(f"the power {base!r} ** ({self}) is not max-definable")

    def __abs__(self):
        return maximum(self, -self)

    def _compare(self, other):
        raise ValueError(
            f"a comparison with {self} is not max-definable: it is not continuous;"
            " use spline.maximum or spline.minimum"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _compare

    def _step(self, *_):
        raise ValueError(f"rounding or a remainder of {self} is not max-definable: it jumps")

    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __divmod__ = __rdivmod__ = _step
    __round__ = __trunc__ = __floor__ = __ceil__ = _step

    def _curved(self):
        raise ValueError(
            f"{self} is no number, and its roots, exponentials, sines and the like are not"
            " max-definable"
        )

    # Of math, and of NumPy, whose functions look for a method of their own name.
    __float__ = __int__ = __complex__ = _curved
    sqrt = cbrt = exp = expm1 = exp2 = log = log1p = log2 = log10 = _curved
    sin = cos = tan = arcsin = arccos = arctan = sinh = cosh = tanh = _curved

    def __bool__(self):
        raise ValueError(f"{self} has no truth value: branches on it are not max-definable")

    def __call__(self, x):
        if isinstance(x, Tensor) and x.is_floating_point():
            return self._in_torch(x)
        s, d = self.shape or (1, 1)
        rows = exact_matrix(x, s, d)
        return self.fold(lambda i, j: rows[i][j], lambda values: max(values))

    def _in_torch(self, x: Tensor) -> Tensor:
        if self.shape is not None and tuple(x.shape[-2:]) != self.shape:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; it needs (..., s, d) with {self.shape}"
            )

        def largest(values):
            values = [torch.as_tensor(v, dtype=x.dtype, device=x.device) for v in values]
            return torch.stack(torch.broadcast_tensors(*values)).amax(0)

        result = self.fold(lambda i, j: x[..., i, j], largest, float_maker(x.dtype))
        return result if isinstance(result, Tensor) else x.new_full(x.shape[:-2], result)

    def fold(
        self,
        variable: Callable[[int, int], Any],
        largest: Callable[[list], Any],
        number: Callable[[Fraction], Any] = lambda value: value,
    ) -> Any:
        """Evaluate in any ring with a maximum: of values for variables, numbers and maxima.

        Parameters
        ----------
        variable
            Value of the variable at a token and a feature.
        largest
            The maximum of a list of values.
        number
            Value of a number.
        """
        done: dict[Expression, Any] = {}
        stack = [self]
        while stack:  # no recursion: chains may be long
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            if node.kind == "variable":
                done[node] = variable(*node.terms)
                continue
            children = node.terms if node.kind == "maximum" else [term for term, _ in node.terms]
            missing = [child for child in children if child not in done]
            if missing:
                stack.extend(missing)
                continue
            if node.kind == "sum":
                value = number(node.constant)
                for term, coefficient in node.terms:
                    value = value + number(coefficient) * done[term]
            elif node.kind == "product":
                value = None
                for term, exponent in node.terms:
                    power = done[term] ** exponent
                    value = power if value is None else value * power
            else:
                value = largest([done[child] for child in children])
            done[node] = value
        return done[self]

    def degree(self) -> int:
        """A bound of the spline's degree by rule: products add, sums and maxima take the largest."""
        done: dict[Expression, int] = {}
        stack = [self]
        while stack:
            node = stack[-1]
            if node.kind == "variable":
                done[node] = 1
            if node in done:
                stack.pop()
                continue
            children = node.terms if node.kind == "maximum" else [term for term, _ in node.terms]
            missing = [child for child in children if child not in done]
            if missing:
                stack.extend(missing)
            elif node.kind == "product":
                done[node] = sum(done[term] * exponent for term, exponent in node.terms)
            else:
                done[node] = max((done[child] for child in children), default=0)
        return done[self]

    def __repr__(self) -> str:
        """Written out, with … where it is long: shared subexpressions can make it exponential."""
        return self._written([PRINTED], 0)

    def _written(self, left: list[int], depth: int) -> str:
        left[0] -= 1
        if left[0] < 0 or depth > PRINTED_DEPTH:
            return "…"
        if self.kind == "variable":
            return "x[{}, {}]".format(*self.terms)
        parts = []
        for entry in self.terms:
            if left[0] <= 0:
                parts.append("…")
                break
            term, number = (entry, 1) if self.kind == "maximum" else entry
            text = term._written(left, depth + 1)
            if self.kind == "product":
                text = f"({text})" if term.kind == "sum" else text
                text += f"^{number}" if number > 1 else ""
            elif number != 1:
                text = f"{number}·{text}"
            parts.append(text)
        if self.kind == "maximum":
            return f"max({', '.join(parts)})"
        if self.kind == "product":
            return "·".join(parts)
        return " + ".join(parts + [str(self.constant)] * (bool(self.constant) or not parts))


def _order(pair):
    return pair[0]._number


def _common_shape(first, second):
    if first is not None and second is not None and first != second:
        raise ValueError(
            f"an expression in variables({first[0]}, {first[1]}) meets one in"
            f" variables({second[0]}, {second[1]}); they need the same matrix of variables"
        )
    return first if second is None else second


def variables(s: int, d: int) -> np.ndarray:
    """The matrix of variables: ``X[i, j]`` is feature j of token i.

    Parameters
    ----------
    s, d
        Tokens and features, 1 or more.

    Returns
    -------
    numpy.ndarray
        Object array ``(s, d)`` of :class:`Expression`; numpy's ``+ - * @`` and ``sum`` work on it.

    Raises
    ------
    ValueError
        If a size is no positive whole number.
    """
    s, d = whole_number(s, "s", 1), whole_number(d, "d", 1)
    matrix = np.empty((s, d), dtype=object)
    for i in range(s):
        for j in range(d):
            matrix[i, j] = Expression._make("variable", (i, j), (s, d))
    return matrix


def maximum(*arguments: Any) -> Any:
    """The largest of its arguments: expressions, numbers, or arrays of them (entrywise).

    Parameters
    ----------
    *arguments
        One or more; arrays are broadcast.

    Returns
    -------
    Expression or numpy.ndarray

    Raises
    ------
    ValueError
        Without arguments, or with something that is neither an expression nor a number.
    """
    if not arguments:
        raise ValueError("maximum has no argument; it needs one or more")
    if any(isinstance(argument, np.ndarray) for argument in arguments):
        arrays = np.broadcast_arrays(*(np.asarray(a, dtype=object) for a in arguments))
        result = np.empty(arrays[0].shape, dtype=object)
        for index in np.ndindex(result.shape):
            result[index] = maximum(*(array[index] for array in arrays))
        return result
    found: dict[Expression, None] = {}
    constant = None
    shape = None
    for argument in map(Expression.of, arguments):
        shape = _common_shape(shape, argument.shape)
        for part in argument.terms if argument.kind == "maximum" else (argument,):
            if part.kind == "sum" and not part.terms:
                constant = part.constant if constant is None else max(constant, part.constant)
            else:
                found[part] = None
    if constant is not None:
        found[Expression.of(constant)] = None
    if len(found) == 1:
        # A constant stays a function of the variables that it was made of.
        return (
            next(iter(found)) if constant is None else Expression._make("sum", (), shape, constant)
        )
    return Expression._make("maximum", tuple(sorted(found, key=lambda part: part._number)), shape)


def minimum(*arguments: Any) -> Any:
    r"""The smallest of its arguments, :math:`\min(a, b) = -\max(-a, -b)`.

    Parameters, result and errors as for :func:`maximum`.
    """
    if not arguments:
        raise ValueError("minimum has no argument; it needs one or more")
    negated = [-(a if isinstance(a, np.ndarray) else Expression.of(a)) for a in arguments]
    return -maximum(*negated)
