r"""Gradients of converged minimisers by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ..inputs import check_tensor

__all__ = ["implicit_minimiser"]


class _Implicit(torch.autograd.Function):
    @staticmethod
    def forward(ctx, residual: Tensor, Y: Tensor, gradient, tol: float, max_iterations: int):
        ctx.gradient, ctx.tol, ctx.max_iterations = gradient, tol, max_iterations
        ctx.save_for_backward(Y)
        return Y.clone()

    @staticmethod
    def backward(ctx, cotangent: Tensor):
        (Y,) = ctx.saved_tensors
        with torch.enable_grad():
            point = Y.detach().requires_grad_()
            slope = ctx.gradient(point)

        def hessian(v: Tensor) -> Tensor:
            (product,) = torch.autograd.grad(slope, point, v, retain_graph=True)
            return product

        v = _conjugate_gradients(hessian, cotangent, ctx.tol, ctx.max_iterations)
        return -v, None, None, None, None


def _conjugate_gradients(
    operator: Callable[[Tensor], Tensor], right: Tensor, tol: float, max_iterations: int
) -> Tensor:
    x, residual = torch.zeros_like(right), right.clone()
    direction, square = residual.clone(), float(residual.square().sum())
    target = tol**2 * square
    for _ in range(max_iterations):
        if square <= target or square == 0:
            return x
        image = operator(direction)
        curvature = float((direction * image).sum())
        if not curvature > 0:
            raise RuntimeError(
                "the Hessian at Y is not positive definite; the minimiser is not isolated and"
                " has no gradient"
            )
        length = square / curvature
        x = x + length * direction
        residual = residual - length * image
        new = float(residual.square().sum())
        direction, square = residual + (new / square) * direction, new
    raise RuntimeError(
        f"the linear system of the implicit gradient was not solved to {tol} in {max_iterations}"
        " iterations"
    )


def implicit_minimiser(
    gradient: Callable[..., Tensor],
    Y: Float[Tensor, "*any"],
    *parameters: Tensor,
    tol: float = 1e-10,
    max_iterations: int = 10_000,
    stationarity: float = 1e-6,
) -> Float[Tensor, "*any"]:
    r"""Y as a function of the parameters, given that :math:`\nabla_Y E(Y; W) = 0` there.

    The result equals Y; its backward pass solves :math:`\nabla^2 E\, v = \bar y` by conjugate
    gradients and passes :math:`-(\partial_W\nabla_Y E)^\top v` to the parameters.  That is the
    limit of differentiating through all steps of a converging descent, at the memory of one.

    Parameters
    ----------
    gradient
        ``gradient(Y, *parameters)``, differentiable by torch in all arguments.
    Y
        The minimiser, found by any method.
    parameters
        Tensors; those that require gradients receive them.
    tol, max_iterations
        Relative residual of the linear system, and its limit.
    stationarity
        How large the gradient at Y may be, relative to 1 + ‖Y‖.

    Raises
    ------
    ValueError
        If Y is not stationary to ``stationarity``, is no tensor of floats, or has another shape
        than its gradient.
    RuntimeError
        In the backward pass, if the Hessian at Y is not positive definite, or the system is not
        solved to ``tol``.
    """
    check_tensor(Y, "Y")
    Y = Y.detach()
    residual = gradient(Y, *parameters)
    if not isinstance(residual, Tensor) or residual.shape != Y.shape:
        got = tuple(residual.shape) if isinstance(residual, Tensor) else type(residual).__name__
        raise ValueError(f"gradient gives {got}; it needs the shape of Y, {tuple(Y.shape)}")
    size = float(residual.detach().norm())
    if not size <= stationarity * (1 + float(Y.norm())):
        raise ValueError(
            f"Y has a gradient of norm {size:.2g}; it needs to be a minimiser, stationary to"
            f" {stationarity} (1 + |Y|)"
        )
    fixed = [p.detach() for p in parameters]
    return _Implicit.apply(residual, Y, lambda point: gradient(point, *fixed), tol, max_iterations)
