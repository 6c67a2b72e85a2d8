r"""The same convex program through CVXPY: slow, independent, for checking."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from .certificates import lower_bound
from .norms import nuclear_norm
from .problem import Problem
from .solution import Neurons, Record, Solution, neurons_from_parts
from .spectral import squared_operator_norm

__all__ = ["reference"]


def reference(
    problem: Problem, *, tol: float = 1e-5, solver: str | None = None, **options: Any
) -> Solution:
    r"""Solve ``problem`` with CVXPY and certify what comes back.

    The linear map enters as an explicit matrix, built column by column from
    ``problem.forward``: small problems only.  Nuclear norms go in as such (as Euclidean norms
    for one column), ReLU with one column as second-order cones with the constraints
    :math:`K_j a_j \ge 0`, :math:`K_j b_j \ge 0`.

    The solver's status is not trusted: objective and lower bound are computed here from the
    returned point, and ``converged`` compares them with ``tol``.

    Parameters
    ----------
    problem : Problem
    tol : float
        Relative gap that counts as converged.
    solver : str, optional
        CVXPY solver; Clarabel if not given.
    **options
        For that solver, as CVXPY takes them: ``time_limit=60.0`` for Clarabel.

    Raises
    ------
    ModuleNotFoundError
        Without CVXPY: install the extra ``convex-reference``.
    TypeError
        For an option that the solver does not take.
    NotImplementedError
        For ReLU with several output columns, or with patterns that are not all listed.
    RuntimeError
        If the solver returns no point, at a time limit perhaps.
    """
    try:
        import cvxpy as cp
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "convex.reference needs CVXPY: pip install 'fourviews[convex-reference]'"
        ) from error
    if problem.cones and (problem.block_shape[1] > 1 or not problem.all_patterns):
        raise NotImplementedError(
            "the quasi-nuclear norm of a block with several columns has no tractable conic form"
            if problem.block_shape[1] > 1
            else "ReLU needs all activation patterns, but gates or n_gates name only some"
        )
    exact = problem.to(torch.float64).on(torch.device("cpu"))
    shape = exact.coefficient_shape
    blocks = exact.n_blocks
    p, q = exact.block_shape
    # Conic solvers stop at absolute tolerances: give them a problem of unit size, with
    # variable (|A| / unit) Z, target Y / unit and weight beta / (|A| unit).
    matrix = _matrix(exact)
    # A rough scale is enough, and a decomposition would cost most of all.
    A = torch.from_numpy(matrix)
    size = squared_operator_norm(lambda z: A.T @ (A @ z), A[:1].ravel(), 10) ** 0.5 or 1.0
    squared = exact.loss.name == "squared"
    unit = float(exact.loss.target.norm()) or 1.0 if squared else 1.0
    matrix /= size
    solver = solver or "CLARABEL"
    started = time.perf_counter()
    parts = 2 if exact.cones else 1
    variables = [[cp.Variable((p, q)) for _ in range(blocks)] for _ in range(parts)]
    flat = [cp.hstack([cp.vec(block, order="C") for block in variable]) for variable in variables]
    prediction = matrix @ (flat[0] - flat[1] if exact.cones else flat[0])
    norm = sum(_norm(cp, block) for variable in variables for block in variable)
    constraints = []
    if exact.cones:
        for j in range(blocks):
            K = exact.cone_matrix(j)
            constraints += [K @ variable[j] >= 0 for variable in variables]
    target = exact.loss.target.numpy() / unit
    weight = exact.beta / (size * unit)
    model = cp.Problem(
        cp.Minimize(_loss(cp, exact, prediction, target) + weight * norm), constraints
    )
    try:
        model.solve(solver=solver, **options)
    except cp.SolverError as error:
        raise RuntimeError(f"CVXPY's solver failed: {error}") from error
    except TypeError as error:
        if not options:
            raise
        raise TypeError(
            f"reference hands {', '.join(options)} on to CVXPY's {solver}, which does not take all of"
            f" it ({error}){_known(solver)}"
        ) from error
    if variables[0][0].value is None:
        raise RuntimeError(f"CVXPY returned no point, status {model.status!r}")
    values = np.array([[block.value for block in variable] for variable in variables])
    values *= unit / size
    Z = torch.from_numpy(values[0] - values[1] if exact.cones else values[0]).reshape(shape)
    neurons = None
    if exact.cones:
        neurons = neurons_from_parts(values[..., 0])
        network = exact._units(*neurons)
        with torch.no_grad():
            predicted = network(exact.X)
        objective = exact.network_objective(network)
        neurons = Neurons(neurons.first.to(problem.X), neurons.second.to(problem.X), neurons.block)
    else:
        predicted = exact.forward(Z)
        objective = float(exact.loss.value(predicted) + exact.beta * nuclear_norm(Z))
    bound = min(lower_bound(exact, predicted), objective)
    history = [Record(1, time.perf_counter() - started, objective, bound)]
    return Solution(
        problem,
        Z.to(problem.X),
        objective,
        bound,
        tol,
        int(model.solver_stats.num_iters or 0),
        f"cvxpy/{model.solver_stats.solver_name}",
        history,
        neurons,
    )


def _matrix(problem: Problem) -> np.ndarray:
    """A as a dense matrix, one forward pass a column."""
    shape = problem.coefficient_shape
    size = int(np.prod(shape))
    columns = []
    for i in range(size):
        unit = torch.zeros(size, dtype=torch.float64)
        unit[i] = 1.0
        columns.append(problem.forward(unit.reshape(shape)).ravel())
    return torch.stack(columns, dim=1).numpy()


def _known(solver: str) -> str:
    """The settings of CVXPY's own solver, for a message; nothing of others, which do not list them."""
    if solver != "CLARABEL":
        return ""
    import clarabel

    settings = clarabel.DefaultSettings()
    names = [name for name in dir(settings) if not name.startswith("_")]
    known = [name for name in names if not callable(getattr(settings, name))]
    return f"; there are {', '.join(known)}"


def _norm(cp: Any, block: Any) -> Any:
    return cp.norm(cp.vec(block, order="C"), 2) if 1 in block.shape else cp.normNuc(block)


def _loss(cp: Any, problem: Problem, prediction: Any, target: np.ndarray) -> Any:
    if problem.loss.name == "squared":
        return 0.5 * cp.sum_squares(prediction - target.ravel())
    scores = cp.reshape(prediction, (target.size // target.shape[-1], target.shape[-1]), order="C")
    return cp.sum(cp.log_sum_exp(scores, axis=1)) - target.ravel() @ prediction
