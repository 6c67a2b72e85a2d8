"""Checks of the closing lesson «One layer, four views»."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .checking import close, exercise, require, run, tensor


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
