r"""Cone-constrained spectral norms of all cells of an arrangement, by their faces.

For a cell with cone :math:`C = \{u : Ku \ge 0\}` the polar of the quasi-nuclear norm is

.. math:: \|M\|^\circ_C = \max\{\|M^\top u\| : u \in C,\ \|u\| \le 1\},

the square root of the largest value of a convex quadratic form over a polyhedral cone.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from .problem import Problem

__all__ = ["BlockFaces", "ConeFaces"]

# Hyperplanes closer than this in direction are one, as in `arrangements`.
_SAME_DIRECTION = 1e-9
# How far outside its cone, in units of the rows and of u, a maximiser may lie by rounding.
_FEASIBLE = 1e-7
# Singular values closer than this, in units of the block's norm, may have turned their vectors.
_CLUSTER = 1e-8
# Rows of unit length are dependent if their least singular value is below this.
_DEPENDENT = 1e-10
# Between hyperplanes closer than this, cells are so thin that some may not be listed.
_THIN = 1e-6
# Faces that are looked at together.
_PORTION = 100_000


class ConeFaces:
    r"""Branch and bound over the faces of the cells of the arrangement of the rows of X.

    A maximiser :math:`u^\star` lies in the relative interior of one face.  In the span of that
    face, :math:`\{u : K_Su = 0\}` with orthonormal basis B, it is a local maximum of
    :math:`u^\top MM^\top u` on the sphere, and a quadratic form has no local maxima there but
    the eigenvectors of the largest eigenvalue of :math:`B^\top MM^\top B`.  Its root is an upper bound for the face
    and all smaller ones.  So: if its eigenvector lies in the cone, the face is settled; if the bound is
    below what has been attained, or below a floor, it is left; else its facets are looked at, down to the rays.

    If the two largest values are too close to trust the vector, the facets are looked at
    as well: the cone is pointed, so that a path in the plane of the two vectors must leave it, and on
    that path :math:`\|M^\top u\|` is at least the second singular value of :math:`B^\top M`.  The difference of
    the two is added to the cell's bound, once for each dimension.

    Parameters
    ----------
    rows : (N, p) array
        Effective data matrix.
    masks : (P, N) bool array
        *All* patterns of its cells, as ``arrangements`` lists them.
    most : int
        Faces of one dimension that a call of :meth:`polars` looks at.  Those with the largest
        bounds come first; the others keep their bounds, and ``complete`` is then False.
    """

    def __init__(
        self,
        rows: Float[np.ndarray, "N p"],
        masks: Bool[np.ndarray, "P N"],
        most: int = 1_000_000,
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
        self.positive = np.asarray(masks)[:, kept].astype(bool)
        facets = _facets(self.rows, self.positive)
        self.facet_count = np.array([len(rows) for rows in facets], dtype=int)
        self.facets = np.zeros((len(facets), self.facet_count.max(initial=0)), dtype=int)
        for cell, hyperplanes in enumerate(facets):
            self.facets[cell, : len(hyperplanes)] = hyperplanes
        self.most, self.complete = most, True

    def polars(
        self, blocks: Float[np.ndarray, "P p q"], floor: float = 0.0
    ) -> tuple[Float[np.ndarray, "P"], Float[np.ndarray, "P p"]]:
        r"""Upper bounds on :math:`\|M_j\|^\circ_{C_j}` and unit vectors of the cones.

        The bound of a cell is attained by its vector, up to rounding, if it is above ``floor``
        and if ``complete`` is True after the call.  A cell with nothing above the floor has a
        bound of at most the floor, up to rounding, its norm where that is less, and vector zero.
        Columns of the blocks lie in the row space of the data, as those of :math:`A^*(R)` do.
        """
        inner = np.einsum("pr,jpq->jrq", self.basis, blocks)
        size = np.linalg.norm(blocks, axis=(1, 2))
        outside = np.linalg.norm(blocks - np.einsum("pr,jrq->jpq", self.basis, inner), axis=(1, 2))
        if (outside > 1e-6 * size).any():
            raise ValueError(
                "columns of the blocks must lie in the row space of the data, as those of A*(R) do"
            )
        if self.rank == 0:
            return np.zeros(len(blocks)), np.zeros(blocks.shape[:2])
        # MᵀM and its products are never formed: squares would lose the small singular values.
        left, singular, _ = np.linalg.svd(inner, full_matrices=False)
        whole = singular[:, 0]
        search = _Search(self, left * singular[:, None, :], whole, floor)
        nodes = np.flatnonzero(whole > floor)
        chosen = np.zeros((len(nodes), 0), dtype=int)
        bounds = whole[nodes]
        search.left[whole <= floor] = whole[whole <= floor]
        self.complete = True
        for _ in range(self.rank):
            if len(nodes) > self.most:
                self.complete = False
                order = np.argsort(-bounds, kind="stable")
                rest = order[self.most :]
                np.maximum.at(search.left, nodes[rest], bounds[rest])
                nodes, chosen = nodes[order[: self.most]], chosen[order[: self.most]]
            found = [
                search.look(nodes[i : i + _PORTION], chosen[i : i + _PORTION])
                for i in range(0, len(nodes), _PORTION)
            ]
            if not found:
                break
            nodes, chosen, bounds, slack = (
                np.concatenate(part) for part in zip(*found, strict=True)
            )
            level = np.zeros(len(blocks))
            np.maximum.at(level, nodes, slack)
            search.slack += level
            # What was attained meanwhile settles some of them.
            open_nodes = bounds > search.attained[nodes]
            nodes, chosen, bounds = self._smaller(
                nodes[open_nodes], chosen[open_nodes], bounds[open_nodes]
            )
        rounding = 8 * max(blocks.shape[1:]) * np.finfo(float).eps
        best = np.maximum(search.left, search.attained) + search.slack + rounding * whole
        best = np.minimum(best, whole * (1 + rounding))  # the norm is a bound, too
        return best, search.direction @ self.basis.T

    def _smaller(
        self, nodes: np.ndarray, chosen: np.ndarray, bounds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The faces with one more facet chosen, behind the last one: each set comes once."""
        last = chosen[:, -1] if chosen.shape[1] else np.full(len(nodes), -1)
        count = self.facet_count[nodes] - 1 - last
        parent = np.repeat(np.arange(len(nodes)), count)
        behind = np.arange(len(parent)) - np.repeat(np.cumsum(count) - count, count)
        added = last[parent] + 1 + behind
        return nodes[parent], np.column_stack([chosen[parent], added]), bounds[parent]


