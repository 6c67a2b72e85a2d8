"""Attention over the pixels of an image with places that are learned."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .positional import mix_separable

__all__ = [
    "Covariance",
    "ImageAttention",
    "LearnedRelativeAttention",
    "QuadraticAttention",
]

Covariance = Literal["isotropic", "full"]


class ImageAttention(nn.Module):
    r"""What the learned layers share: values, output projection, pruning.

    .. math:: \sum_h \operatorname{softmax}(A^h)\, X W_{val}^h W_{out}^h + b_{out}

    on images ``(n, H, W, d)``, pixels as tokens and features last.  Every parameter but
    :math:`b_{out}` and what the heads share has the heads as its first axis.

    Parameters
    ----------
    d_model
        Features d of a pixel.
    n_heads
        Number of heads.
    d_out
        Features of the result; d if left out.
    head_dim
        D_h; if left out, :math:`W_{val}` is the identity, so that each head has a full matrix.

    Raises
    ------
    ValueError
        If a size is not positive.
    """

    # Parameters without heads, which pruning leaves alone.
    _shared: tuple[str, ...] = ("bias_o",)

    def __init__(
        self, d_model: int, n_heads: int, *, d_out: int | None = None, head_dim: int | None = None
    ):
        super().__init__()
        d_out = d_model if d_out is None else d_out
        for name, size in (("d_model", d_model), ("n_heads", n_heads), ("d_out", d_out)):
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} is {size}; it needs to be a whole number, 1 or more")
        if head_dim is not None and (not isinstance(head_dim, int) or head_dim < 1):
            raise ValueError(f"head_dim is {head_dim}; it needs to be a whole number, 1 or more")
        width = d_model if head_dim is None else head_dim
        self.d_model = d_model
        self.weight_v = (
            None if head_dim is None else nn.Parameter(torch.empty(n_heads, d_model, width))
        )
        self.weight_o = nn.Parameter(torch.empty(n_heads, width, d_out))
        self.bias_o = nn.Parameter(torch.zeros(d_out))
        # The heads add up, so all of them together are one layer with n_heads · width inputs.
        if self.weight_v is not None:
            nn.init.normal_(self.weight_v, std=d_model**-0.5)
        nn.init.normal_(self.weight_o, std=(n_heads * width) ** -0.5)

    @property
    def n_heads(self) -> int:
        """Number of heads."""
        return self.weight_o.shape[0]

    def _check(self, x: Tensor) -> None:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            got = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"x is {got}; it needs to be a tensor of floats")
        # Under autocast, layers before this one leave their own dtype.
        if x.dtype != self.weight_o.dtype and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(f"x is {x.dtype}; the layer is {self.weight_o.dtype}")
        if x.ndim != 4 or x.shape[-1] != self.d_model:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; it needs to be (n, H, W, {self.d_model})"
            )

    def _values(self, x: Float[Tensor, "n H W d"]) -> Float[Tensor, "heads n H W e"]:
        if self.weight_v is None:
            return x.expand(self.n_heads, *x.shape)
        return torch.einsum("nijd,hde->hnije", x, self.weight_v)

    def _project(self, heads: Float[Tensor, "heads n H W e"]) -> Float[Tensor, "n H W o"]:
        return torch.einsum("hnije,heo->nijo", heads, self.weight_o) + self.bias_o

    def attention_maps(
        self, grid: Sequence[int], x: Float[Tensor, "n H W d"] | None = None
    ) -> Tensor:
        """Attention ``(heads, H, W, H, W)``: query's row and column, key's row and column.

        With content it depends on the image: give x for ``(n, heads, H, W, H, W)``.

        Parameters
        ----------
        grid
            Height H and width W.
        x
            Images; needed only if scores depend on content.
        """
        raise NotImplementedError

    def prune_heads(self, keep: Sequence[int]) -> None:
        """Keep these heads and drop the others.

        The result is that of the layer in which the others' output projection is 0.  Optimizers made
        before hold the old parameters.

        Raises
        ------
        ValueError
            If ``keep`` is empty or names a head that there is not, or one twice.
        """
        keep = list(keep)
        whole = all(isinstance(head, int) and not isinstance(head, bool) for head in keep)
        known = whole and set(keep) <= set(range(self.n_heads))
        if not keep or not known or len(set(keep)) < len(keep):
            raise ValueError(
                f"keep is {keep}; it needs different heads from 0 to {self.n_heads - 1}"
            )
        for name, parameter in list(self.named_parameters(recurse=False)):
            if name not in self._shared:
                kept = parameter.detach()[keep].clone()
                setattr(self, name, nn.Parameter(kept, requires_grad=parameter.requires_grad))

    def head_importance(self) -> Float[Tensor, "heads"]:
        r"""Norm of each head's matrix, :math:`\|W_{val}^h W_{out}^h\|_F`: small ones go first."""
        matrix = self.weight_o if self.weight_v is None else self.weight_v @ self.weight_o
        return torch.linalg.matrix_norm(matrix.detach())


