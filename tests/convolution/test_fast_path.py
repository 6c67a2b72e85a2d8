"""The separable path: no large matrix, work that grows as H·W·(H + W), and large layers."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from fourviews.convolution import ConvolutionAttention, attention_from_conv


class Largest(TorchDispatchMode):
    """Entries of the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.entries = max([self.entries, *(t.numel() for t in tensors)])
        return result


def layer_and_image(h: int, w: int, alpha: float = 2.0) -> tuple[ConvolutionAttention, Tensor]:
    torch.manual_seed(0)
    conv = nn.Conv2d(16, 16, 3, padding=1, padding_mode="replicate")
    return attention_from_conv(conv, alpha=alpha), torch.randn(1, 16, h, w)


def flops(layer: ConvolutionAttention, x: Tensor, path: str = "fast") -> int:
    with FlopCounterMode(display=False) as counter:
        layer(x, path=path)
    return counter.get_total_flops()


@torch.no_grad()
@pytest.mark.parametrize(("h", "w"), [(8, 8), (16, 40), (40, 16), (64, 64), (128, 128)])
def test_products_of_the_fast_path(h, w) -> None:
    """Rows and columns: 2·heads·d·H·W·(H + W); then the matrices of the heads."""
    layer, x = layer_and_image(h, w)
    mixing = 2 * 9 * 16 * h * w * (h + w)
    matrices = 2 * 9 * 16 * 16 * (h * w + 16)
    assert flops(layer, x) == mixing + matrices


@torch.no_grad()
def test_products_of_the_dense_path() -> None:
    layer, x = layer_and_image(12, 12)
    assert flops(layer, x, "dense") > 2 * 9 * 16 * 12**4


@torch.no_grad()
@pytest.mark.parametrize("alpha", [2.0, float("inf")])
def test_memory_is_linear_in_pixels(alpha) -> None:
    for side in (16, 32, 64, 128):
        layer, x = layer_and_image(side, side, alpha)
        with Largest() as seen:
            layer(x)
        assert seen.entries <= 9 * 16 * side**2 + 9 * 16


@torch.no_grad()
def test_many_heads_go_in_turns() -> None:
    """No intermediate result is larger than the limit, however many images and heads."""
    conv = nn.Conv2d(8, 8, 7, padding=3)
    x = torch.randn(40, 8, 64, 64)
    for alpha in (4.0, float("inf")):
        with Largest() as seen:
            result = attention_from_conv(conv, alpha=alpha)(x)
        assert seen.entries <= 2**25 < 49 * x.numel()
    assert float((result - conv(x)).abs().max()) < 1e-4


@torch.no_grad()
def test_faster_than_dense() -> None:
    """At 32×32 already; the ratio grows with the image, see the benchmark."""
    layer, x = layer_and_image(32, 32)

    def best(path: str, rounds: int) -> float:
        times = []
        for _ in range(rounds):
            started = time.perf_counter()
            layer(x, path=path)
            times.append(time.perf_counter() - started)
        return min(times)

    assert best("dense", 2) > 30 * best("fast", 10)


@torch.no_grad()
@pytest.mark.parametrize("alpha", [30.0, float("inf")])
def test_first_layer_of_a_resnet(alpha) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
    x = torch.randn(1, 3, 224, 224)
    started = time.perf_counter()
    layer = attention_from_conv(conv, alpha=alpha)
    difference = float((layer(x) - conv(x)).abs().max())
    assert time.perf_counter() - started < 10
    span = (float(x.min()), float(x.max()))
    assert difference <= layer.error_bound(span, (224, 224)) < 0.01
