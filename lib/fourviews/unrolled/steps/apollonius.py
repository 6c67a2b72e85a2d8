r"""The region in which alternating steps are sure to descend, bounded by a sphere of Apollonius."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..inputs import check_number, check_tensor

__all__ = ["Apollonius", "apollonius"]


@dataclass(frozen=True)
class Apollonius:
    r"""The set :math:`\{y : \|y - a\| \le k\|y - b\|\}`.

    Attributes
    ----------
    kind
        ``"ball"`` (k < 1), ``"half-space"`` (k = 1), ``"complement"`` of an open ball (k > 1),
        and for a = b ``"point"`` (k < 1) or ``"everything"``.
    centre, radius
        Of the sphere that bounds it; None where there is none.
    """

    a: Tensor
    b: Tensor
    k: float
    kind: Literal["ball", "half-space", "complement", "point", "everything"]
    centre: Tensor | None
    radius: float | None

    def contains(self, y: Float[Tensor, "*points d"]) -> Tensor:
        """Membership by the definition.

        Raises
        ------
        ValueError
            If the points have another number of coordinates or another dtype.
        """
        check_tensor(y, "y")
        if y.shape[-1:] != self.a.shape or y.dtype != self.a.dtype:
            raise ValueError(
                f"y is {tuple(y.shape)} {y.dtype}; it needs (..., {len(self.a)}) {self.a.dtype}"
            )
        return (y - self.a).norm(dim=-1) <= self.k * (y - self.b).norm(dim=-1)


def apollonius(a: Float[Tensor, "d"], b: Float[Tensor, "d"], k: float) -> Apollonius:
    r"""The region of Lemma 4.3 for a = y_f*, b = y_h* and :math:`k = c_h\mathcal L/L_f`.

    In it :math:`\|\nabla f\| \le L_f\|y - a\| \le \mathcal L c_h\|y - b\| \le \mathcal L\|\nabla h\|`,
    the condition of the repaired Theorem 4.1.  Squaring :math:`\|y-a\| \le k\|y-b\|` and completing
    the square gives, for k ≠ 1, the sphere with

    .. math:: \text{centre } \frac{a - k^2 b}{1 - k^2}, \qquad
              \text{radius } \frac{k}{|1 - k^2|}\|a - b\| .

    For k < 1 the region is the ball, which contains a and not b; for k > 1 it is what lies outside
    of the open ball, which contains b and not a; for k = 1 the half-space of the points nearer to a.
    Neither ball is centred at a or b (for a ≠ b and k > 0), in contrast to the source.

    Exchanging f and g is about the other sequence: the half steps u are alternating steps with g
    first.  Their regions say that h falls along the half steps, not along y.

    Parameters
    ----------
    a, b
        The two points, vectors of one length.
    k
        The ratio of the distances, at least 0.

    Raises
    ------
    ValueError
        If k is negative or not finite, or a and b are no finite vectors of one length and dtype.
    """
    k = check_number(k, "k", 0.0)
    for name, point in (("a", a), ("b", b)):
        check_tensor(point, name)
        if point.ndim != 1 or not bool(point.isfinite().all()):
            raise ValueError(f"{name} has shape {tuple(point.shape)}; it needs (d,), all finite")
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(
            f"a is {tuple(a.shape)} {a.dtype}, b is {tuple(b.shape)} {b.dtype}; they need the same"
        )
    if torch.equal(a, b):
        kind = "point" if k < 1 else "everything"
        return Apollonius(a, b, k, kind, a if k < 1 else None, 0.0 if k < 1 else None)
    if k == 1:
        return Apollonius(a, b, k, "half-space", None, None)
    # (1 − k²) as a product keeps its digits for k near 1.
    gap = (1 - k) * (1 + k)
    centre = a + (k * k / gap) * (a - b)
    radius = k / abs(gap) * float((a - b).norm())
    return Apollonius(a, b, k, "ball" if k < 1 else "complement", centre, radius)
