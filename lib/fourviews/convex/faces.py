r"""Cone-constrained spectral norms of all cells of an arrangement, exactly, by their faces.

For a cell with cone :math:`C = \{u : Ku \ge 0\}` the polar of the quasi-nuclear norm is

.. math:: \|M\|^\circ_C = \max\{\|M^\top u\| : u \in C,\ \|u\| \le 1\},

the square root of the largest value of a convex quadratic form over a polyhedral cone.
"""

from __future__ import annotations

import itertools

import numpy as np
from jaxtyping import Bool, Float

from .problem import Problem

__all__ = ["BlockFaces", "ConeFaces", "TooManyFaces"]

# Hyperplanes closer than this in direction are one, as in `arrangements`.
_SAME_DIRECTION = 1e-9
# How far outside its cone, in units of the rows and of u, a maximiser may lie by rounding.
_FEASIBLE = 1e-7
# Eigenvalues closer than this, relative to the largest, may have turned their vectors.
_CLUSTER = 1e-6


class TooManyFaces(ValueError):
    """An arrangement has more candidates for faces than can be gone through."""


class ConeFaces:
    r"""Faces of all cells of the arrangement of the rows of X.

    A maximiser :math:`u^\star` lies in the relative interior of one face.  In the span of that
    face, :math:`\{u : K_Su = 0\}` with orthonormal basis B, it is a local maximum of
    :math:`u^\top MM^\top u` on the sphere, so it is an eigenvector of
    :math:`B^\top MM^\top B`.  So the polar is the largest eigenvalue, over all faces, that has a feasible
    eigenvector.  (If its eigenspace has more dimensions, moving inside it keeps the value and
    must leave the face, because a cone in the row space holds no line: a smaller face attains it as
    well.)  A cell of an arrangement in general position has :math:`2(r-1)` facets on
    average or fewer, so for rank r up to about five this is a few dozen eigenproblems a cell.

    Parameters
    ----------
    rows : (N, p) array
        Effective data matrix.
    masks : (P, N) bool array
        *All* patterns of its cells, as ``arrangements`` lists them.

    Raises
    ------
    TooManyFaces
        If the cells have more than ``most`` candidates for faces.
    """

    def __init__(
        self,
        rows: Float[np.ndarray, "N p"],
        masks: Bool[np.ndarray, "P N"],
        most: int = 3_000_000,
    ):
        rows = np.asarray(rows, dtype=np.float64)
        lengths = np.linalg.norm(rows, axis=1)
        kept = lengths > 0
        unit = rows[kept] / lengths[kept, None]
        # In the row space cones are pointed; what is orthogonal to it changes nothing.
        _, singular, right = np.linalg.svd(unit, full_matrices=False)
        self.rank = int((singular > singular.max(initial=0.0) * 1e-12).sum())
        self.basis = right[: self.rank].T
        self.rows = unit @ self.basis
        self.signs = np.where(np.asarray(masks)[:, kept], 1.0, -1.0)
        self._faces(_facets(self.rows, self.signs > 0), most)

    def _faces(self, facets: list[np.ndarray], most: int) -> None:
        """Bases of all candidate spans and, for each codimension, pairs (cell, span)."""
        self.spans: list[np.ndarray] = []
        self.pairs: list[np.ndarray] = []
        total = 0
        for codimension in range(self.rank):
            numbers: dict[tuple[int, ...], int] = {}
            pairs: list[tuple[int, int]] = []
            for cell, hyperplanes in enumerate(facets):
                for chosen in itertools.combinations(hyperplanes.tolist(), codimension):
                    pairs.append((cell, numbers.setdefault(chosen, len(numbers))))
                if total + len(pairs) > most:
                    raise TooManyFaces(f"the cells have more than {most:,} candidates for faces")
            total += len(pairs)
            normals = self.rows[np.array(list(numbers), dtype=int).reshape(len(numbers), -1)]
            if codimension == 0:
                spans = np.eye(self.rank)[None]
            else:
                # Dependent rows leave part of their kernel, in which the candidates are as good
                # as any; the whole of it belongs to a smaller choice.
                spans = np.linalg.svd(normals, full_matrices=True)[2][:, codimension:]
                spans = np.swapaxes(spans, 1, 2)
            self.spans.append(spans)
            self.pairs.append(np.array(pairs, dtype=int).reshape(-1, 2))

    def polars(
        self, blocks: Float[np.ndarray, "P p q"], floor: float = 0.0
    ) -> tuple[Float[np.ndarray, "P"], Float[np.ndarray, "P p"]]:
        r"""Upper bounds on :math:`\|M_j\|^\circ_{C_j}`, equal up to rounding, and unit maximisers.

        Cells whose spectral norm, an upper bound, is at most ``floor`` keep that norm, with
        direction zero.  So do cells where eigenvalues cluster and no vector can be trusted.
        """
        blocks = np.einsum("pr,jpq->jrq", self.basis, blocks)
        forms = blocks @ np.swapaxes(blocks, 1, 2)
        # The norm of a computed form is known up to a few units of its last place.
        whole = np.linalg.eigvalsh(forms)[:, -1].clip(0) if self.rank else np.zeros(len(blocks))
        open_cells = whole > floor**2
        best = np.where(open_cells, 0.0, whole)
        attained = np.zeros(len(blocks))
        direction = np.zeros((len(blocks), self.rank))
        for spans, pairs in zip(self.spans, self.pairs, strict=True):
            pairs = pairs[open_cells[pairs[:, 0]]]
            if not len(pairs):
                continue
            cells, basis = pairs[:, 0], spans[pairs[:, 1]]
            values, vectors = np.linalg.eigh(np.swapaxes(basis, 1, 2) @ forms[cells] @ basis)
            gaps = np.abs(np.diff(values, axis=1)) <= _CLUSTER * whole[cells][:, None]
            clustered = np.zeros(values.shape, dtype=bool)
            clustered[:, 1:] |= gaps
            clustered[:, :-1] |= gaps
            vectors = basis @ vectors
            for k in range(values.shape[1]):
                value = values[:, k]
                candidate = np.flatnonzero(value > np.minimum(best, whole)[cells])
                if not len(candidate):
                    continue
                u = vectors[candidate, :, k]
                inner = (u @ self.rows.T) * self.signs[cells[candidate]]
                for side in (1.0, -1.0):
                    feasible = (side * inner).min(axis=1, initial=np.inf) >= -_FEASIBLE
                    _raise(
                        attained,
                        direction,
                        cells[candidate[feasible]],
                        value[candidate[feasible]],
                        side * u[feasible],
                    )
                # What cannot be decided counts for the bound, never as a direction.
                sure = candidate[clustered[candidate, k]]
                np.maximum.at(best, cells[sure], value[sure])
            np.maximum(best, attained, out=best)
        slack = 1.0 + 8 * max(blocks.shape[1:], default=1) * np.finfo(float).eps
        return np.sqrt(best.clip(0)) * slack, direction @ self.basis.T


