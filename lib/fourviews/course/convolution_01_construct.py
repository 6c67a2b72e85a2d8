"""Checks of the lesson «Any convolution is a limit of attention»."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .checking import close, exercise, number, require, run, tensor
from .draws import between, gaussian


def _pixels(h: int, w: int) -> Tensor:
    return torch.cartesian_prod(torch.arange(h), torch.arange(w)).double()


@exercise("ex-construct-heads")
def circular_convolution(generator: Generator, convolve: Callable) -> None:
    """Odd kernels against torch's own convolution of a padded image."""
    for _ in range(3):
        H, W = between(generator, 6, 8), between(generator, 9, 11)
        d, c = 2, 3
        K, L = (2 * between(generator, 1, 2) + 1 for _ in range(2))
        x, weight = gaussian(generator, H, W, d), gaussian(generator, c, d, K, L)
        padded = torch.nn.functional.pad(
            x.movedim(-1, 0)[None], (L // 2, L // 2, K // 2, K // 2), mode="circular"
        )
        wanted = torch.nn.functional.conv2d(padded, weight)[0].movedim(0, -1)
        out = tensor(run(convolve, x, weight), (H, W, c), "convolve(x, weight)").to(x)
        mirrored = torch.nn.functional.conv2d(padded, weight.flip(2, 3))[0].movedim(0, -1)
        require(
            not torch.allclose(out, mirrored),
            "this is the mirrored filter: which way does the image roll?",
        )
        close(out, wanted, f"not the convolution, for a kernel of {K} × {L}")


def _leak(alpha: float) -> float:
    """Weight off the meant pixel on an unbounded grid, term by term."""
    reach = math.ceil(math.sqrt(60 / alpha))
    line = torch.arange(1, reach + 1, dtype=torch.float64)
    theta = 1 + 2 * float(torch.exp(-alpha * line.square()).sum())
    return (theta - 1) * (theta + 1) / theta**2


@exercise("ex-construct-sharpness")
def smallest_sharpness(generator: Generator, sharpness: Callable) -> None:
    """The bound at the answer and a little below, several outputs, ranges and tolerances."""
    for round_ in range(4):
        # From nearly useless to fine, and never the same number twice.
        share = (0.5 + 0.4 * float(torch.rand((), generator=generator))) / 30.0**round_
        weight = gaussian(generator, 3, 2, 3, 4)
        low = -float(torch.rand((), generator=generator))
        span = (low, low + 0.5 + 2 * float(torch.rand((), generator=generator)))
        each = [float(kernel.abs().sum()) for kernel in weight]
        tolerance = share * max(each) * (span[1] - span[0])
        alpha = number(
            run(sharpness, weight, span, tolerance), "sharpness(weight, span, tolerance)"
        )
        require(alpha > 0, "0 is returned although the bound is above the tolerance there")
        bounds = [_leak(a) * max(each) * (span[1] - span[0]) for a in (alpha, 0.998 * alpha)]
        require(
            # α within 1e-6 of itself moves the bound by up to 1e-6 α of it.
            bounds[0] <= tolerance * (1 + 1e-4),
            f"at α = {alpha:.7g} the bound is {bounds[0] / tolerance:.5g} times the tolerance",
        )
        require(
            bounds[1] > tolerance,
            f"α = {alpha:.4g} is not the smallest: a little below, the bound still holds",
        )


@exercise("ex-construct-unsharp")
def unsharp_mask(generator: Generator, unsharp: Callable) -> None:
    """Two dense softmax heads against the filter by its definition."""
    for _ in range(3):
        h, w = between(generator, 5, 7), between(generator, 8, 9)
        sigma = 0.6 + 2 * float(torch.rand((), generator=generator))
        amount = 0.2 + 2 * float(torch.rand((), generator=generator))
        pair = run(unsharp, sigma, amount)
        require(
            isinstance(pair, tuple | list) and len(pair) == 2,
            "unsharp must return two tensors, alpha and w",
        )
        alpha, factor = tensor(pair[0], (2,), "alpha"), tensor(pair[1], (2,), "w")
        require(bool((alpha > 0).all()), "a sharpness is not positive")
        at, x = _pixels(h, w), torch.rand(h * w, generator=generator, dtype=torch.float64)
        apart = torch.cdist(at, at)
        heads = [torch.softmax(-a * apart.square(), -1) @ x for a in alpha]
        bell = torch.exp(-0.5 * (apart / sigma).square())
        blurred = (bell @ x) / bell.sum(-1)
        off = float(
            (factor[0] * heads[0] + factor[1] * heads[1] - x - amount * (x - blurred)).abs().max()
        )
        flat = float(factor.sum())
        require(
            abs(flat - 1) < 1e-6,
            f"an image of one colour is multiplied by {flat:.3g}; unsharp masking leaves it alone",
        )
        require(off < 1e-6, f"the two heads are {off:.1e} away from the sharpened image")


@exercise("ex-construct-number")
def two_numbers(generator: Generator, encode: Callable, query: Callable) -> None:
    """Which pixel wins, from all queries of an image, and by how much."""
    for _ in range(2):
        side = between(generator, 4, 6)
        grid, at = (side, side), _pixels(side, side)
        offsets = at[None] - at[:, None]
        s = len(at)
        r = tensor(run(encode, offsets, grid), (s, s, 2), "encode(delta, grid)")
        for _ in range(8):
            pair = torch.randint(0, s, (2,), generator=generator)
            offset = at[pair[1]] - at[pair[0]]
            alpha = 0.5 + 3 * float(torch.rand((), generator=generator))
            v = tensor(run(query, offset, alpha, grid), (2,), "query(offset, alpha, grid)")
            scores = r.to(v) @ v
            hit = (offsets == offset).all(-1)
            seeing = hit.any(1)
            won = scores[hit]
            others = scores.masked_fill(hit, -torch.inf).amax(1)[seeing]
            words = f"offset {tuple(int(o) for o in offset)} on {side} × {side} pixels"
            require(bool((won > others).all()), f"{words}: from some query another pixel wins")
            require(
                bool((won - others >= alpha * (1 - 1e-9)).all()),
                f"{words}: the lead is less than α",
            )
