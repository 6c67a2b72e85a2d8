"""Checks of the lesson «Designing attention»."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from ..unrolled import AttentionEnergy, Rho
from .checking import close, exercise, require, run, tensor


def _unit_tokens(generator: Generator, *shape: int) -> Tensor:
    Y = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return Y / Y.norm(dim=-1, keepdim=True)


def _penalty(value: object, call: str) -> Rho:
    require(isinstance(value, Rho), f"{call} must return an unrolled.Rho")
    assert isinstance(value, Rho)
    return value


@exercise("ex-design-tempered")
def temperature(generator: Generator, tempered: Callable) -> None:
    """The step on unit tokens against softmax, at several temperatures."""
    for _ in range(3):
        tau = 0.2 + 3 * float(torch.rand((), generator=generator))
        rho = _penalty(run(tempered, tau), "tempered(tau)")
        Y = _unit_tokens(generator, 6, 4)
        wanted = torch.softmax(Y @ Y.T / tau, -1) @ Y
        close(
            AttentionEnergy(rho).step(Y),
            wanted,
            "the attention step on tokens of length one is not softmax at temperature tau",
        )


@exercise("ex-design-window")
def window_with_bias(generator: Generator, local_energy: Callable) -> None:
    """The step against a masked softmax with bias, and descent."""
    for _ in range(3):
        n = int(torch.randint(6, 10, (1,), generator=generator))
        k = int(torch.randint(1, 4, (1,), generator=generator))
        m = 0.2 + float(torch.rand((), generator=generator))
        energy = run(local_energy, n, k, m, torch.float64)
        require(
            isinstance(energy, AttentionEnergy),
            "local_energy must return an unrolled.AttentionEnergy",
        )
        Y = _unit_tokens(generator, n, 4)
        i = torch.arange(n)
        apart = (i[:, None] - i).abs().double()
        scores = (Y @ Y.T - m * apart).masked_fill(apart > k, -torch.inf)
        step = tensor(run(energy.step, Y), (n, 4), "the step")
        inside = energy.weights(Y) > 0
        require(
            bool(((apart <= k) | ~inside).all()),
            f"tokens farther apart than the window of {k} see each other",
        )
        require(bool(((apart > k) | inside).all()), "some token of the window is not seen")
        close(
            step,
            torch.softmax(scores, -1) @ Y,
            "the step is not the mean with the softmax of scores less m |i − j|",
        )
        far = 3 * torch.randn(50, n, 4, generator=generator, dtype=torch.float64)
        rise = energy.value(energy.step(far)) - energy.value(far)
        require(float(rise.max()) < 1e-9, "the step raises the energy")


@exercise("ex-design-own")
def own_penalty(generator: Generator, my_rho: Callable) -> None:
    """Spread and crowded texts: diversity, weight given to others, and descent."""

    def spread(Y: Tensor) -> float:
        return float((Y - Y.mean(-2, keepdim=True)).square().sum(-1).mean())

    # In random order, so that no list of penalties fits by chance.
    for power in torch.randperm(4, generator=generator).tolist():
        crowd = 2.0**power - 1
        Y = torch.randn(100, 8, 4, generator=generator, dtype=torch.float64) + crowd
        Y = Y / Y.norm(dim=-1, keepdim=True)
        kind = "crowded" if crowd else "spread"
        energy = AttentionEnergy(_penalty(run(my_rho, Y), "my_rho(Y)"))
        weights = energy.weights(Y)
        kept = weights.diagonal(dim1=-2, dim2=-1) / weights.sum(-1)
        given = 1 - float(kept.mean())
        require(
            given >= 0.1,
            f"{kind} texts: in the first layer only {given:.1%} of the weight goes to other tokens",
        )
        start = spread(Y)
        for _ in range(6):
            before, moved = energy.value(Y), energy.step(Y)
            rise = float((energy.value(moved) - before).max())
            require(rise < 1e-9, "the step raises the energy")
            Y = moved / moved.norm(dim=-1, keepdim=True)
        left = spread(Y) / start
        require(
            left >= 0.7,
            f"{kind} texts: after six layers only {left:.1%} of the diversity is left",
        )
