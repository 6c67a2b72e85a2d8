r"""Fully corrective conditional gradient over single ReLU neurons, for one output column."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..cones import _least_distance, _project
from ..problem import Problem
from ..solution import Neurons, Solution, neurons_from_parts
from .log import Log

__all__ = ["fully_corrective", "relu_solution"]

# Most neurons that join in one round, and rounds without progress before giving up.
_BATCH = 64
_PATIENCE = 20


def fully_corrective(
    problem: Problem,
    *,
    tol: float = 1e-6,
    max_iterations: int = 1000,
    progress: bool | None = None,
    time_limit: float | None = None,
) -> Solution:
    r"""ReLU with one output column and squared loss, over all listed activation patterns.

    .. math:: \min\; \tfrac12\Big\|\sum_k w_k h_k - Y\Big\|^2 + \beta\sum_k w_k,
              \quad w \ge 0,\quad h_k = \pm(Fu_k)_+,\ \|u_k\| = 1

    is the program (5) of Sahiner et al. (2022) with c = 1 written over neurons (F: effective
    data matrix).  A round solves it exactly over the neurons found so far: its dual is the
    projection of Y onto :math:`\{v : h_k^\top v \le \beta\}`, a least-distance problem for NNLS.
    Then every pattern contributes its most violated neuron, the projection of the gradient
    onto its cone; the longest projection also gives the certificate.  Neurons of one cone and
    sign are merged, which never raises the objective.

    Parameters
    ----------
    problem : Problem with activation "relu", one column, squared loss, beta > 0
    tol, max_iterations, progress
        As for :func:`~fourviews.convex.solve`; an iteration is a round.
    """
    exact = problem.to(torch.float64).on(torch.device("cpu"))
    log = Log(exact, tol, "ReLU", max_iterations, progress, time_limit, patience=_PATIENCE)
    target = exact.loss.target.numpy().ravel()
    scale = float(np.linalg.norm(target)) or 1.0
    size = exact.block_shape[0]
    atoms = np.zeros((0, size))
    images = np.zeros((len(target), 0))
    origin = np.zeros((0, 2), dtype=int)
    weights = np.zeros(0)
    iteration = 0
    try:
        for iteration in range(max_iterations + 1):
            # One neuron for each cone and sign: a cone is closed under addition.
            parts = np.zeros((2, len(exact.masks), size))
            np.add.at(parts, (origin[:, 1], origin[:, 0]), weights[:, None] * atoms)
            units = neurons_from_parts(parts)
            network = exact._units(*units)
            with torch.no_grad():
                prediction = network(exact.X)
            residual = exact.loss.gradient(prediction)
            found, polars = _violated(exact, residual)
            polar = float(polars.max(initial=0.0)) * (1 + 1e-12)
            if not exact.all_patterns:
                polar = exact.polar(residual)
            if log.record(
                iteration, units, exact.network_objective(network), prediction, polar=polar
            ):
                break
            if not found or iteration == max_iterations:
                break
            # Neurons without weight go: the dual strictly improves, so none can cycle.
            keep = weights > 0
            new = np.array([u for _, _, _, u in found])
            new_origin = np.array([(j, side) for _, j, side, _ in found])
            new_images = np.stack([_image(exact, u, j, side) for _, j, side, u in found], axis=1)
            atoms = np.concatenate([atoms[keep], new])
            origin = np.concatenate([origin[keep], new_origin])
            images = np.concatenate([images[:, keep], new_images], axis=1)
            solution = _least_distance(
                target / scale, -images.T, np.full(images.shape[1], -exact.beta / scale)
            )
            weights = np.maximum(solution.multiplier, 0.0) * scale
    finally:
        log.close()
    return relu_solution(problem, log, tol, iteration, "fully corrective")


def _violated(
    problem: Problem, residual: Tensor
) -> tuple[list[tuple[float, int, int, np.ndarray]], np.ndarray]:
    """Most violated neurons (polar, pattern, side, unit vector), and upper bounds on all polars."""
    blocks = problem.outputs_adjoint(residual, problem.masks)[..., 0].numpy()
    beta = problem.beta
    polars = np.tile(np.linalg.norm(blocks, axis=1), (2, 1))
    found = []
    for j in np.flatnonzero(polars[0] > beta):
        K = problem.cone_matrix(j)
        for side, sign in enumerate((-1.0, 1.0)):
            point = _project(sign * blocks[j], K).point
            length = float(np.linalg.norm(point))
            polars[side, j] = length
            if length > beta * (1 + 1e-10):
                found.append((length, int(j), side, point / length))
    found.sort(key=lambda item: -item[0])
    return found[:_BATCH], polars


def _image(problem: Problem, unit: np.ndarray, pattern: int, side: int) -> np.ndarray:
    """Predictions of one neuron with second weight +1 (side 0) or -1."""
    Z = torch.from_numpy(unit).reshape(1, -1, 1)
    group = problem.group_of(torch.tensor([pattern]))
    output = problem.outputs(Z, problem.masks[pattern : pattern + 1], group)
    return (1.0 if side == 0 else -1.0) * output.numpy().ravel()


def relu_solution(problem: Problem, log: Log, tol: float, iterations: int, method: str) -> Solution:
    """Solution from the neurons that a solver's log found best, in the input's precision."""
    units: Neurons = log.best
    Z = torch.zeros(problem.n_blocks, *problem.block_shape, dtype=torch.float64)
    Z.index_add_(0, units.block, torch.einsum("mp,mq->mpq", units.first, units.second))
    Z = Z.reshape(problem.coefficient_shape)
    units = Neurons(
        units.first.to(problem.X), units.second.to(problem.X), units.block.to(problem.X.device)
    )
    # In float32 the rounded network is what counts; its objective is a rounding above.
    exact = problem.to(torch.float64)
    network = exact._units(units.first.double(), units.second.double(), units.block)
    objective = exact.network_objective(network)
    return Solution(
        problem,
        Z.to(problem.X),
        objective,
        min(log.bound, objective),
        tol,
        iterations,
        method,
        log.history,
        units,
    )
