"""Checks of the lab «Does attention learn to be a convolution?»."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .. import convolution
from .checking import close, exercise, number, require, run, tensor


def _draw(generator: Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _size(generator: Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (1,), generator=generator))


@exercise("ex-learned-missing")
def error_of_missing_pixels(generator: Generator, least_error: Callable) -> None:
    """By least squares with one-hot attention: different heads, doubled ones, and outer ones."""
    kernel, half = _draw(generator, 2, 3, 5, 5), 2
    inside = [divmod(int(k), 5) for k in torch.randperm(25, generator=generator)[:9]]
    inside = [(i - half, j - half) for i, j in inside]
    beyond = _size(generator, half + 1, half + 2)
    outside = [(beyond, 0), (-half, -beyond)]
    cases = {
        "different pixels of the kernel": inside,
        "pixels that are named twice": inside[:5] + inside[:5],
        "some pixels outside of the kernel": inside[:6] + outside,
    }
    for words, pixels in cases.items():
        attention = torch.zeros(len(pixels), 9, 9, dtype=torch.float64)
        for row, (i, j) in enumerate(pixels):
            attention[row, i + 4, j + 4] = 1
        target = torch.zeros(9, 9, 6, dtype=torch.float64)
        target[2:7, 2:7] = kernel.flatten(0, 1).permute(1, 2, 0)
        basis, target = attention.flatten(1).T, target.flatten(0, 1)
        found = basis @ torch.linalg.lstsq(basis, target, driver="gelsd").solution
        wanted = float((target - found).square().sum() / target.square().sum())
        value = number(run(least_error, kernel, pixels), "least_error(kernel, pixels)")
        close(value, wanted, f"wrong for {words}")


@exercise("ex-learned-flops")
def operations_of_a_layer(generator: Generator, flops: Callable) -> None:
    """Against the counter that sees every product."""
    for _ in range(2):
        h, w = _size(generator, 3, 6), _size(generator, 7, 11)
        d, heads, d_out = (_size(generator, 2, 5) for _ in range(3))
        layer = convolution.QuadraticAttention(d, heads, d_out=d_out + 5)
        counted = convolution.cost(layer, torch.zeros(1, h, w, d)).flops
        value = number(run(flops, h, w, d, heads, d_out + 5), "flops(h, w, d, heads, d_out)")
        require(
            value == counted,
            f"for {h} × {w} pixels, d = {d}, {heads} heads and d_out = {d_out + 5} the counter "
            f"sees {counted} operations; flops finds {value:g}",
        )


@exercise("ex-learned-change")
def change_with_the_image(generator: Generator, content_change: Callable) -> None:
    """Same maps for all images; a head of two disjoint maps; maps of any kind, one by one."""
    heads = h = 2
    n = w = heads + 1
    drawn = _draw(generator, n, heads, h, w, h * w).softmax(-1)
    maps = drawn.unflatten(-1, (h, w))
    same = maps[:1].expand_as(maps).clone()
    value = tensor(run(content_change, same), (heads,), "content_change(maps)")
    require(
        float(value.abs().max()) < 1e-12,
        "a head with the same attention on all images has 0; content_change does not find it",
    )
    apart = torch.zeros(2, 1, 2, 2, 2, 2, dtype=torch.float64)
    apart[0, ..., 0, 0] = apart[1, ..., 1, 1] = 1
    value = tensor(run(content_change, apart), (1,), "content_change(maps)")
    # Each is as far from the mean as it could be with two images.
    wanted = (apart[0] - apart.mean(0)).clamp(min=0).sum() / (h * h)
    close(value, wanted.expand(1), "wrong for two images with attention on two pixels")
    value = tensor(run(content_change, maps), (heads,), "content_change(maps)", dtype=maps.dtype)
    mean = drawn.sum(0) / n
    wanted = [
        sum(
            # Total variation is also what one distribution has more than the other.
            float((drawn[m, head, i, j] - mean[head, i, j]).clamp(min=0).sum())
            for m in range(n)
            for i in range(h)
            for j in range(w)
        )
        / (n * h * w)
        for head in range(heads)
    ]
    close(value, torch.tensor(wanted, dtype=maps.dtype), "wrong for random attention")


@exercise("ex-learned-weights")
def least_squares_of_heads(generator: Generator, best_weights: Callable) -> None:
    """Shape, then that no small change lowers the error: with different heads and with twins."""
    for twins in (False, True):
        heads, keys, d, o = 4, _size(generator, 8, 12), 3, 2
        attention = _draw(generator, heads, keys).softmax(-1)
        if twins:
            attention[1] = attention[0]
        kernel = _draw(generator, keys, d, o)
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
