r"""The token-mixing layers of an MLP-Mixer as a convex program."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..network import TwoLayerNetwork
from ..options import keywords, refuse_unknown
from ..problem import Problem, _is_integer
from .portions import portions

__all__ = ["Mixer", "MixerNetwork"]


class Mixer(Problem):
    r"""MLP-Mixer block :math:`\sum_h \sigma(W_{1h}X_i)W_{2h}` with weight decay.

    The first layer mixes tokens, the second features (Sahiner et al. 2022, (17)).  The linear
    program is (their (19); (18) is the same with columns in another order)

    .. math:: \min_{Z\in\mathbb R^{s^2\times dc}}\;
              L\Big(\sum_{t,k} X_i[t,k]\,Z^{(t,k)}\Big) + \beta\|Z\|_*,
              \qquad Z^{(t,k)}\in\mathbb R^{s\times c},

    and with activations each gate j multiplies :math:`Z_j^{(t,k)}` by a diagonal 0/1 matrix
    :math:`D_j^{(i,k)}` over output tokens (Theorem 4.2, (21)).

    ``coefficients`` has shape (s², d·c), with a leading gate axis unless linear: row p·s + t and
    column k·c + b hold what feature k of token t adds to output b of token p, in one unit
    :math:`W_1[p, t]\,W_2[k, b]`.  Gates have shape (P, s, s), that of :math:`W_1`.  Effective rows
    are those of :math:`X_i^\top\otimes I_s`: feature outside, output token inside.

    For the other parameters and the errors see :class:`~fourviews.convex.Problem`.

    Notes
    -----
    The map costs :math:`O(ns^2dc)`, for each gate; pooled and linear :math:`O(nsdc)`.
    """

    @property
    def block_shape(self) -> tuple[int, int]:
        _, s, d = self.X.shape
        return s * s, d * self.n_outputs

    @property
    def gate_shape(self) -> tuple[int, ...]:
        return self.X.shape[1], self.X.shape[1]

    def first_layer(
        self, weights: Float[Tensor, "m p"], group: Tensor | None = None
    ) -> Float[Tensor, "m rows"]:
        s = self.X.shape[1]
        return (self.X.mT @ weights.view(-1, 1, s, s).mT).flatten(1)

    # The linear map ------------------------------------------------------------------------

    def lifted(
        self,
        Z: Float[Tensor, "G p q"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "n s c"]:
        n, s, d = self.X.shape
        Z = self._axes(Z)
        c = Z.shape[-1]
        if masks is None:
            return (self.X.flatten(1) @ Z[0].permute(1, 2, 0, 3).reshape(s * d, -1)).view(n, s, c)
        Z = Z.permute(3, 2, 0, 1, 4)  # feature, token, gate, output token, output
        out = self.X.new_zeros(n, s, c)
        for samples, gates, on in self._portions(masks, c):
            hidden = self.X[samples].permute(2, 0, 1) @ Z[:, :, gates].flatten(2)
            hidden = hidden.view(*on.shape, c)
            out[samples] += (hidden * on.unsqueeze(-1)).sum(dim=(0, 2))
        return out

    def lifted_adjoint(
        self,
        R: Float[Tensor, "n s c"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "G p q"]:
        n, s, d = self.X.shape
        c = R.shape[-1]
        if masks is None:
            image = (self.X.flatten(1).T @ R.reshape(n, -1)).view(s, d, s, c)
            return image.permute(2, 0, 1, 3).reshape(1, s * s, d * c)
        out = self.X.new_zeros(d, s, len(masks), s * c)
        for samples, gates, on in self._portions(masks, c):
            gated = on.unsqueeze(-1) * R[samples].unsqueeze(1)
            image = self.X[samples].permute(2, 1, 0) @ gated.flatten(2)
            out[:, :, gates] += image.view(d, s, -1, s * c)
        out = out.view(d, s, len(masks), s, c).permute(2, 3, 1, 0, 4)
        return out.reshape(len(masks), s * s, d * c)

    def outputs(
        self,
        Z: Float[Tensor, "G p q"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "n *s c"]:
        if self.pool is None or masks is not None:
            return super().outputs(Z, masks, group)
        return self.X.flatten(1) @ self._axes(Z)[0].mean(dim=0).flatten(0, 1)

    def outputs_adjoint(
        self,
        R: Float[Tensor, "n *s c"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "G p q"]:
        if self.pool is None or masks is not None:
            return super().outputs_adjoint(R, masks, group)
        _, s, d = self.X.shape
        image = (self.X.flatten(1).T @ R).view(s, d * R.shape[-1]) / s
        return image.repeat(s, 1).unsqueeze(0)

    def _axes(self, Z: Float[Tensor, "G p q"]) -> Float[Tensor, "G s s d c"]:
        _, s, d = self.X.shape
        return Z.reshape(len(Z), s, s, d, -1)

    def _portions(self, masks: Float[Tensor, "G rows"], c: int):
        """Samples, gates and their masks with axes (feature, sample, gate, output token)."""
        n, s, d = self.X.shape
        for samples in portions(n, d * s * (c + s)):
            count = samples.stop - samples.start
            for gates in portions(len(masks), count * d * s * c):
                on = masks[gates].view(-1, n, d, s)[:, samples]
                yield samples, gates, on.permute(2, 1, 0, 3)

    # Gram matrix of the map -------------------------------------------------------------------

    @property
    def gram_size(self) -> int:
        return self.loss.target.numel() // self.n_outputs

    def gram(
        self, index: Tensor | None = None, weights: Float[Tensor, "G"] | None = None
    ) -> Float[Tensor, "N N"]:
        r"""The same for every output column: zero between different output tokens p, and there
        :math:`\sum_k (X_{\cdot k}X_{\cdot k}^\top)\circ(M_{kp}^\top\operatorname{diag}(w)M_{kp})` with
        the masks M (gates × samples) of feature k; averaged if pooled.
        """
        n, s, d = self.X.shape
        masks = self._masks_of(index)
        pooled = self.pool == "mean"
        if masks is None:
            inner = self.X.flatten(1) @ self.X.flatten(1).T
            if weights is not None:
                inner = inner * weights.sum()  # of the one block, or of none
            if pooled:
                return inner / s
            return torch.kron(inner, torch.eye(s, dtype=inner.dtype, device=inner.device))
        features = self.X.permute(2, 0, 1)
        inner = features @ features.mT
        on = masks.view(-1, n, d, s).permute(3, 2, 1, 0)  # output token, feature, sample, gate
        G = self.X.new_zeros((n, n) if pooled else (n, s, n, s))
        for p in range(s):
            left = on[p] if weights is None else on[p] * weights
            block = ((left @ on[p].mT) * inner).sum(dim=0)
            if pooled:
                G += block / s**2
            else:
                G[:, p, :, p] = block
        return G.reshape(self.gram_size, self.gram_size)

    # Bound and network ---------------------------------------------------------------------

    def relu_polar_bound(self, R: Float[Tensor, "n s c"]) -> float:
        r"""For every unit :math:`\tfrac12(\|A^*R\|_2 + \|F\|_2\|R\|_2)`, linear A.

        As for an MLP: pre-activations have length at most :math:`\|F\|_2 = \|[X_1\;\dots\;X_n]\|_2`,
        and :math:`H \mapsto \sum_i H_i^\top R_i` has the norm of the stacked R.
        """
        exact = self.to(torch.float64)
        R = R.double()
        norm = lambda M: float(torch.linalg.matrix_norm(M, 2))  # noqa: E731
        data = norm(exact.X.permute(1, 0, 2).flatten(1))
        return 0.5 * (norm(exact.lifted_adjoint(R, None)[0]) + data * norm(R.flatten(0, 1)))

    def hidden_layers(
        self, first: Tensor, second: Tensor, gates: Tensor | None, group: Tensor | None = None
    ) -> MixerNetwork:
        return MixerNetwork(
            first,
            second,
            activation=self.activation,
            gates=gates,
            pool=self.pool,
            tokens=self.X.shape[1],
        )


class MixerNetwork(TwoLayerNetwork):
    r"""MLP-Mixer block :math:`f(X) = \sum_h \sigma(W_{1h}X)W_{2h}`.

    Sahiner et al. (2022), (17).  ``first[h]`` and ``second[h]`` are :math:`W_{1h}` and
    :math:`W_{2h}` in row-major order; ``token_weights`` and ``feature_weights`` show them as
    matrices.

    Parameters
    ----------
    first : Tensor (m, s·s)
        First weights, which mix tokens.
    second : Tensor (m, d·c)
        Second weights, which mix features.
    tokens : int
        Number s of tokens.
    **options
        Activation, gates and pooling, as for :class:`TwoLayerNetwork`.
    """

    def __init__(self, first: Tensor, second: Tensor, *, tokens: int, **options) -> None:
        refuse_unknown(type(self).__name__, options, keywords(type(self)))
        super().__init__(first, second, **options)
        if not (_is_integer(tokens) and tokens >= 1):
            raise ValueError(f"tokens must be an integer >= 1, got {tokens!r}")
        if self.first.shape[1] != tokens**2:
            raise ValueError(
                f"first must have shape (m, {tokens**2}) for {tokens} tokens, got {tuple(first.shape)}"
            )
        self.tokens = tokens

    @property
    def token_weights(self) -> Float[Tensor, "m s s"]:
        """:math:`W_1` of each unit."""
        return self.first.view(-1, self.tokens, self.tokens)

    def feature_weights(self, d: int) -> Float[Tensor, "m d c"]:
        """:math:`W_2` of each unit, for d features."""
        if not (_is_integer(d) and d >= 1) or self.second.shape[1] % d:
            raise ValueError(
                f"d must divide the second weights, {self.second.shape[1]} a unit, got {d!r}"
            )
        return self.second.view(len(self.second), d, self.second.shape[1] // d)

    def forward(self, X: Float[Tensor, "n s d"]) -> Float[Tensor, "n *t c"]:
        self.check_input(X, axes=(3,), tokens=round(self.first.shape[1] ** 0.5), features=None)
        n, s, d = X.shape
        if self.second.shape[1] % d:
            raise ValueError(
                f"X has {d} features, but the second weights, {self.second.shape[1]} a unit, are "
                "no multiple of them"
            )
        m = len(self.first)
        V = self.feature_weights(d).flatten(0, 1)
        if self.activation == "linear" and self.pool == "mean":
            return (self.token_weights.mean(dim=1) @ X).flatten(1) @ V
        hidden = (self.first.view(m * s, s) @ X).view(n, m, s, d)
        gate = None if self.gates is None else (self.gates.view(m * s, s) @ X).view(n, m, s, d)
        hidden = self.activate(hidden, gate)
        if self.pool == "mean":
            return hidden.mean(dim=2).flatten(1) @ V
        return hidden.transpose(1, 2).flatten(2) @ V
