r"""Self-attention, with its two layers merged and without softmax, as a convex program."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..problem import Problem

__all__ = ["SelfAttention", "SelfAttentionNetwork"]


class SelfAttention(Problem):
    r"""Multi-head self-attention :math:`\sum_h \sigma(X_iW_{1h}X_i^\top)X_iW_{2h}` with weight decay.

    :math:`W_1 = QK^\top` and :math:`W_2 = VW` are merged, and there is no :math:`1/\sqrt d`
    (Sahiner et al. 2022, (11)–(12); their (13) drops it too).  With the factor, beta would stand
    for :math:`\beta\sqrt d`.  The linear program is, with :math:`G_i = X_i^\top X_i`,

    .. math:: \min_{Z\in\mathbb R^{d^2\times dc}}\;
              L\Big(\sum_{k,\ell} G_i[k,\ell]\,X_iZ^{(k,\ell)}\Big) + \beta\|Z\|_*
              \qquad\text{(Theorem 3.1, (13))}

    and with activations the scores' masks make local correlations of it (Theorem 3.3, (15)–(16)),

    .. math:: G_{i,j}^{(k,\ell)} = \sum_t X_i[t,k]\,X_i[t,\ell]\,D_j^{(i,t)} .

    ``coefficients`` has shape (d², d·c), with a leading gate axis unless linear: row k·d + a and
    column ℓ·c + b hold entry (a, b) of :math:`Z^{(k,\ell)}`, so that a rank-one block is
    :math:`W_1[a, k]\,W_2[\ell, b]`.  Gates have shape (P, d, d), that of :math:`W_1`.  Effective
    rows are those of :math:`X_i\otimes X_i`: key token t outside, query token s inside.

    For the other parameters and the errors see :class:`~fourviews.convex.Problem`.

    Notes
    -----
    The map costs :math:`O(nd^3c)` and memory O(ndc) (linear): Z meets :math:`G_i`, then
    :math:`X_i`, or their mean over tokens if pooled.  Gated: the same for each gate and token
    (pooled: each gate), from the local correlations.
    """

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
        W = weights.reshape(-1, *self.gate_shape)  # (k, a): key feature, query feature
        scores = torch.einsum("ntk,mka,nsa->mnts", self.X, W, self.X)
        return scores.reshape(len(weights), -1)

    # The linear map ------------------------------------------------------------------------

    def lifted(
        self,
        Z: Float[Tensor, "G p q"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "n s c"]:
        n, s, d = self.X.shape
        c = Z.shape[-1] // d
        if masks is None:
            models = self._grams().flatten(1) @ self._by_gram(Z)[0]
            return self.X @ models.view(n, d, c)
        out = self.X.new_zeros(n * s, c)
        for part, weights in zip(*self._local(masks), strict=True):
            models = weights.view(n * s, -1) @ self._by_gram(Z[part])[0]
            out += torch.einsum("ra,rab->rb", self.X.reshape(n * s, d), models.view(n * s, d, c))
        return out.view(n, s, c)

    def lifted_adjoint(
        self,
        R: Float[Tensor, "n s c"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "G p q"]:
        n, s, d = self.X.shape
        c = R.shape[-1]
        if masks is None:
            return self._from_gram(self._grams().flatten(1).T @ (self.X.mT @ R).view(n, d * c))
        outer = (self.X.unsqueeze(-1) * R.unsqueeze(-2)).view(n * s, d * c)
        out = [self._from_gram(L.view(n * s, -1).T @ outer) for L in self._local(masks)[1]]
        return torch.cat(out)
