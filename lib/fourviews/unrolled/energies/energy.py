r"""What an energy is: a value, a gradient, a majoriser, and a step that never raises it.

All energies here act on tokens ``Y (..., n, d)`` and give one value for each leading index.  Each
bounds itself from above by a quadratic around any point,

.. math:: E(Z) \le E(Y) + \langle \nabla E(Y), Z - Y\rangle + \tfrac12 \sum_i c_i \|z_i - y_i\|^2 ,

with one curvature :math:`c_i(Y) \ge 0` a token.  Minimising the right-hand side is a gradient step
with one step size a token; it never raises E, since at Z = Y both sides agree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..inputs import check_mask, check_tokens

__all__ = ["Energy", "Majoriser", "TokenEnergy"]


@dataclass(frozen=True)
class Majoriser:
    r"""A quadratic that lies above an energy and touches it at ``point``.

    Attributes
    ----------
    point
        Where it touches, ``(..., n, d)``.
    value, gradient
        Of the energy there, ``(...)`` and ``(..., n, d)``.
    curvature
        One number a token, ``(..., n, 1)``.
    """

    point: Tensor
    value: Tensor
    gradient: Tensor
    curvature: Tensor

    def __call__(self, Z: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
        """Its value at Z."""
        return self.value + self.change(Z)

    def change(self, Z: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
        r"""Its value at Z less its value at ``point``: an upper bound of the energy's change."""
        move = Z - self.point
        return (move * (self.gradient + 0.5 * self.curvature * move)).sum((-2, -1))

    def minimiser(self, relaxation: float = 1.0) -> Float[Tensor, "*batch n d"]:
        r"""``point`` less ``relaxation`` times gradient over curvature.

        For a factor θ in [0, 2] the majoriser, hence the energy, falls by at least
        :math:`\theta(1 - \theta/2)\sum_i \|g_i\|^2/c_i`.  Tokens with curvature 0 stay: the
        energies here have gradient 0 for those.
        """
        positive = self.curvature > 0
        move = self.gradient / torch.where(positive, self.curvature, 1)
        return self.point - relaxation * torch.where(positive, move, 0)


class Energy(ABC):
    """An energy on tokens: subclasses give ``value``, ``gradient`` and ``curvature``."""

    @abstractmethod
    def value(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
        """Energy of each leading index."""

    @abstractmethod
    def gradient(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        """Gradient of the value, each token's row."""

    @abstractmethod
    def curvature(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n 1"]:
        r"""Numbers :math:`c_i(Y)` that make :class:`Majoriser` lie above the energy everywhere."""

    def majoriser(self, Y: Float[Tensor, "*batch n d"]) -> Majoriser:
        """The quadratic above the energy that touches it at Y."""
        return Majoriser(Y, self.value(Y), self.gradient(Y), self.curvature(Y))

    def step(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        """The energy's natural step, which never raises it; here the majoriser's minimiser."""
        return self.majoriser(Y).minimiser()

    def __call__(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
        return self.value(Y)


class TokenEnergy(Energy):
    """A sum of one term a token, over the tokens that are there.

    Values, gradients and steps raise ValueError if Y or ``tokens`` does not fit.

    Parameters
    ----------
    tokens
        ``True`` where there is a token, ``(..., n)``; the others are padding, count for nothing
        and have gradient 0.
    """

    def __init__(self, tokens: Bool[Tensor, "*batch n"] | None = None) -> None:
        self.tokens = tokens

    @abstractmethod
    def per_token(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n"]:
        """The term of each token."""

    @abstractmethod
    def token_gradient(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        """Gradient of each token's term."""

    def value(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
        self._check(Y)
        terms = self.per_token(self._clean(Y))
        return (terms if self.tokens is None else torch.where(self.tokens, terms, 0)).sum(-1)

    def gradient(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        self._check(Y)
        return self._present(self.token_gradient(self._clean(Y)))

    def _check(self, Y: Tensor) -> None:
        """Refuse tokens that do not fit; subclasses add what their parameters need."""
        check_tokens(Y)
        check_mask(self.tokens, Y)

    def _clean(self, Y: Tensor) -> Tensor:
        # 0 · NaN is NaN, so what lies in the padding leaves before anything is computed.
        return self._present(Y)

    def _present(self, Y: Tensor) -> Tensor:
        return Y if self.tokens is None else torch.where(self.tokens[..., None], Y, 0)

    def _keep_padding(self, new: Tensor, old: Tensor) -> Tensor:
        return new if self.tokens is None else torch.where(self.tokens[..., None], new, old)
