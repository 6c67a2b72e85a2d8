"""Checks of the lesson «Attention is cubic»."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Generator

from .checking import exercise, require, run
from .draws import between


@exercise("ex-cubic-differences")
def degree_of_values(generator: Generator, polynomial_degree: Callable) -> None:
    """Random polynomials that are written as products of linear factors."""
    for trial in range(6):
        extra = 2 + trial % 3
        degree = between(generator, 0, 6)
        roots = [Fraction(between(generator, -30, 30), 7) for _ in range(degree)]
        values = []
        for place in range(degree + extra):
            value = Fraction(3, 5)
            for root in roots:
                value *= Fraction(place, 4) - root
            values.append(value)
        got = run(polynomial_degree, values)
        require(
            got is not None,
            f"polynomial_degree returns None for {len(values)} values that show a degree; "
            "is a `return` missing, or one row more than needed asked for?",
        )
        require(
            isinstance(got, int) and not isinstance(got, bool),
            "polynomial_degree must return an int, or None",
        )
        require(
            got == degree,
            f"{len(values)} values of a product of {degree} linear factors: the degree comes out "
            "wrong",
        )
    bumps = [Fraction(between(generator, 1, 9)) for _ in range(5)]
    bumps[2] += 100
    require(
        run(polynomial_degree, bumps) is None,
        "five arbitrary values lie on a polynomial of degree four, whatever they are: without a "
        "row that vanishes the answer is None",
    )


def _product(p: list[int], q: list[int], prime: int) -> list[int]:
    out = [0] * (len(p) + len(q) - 1)
    for i, a in enumerate(p):
        for j, b in enumerate(q):
            out[i + j] = (out[i + j] + a * b) % prime
    return out


@exercise("ex-cubic-order")
def degree_of_swapped_blocks(generator: Generator, swapped_degree: Callable) -> None:
    """Multiplies queries, keys and values out, as polynomials along a line."""
    prime = 2**31 - 1

    def affine(p: list[int]) -> list[int]:
        slope = between(generator, 2, 99)
        out = [slope * a % prime for a in p]
        out[0] = (out[0] + between(generator, 1, 99)) % prime
        return out

    def attend(p: list[int], z: list[int]) -> list[int]:
        # On a class where the score is positive.
        return _product(_product(affine(p), affine(z), prime), affine(z), prime)

    sizes = [(s, t) for s in range(3) for t in range(3) if s + t < 4]
    for place in torch.randperm(len(sizes), generator=generator).tolist():
        s, t = sizes[place]
        memory = tokens = [1] * 2
        for _ in range(s):
            memory = attend(memory, memory)
        for _ in range(t):
            tokens = attend(tokens, memory)
            tokens = attend(tokens, tokens)
        got = run(swapped_degree, s, t)
        require(
            isinstance(got, int) and not isinstance(got, bool),
            "swapped_degree must return an int",
        )
        require(
            got == len(tokens) - 1,
            f"s = {s}, t = {t}: the polynomial along a line has another degree. First attention to "
            "the memory, then self-attention of the result",
        )


def rows_of_numbers(rows: object, name: str) -> list[list]:
    require(
        isinstance(rows, list | tuple)
        and len(rows) > 0
        and all(isinstance(row, list | tuple) and len(row) > 0 for row in rows),
        f"{name} must return a list of lists, none of them empty",
    )
    return [list(row) for row in rows]  # type: ignore[attr-defined]


def check_polynomials(form: Callable, name: str, *, most: int) -> None:
    """The lists of lists that ``form(x, y)`` returns hold polynomials, ``most`` at most."""
    from .. import spline

    x, y = spline.variables(1, 2)[0]
    symbolic = rows_of_numbers(form(x, y), name)
    for row in symbolic:
        for entry in row:
            try:
                spline.SignPartition([spline.Expression.of(entry) + 0 * x])
            except ValueError as error:
                require("maxima" not in str(error), "an entry is no polynomial: it has a maximum")
                raise
    count = sum(map(len, symbolic))
    words = {3: "three", 6: "six"}
    require(count <= most, f"the form has {count} polynomials; {words.get(most, most)} suffice")


@exercise("ex-cubic-normal")
def maximum_of_minima(generator: Generator, normal_form_of: Callable) -> None:
    """The values at random rational points, in all quadrants; only polynomials."""
    check_polynomials(normal_form_of, "normal_form_of", most=6)
    for _ in range(80):
        a = Fraction(between(generator, -60, 60), 8)
        b = Fraction(between(generator, -60, 60), 8)
        value = max(
            min(row) for row in rows_of_numbers(run(normal_form_of, a, b), "normal_form_of")
        )
        where = "above" if b > 0 else "below"
        require(
            value == a * abs(b),
            f"the maximum of the minima differs from x|y| at a point {where} the x axis",
        )
