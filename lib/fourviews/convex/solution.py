"""What a solver returns: coefficients, the certificate, and the way to a network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from .certificates import relative_gap
from .network import TwoLayerNetwork, balanced_factors
from .problem import Problem

__all__ = ["Neurons", "Record", "Solution", "neurons_from_parts", "objective_at_zero"]


class Record(NamedTuple):
    """State at one check: best objective and best lower bound so far."""

    iteration: int
    seconds: float
    objective: float
    lower_bound: float


class Neurons(NamedTuple):
    """A ReLU solution: unit k has weights first[k] and second[k], and pattern block[k]."""

    first: Tensor
    second: Tensor
    block: Tensor


def neurons_from_parts(parts: Float[np.ndarray, "2 P p"], tolerance: float = 0.0) -> Neurons:
    r"""Balanced one-column neurons from parts a_j (first) and b_j of :math:`z_j = a_j - b_j`.

    A part u becomes :math:`(u/\sqrt{\|u\|}, \pm\sqrt{\|u\|})`; parts of length up to
    ``tolerance`` times the longest are left out.
    """
    lengths = np.linalg.norm(parts, axis=-1)
    side, block = np.nonzero(lengths > tolerance * lengths.max(initial=0.0))
    root = np.sqrt(lengths[side, block])[:, None]
    return Neurons(
        torch.from_numpy(parts[side, block] / root),
        torch.from_numpy(np.where(side == 0, 1.0, -1.0)[:, None] * root),
        torch.from_numpy(block),
    )


@dataclass
class Solution:
    r"""Outcome of a solve, judged by its certificate and by nothing else.

    Attributes
    ----------
    problem : Problem
    coefficients : tensor
        The matrix Z whose norm is taken, (p, q), with a leading gate axis unless linear.
    objective : float
        Value of the objective at the solution, computed in float64.
    lower_bound : float
        Proved lower bound on the optimal value.
    relative_gap : float
        (objective − lower_bound) / max(lower_bound, 10⁻¹² · objective at zero).
    converged : bool
        ``relative_gap <= tol``.
    tol : float
    iterations : int
    method : str
    history : list of Record
        Best objective and lower bound at each check.
    neurons : Neurons or None
        For ReLU the units that realise the objective (the coefficients alone do not fix them);
        for the factored solver its units.
    at_zero : float or None
        Objective of the zero network; None if it is that of ``problem`` (with processes it is over
        the samples of all of them, the problem is this one's part).
    """

    problem: Problem
    _coefficients: Float[Tensor, "*G p q"] | None = field(repr=False)
    objective: float
    lower_bound: float
    tol: float
    iterations: int
    method: str
    history: list[Record] = field(repr=False)
    neurons: Neurons | None = field(default=None, repr=False)
    at_zero: float | None = field(default=None, repr=False)

    @property
    def coefficients(self) -> Float[Tensor, "*G p q"]:
        """The matrix Z; multiplied out from the units on first use if a solver keeps only those."""
        if self._coefficients is None:
            units, shape = self.neurons, self.problem.coefficient_shape
            Z = units.first.new_zeros(self.problem.n_blocks, *self.problem.block_shape)
            products = torch.einsum("mp,mq->mpq", units.first, units.second)
            self._coefficients = Z.index_add_(0, units.block, products).reshape(shape)
        return self._coefficients

    @property
    def relative_gap(self) -> float:
        at_zero = objective_at_zero(self.problem) if self.at_zero is None else self.at_zero
        return relative_gap(self.objective, self.lower_bound, at_zero)

    @property
    def converged(self) -> bool:
        return self.relative_gap <= self.tol

    @property
    def rank(self) -> int:
        """Number of hidden units that the solution needs: for linear and gated ReLU the
        singular values above 10⁻⁶ times the largest, over all blocks; for ReLU the neurons."""
        if self.neurons is not None:
            return len(self.neurons.first)
        s = torch.linalg.svdvals(self.coefficients)
        return int((s > 1e-6 * s.max()).sum()) if s.max() > 0 else 0

    def network(self, *, tolerance: float | None = None) -> TwoLayerNetwork:
        r"""The non-convex network with the same objective, weight decay included.

        Each block is split into balanced rank-one parts, :math:`Z_j = \sum_k u_k v_k^\top` with
        :math:`\|u_k\| = \|v_k\|`, so that weight decay equals the norm.

        Parameters
        ----------
        tolerance : float, optional
            Drop units with singular value up to this times the largest.  Default: rounding,
            which keeps the objective.  Where the solver worked with units, those are returned.

        Returns
        -------
        torch module with the same input as X.
        """
        problem = self.problem
        if self.neurons is not None:
            return problem._units(*self.neurons)
        if tolerance is None:
            tolerance = torch.finfo(self.coefficients.dtype).eps
        blocks = self.coefficients.reshape(-1, *problem.block_shape)
        first, second, block = balanced_factors(blocks, tolerance)
        return problem._units(first, second, block)

    def predict(self, X_new: Float[Tensor, "n *s d"] | np.ndarray) -> Float[Tensor, "n *t c"]:
        """Outputs on new data: class scores under cross-entropy.  Errors as for X."""
        twin = self.problem.with_data(X_new)
        if self.neurons is not None:
            with torch.no_grad():
                return self.network()(twin.X)
        return twin.outputs(self.coefficients.reshape(-1, *twin.block_shape), twin.masks)

    def __str__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        return (
            f"objective {self.objective:.8g}, lower bound {self.lower_bound:.8g}, relative gap "
            f"{self.relative_gap:.1e} ({state} at {self.tol:g}), rank {self.rank}, "
            f"{self.iterations} iterations of {self.method}"
        )


def objective_at_zero(problem: Problem) -> float:
    """Loss of the zero network: the yardstick of the gap."""
    loss = problem.loss.to(torch.float64)
    return float(loss.value(torch.zeros_like(loss.target)))
