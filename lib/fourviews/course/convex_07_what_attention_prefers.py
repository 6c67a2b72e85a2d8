"""Checks of the lesson «What attention prefers»."""

from __future__ import annotations

from collections.abc import Callable

import torch
from sklearn.metrics import adjusted_rand_score
from torch import Generator

from .. import convex
from .checking import close, exercise, number, require, run, tensor
from .draws import between, gaussian


@exercise("ex-prefers-map")
def map_of_tokens(generator: Generator, token_map: Callable) -> None:
    """Against the head itself, on data whose sizes all differ."""
    s, d, c = between(generator, 5, 7), between(generator, 3, 4), 2
    X, Z = gaussian(generator, s, d), gaussian(generator, d * d, d * c)
    M = tensor(run(token_map, Z, X), (d, c), "token_map(Z, X)")
    # A head with any target: only its outputs are used.
    head = convex.SelfAttention(X[None], torch.zeros(1, s, c, dtype=X.dtype), beta=1.0)
    close(X @ M, head.forward(Z)[0], "X @ token_map(Z, X) is not the output of the head")


@exercise("ex-prefers-rand")
def rand_index(generator: Generator, adjusted_rand: Callable) -> None:
    """Equal up to names, unrelated and related groupings, of different numbers of groups."""
    s = between(generator, 20, 30)
    a = torch.randint(0, 3, (s,), generator=generator)
    a[:3] = torch.arange(3)
    renamed = (a + 1) % 3
    value = number(run(adjusted_rand, a, renamed), "adjusted_rand(a, renamed)")
    require(
        abs(value - 1) < 1e-9,
        f"the same grouping with other names has index 1; adjusted_rand finds {value:.4g}",
    )
    other = torch.randint(0, 4, (s,), generator=generator)
    mixed = torch.where(torch.rand(s, generator=generator) < 0.7, a, other)
    for b, words in ((other, "two unrelated groupings"), (mixed, "two related groupings")):
        value = number(run(adjusted_rand, a, b), "adjusted_rand(a, b)")
        wanted = float(adjusted_rand_score(a.numpy(), b.numpy()))
        close(value, wanted, f"wrong for {words} of {s} items")


@exercise("ex-prefers-optima")
def chosen_prediction(generator: Generator, optimum: Callable) -> None:
    """Objective, training outputs and prediction."""
    X = torch.eye(2, dtype=torch.float64)[:, None]
    Y = torch.ones(2, 1, 1, dtype=torch.float64)
    for _ in range(3):
        beta, share = (0.1 + 0.8 * torch.rand(2, generator=generator).double()).tolist()
        value = share * 4 * (1 - beta)
        Z = tensor(run(optimum, beta, value), (4, 2), "optimum(beta, value)", dtype=torch.float64)
        problem = convex.SelfAttention(X, Y, beta=beta)
        reached = float(problem.objective(Z))
        least = 2 * beta - beta**2
        require(
            reached < least + 1e-8,
            f"not optimal: for beta = {beta:.3g} the objective is {reached:.6g}, "
            f"the least is {least:.6g}",
        )
        # (1, 1) ⊗ (1, 1) and (1, 1) are all ones.
        predicted = float(Z.sum())
        require(
            abs(predicted - value) < 1e-8,
            f"optimal, but at (1, 1) it predicts {predicted:.6g} instead of {value:.6g}",
        )
