r"""Spectral norms of maps that are known by their products only: bounds, and a rough size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["LanczosBound", "lanczos_bound", "squared_operator_norm"]


class LanczosBound(NamedTuple):
    """Largest singular value found, with its vectors, and a bound on the true one.

    ``values``, ``lefts`` and ``rights`` are all the pairs found, largest first: rows are vectors.
    """

    found: float
    bound: float
    left: Float[Tensor, "p"]
    right: Float[Tensor, "q"]
    values: Float[Tensor, "k"]
    lefts: Float[Tensor, "k p"]
    rights: Float[Tensor, "k q"]


def lanczos_bound(
    apply: Callable[[Tensor], Tensor],
    apply_transposed: Callable[[Tensor], Tensor],
    size: int,
    *,
    steps: int,
    block: int = 1,
    pairs: int = 1,
    failure_probability: float = 1e-9,
    seed: int = 0,
    like: Tensor | None = None,
) -> LanczosBound:
    r"""Bound :math:`\|M\|_2` from products with M and its transpose.

    k steps of Lanczos's method on :math:`M^\top M` (q×q, full reorthogonalisation) from a random
    unit vector find :math:`\theta \le \lambda = \|M\|_2^2`.  By Kuczyński and Woźniakowski (1992,
    Theorem 4.2)

    .. math:: \Pr[\theta < (1-\varepsilon)\lambda] \le 1.648\,\sqrt q\; e^{-\sqrt\varepsilon(2k-1)}.

    With b independent starts the Krylov space of the block holds that of each, so that the
    probability of failure is at most the b-th power.  So
    :math:`\|M\|_2 \le \sqrt{\theta/(1-\varepsilon)}` holds, over the draw of the starts,
    except with the stated probability; many starts need far fewer steps each.  With bk >= q the
    decomposition is complete and the bound is θ up to rounding.

    Parameters
    ----------
    apply, apply_transposed : functions
        (q,) → (p,) and (p,) → (q,); with ``block`` > 1 of rows, (m, q) → (m, p) and back.
    size : int
        q.
    steps : int
        k, at least 1.
    block : int
        b, number of starts, at least 1.
    pairs : int
        Most singular pairs to return.
    failure_probability : float
        Of the bound, over the random starts; in (0, 1).
    seed : int
        Of the starts.
    like : tensor, optional
        Its dtype and device are used; float64 on the CPU if not given.

    Raises
    ------
    ValueError
        If steps, size, block, pairs or probability are out of range, or if k is too small for any
        bound: the message says how many steps are needed.
    """
    if steps < 1 or size < 1:
        raise ValueError(f"steps and size must be at least 1, got {steps} and {size}")
    if block < 1 or pairs < 1:
        raise ValueError(f"block and pairs must be at least 1, got {block} and {pairs}")
    if not 0 < failure_probability < 1:
        raise ValueError(f"failure_probability must lie in (0, 1), got {failure_probability}")
    complete = steps * block >= size
    exponent = math.log(1.648 * math.sqrt(size)) - math.log(failure_probability) / block
    epsilon = 0.0 if complete else (exponent / (2 * steps - 1)) ** 2
    if epsilon >= 1:
        raise ValueError(
            f"{steps} steps bound nothing at failure_probability {failure_probability:g}: "
            f"need more than {math.ceil((exponent + 1) / 2)}"
        )
    if block == 1:
        forward, backward = (lambda V: apply(V[0])[None]), (lambda U: apply_transposed(U[0])[None])
    else:
        forward, backward = apply, apply_transposed
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(block, size, generator=generator, dtype=torch.float64)
    start = start if like is None else start.to(like)
    basis = start.new_empty(min(steps * block, size), size)
    projected = start.new_zeros(len(basis), len(basis))
    new, done = _orthogonal(start, basis[:0]), 0
    for _ in range(steps):
        new = new[: len(basis) - done]
        if not len(new):
            break  # the Krylov space is exhausted
        rows = slice(done, done + len(new))
        basis[rows] = new
        done = rows.stop
        image = backward(forward(new))
        shares = image @ basis[:done].T
        projected[rows, :done] = shares
        if done == len(basis):
            break
        new = _orthogonal(image, basis[:done], shares)
    basis, projected = basis[:done], projected[:done, :done].tril()
    whole = projected + projected.T - torch.diag(projected.diagonal())
    values, vectors = torch.linalg.eigh(whole)
    rights = vectors.flip(1)[:, :pairs].T @ basis
    lefts = torch.cat([forward(part) for part in rights.split(block)])
    sizes = torch.linalg.vector_norm(lefts, dim=1)
    found = float(sizes[0])
    theta = max(float(values[-1]), found**2)
    slack = 1 + 8 * max(lefts.shape[1], size) * torch.finfo(rights.dtype).eps
    bound = math.sqrt(theta / (1 - epsilon)) * slack
    lefts = lefts / sizes.clamp_min(torch.finfo(lefts.dtype).tiny)[:, None]
    return LanczosBound(found, bound, lefts[0], rights[0], sizes, lefts, rights)


def squared_operator_norm(
    normal: Callable[[Tensor], Tensor], like: Tensor, iterations: int = 20
) -> float:
    r"""Estimate of :math:`\|A\|^2` by power iteration, from below: a scale or a first guess, no bound.

    Parameters
    ----------
    normal : function
        :math:`z \mapsto A^*A(z)`.
    like : tensor
        Shape, dtype and device of z.
    iterations : int
        Products, each with :math:`A^*A`.
    """
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)
    value = 0.0
    for _ in range(iterations):
        size = torch.linalg.vector_norm(z)
        if size == 0:
            return 0.0
        z = normal(z / size)
        value = float(torch.linalg.vector_norm(z))
    return value


def _orthogonal(
    block: Float[Tensor, "b q"],
    basis: Float[Tensor, "k q"],
    shares: Float[Tensor, "b k"] | None = None,
) -> Float[Tensor, "r q"]:
    """Orthonormal rows that span what ``block`` adds to the span of ``basis``.

    ``shares`` are the products of both, where they are known: passes over the basis are what
    many steps cost.
    """
    sizes = torch.linalg.vector_norm(block, dim=1)
    block = torch.addmm(block, block @ basis.T if shares is None else shares, basis, alpha=-1)
    # A second pass removes what the first left by rounding.
    block = torch.addmm(block, block @ basis.T, basis, alpha=-1)
    rows = block[:0]
    for row, size in zip(block, sizes.tolist(), strict=True):
        for _ in range(2):
            row = row - (rows @ row) @ rows
            # What is left of a row that nearly lay in the span holds rounding from there.
            if float(torch.linalg.vector_norm(row)) < 1e-3 * size:
                row = row - (basis @ row) @ basis
        length = float(torch.linalg.vector_norm(row))
        if length > 1e-13 * max(size, 1e-300):
            rows = torch.cat([rows, row[None] / length])
    return rows
