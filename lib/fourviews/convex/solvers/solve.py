"""One call for every problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..options import keywords, refuse_unknown
from ..problem import Problem, _is_integer, _is_number, _one_of
from ..solution import Solution
from .factored import factored
from .fista import fista
from .frank_wolfe import frank_wolfe
from .newton import newton
from .relu_corrective import fully_corrective
from .relu_several import relu_neurons
from .relu_splitting import relu_bounds, relu_on_cones
from .splitting import decomposition_pays, splitting

__all__ = ["solve"]

NAMED = {
    "factored": factored,
    "fista": fista,
    "frank_wolfe": frank_wolfe,
    "newton": newton,
    "splitting": splitting,
}
METHODS = ("auto", *NAMED)
# Beyond this many rows a Newton step, which factors a matrix of that side, is too dear.
_LARGEST_HESSIAN = 8000


def solve(
    problem: Problem,
    *,
    tol: float = 1e-6,
    method: str = "auto",
    max_iterations: int = 20_000,
    progress: bool | None = None,
    time_limit: float | None = None,
    **options: Any,
) -> Solution:
    r"""Solve a convex program and certify the result.

    ==============  =========================================  =============================
    activation      method                                     what the lower bound rests on
    ==============  =========================================  =============================
    linear, gated   ``"newton"``: squared loss, one column     spectral norms of A*(R):
                    (auto there, up to 8000 rows)              closes
                    ``"splitting"``: any loss (auto for
                    squared, and for float32, up to 2000
                    rows, and to 8000 where iterations are
                    dear)
                    ``"fista"``: any loss (auto otherwise)
                    ``"frank_wolfe"``: any loss
                    ``"factored"``: any loss, when Z is too
                    large
    relu, 1 column  fully corrective (auto)                    projections onto all cones:
                    ``"splitting"`` on cones                   closes; with ``gates`` or
                                                               ``n_gates`` a bound for every
                                                               neuron: may stay open
    relu, several   fully corrective (auto)                    polars of all cones by branch
                                                               and bound: closes
                    relaxation, then descent or, on listed     a bound for every neuron: may
                    patterns, better weights (auto with        stay open
                    ``gates`` or ``n_gates``)
    ==============  =========================================  =============================

    ReLU with ``beta=0`` takes relaxation and descent: without regularisation the cones cost
    nothing.

    Parameters
    ----------
    problem : Problem
    tol : float
        Relative gap at which to stop.  FISTA and Frank–Wolfe work in the input's precision: in float32
        they reach about 1e-4 and stop when the gap no longer shrinks.
    method : {"auto", "factored", "fista", "frank_wolfe", "newton", "splitting"}
    max_iterations : int
    progress : bool, optional
        Show a progress bar; by default only when the solve takes more than a second.
    time_limit : float, optional
        Seconds after which the solve ends at its next check, with the best it has.
    **options
        Passed to the method, such as ``start`` (FISTA, Newton, splitting), ``step``
        (Frank–Wolfe) or ``shard`` (factored).

    Returns
    -------
    Solution
        ``converged`` says whether the certified gap is at most ``tol``, nothing else.

    Raises
    ------
    TypeError
        For an option that the method does not take.
    ValueError
        For a tolerance or iteration count out of range, or a method that does not apply.
    """
    if not isinstance(problem, Problem):
        raise ValueError(
            f"problem must be a convex.Problem such as convex.MLP(…), got {type(problem).__name__}"
        )
    if not (_is_number(tol) and 0 <= tol < float("inf")):
        raise ValueError(f"tol must be a finite number >= 0, got {tol!r}")
    if not (_is_integer(max_iterations) and max_iterations >= 1):
        raise ValueError(f"max_iterations must be an integer >= 1, got {max_iterations!r}")
    solver = _solver(problem, method)
    refuse_unknown_options(solve, problem, method, options)
    if time_limit is not None and not (_is_number(time_limit) and time_limit > 0):
        raise ValueError(f"time_limit must be a number of seconds > 0, got {time_limit!r}")
    return solver(
        problem,
        tol=tol,
        max_iterations=max_iterations,
        progress=progress,
        time_limit=time_limit,
        **options,
    )


def refuse_unknown_options(
    function: Callable,
    problem: Problem,
    method: str,
    options: Iterable[str],
    without: Iterable[str] = (),
) -> None:
    """Raise TypeError, in the name of a public function, for options that the method does not take.

    Parameters
    ----------
    function : callable
        What was called: :func:`solve`, or what hands options on to it.
    problem, method
        As for :func:`solve`.
    options, without : names
        What came, and what the function sets by itself.
    """
    solver = _solver(problem, method)
    case = 'for activation "relu"' if problem.cones else f'with method "{solver.__name__}"'
    taken = dict.fromkeys((*keywords(function), *keywords(solve), *keywords(solver)))
    known = [name for name in taken if name not in without]
    refuse_unknown(f"{function.__name__} {case}", options, known)


def _solver(problem: Problem, method: str) -> Callable[..., Solution]:
    """The function that solves this problem by this method."""
    _one_of("method", method, METHODS)
    if problem.cones:
        if method not in ("auto", "splitting"):
            raise ValueError(f'method {method!r} solves "linear" and "gated_relu", not "relu"')
        return _relu(problem, method)
    return NAMED[_choice(problem) if method == "auto" else method]


def _choice(problem: Problem) -> str:
    squared = problem.loss.name == "squared"
    if squared and problem.block_shape[1] == problem.groups == 1 and problem.beta > 0:
        if problem.gram_size <= _LARGEST_HESSIAN:
            return "newton"
    # Splitting pays for its decomposition where the loss is as curved as its bound says;
    # cross-entropy flattens out, and FISTA is several times faster.  In float32 FISTA
    # stops at about 1e-4, while splitting works in float64 inside.
    curved = squared or problem.X.dtype == torch.float32
    return "splitting" if curved and decomposition_pays(problem) else "fista"


def _relu(problem: Problem, method: str) -> Callable[..., Solution]:
    # Without regularisation the cones cost nothing: the relaxation is exact.
    if problem.beta == 0:
        return relu_bounds
    one = problem.block_shape[1] == 1
    if one and method == "auto" and problem.loss.name == "squared":
        return fully_corrective
    if one and method == "splitting":
        return relu_on_cones
    if problem.all_patterns:
        return relu_neurons
    if one:
        return relu_on_cones
    return relu_bounds
