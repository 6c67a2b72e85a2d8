r"""The two-layer perceptron as a convex program."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..network import MLPNetwork
from ..problem import Problem
from .portions import portions

__all__ = ["MLP"]


class MLP(Problem):
    r"""Two-layer MLP with weight decay, through the convex program with the same optimal value.

    The values agree given enough neurons, for ``"gated_relu"`` with the same gates, and for
    ``"relu"`` if all patterns are listed (neither ``gates`` nor ``n_gates``).


    With D_j the diagonal 0/1 matrix of gate j over all rows x of the data,

    .. math:: \min_Z\; L\Big(\sum_j D_j X Z_j\Big) + \beta\sum_j\|Z_j\|,
              \qquad Z_j \in \mathbb R^{d\times c}.

    =============  ==============================  ==========================================
    activation     blocks                          norm
    =============  ==============================  ==========================================
    linear         one, D = I                      nuclear (Sahiner et al. 2022, (6))
    gated_relu     one a gate                      nuclear, (7)–(8)
    relu           one an activation pattern       quasi-nuclear on {u : (2D_j − I)Xu >= 0}, (5)
    =============  ==============================  ==========================================

    ``coefficients`` has shape (d, c), with a leading gate axis unless linear.  X may be
    (n, d) or (n, s, d): tokens are rows that share the weights.  Gates have shape (P, d).
    For the other parameters and the errors see :class:`~fourviews.convex.Problem`.
    """

    token_axis = "optional"

    @property
    def block_shape(self) -> tuple[int, int]:
        return self.X.shape[-1], self.n_outputs

    @property
    def gate_shape(self) -> tuple[int, ...]:
        return (self.X.shape[-1],)

    @property
    def _rows(self) -> Float[Tensor, "rows d"]:
        return self.X.reshape(-1, self.X.shape[-1])

    def first_layer(
        self, weights: Float[Tensor, "m d"], group: Tensor | None = None
    ) -> Float[Tensor, "m rows"]:
        return weights @ self._rows.T

    def lifted(
        self,
        Z: Float[Tensor, "G d c"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "n *s c"]:
        rows = self._rows
        if masks is None:
            output = rows @ Z[0]
        else:
            # sum_j D_j (X Z_j), never [D_1 X … D_P X]: O(rows * d * c) a gate.
            output = rows.new_zeros(len(rows), Z.shape[-1])
            for part in portions(len(masks), len(self._rows) * self.n_outputs):
                hidden = rows @ Z[part].permute(1, 0, 2).reshape(Z.shape[1], -1)
                hidden = hidden.view(len(rows), -1, Z.shape[-1])
                output += torch.einsum("ngc,gn->nc", hidden, masks[part])
        return output.reshape(*self.X.shape[:-1], -1)

    def lifted_adjoint(
        self,
        R: Float[Tensor, "n *s c"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "G d c"]:
        rows, R = self._rows, R.reshape(-1, R.shape[-1])
        if masks is None:
            return (rows.T @ R).unsqueeze(0)
        out = rows.new_empty(len(masks), rows.shape[1], R.shape[1])
        for part in portions(len(masks), len(self._rows) * self.n_outputs):
            gated = masks[part].T.unsqueeze(-1) * R.unsqueeze(1)
            image = rows.T @ gated.reshape(len(rows), -1)
            out[part] = image.view(rows.shape[1], -1, R.shape[1]).permute(1, 0, 2)
        return out

    @property
    def gram_size(self) -> int:
        return self.loss.target.numel() // self.n_outputs

    def gram(
        self, index: Tensor | None = None, weights: Float[Tensor, "G"] | None = None
    ) -> Float[Tensor, "N N"]:
        r""":math:`(XX^\top) \circ (M^\top\operatorname{diag}(w)M)` with the masks M (gates × rows),
        averaged over tokens when pooled; the same for every output column.
        """
        rows = self._rows
        G = rows @ rows.T
        if self.masks is not None:
            masks = self.masks if index is None else self.masks[index]
            left = masks if weights is None else masks * weights[:, None]
            G = (left.T @ masks).mul_(G)
        elif weights is not None:
            G = G * weights.sum()
        if self.pool == "mean":
            n, s = self.X.shape[:2]
            G = G.view(n, s, n, s).mean(dim=(1, 3))
        return G

    def block_predictions(self, Z: Float[Tensor, "G d"], index: Tensor) -> Float[Tensor, "G n *s"]:
        output = self.first_layer(Z)
        if self.masks is not None:
            output = output * self.masks[index]
        output = output.reshape(len(Z), *self.X.shape[:-1])
        return output.mean(dim=2) if self.pool == "mean" else output

    def block_norm_bounds(self) -> Float[Tensor, "G"]:
        r""":math:`\|D_jX\|_F`, and :math:`\|X\|_2` where that is less."""
        rows = self._rows
        lengths = rows.square().sum(dim=1)
        whole = torch.linalg.matrix_norm(rows, 2).square()
        each = lengths.sum()[None] if self.masks is None else self.masks @ lengths
        bound = torch.minimum(each, whole).sqrt() * (1 + 1e-9)
        # The mean over s tokens is a map of norm 1/sqrt(s).
        return bound / self.X.shape[1] ** 0.5 if self.pool == "mean" else bound

    def relu_polar_bound(self, R: Float[Tensor, "n *s c"]) -> float:
        r"""For every unit u: :math:`\|R^\top(Xu)_+\| \le \tfrac12(\|R^\top X\|_2 + \|R\|_2\|X\|_2)`.

        Since :math:`(Xu)_+ = \tfrac12(Xu + |Xu|)` and :math:`\||Xu|\| = \|Xu\|`.
        """
        rows, R = self._rows.double(), R.reshape(-1, R.shape[-1]).double()
        norm = lambda M: float(torch.linalg.matrix_norm(M, 2))  # noqa: E731
        return 0.5 * (norm(R.T @ rows) + norm(R) * norm(rows))

    def hidden_layers(
        self, first: Tensor, second: Tensor, gates: Tensor | None, group: Tensor | None = None
    ) -> MLPNetwork:
        return MLPNetwork(first, second, activation=self.activation, gates=gates, pool=self.pool)
