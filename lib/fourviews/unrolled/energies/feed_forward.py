r"""The energy whose gradient step is a linear map of each token."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..inputs import check_matrix, check_number, check_same_features
from .energy import TokenEnergy

__all__ = ["FeedForwardEnergy"]


class FeedForwardEnergy(TokenEnergy):
    r""":math:`E_2(Y) = \tfrac12\operatorname{tr}(Y W_f Y^\top) + \tfrac12\|Y\|_F^2`.

    Only the symmetric part of :math:`W_f` counts.  The gradient is :math:`YH` with
    :math:`H = I + \tfrac12(W_f + W_f^\top)`, and a gradient step of size α is the linear map
    :math:`U \mapsto U W_f^s`, :math:`W_f^s = (1-\alpha)I - \tfrac\alpha2(W_f + W_f^\top)`
    (Yang et al. 2022, Eq. 16).  It does not raise E₂ from any U exactly if
    :math:`0 \le \alpha\eta \le 2` for every eigenvalue η of H that is positive, and any α ≥ 0
    lowers the part that belongs to negative ones (which has no minimum).

    Parameters
    ----------
    weight
        :math:`W_f`, ``(d, d)``.
    tokens
        ``True`` where there is a token.

    Raises
    ------
    ValueError
        If ``weight`` is not square and finite, or of another width or dtype than Y.
    """

    def __init__(
        self, weight: Float[Tensor, "d d"], *, tokens: Bool[Tensor, "*batch n"] | None = None
    ) -> None:
        super().__init__(tokens)
        check_matrix(weight, "weight", "(d, d)", square=True)
        eye = torch.eye(weight.shape[0], dtype=weight.dtype, device=weight.device)
        self.weight = weight
        self._top: Tensor | None = None
        self._one_graph = False  # whether all that is computed here belongs to one backward pass
        self.hessian = eye + 0.5 * (weight + weight.mT)

    def _check(self, Y: Tensor) -> None:
        super()._check(Y)
        check_same_features(self.weight, Y, self.weight.shape[0], "weight")

    def per_token(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n"]:
        """:math:`\\tfrac12 y_i H y_i^\\top`."""
        return 0.5 * (Y * (Y @ self.hessian)).sum(-1)

    def token_gradient(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        """YH."""
        return Y @ self.hessian

    def curvature(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n 1"]:
        """Largest eigenvalue of H in size; it is exact, the energy being quadratic."""
        self._check(Y)
        top = self._top
        if top is None:
            sizes = torch.linalg.eigvalsh(self.hessian).abs()
            top = sizes.max() if len(sizes) else sizes.sum()
            # The Hessian is this object's own, and does not change; a kept graph must not be shared.
            if self._one_graph or not top.requires_grad:
                self._top = top
        return top.expand(*Y.shape[:-1], 1)

    def linear_map(self, step_size: float) -> Float[Tensor, "d d"]:
        r""":math:`W_f^s = I - \alpha H`, the map that a gradient step is."""
        eye = torch.eye(self.hessian.shape[0], dtype=self.hessian.dtype, device=self.hessian.device)
        return eye - step_size * self.hessian

    def gradient_step(
        self, U: Float[Tensor, "*batch n d"], step_size: float
    ) -> Float[Tensor, "*batch n d"]:
        r""":math:`U W_f^s`, for a step size ≥ 0; padding stays.

        Parameters
        ----------
        U
            The tokens.
        step_size
            At least 0.
        """
        self._check(U)
        check_number(step_size, "step_size", 0.0)
        return self._keep_padding(self._clean(U) @ self.linear_map(step_size), U)
