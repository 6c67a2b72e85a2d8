r"""From a network's weights back to the coefficients of the convex program."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .network import TwoLayerNetwork
from .problem import Problem

__all__ = ["Lifted", "from_network"]


class Lifted(NamedTuple):
    """Coefficients of a network and the convex objective there."""

    coefficients: Float[Tensor, "*G p q"]
    objective: float


def from_network(problem: Problem, network: TwoLayerNetwork) -> Lifted:
    r"""Lift a network: :math:`Z_j = \sum_{k \in j} u_k v_k^\top` over the units of each gate.

    The predictions stay.  The objective does not rise:
    :math:`\|Z_j\| \le \sum_k \|u_k\|\|v_k\| \le \tfrac12\sum_k(\|u_k\|^2 + \|v_k\|^2)`.
    Units that are permuted, split, merged or (linear and gated) rotated have the same lift: the
    map is onto, not one to one.

    Parameters
    ----------
    problem : Problem
    network : TwoLayerNetwork
        As from ``Solution.network()``, or trained.

    Returns
    -------
    Lifted (coefficients, objective).  For linear and gated ReLU the objective is that of the
    coefficients; for ReLU it counts :math:`\beta\sum_k\|u_k\|\|v_k\|` for the network's own
    units, an upper bound on the quasi-nuclear norm of their sum; a neuron on the boundary of
    several cones is booked in one of them.

    Raises
    ------
    ValueError
        If sizes or activation differ from the problem's, or if a unit's pattern on the data is not
        among the problem's.
    """
    if not isinstance(problem, Problem) or not isinstance(network, TwoLayerNetwork):
        raise ValueError(
            "from_network needs a problem and a network, got "
            f"{type(problem).__name__} and {type(network).__name__}"
        )
    p, q = problem.block_shape
    if network.activation != problem.activation or network.pool != problem.pool:
        raise ValueError(
            f"network has activation {network.activation!r} and pool {network.pool!r}, the problem "
            f"{problem.activation!r} and {problem.pool!r}"
        )
    if network.first.shape[1] != p or network.second.shape[1] != q:
        raise ValueError(
            f"network must have weights (m, {p}) and (m, {q}), got {tuple(network.first.shape)} "
            f"and {tuple(network.second.shape)}"
        )
    first, second = network.first.detach().to(problem.X), network.second.detach().to(problem.X)
    units = torch.einsum("mp,mq->mpq", first, second)
    if problem.masks is None:
        Z = torch.zeros(problem.n_blocks, p, q, dtype=problem.X.dtype, device=problem.X.device)
        where = torch.zeros(len(units), dtype=torch.long, device=problem.X.device)
        Z = Z.index_add_(0, where if network.group is None else network.group, units)
        Z = Z.reshape(problem.coefficient_shape)
        return Lifted(Z, problem.to(torch.float64).objective(Z.double()))
    block = (
        _gate_index(problem, network)
        if network.gates is not None
        else problem.pattern_of(first, network.group)
    )
    if (block < 0).any():
        k = int((block < 0).nonzero()[0])
        raise ValueError(f"unit {k} has an activation pattern on X that the problem does not list")
    Z = torch.zeros(problem.coefficient_shape, dtype=problem.X.dtype, device=problem.X.device)
    Z.view(-1, p, q).index_add_(0, block, units)
    exact = problem.to(torch.float64)
    if not problem.cones:
        return Lifted(Z, exact.objective(Z.double()))
    twin = exact._units(first.double(), second.double(), block)
    lengths = torch.linalg.vector_norm(twin.first, dim=1) * torch.linalg.vector_norm(
        twin.second, dim=1
    )
    with torch.no_grad():
        return Lifted(Z, float(exact.loss.value(twin(exact.X)) + exact.beta * lengths.sum()))


def _gate_index(problem: Problem, network: TwoLayerNetwork) -> Tensor:
    """Block of each unit: the one whose mask on the data equals the unit's."""
    masks = problem.first_layer(network.gates.to(problem.X), network.group) >= 0
    groups = [0] * len(masks) if network.group is None else network.group.tolist()
    known = {
        (j % problem.groups, row.tobytes()): j
        for j, row in enumerate(problem.masks.bool().cpu().numpy())
    }
    index = [
        known.get((g, row.tobytes()), -1)
        for g, row in zip(groups, masks.cpu().numpy(), strict=True)
    ]
    return torch.tensor(index, dtype=torch.long, device=problem.X.device)
