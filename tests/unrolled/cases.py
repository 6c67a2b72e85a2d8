"""Random token sets of every awkward kind, and the rounding that a step may be blamed for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from fourviews.unrolled import AttentionEnergy, half_squared_distances


def token_sets(
    cases: int, n: int, d: int, generator: torch.Generator, dtype: torch.dtype
) -> Tensor:
    """``(cases, n, d)``: mixed scales, shifts from the origin, duplicates, outliers."""

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    scale = 10 ** (4 * rand(cases, 1, 1) - 2)
    per_token = torch.where(rand(cases, 1, 1) < 0.3, 10 ** (3 * rand(cases, n, 1) - 1), 1.0)
    shift = torch.where(rand(cases, 1, 1) < 0.5, 10 ** (6 * rand(cases, 1, 1) - 2), 0.0)
    Y = scale * per_token * randn(cases, n, d) + shift * randn(cases, 1, d)
    if n > 1:
        source = torch.randint(n, (cases, n), generator=generator)
        copied = torch.gather(Y, 1, source[..., None].expand(-1, -1, d))
        twins = (rand(cases, 1, 1) < 0.3) & (rand(cases, n, 1) < 0.5)
        Y = torch.where(twins, copied, Y)
    huge = torch.where(rand(cases, 1, 1) < 0.05, 1e6, 1.0)
    return (Y * huge).to(dtype)


def batches(
    total: int, dtype: torch.dtype, seed: int = 0, sizes: tuple[int, ...] = (1, 2, 3, 4, 6, 9)
) -> Iterator[tuple[Tensor, torch.Generator]]:
    """At least ``total`` token sets in batches of one size."""
    generator = torch.Generator().manual_seed(seed)
    dims = (1, 2, 5)
    per_batch = -(-total // (len(sizes) * len(dims)))
    for n in sizes:
        for d in dims:
            yield token_sets(per_batch, n, d, generator, dtype), generator


def rounding(energy: AttentionEnergy, Y: Tensor, Z: Tensor) -> Tensor:
    """What rounding may add to the energy's change from Y to Z.

    n² eps times the sizes of the terms, for the two sums; (d + 3) eps z for each half squared
    distance, which counts with the slope there; eps times the sizes of tokens and weight for the
    products U = YW; and for the output, which has an error of eps times its size and n + 3 times
    the spread of the tokens that the product with the weights sums over, the slope and curvature
    that it meets.
    """
    eps = torch.finfo(Y.dtype).eps
    n, d = max(Y.shape[-2], 2), Y.shape[-1]
    total = 0
    for X in (Y, Z):
        clean, pairs = energy._prepare(X)
        pair, w = energy._value_and_weights(clean, pairs)
        total = total + n**2 * eps * (pair.abs() + energy._quadratic_terms(clean))
        U = energy._scores(clean)
        z = half_squared_distances(U)
        total = total + (d + 3) * eps * (w * z).sum((-2, -1))
        if energy.weight is not None:
            size = torch.linalg.matrix_norm(energy.weight, 2)
            centred = clean - clean.mean(-2, keepdim=True)
            spread = centred.norm(dim=-1)
            error = d * eps * size * (spread[..., :, None] + spread[..., None, :])
            total = total + (w * ((2 * z).sqrt() * error + error**2)).sum((-2, -1))
            for strength, point in (
                (energy.confinement, lambda x=clean: x),
                (energy.anchoring, lambda x=clean: energy._drift(x)),
            ):
                if strength:
                    y = point()
                    error = d * eps * size * y.norm(dim=-1)
                    slope = (y @ energy.weight).norm(dim=-1)
                    total = total + strength * (slope * error + error**2).sum(-1)
    clean, _ = energy._prepare(Y)
    spread = (clean - clean.mean(-2, keepdim=True)).norm(dim=-1).amax(-1, keepdim=True)
    stored = eps * (Z.norm(dim=-1) + (n + 3) * spread)
    slope = energy.gradient(Z).abs().sum(-1)  # no squares, which would underflow
    bend = energy.curvature(Z)[..., 0]
    return total + 2 * (slope * stored + bend * stored**2).sum(-1)


def rises(
    energy: AttentionEnergy, step: Callable[[Tensor], Tensor], Y: Tensor
) -> tuple[Tensor, Tensor]:
    """(rise in units of its tolerance, Z) for every case."""
    Z = step(Y)
    rise = energy.value(Z) - energy.value(Y)
    return rise / rounding(energy, Y, Z).clamp_min(torch.finfo(Y.dtype).tiny), Z
