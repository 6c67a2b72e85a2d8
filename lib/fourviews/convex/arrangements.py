r"""Activation patterns of a ReLU layer: the cells of a central hyperplane arrangement.

A neuron with weight ``u`` is on at row ``x_i`` of the data when ``x_i · u >= 0``.  The
vectors with one and the same pattern form a cone; cones with interior are the cells of the
arrangement of the hyperplanes ``{u : x_i · u = 0}``.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["arrangement_bound", "arrangements"]

# Directions closer than this (Euclidean distance of unit normals) are one hyperplane.  Rounding
# in the recursion below stays orders of magnitude smaller for rows of moderate conditioning.
_SAME_DIRECTION = 1e-9


def arrangement_bound(n_rows: int, rank: int, kind: str = "cover") -> float | int:
    r"""Upper bound on the number of activation patterns of ``n_rows`` rows of rank ``rank``.

    ``kind="cover"`` is the exact number of cells of a central arrangement of
    :math:`N` hyperplanes in general position in :math:`\mathbb R^r`,

    .. math:: 2 \sum_{k=0}^{r-1} \binom{N-1}{k},

    and an upper bound for every other one (Winder 1966, Cover 1965).
    ``kind="paper"`` is :math:`2r\,(e(N-1)/r)^r` (Sahiner et al. 2022, after (3)), which is
    a bound for :math:`N \ge 2` only: at :math:`N = 1` it is 0, where there are 2 patterns.

    Parameters
    ----------
    n_rows : int
        Number N of rows, at least 0.
    rank : int
        Rank r of the data matrix, 0 to ``n_rows``.
    kind : {"cover", "paper"}
        Which bound.

    Returns
    -------
    int for ``"cover"``, float for ``"paper"``.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    if not (isinstance(n_rows, (int, np.integer)) and n_rows >= 0):
        raise ValueError(f"n_rows must be an integer >= 0, got {n_rows!r}")
    if not (isinstance(rank, (int, np.integer)) and 0 <= rank <= n_rows):
        raise ValueError(f"rank must be an integer between 0 and n_rows = {n_rows}, got {rank!r}")
    n, r = int(n_rows), int(rank)
    if kind == "cover":
        return 2 * sum(math.comb(n - 1, k) for k in range(r)) if r else 1
    if kind == "paper":
        return 2.0 * r * (math.e * (n - 1) / r) ** r if r else 0.0
    raise ValueError(f'kind must be "cover" or "paper", got {kind!r}')


def arrangements(
    X: Float[Tensor, "*rows d"] | np.ndarray,
    *,
    n_samples: int | None = None,
    seed: int = 0,
    limit: int = 100_000,
    return_gates: bool = False,
) -> Bool[Tensor, "P rows"] | tuple[Bool[Tensor, "P rows"], Float[Tensor, "P d"]]:
    r"""Activation patterns :math:`\mathbb 1\{Xu \ge 0\}` of the cells with interior.

    Patterns that occur only on a boundary (some :math:`x_i \cdot u = 0` with
    :math:`x_i \ne 0`) are not listed: their cone lies in the closure of a listed one, so no
    ReLU neuron is lost.  A zero row counts as on.  Rows on one line share their hyperplane.
    Directions that agree to 1e-9 are one, so that rounding opens no cells in degenerate data;
    cells thinner than that are not listed.

    Without ``n_samples`` the list is complete.  Hyperplanes are added one by one: a cell is
    cut by the new hyperplane H exactly if its pattern is a cell of the arrangement that the
    others induce on H, one dimension lower (deletion and restriction, Zaslavsky 1975).  Each
    cell carries a witness, and the final patterns are checked against their witnesses.

    Parameters
    ----------
    X : (rows, d) or (n, s, d) float array
        Data; tokens are flattened to rows (sample-major).
    n_samples : int, optional
        Draw this many Gaussian directions instead and return the distinct patterns found.
    seed : int
        Seed of the draw.
    limit : int
        Largest number of cells to enumerate.
    return_gates : bool
        Also return one interior vector ``u`` per pattern, (P, d).

    Returns
    -------
    bool tensor (P, rows), without repetition, in a fixed order; with ``return_gates`` the pair
    (patterns, gates), gates in the dtype and on the device of ``X``.

    Raises
    ------
    ValueError
        For data that is empty, not finite or not floating point, for ``n_samples < 1`` and when the number of
        cells may exceed ``limit`` (the message gives Cover's count).
    ArithmeticError
        If the rows are so nearly dependent that float64 cannot separate the cells.

    References
    ----------
    Sahiner et al. (2022), (3); Cover (1965); Zaslavsky (1975).
    """
    data = torch.as_tensor(X)
    if data.ndim < 2 or not data.is_floating_point() or data.numel() == 0:
        raise ValueError(
            "X must be a non-empty floating-point array of shape (rows, d) or (n, s, d), "
            f"got shape {tuple(data.shape)}, dtype {data.dtype}"
        )
    if not torch.isfinite(data).all():
        raise ValueError("X must be finite, got NaN or inf")
    rows = data.reshape(-1, data.shape[-1]).detach().cpu().double().numpy()
    if n_samples is None:
        patterns, gates = _enumerate(rows, float(torch.finfo(data.dtype).eps), limit)
    else:
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {n_samples}")
        draws = np.random.default_rng(seed).standard_normal((n_samples, rows.shape[1]))
        patterns, first = np.unique(draws @ rows.T >= 0, axis=0, return_index=True)
        gates = draws[first]
    out = torch.from_numpy(patterns).to(data.device)
    if not return_gates:
        return out
    return out, torch.from_numpy(gates).to(data.device, data.dtype)


