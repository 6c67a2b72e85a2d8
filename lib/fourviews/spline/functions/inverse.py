"""The inverse of a matrix of rationals."""

from __future__ import annotations

from fractions import Fraction


def inverse(rows: list[list[Fraction]]) -> list[list[Fraction]]:
    """Inverse matrix, exactly; ValueError if there is none.

    Parameters
    ----------
    rows
        Of a square matrix.
    """
    n = len(rows)
    work = [[*row, *(Fraction(i == j) for j in range(n))] for i, row in enumerate(rows)]
    for column in range(n):
        pivot = max(range(column, n), key=lambda i: abs(work[i][column]))
        if not work[pivot][column]:
            raise ValueError("the matrix is singular")
        work[column], work[pivot] = work[pivot], work[column]
        lead = work[column][column]
        work[column] = [x / lead for x in work[column]]
        for i in range(n):
            if i != column and work[i][column]:
                factor = work[i][column]
                work[i] = [x - factor * y for x, y in zip(work[i], work[column], strict=True)]
    return [row[n:] for row in work]
