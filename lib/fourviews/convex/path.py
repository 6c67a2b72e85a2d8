r"""The solutions for many values of beta, and the value from which on they are zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .distributed import Group
from .faces import BlockFaces
from .matrix_free import LARGEST_BLOCKS
from .problem import Problem
from .shards import Shards
from .solution import Solution
from .solvers import solve
from .solvers.solve import refuse_unknown_options

__all__ = ["largest_beta", "regularization_path"]


def largest_beta(
    problem: Problem, *, shard: int | None = None, group: Group | None = None
) -> float:
    r"""Smallest beta for which zero is a solution.

    .. math:: \beta_{\max} = \max_j\|A_j^*\nabla L(0)\|^\circ

    with the spectral norm for linear and gated ReLU, and for ReLU its maximum over the cone,
    :math:`\max\{\|M^\top u\| : u \in C_j, \|u\| \le 1\}`.  Zero is optimal for all beta from there
    on and for none below.  Computed in float64 and rounded up.

    Exact for linear and gated ReLU, for ReLU with one column and all patterns, and with several
    columns while the search over the faces of all cells is complete.  Elsewhere it is an upper bound: zero is
    optimal from there on, perhaps earlier.  Proved in the toolbox lesson from weak duality
    (Rockafellar 1970); the polar for ReLU is that of Sahiner et al. (2022), (5).

    Blocks with more than 2·10⁷ entries together, as of attention with d = c = 100, are not formed:
    for linear and gated ReLU the value is then an upper bound from products alone, at most 0.1 %
    too large, except with probability 10⁻⁹ (a bound by Lanczos's method).

    Parameters
    ----------
    problem : Problem
        Any head, activation and loss; its own beta does not matter.
    shard, group
        Samples at a time and other processes, for linear and gated ReLU: see
        :class:`~fourviews.convex.Shards`.

    Returns
    -------
    float, in the units of beta.

    Raises
    ------
    ValueError
        For ReLU with ``shard`` or ``group``.
    """
    p, q = problem.block_shape
    large = not problem.cones and problem.n_blocks * p * q > LARGEST_BLOCKS
    if large or shard is not None or group is not None:
        shards = Shards(problem, shard, group=group)
        return shards.polar(shards.residual_at_zero())
    exact = problem.to(torch.float64)
    residual = exact.loss.gradient(torch.zeros_like(exact.loss.target))
    if exact.cones and exact.all_patterns and exact.block_shape[1] > 1:
        blocks = exact.outputs_adjoint(residual, exact.masks).cpu().numpy()
        return float(BlockFaces(exact).polars(blocks)[0].max(initial=0.0))
    return exact.polar(residual)


def regularization_path(
    problem: Problem,
    betas: Sequence[float] | None = None,
    *,
    count: int = 20,
    smallest: float = 1e-2,
    **options: Any,
) -> list[Solution]:
    r"""Certified solutions for a falling sequence of betas, each started from the one before.

    Parameters
    ----------
    problem : Problem
        Its own beta does not matter.
    betas : sequence of floats, optional
        In any order, without repetition; solved from the largest down.  Default: ``count`` values in
        geometric progression from :func:`largest_beta` to ``smallest`` times that.
    count : int
        At least 2.
    smallest : float
        In (0, 1).
    **options
        For :func:`solve`, such as ``tol`` and ``method``; not ``start``.

    Returns
    -------
    list of Solution, beta falling; ``solution.problem.beta`` says which.

    Raises
    ------
    TypeError
        For an option that the method does not take.
    ValueError
        For an empty, repeated, negative or non-finite beta, or ``count`` or ``smallest`` out of range.
    """
    if betas is not None:
        betas = [float(beta) for beta in betas]
    # Before any work; for each beta, as another method may be chosen for 0.
    for beta in (1.0,) if betas is None else betas:
        at, method = problem.with_beta(beta), options.get("method", "auto")
        refuse_unknown_options(regularization_path, at, method, options, without=("start",))
    if betas is None:
        if not (isinstance(count, int) and count >= 2):
            raise ValueError(f"count must be an integer >= 2, got {count!r}")
        if not 0 < smallest < 1:
            raise ValueError(f"smallest must lie in (0, 1), got {smallest!r}")
        top = largest_beta(problem)
        betas = [top * smallest ** (k / (count - 1)) for k in range(count)]
    betas = sorted(betas, reverse=True)
    if not betas or len(set(betas)) < len(betas):
        raise ValueError(f"betas must be one or more different numbers, got {betas}")
    # ReLU's solvers work with neurons, and the factored solver too: they start from nothing.
    warm = not problem.cones and options.get("method") not in ("frank_wolfe", "factored")
    solutions: list[Solution] = []
    for beta in betas:
        start = {"start": solutions[-1].coefficients} if warm and solutions else {}
        solutions.append(solve(problem.with_beta(beta), **start, **options))
    return solutions
