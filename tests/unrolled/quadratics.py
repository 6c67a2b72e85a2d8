"""Batches of random quadratics with exact constants."""

from __future__ import annotations

import torch
from torch import Tensor

from fourviews.unrolled import Smooth


def quadratic(H: Tensor, centre: Tensor) -> Smooth:
    """½ (y − p) H (y − p)ᵀ for one row y; H (..., d, d), p (..., 1, d)."""
    eigenvalues = torch.linalg.eigvalsh(H)
    return Smooth(
        lambda Y: 0.5 * ((Y - centre) * ((Y - centre) @ H)).sum((-2, -1)),
        lambda Y: (Y - centre) @ H,
        eigenvalues[..., -1],
        eigenvalues[..., 0].clamp_min(0),
        centre,
    )


def random_pair(
    cases: int, d: int, generator: torch.Generator
) -> tuple[Smooth, Smooth, Tensor, Tensor]:
    """(f, g, L_h exactly, c_h exactly) with spectra over several decades."""

    def hessian() -> Tensor:
        A = torch.randn(cases, d, d, generator=generator, dtype=torch.float64)
        Q, _ = torch.linalg.qr(A)
        scale = 10 ** (3 * torch.rand(cases, d, generator=generator, dtype=torch.float64) - 2)
        return (Q * scale[:, None]) @ Q.mT

    def centre() -> Tensor:
        size = 10 ** (3 * torch.rand(cases, 1, 1, generator=generator, dtype=torch.float64) - 1)
        return size * torch.randn(cases, 1, d, generator=generator, dtype=torch.float64)

    F, G = hessian(), hessian()
    both = torch.linalg.eigvalsh(F + G)
    return quadratic(F, centre()), quadratic(G, centre()), both[:, -1], both[:, 0]
