"""Checks of the lesson «A Fourier layer is a convolution, and a convex program»."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator

from .checking import close, exercise, require, run, tensor
from .draws import between, gaussian


def _pair(value: object, words: str) -> tuple:
    require(isinstance(value, tuple | list) and len(value) == 2, words)
    return tuple(value)


@exercise("ex-fourier-shifts")
def shifts_on_the_torus(generator: Generator, circ: Callable) -> None:
    """Row by row and offset by offset, by the definition."""
    n, h, w, d = 2, between(generator, 2, 3), between(generator, 4, 5), between(generator, 2, 3)
    s = h * w
    X = gaussian(generator, n, s, d)
    got = tensor(run(circ, X, (h, w)), (n, s, s * d), "circ(X, grid)").view(n, h, w, h, w, d)
    images, flat = X.view(n, h, w, d), torch.stack([X.roll(q, 1) for q in range(s)], dim=2)
    require(
        not torch.allclose(got.reshape(n, s, s, d), flat),
        "these are shifts of the list of tokens; on the torus both coordinates turn by themselves",
    )
    wanted = torch.empty_like(got)
    for y in range(h):
        for x in range(w):
            rows = (y - torch.arange(h)) % h
            columns = (x - torch.arange(w)) % w
            wanted[:, y, x] = images[:, rows][:, :, columns]
    opposite = wanted.flip(3, 4).roll((1, 1), (3, 4))
    require(
        not torch.allclose(got, opposite),
        "row p holds the token at p + q at offset q; it must be the one at p − q",
    )
    close(got, wanted, "row p of circ(X, grid) is not the token at p − q for each offset q")


@exercise("ex-fourier-unfold")
def unfolded_kernels(generator: Generator, unfold: Callable) -> None:
    """As many units as features, and fewer."""
    d = 3
    for m in (d, d - 1):
        s = between(generator, 4, 6)
        kernels = gaussian(generator, m, s * d)
        pair = _pair(run(unfold, kernels, d), "unfold must return two tensors, L and W1")
        L, W1 = tensor(pair[0], (s, d, d), "L"), tensor(pair[1], (d, m), "W1")
        folded = torch.stack([(L @ W1[:, j]).flatten() for j in range(m)])
        close(folded, kernels, "L[q] W1 e_j, for all q one after the other, is not kernels[j]")


@exercise("ex-fourier-flat")
def flat_kernels(generator: Generator, flat_units: Callable) -> None:
    """Mean output through all shifts, number of units, weight decay."""
    d, c, s = between(generator, 3, 4), 2, between(generator, 5, 7)
    W, x = gaussian(generator, d, c), gaussian(generator, s, d)
    pair = _pair(run(flat_units, W, s), "flat_units must return two tensors")
    first = tensor(pair[0], (None, s * d), "the kernels")
    second = tensor(pair[1], (None, c), "the second weights")
    require(len(first) == len(second), "kernels and second weights differ in the number of units")
    shifted = torch.cat([x.roll(q, 0) for q in range(s)], dim=1)
    output = shifted @ first.T @ second
    close(output.mean(0), x.mean(0) @ W, "the mean output is not the mean token times W")
    decay = 0.5 * float(first.square().sum() + second.square().sum())
    least = float(torch.linalg.svdvals(W).sum()) / s**0.5
    require(
        decay <= least * (1 + 1e-9),
        f"the weight decay is {decay:.4g}; the least is ‖W‖_* / √s = {least:.4g}",
    )
