"""Checks of the lesson «A two-layer network is a convex program»."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from ..convex import arrangements
from .checking import close, exercise, number, require, run, tensor
from .draws import between, gaussian


@exercise("ex-mlp-adjoint")
def gated_layer(generator: Generator, forward: Callable, adjoint: Callable) -> None:
    """Both maps gate by gate, and the identity between them."""
    # Four different sizes, so that no wrong order of axes has the right shape.
    N, d = between(generator, 9, 12), between(generator, 3, 4)
    P, c = between(generator, 5, 8), 2
    X, Z, R = gaussian(generator, N, d), gaussian(generator, P, d, c), gaussian(generator, N, c)
    masks = (torch.rand(P, N, generator=generator) < 0.6).to(X)

    F = tensor(run(forward, X, masks, Z), (N, c), "forward(X, masks, Z)")
    G = tensor(run(adjoint, X, masks, R), (P, d, c), "adjoint(X, masks, R)")
    wanted = sum(torch.diag(mask) @ X @ block for mask, block in zip(masks, Z, strict=True))
    close(F, wanted, "forward is not the sum of D_j X Z_j over the gates")
    left, right = (wanted * R).sum(), (Z * G).sum()
    close(right, left, "adjoint does not belong to A: ⟨Z, A*(R)⟩ is not ⟨A(Z), R⟩")
    blocks = torch.stack([X.T @ (mask[:, None] * R) for mask in masks])
    close(G, blocks, "block j of adjoint is not X^T D_j R")


@exercise("ex-mlp-count")
def number_of_cells(generator: Generator, count_cells: Callable) -> None:
    """General position, then multiples of rows and rows of zeros, against the list of cells."""

    def count(X: Tensor) -> float:
        return number(run(count_cells, X), "count_cells(X)")

    for d in (2, 3, 4):
        N = between(generator, d + 1, 8)
        X = gaussian(generator, N, d)
        cells = len(arrangements(X))
        found = count(X)
        require(
            found == cells,
            f"{N} rows in general position in dimension {d} make {cells} cells, "
            f"count_cells finds {found:g}",
        )

    X = gaussian(generator, 4, 3)
    cells = count(X)
    size = 0.5 + float(torch.rand((), generator=generator))
    for factor, words in (
        (size, "a multiple of another row"),
        (-size, "a negative multiple of one"),
    ):
        require(
            count(torch.cat([factor * X[1:2], X])) == cells,
            f"a first row that is {words} has the same hyperplane: the number of cells stays",
        )
        require(
            count(torch.cat([X, factor * X[1:2]])) == cells,
            f"a last row that is {words} has the same hyperplane: the number of cells stays",
        )
    zero = torch.zeros(1, 3, dtype=X.dtype)
    for order in ([zero, X], [X, zero]):
        require(
            count(torch.cat(order)) == cells,
            "a row of zeros is no hyperplane: the number of cells stays",
        )


@exercise("ex-mlp-split")
def two_neurons(generator: Generator, as_relu: Callable) -> None:
    """Same outputs, both neurons on, each balanced, and no larger t than needed."""
    N, d = between(generator, 6, 9), between(generator, 3, 4)
    X, g, z = gaussian(generator, N, d), gaussian(generator, d), gaussian(generator, d)
    X = X * (X @ g).sign()[:, None]
    if (X @ z < 0).sum() < N / 2:
        z = -z  # three rows or more are to be repaired
    # The row that decides on t is made short: its product with z is not the most negative one.
    X[int((-(X @ z) / (X @ g)).argmax())] *= 0.01

    pair = run(as_relu, X, z, g)
    require(
        isinstance(pair, tuple | list) and len(pair) == 2,
        "as_relu must return two tensors, U and v",
    )
    U, v = tensor(pair[0], (2, d), "U"), tensor(pair[1], (2,), "v")
    size = float(U.norm() * v.norm() * X.norm())
    close(
        torch.relu(X @ U.T) @ v,
        X @ z,
        "the outputs relu(X @ U.T) @ v on the data are not X @ z",
        atol=1e-10 * size,
    )
    require(
        (X @ U.T).min() >= -1e-10 * size,
        "a neuron is off at some row: its weight lies outside the cone",
    )
    require(v[0] >= 0 >= v[1], "the first neuron adds and the second one subtracts: v = (+, −)")
    close(U.norm(dim=1), v.abs(), "the neurons are not balanced, ‖u_k‖ = |v_k|", rtol=1e-6)
    a, b = v[0] * U[0], -v[1] * U[1]
    # The smallest t by bisection: membership in the cone is monotone in t.
    low, high = 0.0, 1.0
    while (X @ (z + high * g)).min() < 0:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if (X @ (z + middle * g)).min() < 0 else (low, middle)
    t = float(b @ g / (g @ g))
    close(b, t * g, "the second neuron does not compute with a multiple of g", atol=1e-9 * size)
    require(
        t <= high * (1 + 1e-6),
        f"t = {t:.4g} is not the smallest: z + t g lies in the cone from t = {high:.4g} on",
    )
    close(a, z + t * g, "the first neuron does not compute with z + t g", atol=1e-9 * size)


@exercise("ex-mlp-prune")
def fewer_neurons(generator: Generator, prune: Callable) -> None:
    """Number of neurons, outputs on the data and weight decay, with one output."""
    for _ in range(2):
        N, d = between(generator, 5, 8), between(generator, 2, 3)
        m = N + between(generator, 8, 12)
        X, U, V = gaussian(generator, N, d), gaussian(generator, m, d), gaussian(generator, m, 1)
        # Balanced, so that balancing alone does not lower the decay; and small, so that a network
        # with first weights of length one has much more of it.
        scale = (V.norm(dim=1) / U.norm(dim=1)).sqrt()[:, None]
        U, V = 0.2 * scale * U, 0.2 * V / scale

        pair = run(prune, U, V, X)
        require(
            isinstance(pair, tuple | list) and len(pair) == 2,
            "prune must return two tensors, the new U and V",
        )
        u, v = tensor(pair[0], (None, d), "the new U"), tensor(pair[1], (None, 1), "the new V")
        require(len(u) == len(v), f"the new U has {len(u)} neurons, the new V {len(v)}")
        require(
            len(u) <= N,
            f"{len(u)} neurons are left of {m}; with {N} rows and one output {N} suffice",
        )
        close(
            torch.relu(X @ u.T) @ v,
            torch.relu(X @ U.T) @ V,
            "the outputs on the data have changed",
            atol=1e-8,
        )
        before = 0.5 * float(U.square().sum() + V.square().sum())
        after = 0.5 * float(u.square().sum() + v.square().sum())
        require(
            after <= before * (1 + 1e-9),
            f"the weight decay has risen from {before:.4g} to {after:.4g}",
        )
