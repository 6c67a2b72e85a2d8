"""Gated ReLU with one output: against RFISTA of pyscnn and the group lasso of celer.

All work on the same data, gates and objective.  A peer is asked for a tolerance of its own, ever
smaller, until its objective is within the target of the optimum; the time of that run alone counts.
It need not prove anything, while our time includes the certificate.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch
from problems import Case, build
from results import OURS, Row

from fourviews import convex

TARGET = 1e-6
TOLERANCES = tuple(10.0**-power for power in range(6, 15))


def peers_gates(problem: convex.Problem) -> convex.Problem:
    """The problem with its gates in the order in which pyscnn keeps them."""
    model, _ = _scnn(problem, 1e-1, max_iters=1)
    gates = torch.from_numpy(np.asarray(model.G, dtype=np.float64).T.copy())
    twin = convex.MLP(
        problem.X,
        problem.loss.target,
        beta=problem.beta,
        activation="gated_relu",
        gates=gates,
    )
    assert len(twin.masks) == len(problem.masks)
    return twin


def _scnn(problem: convex.Problem, tol: float, max_iters: int = 20_000):
    from scnn.metrics import Metrics
    from scnn.models import ConvexGatedReLU
    from scnn.optimize import optimize_model
    from scnn.regularizers import NeuronGL1
    from scnn.solvers import RFISTA

    model = ConvexGatedReLU(problem.gates.numpy().T, c=1)
    solver = RFISTA(model, max_iters=max_iters, tol=tol)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, _ = optimize_model(
            model,
            solver,
            Metrics(),
            problem.X.numpy(),
            problem.loss.target.numpy(),
            regularizer=NeuronGL1(problem.beta / len(problem.X)),  # its loss averages
            return_convex=True,
            unitize_data=False,
            dtype="float64",
        )
    return model, time.perf_counter() - started


def rfista(problem: convex.Problem, tol: float) -> tuple[torch.Tensor, float]:
    model, seconds = _scnn(problem, tol)
    Z = torch.from_numpy(np.asarray(model.parameters[0], dtype=np.float64))
    return Z.reshape(problem.coefficient_shape), seconds


def celer(problem: convex.Problem, tol: float) -> tuple[torch.Tensor, float]:
    from celer import GroupLasso

    X, masks = problem.X.numpy(), problem.masks.numpy()
    started = time.perf_counter()
    # The design matrix [D_1 X … D_P X] is what this package works on.
    design = np.asfortranarray((masks.T[:, :, None] * X[:, None, :]).reshape(len(X), -1))
    model = GroupLasso(
        groups=X.shape[1],
        alpha=problem.beta / len(X),
        fit_intercept=False,
        tol=tol,
        max_iter=1000,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(design, problem.loss.target.numpy()[:, 0])
    seconds = time.perf_counter() - started
    return torch.from_numpy(model.coef_).reshape(problem.coefficient_shape), seconds


def to_target(
    solver: Callable, problem: convex.Problem, bound: float, limit: float
) -> tuple[float, float, bool]:
    """Seconds and excess of the first run within the target; False if none within ``limit``."""
    best = float("inf")
    for tol in TOLERANCES:
        Z, seconds = solver(problem, tol)
        best = problem.objective(Z) / bound - 1
        if best <= TARGET:
            return seconds, best, True
        if seconds > limit:
            break
    return seconds, best, False


def compare(case: Case, n_gates: int, peers: dict[str, Callable], limit: float) -> Iterator[str]:
    problem = peers_gates(build(case, "gated_relu", n_gates))
    exact = convex.newton(problem, tol=1e-10, progress=False)
    started = time.perf_counter()
    ours = convex.solve(problem, tol=TARGET, progress=False)
    seconds = time.perf_counter() - started
    assert ours.converged
    known = {"problem": f"{case}, {len(problem.masks)} gates", "size": case.n}
    yield Row(
        f"{case}, {len(problem.masks)} gates: {ours.method}, {ours.iterations} steps, "
        f"{seconds:.2f} s, certified gap {ours.relative_gap:.1e}, {ours.rank} active gates",
        "gated",
        **known,
        solver=f"{OURS}, {ours.method}",
        seconds=seconds,
        ratio=1.0,
        accuracy=ours.relative_gap,
    )
    for name, solver in peers.items():
        peer, excess, reached = to_target(solver, problem, exact.lower_bound, limit)
        said = "" if reached else f" (target not reached: {excess:.1e})"
        yield Row(
            f"    {name:18} {peer:8.2f} s   ratio {peer / seconds:7.1f}{said}",
            "gated",
            **known,
            solver=name,
            seconds=peer,
            ratio=peer / seconds,
            accuracy=excess,
        )


def tables(quick: bool = False) -> Iterator[str]:
    yield "Gated ReLU, one output: time to relative accuracy 1e-6"
    yield ""
    both = {"pyscnn RFISTA": rfista, "celer GroupLasso": celer}
    for share in (0.1, 0.01):
        yield from compare(Case(600, 20, 1, share), 500, both, limit=120)
    design = 5000 * 1000 * 100 * 8 / 1e9
    yield f"    celer's design matrix for the next one would hold {design:.1f} GB: left out"
    if not quick:
        for share in (0.1, 0.01):
            peers = {"pyscnn RFISTA": rfista}
            yield from compare(Case(5000, 100, 1, share), 1000, peers, limit=90)
