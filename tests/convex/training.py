"""Local training of the non-convex networks, the opponent of the convex optimum."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize

from fourviews import convex


def train(
    problem: convex.Problem,
    units: int,
    seed: int,
    *,
    decay: float | None = None,
    start: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> float:
    """Objective that a network with ``units`` hidden units reaches from a random start (L-BFGS).

    ``decay`` replaces beta in the weight decay: the true pairing is ``decay = beta``.  ``start``
    replaces the random weights.
    """
    decay = problem.beta if decay is None else decay
    first, second = _drawn(problem, units, seed) if start is None else start
    network = problem.hidden_layers(first, second, _gates(problem, units))
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


def train_runs(
    problem: convex.Problem,
    units: int,
    runs: int = 20,
    *,
    steps: int = 400,
    decay: float | None = None,
) -> np.ndarray:
    """Objectives of so many networks from random starts, trained all at a time (Adam); the best
    is then trained to the end (L-BFGS).  ``decay`` as above."""
    decay = problem.beta if decay is None else decay
    drawn = [_drawn(problem, units, seed) for seed in range(runs)]
    first, second = (torch.stack(part).requires_grad_() for part in zip(*drawn, strict=True))
    network = problem.hidden_layers(*drawn[0], _gates(problem, units))

    def objective(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        outputs = torch.func.functional_call(network, {"first": u, "second": v}, (problem.X,))
        weights = u.square().sum() + v.square().sum()
        return problem.loss.value(outputs) + 0.5 * decay * weights

    every = torch.func.vmap(objective)
    adam = torch.optim.Adam([first, second], lr=0.05)
    cool = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for _ in range(steps):
        adam.zero_grad()
        every(first, second).sum().backward()
        adam.step()
        cool.step()
    with torch.no_grad():
        values = every(first, second).numpy().copy()
    best = int(values.argmin())
    values[best] = train(
        problem, units, 0, decay=decay, start=(first[best].detach(), second[best].detach())
    )
    return values


def _drawn(problem: convex.Problem, units: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    p, q = problem.block_shape
    first = torch.randn(units, p, generator=generator, dtype=torch.float64)
    return first, 0.5 * torch.randn(units, q, generator=generator, dtype=torch.float64)


def _gates(problem: convex.Problem, units: int) -> torch.Tensor | None:
    if problem.activation != "gated_relu":
        return None
    flat = problem.gates_to_rows(problem.gates)
    return flat[torch.arange(units) % len(flat)]
