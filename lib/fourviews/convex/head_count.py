r"""How many hidden units or heads an optimum needs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from .caratheodory import fewer_weights
from .network import TwoLayerNetwork
from .solution import Solution

__all__ = ["HeadCount", "fewer_heads", "head_count"]


class HeadCount(NamedTuple):
    """Units of a solution, and what is proved about them.

    Attributes
    ----------
    heads : int
        Units that the solution uses.
    bound : int
        m*: with so many units the network attains the convex optimum, at *some* optimum.
    by_rank : int or None
        Bound that *every* optimum keeps; None for ReLU, where a block may need more units than
        its rank.
    by_predictions : int
        Bound from the number of predictions, kept by some optimum.
    """

    heads: int
    bound: int
    by_rank: int | None
    by_predictions: int


def head_count(solution: Solution) -> HeadCount:
    r"""Report the number of units and the bounds on m* that hold.

    With blocks of size p×q and N numbers in all targets together:

    - Linear and gated ReLU: a block of rank r is r units, so that every optimum has at most
      :math:`\min(p, q)` in each block.
    - All activations: the predictions of an optimum are a combination of units' predictions,
      with positive weights, in a space of N dimensions.  Carathéodory's theorem for cones leaves N
      of them with the same predictions and no larger norm: *some* optimum has at most N units
      (:func:`fewer_heads` finds it).  Where units see groups of the outputs, N counts
      all groups together.
    - Linear: some optimum has rank r with :math:`r(r+1)/2 \le N` (Pataki 1998), since its core is
      a positive semidefinite matrix under N linear equations.
    - ReLU: a block may need more units than its rank, because the units must lie in a cone.
      Carathéodory's theorem in the space of the block gives pq.

    So the bounds :math:`n\min(p, q)` that Sahiner et al. (2022) state for ReLU do not hold: one
    sample with one output column and tokens of both signs needs two units, not one.

    Raises
    ------
    ValueError
        If ``solution`` is no :class:`~fourviews.convex.Solution`.
    """
    if not isinstance(solution, Solution):
        raise ValueError(
            f"solution must be a convex.Solution, as convex.solve returns it, got "
            f"{type(solution).__name__}"
        )
    problem = solution.problem
    p, q = problem.block_shape
    N = problem.loss.target.numel()
    if problem.cones:
        count = problem.n_blocks * p * q
        # Patterns that are not listed are neurons all the same.
        bound = min(count, N) if problem.all_patterns else N
        return HeadCount(solution.rank, bound, None, N)
    by_rank = problem.n_blocks * min(p, q)
    by_predictions = N
    if problem.activation == "linear" and problem.groups == 1:
        by_predictions = int(((8 * N + 1) ** 0.5 - 1) / 2)
    return HeadCount(solution.rank, min(by_rank, by_predictions), by_rank, by_predictions)


def fewer_heads(solution: Solution) -> TwoLayerNetwork:
    """A network with the same predictions, no more weight decay, and at most N units.

    The solution's units, some of them rescaled, the others left out: a conic combination of unit
    predictions in :math:`\\mathbb R^N` needs no more than N of them (Carathéodory).

    Parameters
    ----------
    solution : Solution
        Of any head and activation; N is the number of predicted values.

    Returns
    -------
    TwoLayerNetwork
        In float64, on the device of the data.
    """
    problem = solution.problem.to(torch.float64)
    network = solution.network().double()
    first, second = network.first.detach(), network.second.detach()
    length = torch.linalg.vector_norm(first, dim=1) * torch.linalg.vector_norm(second, dim=1)
    group = network.group
    images = []
    for k in range(len(first)):
        one = slice(k, k + 1)
        gate = None if network.gates is None else network.gates[one]
        unit = problem.hidden_layers(
            first[one], second[one], gate, None if group is None else group[one]
        )
        with torch.no_grad():
            images.append(unit(problem.X).ravel().cpu().numpy())
    if not images:
        return network
    weights = fewer_weights(np.stack(images, axis=1), length.cpu().numpy())
    index = torch.from_numpy(np.flatnonzero(weights)).to(first.device)
    ratio = torch.from_numpy(weights).to(first.device)[index].sqrt()[:, None]
    return problem.hidden_layers(
        first[index] * ratio,
        second[index] * ratio,
        None if network.gates is None else network.gates[index],
        None if group is None else group[index],
    )
