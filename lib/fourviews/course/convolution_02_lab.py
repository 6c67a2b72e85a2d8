"""Checks of the lab «Does attention learn to be a convolution?»."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import combinations, product

import torch
from torch import Generator, Tensor
from torch.utils.flop_counter import FlopCounterMode

from .. import convolution
from .checking import close, exercise, number, require, run, tensor
from .draws import between, gaussian


def _least_error(kernel: Tensor, pixels: Iterable[tuple[int, int]]) -> float:
    """By least squares, with one-hot attention at these offsets."""
    size = kernel.shape[-1]
    basis = torch.zeros(size * size, 0, dtype=kernel.dtype)
    for i, j in pixels:
        column = torch.zeros(size, size, dtype=kernel.dtype)
        column[i + size // 2, j + size // 2] = 1
        basis = torch.cat([basis, column.view(-1, 1)], dim=1)
    target = kernel.flatten(0, 1).flatten(1).T
    left = target - basis @ torch.linalg.lstsq(basis, target, driver="gelsd").solution
    return float(left.square().sum() / target.square().sum())


@exercise("ex-learned-missing")
def pixels_of_few_heads(generator: Generator, best_pixels: Callable) -> None:
    """Against all other choices, each by least squares."""
    inside = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    for heads in (between(generator, 5, 8), between(generator, 2, 4), 1):
        kernel = gaussian(generator, 2, 3, 3, 3)
        answer = run(best_pixels, kernel, heads)
        pair = isinstance(answer, tuple | list) and len(answer) == 2
        require(pair, "best_pixels(kernel, heads) must return a pair: offsets and error")
        chosen = [tuple(int(place) for place in pixel) for pixel in answer[0]]
        require(
            len(chosen) == heads and len(set(chosen) & set(inside)) == heads,
            f"for {heads} heads on a 3 × 3 kernel it needs {heads} different offsets from -1 to 1, "
            f"not {chosen}",
        )
        error = _least_error(kernel, chosen)
        least = min(_least_error(kernel, rivals) for rivals in combinations(inside, heads))
        require(
            error < least + 1e-9,
            f"with {heads} heads the offsets leave an error of {error:.3f}; others leave less",
        )
        close(number(answer[1], "the error"), error, "the error does not belong to the offsets")


def _counted_with_weights_first(h: int, w: int, d: int, heads: int, d_out: int) -> int:
    with FlopCounterMode(display=False) as counter:
        for _ in range(heads):
            values = torch.zeros(h * w, d) @ torch.zeros(d, d_out)
            rows = torch.zeros(h, h) @ values.view(h, w * d_out)
            torch.zeros(w, w) @ rows.view(h, w, d_out).movedim(1, 0).reshape(w, h * d_out)
    return counter.get_total_flops()


@exercise("ex-learned-flops")
def operations_of_a_layer(generator: Generator, flops: Callable) -> None:
    """Against the counter that sees every product, with few outputs and with many."""
    for few in (False, True):
        h, w = between(generator, 3, 6), between(generator, 7, 11)
        d, heads, d_out = (between(generator, 2, 5) for _ in range(3))
        d, d_out = (d + 5, d_out) if few else (d, d_out + 5)
        layer = convolution.QuadraticAttention(d, heads, d_out=d_out)
        counted = convolution.cost(layer, torch.zeros(1, h, w, d)).flops
        order = "mixing first"
        if few:
            counted, order = _counted_with_weights_first(h, w, d, heads, d_out), "W_h first"
        value = number(run(flops, h, w, d, heads, d_out), "flops(h, w, d, heads, d_out)")
        require(
            value == counted,
            f"for {h} × {w} pixels, d = {d}, {heads} heads and d_out = {d_out}, {order}, the counter "
            f"sees {counted} operations; flops finds {value:g}",
        )


@exercise("ex-learned-reach")
def reach_of_heads(generator: Generator, reach: Callable) -> None:
    """Heads that look at themselves, at one corner, and anywhere, pixel by pixel."""
    h, w = between(generator, 2, 3), between(generator, 4, 5)
    pixels = list(product(range(h), range(w)))
    itself = torch.eye(h * w, dtype=torch.float64).view(1, 1, h, w, h, w)
    corner = torch.zeros_like(itself)
    corner[..., 0, 0] = 1
    found = tensor(run(reach, torch.cat([itself, corner], 1)), (2,), "reach(maps)")
    value = float(found[0])
    require(
        abs(value) < 1e-12,
        f"a head that looks at the query itself has reach 0; reach finds {value:.3g}",
    )
    wanted = sum(math.hypot(i, j) for i, j in pixels) / len(pixels)
    close(found[1], wanted, f"wrong for a head that looks at the first of {h} × {w} pixels")
    n, heads = 2, 3
    drawn = gaussian(generator, n, heads, h * w, h * w).softmax(-1)
    maps = drawn.view(n, heads, h, w, h, w)
    found = tensor(run(reach, maps), (heads,), "reach(maps)", dtype=maps.dtype)
    wanted = torch.zeros(heads, dtype=maps.dtype)
    for q, k in product(range(h * w), repeat=2):
        wanted += drawn[:, :, q, k].mean(0) * math.dist(pixels[q], pixels[k]) / (h * w)
    close(found, wanted, "wrong for random attention")


@exercise("ex-learned-weights")
def least_squares_of_heads(generator: Generator, best_weights: Callable) -> None:
    """Shape, then that no small change lowers the error: with different heads and with twins."""
    for twins in (False, True):
        heads, keys, d, o = 4, between(generator, 8, 12), 3, 2
        attention = gaussian(generator, heads, keys).softmax(-1)
        if twins:
            attention[1] = attention[0]
        kernel = gaussian(generator, keys, d, o)
        W = tensor(run(best_weights, attention, kernel), (heads, d, o), "best_weights(…)")
        words = "where two heads look at the same place" if twins else "for heads that all differ"

        def error(W: Tensor, attention: Tensor = attention, kernel: Tensor = kernel) -> Tensor:
            made = (attention.T @ W.flatten(1)).view_as(kernel)
            return (made - kernel).square().sum()

        slope = torch.func.grad(error)(W.detach().double())
        require(
            float(slope.abs().max()) < 1e-7,
            f"not the least error {words}: a small change of W lowers it",
        )
