"""Checks of the lesson «Linear attention is a convex program»."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from .checking import LargestResult, close, exercise, require, run, tensor
from .draws import between, gaussian


def _layer(X: Tensor, W1: Tensor, W2: Tensor) -> Tensor:
    """The heads' outputs, one product after the other."""
    out = X.new_zeros(X.shape[0], X.shape[1], W2.shape[2])
    for A, B in zip(W1, W2, strict=True):
        out = out + X @ A @ X.mT @ (X @ B)
    return out


def _predictions(X: Tensor, Z: Tensor, c: int) -> Tensor:
    """Σ G[k, l] X Z^(k,l), block by block."""
    d = X.shape[2]
    grams = X.mT @ X
    out = X.new_zeros(X.shape[0], X.shape[1], c)
    for k in range(d):
        for m in range(d):
            block = Z[k * d : (k + 1) * d, m * c : (m + 1) * c]
            out = out + grams[:, k, m, None, None] * (X @ block)
    return out


def _pair(value: Any, name: str, d: int, c: int) -> tuple[Tensor, Tensor]:
    require(
        isinstance(value, tuple | list) and len(value) == 2,
        f"{name} must return two tensors, W1 and W2",
    )
    W1 = tensor(value[0], (None, d, d), "W1")
    W2 = tensor(value[1], (None, d, c), "W2")
    require(len(W1) == len(W2), f"W1 has {len(W1)} heads, W2 has {len(W2)}")
    return W1, W2


def _nuclear(Z: Tensor) -> float:
    return float(torch.linalg.svdvals(Z).sum())


def _decay(W1: Tensor, W2: Tensor) -> float:
    return 0.5 * float(W1.square().sum() + W2.square().sum())


@exercise("ex-attention-lift")
def both_directions(generator: Generator, lift: Callable, heads: Callable) -> None:
    """The layer's own predictions, then back with as many heads as the rank."""
    d, c = between(generator, 3, 4), 2
    m = between(generator, 2, 4)
    X, W1, W2 = (
        gaussian(generator, 5, 6, d),
        gaussian(generator, m, d, d),
        gaussian(generator, m, d, c),
    )

    Z = tensor(run(lift, W1, W2), (d * d, d * c), "lift(W1, W2)")
    close(
        _predictions(X, Z, c),
        _layer(X, W1, W2),
        "Σ G[k, l] X Z^(k,l) is not the prediction of the heads",
        atol=1e-8,
    )
    first, second = _pair(run(heads, Z, d), "heads(Z, d)", d, c)
    require(len(first) == m, f"heads(Z, d) has {len(first)} heads for a matrix Z of rank {m}")
    close(
        _layer(X, first, second),
        _layer(X, W1, W2),
        "the heads of Z do not predict what Z predicts",
        atol=1e-8,
    )
    least, decay = _nuclear(Z), _decay(first, second)
    require(
        decay <= least * (1 + 1e-8),
        f"the decay of the heads is {decay:.5g}, and ‖Z‖* = {least:.5g} is possible",
    )


@exercise("ex-attention-free")
def products_with_the_gradient(
    generator: Generator, times: Callable, times_transposed: Callable
) -> None:
    """Against the matrix written out, at a small size; at a larger one it must not be."""
    n, s, d, c = between(generator, 3, 5), 4, between(generator, 2, 3), 5
    X, R = gaussian(generator, n, s, d), gaussian(generator, n, s, c)
    v, u = gaussian(generator, d * c), gaussian(generator, d * d)
    whole = X.new_zeros(d * d, d * c)
    for x, r in zip(X, R, strict=True):
        whole = whole + torch.kron(x.T @ x, x.T @ r)
    got = tensor(run(times, X, R, v), (d * d,), "times(X, R, v)")
    back = tensor(run(times_transposed, X, R, u), (d * c,), "times_transposed(X, R, u)")
    close(got, whole @ v, "times(X, R, v) is not A*(R) v", atol=1e-9)
    close(back, whole.T @ u, "times_transposed(X, R, u) is not A*(R)ᵀ u", atol=1e-9)

    n, d, c = 2, 12, 11
    X, R = gaussian(generator, n, 3, d), gaussian(generator, n, 3, c)
    v, u = gaussian(generator, d * c), gaussian(generator, d * d)
    for product, vector, words in ((times, v, "times"), (times_transposed, u, "times_transposed")):
        with LargestResult() as largest:
            run(product, X, R, vector)
        require(
            largest.numbers <= 2 * n * d * d,
            f"for {n} samples with {d} features and {c} outputs {words} makes a tensor of "
            f"{largest.numbers} numbers: {n} matrices of {d} times {d} are enough",
        )


