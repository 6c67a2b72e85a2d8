"""Checks of the lab «Twelve layers on film reviews»."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator

from ..unrolled import AttentionEnergy, PublishedTransformer
from .checking import close, exercise, number, require, run, tensor


@exercise("ex-lab-along")
def energies_by_hand(generator: Generator, along: Callable) -> None:
    """Texts of different lengths against the closed form for equal tokens, and for a shrinking one."""
    lengths = [int(n) for n in torch.randint(2, 9, (4,), generator=generator)]
    energy = AttentionEnergy(confinement=1.0)
    texts = [torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in lengths]
    got = tensor(
        run(along, energy.value, energy.step, texts, 3), (4, 4), "along(energy, step, texts, 3)"
    )
    start = torch.stack([energy.value(X) for X in texts])
    counts = torch.tensor(lengths, dtype=torch.float64)
    close(got[:, 0] * counts, start, "the first column is not the energy per token of the input")
    first = torch.stack([energy.value(energy.step(X)) for X in texts])
    close(got[:, 1] * counts, first, "the second column is not the energy after one layer")
    require(bool((got.diff(dim=1) < 0).all()), "a step of the energy seems to raise it")


@exercise("ex-lab-average")
def mean_falls_texts_rise(generator: Generator, hidden_rises: Callable) -> None:
    """Counts of rises, and the mean."""
    for _ in range(3):
        m = int(torch.randint(3, 30, (), generator=generator))
        energies = tensor(run(hidden_rises, m), (m, 3), "hidden_rises(m)", dtype=torch.float64)
        change = energies.diff(dim=1)
        require(
            bool((change.mean(0) < 0).all()), f"for m = {m} the mean does not fall at both layers"
        )
        rising = int((change > 0).all(1).sum())
        require(rising == m - 1, f"for m = {m}, {rising} texts rise at both layers, not {m - 1}")


@exercise("ex-lab-published")
def two_attentions(generator: Generator, published: Callable, corrected: Callable) -> None:
    """Against the two models of the library, on random tokens and weights."""
    for _ in range(3):
        n, d = (int(k) for k in torch.randint(3, 7, (2,), generator=generator))
        Y = torch.randn(n, d, generator=generator, dtype=torch.float64)
        W = torch.randn(d, d, generator=generator, dtype=torch.float64)
        model = PublishedTransformer(d, 1, dtype=torch.float64)
        with torch.no_grad():
            model.attention_weight.copy_(W)
            wanted = model.attention(Y, Y)
        got = tensor(run(published, Y, W), (n, d), "published(Y, W)")
        close(got, wanted, "published(Y, W) is not softmax(Y Wᵀ W Yᵀ) Y")
        lam = 0.5 + 2 * float(torch.rand((), generator=generator))
        got = tensor(run(corrected, Y, W, lam), (n, d), "corrected(Y, W, lam)")
        energy = AttentionEnergy(confinement=lam, weight=W)
        close(got, energy.step(Y), "corrected(Y, W, lam) is not the step of the energy", atol=1e-7)


@exercise("ex-lab-cycle")
def fixed_point(generator: Generator, rest: Callable) -> None:
    """Many layers from a random start."""
    for _ in range(3):
        mu, h, x, alpha, start = (
            0.2 + 0.7 * torch.rand(5, generator=generator, dtype=torch.float64)
        ).tolist()
        y = start
        for _ in range(2000):
            u = y + alpha * ((y + mu / 2 * x) / (1 + mu / 2) - y)
            y = (1 - alpha * h) * u
        got = number(run(rest, mu, h, x, alpha), "rest(mu, h, x, alpha)")
        close(
            torch.tensor(got).double(),
            torch.tensor(y).double(),
            f"2000 layers end elsewhere (alpha = {alpha:.2f})",
        )
