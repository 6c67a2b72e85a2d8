r"""Penalties ρ on half squared distances: the choice that decides which attention comes out.

The pair energy :math:`\sum_{ij} \rho(\tfrac12\|y_i - y_j\|^2)` has attention weights
:math:`w_{ij} = \rho'(\tfrac12\|y_i - y_j\|^2)`.  What the theory asks of ρ is that it is concave
and non-decreasing on :math:`[0, \infty)` with a finite slope at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["RHOS", "Rho", "as_rho"]


@dataclass(frozen=True)
class Rho:
    r"""A concave non-decreasing function on :math:`[0, \infty)` and its slope.

    Parameters
    ----------
    name
        Shown in messages and figures.
    value
        :math:`\rho(z)`, entrywise on a tensor.
    slope
        :math:`\rho'(z) \ge 0`, entrywise, non-increasing, finite at 0: the attention weight.
    positive_definite
        Whether the matrix with entries :math:`\rho'(\tfrac12\|y_i-y_j\|^2)` is positive
        semidefinite for all tokens in every dimension.  By Schoenberg (1938) this is so exactly
        if ρ' is completely monotone, as :math:`e^{-z}` and :math:`1/(z+a)` are.  It is not
        checked; it allows longer steps.

    Raises
    ------
    ValueError
        If ``slope`` is negative, infinite at 0 or increasing somewhere on a grid from 0 to 10⁶,
        or if ``value`` does not grow as ``slope`` says.
    """

    name: str
    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    positive_definite: bool = False

    def __post_init__(self) -> None:
        z = torch.cat([torch.zeros(1), torch.logspace(-6, 6, 1201)]).double()
        value, slope = self.value(z), self.slope(z)
        if any(not isinstance(v, Tensor) or v.shape != z.shape for v in (value, slope)):
            raise ValueError(f"rho {self.name!r} needs to act entrywise on tensors")
        if not bool(torch.isfinite(slope).all() and torch.isfinite(value).all()):
            raise ValueError(f"rho {self.name!r} needs finite value and slope on [0, 1e6]")
        if float(slope.min()) < 0:
            raise ValueError(
                f"rho {self.name!r} has a negative slope; it needs to be non-decreasing"
            )
        if bool((slope[1:] > slope[:-1] * (1 + 1e-9)).any()):
            raise ValueError(f"rho {self.name!r} has an increasing slope; it needs to be concave")
        # A concave function lies between its two tangents' slopes on every interval.
        rise, run = value.diff(), z.diff()
        slack = 1e-9 * (value[1:].abs() + value[:-1].abs() + slope[:-1] * run) + 1e-300
        if bool((rise > slope[:-1] * run + slack).any() or (rise < slope[1:] * run - slack).any()):
            raise ValueError(f"rho {self.name!r}: value does not grow as slope says")

    def __call__(self, z: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        return self.value(z)


_LOG2_E = 1.4426950408889634


def _decay(z: Tensor) -> Tensor:
    # exp(-z).  The base 2 has no slow path where the result underflows, which is where most pairs
    # of distant tokens are; the product's rounding is that of z itself.
    # In place on the product, which nobody else holds: one matrix of all pairs less.
    return (z * -_LOG2_E).exp2_()


#: The penalties ρ of the lessons, by name.
RHOS: dict[str, Rho] = {
    "exp": Rho("exp", lambda z: -_decay(z), _decay, positive_definite=True),
    "log1": Rho("log1", torch.log1p, lambda z: 1 / (z + 1), positive_definite=True),
    "log2": Rho("log2", lambda z: torch.log(z + 2), lambda z: 1 / (z + 2), positive_definite=True),
}


def as_rho(rho: str | Rho) -> Rho:
    """The named penalty, or the given one.

    ``"exp"`` is :math:`-e^{-z}` (softmax), ``"log1"`` :math:`\\log(z+1)`, ``"log2"``
    :math:`\\log(z+2)`.

    Raises
    ------
    ValueError
        If ``rho`` is neither a :class:`Rho` nor one of these names.
    """
    if isinstance(rho, Rho):
        return rho
    if not isinstance(rho, str) or rho not in RHOS:
        raise ValueError(f"rho is {rho!r}; it needs to be a Rho or one of {tuple(RHOS)}")
    return RHOS[rho]