@exercise("ex-attention-replace")
def in_the_place_of_a_network(generator: Generator, as_attention: Callable) -> None:
    """Predictions, form and size of Z; and None where no M exists."""
    d, c = 3, 2
    for n in (1, between(generator, 2, 6)):
        X, W = gaussian(generator, n, 5, d), gaussian(generator, d, c)
        X[0] = 3 * X[0]
        Z = run(as_attention, X, W)
        require(Z is not None, f"{n} random samples with {d} features: there is an M, got None")
        Z = tensor(Z, (d * d, d * c), "as_attention(X, W)")
        close(
            _predictions(X, Z, c), X @ W, "attention with Z does not predict X_i W", 1e-6, atol=1e-7
        )
        grams = (X.mT @ X).flatten(1)
        ones = torch.ones(n, 1, dtype=X.dtype)
        M = (grams.T @ torch.linalg.solve(grams @ grams.T, ones)).view(d, d)
        close(
            Z,
            torch.kron(M, W),
            "Z^(k,l) is not M[k, l] W with the smallest M",
            rtol=1e-5,
            atol=1e-6 * float(Z.abs().max()),
        )
    X, W = gaussian(generator, 2, 4, 2), gaussian(generator, 2, 2)
    X[1] = 1.5 * X[0]
    require(
        run(as_attention, X, W) is None,
        "one sample is 1.5 times the other: ⟨M, G⟩ = 1 cannot hold for both",
    )


@exercise("ex-attention-join")
def as_few_heads_as_possible(generator: Generator, fewest: Callable) -> None:
    """Number of heads, decay, and predictions on data with orthogonal groups."""
    c = 2
    order = torch.randperm(4, generator=generator).tolist()
    single = torch.randperm(3, generator=generator).tolist()
    for groups in ([order[:2], order[2:]], [[2, 0], [1]], [[k] for k in single]):
        d = sum(map(len, groups))
        Z = gaussian(generator, d * d, d * c)
        ranks, total = [], 0.0
        for members in groups:
            rows = [k * d + a for k in members for a in range(d)]
            columns = [k * c + b for k in members for b in range(c)]
            own = Z[rows][:, columns]
            ranks.append(int(torch.linalg.matrix_rank(own)))
            total += _nuclear(own)
        frame = torch.linalg.qr(gaussian(generator, 4, 5, d)).Q
        X, at = torch.zeros_like(frame), 0
        for group in groups:
            size = len(group)
            X[..., group] = frame[..., at : at + size] @ gaussian(generator, 4, size, size)
            at += size
        W1, W2 = _pair(run(fewest, Z, groups, c), "fewest(Z, groups, c)", d, c)
        words = f"for the groups {groups}"
        close(
            _layer(X, W1, W2),
            _predictions(X, Z, c),
            f"the predictions are not those of Z {words}",
            atol=1e-7,
        )
        decay = _decay(W1, W2)
        require(
            decay <= total * (1 + 1e-8),
            f"the decay is {decay:.5g} {words}; the sum of the nuclear norms is {total:.5g}",
        )
        require(
            len(W1) == max(ranks),
            f"{len(W1)} heads {words}; the ranks are {ranks}, so {max(ranks)} are enough",
        )
