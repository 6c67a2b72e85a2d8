r"""Fully corrective conditional gradient over ReLU neurons, for several output columns."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..caratheodory import fewer_weights
from ..faces import BlockFaces
from ..problem import Problem
from ..solution import Neurons, Solution
from .fista import fista
from .log import Log
from .over_neurons import OverNeurons
from .relu_corrective import relu_solution
from .relu_splitting import descend
from .splitting import splitting

__all__ = ["relu_neurons"]

# Most neurons that join in one round, and rounds without progress before giving up.
_BATCH = 30
_PATIENCE = 20


def relu_neurons(
    problem: Problem,
    *,
    tol: float = 1e-6,
    max_iterations: int = 200,
    progress: bool | None = None,
    time_limit: float | None = None,
) -> Solution:
    r"""ReLU with several output columns, to optimality where all cells are listed.

    .. math:: \min\; L\Big(\sum_k (Fu_k)_+v_k^\top\Big) + \beta\sum_k\|v_k\|,\qquad \|u_k\| = 1

    over any number of neurons is the program (5) of Sahiner et al. (2022) (F: effective data
    matrix).  A round solves it over the neurons found so far, improves them by local descent on the
    network, and solves again; then each cell contributes its most violated neuron, the maximiser of
    :math:`\|M_j^\top u\|` over its cone for the gradient's block :math:`M_j`, found by
    :class:`~fourviews.convex.faces.BlockFaces`.  The largest of these maxima also gives the
    lower bound.  What is NP-hard in general is done here by enumeration and bounding: the work grows
    with the number of cells and of their faces, both exponential in the rank of F and polynomial in N.
    Where the search over faces had to leave some, and the gap stays open, the optimum of the
    gated relaxation is tried as a bound, too.

    Parameters
    ----------
    problem : Problem with activation "relu", all patterns listed, beta > 0
    tol, max_iterations, progress
        As for :func:`solve`; an iteration is a round.

    Raises
    ------
    ValueError
        If activation, patterns or beta are others.
    """
    if not (problem.cones and problem.all_patterns and problem.beta > 0):
        raise ValueError(
            'relu_neurons needs activation "relu", all patterns (neither gates nor n_gates) and '
            f"beta > 0, got {problem!r}"
        )
    exact = problem.to(torch.float64).on(torch.device("cpu"))
    faces = BlockFaces(exact)
    log = Log(exact, tol, "ReLU", max_iterations, progress, time_limit, patience=_PATIENCE)
    p, q = exact.block_shape
    units, V = torch.zeros(0, p, dtype=torch.float64), torch.zeros(0, q, dtype=torch.float64)
    group = torch.zeros(0, dtype=torch.long)
    iteration, accuracy = 0, float("inf")
    try:
        for iteration in range(max_iterations + 1):
            neurons = _balanced(exact, units, V, group)
            network = exact._units(*neurons)
            with torch.no_grad():
                prediction = network(exact.X)
            blocks = exact.outputs_adjoint(exact.loss.gradient(prediction), exact.masks).numpy()
            polars, directions = faces.polars(blocks, floor=exact.beta)
            polar = float(polars.max(initial=0.0))
            objective = exact.network_objective(network)
            if log.record(iteration, neurons, objective, prediction, polar=polar):
                break
            order = np.argsort(-polars, kind="stable")[:_BATCH]
            order = order[polars[order] > exact.beta]
            order = order[np.abs(directions[order]).sum(axis=1) > 0]
            settled = not len(order) and (accuracy <= 0.1 * tol or not len(units))
            if settled or iteration == max_iterations:
                break
            new = torch.from_numpy(directions[order])
            group = torch.cat([group, torch.from_numpy(order) % exact.groups])
            # Without a violated neuron only the weights of those found can be at fault.
            wanted = 1e-2 * min(1.0, log.gap) ** 1.5 if len(order) else 0.0
            accuracy = max(0.1 * tol, wanted)
            units, V, group = _over(exact, torch.cat([units, new]), V, group, accuracy)
            improved = descend(exact, _balanced(exact, units, V, group))
            lengths = torch.linalg.vector_norm(improved.first, dim=1, keepdim=True)
            units = torch.cat([units, improved.first / lengths])
            group = torch.cat([group, improved.block % exact.groups])
            V = torch.cat([torch.zeros_like(V), improved.second * lengths])
            units, V, group = _over(exact, units, V, group, accuracy)
        left = log.time_limit - log.seconds
        if not faces.complete and log.gap > tol and left > 0:
            relaxed = exact.gated_relaxation()
            gated = (splitting if relaxed.loss.name == "squared" else fista)(
                relaxed, tol=max(0.1 * tol, 1e-6), progress=False, time_limit=left
            )
            log.record(iteration, neurons, objective, prediction, bound=gated.lower_bound)
        # Rounding may cost a little, but not the tolerance that was reached.
        most = log.objective * (1 + 1e-2 * tol)
        if log.gap <= tol:
            most = min(most, log.bound + tol * max(log.bound, 1e-12 * log.at_zero))
        log.best = fewer_neurons(exact, log.best, max(most, log.objective))
    finally:
        log.close()
    return relu_solution(problem, log, tol, iteration, "fully corrective")


def fewer_neurons(problem: Problem, neurons: Neurons, most: float) -> Neurons:
    """Neurons with the same outputs and no larger norm, at most as many as there are outputs (see
    :func:`~fourviews.convex.caratheodory.fewer_weights`); as they came if rounding lifts the
    objective above ``most``."""
    outputs = []
    for k in range(len(neurons.first)):
        one = Neurons(*(part[k : k + 1] for part in neurons))
        with torch.no_grad():
            outputs.append(problem._units(*one)(problem.X).ravel().numpy())
    if not outputs:
        return neurons
    norms = (neurons.first.norm(dim=1) * neurons.second.norm(dim=1)).numpy()
    weights = fewer_weights(np.stack(outputs, axis=1), norms)
    kept = np.flatnonzero(weights)
    root = torch.from_numpy(np.sqrt(weights[kept]))[:, None]
    fewer = Neurons(neurons.first[kept] * root, neurons.second[kept] * root, neurons.block[kept])
    value = problem.network_objective(problem._units(*fewer))
    return fewer if value <= most else neurons


def _over(
    problem: Problem, units: Tensor, V: Tensor, group: Tensor, tol: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Neurons that the program over ``units`` uses; rows that V lacks start at zero."""
    start = torch.zeros(len(units), problem.block_shape[1], dtype=torch.float64)
    start[: len(V)] = V
    V = OverNeurons(problem, units, group).solve(start, tol)
    size = torch.linalg.vector_norm(V, dim=1)
    used = size > 1e-10 * size.max()
    return units[used], V[used], group[used]


def _balanced(problem: Problem, units: Tensor, V: Tensor, group: Tensor) -> Neurons:
    root = torch.linalg.vector_norm(V, dim=1, keepdim=True).sqrt()
    return Neurons(units * root, V / root, problem.pattern_of(units, group))
