r"""Fourier neural operators as convex programs: circular and grouped circular convolutions."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from ..network import TwoLayerNetwork
from ..options import keywords, refuse_unknown
from ..problem import Problem, _features, _is_integer
from .portions import portions

__all__ = ["FNO", "BlockFNO", "FNONetwork", "circulant"]


def circulant(X: Float[Tensor, "n s d"], grid: tuple[int, int]) -> Float[Tensor, "n s sd"]:
    r"""circ(X): row p holds token p − q at shift q, on the h×w torus; shift-major, feature-minor.

    Its product with a weight is a circular convolution (Sahiner et al. 2022, Lemma 4.3).  The
    shifts run over both axes of the grid: with those of one axis alone the lemma holds only for
    a grid of one row.

    Parameters
    ----------
    X : Tensor (n, s, d)
        Samples of s tokens, the cells of the grid in row-major order.
    grid : (int, int)
        Height h and width w.

    Raises
    ------
    ValueError
        If X has no three axes, or if ``grid`` is not (h, w) with h·w tokens.
    """
    if not isinstance(X, Tensor) or X.ndim != 3:
        got = tuple(X.shape) if isinstance(X, Tensor) else type(X).__name__
        raise ValueError(f"X must be a tensor of shape (n, s, d), got {got}")
    return X[:, _differences(_checked_grid(grid, X.shape[1]), X.device)].flatten(2)


class FNO(Problem):
    r"""Fourier neural operator block :math:`\sum_h \sigma(\mathrm{circ}(X_i)u_h)v_h^\top`.

    Multiplying each token of the two-dimensional DFT by its own matrix, then two layers, is this
    circular convolution with weights folded into :math:`u_h` (Sahiner et al. 2022, Lemma 4.3,
    (23)); weight decay is on the folded weights.  The program is (25), and (26) for ReLU:

    .. math:: \min_Z\; L\Big(\sum_j D_j^{(i)}\mathrm{circ}(X_i)Z_j\Big) + \beta\sum_j\|Z_j\|,
              \qquad Z_j\in\mathbb R^{sd\times c}.

    ``coefficients`` has shape (s·d, c), with a leading gate axis unless linear.  Rows are ordered
    shift-major, feature-minor; row p of circ(X) holds token p − q at shift q, on the torus.
    Gates have shape (P, s·d).

    For the other parameters and the errors see :class:`~fourviews.convex.Problem`.

    Parameters
    ----------
    grid : (int, int)
        Height and width; tokens are its cells in row-major order.

    Notes
    -----
    Maps go through the FFT: :math:`O(ns(\log s + d)c)` a gate, circ(X) is never formed.
    """

    def __init__(
        self,
        X: Float[Tensor, "n s d"] | np.ndarray,
        Y: Tensor | np.ndarray,
        *,
        grid: tuple[int, int],
        **options,
    ) -> None:
        refuse_unknown(type(self).__name__, options, keywords(type(self)))
        X = _features(X, self.token_axis)
        self.grid = _checked_grid(grid, X.shape[1])
        super().__init__(X, Y, **options)

    @property
    def block_shape(self) -> tuple[int, int]:
        _, s, d = self.X.shape
        return s * d // self.groups, self.n_outputs // self.groups

    @property
    def gate_shape(self) -> tuple[int, ...]:
        return (self.block_shape[0],)

    def first_layer(
        self, weights: Float[Tensor, "m p"], group: Tensor | None = None
    ) -> Float[Tensor, "m rows"]:
        n, s, _ = self.X.shape
        group = self._group(len(weights), group)
        out = self.X.new_empty(len(weights), n * s)
        for g, X in enumerate(self._inputs(self.X)):
            mine = group == g
            out[mine] = _signed_convolution(X, weights[mine], self.grid).flatten(1)
        return out

    def _effective_tensor(self, group: int = 0) -> Float[Tensor, "rows p"]:
        return circulant(self._inputs(self.X)[group], self.grid).flatten(0, 1)

    def _inputs(self, X: Float[Tensor, "n s d"]) -> tuple[Tensor, ...]:
        return X.chunk(self.groups, dim=2)

    def _group(self, count: int, group: Tensor | None) -> Int[Tensor, "m"]:
        if group is not None:
            return group
        return torch.arange(count, device=self.X.device) % self.groups

    def _spectrum(self, group: int) -> Complex[Tensor, "f n d"]:
        key = ("spectrum", group)
        if key not in self._derived:
            self._derived[key] = _spectrum(self._inputs(self.X)[group], self.grid)
        return self._derived[key]

    # The linear map ------------------------------------------------------------------------

    def lifted(
        self,
        Z: Float[Tensor, "G p q"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "n s c"]:
        n, s, _ = self.X.shape
        group, q = self._group(len(Z), group), Z.shape[-1]
        out = self.X.new_zeros(n, s, self.groups, q)
        for g in range(self.groups):
            mine = torch.nonzero(group == g)[:, 0]
            for part in portions(len(mine), n * s * q):
                index = mine[part]
                kernels = Z[index].view(len(index), s, -1, q).permute(1, 2, 0, 3).flatten(2)
                hidden = self._inverse(self._spectrum(g) @ _transform(kernels, self.grid))
                hidden = hidden.view(s, n, len(index), q)
                if masks is not None:
                    hidden = hidden * masks[index].view(-1, n, s).permute(2, 1, 0).unsqueeze(-1)
                out[:, :, g] += hidden.sum(dim=2).transpose(0, 1)
        return out.flatten(2)

    def lifted_adjoint(
        self,
        R: Float[Tensor, "n s c"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "G p q"]:
        n, s, _ = self.X.shape
        p, q = self.block_shape
        count = self.groups if masks is None else len(masks)
        group = self._group(count, group)
        count = len(group)
        out = self.X.new_empty(count, p, q)
        R = R.reshape(n, s, self.groups, q).permute(2, 1, 0, 3)
        for g in range(self.groups):
            mine = torch.nonzero(group == g)[:, 0]
            for part in portions(len(mine), n * s * q):
                index = mine[part]
                gated = R[g].unsqueeze(2)
                if masks is None:
                    gated = gated.expand(-1, -1, len(index), -1)
                else:
                    gated = gated * masks[index].view(-1, n, s).permute(2, 1, 0).unsqueeze(-1)
                image = self._spectrum(g).mH @ _transform(gated.flatten(2), self.grid)
                image = self._inverse(image).view(s, -1, len(index), q)
                out[index] = image.permute(2, 0, 1, 3).reshape(len(index), p, q)
        return out

    def outputs(
        self,
        Z: Float[Tensor, "G p q"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "n *s c"]:
        if self.pool is None or masks is not None or group is not None:
            return super().outputs(Z, masks, group)
        # Every kernel meets the mean token alone: what counts is its sum over the shifts.
        n, s, _ = self.X.shape
        summed = Z.view(len(Z), s, -1, Z.shape[-1]).sum(dim=1)
        mean = self.X.mean(dim=1).view(n, self.groups, -1)
        return torch.einsum("ngd,gdq->ngq", mean, summed).flatten(1)

    def outputs_adjoint(
        self,
        R: Float[Tensor, "n *s c"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "G p q"]:
        if self.pool is None or masks is not None or group is not None:
            return super().outputs_adjoint(R, masks, group)
        n, s, _ = self.X.shape
        mean = self.X.mean(dim=1).view(n, self.groups, -1)
        image = torch.einsum("ngd,ngq->gdq", mean, R.view(n, self.groups, -1))
        return image.repeat(1, s, 1)

    def _inverse(self, spectrum: Complex[Tensor, "f n m"]) -> Float[Tensor, "s n m"]:
        return _inverse(spectrum, self.grid)

    # Gram matrix, single blocks ----------------------------------------------------------------

    @property
    def gram_size(self) -> int:
        return self.loss.target.numel() * self.groups // self.n_outputs

    def gram(
        self, index: Tensor | None = None, weights: Float[Tensor, "G"] | None = None
    ) -> Float[Tensor, "N N"]:
        r""":math:`(FF^\top)\circ(M^\top\operatorname{diag}(w)M)` with F the stacked circ(X_i) and the
        masks M, averaged over tokens when pooled; zero between groups.  The entries of
        :math:`FF^\top` are the samples' circular cross-correlations at the tokens' difference.
        """
        n, s, _ = self.X.shape
        pooled = self.pool == "mean"
        rows = n if pooled else n * s
        if index is None:
            index = torch.arange(self.n_blocks, device=self.X.device)
        G = self.X.new_zeros(rows, self.groups, rows, self.groups)
        for g in range(self.groups):
            mine = index % self.groups == g
            w = self.X.new_ones(int(mine.sum())) if weights is None else weights[mine]
            masks = None if self.masks is None else self.masks[index[mine]]
            G[:, g, :, g] = self._group_gram(g, masks, w)
        return G.reshape(self.gram_size, self.gram_size)

    def _group_gram(
        self, group: int, masks: Float[Tensor, "J rows"] | None, weights: Float[Tensor, "J"]
    ) -> Float[Tensor, "N N"]:
        n, s, _ = self.X.shape
        pooled = self.pool == "mean"
        if masks is None and pooled:
            mean = self._inputs(self.X)[group].mean(dim=1)
            return weights.sum() * s * (mean @ mean.T)
        spectrum = self._spectrum(group)
        correlation = self._inverse(spectrum @ spectrum.mH)  # difference, sample, sample
        table = _differences(self.grid, self.X.device)
        out = []
        for samples in portions(n, s * n * s):
            part = correlation[:, samples][table].permute(2, 0, 3, 1)  # (b, s, n, s)
            if masks is None:
                part = part * weights.sum()
            else:
                rows = slice(samples.start * s, samples.stop * s)
                part = part * ((masks[:, rows] * weights[:, None]).T @ masks).view(part.shape)
            out.append(part.mean(dim=(1, 3)) if pooled else part.reshape(-1, n * s))
        return torch.cat(out)

    def block_predictions(self, Z: Float[Tensor, "G p"], index: Tensor) -> Float[Tensor, "G n *s"]:
        n, s, _ = self.X.shape
        hidden = self.first_layer(Z, self.group_of(index))
        if self.masks is not None:
            hidden = hidden * self.masks[index]
        hidden = hidden.view(len(Z), n, s)
        if self.pool == "mean":
            hidden = hidden.mean(dim=2)
        if self.groups == 1:
            return hidden
        own = torch.nn.functional.one_hot(self.group_of(index), self.groups).to(hidden)
        return hidden.unsqueeze(-1) * own.view(len(Z), *(1,) * (hidden.ndim - 1), self.groups)

    def block_norm_bounds(self) -> Float[Tensor, "G"]:
        r""":math:`\|D_jF\|_F`, and :math:`\|F\|_2` where that is less."""
        s = self.X.shape[1]
        out = []
        for g, X in enumerate(self._inputs(self.X)):
            lengths = X.square().sum(dim=(1, 2)).repeat_interleave(s)
            whole = self._data_norm(g) ** 2
            each = (
                lengths.sum()[None]
                if self.masks is None
                else self.masks[g :: self.groups] @ lengths
            )
            out.append(each.clamp_max(whole).sqrt() * (1 + 1e-9))
        bounds = torch.stack(out, dim=1).flatten()
        return bounds / s**0.5 if self.pool == "mean" else bounds

    def _data_norm(self, group: int) -> float:
        """Spectral norm of the stacked circ(X_i), which the DFT takes apart."""
        return float(torch.linalg.matrix_norm(self._spectrum(group), 2).max())

    # Bound and network ---------------------------------------------------------------------

    def relu_polar_bound(self, R: Float[Tensor, "n s c"]) -> float:
        r"""For every unit of a group :math:`\tfrac12(\|F^\top R\|_2 + \|F\|_2\|R\|_2)`, as for an MLP."""
        exact = self.to(torch.float64)
        R = R.double()
        linear = exact.lifted_adjoint(R, None)
        parts = R.reshape(-1, self.groups, R.shape[-1] // self.groups)
        norm = lambda M: float(torch.linalg.matrix_norm(M, 2))  # noqa: E731
        return max(
            0.5 * (norm(linear[g]) + exact._data_norm(g) * norm(parts[:, g]))
            for g in range(self.groups)
        )

    def hidden_layers(
        self, first: Tensor, second: Tensor, gates: Tensor | None, group: Tensor | None = None
    ) -> FNONetwork:
        return FNONetwork(
            first,
            second,
            activation=self.activation,
            gates=gates,
            pool=self.pool,
            grid=self.grid,
            blocks=self.groups,
            group=None if self.groups == 1 else self._group(len(first), group),
        )


class BlockFNO(FNO):
    r"""Block-diagonal FNO: a grouped circular convolution, B heads side by side.

    Features and outputs are cut into B groups, and group b of the outputs sees group b of the
    features (Sahiner et al. 2022, Lemma 4.6, Theorems 4.7 and 4.8):

    .. math:: \min_Z\; L\Big(\big[\textstyle\sum_j D_{b,j}^{(i)}\mathrm{circ}(X_i^{(b)})Z_{b,j}\big]_b\Big)
              + \beta\sum_{b,j}\|Z_{b,j}\|,\qquad Z_{b,j}\in\mathbb R^{sd/B\times c/B}.

    Under squared loss the groups are B separate problems; cross-entropy couples them.

    ``coefficients`` has shape (B, s·d/B, c/B), with a leading gate axis unless linear.  Gates have
    shape (B, P, s·d/B); where all patterns are listed and a group has fewer than another, its last
    one is repeated, which changes no optimum.

    For the other parameters and the errors see :class:`FNO`.

    Parameters
    ----------
    blocks : int
        B; divides the numbers of features and outputs.
    """

    def __init__(
        self,
        X: Float[Tensor, "n s d"] | np.ndarray,
        Y: Tensor | np.ndarray,
        *,
        blocks: int,
        grid: tuple[int, int],
        **options,
    ) -> None:
        X = _features(X, self.token_axis)
        if not (_is_integer(blocks) and blocks >= 1):
            raise ValueError(f"blocks must be an integer >= 1, got {blocks!r}")
        if X.shape[-1] % blocks:
            raise ValueError(f"blocks must divide the {X.shape[-1]} features of X, got {blocks}")
        self.groups = int(blocks)
        super().__init__(X, Y, grid=grid, **options)

    @property
    def blocks(self) -> int:
        """B, the number of groups."""
        return self.groups

    @property
    def coefficient_shape(self) -> tuple[int, ...]:
        shape = (self.groups, *self.block_shape)
        return shape if self._gated is None else (self._gated // self.groups, *shape)

    def _gating(self, gates, n_gates, seed):
        if self.n_outputs % self.groups:
            raise ValueError(f"blocks must divide the {self.n_outputs} outputs, got {self.groups}")
        return super()._gating(gates, n_gates, seed)

    def _checked_gates(self, gates: Tensor) -> Tensor:
        B, p = self.groups, self.block_shape[0]
        if gates.ndim != 3 or gates.shape[0] != B or gates.shape[1] == 0 or gates.shape[2] != p:
            raise ValueError(
                f"gates must have shape ({B}, P, {p}) with P >= 1, got {tuple(gates.shape)}"
            )
        return self._like_data("gates", gates)

    def gates_to_rows(self, gates: Float[Tensor, "B P p"]) -> Float[Tensor, "G p"]:
        return gates.transpose(0, 1).flatten(0, 1)

    def rows_to_gates(self, rows: Float[Tensor, "G p"]) -> Float[Tensor, "B P p"]:
        return rows.view(-1, self.groups, rows.shape[-1]).transpose(0, 1).contiguous()


class FNONetwork(TwoLayerNetwork):
    r"""Two layers on circular shifts, :math:`f(X) = \sum_h \sigma(\mathrm{circ}(X)u_h)\,v_h^\top`.

    Sahiner et al. (2022), (23); with ``blocks`` each unit sees the features of its ``group`` and
    writes to the outputs of its group, (28).  ``kernels`` shows the first weights on the grid.

    Parameters
    ----------
    first : Tensor (m, s·d/B)
        First weights, on all shifts of the grid.
    second : Tensor (m, c/B)
        Second weights.
    grid : (int, int)
        Height and width; their product is the number s of tokens.
    blocks : int
        Number B of groups of features and outputs.
    **options
        Activation, gates, group and pooling, as for :class:`TwoLayerNetwork`.
    """

    def __init__(
        self, first: Tensor, second: Tensor, *, grid: tuple[int, int], blocks: int = 1, **options
    ) -> None:
        refuse_unknown(type(self).__name__, options, keywords(type(self)))
        super().__init__(first, second, **options)
        self.grid, self.blocks = _checked_sides(grid), blocks
        if not (_is_integer(blocks) and blocks >= 1):
            raise ValueError(f"blocks must be an integer >= 1, got {blocks!r}")
        cells = self.grid[0] * self.grid[1]
        if self.first.shape[1] % cells or not self.first.shape[1]:
            raise ValueError(
                f"first must have {cells} weights a feature, one a cell of the grid, got shape "
                f"{tuple(self.first.shape)}"
            )
        if blocks == 1 and self.group is None:
            return
        group = self.group
        fits = isinstance(group, Tensor) and group.shape == (len(self.first),)
        fits = fits and not group.is_floating_point()
        if not fits or not ((group >= 0) & (group < blocks)).all():
            raise ValueError(
                f"group must hold one of 0 … {blocks - 1} for each of the {len(self.first)} units, "
                f"got {None if group is None else group.tolist()}"
            )

    @property
    def kernels(self) -> Float[Tensor, "m h w d"]:
        """Each unit's convolution kernel: what it makes of a token at each shift."""
        d = self.first.shape[1] // (self.grid[0] * self.grid[1])
        return self.first.view(-1, *self.grid, d)

    def forward(self, X: Float[Tensor, "n s d"]) -> Float[Tensor, "n *t c"]:
        tokens = self.grid[0] * self.grid[1]
        features = self.first.shape[1] // tokens * self.blocks
        self.check_input(X, axes=(3,), tokens=tokens, features=features)
        outputs = []
        for b, inputs in enumerate(X.chunk(self.blocks, dim=2)):
            mine = slice(None) if self.group is None else self.group == b
            gates = None if self.gates is None else self.gates[mine]
            outputs.append(self._one(inputs, self.first[mine], self.second[mine], gates))
        return torch.cat(outputs, dim=-1)

    def _one(self, X: Tensor, first: Tensor, second: Tensor, gates: Tensor | None) -> Tensor:
        n, s, d = X.shape
        if self.activation == "linear" and self.pool == "mean":
            return X.mean(dim=1) @ first.view(len(first), s, d).sum(dim=1).T @ second
        kernels = first.view(len(first), s, d).permute(1, 2, 0)
        hidden = _inverse(_spectrum(X, self.grid) @ _transform(kernels, self.grid), self.grid)
        gate = None if gates is None else _signed_convolution(X, gates, self.grid).permute(2, 1, 0)
        hidden = self.activate(hidden, gate)  # token, sample, unit
        if self.pool == "mean":
            return hidden.mean(dim=0) @ second
        return (hidden @ second).transpose(0, 1)


