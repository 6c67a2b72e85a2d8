"""Checks of the closing lesson «One layer, four views»."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import torch
from torch import Generator, Tensor

from .checking import close, exercise, require, run, tensor


@exercise("ex-closing-affine")
def nearest_affine_map(generator: Generator, best_affine: Callable) -> None:
    """What is left over has mean zero and tells nothing about x, by a rule of degree five."""
    for N in (2, 3):
        T = []
        for k in range(4):
            part = torch.randn((N,) * (k + 1), generator=generator, dtype=torch.float64)
            turns = [part.permute(0, *axes) for axes in permutations(range(1, k + 1))]
            T.append(torch.stack(turns).mean(0))
        mean = torch.randn(N, generator=generator, dtype=torch.float64)
        half = torch.randn(N, N, generator=generator, dtype=torch.float64)
        covariance = half @ half.T + 0.2 * torch.eye(N, dtype=torch.float64)
        found = run(best_affine, T, mean, covariance)
        pair = isinstance(found, tuple | list) and len(found) == 2
        require(pair, "best_affine(T, mean, covariance) has to return two tensors: b and L")
        b = tensor(found[0], (N,), "b", dtype=mean.dtype)
        L = tensor(found[1], (N, N), "L", dtype=mean.dtype)
        # Gauss and Hermite's three nodes along each axis.
        node = 3**0.5 * torch.arange(-1, 2, dtype=torch.float64)
        weight = torch.where(node == 0, 2 / 3, 1 / 6).double()
        grid = torch.cartesian_prod(*[node] * N)
        mass = torch.cartesian_prod(*[weight] * N).prod(1)
        u = grid @ torch.linalg.cholesky(covariance).T
        rest = _polynomial(T, mean + u) - b - (mean + u) @ L.T
        nothing = torch.zeros(N, N, dtype=torch.float64)
        close(
            (mass * rest.T) @ u,
            nothing,
            "what is left of f(x) − b − Lx still goes with x: another L is nearer",
            atol=1e-7,
        )
        close(
            mass @ rest,
            nothing[0],
            "what is left of f(x) − b − Lx has not the mean zero: another b is nearer",
            atol=1e-7,
        )


def _polynomial(T: list[Tensor], x: Tensor) -> Tensor:
    """T₀ + T₁x + T₂(x, x) + T₃(x, x, x), a row for each row of x."""
    rows = []
    for point in x:
        value = T[0]
        for order, term in enumerate(T[1:], start=1):
            for _ in range(order):
                term = torch.tensordot(term, point, dims=1)
            value = value + term
        rows.append(value)
    return torch.stack(rows)


def _nearest_by_frequency(L: Tensor, c: int) -> Tensor:
    """One kernel for the circle, then one Hermitian c × c matrix for each of its frequencies."""
    s = len(L) // c
    blocks, at = L.unflatten(1, (s, c)).unflatten(0, (s, c)).movedim(1, 2), torch.arange(s)
    kernel = torch.stack([blocks[at, (at + offset) % s].mean(0) for offset in range(s)])
    response = torch.fft.fft(kernel, dim=0)
    levels, axes = torch.linalg.eigh(0.5 * (response + response.mH))
    response = axes @ (levels.clamp_min(-1).unsqueeze(-1) * axes.mH)
    kernel = torch.fft.ifft(response, dim=0).real
    return torch.cat([torch.cat([*kernel.roll(i, 0)], dim=1) for i in range(s)])


@exercise("ex-closing-lowering")
def nearest_lowering_convolution(generator: Generator, lowering: Callable) -> None:
    """A convolution on the circle, a gradient, no rise; then the nearest, frequency by frequency."""
    for s in (4, 5):  # an even and an odd circle
        c = 7 - s
        N = s * c
        L = 3 * torch.randn(N, N, generator=generator, dtype=torch.float64)
        K = tensor(run(lowering, L, c), (N, N), "lowering(L, c)", dtype=L.dtype).detach()
        close(
            K.roll((c, c), (0, 1)), K, "no convolution: turned by one column it is another matrix"
        )
        close(K.T, K, "x ↦ Kx is no gradient")
        x = torch.linalg.eigh(K).eigenvectors[:, :1]
        before, after = (float(0.5 * (z.T @ (z - K @ z))) for z in (x, K @ x))
        require(
            after - before < 1e-9,
            f"the layer raises its energy by {after - before:.3g} at some x of length one",
        )
        wanted = _nearest_by_frequency(L, c)
        close(K, wanted, "such a layer, but not the nearest to L", rtol=1e-6, atol=1e-8)