class BlockFaces:
    """Faces of the cells of all of a ReLU problem's blocks, each group's arrangement for itself."""

    def __init__(self, problem: Problem):
        masks = problem.masks.cpu().numpy() > 0
        self.groups = [
            ConeFaces(problem.effective_matrix(g), masks[g :: problem.groups])
            for g in range(problem.groups)
        ]

    def polars(
        self, blocks: Float[np.ndarray, "G p q"], floor: float = 0.0
    ) -> tuple[Float[np.ndarray, "G"], Float[np.ndarray, "G p"]]:
        """As :meth:`ConeFaces.polars`, over the blocks in the problem's order."""
        polars, directions = np.zeros(len(blocks)), np.zeros(blocks.shape[:2])
        for g, faces in enumerate(self.groups):
            part = slice(g, None, len(self.groups))
            polars[part], directions[part] = faces.polars(blocks[part], floor)
        return polars, directions


def _raise(attained, direction, cells, values, vectors) -> None:
    """Keep, for each cell, the largest value so far and its vector."""
    order = np.argsort(values)  # the last assignment to a cell is its largest
    cells, values, vectors = cells[order], values[order], vectors[order]
    better = values > attained[cells]
    attained[cells[better]] = values[better]
    direction[cells[better]] = vectors[better]


def _facets(rows: Float[np.ndarray, "N r"], on: Bool[np.ndarray, "P N"]) -> list[np.ndarray]:
    """For each cell one row of every hyperplane that bounds it.

    A hyperplane bounds a cell exactly if another cell has the same pattern but for its rows.
    """
    first = _hyperplanes(rows)
    packed = np.packbits(on, axis=1)
    known = {pattern.tobytes() for pattern in packed}
    bounded = np.zeros((len(on), len(rows)), dtype=bool)
    for i in np.unique(first):
        flip = np.packbits(first == i)
        bounded[:, i] = [(pattern ^ flip).tobytes() in known for pattern in packed]
    return [np.flatnonzero(row) for row in bounded]


def _hyperplanes(rows: Float[np.ndarray, "N r"]) -> np.ndarray:
    """Number of the first row on the same hyperplane, for each row of unit length."""
    first = np.arange(len(rows))
    for i in range(len(rows)):
        if first[i] == i:
            apart = np.minimum(
                np.linalg.norm(rows - rows[i], axis=1), np.linalg.norm(rows + rows[i], axis=1)
            )
            first[(apart <= _SAME_DIRECTION) & (first == np.arange(len(rows)))] = i
    return first
