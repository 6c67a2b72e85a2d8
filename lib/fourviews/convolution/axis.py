"""One axis of a convolution: which key each query means, and what lies beyond the border."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["Axis", "Border"]

Border = Literal["zeros", "reflect", "replicate", "circular"]


@dataclass(frozen=True)
class Axis:
    r"""Kernel size, stride, dilation and padding along one axis.

    Output q of a convolution reads the positions :math:`s q - p + d a`, a = 0, …, K - 1, where p is
    the padding before the first pixel.  As attention: the query of output q stands at

    .. math:: x_q = s q - p + d c, \qquad c = \lfloor (K - 1)/2 \rfloor ,

    and head a looks at the offset :math:`\Delta_a = d (a - c)` from there.  With stride 1, padding
    «same» and an odd kernel, query q stands on pixel q.

    The keys depend on the border:

    ``"zeros"``, ``"reflect"``
        The pixels, and one extra token for each padded position, with content zero or a copy of
        the pixel that is reflected there.  Without padding («valid») there are no extra tokens.
    ``"replicate"``
        The pixels alone.  The softmax does the rest: where the meant position lies outside, the
        nearest pixel gets the largest score.
    ``"circular"``
        The pixels alone, and offsets between query and key are taken on the circle.

    Parameters
    ----------
    kernel, stride, dilation
        K, s and d, 1 or more.
    before, after
        Padding before the first and after the last pixel, 0 or more.
    border
        What is padded.

    Raises
    ------
    ValueError
        If a number is not whole or out of its range, or the border is unknown.
    """

    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    border: Border

    def __post_init__(self) -> None:
        for name in ("kernel", "stride", "dilation", "before", "after"):
            if not isinstance(getattr(self, name), numbers.Integral):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; it needs to be a whole number"
                )
        for name in ("kernel", "stride", "dilation"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it needs to be 1 or more")
        for name in ("before", "after"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it needs to be 0 or more")
        if self.border not in get_args(Border):
            raise ValueError(f"border is {self.border!r}; it needs to be one of {get_args(Border)}")

    @property
    def centre(self) -> int:
        """Index c of the kernel's entry that stands on the query."""
        return (self.kernel - 1) // 2

    @property
    def offsets(self) -> list[int]:
        """Offset of each kernel entry from the query."""
        return [self.dilation * (a - self.centre) for a in range(self.kernel)]

    def outputs(self, size: int) -> int:
        """Number of outputs for ``size`` pixels.

        Raises
        ------
        ValueError
            If there is no pixel, the padding is wider than its kind allows, or the padded line is
            shorter than the kernel.
        """
        if size < 1:
            raise ValueError(f"the grid has a side of {size} pixels; it needs at least 1")
        widest = max(self.before, self.after)
        if self.border == "reflect" and widest >= size:
            raise ValueError(
                f"the grid has a side of {size} pixels; reflecting {widest} of them needs at least"
                f" {widest + 1}"
            )
        if self.border == "circular" and widest > size:
            raise ValueError(
                f"the grid has a side of {size} pixels; circular padding by {widest} needs at"
                f" least {widest}"
            )
        reach = self.dilation * (self.kernel - 1) + 1
        padded = size + self.before + self.after
        if padded < reach:
            raise ValueError(
                f"the grid has a side of {size} pixels, {padded} with padding; the kernel reaches"
                f" over {reach}"
            )
        return (padded - reach) // self.stride + 1

    def query_positions(self, size: int) -> Int[Tensor, "q"]:
        """Where the queries stand; outside of 0, …, size - 1 is possible."""
        first = self.dilation * self.centre - self.before
        return self.stride * torch.arange(self.outputs(size)) + first

    def keys(self, size: int) -> tuple[Int[Tensor, "k"], Int[Tensor, "k"]]:
        """Position of each key token, and the pixel that it holds, -1 for a token of zeros."""
        self.outputs(size)
        first, last = self.key_range(size)
        positions = torch.arange(first, last + 1)
        return positions, self.pixels_at(positions, size)

    def key_range(self, size: int) -> tuple[int, int]:
        """Positions of the first and of the last key token."""
        if self.border in ("replicate", "circular"):
            return 0, size - 1
        return -self.before, size - 1 + self.after

    def pixels_at(self, positions: Int[Tensor, "*shape"], size: int) -> Int[Tensor, "*shape"]:
        """The pixel of the key token nearest to each position, -1 for a token of zeros.

        Parameters
        ----------
        positions
            Positions on the axis, pixels counted from 0.
        size
            Number of pixels.
        """
        if self.border == "circular":
            return positions % size
        positions = positions.clamp(*self.key_range(size))
        if self.border == "zeros":
            inside = (positions >= 0) & (positions < size)
            return torch.where(inside, positions, -1)
        pixels = positions.abs()  # replication has no positions beyond the border any more
        return torch.where(pixels < size, pixels, 2 * (size - 1) - pixels)

    def meant(self, offsets: Float[Tensor, "heads"], size: int) -> Int[Tensor, "heads q"]:
        """The pixel that each head means from each query, -1 for a token of zeros.

        Parameters
        ----------
        offsets
            The offset Δ of each head.
        size
            Number of pixels.
        """
        # Of two equally near ones the first.
        offsets = (offsets - 0.5).ceil().long()[:, None]
        return self.pixels_at(self.query_positions(size).to(offsets.device) + offsets, size)

    def wrap(self, offset: Tensor, size: int) -> Tensor:
        """Offsets themselves, or their representatives in [-⌊size/2⌋, …) on the circle.

        Parameters
        ----------
        offset
            Offsets of pixels.
        size
            Number of pixels on the circle.
        """
        if self.border != "circular":
            return offset
        half = size // 2
        return torch.remainder(offset + half, size) - half

    def differences(
        self, size: int, rows: Int[Tensor, "q"] | slice = slice(None)
    ) -> Int[Tensor, "q k"]:
        """δ = key - query, on the circle where the border is circular; of all or some queries.

        Parameters
        ----------
        size
            Number of pixels.
        rows
            Queries that count; all without it.
        """
        positions, _ = self.keys(size)
        return self.wrap(positions - self.query_positions(size)[rows][:, None], size)

    def squared_distances(
        self,
        offsets: Float[Tensor, "heads"],
        size: int,
        rows: Int[Tensor, "q"] | slice = slice(None),
    ) -> Float[Tensor, "heads q k"]:
        """(δ - Δ)² of every key from the position that each head means.

        Parameters
        ----------
        offsets
            The offset Δ of each head.
        size
            Number of pixels.
        rows
            Queries that count; all without it.
        """
        delta = self.differences(size, rows).to(offsets)
        return (delta - self.wrap(offsets, size)[:, None, None]).square()

    def fold(self, weights: Float[Tensor, "heads q k"], size: int) -> Float[Tensor, "heads q size"]:
        """Weights of key tokens given to the pixels that they hold; tokens of zeros drop out.

        Parameters
        ----------
        weights
            Of each head, query and key token.
        size
            Number of pixels.
        """
        if self.border in ("replicate", "circular"):
            return weights
        if self.border == "zeros":
            return weights[..., self.before : self.before + size]
        pixels = self.keys(size)[1].to(weights.device)
        return weights.new_zeros(*weights.shape[:-1], size).index_add(-1, pixels, weights)
