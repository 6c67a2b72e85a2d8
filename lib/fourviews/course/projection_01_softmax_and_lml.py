"""Checks of the lesson «Exactly k labels: softmax, sparsemax and LML»."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator
from torch.nn.functional import logsigmoid

from .checking import close, exercise, require, run, tensor
from .draws import between, gaussian


@exercise("ex-lml-capped")
def nearest_point(generator: Generator, capped: Callable) -> None:
    """Bounds, sum, and the condition that no corner of the polytope lies in a better direction."""
    for scale in (0.2, 1.0, 3.0):
        n = between(generator, 5, 9)
        x = scale * gaussian(generator, n) + gaussian(generator, 1)
        for k in {0, 1, between(generator, 2, n - 1), n}:
            y = tensor(run(capped, x, k), (n,), f"capped(x, {k})", dtype=x.dtype)
            require(y.min() >= 0, f"capped(x, {k}) has a negative entry")
            require(y.max() <= 1, f"capped(x, {k}) has an entry above 1")
            close(y.sum(), float(k), f"the entries of capped(x, {k}) do not sum to k")
            # The projection is where y - x has no smaller product with any corner than with y.
            slope = y - x
            least = slope.topk(k, largest=False).values.sum()
            close(
                slope @ y,
                least,
                f"capped(x, {k}) is not the nearest point: a corner lies in a better direction",
                atol=1e-9 * (1 + float(slope.abs().max())),
            )


@exercise("ex-lml-gradient")
def backward_pass(generator: Generator, gradient: Callable) -> None:
    """Against the derivative of the shifted logistic function, taken as a matrix."""
    for scale in (0.5, 2.0, 5.0):
        n = between(generator, 4, 8)
        z, g = scale * gaussian(generator, n), gaussian(generator, n)
        found = tensor(run(gradient, z, g), (n,), "gradient(z, g)", dtype=z.dtype)
        w = torch.sigmoid(z) * torch.sigmoid(-z)
        close(
            found.sum() / w.sum(),
            0.0,
            "the sum of the gradient is not zero, as it is for any function of a shift-invariant y",
        )
        # dy = w (dx + dν) with 0 = w · (dx + dν): a linear system, solved for all dx at once.
        system = torch.zeros(n + 1, n + 1, dtype=z.dtype)
        system[:n, :n], system[:n, n], system[n, :n] = torch.eye(n), -w, 1.0
        right = torch.cat([torch.diag(w), torch.zeros(1, n, dtype=z.dtype)])
        jacobian = torch.linalg.solve(system, right)[:n]
        close(found, jacobian.T @ g, "gradient(z, g) is not the gradient in x", rtol=1e-6)


@exercise("ex-lml-shift")
def root_of_the_sum(generator: Generator, shifted: Callable) -> None:
    """One common shift, the right sum, and no digits lost where y is close to 0 and 1."""
    for scale in (0.0, 1.0, 8.0):
        n = between(generator, 4, 9)
        k = between(generator, 1, n - 1)
        x = scale * gaussian(generator, n) + gaussian(generator, 1)
        z = tensor(run(shifted, x, k), (n,), "shifted(x, k)", dtype=x.dtype)
        shift = z - x
        close(
            shift - shift.mean(),
            torch.zeros_like(x),
            "z - x is not the same number for all entries",
            atol=1e-9,
        )
        close(torch.sigmoid(z).sum(), float(k), "the entries of sigmoid(z) do not sum to k")
        order = x.argsort(descending=True)
        have = torch.logsumexp(logsigmoid(z[order[k:]]), 0)
        lack = torch.logsumexp(logsigmoid(-z[order[:k]]), 0)
        close(
            have - lack,
            0.0,
            "what the k largest lack and what the others have differ by a factor",
            atol=1e-8,
        )
