"""A linear classifier on fixed features, fitted to any loss of logits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["LinearHead", "fit_linear_head"]


class LinearHead:
    """``features @ weights + bias`` after centring and scaling each feature.

    Attributes
    ----------
    mean, scale
        ``(d,)``, those of the training features.
    weights, bias
        ``(d, c)`` and ``(c,)``.
    """

    def __init__(self, mean: Tensor, scale: Tensor, weights: Tensor, bias: Tensor) -> None:
        self.mean, self.scale, self.weights, self.bias = mean, scale, weights, bias

    def __call__(self, features: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows c"]:
        """Logits."""
        return (features - self.mean) / self.scale @ self.weights + self.bias


def fit_linear_head(
    features: Float[Tensor, "n d"],
    loss: Callable[[Float[Tensor, "n c"]], Float[Tensor, ""]],
    classes: int,
    *,
    decay: float,
    iterations: int = 60,
    start: LinearHead | None = None,
) -> LinearHead:
    r"""Minimise ``loss`` of the logits plus a penalty, by L-BFGS.

    .. math:: \min_{W, b}\ \ell(\tilde XW + b) + \tfrac\lambda2\|W\|_F^2,\qquad
              \tilde X = (X - \text{mean})/\text{scale}

    Deterministic: the start is zero, or ``start``, and all samples are used at once.

    Parameters
    ----------
    features
        One row a sample.
    loss
        Maps all logits to a number, usually a mean over samples.
    classes
        c, the number of logits.
    decay
        λ ≥ 0.
    iterations
        The most iterations of L-BFGS.
    start
        Where to begin. Losses that are not convex can end elsewhere from another start.

    Returns
    -------
    LinearHead
        The fitted classifier.

    Raises
    ------
    ValueError
        If there are no features, a number is out of range, or the loss becomes NaN.
    """
    if features.ndim != 2 or not len(features):
        raise ValueError(f"features has shape {tuple(features.shape)}; it needs (n, d) with n ≥ 1")
    if not 0 <= decay < float("inf"):
        raise ValueError(f"decay is {decay}; it needs to be finite and at least 0")
    mean = features.mean(0)
    scale = features.std(0, correction=0)
    scale = torch.where(scale > 0, scale, 1.0)  # a constant feature is 0 after centring
    inputs = (features - mean) / scale
    if start is None:
        parameters = features.new_zeros(features.shape[1] + 1, classes)
    else:
        parameters = torch.cat([start.weights, start.bias[None]])
    parameters = parameters.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [parameters], max_iter=iterations, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(torch.addmm(parameters[-1], inputs, parameters[:-1]))
        value = value + decay / 2 * parameters[:-1].square().sum()
        if bool(value.isnan()):
            raise ValueError("loss gave NaN")
        value.backward()
        return value

    optimizer.step(closure)
    fitted = parameters.detach()
    return LinearHead(mean, scale, fitted[:-1], fitted[-1])