class _Search:
    """What one call of ``polars`` knows of each cell."""

    def __init__(self, faces: ConeFaces, blocks: np.ndarray, whole: np.ndarray, floor: float):
        self.faces, self.blocks, self.whole, self.floor = faces, blocks, whole, floor
        self.attained = np.zeros(len(blocks))
        self.direction = np.zeros((len(blocks), faces.rank))
        self.left = np.zeros(len(blocks))  # largest bound of a face that is not looked into
        self.slack = np.zeros(len(blocks))  # for singular values that cluster

    def look(self, nodes: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, ...]:
        """Settle faces or return them, with their bounds and slacks, to be divided."""
        faces = self.faces
        hyperplanes = faces.facets[nodes[:, None], chosen]
        spans, fine = _spans(faces.rows, hyperplanes)
        nodes, chosen, spans = nodes[fine], chosen[fine], spans[fine]
        vectors, values, _ = np.linalg.svd(
            np.swapaxes(spans, 1, 2) @ self.blocks[nodes], full_matrices=False
        )
        bounds = values[:, 0]
        # A single column has one singular value; the others of its span are zero.
        if spans.shape[2] == 1:
            second = np.full(len(nodes), -np.inf)
        else:
            second = values[:, 1] if values.shape[1] > 1 else np.zeros(len(nodes))
        low = bounds <= self.floor
        np.maximum.at(self.left, nodes[low], bounds[low])
        above = ~low & (bounds > self.attained[nodes])
        nodes, chosen, bounds, second = nodes[above], chosen[above], bounds[above], second[above]
        u = (spans[above] @ vectors[above][:, :, :1])[:, :, 0]
        inner = u @ faces.rows.T
        inner = np.where(faces.positive[nodes], inner, -inner)
        up = inner.min(axis=1, initial=np.inf) >= -_FEASIBLE
        down = inner.max(axis=1, initial=-np.inf) <= _FEASIBLE
        inside = up | down
        _raise(
            self.attained,
            self.direction,
            nodes[inside],
            bounds[inside],
            np.where(up[:, None], u, -u)[inside],
        )
        nodes, chosen, bounds, second = (x[~inside] for x in (nodes, chosen, bounds, second))
        gap = bounds - second
        slack = np.where(gap <= _CLUSTER * self.whole[nodes], gap, 0.0)
        return nodes, chosen, bounds, slack


def _spans(
    rows: Float[np.ndarray, "N r"], hyperplanes: np.ndarray
) -> tuple[Float[np.ndarray, "F r m"], Bool[np.ndarray, "F"]]:
    """Orthonormal bases of the kernels of chosen rows, and which choices are independent.

    The span of a face is the kernel of independent rows, each part of which is independent, too:
    dependent choices need no look.
    """
    r, k = rows.shape[1], hyperplanes.shape[1]
    if k == 0:
        return np.broadcast_to(np.eye(r), (len(hyperplanes), r, r)), np.ones(
            len(hyperplanes), dtype=bool
        )
    different, which = np.unique(hyperplanes, axis=0, return_inverse=True)
    _, singular, right = np.linalg.svd(rows[different], full_matrices=True)
    spans = np.swapaxes(right[:, k:], 1, 2)
    which = which.reshape(-1)
    return spans[which], (singular[:, -1] > _DEPENDENT)[which]


class BlockFaces:
    """Faces of the cells of all of a ReLU problem's blocks, each group's arrangement for itself."""

    def __init__(self, problem: Problem):
        masks = problem.masks.cpu().numpy() > 0
        self.groups = [
            ConeFaces(problem.effective_matrix(g), masks[g :: problem.groups])
            for g in range(problem.groups)
        ]

    @property
    def complete(self) -> bool:
        """Whether the last search left no face."""
        return all(faces.complete for faces in self.groups)

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
    """For each cell one row of every hyperplane that bounds it, and perhaps of others.

    A hyperplane bounds a cell exactly if another cell has the same pattern but for its rows.  If
    that cell is too thin to be listed this cannot be seen, so that hyperplanes that are
    almost equal to another count as facets of every cell, and all hyperplanes where fewer are
    found than a pointed cone has: too many do no harm.
    """
    first = _hyperplanes(rows)
    packed = np.packbits(on, axis=1)
    known = {pattern.tobytes() for pattern in packed}
    bounded = np.zeros((len(on), len(rows)), dtype=bool)
    for i in np.unique(first):
        flip = np.packbits(first == i)
        bounded[:, i] = [(pattern ^ flip).tobytes() in known for pattern in packed]
    different = np.unique(first)
    for i in different:
        apart = np.minimum(
            np.linalg.norm(rows[different] - rows[i], axis=1),
            np.linalg.norm(rows[different] + rows[i], axis=1),
        )
        if (apart <= _THIN).sum() > 1:
            bounded[:, i] = True
    few = bounded.sum(axis=1) < rows.shape[1]
    bounded[np.ix_(few, different)] = True
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
