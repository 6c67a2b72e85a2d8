"""Any convolution, written as multi-head self-attention."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .axis import Axis
from .encoding import offset_query, quadratic_encoding
from .error import affordable, joint_bound, separate_bound, worst_input
from .factor import factor_kernel
from .positional import apply_separable, axis_weights
from .scores import ScoreTerms, relative_scores

__all__ = ["Channels", "ConvolutionAttention", "attention_from_conv"]

Channels = Literal["first", "last"]
_ROWS = 256  # queries of a sequence that are answered at once
Path = Literal["auto", "fast", "dense"]


class ConvolutionAttention(nn.Module):
    r"""Multi-head self-attention that looks at one place a head: a convolution.

    .. math:: \sum_h \operatorname{softmax}(A^h)\, X W_{val}^h W_{out}^h + b_{out}, \qquad
              A^h_{qk} = x_q W_{qry}^h W_{key}^{h\top} x_k^\top
                + x_q W_{qry}^h \widehat W_{key}^\top r_\delta
                + u^{h\top} W_{key}^{h\top} x_k^\top + v^{h\top} \widehat W_{key}^\top r_\delta ,

    with :math:`r_\delta = (\|\delta\|^2, \delta)`, the identity for :math:`\widehat W_{key}`,
    :math:`W_{qry} = W_{key} = 0`, u = 0 and :math:`v^h = -\alpha_h (1, -2\Delta_h)`: Theorem 1 of
    Cordonnier, Loukas and Jaggi (2020), with the borders that the theorem leaves out (see
    :class:`~fourviews.convolution.axis.Axis`).  Queries stand where the kernel's centre stands;
    those that stand on no pixel have content zero.

    Made by :func:`attention_from_conv`.

    Parameters
    ----------
    axes
        Geometry of each axis of the grid, one or two.
    offsets
        Δ_h of each head.
    alpha
        Sharpness of each head; infinity is the limit, attention to one pixel.
    weight_v, weight_o
        Values and output projection of each head.
    bias
        :math:`b_{out}`, or None.
    channels
        Whether features are the first axis after the batch, as in torch, or the last.

    Attributes
    ----------
    weight_v, weight_o, bias_o
        Parameters.
    weight_q, weight_k, u
        ``(heads, d, e)`` twice and ``(heads, e)``, zero; e = dims + 1.  They are frozen parameters.
        Whoever sets them to something else gets attention that also looks at content, by the dense
        path.
    weight_r
        :math:`\widehat W_{key}`, ``(e, e)``.
    offsets, alpha
        Buffers, from which ``v`` is made.  Offsets stay in single precision or better whatever the
        layer is converted to: half precision would move a head by pixels.

    Raises
    ------
    ValueError
        If the tensors' sizes do not fit together, or ``channels`` is unknown.
    """

    def __init__(
        self,
        axes: Sequence[Axis],
        offsets: Float[Tensor, "heads dims"],
        alpha: Float[Tensor, "heads"],
        weight_v: Float[Tensor, "heads d e"],
        weight_o: Float[Tensor, "heads e o"],
        bias: Float[Tensor, "o"] | None = None,
        *,
        channels: Channels = "first",
    ):
        super().__init__()
        if channels not in get_args(Channels):
            raise ValueError(
                f"channels is {channels!r}; it needs to be one of {get_args(Channels)}"
            )
        _check_parts(axes, offsets, alpha, weight_v, weight_o, bias)
        heads, d, _ = weight_v.shape
        self.axes, self.channels = tuple(axes), channels
        self.register_buffer("offsets", offsets.to(_places_dtype(weight_v)))
        self.register_buffer("alpha", alpha)
        self.weight_v, self.weight_o = nn.Parameter(weight_v), nn.Parameter(weight_o)
        self.bias_o = None if bias is None else nn.Parameter(bias)
        e = len(self.axes) + 1

        def frozen(tensor: Tensor) -> nn.Parameter:
            return nn.Parameter(tensor, requires_grad=False)

        self.weight_q = frozen(weight_v.new_zeros(heads, d, e))
        self.weight_k = frozen(weight_v.new_zeros(heads, d, e))
        self.u = frozen(weight_v.new_zeros(heads, e))
        self.weight_r = frozen(torch.eye(e, dtype=weight_v.dtype, device=weight_v.device))

    def _apply(self, fn, recurse: bool = True):
        places = self.offsets
        super()._apply(fn, recurse)
        self.offsets = places.to(self.weight_v.device, _places_dtype(self.weight_v))
        return self

    # --- what the layer is made of ----------------------------------------------------------

    @property
    def n_heads(self) -> int:
        """Number of heads."""
        return self.weight_v.shape[0]

    @property
    def head_dim(self) -> int:
        """Features of a head's values, D_h."""
        return self.weight_v.shape[2]

    @property
    def hard(self) -> bool:
        """Whether the heads are in the limit of infinite sharpness."""
        return bool(self.alpha.isinf().all())

    def v(self, grid: Sequence[int]) -> Float[Tensor, "heads e"]:
        r"""The vectors :math:`v^h = -\alpha_h(1, -2\Delta_h)`; for α = ∞ their direction, v/α.

        On a circular axis, Δ is the representative that the encoding of this grid uses.
        """
        return self._v(grid).to(self.weight_v.dtype)

    def _v(self, grid: Sequence[int]) -> Float[Tensor, "heads e"]:
        """As :meth:`v`, in the precision of the offsets."""
        offsets = torch.stack(
            [
                axis.wrap(self.offsets[:, i], size)
                for i, (axis, size) in enumerate(zip(self.axes, grid, strict=True))
            ],
            -1,
        )
        return offset_query(offsets, torch.where(self.alpha.isinf(), 1.0, self.alpha))

    def kernel(self) -> Float[Tensor, "heads d o"]:
        r"""The matrix :math:`W_{val}^h W_{out}^h` that each head applies."""
        return self.weight_v @ self.weight_o

    def out_grid(self, grid: Sequence[int]) -> tuple[int, ...]:
        """Sides of the output for an image with sides ``grid``.

        Raises
        ------
        ValueError
            If ``grid`` does not have a whole number for each axis, or the image is too small for
            kernel or padding.
        """
        if not isinstance(grid, Iterable):
            raise ValueError(
                f"grid is {grid!r}; it needs one side an axis, such as (32,) or (32, 32)"
            )
        sides = list(grid)
        if len(sides) != len(self.axes):
            raise ValueError(f"grid has {len(sides)} sides; this layer needs {len(self.axes)}")
        if any(isinstance(s, bool) or not isinstance(s, numbers.Integral) for s in sides):
            raise ValueError(f"grid is {sides}; it needs whole numbers")
        return tuple(axis.outputs(size) for axis, size in zip(self.axes, grid, strict=True))

    # --- application ------------------------------------------------------------------------

    def forward(self, x: Tensor, *, path: Path = "auto") -> Tensor:
        """Apply the layer.

        Parameters
        ----------
        x
            ``(n, d, *grid)`` or ``(d, *grid)``; with ``channels="last"`` d is the last axis.
        path
            ``"fast"`` uses that the softmax is a product over the axes, ``"dense"`` forms the full
            attention matrix, ``"auto"`` takes the fast one unless the heads look at content.

        Returns
        -------
        Tensor
            As the convolution's output, in the layout of x.

        Raises
        ------
        ValueError
            If x does not fit, or the fast path is asked for and the heads look at content.
        """
        if path not in get_args(Path):
            raise ValueError(f"path is {path!r}; it needs to be one of {get_args(Path)}")
        tokens, batched = self._tokens(x)
        content = self._looks_at_content()
        if path == "fast" and content:
            raise ValueError(
                "path is 'fast', but weight_q, weight_k or u looks at content, or weight_r was"
                " changed: the softmax is no product over the axes"
            )
        if path == "dense" or content:
            out = self._dense(tokens)
        elif self.hard:
            out = self._gathered(tokens)
        elif len(self.axes) == 1 and self._reach(tokens.shape[1]) is not None:
            out = self._banded(tokens, self._reach(tokens.shape[1]))
        else:
            out = apply_separable(
                tokens, self.pixel_weights(tokens.shape[1:-1]), self.weight_v, self.weight_o
            )
        if self.bias_o is not None:
            out = out + self.bias_o
        return self._as_given(out, x, batched)

    def _looks_at_content(self) -> bool:
        # Some of these act only together with another one; any of them ends the shortcut.
        changed = [bool(w.count_nonzero()) for w in (self.weight_q, self.weight_k, self.u)]
        identity = torch.eye(len(self.weight_r)).to(self.weight_r)
        return any(changed) or not torch.equal(self.weight_r, identity)

    def _tokens(self, x: Tensor) -> tuple[Float[Tensor, "n *grid d"], bool]:
        dims, d = len(self.axes), self.weight_v.shape[1]
        if not isinstance(x, Tensor) or not x.is_floating_point():
            got = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"x is {got}; it needs to be a tensor of floats")
        if x.ndim not in (dims + 1, dims + 2):
            raise ValueError(
                f"x has {x.ndim} axes; it needs {dims + 2}, or {dims + 1} without a batch"
            )
        if x.dtype != self.weight_v.dtype or x.device != self.weight_v.device:
            raise ValueError(
                f"x is {x.dtype} on {x.device}; the layer is {self.weight_v.dtype} on"
                f" {self.weight_v.device}"
            )
        batched = x.ndim == dims + 2
        tokens = x if batched else x[None]
        if self.channels == "first":
            tokens = tokens.movedim(1, -1)
        if tokens.shape[-1] != d:
            raise ValueError(f"x has {tokens.shape[-1]} channels; the layer needs {d}")
        self.out_grid(tokens.shape[1:-1])
        return tokens, batched

    def _as_given(self, out: Tensor, x: Tensor, batched: bool) -> Tensor:
        if self.channels == "last":
            return out if batched else out[0]
        out = out.movedim(-1, 1)
        # What comes in torch's channels_last memory layout leaves in it, all else is contiguous.
        nhwc = x.ndim == 4 and batched and x.is_contiguous(memory_format=torch.channels_last)
        if nhwc and not x.is_contiguous():
            out = out.contiguous(memory_format=torch.channels_last)
        else:
            out = out.contiguous()
        return out if batched else out[0]

    # --- fast path --------------------------------------------------------------------------

    def key_weights(self, grid: Sequence[int]) -> list[Float[Tensor, "heads _ _"]]:
        """For each axis, the attention of each output over the key tokens along that axis.

        The attention over the grid is their outer product.
        """
        self.out_grid(grid)
        return [
            axis_weights(axis.squared_distances(self.offsets[:, i], size), self.alpha).to(
                self.weight_v.dtype
            )
            for i, (axis, size) in enumerate(zip(self.axes, grid, strict=True))
        ]

    def pixel_weights(self, grid: Sequence[int]) -> list[Float[Tensor, "heads _ _"]]:
        """As :meth:`key_weights`, with each token's weight given to the pixel that it holds.

        Tokens of zeros drop out, so that rows may sum to less than one.
        """
        return [
            axis.fold(weights, size)
            for weights, axis, size in zip(self.key_weights(grid), self.axes, grid, strict=True)
        ]

    def meant_pixels(self, grid: Sequence[int]) -> Int[Tensor, "heads q"]:
        """Index of the pixel, of all in the grid row by row, that each head means from each query;
        -1 for a token of zeros."""
        index = None
        for i, (axis, size) in enumerate(zip(self.axes, grid, strict=True)):
            pixels = axis.meant(self.offsets[:, i], size)
            if index is None:
                index = pixels
            else:
                first, second = index[..., None], pixels[:, None, :]
                outside = (first < 0) | (second < 0)
                index = torch.where(outside, -1, first * size + second).flatten(1)
        return index

    def _gathered(self, tokens: Tensor) -> Tensor:
        """The limit as a look-up, without any weights."""
        grid = tokens.shape[1:-1]
        flat = tokens.flatten(1, -2)
        flat = torch.cat([flat, flat.new_zeros(flat.shape[0], 1, flat.shape[2])], 1)
        index = self.meant_pixels(grid)
        index = torch.where(index < 0, flat.shape[1] - 1, index)
        merged = self.kernel()
        out = flat.new_zeros(flat.shape[0], index.shape[1], merged.shape[2])
        step = max(1, 2**25 // max(1, flat.shape[0] * index.shape[1] * flat.shape[2]))
        for start in range(0, self.n_heads, step):
            part = slice(start, start + step)
            # (n, q, heads · d): one matrix product for many heads.
            looked_up = flat[:, index[part].T].flatten(2)
            out = out + looked_up @ merged[part].flatten(0, 1)
        return out.unflatten(1, self.out_grid(grid))

    def _reach(self, size: int) -> int | None:
        """How far from its place a head has weights beyond rounding; None if that is not short."""
        soft = self.alpha[~self.alpha.isinf()].double()
        eps = torch.finfo(self.weight_v.dtype).eps
        reach = math.ceil(math.sqrt(math.log(16 * size / eps) / float(soft.min())))
        span = int(self.offsets.abs().max()) + self.axes[0].stride * _ROWS
        return reach if 4 * (reach + span) < size else None

    def _banded(self, tokens: Tensor, reach: int) -> Tensor:
        """A sequence in parts, so that memory is linear in its length."""
        axis, size = self.axes[0], tokens.shape[1]
        offsets = self.offsets[:, 0]
        least, most = int(offsets.min()), int(offsets.max())
        parts = []
        for queries in axis.query_positions(size).split(_ROWS):
            first, last = int(queries[0]) + least, int(queries[-1]) + most
            if axis.border != "circular":
                low, high = axis.key_range(size)
                first = max(low, min(max(first, low), high) - reach)
                last = min(high, min(max(last, low), high) + reach)
            else:
                first, last = first - reach, last + reach
            positions = torch.arange(first, last + 1)
            delta = (positions - queries[:, None]).to(offsets)
            weights = axis_weights((delta - offsets[:, None, None]).square(), self.alpha)
            near = self._read(tokens, [axis.pixels_at(positions, size)])
            parts.append(
                apply_separable(near, [weights.to(tokens.dtype)], self.weight_v, self.weight_o)
            )
        return torch.cat(parts, 1)

    # --- dense path -------------------------------------------------------------------------

    def encoding(self, grid: Sequence[int]) -> Float[Tensor, "q k e"]:
        """r_δ for each query and key token, both row by row."""
        return quadratic_encoding(self._delta(grid).to(self.weight_v.dtype))

    def _delta(self, grid: Sequence[int]) -> Int[Tensor, "q k dims"]:
        parts = [axis.differences(size) for axis, size in zip(self.axes, grid, strict=True)]
        if len(parts) == 1:
            return parts[0][..., None].to(self.offsets.device)
        rows, columns = torch.broadcast_tensors(
            parts[0][:, None, :, None], parts[1][None, :, None, :]
        )
        delta = torch.stack([rows, columns], -1).flatten(2, 3).flatten(0, 1)
        return delta.to(self.offsets.device)

    def key_tokens(self, tokens: Float[Tensor, "n *grid d"]) -> Float[Tensor, "n k d"]:
        """Content of the key tokens: pixels, and behind the border zeros or reflected pixels."""
        return self._read(
            tokens, [a.keys(s)[1] for a, s in zip(self.axes, tokens.shape[1:-1], strict=True)]
        )

    def query_tokens(self, tokens: Float[Tensor, "n *grid d"]) -> Float[Tensor, "n q d"]:
        """Content of the queries: the pixels that they stand on, zero where they stand on none."""
        places = []
        for axis, size in zip(self.axes, tokens.shape[1:-1], strict=True):
            at = axis.query_positions(size)
            at = at % size if axis.border == "circular" else at
            places.append(torch.where((at >= 0) & (at < size), at, -1))
        return self._read(tokens, places)

    @staticmethod
    def _read(tokens: Tensor, places: list[Tensor]) -> Tensor:
        for dim, at in enumerate(places, start=1):
            at = at.to(tokens.device)
            tokens = tokens.index_select(dim, at.clamp(min=0))
            shape = [-1 if i == dim else 1 for i in range(tokens.ndim)]
            tokens = tokens.masked_fill((at < 0).view(shape), 0.0)
        return tokens.flatten(1, -2)

    def scores(self, x: Tensor) -> ScoreTerms:
        """The four terms of the scores, each ``(n, heads, q, k)`` or broadcasting to it.

        For α = ∞, v is replaced by its direction.
        """
        tokens, _ = self._tokens(x)
        return self._scores(tokens)

    def _scores(self, tokens: Tensor) -> ScoreTerms:
        grid = tokens.shape[1:-1]
        return relative_scores(
            self.query_tokens(tokens)[:, None],
            self.key_tokens(tokens)[:, None],
            self.encoding(grid),
            self.weight_q,
            self.weight_k,
            self.weight_r,
            self.u,
            self.v(grid),
        )

    def _place_scores(self, grid: Sequence[int]) -> Float[Tensor, "heads q k"]:
        # ‖δ‖² and 2Δ·δ are large and nearly cancel, so that the layer's own precision may be too
        # little to tell neighbouring pixels apart.
        queries = self.weight_r.double() @ self._v(grid).double()[..., None]
        encoding = quadratic_encoding(self._delta(grid).double())
        return (encoding @ queries[:, None]).squeeze(-1)

    def attention_maps(self, x: Tensor) -> Float[Tensor, "n heads q k"]:
        """The full attention matrices over the key tokens, for pictures and for teaching.

        Its size is the square of the number of pixels.
        """
        tokens, _ = self._tokens(x)
        return self._maps(tokens)

    def _maps(self, tokens: Tensor) -> Tensor:
        place = self._place_scores(tokens.shape[1:-1])
        # The other terms are as large as the attention, so they are left out where they are zero.
        scores = place
        if self._looks_at_content():
            terms = self._scores(tokens)
            scores = place + (
                terms.content_content + terms.content_position + terms.position_content
            )
        soft = torch.softmax(scores, -1).to(self.weight_v.dtype)
        soft = soft.expand(len(tokens), *soft.shape[-3:])
        limit = self.alpha.isinf()[:, None, None]
        if not bool(limit.any()):
            return soft
        best = place == place.amax(-1, keepdim=True)
        return torch.where(limit, best.to(soft) / best.sum(-1, keepdim=True), soft)

    def _dense(self, tokens: Tensor) -> Tensor:
        values = self.key_tokens(tokens)[:, None] @ self.weight_v
        heads = self._maps(tokens) @ values
        out = torch.einsum("nhqe,heo->nqo", heads, self.weight_o)
        return out.unflatten(1, self.out_grid(tokens.shape[1:-1]))

    # --- error ------------------------------------------------------------------------------

    def error_bound(
        self,
        input_range: tuple[float, float],
        grid: Sequence[int],
        *,
        method: Literal["joint", "heads"] | None = None,
    ) -> float:
        r"""Bound on the difference to the convolution in any output, for pixels in a range.

        Sharpness: head h gives the weight :math:`\varepsilon_h` to pixels that it does not mean.
        ``"heads"`` adds the errors up,

        .. math:: \max_o \sum_h \varepsilon_h \sum_i |W^h_{io}| \cdot (\max x - \min x),

        where the range is made to include the 0 of extra tokens.  With
        :func:`~fourviews.convolution.leak_bound`, ε ≤ 1 - θ₃(e^{-α})^{-m}, about 2m e^{-α}; here ε
        is taken from the grid itself.  What one head loses to a pixel another one may win from it,
        so that this can be far too large for smooth, wide kernels.  ``"joint"`` therefore adds up
        the heads' coefficients of each pixel before it takes absolute values: the largest error
        that an input in the range can cause, which :meth:`worst_case_input` attains.

        Rounding: :math:`n\,\epsilon \sum_h |W^h_{val}||W^h_{out}| \max|x|` is added, where ε is
        that of the dtype and n counts the terms of the sums that are not negligible.  It covers
        both, layer and convolution, if neither is computed in a lower precision than the dtype's
        (as TF32 does).

        Parameters
        ----------
        input_range
            Smallest and largest value of a pixel.
        grid
            Sides of the image.
        method
            ``None`` takes ``"joint"`` unless it would be expensive.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If the range or the grid does not fit, or the heads look at content.
        """
        if method not in (None, "joint", "heads"):
            raise ValueError(f"method is {method!r}; it needs to be 'joint', 'heads' or None")
        low, high = self._check_bounded(input_range, grid)
        with torch.no_grad():
            if self.hard:
                leak = 0.0
            elif method == "heads" or (method is None and not affordable(self, grid)):
                leak = separate_bound(self, low, high, grid)
            else:
                leak = joint_bound(self, low, high, grid)
            size = self.weight_v.abs().double() @ self.weight_o.abs().double()
            total = float(size.sum((0, 1)).max()) * max(abs(low), abs(high))
            total += 0.0 if self.bias_o is None else float(self.bias_o.abs().max())
        return leak + self._terms(grid) * torch.finfo(self.weight_v.dtype).eps * total

    def _terms(self, grid: Sequence[int]) -> int:
        """Number of roundings that can add up in an output.

        Adding a term smaller than rounding errs by that term at most, so the pixels whose weight is
        less than ε/size count together as one.
        """
        count = sum(self.weight_v.shape) + 16
        soft = self.alpha[~self.alpha.isinf()]
        if len(soft):
            eps = torch.finfo(self.weight_v.dtype).eps
            for size in grid:
                reach = math.ceil(math.sqrt(math.log(size / eps) / float(soft.min())))
                # Once in the softmax's sum, once in the mixing.
                count += 2 * min(size, 2 * reach + 2)
        return count

    def _check_bounded(
        self, input_range: tuple[float, float], grid: Sequence[int]
    ) -> tuple[float, float]:
        low, high = _check_range(input_range)
        if self._looks_at_content():
            raise ValueError(
                "weight_q, weight_k or u looks at content, or weight_r was changed: the layer is no"
                " convolution"
            )
        self.out_grid(grid)
        return low, high

    def worst_case_input(
        self, input_range: tuple[float, float], grid: Sequence[int]
    ) -> tuple[Tensor, float]:
        """An image in the range that makes the error largest, and that error, before rounding.

        Parameters
        ----------
        input_range, grid
            As for :meth:`error_bound`.

        Returns
        -------
        tuple
            The image, without a batch, in the layout of the layer; the error of its worst output.

        Raises
        ------
        ValueError
            As :meth:`error_bound`.
        """
        low, high = self._check_bounded(input_range, grid)
        with torch.no_grad():
            image, error = worst_input(self, low, high, grid)
        return (image.movedim(-1, 0) if self.channels == "first" else image), error

    def extra_repr(self) -> str:
        """Sizes, for print."""
        d, o = self.weight_v.shape[1], self.weight_o.shape[2]
        return (
            f"{d} → {o} channels, {self.n_heads} heads of dimension {self.head_dim},"
            f" encoding of dimension {len(self.axes) + 1}"
        )


def attention_from_conv(
    conv: nn.Conv1d | nn.Conv2d,
    *,
    alpha: float = math.inf,
    head_dim: int | None = None,
    outputs: Sequence[int] | None = None,
    padding: Sequence[tuple[int, int]] | None = None,
    channels: Channels = "first",
) -> ConvolutionAttention:
    r"""Write a convolution as multi-head self-attention with the same output.

    One head for each entry of the kernel looks at the pixel that this entry multiplies, and its
    matrix :math:`W_{val}^h W_{out}^h` is the kernel's at that entry.

    **Borders.**  The weights of a softmax sum to one, so that on a constant image any attention over
    the pixels alone gives a constant result.  A convolution with zero padding does not: extra key
    tokens of content zero stand in the padded places.  Reflection gets extra tokens too, with
    copies of pixels: beyond the border the nearest pixel, not the reflected one, has the largest
    score.  This is why replication needs nothing: it is what the softmax does by itself.  For
    circular padding, offsets between pixels are taken on the torus.

    **Head dimension.**  :math:`W_{val}^h W_{out}^h` has at most the rank D_h.  D_h = min(D_in,
    D_out), the default, is enough for every kernel.  With a smaller one, an entry of rank r is
    shared by ⌈r/D_h⌉ heads at the same offset, so that Σ_δ ⌈rank W_δ / D_h⌉ heads are needed, and
    as many are built.  With ``outputs`` there is one head an entry whatever its rank: the outputs
    named, at most D_h, are those of the convolution, and the others the best that each head can
    make of the same values (least squares).

    Parameters
    ----------
    conv
        With any kernel size, stride, dilation, groups and padding. Its weights are copied.
    alpha
        Sharpness of the heads. Infinity takes the limit of the softmax: the result is then the
        convolution's up to rounding. For a finite α see
        :meth:`ConvolutionAttention.error_bound`. From about 746 on in float64, 104 in float32, all
        other weights underflow and the softmax itself gives the limit.
    head_dim
        D_h; min(D_in, D_out) if left out.
    outputs
        Output channels that need to be exact although ``head_dim`` is small.
    padding
        Pixels before and after, a pair for each axis, in place of the convolution's own: for layers
        that pad in another way than torch does, such as TensorFlow's «same». Only then may ``conv``
        be of a derived class.
    channels
        ``"first"`` for ``(n, d, *grid)``, ``"last"`` for ``(n, *grid, d)``. With ``"first"``, the
        layout in memory is kept too.

    Returns
    -------
    ConvolutionAttention
        In the dtype and on the device of ``conv``.

    Raises
    ------
    ValueError
        If ``conv`` is no Conv1d or Conv2d, its weights or bias are not finite, alpha is not
        positive or does not fit the weights' dtype, head_dim is not positive, there are more
        ``outputs`` than head_dim, or ``padding`` is not a pair of non-negative whole numbers for
        each axis.
    """
    if isinstance(alpha, bool) or not isinstance(alpha, numbers.Real):
        raise ValueError(f"alpha is {alpha!r}; it needs to be a number")
    derived = padding is not None and isinstance(conv, nn.Conv1d | nn.Conv2d)
    if not derived and type(conv) not in (nn.Conv1d, nn.Conv2d):
        raise ValueError(
            f"conv is a {type(conv).__name__}; it needs to be a Conv1d or a Conv2d, of a derived"
            " class only with padding=…, since that may compute something else"
        )
    if not alpha > 0:
        raise ValueError(f"alpha is {alpha}; it needs to be positive, infinity for the limit")
    weight = conv.weight.detach()
    if not weight.is_floating_point():
        raise ValueError(f"conv has weights of {weight.dtype}; they need to be real floats")
    for name, tensor in (("weights", weight), ("a bias", conv.bias)):
        if tensor is not None and not bool(tensor.isfinite().all()):
            raise ValueError(f"conv has {name} not finite; all of its numbers need to be")
    limits = torch.finfo(weight.dtype)
    if math.isfinite(alpha) and not limits.smallest_normal <= alpha <= limits.max:
        raise ValueError(
            f"alpha is {alpha}; in {weight.dtype} it needs to lie between"
            f" {limits.smallest_normal} and {limits.max}, or to be infinity"
        )
    axes = _axes(conv, padding)
    # All entries of the kernel, row by row, each as a matrix from inputs to outputs.
    matrices = _ungrouped(weight, conv.groups).flatten(2).permute(2, 1, 0)
    offsets = torch.cartesian_prod(*(torch.tensor(axis.offsets) for axis in axes))
    offsets = offsets.view(len(matrices), len(axes)).to(weight.device)
    which, weight_v, weight_o = factor_kernel(matrices, head_dim, outputs)
    sharpness = torch.full((len(which),), alpha, dtype=weight.dtype, device=weight.device)
    bias = None if conv.bias is None else conv.bias.detach().clone()
    return ConvolutionAttention(
        axes, offsets[which].double(), sharpness, weight_v, weight_o, bias, channels=channels
    )


def _axes(conv: nn.Conv1d | nn.Conv2d, padding: Sequence[tuple[int, int]] | None) -> list[Axis]:
    dims = len(conv.kernel_size)
    if padding is not None:
        listed = padding if isinstance(padding, Sequence) else ()
        pairs = [tuple(pair) if isinstance(pair, Sequence) else () for pair in listed]
        whole = all(
            isinstance(side, numbers.Integral) and side >= 0 for pair in pairs for side in pair
        )
        if len(pairs) != dims or any(len(pair) != 2 for pair in pairs) or not whole:
            raise ValueError(
                f"padding is {padding}; it needs a pair of whole numbers, 0 or more, for each of"
                f" {dims} axes"
            )
    elif conv.padding == "same":
        reach = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
        pairs = [(r // 2, r - r // 2) for r in reach]
    elif conv.padding == "valid":
        pairs = [(0, 0)] * dims
    else:
        pairs = [(p, p) for p in conv.padding]
    return [
        Axis(conv.kernel_size[i], conv.stride[i], conv.dilation[i], *pairs[i], conv.padding_mode)
        for i in range(dims)
    ]


def _ungrouped(weight: Tensor, groups: int) -> Tensor:
    """Weights ``(o, d, *kernel)`` over all inputs: zero where a group does not see one."""
    o, per_group, *kernel = weight.shape
    full = weight.new_zeros(groups, o // groups, groups, per_group, *kernel)
    each = torch.arange(groups)
    full[each, :, each] = weight.unflatten(0, (groups, -1))
    return full.flatten(2, 3).flatten(0, 1)


def _places_dtype(weight: Tensor) -> torch.dtype:
    return torch.promote_types(weight.dtype, torch.float32)


def _check_parts(
    axes: Sequence[Axis],
    offsets: Tensor,
    alpha: Tensor,
    weight_v: Tensor,
    weight_o: Tensor,
    bias: Tensor | None,
) -> None:
    heads, _, e = weight_v.shape
    needed = {
        "offsets": (offsets, (heads, len(axes))),
        "alpha": (alpha, (heads,)),
        "weight_o": (weight_o, (heads, e, weight_o.shape[-1])),
    }
    if bias is not None:
        needed["bias"] = (bias, weight_o.shape[-1:])
    for name, (tensor, shape) in needed.items():
        if tuple(tensor.shape) != tuple(shape):
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; it needs {tuple(shape)}")
    if len(axes) not in (1, 2):
        raise ValueError(f"axes has {len(axes)} entries; it needs one or two")


def _check_range(input_range: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = (float(value) for value in input_range)
    except (TypeError, ValueError):
        raise ValueError(f"input_range is {input_range!r}; it needs two numbers") from None
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"input_range is {input_range}; it needs two finite numbers in order")
    return low, high