def _enumerate(rows: np.ndarray, eps: float, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """All cells of the rows' arrangement: patterns (P, rows) and witnesses (P, d)."""
    n, d = rows.shape
    # Scale first: the arrangement depends on directions only, and a huge row would otherwise
    # hide a small one from the numerical rank.
    norms = np.linalg.norm(rows / max(np.abs(rows).max(), 1e-300), axis=1)
    nonzero = norms > 0
    unit = rows[nonzero] / np.abs(rows[nonzero]).max(axis=1, keepdims=True)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    patterns = np.ones((1, n), dtype=bool)
    witnesses = np.zeros((1, d))
    if not nonzero.any():
        return patterns, witnesses
    _, s, vt = np.linalg.svd(unit, full_matrices=False)
    rank = int((s > s[0] * max(unit.shape) * eps).sum())
    coordinates = unit @ vt[:rank].T
    group, sign, normals = _merge_parallel(coordinates)
    # Hyperplanes that count as one may span less than their rows.
    count = arrangement_bound(len(normals), min(rank, len(normals)))
    if count > limit:
        raise ValueError(
            f"X has up to {count:,} activation patterns ({len(normals)} different hyperplanes, "
            f"rank {rank}), more than limit = {limit:,}: pass n_samples to draw some of them, "
            "or raise limit"
        )
    cells, points = _cells(normals)
    signs = cells[:, group] == (sign > 0)
    # Each listed pattern must really be that of its witness; otherwise rounding has decided.
    if not np.array_equal(points @ coordinates.T > 0, signs):
        raise ArithmeticError(
            "the rows of X are too nearly dependent to separate the cells of their arrangement "
            "in float64; pass n_samples instead"
        )
    patterns = np.ones((len(cells), n), dtype=bool)
    patterns[:, nonzero] = signs
    order = np.lexsort(patterns.T[::-1])[::-1]
    return patterns[order], (points @ vt[:rank])[order]


def _merge_parallel(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group rows on one line: group index, sign and one unit normal for each group."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    group = np.full(len(unit), -1)
    sign = np.ones(len(unit))
    normals: list[np.ndarray] = []
    for i in range(len(unit)):
        if group[i] >= 0:
            continue
        rest = np.flatnonzero(group < 0)
        same = np.linalg.norm(unit[rest] - unit[i], axis=1) < _SAME_DIRECTION
        opposite = np.linalg.norm(unit[rest] + unit[i], axis=1) < _SAME_DIRECTION
        group[rest[same | opposite]] = len(normals)
        sign[rest[opposite]] = -1.0
        normals.append(unit[i])
    return group, sign, np.array(normals)


def _cells(normals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cells of pairwise non-parallel unit normals: signs (P, M) bool and witnesses (P, r)."""
    m, r = normals.shape
    if m == 0:
        return np.ones((1, 0), dtype=bool), np.eye(1, r)
    if r == 1:
        points = np.array([[1.0], [-1.0]])
        return points @ normals.T > 0, points
    if r == 2:
        # 2M rays cut the circle into 2M arcs; the middle of each is a witness.
        angles = np.arctan2(normals[:, 1], normals[:, 0])
        cuts = np.sort(np.concatenate([angles + np.pi / 2, angles - np.pi / 2]) % (2 * np.pi))
        middle = (cuts + np.append(cuts[1:], cuts[0] + 2 * np.pi)) / 2
        points = np.stack([np.cos(middle), np.sin(middle)], axis=1)
        return points @ normals.T > 0, points
    signs = np.ones((1, 0), dtype=bool)
    points = normals[:1].copy()
    for i, h in enumerate(normals):
        signs, points = _add_hyperplane(signs, points, normals[:i], h)
    return signs, points


def _add_hyperplane(
    signs: np.ndarray, points: np.ndarray, earlier: np.ndarray, h: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Cut the cells (signs, points) of ``earlier`` by the hyperplane with unit normal ``h``."""
    # Columns of `basis` span the hyperplane (Householder reflection that sends h to an axis).
    axis = int(np.argmax(np.abs(h)))
    w = h.copy()
    w[axis] += np.sign(h[axis])
    reflection = np.eye(len(h)) - 2.0 * np.outer(w, w) / (w @ w)
    basis = np.delete(reflection, axis, axis=1)
    if len(earlier):
        group, sign, normals = _merge_parallel(earlier @ basis)
        inner, inner_points = _cells(normals)
        cut = inner[:, group] == (sign > 0)
    else:
        inner_points = np.eye(1, len(h) - 1)
        cut = np.ones((1, 0), dtype=bool)
    index = {row.tobytes(): k for k, row in enumerate(np.packbits(signs, axis=1))}
    keys = np.packbits(cut, axis=1)
    try:
        is_cut = [index[row.tobytes()] for row in keys]
    except KeyError:
        raise ArithmeticError(
            "the rows of X are too nearly dependent to separate the cells of their arrangement "
            "in float64; pass n_samples instead"
        ) from None
    on_plane = inner_points @ basis.T
    on_plane /= np.linalg.norm(on_plane, axis=1, keepdims=True)
    # Step off the hyperplane by half the distance to the next one.
    distance = np.abs(on_plane @ earlier.T)
    speed = np.abs(earlier @ h)
    with np.errstate(divide="ignore"):
        reach = np.min(distance / speed, axis=1, initial=1.0)
    shift = 0.5 * reach[:, None] * h
    whole = np.setdiff1d(np.arange(len(signs)), is_cut)
    whole_points = points[whole]
    side = whole_points @ h > 0
    new_signs = np.concatenate(
        [
            np.column_stack([signs[whole], side]),
            np.column_stack([cut, np.ones(len(cut), dtype=bool)]),
            np.column_stack([cut, np.zeros(len(cut), dtype=bool)]),
        ]
    )
    return new_signs, np.concatenate([whole_points, on_plane + shift, on_plane - shift])