def _sides(grid: Sequence[int]) -> tuple[int, int]:
    """Height and width, checked."""
    sides = tuple(grid) if isinstance(grid, Iterable) else ()
    whole = all(isinstance(side, numbers.Integral) and side >= 0 for side in sides)
    if len(sides) != 2 or not whole:
        raise ValueError(f"grid is {grid}; it needs to be a height and a width, whole numbers")
    return sides


def _axis_differences(size: int, like: Tensor) -> Float[Tensor, "q k"]:
    at = torch.arange(size, dtype=like.dtype, device=like.device)
    return at - at[:, None]


class QuadraticAttention(ImageAttention):
    r"""Heads that look at a spot of learned centre Δ and spread.

    ``"isotropic"``
        :math:`A^h_{qk} = -\alpha_h\|\delta - \Delta_h\|^2` with :math:`\alpha_h =
        e^{\text{log\_alpha}_h}`: the quadratic encoding with v trained.  Its softmax is a product
        over rows and columns, and is applied as one.
    ``"full"``
        :math:`A^h_{qk} = -\|(\delta - \Delta_h) R_h\|^2`, a Gaussian of any covariance
        :math:`\tfrac12 (R_h R_h^\top)^{-1}`.  Not a product, so that the full matrix is formed.

    The attention does not depend on the image's content.  The centres are drawn with a standard
    deviation of ``centre_std`` pixels (Cordonnier et al. 2020, section 4.2).

    Parameters
    ----------
    d_model, n_heads, d_out, head_dim
        As in :class:`ImageAttention`.
    covariance
        ``"isotropic"`` or ``"full"``.
    alpha
        Sharpness to begin with.
    centre_std
        In pixels.

    Raises
    ------
    ValueError
        If a size or alpha is not positive, centre_std negative, or the covariance unknown.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_out: int | None = None,
        head_dim: int | None = None,
        covariance: Covariance = "isotropic",
        alpha: float = 0.5,
        centre_std: float = 2.0,
    ):
        super().__init__(d_model, n_heads, d_out=d_out, head_dim=head_dim)
        if covariance not in get_args(Covariance):
            raise ValueError(
                f"covariance is {covariance!r}; it needs to be one of {get_args(Covariance)}"
            )
        if not 0 < alpha < math.inf:
            raise ValueError(f"alpha is {alpha}; it needs to be positive and finite")
        if not 0 <= centre_std < math.inf:
            raise ValueError(f"centre_std is {centre_std}; it needs to be 0 or more, and finite")
        self.covariance = covariance
        self.centres = nn.Parameter(centre_std * torch.randn(n_heads, 2))
        if covariance == "isotropic":
            self.log_alpha = nn.Parameter(torch.full((n_heads,), math.log(alpha)))
        else:
            root = math.sqrt(alpha) * torch.eye(2).expand(n_heads, 2, 2)
            self.root = nn.Parameter(root + 0.01 * torch.randn(n_heads, 2, 2))

    def _axis_weights(self, grid: Sequence[int]) -> list[Float[Tensor, "heads _ _"]]:
        return [
            torch.softmax(
                -self.log_alpha.exp()[:, None, None]
                * (_axis_differences(size, self.centres) - self.centres[:, i, None, None]).square(),
                -1,
            )
            for i, size in enumerate(grid)
        ]

    def attention_maps(
        self, grid: Sequence[int], x: Float[Tensor, "n H W d"] | None = None
    ) -> Float[Tensor, "heads H W H W"]:
        """Attention of each head: query's row and column, key's row and column.

        Raises
        ------
        ValueError
            If the grid is no height and width.
        """
        grid = _sides(grid)
        if self.covariance == "isotropic":
            rows, columns = self._axis_weights(grid)
            return rows[:, :, None, :, None] * columns[:, None, :, None, :]
        rows, columns = (
            _axis_differences(size, self.centres) - self.centres[:, i, None, None]
            for i, size in enumerate(grid)
        )
        delta = torch.stack(
            torch.broadcast_tensors(rows[:, :, None, :, None], columns[:, None, :, None, :]), -1
        )
        scores = -(delta @ self.root[:, None, None, None]).square().sum(-1)
        return torch.softmax(scores.flatten(-2), -1).view_as(scores)

    def forward(self, x: Float[Tensor, "n H W d"]) -> Float[Tensor, "n H W o"]:
        """Apply the layer.

        Raises
        ------
        ValueError
            If x has another shape.
        """
        self._check(x)
        grid = x.shape[1:3]
        if self.covariance == "isotropic":
            weights = [w.to(x.dtype) for w in self._axis_weights(grid)]
            return self._project(mix_separable(self._values(x), weights))
        maps = self.attention_maps(grid).flatten(3).flatten(1, 2).to(x.dtype)
        values = self._values(x)
        mixed = torch.einsum("hqk,hnke->hnqe", maps, values.flatten(2, 3))
        return self._project(mixed.view_as(values))


class LearnedRelativeAttention(ImageAttention):
    r"""Heads with a learned relative encoding :math:`r_\delta = (r^{row}_{\delta_1},
    r^{col}_{\delta_2})`, shared by the heads.

    Without content, the score is :math:`v_h^\top r_\delta`, a sum of a row's and a column's part,
    so that its softmax is a product again.  With content, all four terms of
    :func:`~fourviews.convolution.relative_scores` are there,

    .. math:: A_{qk} = x_q W_{qry} W_{key}^\top x_k^\top + x_q W_{qry} r_\delta
              + u^\top W_{key}^\top x_k^\top + v^\top r_\delta ,

    with :math:`\widehat W_{key}` absorbed into the encoding, and everything is divided by
    :math:`\sqrt{D_k}`.  Distances up to the sides of ``grid`` have an encoding.

    Parameters
    ----------
    d_model, n_heads, d_out, head_dim
        As in :class:`ImageAttention`.
    grid
        Largest height and width.
    content
        Whether scores depend on the pixels' content.
    d_key
        Dimension D_k of the encoding, of queries and keys.

    Raises
    ------
    ValueError
        If a size is not positive, or d_key is odd.
    """

    _shared = ("bias_o", "rows", "columns")

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        grid: Sequence[int],
        *,
        d_out: int | None = None,
        head_dim: int | None = None,
        content: bool = False,
        d_key: int = 64,
    ):
        super().__init__(d_model, n_heads, d_out=d_out, head_dim=head_dim)
        sides = _sides(grid)
        if min(sides) < 1:
            raise ValueError(f"grid is {grid}; it needs to be a height and a width, 1 or more")
        if not isinstance(d_key, numbers.Integral) or d_key < 2 or d_key % 2:
            raise ValueError(f"d_key is {d_key}; it needs to be even: a half for rows and columns")
        self.grid, self.content, self.d_key = sides, content, d_key

        def drawn(*shape: int, std: float = 1.0) -> nn.Parameter:
            return nn.Parameter(std * torch.randn(*shape))

        self.rows = drawn(2 * sides[0] - 1, d_key // 2)
        self.columns = drawn(2 * sides[1] - 1, d_key // 2)
        self.v = drawn(n_heads, d_key)
        if content:
            self.weight_q = drawn(n_heads, d_model, d_key, std=d_model**-0.5)
            self.weight_k = drawn(n_heads, d_model, d_key, std=d_model**-0.5)
            self.u = drawn(n_heads, d_key)

    def _tables(self, grid: Sequence[int]) -> list[Float[Tensor, "_ _ e"]]:
        """Encoding of each pair of rows, and of each pair of columns."""
        tables = []
        for table, size, most in zip((self.rows, self.columns), grid, self.grid, strict=True):
            if size > most:
                raise ValueError(
                    f"the image has a side of {size} pixels; distances are learned up to {most}"
                )
            at = torch.arange(size, device=table.device)
            tables.append(table[at - at[:, None] + most - 1])
        return tables

    def _axis_weights(self, grid: Sequence[int]) -> list[Float[Tensor, "heads _ _"]]:
        return [
            torch.softmax(torch.einsum("qke,he->hqk", table, v) / math.sqrt(self.d_key), -1)
            for table, v in zip(self._tables(grid), self.v.chunk(2, -1), strict=True)
        ]

    def _content_maps(self, x: Tensor) -> Float[Tensor, "n heads H W H W"]:
        rows, columns = self._tables(x.shape[1:3])
        query = torch.einsum("nijd,hde->nhije", x, self.weight_q)
        key = torch.einsum("nijd,hde->nhije", x, self.weight_k)
        # x_q W_qry + u asks for content, x_q W_qry + v for places: four terms in two products.
        asks_content = (query + self.u[:, None, None]).flatten(2, 3)
        asks_row, asks_column = (query + self.v[:, None, None]).chunk(2, -1)
        scores = (asks_content @ key.flatten(2, 3).mT).unflatten(-1, x.shape[1:3])
        scores = scores.unflatten(2, x.shape[1:3])
        scores = scores + torch.einsum("nhije,ike->nhijk", asks_row, rows.to(x.dtype))[..., None]
        scores = scores + torch.einsum(
            "nhije,jke->nhijk", asks_column, columns.to(x.dtype)
        ).unsqueeze(-2)
        flat = torch.softmax(scores.flatten(-2) / math.sqrt(self.d_key), -1)
        return flat.view_as(scores)

    def attention_maps(
        self, grid: Sequence[int], x: Float[Tensor, "n H W d"] | None = None
    ) -> Tensor:
        """Attention of each head; with content ``(n, heads, H, W, H, W)``, for the images x.

        Raises
        ------
        ValueError
            If the grid is no height and width, or larger than the layer's; if the heads look at
            content and x is missing, or has other sides.
        """
        grid = _sides(grid)
        if not self.content:
            rows, columns = self._axis_weights(grid)
            return rows[:, :, None, :, None] * columns[:, None, :, None, :]
        if x is None:
            raise ValueError("x is missing; these heads look at the content of an image")
        self._check(x)
        if tuple(x.shape[1:3]) != grid:
            raise ValueError(f"grid is {grid}; x has {tuple(x.shape[1:3])} pixels")
        return self._content_maps(x)

    def forward(self, x: Float[Tensor, "n H W d"]) -> Float[Tensor, "n H W o"]:
        """Apply the layer.

        Raises
        ------
        ValueError
            If x has another shape, or is larger than the grid.
        """
        self._check(x)
        values = self._values(x)
        if not self.content:
            weights = [w.to(x.dtype) for w in self._axis_weights(x.shape[1:3])]
            return self._project(mix_separable(values, weights))
        maps = self._content_maps(x).flatten(4).flatten(2, 3).to(values.dtype)
        mixed = torch.einsum("nhqk,hnke->hnqe", maps, values.flatten(2, 3))
        return self._project(mixed.view_as(values))
