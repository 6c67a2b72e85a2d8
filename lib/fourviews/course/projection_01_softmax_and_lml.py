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


@exercise("ex-lml-budget")
def labels_that_cost(generator: Generator, gradients: Callable) -> None:
    """Against both equations, differentiated in all of x, c and B at once and solved as a system."""
    for scale in (0.5, 2.0, 4.0):
        n = between(generator, 4, 8)
        z, g = scale * gaussian(generator, n), gaussian(generator, n)
        c, nu = (0.5 * gaussian(generator, n)).exp(), gaussian(generator, 1)[0]
        x = z - nu * c
        found = run(gradients, x, c, nu, g)
        three = isinstance(found, tuple | list) and len(found) == 3
        require(three, "gradients(x, c, nu, g) has to return three tensors: in x, in c and in B")
        in_x = tensor(found[0], (n,), "the gradient in x", dtype=x.dtype)
        in_c = tensor(found[1], (n,), "the gradient in c", dtype=x.dtype)
        in_budget = tensor(found[2], (), "the gradient in B", dtype=x.dtype)
        y, w = torch.sigmoid(z), torch.sigmoid(z) * torch.sigmoid(-z)
        along = (c @ in_x) / (c @ w)
        close(along, 0.0, "the gradient in x sees it when x moves along c, which leaves y as it is")
        # Unknowns dy and dν; a column for each entry of x, for each of c, and for B.
        system = torch.zeros(n + 1, n + 1, dtype=x.dtype)
        system[:n, :n], system[:n, n], system[n, :n] = torch.eye(n), -w * c, c
        right = torch.zeros(n + 1, 2 * n + 1, dtype=x.dtype)
        right[:n, :n], right[:n, n:-1] = torch.diag(w), torch.diag(nu * w)
        right[n, n:-1], right[n, -1] = -y, 1.0
        slopes = g @ torch.linalg.solve(system, right)[:n]
        close(in_x, slopes[:n], "the gradient in x is wrong", rtol=1e-6)
        close(in_budget, slopes[-1], "the gradient in B is wrong", rtol=1e-6)
        close(in_c, slopes[n:-1], "the gradient in c is wrong", rtol=1e-6)


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
