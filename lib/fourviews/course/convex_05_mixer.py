"""Checks of the lesson «Mixing tokens is a convex program»."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from ..convex import arrangements
from .checking import close, exercise, number, require, run, tensor
from .draws import between, gaussian


@exercise("ex-mixer-mirror")
def one_unit_mirrors(generator: Generator, mirror: Callable) -> None:
    """Patches of a random image, mixed by the unit, against those of its mirror image."""
    a = 2
    rows, columns = between(generator, 2, 3), between(generator, 4, 5)
    h, w = a * rows, a * columns
    pair = run(mirror, h, w, a)
    require(
        isinstance(pair, tuple | list) and len(pair) == 2,
        "mirror must return two tensors, W1 and W2",
    )
    s = rows * columns
    W1, W2 = tensor(pair[0], (s, s), "W1").double(), tensor(pair[1], (a * a, a * a), "W2").double()
    image = torch.rand(h, w, generator=generator, dtype=torch.float64)

    def tokens(picture: Tensor) -> Tensor:
        return picture.reshape(rows, a, columns, a).permute(0, 2, 1, 3).reshape(s, a * a)

    got, X = W1 @ tokens(image) @ W2, tokens(image)
    within = X.view(s, a, a).flip(2).reshape(s, -1)
    moved = X.view(rows, columns, -1).flip(1).reshape(s, -1)
    require(
        not torch.allclose(got, moved),
        "the patches change places, but the pixels inside each patch are not mirrored",
    )
    require(
        not torch.allclose(got, within),
        "the pixels inside each patch are mirrored, but the patches stay in their places",
    )
    close(got, tokens(image.flip(1)), "W1 X W2 is not the mirror image, left to right")


@exercise("ex-mixer-maps")
def both_maps(generator: Generator, forward: Callable, adjoint: Callable) -> None:
    """Sums of units for the map, and the identity for its adjoint."""
    # Different sizes, so that few wrong orders of axes have the right shape.
    n, s, d = between(generator, 6, 7), between(generator, 4, 5), 3
    c = m = 2
    X, R = gaussian(generator, n, s, d), gaussian(generator, n, s, c)
    W1, W2 = gaussian(generator, m, s, s), gaussian(generator, m, d, c)
    Z = W1.flatten(1).T @ W2.flatten(1)
    F = tensor(run(forward, X, Z), (n, s, c), "forward(X, Z)")
    G = tensor(run(adjoint, X, R), (s * s, d * c), "adjoint(X, R)")
    wanted = sum(a @ X @ b for a, b in zip(W1, W2, strict=True))
    close(F, wanted, "forward is not the sum of W1 X W2 over units with Z = Σ w1 w2ᵀ")
    close(
        (Z * G).sum(),
        (wanted * R).sum(),
        "adjoint does not belong to A: ⟨Z, A*(R)⟩ is not ⟨A(Z), R⟩",
    )


@exercise("ex-mixer-pool")
def classifier_as_units(generator: Generator, pooled_units: Callable) -> None:
    """Mean output, number of units, weight decay and balance."""
    n, s, d, c = 5, between(generator, 4, 6), 2, 3
    A, X = gaussian(generator, s, d * c), gaussian(generator, n, s, d)
    pair = run(pooled_units, A, d)
    require(
        isinstance(pair, tuple | list) and len(pair) == 2,
        "pooled_units must return two tensors, W1 and W2",
    )
    W1, W2 = tensor(pair[0], (None, s, s), "W1"), tensor(pair[1], (None, d, c), "W2")
    require(len(W1) == len(W2), f"W1 has {len(W1)} units, W2 has {len(W2)}")
    outputs = torch.einsum("hpt,itk,hkb->ipb", W1, X, W2)
    close(
        outputs.mean(1),
        torch.einsum("itk,tkb->ib", X, A.view(s, d, c)),
        "the mean over tokens of the units' outputs is not the classifier's output",
    )
    require(len(W1) <= min(s, d * c), f"{len(W1)} units are more than the rank of A")
    decay = 0.5 * float(W1.square().sum() + W2.square().sum())
    least = s**0.5 * float(torch.linalg.svdvals(A).sum())
    require(
        decay <= least * (1 + 1e-9),
        f"the weight decay is {decay:.4g}; the least is √s ‖A‖_* = {least:.4g}",
    )


@exercise("ex-mixer-cells")
def patterns_of_a_mixer(generator: Generator, count_patterns: Callable) -> None:
    """Small data against the list of cells of the Kronecker rows; many tokens must be quick."""
    few = between(generator, 2, 3), between(generator, 3, 3), 1
    sizes = [
        (between(generator, 1, 2), between(generator, 2, 2), between(generator, 3, 6))
        for _ in range(3)
    ]
    for n, s, d in [*sizes, few]:
        X = gaussian(generator, n, s, d)
        eye = torch.eye(s, dtype=X.dtype)
        rows = torch.cat([torch.kron(x.mT.contiguous(), eye) for x in X])
        cells = len(arrangements(rows))
        found = number(run(count_patterns, X), "count_patterns(X)")
        require(
            found == cells,
            f"n = {n}, s = {s}, d = {d}: there are {cells} patterns, count_patterns finds {found:g}",
        )
