"""Checks of the lab «Which head on a fixed backbone»."""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Callable

import torch
from torch import Generator

from .. import convex
from .checking import close, exercise, require, run, tensor
from .draws import between, gaussian


@exercise("ex-heads-units")
def within_the_budget(generator: Generator, units: Callable) -> None:
    """The library's count of that many units fits, that of one more does not."""
    for _ in range(3):
        B = between(generator, 2, 3)
        s, d, c = (
            between(generator, 4, 9),
            B * between(generator, 2, 4),
            B * between(generator, 2, 3),
        )
        budget = between(generator, 500, 5000)
        sizes = {"s": s, "d": d, "c": c, "blocks": B}
        heads = ("mlp", "attention", "mixer", "fno", "block_fno")
        # No multiple of a unit's weights: what holds there is a question of its own.
        while any(budget % convex.parameter_count(h, units=1, **sizes) == 0 for h in heads):
            budget += 1
        found = run(units, budget, s, d, c, B)
        require(isinstance(found, dict), "units(budget, s, d, c, B) needs to give a dict")
        for head in heads:
            require(head in found, f"the dict has no entry {head!r}")
            m = found[head]
            require(
                isinstance(m, numbers.Integral) and not isinstance(m, bool) and m >= 0,
                f"the entry {head!r} needs to be a whole number, it is {m!r}",
            )
            spent = convex.parameter_count(head, units=int(m), **sizes)
            more = convex.parameter_count(head, units=int(m) + 1, **sizes)
            require(spent <= budget, f"{head}: {m} units have more weights than the budget")
            require(more > budget, f"{head}: the budget allows more than {m} units")


@exercise("ex-heads-holm")
def closed_tests(generator: Generator, adjusted: Callable) -> None:
    """Against the definition that Holm's method shortens: the worst group that holds a test."""
    for m in (2, between(generator, 3, 5)):
        p = 0.4 * torch.rand(m, generator=generator, dtype=torch.float64)
        found = tensor(run(adjusted, p), (m,), "adjusted(p)", dtype=torch.float64)
        for k in range(m):
            worst = 0.0
            for size in range(1, m + 1):
                for group in itertools.combinations(range(m), size):
                    if k in group:
                        worst = max(worst, min(1.0, size * min(float(p[j]) for j in group)))
            close(
                found[k],
                worst,
                f"the adjusted p-value of {float(p[k]):.3f} among {m} is wrong",
            )


@exercise("ex-heads-small")
def interval_inside(generator: Generator, small: Callable) -> None:
    """Margins a little inside and outside of the interval's far end, sums taken over pairs."""
    for _ in range(4):
        m = between(generator, 2, 8)
        d = gaussian(generator, m)
        quantile = float(1.5 + torch.rand((), generator=generator))
        # Σ over pairs of (d_i - d_j)² is 2m(m - 1) times the variance.
        squares = float((d[:, None] - d[None, :]).square().sum())
        end = abs(float(d.sum())) / m + quantile * (squares / (2 * m * m * (m - 1))) ** 0.5
        for k in torch.randperm(4, generator=generator).tolist():
            wanted, values = k % 2 == 0, d if k < 2 else -d
            margin = (1.02 if wanted else 0.98) * end
            answer = run(small, values, margin, quantile)
            if getattr(answer, "shape", None) == ():
                answer = answer.item()  # a comparison in torch or NumPy
            require(
                isinstance(answer, bool), "small(differences, margin, quantile) needs True or False"
            )
            require(
                answer == wanted,
                "the interval lies inside of the margin, and small says False"
                if wanted
                else "the interval reaches beyond the margin, and small says True",
            )


@exercise("ex-heads-inside")
def same_outputs_small_norm(generator: Generator, inside: Callable) -> None:
    """Outputs of the attention head against mean tokens, and the norm."""
    for _ in range(2):
        n, s, d, c = 4, between(generator, 2, 6), between(generator, 3, 5), 2
        X, W = gaussian(generator, n, s, d), gaussian(generator, d, c)
        X[..., -1] = 1.0
        Z = tensor(run(inside, W, s), (d * d, d * c), "inside(W, s)", dtype=torch.float64)
        target = torch.zeros(n, c, dtype=torch.float64)
        problem = convex.SelfAttention(X, target, beta=1.0, pool="mean")
        wanted = torch.einsum("nsd,dc->nc", X, W) / s
        close(problem.forward(Z), wanted, "the outputs are not those of the linear head")
        norm, most = float(convex.nuclear_norm(Z)), float(W.square().sum()) ** 0.5 / s
        require(
            norm <= most * (1 + 1e-9),
            f"the outputs are right, but the nuclear norm of Z is {norm:.4g}; {most:.4g} is enough",
        )
