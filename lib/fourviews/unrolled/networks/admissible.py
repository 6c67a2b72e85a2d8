r"""Feed-forward weights whose energy has a Hessian between two bounds, by construction."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..inputs import check_integer, check_number

__all__ = ["AdmissibleWeight"]


class AdmissibleWeight(nn.Module):
    r"""A trainable symmetric :math:`W_f` with :math:`\ell I \preceq I + W_f \prec uI`.

    .. math:: I + W_f = \ell I + (u - \ell)\,B(I + B)^{-1}, \qquad B = AA^\top ,

    with a free matrix A ``(d, d)``.  The eigenvalues of :math:`B(I+B)^{-1}` are
    :math:`b/(1 + b) \in [0, 1)`, so every A is admissible, and every admissible :math:`W_f` with
    :math:`I + W_f \prec uI` comes from some A.  The map is smooth: gradients need one solve, no
    eigenvectors and no clipping, and training cannot leave the set.

    Parameters
    ----------
    d
        Features.
    lower, upper
        ℓ < u.  ℓ ≥ 0 makes the feed-forward energy convex; a gradient step of size α on it never
        raises it if α u ≤ 2.
    generator
        Source of the initial A, with entries of variance 1/d.
    dtype, device
        Of A.

    Raises
    ------
    ValueError
        If d < 1 or the bounds are not finite with lower < upper.
    """

    def __init__(
        self,
        d: int,
        *,
        lower: float = 0.0,
        upper: float = 1.0,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        d = check_integer(d, "d", 1)
        lower, upper = check_number(lower, "lower"), check_number(upper, "upper")
        if not -float("inf") < lower < upper < float("inf"):
            raise ValueError(f"lower {lower} and upper {upper} need to be finite, lower < upper")
        self.lower, self.upper = float(lower), float(upper)
        A = torch.randn(d, d, generator=generator, dtype=dtype, device=device) / d**0.5
        self.factor = nn.Parameter(A)

    def forward(self) -> Float[Tensor, "d d"]:
        r""":math:`W_f`, symmetric."""
        # A large A would make I + AAᵀ ill-conditioned.  B(I + B)⁻¹ = I − (I + B)⁻¹, and the
        # Cholesky solve of a matrix that is at least I keeps the second term between 0 and I.
        A = self.factor
        eye = torch.eye(A.shape[0], dtype=A.dtype, device=A.device)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(eye + A @ A.mT))
        share = eye - 0.5 * (inverse + inverse.mT)
        return (self.lower - 1) * eye + (self.upper - self.lower) * share
