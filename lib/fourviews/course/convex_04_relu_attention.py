"""Checks of the lesson «Attention with ReLU: patterns of scores»."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from ..convex import SelfAttention, arrangement_bound, arrangements, largest_beta, solve
from .checking import close, exercise, number, require, run, tensor
from .draws import between, gaussian


@exercise("ex-relu-attention-local")
def within_the_mask(generator: Generator, local: Callable, predict: Callable) -> None:
    """Sums over the keys that are on, and the head that has this mask."""
    s, d, c = between(generator, 5, 6), 3, 2
    X, W1, W2 = gaussian(generator, s, d), gaussian(generator, d, d), gaussian(generator, d, c)
    scores = X @ W1 @ X.T
    mask = (scores >= 0).double()
    G = tensor(run(local, X, mask), (s, d, d), "local(X, mask)")
    wanted = torch.stack([X.T @ torch.diag(row) @ X for row in mask])
    close(G, wanted, "local is not the sum over the keys that each query lets through", atol=1e-9)
    Z = torch.outer(W1.T.flatten(), W2.flatten())
    made = tensor(run(predict, X, mask, Z), (s, c), "predict(X, mask, Z)")
    close(
        made,
        torch.relu(scores) @ X @ W2,
        "predict is not the head whose mask this is",
        atol=1e-8,
    )


@exercise("ex-relu-attention-count")
def bound_on_patterns(generator: Generator, at_most: Callable) -> None:
    """Cover's count, and the patterns of small data."""
    for d in (1, 2):
        n, s = between(generator, 1, 2), between(generator, 2, 3)
        X = gaussian(generator, n, s, d)
        rows = torch.cat([torch.kron(x, x) for x in X])
        found = number(run(at_most, n, s, d), "at_most(n, s, d)")
        listed = len(arrangements(rows))
        require(
            found >= listed,
            f"n = {n}, s = {s}, d = {d}: {listed} patterns can be listed, the bound is {found:g}",
        )
    n, s, d = between(generator, 2, 5), between(generator, 4, 6), 3
    found = number(run(at_most, n, s, d), "at_most(n, s, d)")
    size = n * s * s
    rank = min(d * d, n * min(s, d) ** 2)
    close(
        found,
        float(arrangement_bound(size, rank)),
        f"at_most is not the bound for n = {n}, s = {s}, d = {d}",
        rtol=1e-12,
    )


@exercise("ex-relu-attention-bound")
def below_every_head(generator: Generator, lower: Callable) -> None:
    """Below a certified optimum, and as good as the lemma promises."""
    for share in (0.6, 0.2):
        X, Y = gaussian(generator, 1, 2, 2), gaussian(generator, 1, 2, 2)
        unit = SelfAttention(X, Y, beta=1.0, activation="relu")
        problem = unit.with_beta(share * largest_beta(unit))
        solution = solve(problem, tol=1e-4, progress=False)
        for f in (torch.zeros_like(Y), 2 * Y, Y + gaussian(generator, 1, 2, 2)):
            bound = number(run(lower, X, Y, problem.beta, f), "lower(X, Y, beta, f)")
            require(
                bound <= solution.objective * (1 + 1e-9),
                f"the bound {bound:.5g} lies above an optimum of {solution.objective:.5g}",
            )
            R = f - Y
            require(
                bound >= _by_the_lemma(X, Y, R, problem.beta) * (1 - 1e-8),
                f"the bound {bound:.5g} is smaller than the one that the lemma gives",
            )


def _by_the_lemma(X: Tensor, Y: Tensor, R: Tensor, beta: float) -> float:
    """The bound with each map written out as a matrix, and θ from a fine grid."""
    n, s, d = X.shape
    F = torch.cat([torch.kron(x, x) for x in X])
    rows = []
    for i in range(n):
        for t in range(s):
            for q in range(s):
                rows.append(torch.outer(X[i, t], R[i, q]).flatten())
    T = torch.stack(rows)
    norm = torch.linalg.matrix_norm
    tau = 0.5 * (norm(F.T @ T, 2) + norm(F, 2) * norm(T, 2))
    grid = torch.linspace(-1, 1, 20001, dtype=X.dtype) * (beta / tau)
    return max(0.0, float((-grid * (R * Y).sum() - grid**2 / 2 * R.square().sum()).max()))