def _checked_grid(grid: object, tokens: int) -> tuple[int, int]:
    h, w = _checked_sides(grid)
    if h * w != tokens:
        raise ValueError(f"grid {h} x {w} has {h * w} cells, X has {tokens} tokens")
    return h, w


def _checked_sides(grid: object) -> tuple[int, int]:
    if not (
        isinstance(grid, (tuple, list))
        and len(grid) == 2
        and all(_is_integer(side) and side >= 1 for side in grid)
    ):
        raise ValueError(f"grid must be two integers >= 1, height and width, got {grid!r}")
    return int(grid[0]), int(grid[1])


def _differences(grid: tuple[int, int], device: torch.device) -> Int[Tensor, "s s"]:
    """Token number of p − q on the torus."""
    h, w = grid
    y = torch.arange(h, device=device).repeat_interleave(w)
    x = torch.arange(w, device=device).repeat(h)
    return (y[:, None] - y) % h * w + (x[:, None] - x) % w


def _transform(signal: Float[Tensor, "s a b"], grid: tuple[int, int]) -> Complex[Tensor, "f a b"]:
    if not signal.numel():  # no units: the FFT refuses an empty batch
        frequencies = grid[0] * (grid[1] // 2 + 1)
        return signal.new_zeros(frequencies, *signal.shape[1:], dtype=signal.dtype.to_complex())
    # The MKL of torch 2.5 takes no signal that is repeated by strides of zero, as after a mean.
    signal = signal.reshape(*grid, *signal.shape[1:]).contiguous()
    return torch.fft.rfft2(signal, dim=(0, 1)).flatten(0, 1)


def _inverse(spectrum: Complex[Tensor, "f a b"], grid: tuple[int, int]) -> Float[Tensor, "s a b"]:
    if not spectrum.numel():
        return spectrum.real.new_zeros(grid[0] * grid[1], *spectrum.shape[1:])
    spectrum = spectrum.reshape(grid[0], grid[1] // 2 + 1, *spectrum.shape[1:])
    return torch.fft.irfft2(spectrum, s=grid, dim=(0, 1)).flatten(0, 1)


def _spectrum(X: Float[Tensor, "n s d"], grid: tuple[int, int]) -> Complex[Tensor, "f n d"]:
    return _transform(X.transpose(0, 1), grid)


def _signed_convolution(
    X: Float[Tensor, "n s d"], weights: Float[Tensor, "m sd"], grid: tuple[int, int]
) -> Float[Tensor, "m n s"]:
    """circ(X) times each weight, with signs that can be trusted.

    The FFT leaves rounding where a product is zero; a gate must be on there.  What is that small
    is computed again as the inner product that it is.
    """
    n, s, d = X.shape
    kernels = weights.view(len(weights), s, d).permute(1, 2, 0)
    hidden = _inverse(_spectrum(X, grid) @ _transform(kernels, grid), grid).permute(2, 1, 0)
    sizes = X.flatten(1).norm(dim=1) * weights.norm(dim=1, keepdim=True)
    doubtful = hidden.abs() <= 1e2 * torch.finfo(X.dtype).eps * sizes.unsqueeze(-1)
    where = torch.nonzero(doubtful)
    table = _differences(grid, X.device)
    hidden = hidden.contiguous()
    for part in portions(len(where), s * d):
        unit, sample, token = where[part].T
        rows = X[sample[:, None], table[token]]
        hidden[unit, sample, token] = (rows.flatten(1) * weights[unit]).sum(dim=1)
    return hidden
