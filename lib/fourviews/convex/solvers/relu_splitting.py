r"""ReLU networks: exact for one output, certified bounds for several."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from ..cones import _project, cone_decomposition
from ..network import balanced_factors
from ..problem import Problem
from ..solution import Neurons, Solution, neurons_from_parts
from .fista import fista
from .log import Log
from .over_neurons import OverNeurons
from .relu_corrective import relu_solution
from .splitting import iterate, splitting

__all__ = ["descend", "relu_bounds", "relu_on_cones"]


class ConeModel:
    r"""One-column ReLU program on some patterns, :math:`z_j = a_j - b_j` with both in the cone.

    The variable holds the parts a and b, (2, …) with the coefficients' shape.  Its proximal map is

    .. math:: \operatorname{prox}_{\tau(\|\cdot\| + \iota_C)}(x)
              = \Big(1 - \frac{\tau}{\|P_C x\|}\Big)_+ P_C x .

    Any multiplier λ >= 0 gives :math:`\|P_C x\| \le \|x + K^\top\lambda\|`; those of the last
    call prove most parts zero without a new projection.
    """

    def __init__(self, problem: Problem):
        self.problem, self.loss = problem, problem.loss
        self.cones = [problem.cone_matrix(j) for j in range(len(problem.masks))]
        self.shift = np.zeros((2, len(self.cones), problem.block_shape[0]))
        self.shape = problem.coefficient_shape

    def forward(self, V: Tensor) -> Tensor:
        return self.problem.forward(V[0] - V[1])

    def adjoint(self, R: Tensor) -> Tensor:
        M = self.problem.adjoint(R)
        return torch.stack([M, -M])

    def gram(self) -> Tensor:
        return 2.0 * self.problem.gram()

    def prox(self, V: Tensor, step: float) -> Tensor:
        threshold = step * self.problem.beta
        x = V.reshape(2, len(self.cones), -1).numpy()
        out = np.zeros_like(x)
        candidates = np.linalg.norm(x, axis=-1) > threshold
        candidates &= np.linalg.norm(x + self.shift, axis=-1) > threshold
        for side, j in np.argwhere(candidates):
            point, multiplier = _project(x[side, j], self.cones[j])
            self.shift[side, j] = self.cones[j].T @ multiplier
            length = np.linalg.norm(point)
            if length > threshold:
                out[side, j] = (1.0 - threshold / length) * point
        return torch.from_numpy(out).reshape(2, *self.shape)


def relu_on_cones(
    problem: Problem,
    *,
    tol: float = 1e-6,
    max_iterations: int = 20_000,
    progress: bool | None = None,
    time_limit: float | None = None,
) -> Solution:
    r"""ReLU with one output column, by splitting with the cone-constrained group prox.

    .. math:: \min\; L\Big(\sum_j D_j F(a_j - b_j)\Big) + \beta\sum_j(\|a_j\| + \|b_j\|),
              \quad a_j, b_j \in \{u : (2D_j - I)Fu \ge 0\}

    (Sahiner et al. 2022, (5) with c = 1; F is the effective data matrix.)  The objective is
    that of the ReLU network that the parts form, so that it is attained whatever the
    accuracy of the projections; the lower bound uses projections of the gradient onto all
    cones.  If not all patterns are listed, the bound comes from an inequality that holds for
    every neuron and is loose.

    Neighbouring cones share faces, which makes this slow where beta is small: :func:`solve`
    prefers :func:`~fourviews.convex.solvers.relu_corrective.fully_corrective`.
    """
    exact = problem.to(torch.float64).on(torch.device("cpu"))
    log = Log(exact, tol, "ReLU", max_iterations, progress, time_limit)
    model = ConeModel(exact)

    def check(iteration: int, V: Tensor, F: Tensor) -> bool:
        if not (log.due(iteration) or iteration in (0, max_iterations)):
            return False
        units = neurons_from_parts(V.reshape(2, exact.n_blocks, -1).numpy(), 1e-12)
        network = exact._units(*units)
        residual = exact.loss.gradient(F)
        polar = exact.polar(residual)
        return log.record(iteration, units, exact.network_objective(network), F, polar=polar)

    try:
        start = torch.zeros(2, *exact.coefficient_shape, dtype=torch.float64)
        iterations = iterate(model, start, max_iterations=max_iterations, check=check)
    finally:
        log.close()
    return relu_solution(problem, log, tol, iterations, "splitting on cones")


def relu_bounds(
    problem: Problem,
    *,
    tol: float = 1e-6,
    max_iterations: int = 20_000,
    progress: bool | None = None,
    time_limit: float | None = None,
) -> Solution:
    r"""ReLU with several outputs: an attained objective and a proved lower bound.

    Minimising over the quasi-nuclear norm is NP-hard in general.  Dropping the cone
    constraints leaves the gated problem on the same patterns, whose optimum is a *lower*
    bound if all patterns are listed.  Its solution, split by
    :func:`~fourviews.convex.cone_decomposition` into ReLU neurons and improved by local
    descent on the network, gives an attained *upper* bound.  Where some patterns are listed only,
    descent would leave them; instead, the program is solved over these neurons and the gates
    themselves with their directions kept.  The gap between the two bounds is true but need not
    close: ``converged`` may stay False.
    """
    exact = problem.to(torch.float64).on(torch.device("cpu"))
    relaxed = exact.gated_relaxation()
    solver = splitting if relaxed.loss.name == "squared" else fista
    gated = solver(
        relaxed, tol=tol, max_iterations=max_iterations, progress=progress, time_limit=time_limit
    )
    log = Log(exact, tol, "ReLU bounds", 2, progress, time_limit)
    try:
        with torch.no_grad():
            relaxed_prediction = relaxed.forward(gated.coefficients)
        bound = gated.lower_bound if exact.all_patterns else None
        zero = Neurons(
            torch.zeros(0, exact.block_shape[0], dtype=torch.float64),
            torch.zeros(0, exact.block_shape[1], dtype=torch.float64),
            torch.zeros(0, dtype=torch.long),
        )
        log.record(0, zero, log.at_zero, torch.zeros_like(exact.loss.target))
        split = _split(exact, gated.coefficients)
        # Descent may leave the listed patterns; only the full list has a block for every neuron.
        improve = descend if exact.all_patterns else _reweighted
        candidates = (split, improve(exact, split))
        for iteration, units in enumerate(candidates, start=1):
            network = exact._units(*units)
            log.record(
                iteration, units, exact.network_objective(network), relaxed_prediction, bound=bound
            )
    finally:
        log.close()
    return relu_solution(problem, log, tol, gated.iterations, "gated relaxation")


def _split(problem: Problem, Z: Tensor) -> Neurons:
    """ReLU neurons that compute what the gated blocks compute: each left factor as a − b."""
    first, second, block = balanced_factors(Z.reshape(-1, *problem.block_shape), 1e-9)
    units: list[tuple[Tensor, Tensor, int]] = []
    for u, v, j in zip(first, second, block.tolist(), strict=True):
        parts = cone_decomposition(u, torch.from_numpy(problem.cone_matrix(j)), tol=1e-6)
        for sign, part in ((1.0, parts.positive), (-1.0, parts.negative)):
            size = float(torch.linalg.vector_norm(part))
            if size > 0:
                # Rescale the pair to equal lengths: weight decay is then the product.
                root = (float(torch.linalg.vector_norm(v)) / size) ** 0.5
                units.append((part * root, sign * v / root, j))
    if not units:
        return Neurons(first, second, block)
    return Neurons(
        torch.stack([u for u, _, _ in units]),
        torch.stack([v for _, v, _ in units]),
        torch.tensor([j for _, _, j in units]),
    )


def _reweighted(problem: Problem, units: Neurons) -> Neurons:
    """Best second weights for these neurons and the listed gates, each in a cone of its own.

    Never dearer than ``units``, up to the accuracy of the solve: the parts of a split are long
    where a cone is narrow, and many of them are not worth their norm.
    """
    if problem.beta == 0:
        return units
    gates = problem.gates_to_rows(problem.gates).to(torch.float64)
    first = torch.cat([units.first, gates])
    block = torch.cat([units.block, torch.arange(len(gates))])
    length = torch.linalg.vector_norm(first, dim=1, keepdim=True)
    there = length[:, 0] > 0
    if not there.any():
        return units
    first, block, length = first[there], block[there], length[there]
    start = torch.zeros(len(gates), problem.block_shape[1], dtype=torch.float64)
    start = torch.cat([units.second, start])[there] * length
    second = OverNeurons(problem, first / length, block).solve(start, 1e-6)
    size = torch.linalg.vector_norm(second, dim=1, keepdim=True)
    used = size[:, 0] > 1e-10 * size.max()
    root = size[used].sqrt()
    return Neurons(first[used] / length[used] * root, second[used] / root, block[used])


def descend(problem: Problem, units: Neurons) -> Neurons:
    """Local descent (L-BFGS) on the ReLU network from these neurons."""
    m, p = units.first.shape
    if m == 0:
        return units
    network = problem._units(*units)

    def value_and_gradient(theta: np.ndarray) -> tuple[float, np.ndarray]:
        flat = torch.from_numpy(theta)
        with torch.no_grad():
            network.first.copy_(flat[: m * p].reshape(m, p))
            network.second.copy_(flat[m * p :].reshape(m, -1))
        network.zero_grad()
        value = problem.loss.value(network(problem.X)) + problem.beta * network.weight_decay()
        value.backward()
        gradient = torch.cat([network.first.grad.ravel(), network.second.grad.ravel()])
        return float(value.detach()), gradient.numpy()

    start = torch.cat([units.first.ravel(), units.second.ravel()]).numpy()
    result = minimize(
        value_and_gradient, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000}
    )
    flat = torch.from_numpy(result.x)
    first, second = flat[: m * p].reshape(m, p), flat[m * p :].reshape(m, -1)
    alive = (torch.linalg.vector_norm(first, dim=1) > 1e-9) & (
        torch.linalg.vector_norm(second, dim=1) > 1e-9
    )
    first, second, group = first[alive], second[alive], (units.block % problem.groups)[alive]
    return Neurons(first, second, problem.pattern_of(first, group))
