r"""Two-layer networks with weight decay, and factorisations that carry a convex optimum to them."""

from __future__ import annotations

import abc

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["MLPNetwork", "TwoLayerNetwork", "balanced_factors"]


class TwoLayerNetwork(nn.Module, abc.ABC):
    r"""Hidden units :math:`k = 1 … m` with first weight u_k and second weight v_k.

    Parameters
    ----------
    first : (m, p) tensor
        First-layer weights, flattened to one row a unit.
    second : (m, q) tensor
        Second-layer weights, likewise.
    activation : {"linear", "gated_relu", "relu"}
    gates : (m, p) tensor, optional
        For ``"gated_relu"``: unit k is on where its *gate's* pre-activation is >= 0.  Gates are fixed.
    pool : {None, "mean"}
        Average the outputs over the tokens.
    group : (m,) tensor, optional
        For heads in groups: the group in which each unit acts.
    """

    def __init__(
        self,
        first: Float[Tensor, "m p"],
        second: Float[Tensor, "m q"],
        *,
        activation: str,
        gates: Float[Tensor, "m p"] | None = None,
        pool: str | None = None,
        group: Tensor | None = None,
    ) -> None:
        super().__init__()
        if activation not in ("linear", "gated_relu", "relu"):
            raise ValueError(
                f"activation must be 'linear', 'gated_relu' or 'relu', got {activation!r}"
            )
        if pool not in (None, "mean"):
            raise ValueError(f"pool must be None or 'mean', got {pool!r}")
        for name, weights in (("first", first), ("second", second)):
            if not isinstance(weights, Tensor) or not weights.is_floating_point():
                what = weights.dtype if isinstance(weights, Tensor) else type(weights).__name__
                raise ValueError(f"{name} must be a tensor of floats, got {what}")
            if weights.ndim != 2:
                raise ValueError(
                    f"{name} must have one row a unit, two axes, got shape {tuple(weights.shape)}"
                )
        if first.dtype != second.dtype:
            raise ValueError(
                f"first and second must have one dtype, got {first.dtype} and {second.dtype}"
            )
        if len(first) != len(second):
            raise ValueError(f"first has {len(first)} units, second has {len(second)}")
        if (activation == "gated_relu") != (gates is not None):
            raise ValueError('gates are needed for activation="gated_relu" and for no other')
        if gates is not None and gates.shape != first.shape:
            raise ValueError(
                f"gates must have first's shape {tuple(first.shape)}, got {tuple(gates.shape)}"
            )
        self.first = nn.Parameter(first.detach().clone())
        self.second = nn.Parameter(second.detach().clone())
        self.register_buffer("gates", None if gates is None else gates.detach().clone())
        self.register_buffer("group", None if group is None else group.detach().clone())
        self.activation, self.pool = activation, pool

    def weight_decay(self) -> Float[Tensor, ""]:
        r""":math:`\tfrac12\sum_k(\|u_k\|^2 + \|v_k\|^2)`; times beta it is the regulariser."""
        return 0.5 * (self.first.square().sum() + self.second.square().sum())

    def activate(self, hidden: Tensor, gate: Tensor | None) -> Tensor:
        """Apply the activation to pre-activations, given the gates' pre-activations.

        Parameters
        ----------
        hidden : Tensor
            Pre-activations of the units.
        gate : Tensor or None
            Pre-activations of the gates, of the same shape; None unless gated.
        """
        if self.activation == "linear":
            return hidden
        if self.activation == "relu":
            return torch.relu(hidden)
        return hidden * (gate >= 0)

    def check_input(
        self, X: Tensor, *, axes: tuple[int, ...], tokens: int | None, features: int | None
    ) -> None:
        """Raise ValueError unless X has so many axes, tokens and features (None: any number), and
        the weights' dtype.

        Parameters
        ----------
        X : Tensor
            What came.
        axes : tuple of int
            Numbers of axes that are allowed.
        tokens : int or None
            Number of tokens that is needed; None for any.
        features : int or None
            Number of features that is needed; None for any.
        """
        if not isinstance(X, Tensor):
            raise ValueError(f"X must be a torch tensor, got {type(X).__name__}")
        fits = X.ndim in axes
        fits = fits and (tokens is None or X.shape[1] == tokens)
        fits = fits and (features is None or X.shape[-1] == features)
        if not fits:
            s = "s" if tokens is None else tokens
            d = "d" if features is None else features
            shapes = [f"(n, {d})" if count == 2 else f"(n, {s}, {d})" for count in axes]
            raise ValueError(f"X must have shape {' or '.join(shapes)}, got {tuple(X.shape)}")
        if X.dtype != self.first.dtype:
            raise ValueError(f"X must have the weights' dtype {self.first.dtype}, got {X.dtype}")

    @abc.abstractmethod
    def forward(self, X: Float[Tensor, "n *s d"]) -> Float[Tensor, "n *t c"]:
        """Outputs, pooled if the network pools."""


class MLPNetwork(TwoLayerNetwork):
    r"""Two-layer perceptron :math:`f(X) = \sum_k \sigma(Xu_k)\,v_k^\top`, on every token alike.

    Sahiner et al. (2022), (2), (6)–(8); no biases (append a constant feature for them).
    """

    def forward(self, X: Float[Tensor, "n *s d"]) -> Float[Tensor, "n *t c"]:
        axes = (3,) if self.pool == "mean" else (2, 3)
        self.check_input(X, axes=axes, tokens=None, features=self.first.shape[1])
        if self.activation == "linear" and self.pool == "mean":
            # The mean commutes with both layers.
            return X.mean(dim=1) @ self.first.T @ self.second
        gate = None if self.gates is None else X @ self.gates.T
        output = self.activate(X @ self.first.T, gate) @ self.second
        return output.mean(dim=-2) if self.pool == "mean" else output


def balanced_factors(
    Z: Float[Tensor, "G p q"], tolerance: float
) -> tuple[Float[Tensor, "m p"], Float[Tensor, "m q"], Tensor]:
    r"""Units :math:`u_k = \sqrt{\sigma_k}\,\cdot` left, :math:`v_k = \sqrt{\sigma_k}\,\cdot` right singular vector.

    Their weight decay equals the nuclear norm.  Singular values up to ``tolerance`` times the
    largest of all blocks are dropped.  Returns first and second weights and each unit's block.
    """
    u, s, vt = torch.linalg.svd(Z, full_matrices=False)
    keep = s > tolerance * (s.max() if s.numel() else 0)
    block, which = torch.nonzero(keep, as_tuple=True)
    root = s[block, which].sqrt().unsqueeze(-1)
    return u[block, :, which] * root, vt[block, which] * root, block
