"""The convex program over chosen ReLU neurons: what fully corrective solvers and splits solve."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..certificates import relative_gap
from ..problem import Problem
from ..solution import objective_at_zero
from .fista import iterate


class OverNeurons:
    r"""The program over given neurons: :math:`\min_V L(\sum_kA_{j(k)}(u_kv_k^\top)) + \beta\sum_k\|v_k\|`.

    The variable holds one row :math:`v_k` for each unit vector :math:`u_k`.
    """

    def __init__(self, problem: Problem, units: Float[Tensor, "m p"], block: Tensor):
        self.problem, self.loss, self.units = problem, problem.loss, units
        self.group = problem.group_of(block)
        self.masks = (problem.first_layer(units, self.group) >= 0).to(units.dtype)

    def forward(self, V: Float[Tensor, "m q"]) -> Tensor:
        Z = self.units[:, :, None] * V[:, None, :]
        return self.problem.outputs(Z, self.masks, self.group)

    def adjoint(self, R: Tensor) -> Float[Tensor, "m q"]:
        blocks = self.problem.outputs_adjoint(R, self.masks, self.group)
        return torch.einsum("mp,mpq->mq", self.units, blocks)

    def prox(self, V: Tensor, step: float) -> Tensor:
        size = torch.linalg.vector_norm(V, dim=1, keepdim=True)
        shrunk = (size - step * self.problem.beta).clamp_min(0)
        return V * (shrunk / size.clamp_min(torch.finfo(V.dtype).tiny))

    def solve(self, V: Tensor, tol: float) -> Tensor:
        """Minimiser over these neurons to a relative gap of ``tol``, from V."""
        beta, at_zero = self.problem.beta, objective_at_zero(self.problem)
        best, best_value, bound = V, float("inf"), 0.0

        def check(iteration: int, W: Tensor, F: Tensor) -> bool:
            nonlocal best, best_value, bound
            if iteration % 10:
                return False
            own = self.forward(W)
            value = float(self.loss.value(own) + beta * torch.linalg.vector_norm(W, dim=1).sum())
            if value < best_value:
                best, best_value = W, value
            residual = self.loss.gradient(own)
            polar = float(torch.linalg.vector_norm(self.adjoint(residual), dim=1).max())
            bound = max(bound, self.loss.dual_bound(residual, beta / max(polar, 1e-300)))
            return relative_gap(best_value, bound, at_zero) <= tol

        iterate(self, V, max_iterations=2000, check=check)
        return best
