r"""Upper bounds on spectral norms of blocks that are known by their products only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["LanczosBound", "lanczos_bound"]


class LanczosBound(NamedTuple):
    """Largest singular value found, with its vectors, and a bound on the true one."""

    found: float
    bound: float
    left: Float[Tensor, "p"]
    right: Float[Tensor, "q"]


def lanczos_bound(
    apply: Callable[[Tensor], Tensor],
    apply_transposed: Callable[[Tensor], Tensor],
    size: int,
    *,
    steps: int,
    failure_probability: float = 1e-9,
    seed: int = 0,
    like: Tensor | None = None,
) -> LanczosBound:
    r"""Bound :math:`\|M\|_2` from k products with M and its transpose.

    k steps of Lanczos's method on :math:`M^\top M` (q×q, full reorthogonalisation) from a random
    unit vector find :math:`\theta \le \lambda = \|M\|_2^2`.  By Kuczyński and Woźniakowski (1992,
    Theorem 4.2)

    .. math:: \Pr[\theta < (1-\varepsilon)\lambda] \le 1.648\,\sqrt q\; e^{-\sqrt\varepsilon(2k-1)},

    so that :math:`\|M\|_2 \le \sqrt{\theta/(1-\varepsilon)}` holds, over the draw of the start,
    except with the stated probability.  With k >= q the decomposition is complete and the bound is
    θ up to rounding.

    Parameters
    ----------
    apply, apply_transposed : functions
        (q,) → (p,) and (p,) → (q,).
    size : int
        q.
    steps : int
        k, at least 1.
    failure_probability : float
        Of the bound, over the random start; in (0, 1).
    seed : int
        Of the start.
    like : tensor, optional
        Its dtype and device are used; float64 on the CPU if not given.

    Raises
    ------
    ValueError
        If steps, size or probability are out of range, or if k is too small for any bound:
        the message says how many steps are needed.
    """
    if steps < 1 or size < 1:
        raise ValueError(f"steps and size must be at least 1, got {steps} and {size}")
    if not 0 < failure_probability < 1:
        raise ValueError(f"failure_probability must lie in (0, 1), got {failure_probability}")
    complete = steps >= size
    exponent = math.log(1.648 * math.sqrt(size) / failure_probability)
    epsilon = 0.0 if complete else (exponent / (2 * steps - 1)) ** 2
    if epsilon >= 1:
        raise ValueError(
            f"{steps} steps bound nothing at failure_probability {failure_probability:g}: "
            f"need more than {math.ceil((exponent + 1) / 2)}"
        )
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(size, generator=generator, dtype=torch.float64)
    v = start if like is None else start.to(like)
    v = v / torch.linalg.vector_norm(v)
    basis, images = [v], []
    for _ in range(min(steps, size)):
        image = apply_transposed(apply(basis[-1]))
        images.append(image)
        rest = image
        for _ in range(2):  # the second pass removes what the first left by rounding
            for w in basis:
                rest = rest - (w @ rest) * w
        length = float(torch.linalg.vector_norm(rest))
        if length <= 1e-13 * max(float(torch.linalg.vector_norm(image)), 1e-300):
            break  # the Krylov space is exhausted
        basis.append(rest / length)
    basis = basis[: len(images)]
    Q, W = torch.stack(basis, dim=1), torch.stack(images, dim=1)
    projected = Q.T @ W
    values, vectors = torch.linalg.eigh(0.5 * (projected + projected.T))
    right = Q @ vectors[:, -1]
    left = apply(right)
    found = float(torch.linalg.vector_norm(left))
    theta = max(float(values[-1]), found**2)
    slack = 1 + 8 * max(len(left), size) * torch.finfo(right.dtype).eps
    bound = math.sqrt(theta / (1 - epsilon)) * slack
    left = left / found if found > 0 else left
    return LanczosBound(found, bound, left, right)
