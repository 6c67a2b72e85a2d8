r"""How far heads of finite sharpness are from the convolution, at worst.

An output of the attention is :math:`\sum_h \sum_k A^h_k\, x_k W_h`, one of the convolution
:math:`\sum_h x_{t_h} W_h` with t_h the pixel that head h means.  The difference is linear in x,

.. math:: \sum_k x_k C_k, \qquad C_k = \sum_h (A^h_k - [k = t_h])\, W_h ,

so that its largest value over :math:`l \le x \le u` is :math:`\sum_k \max(l\,C_k, u\,C_k)`, summed
over input channels too, and is attained.  Both A and [k = t] are products over the axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from .axis import Axis
from .positional import axis_weights

__all__ = ["affordable", "joint_bound", "separate_bound", "worst_input"]

_MOST_PRODUCTS = 4e8
_MOST_NUMBERS = 2e7
# Weights below this are left out of the sums; a whole row of them is less than rounding.
_TINY = 1e-20


@runtime_checkable
class Heads(Protocol):
    """What the bounds need to know of a layer: where its heads look, how sharply, and what they apply."""

    axes: Sequence[Axis]
    offsets: Float[Tensor, "heads dims"]
    alpha: Float[Tensor, "heads"]
    weight_v: Float[Tensor, "heads d e"]
    weight_o: Float[Tensor, "heads e o"]
    n_heads: int

    def kernel(self) -> Float[Tensor, "heads d o"]: ...


def _both(
    layer: Heads, grid: Sequence[int], rows: Sequence[Tensor] | None = None
) -> list[tuple[Tensor, Tensor]]:
    """Weights over pixels (heads, q, s) of the layer and of its limit, axis by axis, in float64."""
    pairs = []
    rows = [slice(None)] * len(layer.axes) if rows is None else rows
    alpha = layer.alpha.double()
    for i, (axis, size) in enumerate(zip(layer.axes, grid, strict=True)):
        distances = axis.squared_distances(layer.offsets[:, i].double(), size, rows[i])
        limit = torch.full_like(alpha, math.inf)
        pairs.append(tuple(axis.fold(axis_weights(distances, a), size) for a in (alpha, limit)))
    if len(pairs) == 1:  # a second axis of one pixel
        one = torch.ones_like(alpha)[:, None, None]
        pairs.append((one, one))
    return pairs


def _reach(layer: Heads) -> int:
    """Distance from the meant pixel beyond which weights are less than rounding."""
    soft = layer.alpha[~layer.alpha.isinf()]
    eps = torch.finfo(torch.float64).eps
    # Nearly flat heads reach over any image; the number has to stay one that tensors can hold.
    return (
        math.ceil(min(math.sqrt(-math.log(eps / 4) / float(soft.min())), 1e9)) if len(soft) else 0
    )


def _shortened(layer: Heads, grid: Sequence[int]) -> list[int]:
    """Sides of a smaller image that has the same kinds of outputs: both borders, one inside."""
    sides = []
    for i, (axis, size) in enumerate(zip(layer.axes, grid, strict=True)):
        span = int(layer.offsets[:, i].abs().max()) + axis.before + axis.after + axis.stride
        enough = 4 * (_reach(layer) + span + 1)
        sides.append(size - axis.stride * max(0, (size - enough) // axis.stride))
    return sides


def _different_outputs(layer: Heads, grid: Sequence[int]) -> list[Tensor]:
    """Outputs of each axis, without those that are shifts of another one.

    Inside of the image, rows of the attention are shifts of each other up to weights that are less
    than rounding; around the circle exactly so.
    """
    reach = _reach(layer)
    chosen = []
    for i, (axis, size) in enumerate(zip(layer.axes, grid, strict=True)):
        at = axis.query_positions(size)
        if axis.border == "circular":
            chosen.append(torch.zeros(1, dtype=torch.long))
            continue
        first = at + float(layer.offsets[:, i].min()) - reach
        last = at + float(layer.offsets[:, i].max()) + reach
        inside = (first >= 0) & (last <= size - 1)
        rows = torch.arange(len(at))
        chosen.append(torch.cat([rows[~inside], rows[inside][:1]]))
    if len(chosen) == 1:
        chosen.append(torch.zeros(1, dtype=torch.long))
    return chosen


def _windows(pair: tuple[Tensor, Tensor], rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of both weights on the pixels that they reach, (heads, rows, window)."""
    soft, hard = (weights[:, rows.to(weights.device)] for weights in pair)
    reached = ((soft > _TINY) | (hard > 0)).any(0)
    width = int(reached.sum(-1).max()) if reached.numel() else 0
    # Reached pixels first, in order.
    order = (~reached).to(torch.int8).argsort(dim=-1, stable=True)[:, :width]
    keep = reached.gather(-1, order)
    order = order.expand(len(soft), *order.shape)
    return tuple(weights.gather(-1, order) * keep for weights in (soft, hard))


