"""A convolution as attention: the separable fast path against the full attention matrix."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import torch
from results import OURS, Row
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fourviews import convolution

# Finite, so that the softmax is computed; the one-hot limit is a look-up.
ALPHA = 3.0


def seconds(run: Callable[[], object], rounds: int) -> float:
    """Median over rounds, after one that is not counted."""
    run()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def given_matrix(layer: convolution.ConvolutionAttention, x: Tensor, maps: Tensor) -> Tensor:
    """The rival at its best: attention matrices computed before, only applied here."""
    tokens = layer.key_tokens(x.movedim(1, -1))
    return torch.einsum("hqd,hdo->qo", maps @ tokens, layer.kernel())


def image_and_layer(side: int, channels: int) -> tuple[Tensor, convolution.ConvolutionAttention]:
    torch.manual_seed(side)
    conv = nn.Conv2d(channels, channels, 3, padding=1)
    x = torch.randn(1, channels, side, side)
    return x, convolution.attention_from_conv(conv, alpha=ALPHA)


def against_the_matrix(sides: tuple[int, ...], rounds: int) -> Iterator[str]:
    yield f"9 heads, 16 channels, alpha = {ALPHA}, float32: time of the dense paths by the fast one"
    for side in sides:
        x, layer = image_and_layer(side, 16)
        fast = seconds(lambda x=x, layer=layer: layer(x, path="fast"), 10 * rounds)
        dense = seconds(lambda x=x, layer=layer: layer(x, path="dense"), rounds)
        maps = layer.attention_maps(x)[0]
        product = seconds(lambda x=x, layer=layer, m=maps: given_matrix(layer, x, m), rounds)
        apart = float((layer(x, path="fast") - layer(x, path="dense")).abs().max())
        yield (
            f"    {side:4}² fast {1e3 * fast:8.2f} ms   dense module {1e3 * dense:9.1f} ms, ratio"
            f" {dense / fast:7.1f}   matrix given {1e3 * product:8.1f} ms, ratio"
            f" {product / fast:6.1f}   apart {apart:.0e}"
        )
        for name, took, off in (
            (f"{OURS}, fast path", fast, None),
            ("dense module", dense, apart),
            ("matrix given", product, None),
        ):
            yield Row(
                f"         {name:22} {1e3 * took:9.2f} ms",
                "paths",
                problem=f"{side} × {side} pixels",
                size=side * side,
                solver=name,
                seconds=took,
                ratio=took / fast,
                accuracy=off,
            )


def growth(sides: tuple[int, ...], rounds: int) -> Iterator[str]:
    yield "growth with the image: time by H·W·(H + W), largest tensor by H·W"
    for side in sides:
        x, layer = image_and_layer(side, 16)
        fast = seconds(lambda x=x, layer=layer: layer(x, path="fast"), 5 * rounds)
        bytes_ = largest_tensor(lambda x=x, layer=layer: layer(x, path="fast"))
        yield Row(
            f"    {side:4}² {1e3 * fast:8.2f} ms, {1e9 * fast / (2 * side**3):7.2f} ns a unit;"
            f" {bytes_ / side**2:8.0f} bytes a pixel",
            "pixels",
            side=side,
            seconds=fast,
            bytes=bytes_,
        )


class Largest(TorchDispatchMode):
    """Bytes of the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.bytes = max(self.bytes, tensor.numel() * tensor.element_size())
        return result


def largest_tensor(run: Callable[[], object]) -> int:
    with Largest() as seen:
        run()
    return seen.bytes


def first_layer_of_a_resnet() -> Iterator[str]:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
    x = torch.randn(1, 3, 224, 224)
    yield "7×7, stride 2, 3 → 64 channels, 224×224: convert, apply, compare"
    for alpha in (float("inf"), 30.0):
        started = time.perf_counter()
        layer = convolution.attention_from_conv(conv, alpha=alpha)
        apart = float((layer(x) - conv(x)).abs().max())
        took = time.perf_counter() - started
        bound = layer.error_bound((float(x.min()), float(x.max())), x.shape[-2:])
        yield f"    alpha {alpha:4}: {took:6.2f} s, apart {apart:.1e}, bound {bound:.1e}"


@torch.no_grad()
def tables(quick: bool = False) -> Iterator[str]:
    """Rows of text; ``quick`` takes smaller sizes and fewer repetitions."""
    rounds = 1 if quick else 3
    yield "Convolution as attention"
    yield ""
    yield from against_the_matrix((16, 32) if quick else (16, 32, 64), rounds)
    yield from growth((16, 32, 64) if quick else (32, 64, 128, 256), rounds)
    yield from first_layer_of_a_resnet()
