"""Random convolutions of every kind, and images that they can be applied to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import assume
from hypothesis import strategies as st
from torch import Tensor, nn

PADDINGS = ("zeros", "valid", "same", "circular", "reflect", "replicate")


@dataclass(frozen=True)
class Case:
    """A convolution and an input for it."""

    conv: nn.Conv1d | nn.Conv2d
    x: Tensor


def scale(conv: nn.Module, x: Tensor) -> float:
    """Σ|W| · max|x| + max|b|: what rounding is measured by."""
    size = float(conv.weight.detach().abs().sum()) * float(x.abs().max() if x.numel() else 0.0)
    return size + (0.0 if conv.bias is None else float(conv.bias.detach().abs().max()))


def randomised(conv: nn.Module, generator: torch.Generator, size: float = 1.0) -> nn.Module:
    """Weights of mixed scales, not torch's uniform ones."""
    with torch.no_grad():
        for parameter in conv.parameters():
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            exponent = torch.randint(-3, 3, parameter.shape, generator=generator)
            parameter.copy_(size * values * 10.0**exponent)
    return conv


def _side(conv: nn.Module, i: int, largest: int):
    """Sides from the smallest that torch accepts on, now and then any."""
    reach = conv.dilation[i] * (conv.kernel_size[i] - 1) + 1
    # torch lists the padding of the last axis first.
    pad = conv._reversed_padding_repeated_twice[2 * (len(conv.kernel_size) - 1 - i) :][:2]
    needs = {"reflect": max(pad) + 1, "circular": max(pad)}.get(conv.padding_mode, 1)
    smallest = max(1, reach - sum(pad), needs)
    fits = st.integers(smallest, smallest + largest - 3)
    return st.one_of(fits, fits, fits, st.integers(1, largest))


@st.composite
def cases(
    draw, dims: int = 2, padding=None, stride=None, dilation=None, groups=None,
    even=None, dtype=torch.float64, largest: int = 9,
) -> Case:  # fmt: skip
    """Convolutions with all settings drawn, where torch itself accepts them."""
    kind = draw(st.sampled_from(PADDINGS) if padding is None else st.just(padding))
    kernel = tuple(
        2 * draw(st.integers(1, 2))
        if (draw(st.booleans()) if even is None else even)
        else 2 * draw(st.integers(0, 2)) + 1
        for _ in range(dims)
    )
    per_axis = lambda value, top: tuple(  # noqa: E731
        draw(st.integers(1, top)) if value is None else value for _ in range(dims)
    )
    strides, dilations = per_axis(stride, 3), per_axis(dilation, 3)
    count = draw(st.sampled_from((1, 2, 3))) if groups is None else groups
    mode = draw(st.sampled_from(("zeros", "circular", "reflect", "replicate")))
    if kind == "same":
        assume(stride in (None, 1))
        strides, pad = (1,) * dims, "same"
    elif kind == "valid":
        pad = "valid"
    else:
        pad, mode = tuple(draw(st.integers(0, 4)) for _ in range(dims)), kind
    conv = (nn.Conv1d, nn.Conv2d)[dims - 1](
        count * draw(st.integers(1, 3)), count * draw(st.integers(1, 3)), kernel, strides, pad,
        dilations, count, draw(st.booleans()), mode, dtype=dtype,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    randomised(conv, generator)
    sides = tuple(draw(_side(conv, i, largest)) for i in range(dims))
    shape = (*((draw(st.integers(0, 2)),) if draw(st.booleans()) else ()), conv.in_channels, *sides)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    x = (x * 10.0 ** draw(st.integers(-3, 3)) + draw(st.sampled_from((0.0, 100.0)))).to(dtype)
    return Case(conv, x)


def accepted(case: Case) -> Tensor | None:
    """The convolution's own result, or None where torch refuses the input."""
    try:
        with torch.no_grad():
            return case.conv(case.x)
    except RuntimeError:
        return None
