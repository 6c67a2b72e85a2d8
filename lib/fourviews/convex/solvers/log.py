"""Bookkeeping shared by the solvers: best iterate, best bound, history, progress bar."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from fourviews.display import progress as progress_bar

from ..certificates import lower_bound, relative_gap
from ..problem import Problem
from ..shards import Shards
from ..solution import Record, Solution, objective_at_zero

__all__ = ["Log"]

# Iterations without progress, beyond twice those that made the best gap, before a solve gives up.
_PATIENCE = 1000


class Log:
    """Keeps the best objective with its point, the best lower bound, and when to check next.

    The certificate is evaluated in float64 whatever the iterates' precision is.
    """

    def __init__(
        self,
        problem: Problem,
        tol: float,
        label: str,
        total: int,
        enabled: bool | None,
        time_limit: float | None = None,
        patience: int = _PATIENCE,
        shards: Shards | None = None,
    ):
        self.patience, self.total = patience, total
        self.time_limit = float("inf") if time_limit is None else time_limit
        self.problem, self.tol, self.shards = problem, tol, shards
        # Data that come in shards are never copied as a whole.
        self.exact = problem.to(torch.float64) if shards is None else None
        self.at_zero = objective_at_zero(problem) if shards is None else shards.at_zero
        if shards is not None and shards.group.rank > 0:
            enabled = False
        self.objective, self.bound = float("inf"), 0.0
        self.best: object = None
        self.history: list[Record] = []
        self.started, self.earlier = time.perf_counter(), 0.0
        self.bar = progress_bar(total=total, label=label, enabled=enabled)
        self.done, self.next_check = 0, 1
        self.best_gap, self.best_gap_at = float("inf"), 0

    def due(self, iteration: int) -> bool:
        # Checks get rarer: their cost stays a fraction of the run's.
        if iteration < self.next_check:
            return False
        self.next_check = (
            max(iteration + 10, int(1.1 * iteration)) if iteration >= 10 else iteration + 3
        )
        return True

    def check(self, iteration: int, Z: Tensor, prediction: Tensor | None = None) -> bool:
        """Note coefficients as they will be stored, if a check is due; True to stop.

        The objective is that of the stored coefficients.  The dual point comes from
        ``prediction`` where the method has a better one than theirs.
        """
        if not (self.due(iteration) or iteration in (0, self.total)):
            return False
        return self.note(iteration, Z, prediction)

    def note(self, iteration: int, Z: Tensor, prediction: Tensor | None = None) -> bool:
        """As :meth:`check`, whether a check is due or not."""
        stored = Z.to(self.problem.X.dtype)
        if self.shards is not None:
            found = self.shards.certificate(stored)
            return self.record(iteration, stored, found.objective, None, bound=found.lower_bound)
        exact = stored.double()
        own = self.exact.forward(exact)
        objective = float(self.exact.loss.value(own) + self.problem.beta * self.exact.norm(exact))
        return self.record(iteration, stored, objective, own if prediction is None else prediction)

    def record(
        self,
        iteration: int,
        point: object,
        objective: float,
        prediction: Tensor | None,
        *,
        polar: float | None = None,
        bound: float | None = None,
    ) -> bool:
        """Note a point, with its bound or its predictions; True when the best objective and the best bound are within ``tol``, when
        the gap has stopped shrinking, as it does at the limit of the iterates' precision, or when
        the time is up."""
        if objective < self.objective:
            self.objective, self.best = objective, point
        if bound is None:
            bound = lower_bound(self.exact, prediction, polar=polar)
        # Rounding may lift a tight bound above the objective by a few units in the last place.
        self.bound = max(self.bound, bound)
        self.history.append(
            Record(
                iteration,
                self.seconds,
                self.objective,
                min(self.bound, self.objective),
            )
        )
        gap = self.gap
        self.bar.update(iteration - self.done)
        self.bar.set_postfix_str(f"gap {gap:.1e}", refresh=False)
        self.done = iteration
        if gap < 0.99 * self.best_gap:
            self.best_gap, self.best_gap_at = gap, iteration
        late = self.seconds - self.earlier > self.time_limit
        if self.shards is not None and self.time_limit < float("inf"):
            late = self.shards.group.total(late) > 0  # one for all: clocks differ
        return gap <= self.tol or late or iteration > 2 * self.best_gap_at + self.patience

    @property
    def seconds(self) -> float:
        """Since the solve began, without those between a checkpoint and its resumption."""
        return self.earlier + time.perf_counter() - self.started

    @property
    def gap(self) -> float:
        return relative_gap(self.objective, self.bound, self.at_zero)

    def state(self) -> dict[str, object]:
        """All but the best point, as plain numbers."""
        return {
            "objective": self.objective,
            "bound": self.bound,
            "best_gap": self.best_gap,
            "best_gap_at": self.best_gap_at,
            "seconds": self.seconds,
            "history": [tuple(record) for record in self.history],
        }

    def restore(self, state: dict) -> None:
        """Go on from what :meth:`state` gave; the time limit is for this run alone."""
        self.objective, self.bound = state["objective"], state["bound"]
        self.best_gap, self.best_gap_at = state["best_gap"], state["best_gap_at"]
        self.earlier = state["seconds"]
        self.history = [Record(*record) for record in state["history"]]

    def solution(self, iterations: int, method: str) -> Solution:
        """The best coefficients, with the best bound."""
        return Solution(
            self.problem,
            self.best,
            self.objective,
            min(self.bound, self.objective),
            self.tol,
            iterations,
            method,
            self.history,
            at_zero=self.at_zero,
        )

    def close(self) -> None:
        self.bar.close()
