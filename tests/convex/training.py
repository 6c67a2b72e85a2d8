"""Local training of the non-convex networks, the opponent of the convex optimum."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize

from fourviews import convex


def train(problem: convex.Problem, units: int, seed: int, *, decay: float | None = None) -> float:
    """Objective that a network with ``units`` hidden units reaches from a random start (L-BFGS).

    ``decay`` replaces beta in the weight decay: the true pairing is ``decay = beta``.
    """
    decay = problem.beta if decay is None else decay
    generator = torch.Generator().manual_seed(seed)
    p, q = problem.block_shape
    first = torch.randn(units, p, generator=generator, dtype=torch.float64)
    second = 0.5 * torch.randn(units, q, generator=generator, dtype=torch.float64)
    gates = None
    if problem.activation == "gated_relu":
        flat = problem.gates_to_rows(problem.gates)
        gates = flat[torch.arange(units) % len(flat)]
    network = problem.hidden_layers(first, second, gates)
    parameters = [network.first, network.second]

    def value_and_gradient(theta: np.ndarray) -> tuple[float, np.ndarray]:
        flat = torch.from_numpy(theta)
        with torch.no_grad():
            network.first.copy_(flat[: first.numel()].reshape(first.shape))
            network.second.copy_(flat[first.numel() :].reshape(second.shape))
        network.zero_grad()
        value = problem.loss.value(network(problem.X)) + decay * network.weight_decay()
        value.backward()
        gradient = torch.cat([w.grad.ravel() for w in parameters])
        return float(value.detach()), gradient.numpy()

    start = torch.cat([first.ravel(), second.ravel()]).numpy()
    result = minimize(
        value_and_gradient,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 3000, "maxfun": 6000},
    )
    return float(result.fun)
