"""Without regularisation and with squared loss the program is a least-squares problem."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse.linalg import LinearOperator, lsmr
from torch import Tensor

from .problem import Problem

__all__ = ["kernel_part", "least_squares_coefficients"]

# Singular values below this times the largest count as zero.
_RELATIVE_ACCURACY = 1e-10


def least_squares_coefficients(
    problem: Problem, target: Float[Tensor, "n *s c"]
) -> Float[Tensor, "*G p q"]:
    r"""Least-norm minimiser of :math:`\tfrac12\|A(Z) - Y\|^2`, by LSMR in float64."""
    problem = problem.to(torch.float64)
    shape, device = problem.coefficient_shape, problem.X.device

    def tensor(array: np.ndarray, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device).reshape(shape)

    size = (target.numel(), int(np.prod(shape)))
    operator = LinearOperator(
        size,
        matvec=lambda z: problem.forward(tensor(z, shape)).cpu().numpy().ravel(),
        rmatvec=lambda r: problem.adjoint(tensor(r, target.shape)).cpu().numpy().ravel(),
        dtype=np.float64,
    )
    right = target.double().cpu().numpy().ravel()
    # conlim stays off: its early stop would leave part of the range in the residual.
    solution = lsmr(operator, right, atol=1e-15, btol=1e-15, conlim=0, maxiter=20 * sum(size))[0]
    return tensor(solution, shape)


def kernel_part(
    problem: Problem, residual: Float[Tensor, "n *s c"]
) -> Float[Tensor, "n *s c"] | None:
    r"""Component of the residual in the kernel of A*, or None if it could not be isolated.

    The answer is checked, not trusted: :math:`\|A^*V\| \le 10^{-10}\|A\|\|V\|`, or V is the zero
    vector to that accuracy.
    """
    problem = problem.to(torch.float64)
    part = residual.double()
    size = float(part.norm())
    # The second pass removes what the first left by rounding.
    for _ in range(2):
        part = part - problem.forward(least_squares_coefficients(problem, part))
    if float(part.norm()) <= _RELATIVE_ACCURACY * size:
        return torch.zeros_like(part)
    image = problem.adjoint(residual.double())
    operator_norm = float(image.norm()) / size if size else 0.0
    for probe in (torch.ones_like(part), residual.double()):
        operator_norm = max(operator_norm, float(problem.adjoint(probe).norm() / probe.norm()))
    if float(problem.adjoint(part).norm()) > _RELATIVE_ACCURACY * operator_norm * float(
        part.norm()
    ):
        return None
    return part
