r"""Activations as proximal maps: of what, and which of nothing.

A function is the proximal map of a penalty φ, :math:`\sigma(y) = \arg\min_z \tfrac12(z-y)^2 +
\varphi(z)`, for *some* φ exactly if it is non-decreasing, and for a *convex* φ exactly if it is
also 1-Lipschitz (Moreau 1965; Gribonval and Nikolova 2020).  Where σ is continuous,

.. math:: \varphi(\sigma(x)) = x\,\sigma(x) - \tilde\sigma(x) - \tfrac12\sigma(x)^2 ,
          \qquad \tilde\sigma(x) = \int_0^x \sigma .
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..inputs import check_mask, check_tensor, check_tokens

__all__ = ["PROXIMAL_MAPS", "NonNegative", "ProximalMap", "proximal_kind", "proximal_penalty"]


class NonNegative:
    r"""Indicator of the non-negative orthant; its proximal map is ReLU, for every step size.

    The same holds in any metric that scales coordinates, as the steps here use.

    Parameters
    ----------
    tokens
        ``True`` where there is a token, ``(..., n)``; padding may be anything.
    """

    def __init__(self, tokens: Bool[Tensor, "*batch n"] | None = None) -> None:
        self.tokens = tokens

    def value(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
        """0 inside, infinity outside, where NaN is, too."""
        check_tokens(Y)
        check_mask(self.tokens, Y)
        outside = (~(Y >= 0)).any(-1)
        if self.tokens is not None:
            outside = outside & self.tokens
        return torch.where(outside.any(-1), float("inf"), 0.0).to(Y.dtype)

    def prox(self, Y: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        """ReLU, the nearest point."""
        check_tokens(Y)
        check_mask(self.tokens, Y)
        nearest = torch.relu(Y)
        return nearest if self.tokens is None else torch.where(self.tokens[..., None], nearest, Y)


@dataclass(frozen=True)
class ProximalMap:
    """An activation, the penalty whose proximal map it is, and whether that is convex.

    Parameters
    ----------
    name
        Shown in messages and figures.
    forward
        The activation, entrywise.
    penalty
        φ, entrywise; ``inf`` outside of its domain.
    convex
        Whether φ is convex.
    """

    name: str
    forward: Callable[[Tensor], Tensor]
    penalty: Callable[[Tensor], Tensor]
    convex: bool


def _outside(inside: Tensor, value: Tensor) -> Tensor:
    return torch.where(inside, value, float("inf"))


# tanh and sigmoid: φ = σ̃* − z²/2, with xlogy for 0 log 0 = 0 at the ends of the range.
def _tanh_penalty(z: Tensor) -> Tensor:
    entropy = 0.5 * (torch.special.xlog1py(1 + z, z) + torch.special.xlog1py(1 - z, -z))
    return _outside(z.abs() <= 1, entropy - 0.5 * z * z)


def _sigmoid_penalty(z: Tensor) -> Tensor:
    entropy = torch.special.xlogy(z, z) + torch.special.xlog1py(1 - z, -z)
    return _outside((z >= 0) & (z <= 1), entropy - 0.5 * z * z)


#: Activations that are proximal maps, with their penalties, by name.
PROXIMAL_MAPS: dict[str, ProximalMap] = {
    p.name: p
    for p in (
        ProximalMap("relu", torch.relu, lambda z: _outside(z >= 0, torch.zeros_like(z)), True),
        ProximalMap(
            "leaky_relu",  # slope s = 0.1 on the left: φ = (1/s − 1) z²/2 there
            lambda y: torch.where(y > 0, y, 0.1 * y),
            lambda z: torch.where(z > 0, 0.0, 4.5 * z * z),
            True,
        ),
        ProximalMap(
            "soft_threshold",
            lambda y: y.sign() * (y.abs() - 1).clamp_min(0),
            lambda z: z.abs(),
            True,
        ),
        ProximalMap("tanh", torch.tanh, _tanh_penalty, True),
        ProximalMap("sigmoid", torch.sigmoid, _sigmoid_penalty, True),
        ProximalMap(
            "squared_relu",  # steeper than 1, so that φ is not convex: φ = (2/3) z^{3/2} − z²/2
            lambda y: torch.relu(y).square(),
            lambda z: _outside(z >= 0, 2 / 3 * z.clamp_min(0) ** 1.5 - 0.5 * z * z),
            False,
        ),
    )
}


def proximal_kind(
    activation: Callable[[Tensor], Tensor], points: Float[Tensor, "k"]
) -> Literal["convex", "non-convex", "none"]:
    r"""What the values on a grid allow: a convex penalty, a non-convex one, or none at all.

    ``"none"`` is a proof: the activation falls between two neighbouring points, as GELU and SiLU
    do.  So is the step from ``"convex"`` to ``"non-convex"``.  The rest is as good as the grid.

    Parameters
    ----------
    activation
        A function of one number, entrywise on a tensor.
    points
        The grid, increasing.

    Raises
    ------
    ValueError
        If ``points`` is not a vector of at least two finite increasing numbers, or the activation
        gives other shapes, NaN or infinities on it.
    """
    values = _values(activation, points)
    rise, run = values.diff(), points.diff()
    slack = 8 * torch.finfo(points.dtype).eps * (values[1:].abs() + values[:-1].abs())
    slack = slack + 8 * torch.finfo(points.dtype).eps * points.abs().max()
    if bool((rise < -slack).any()):
        return "none"
    return "convex" if bool((rise <= run + slack).all()) else "non-convex"


def _values(activation: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    check_tensor(points, "points")
    # A comparison with NaN is False.
    increasing = points.ndim == 1 and len(points) > 1 and bool((points.diff() > 0).all())
    if not increasing or not bool(points.isfinite().all()):
        raise ValueError("points needs to be a vector of at least two finite increasing numbers")
    values = activation(points)
    if not isinstance(values, Tensor) or values.shape != points.shape:
        raise ValueError("activation needs to act entrywise on tensors")
    if not bool(values.isfinite().all()):
        raise ValueError("activation has NaN or infinite values on points; it needs finite ones")
    return values


def proximal_penalty(
    activation: Callable[[Tensor], Tensor], points: Float[Tensor, "k"]
) -> tuple[Float[Tensor, "k"], Float[Tensor, "k"]]:
    r"""The curve (σ(x), φ(σ(x))) for a continuous non-decreasing σ, by the trapezoidal rule.

    φ is determined up to a constant; here it is 0 at the first point.

    Parameters
    ----------
    activation
        A continuous non-decreasing function, entrywise on a tensor.
    points
        The grid, increasing.

    Raises
    ------
    ValueError
        If the values on the grid refuse: σ is the proximal map of nothing; and as
        :func:`proximal_kind`.
    """
    if proximal_kind(activation, points) == "none":
        raise ValueError("activation decreases somewhere on points; it is no proximal map")
    z = activation(points)
    integral = torch.cat([z.new_zeros(1), torch.cumulative_trapezoid(z, points)])
    phi = points * z - integral - 0.5 * z * z
    return z, phi - phi[0]