def _reduced(layer: Heads, grid: Sequence[int]):
    """Numbers of the outputs that differ, and both weights on the pixels that they reach."""
    short = _shortened(layer, grid)
    rows = _different_outputs(layer, short)
    pairs = [_windows(pair, row) for pair, row in zip(_both(layer, short), rows, strict=True)]
    for i, (axis, size) in enumerate(zip(layer.axes, grid, strict=True)):
        # Behind the middle of the short image, outputs are counted from the other border.
        left_out = axis.outputs(size) - axis.outputs(short[i])
        rows[i] = torch.where(2 * rows[i] > axis.outputs(short[i]), rows[i] + left_out, rows[i])
    return rows, pairs


def affordable(layer: Heads, grid: Sequence[int]) -> bool:
    """Whether the joint bound takes seconds rather than minutes."""
    rows, pairs = _reduced(layer, grid)
    matrix = layer.weight_v.shape[1] * layer.weight_o.shape[2]
    one_row = pairs[0][0].shape[2] * pairs[1][0][0].numel() * matrix
    return one_row <= _MOST_NUMBERS and layer.n_heads * len(rows[0]) * one_row <= _MOST_PRODUCTS


def _worst_output(
    layer: Heads, low: float, high: float, grid: Sequence[int]
) -> tuple[float, tuple[int, int, int], bool]:
    """Largest error, the output (row, column, channel) that has it, and whether it is positive."""
    rows, pairs = _reduced(layer, grid)
    kernel = layer.kernel().double()
    (first, first_hard), (second, second_hard) = pairs
    best, place, positive = -1.0, (0, 0, 0), True
    for index, row in enumerate(rows[0].tolist()):
        part = torch.einsum("ha,hio->haio", first[:, index], kernel)
        part_hard = torch.einsum("ha,hio->haio", first_hard[:, index], kernel)
        c = torch.einsum("haio,hqb->qoaib", part, second)
        c -= torch.einsum("haio,hqb->qoaib", part_hard, second_hard)
        up = torch.maximum(c * low, c * high).sum((2, 3, 4))
        down = -torch.minimum(c * low, c * high).sum((2, 3, 4))
        for sums, sign in ((up, True), (down, False)):
            if sums.numel() and float(sums.max()) > best:
                best = float(sums.max())
                column, channel = divmod(int(sums.argmax()), sums.shape[1])
                place, positive = (row, int(rows[1][column]), channel), sign
    return max(best, 0.0), place, positive


def joint_bound(layer: Heads, low: float, high: float, grid: Sequence[int]) -> float:
    """The largest error of any output over all images in the range."""
    return _worst_output(layer, low, high, grid)[0]


def separate_bound(layer: Heads, low: float, high: float, grid: Sequence[int]) -> float:
    """The errors of the heads added up: each loses 1 - A(target) at most."""
    if any(axis.border == "zeros" and (axis.before or axis.after) for axis in layer.axes):
        low, high = min(low, 0.0), max(high, 0.0)
    kept = torch.ones_like(layer.alpha, dtype=torch.float64)
    for i, (axis, size) in enumerate(zip(layer.axes, _shortened(layer, grid), strict=True)):
        distances = axis.squared_distances(layer.offsets[:, i].double(), size)
        kept *= axis_weights(distances, layer.alpha.double()).amax(-1).amin(-1)
    lost = (1 - kept)[:, None, None] * layer.kernel().abs().double()
    return float(lost.sum((0, 1)).max()) * (high - low)


def worst_input(layer: Heads, low: float, high: float, grid: Sequence[int]) -> tuple[Tensor, float]:
    """The image ``(*grid, d)`` that attains :func:`joint_bound`, and that error."""
    error, (row, column, channel), positive = _worst_output(layer, low, high, grid)
    kernel = layer.kernel().double()[..., channel]
    rows = [torch.tensor([place]) for place in (row, column)[: len(grid)]]
    (first, first_hard), (second, second_hard) = _both(layer, grid, rows)
    c = torch.einsum("hqa,hqb,hi->abi", first, second, kernel)
    c -= torch.einsum("hqa,hqb,hi->abi", first_hard, second_hard, kernel)
    # As tensors: of two plain numbers, where() makes single precision.
    image = torch.where((c > 0) == positive, c.new_tensor(high), c.new_tensor(low))
    return image.to(layer.weight_v.dtype).view(*grid, -1), error
