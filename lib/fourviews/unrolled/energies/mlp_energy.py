r"""The energy whose proximal map is a feed-forward layer with tied weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..inputs import broadcasts, check_matrix, check_number, check_same_features, check_tensor
from .energy import TokenEnergy

__all__ = ["SIGMAS", "MLPEnergy", "Sigma"]


@dataclass(frozen=True)
class Sigma:
    r"""An increasing continuous activation with σ̃, :math:`\tilde\sigma(a)=\int_0^a\sigma`.

    Parameters
    ----------
    name
        For messages.
    forward, inverse, integral
        σ, its inverse (NaN or infinite outside of σ's range) and σ̃, entrywise.
    closed_conjugate
        σ̃* in closed form, if it is known. It also holds where σ only tends to a value, as tanh
        does to 1; without it those values count as outside of the range.
    """

    name: str
    forward: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    integral: Callable[[Tensor], Tensor]
    closed_conjugate: Callable[[Tensor], Tensor] | None = None

    def conjugate(self, u: Tensor) -> Tensor:
        r""":math:`\tilde\sigma^*(u) = \sup_a ua - \tilde\sigma(a)`, reached at a = σ⁻¹(u).

        Fenchel's equality; infinite where u is no value of σ.
        """
        if self.closed_conjugate is not None:
            return self.closed_conjugate(u)
        a = self.inverse(u)
        value = u * a - self.integral(a)
        return torch.where(torch.isfinite(a), value, float("inf"))


_LOG_2 = 0.6931471805599453


def _within(inside: Tensor, value: Tensor) -> Tensor:
    return torch.where(inside, value, float("inf"))


# A layer that is saturated ends at ±1 exactly, where the inverse is infinite and σ̃* is log 2.
def _tanh_conjugate(u: Tensor) -> Tensor:
    v = u.clamp(-1, 1)
    value = 0.5 * (torch.special.xlog1py(1 + v, v) + torch.special.xlog1py(1 - v, -v))
    return _within(u.abs() <= 1, value)


def _sigmoid_conjugate(u: Tensor) -> Tensor:
    v = u.clamp(0, 1)
    value = torch.special.xlogy(v, v) + torch.special.xlog1py(1 - v, -v) + _LOG_2
    return _within((u >= 0) & (u <= 1), value)


def _log_cosh(a: Tensor) -> Tensor:
    return a.abs() + torch.nn.functional.softplus(-2 * a.abs()) - _LOG_2


#: Activations with inverse and integral, by name.
SIGMAS: dict[str, Sigma] = {
    "identity": Sigma("identity", lambda a: a, lambda u: u, lambda a: 0.5 * a * a),
    "leaky_relu": Sigma(
        "leaky_relu",
        lambda a: torch.where(a > 0, a, 0.1 * a),
        lambda u: torch.where(u > 0, u, 10 * u),
        lambda a: 0.5 * a * torch.where(a > 0, a, 0.1 * a),
    ),
    "tanh": Sigma("tanh", torch.tanh, torch.atanh, _log_cosh, _tanh_conjugate),
    "sigmoid": Sigma(
        "sigmoid",
        torch.sigmoid,
        torch.logit,
        lambda a: torch.nn.functional.softplus(a) - _LOG_2,
        _sigmoid_conjugate,
    ),
    "asinh": Sigma(
        "asinh",
        torch.asinh,
        torch.sinh,
        # ∫ asinh = a asinh a − √(1+a²) + 1, the last two without cancellation
        lambda a: a * (torch.asinh(a) - a / (1 + torch.hypot(torch.ones_like(a), a))),
    ),
}


class MLPEnergy(TokenEnergy):
    r""":math:`E(y) = \mathbf 1^\top\tilde\sigma^*(W^{-\top}y) - \langle b, W^{-\top}y\rangle - \tfrac12\|y\|^2`.

    b is the transformed input f(x) of Yang et al. (2022), Eq. 3.  The proximal map is the layer

    .. math:: \operatorname{prox}_E(y) = W^\top\sigma(Wy + b) .

    *Proof.*  With :math:`z = W^\top u` the terms :math:`\tfrac12\|z\|^2` cancel in
    :math:`E(z) + \tfrac12\|z - y\|^2`, and :math:`\tilde\sigma^*(u) - \langle b + Wy, u\rangle`
    remains, convex in u and smallest where :math:`\sigma^{-1}(u) = b + Wy`. ∎  It needs σ
    increasing (σ̃ convex) and W square and invertible; the printed Eq. 4 has :math:`W^{(t)}` for
    :math:`W y^{(t)}`.  (For other W the layer is still a proximal map: of E with
    :math:`\tilde\sigma^*(u) - \langle b,u\rangle` minimised over all u with
    :math:`W^\top u = y`.)

    As a proximal map the layer falls by at least :math:`\tfrac12\|y^{t+1}-y^t\|^2`.  E itself
    need not be convex or bounded below.  Two layers see :math:`WW^\top` between the activations,
    which is positive semidefinite: a restriction on what they can be.

    Parameters
    ----------
    weight
        W, ``(d, d)`` and invertible, for columns y; tokens are rows, so a layer is
        ``sigma(Y @ W.T + b) @ W``.
    offset
        b, broadcasting to ``(..., n, d)``.
    sigma
        A name in ``SIGMAS`` or a :class:`Sigma`.
    tokens
        ``True`` where there is a token.

    Raises
    ------
    ValueError
        If W is not square, not finite or singular, b is not finite, σ is unknown, or Y has other
        sizes or another dtype.
    """

    def __init__(
        self,
        weight: Float[Tensor, "d d"],
        offset: Tensor | float = 0.0,
        sigma: str | Sigma = "tanh",
        *,
        tokens: Bool[Tensor, "*batch n"] | None = None,
    ) -> None:
        super().__init__(tokens)
        check_matrix(weight, "weight", "(d, d)", square=True)
        if int(torch.linalg.matrix_rank(weight.detach())) < weight.shape[0]:
            raise ValueError("weight is singular to working precision; it needs to be invertible")
        if not isinstance(sigma, Sigma):
            if not isinstance(sigma, str) or sigma not in SIGMAS:
                raise ValueError(f"sigma is {sigma!r}; it needs a Sigma or one of {tuple(SIGMAS)}")
            sigma = SIGMAS[sigma]
        if isinstance(offset, Tensor):
            check_tensor(offset, "offset")
        else:
            offset = torch.as_tensor(
                check_number(offset, "offset"), dtype=weight.dtype, device=weight.device
            )
        if not bool(torch.isfinite(offset.detach()).all()):
            raise ValueError("offset has NaN or infinite entries; it needs finite numbers")
        self.weight, self.offset, self.sigma = weight, offset, sigma

    def _check(self, Y: Tensor) -> None:
        super()._check(Y)
        check_same_features(self.weight, Y, self.weight.shape[0], "weight")
        if self.offset.dtype != Y.dtype or not broadcasts(self.offset, Y.shape):
            raise ValueError(
                f"offset is {tuple(self.offset.shape)} {self.offset.dtype}; it needs to broadcast"
                f" to {tuple(Y.shape)}, and the dtype {Y.dtype}"
            )

    def _units(self, Y: Tensor) -> Tensor:
        """u = W⁻ᵀ y for every row."""
        return torch.linalg.solve(self.weight, Y, left=False)

    def per_token(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n"]:
        """E of each token; infinite where W⁻ᵀy leaves the range of σ."""
        u = self._units(Y)
        return (self.sigma.conjugate(u) - self.offset * u).sum(-1) - 0.5 * Y.square().sum(-1)

    def token_gradient(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        """:math:`W^{-1}(\\sigma^{-1}(W^{-\\top}y) - b) - y`."""
        inner = self.sigma.inverse(self._units(Y)) - self.offset
        return torch.linalg.solve(self.weight.mT, inner, left=False) - Y

    def curvature(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n 1"]:
        """There is none in general: the conjugate may be as steep as it likes.

        Raises
        ------
        NotImplementedError
            Always; use :meth:`step`.
        """
        raise NotImplementedError("the MLP energy has no quadratic majoriser; use its step")

    def step(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        r"""The proximal map, a layer: ``sigma(Y @ W.T + b) @ W``."""
        self._check(Y)
        clean = self._clean(Y)
        layer = self.sigma.forward(clean @ self.weight.mT + self.offset) @ self.weight
        return self._keep_padding(layer, Y)
