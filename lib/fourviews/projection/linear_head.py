"""A linear classifier on fixed features, fitted to any loss of logits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from .inputs import check_count, check_features

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
        If features are no finite float matrix, a number is out of range, ``start`` has other sizes,
        or the loss gives no number, NaN, or infinity at the start.
    """
    check_features(features)
    for name, count in (("classes", classes), ("iterations", iterations)):
        if check_count(count, 2**62, name) == 0:
            raise ValueError(f"{name} is 0; it needs to be at least 1")
    if not isinstance(decay, int | float) or not 0 <= decay < float("inf"):
        raise ValueError(f"decay is {decay!r}; it needs to be finite and at least 0")
    if start is not None and start.weights.shape != (features.shape[1], classes):
        raise ValueError(
            f"start has weights {tuple(start.weights.shape)}; it needs"
            f" {(features.shape[1], classes)}"
        )
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

    tried: list[bool] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(torch.addmm(parameters[-1], inputs, parameters[:-1]))
        if not isinstance(value, Tensor) or value.ndim:
            raise ValueError("loss needs to give one number, a tensor without axes")
        value = value + decay / 2 * parameters[:-1].square().sum()
        # A trial step of the line search may overflow, the start may not.
        if bool(value.isnan()) or not (tried or bool(value.isfinite())):
            what = "NaN" if bool(value.isnan()) else "infinity"
            raise ValueError(f"loss gave {what}; it needs to be finite")
        tried.append(True)
        value.backward()
        return value

    optimizer.step(closure)
    fitted = parameters.detach()
    return LinearHead(mean, scale, fitted[:-1], fitted[-1])
