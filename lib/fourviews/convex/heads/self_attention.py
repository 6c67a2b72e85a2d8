r"""Self-attention with its layers merged in pairs and without softmax, as a convex program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ..network import TwoLayerNetwork
from ..options import keywords, refuse_unknown
from ..problem import Problem
from .portions import LARGEST, portions

__all__ = ["SelfAttention", "SelfAttentionNetwork"]

# Up to so many entries the Gram matrices of all samples are kept: 512 MB in float64.
_LARGEST_MOMENTS = 2**26


class SelfAttention(Problem):
    r"""Multi-head self-attention :math:`\sum_h \sigma(X_iW_{1h}X_i^\top)X_iW_{2h}` with weight decay.

    :math:`W_1 = QK^\top` and :math:`W_2 = VW` are merged and there is no :math:`1/\sqrt d`
    (Sahiner et al. 2022, (11)–(13)); with the factor, beta stands for :math:`\beta\sqrt d`.
    The linear program is, with :math:`G_i = X_i^\top X_i` (Theorem 3.1),

    .. math:: \min_{Z\in\mathbb R^{d^2\times dc}}\;
              L\Big(\sum_{k,\ell} G_i[k,\ell]\,X_iZ^{(k,\ell)}\Big) + \beta\|Z\|_* .

    With an activation the masks D of the scores turn Gram matrices into local correlations
    (Theorem 3.3, (16)), one for each block j and query token:

    .. math:: G_{i,j}^{(k,\ell)} = \sum_t X_i[t,k]\,X_i[t,\ell]\,D_j^{(i,t)} .

    ``coefficients`` has shape (d², d·c), with a leading gate axis unless linear: row k·d + a and
    column ℓ·c + b hold entry (a, b) of :math:`Z^{(k,\ell)}`, which one head makes
    :math:`W_1[a, k]\,W_2[\ell, b]`.  Gates have shape (P, d, d), that of :math:`W_1`.  Effective
    rows are those of :math:`X_i\otimes X_i`: key token outside, query token inside.

    For the other parameters and the errors see :class:`~fourviews.convex.Problem`.

    Notes
    -----
    The linear map costs :math:`O(nd^3c)` and O(nd(c + d)) memory: Z meets :math:`G_i` and then
    :math:`X_i` or, pooled, its mean token.  Each gate of a gated map costs that for each token;
    pooled, it forms n d³ products first and costs :math:`O(nd^3(s + c))`.
    """

    degree = 3

    # A part keeps no moments of its own: it is there for a pass or two.
    _is_part = False

    @property
    def block_shape(self) -> tuple[int, int]:
        d = self.X.shape[-1]
        return d * d, d * self.n_outputs

    @property
    def gate_shape(self) -> tuple[int, ...]:
        return self.X.shape[-1], self.X.shape[-1]

    def gates_to_rows(self, gates: Float[Tensor, "P d d"]) -> Float[Tensor, "P p"]:
        return gates.mT.flatten(1)

    def rows_to_gates(self, rows: Float[Tensor, "P p"]) -> Float[Tensor, "P d d"]:
        return rows.reshape(-1, *self.gate_shape).mT.contiguous()

    def first_layer(
        self, weights: Float[Tensor, "m p"], group: Tensor | None = None
    ) -> Float[Tensor, "m rows"]:
        W = weights.reshape(-1, 1, *self.gate_shape)  # key feature × query feature
        return (self.X @ W @ self.X.mT).flatten(1)

    # The linear map ------------------------------------------------------------------------

    def lifted(
        self,
        Z: Float[Tensor, "G p q"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "n s c"]:
        n, s, d = self.X.shape
        Z = self._by_gram(Z)
        if masks is None:
            return self.X @ (self._moments()[0].flatten(1) @ Z[0]).view(n, d, -1)
        out = self.X.new_zeros(n, s, Z.shape[-1] // d)
        for samples, gates, local in self._local(masks):
            models = (local.flatten(0, 1).flatten(1) @ Z[gates].flatten(0, 1)).view(
                *local.shape[:2], d, -1
            )
            out[samples] += (self.X[samples].unsqueeze(-2) @ models).squeeze(-2)
        return out

    def lifted_adjoint(
        self,
        R: Float[Tensor, "n s c"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "G p q"]:
        n, _, d = self.X.shape
        if masks is None:
            image = self._moments()[0].flatten(1).T @ (self.X.mT @ R).view(n, -1)
            return self._from_gram(image[None])
        out = self.X.new_zeros(len(masks), d * d, d * R.shape[-1])
        for samples, gates, local in self._local(masks):
            outer = self.X[samples].unsqueeze(-1) * R[samples].unsqueeze(-2)
            image = local.flatten(0, 1).flatten(1).T @ outer.flatten(0, 1).flatten(1)
            out[gates] += image.view(-1, d * d, d * R.shape[-1])
        return self._from_gram(out)

    def outputs(
        self,
        Z: Float[Tensor, "G p q"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "n *s c"]:
        if self.pool is None:
            return self.lifted(Z, masks)
        n, d = len(self.X), self.X.shape[-1]
        Z = self._by_gram(Z)
        if masks is None:
            grams, mean = self._moments()
            models = (grams.flatten(1) @ Z[0]).view(n, d, -1)
            return (mean.unsqueeze(1) @ models).squeeze(1)
        Z = Z.view(len(Z), d * d, d, -1).permute(2, 0, 1, 3)
        out = self.X.new_zeros(n, Z.shape[-1])
        for samples, gates, local in self._local(masks):
            out[samples] += self._cubes(samples, local) @ Z[:, gates].flatten(0, 2)
        return out

    def outputs_adjoint(
        self,
        R: Float[Tensor, "n *s c"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "G p q"]:
        if self.pool is None:
            return self.lifted_adjoint(R, masks)
        n, d = len(self.X), self.X.shape[-1]
        if masks is None:
            grams, mean = self._moments()
            outer = (mean.unsqueeze(-1) * R.unsqueeze(1)).view(n, -1)
            return self._from_gram((grams.flatten(1).T @ outer)[None])
        out = self.X.new_zeros(d, len(masks), d * d, R.shape[-1])
        for samples, gates, local in self._local(masks):
            image = self._cubes(samples, local).T @ R[samples]
            out[:, gates] += image.view(d, -1, d * d, R.shape[-1])
        return self._from_gram(out.permute(1, 2, 0, 3).flatten(2))

    def _by_gram(self, Z: Float[Tensor, "G p q"]) -> Tensor:
        """Entry (k, a), (ℓ, b) moves to (k, ℓ), (a, b): what G meets comes first."""
        d, c = self.X.shape[-1], Z.shape[-1] // self.X.shape[-1]
        return Z.reshape(-1, d, d, d, c).transpose(2, 3).reshape(-1, d * d, d * c)

    def _from_gram(self, Z: Tensor) -> Float[Tensor, "G p q"]:
        return self._by_gram(Z)  # an exchange of two axes is its own inverse

    def _moments(self) -> tuple[Float[Tensor, "n d d"], Float[Tensor, "n d"]]:
        """Gram matrices and mean tokens: all that the pooled linear head knows of the data."""
        return self._moments_in(self.X.dtype)

    def _moments_in(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        key = ("moments", dtype)
        if key not in self._derived:
            n, s, d = self.X.shape
            grams = self.X.new_empty(n, d, d, dtype=dtype)
            for part in portions(n, s * d):
                X = self.X[part].to(dtype)
                grams[part] = X.mT @ X
            self._derived[key] = grams, self.X.mean(dim=1, dtype=dtype)
        return self._derived[key]

    def _local(
        self, masks: Float[Tensor, "G rows"], samples: list[slice] | None = None
    ) -> Iterator[tuple[slice, slice, Tensor]]:
        """Local correlations (16), shape (samples, query tokens, gates, d²), in portions."""
        n, s, d = self.X.shape
        if masks is self.masks and samples is None and n * s * len(masks) * d * d <= LARGEST:
            # Small enough to keep: every iteration of a solver asks for them.
            if ("local",) not in self._derived:
                parts = list(self._local(masks, [slice(0, n)]))
                self._derived[("local",)] = torch.cat([local for _, _, local in parts], dim=2)
            yield slice(0, n), slice(0, len(masks)), self._derived[("local",)]
            return
        for part in samples or portions(n, s * (s + d * d)):
            X = self.X[part]
            products = (X.unsqueeze(-1) * X.unsqueeze(-2)).flatten(2)
            for gates in portions(len(masks), len(X) * s * (s + d * d)):
                on = masks[gates].view(-1, n, s, s)[:, part].permute(1, 3, 0, 2)
                local = on.flatten(1, 2) @ products
                yield part, gates, local.view(len(X), s, -1, d * d)

    def _cubes(self, samples: slice, local: Tensor) -> Tensor:
        """Mean over query tokens of feature times local correlation, one row a sample."""
        X = self.X[samples]
        return (X.mT @ local.flatten(2)).flatten(1) / X.shape[1]

    # Gram matrix of the map -------------------------------------------------------------------

    @property
    def gram_size(self) -> int:
        return self.loss.target.numel() // self.n_outputs

    def gram(
        self, index: Tensor | None = None, weights: Float[Tensor, "G"] | None = None
    ) -> Float[Tensor, "N N"]:
        r"""The same for every output column: :math:`\langle x, x'\rangle` of the query tokens times
        the inner product of their (local) Gram matrices; averaged if pooled.
        """
        n, s, d = self.X.shape
        masks = self._masks_of(index)
        rows = self.X.reshape(n * s, d)
        if masks is None:
            grams, mean = self._moments()
            inner = grams.flatten(1) @ grams.flatten(1).T
            if weights is not None:
                inner = inner * weights.sum()  # of the one block, or of none
            if self.pool == "mean":
                return inner * (mean @ mean.T)
            return (rows @ rows.T) * inner.repeat_interleave(s, 0).repeat_interleave(s, 1)
        G = self.X.new_zeros(self.gram_size, self.gram_size)
        every = [slice(0, n)]
        for samples, gates, local in self._local(masks, every):
            w = 1.0 if weights is None else weights[gates].view(-1, 1)
            features = (self._cubes(samples, local) if self.pool == "mean" else local).reshape(
                self.gram_size, -1, len(masks[gates]), d * d
            )
            G += (features * w).flatten(1) @ features.flatten(1).T
        return G if self.pool == "mean" else G * (rows @ rows.T)

    # Units -----------------------------------------------------------------------------------

    def units_passes(
        self, first: Float[Tensor, "m p"], second: Float[Tensor, "m q"], block: Tensor
    ) -> tuple[Float[Tensor, "n *s c"], Callable[[Tensor], tuple[Tensor, Tensor]]]:
        if not self._moments_suffice:
            return super().units_passes(first, second, block)
        keys, V = self._keys(first), self._values(second)

        def backward(R: Tensor) -> tuple[Tensor, Tensor]:
            return self._first_gradient(R, V), (keys.T @ R).view(len(second), -1)

        return keys @ V, backward

    def units_forward(
        self, first: Float[Tensor, "m p"], second: Float[Tensor, "m q"], block: Tensor
    ) -> Float[Tensor, "n *s c"]:
        if not self._moments_suffice:
            return super().units_forward(first, second, block)
        return self._keys(first) @ self._values(second)

    def units_first_gradient(
        self, R: Float[Tensor, "n *s c"], second: Float[Tensor, "m q"], block: Tensor
    ) -> Float[Tensor, "m p"]:
        if not self._moments_suffice:
            return super().units_first_gradient(R, second, block)
        return self._first_gradient(R, self._values(second))

    def units_second_gradient(
        self, R: Float[Tensor, "n *s c"], first: Float[Tensor, "m p"], block: Tensor
    ) -> Float[Tensor, "m q"]:
        if not self._moments_suffice:
            return super().units_second_gradient(R, first, block)
        return (self._keys(first).T @ R).view(len(first), -1)

    def units_hidden(
        self, first: Float[Tensor, "m p"], block: Tensor
    ) -> Float[Tensor, "N w"] | None:
        return self._keys(first) if self._moments_suffice else None

    @property
    def _moments_suffice(self) -> bool:
        """Pooled and linear, a unit sees G and the mean token: O(d²) a sample, whatever s is."""
        _, s, d = self.X.shape
        return self.activation == "linear" and self.pool == "mean" and d <= 2 * s

    def _keys(self, first: Float[Tensor, "m p"]) -> Float[Tensor, "n md"]:
        d = self.X.shape[-1]
        mean = self._mean(first.dtype)
        return self._times_grams(
            (mean @ first.view(-1, d).T).view(len(mean), len(first), d)
        ).flatten(1)

    def _mean(self, dtype: torch.dtype) -> Float[Tensor, "n d"]:
        kept = self._derived.get(("moments", dtype))
        return self.X.mean(dim=1, dtype=dtype) if kept is None else kept[1]

    def _times_grams(self, rows: Float[Tensor, "n m d"]) -> Float[Tensor, "n m d"]:
        """Products with G of each sample; where G is not kept it is formed only if that pays."""
        _, s, d = self.X.shape
        m = rows.shape[1]
        kept = not self._is_part or ("moments", rows.dtype) in self._derived
        if kept or 2 * s * m >= s * d + m * d:
            return rows @ self._moments_in(rows.dtype)[0]
        X = self.X.to(rows.dtype)
        return (rows @ X.mT) @ X

    def _values(self, second: Float[Tensor, "m q"]) -> Float[Tensor, "md c"]:
        return second.reshape(-1, self.n_outputs)

    def _first_gradient(self, R: Tensor, V: Float[Tensor, "md c"]) -> Float[Tensor, "m p"]:
        d = self.X.shape[-1]
        values = self._times_grams((R @ V.T).view(len(R), len(V) // d, d)).flatten(1)
        return (values.T @ self._mean(V.dtype)).view(len(V) // d, d * d)

    def part(self, samples: slice) -> Problem:
        # Moments cost more than a pass: those of all samples are kept, and cut, if they are few.
        n, _, d = self.X.shape
        keep = not self._is_part and n * d * d <= _LARGEST_MOMENTS
        if self._moments_suffice and keep:
            self._moments_in(torch.float64)
        twin = super().part(samples)
        twin._is_part = True
        for key, moments in self._derived.items():
            if key[0] == "moments":
                twin._derived[key] = tuple(moment[samples] for moment in moments)
        return twin

    # Bound and network ---------------------------------------------------------------------

    def relu_polar_bound(self, R: Float[Tensor, "n s c"]) -> float:
        r"""For every unit :math:`\tfrac12(\|A^*R\|_2 + \|F\|_2\,\|T\|_2)`, linear A.

        Since :math:`(h)_+ = \tfrac12(h + |h|)` for the scores :math:`h = Fu`, of length at most
        :math:`\|F\|`, and :math:`T(h) = \sum_iX_i^\top H_i^\top R_i`.  Both maps are sums of Kronecker
        products, :math:`F^\top F = \sum_i G_i\otimes G_i` and
        :math:`TT^\top = \sum_i G_i\otimes R_i^\top R_i`, and
        :math:`\|\sum_i A_i\otimes B_i\|^2 \le \|\sum_iA_i^2\|\,\|\sum_iB_i^2\|` for symmetric
        factors, by the Cauchy–Schwarz inequality.
        """
        exact = self.to(torch.float64)
        R = R.double()
        grams, outer = exact._moments()[0], R.mT @ R
        norm = lambda M: float(torch.linalg.matrix_norm(M, 2))  # noqa: E731
        sizes = norm((grams @ grams).sum(0)), norm((outer @ outer).sum(0))
        linear = norm(exact.lifted_adjoint(R, None)[0])
        return 0.5 * (linear + sizes[0] ** 0.5 * (sizes[0] * sizes[1]) ** 0.25)

    def hidden_layers(
        self, first: Tensor, second: Tensor, gates: Tensor | None, group: Tensor | None = None
    ) -> SelfAttentionNetwork:
        return SelfAttentionNetwork(
            first, second, activation=self.activation, gates=gates, pool=self.pool
        )


class SelfAttentionNetwork(TwoLayerNetwork):
    r"""Self-attention :math:`f(X) = \sum_h \sigma(XW_{1h}X^\top)\,XW_{2h}`, no softmax, no :math:`1/\sqrt d`.

    Sahiner et al. (2022), (11).  ``first[h]`` is :math:`W_{1h}^\top` in row-major order,
    ``second[h]`` is :math:`W_{2h}`; ``score_weights`` and ``value_weights`` show them as matrices.

    Parameters
    ----------
    first : Tensor (m, d·d)
        First weights, those of the scores.
    second : Tensor (m, d·c)
        Second weights, those of the values.
    **options
        Activation, gates and pooling, as for :class:`TwoLayerNetwork`.
    """

    def __init__(self, first: Tensor, second: Tensor, **options) -> None:
        refuse_unknown(type(self).__name__, options, keywords(type(self)))
        super().__init__(first, second, **options)
        p, q = self.first.shape[1], self.second.shape[1]
        d = math.isqrt(p)
        if d * d != p or d == 0 or q % d:
            raise ValueError(
                f"first and second must have shapes (m, d²) and (m, d·c), got "
                f"{tuple(self.first.shape)} and {tuple(self.second.shape)}"
            )

    @property
    def score_weights(self) -> Float[Tensor, "m d d"]:
        """:math:`W_1 = QK^\\top` of each head."""
        d = round(self.first.shape[1] ** 0.5)
        return self.first.view(-1, d, d).mT

    @property
    def value_weights(self) -> Float[Tensor, "m d c"]:
        """:math:`W_2 = VW` of each head."""
        d = self.score_weights.shape[-1]
        return self.second.view(len(self.second), d, self.second.shape[1] // d)

    def forward(self, X: Float[Tensor, "n s d"]) -> Float[Tensor, "n *t c"]:
        self.check_input(X, axes=(3,), tokens=None, features=round(self.first.shape[1] ** 0.5))
        n, s, d = X.shape
        m = len(self.first)
        W, V = self.first.view(m * d, d), self.second.view(m * d, self.second.shape[1] // d)
        if self.activation == "linear":
            # From the left: (X W₁) Xᵀ X W₂ costs d² a token where scores cost s·d.
            queries = X.mean(dim=1, keepdim=True) if self.pool == "mean" else X
            keys = (queries @ W.T).view(
                n, queries.shape[1] * m, d
            )  # one row a query token and head
            mixed = (keys @ X.mT) @ X if d > 2 * s else keys @ (X.mT @ X)
            output = mixed.view(n, queries.shape[1], m * d) @ V
            return output.squeeze(1) if self.pool == "mean" else output
        scores = self._scores(X, self.first)
        gate = None if self.gates is None else self._scores(X, self.gates)
        weights = self.activate(scores, gate)  # (n, heads, key tokens, query tokens)
        if self.pool == "mean":
            mixed = weights.mean(dim=-1) @ X
            return mixed.flatten(1) @ V
        mixed = weights.mT @ X.unsqueeze(1)
        return mixed.transpose(1, 2).flatten(2) @ V

    def _scores(self, X: Tensor, weights: Tensor) -> Float[Tensor, "n m s s"]:
        d = X.shape[-1]
        return X.unsqueeze(1) @ weights.view(-1, d, d) @ X.mT.unsqueeze(1)
