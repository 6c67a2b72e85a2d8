r"""Limited-memory BFGS on flat tensors, in their own precision."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["lbfgs"]

_DECREASE, _CURVATURE = 1e-4, 0.9  # the two constants of the weak Wolfe conditions
_MOST_TRIALS = 25
# Steps over which a decrease is measured: one alone may be small by accident.
_WINDOW = 3


def lbfgs(
    function: Callable[[Tensor], tuple[float, Tensor]],
    start: Float[Tensor, "size"],
    *,
    accuracy: float,
    max_iterations: int = 1000,
    memory: int = 20,
) -> Float[Tensor, "size"]:
    """Local minimum of a smooth function that is bounded below by 0.

    Two-loop recursion with the last ``memory`` pairs, weak Wolfe line search by bracketing (Nocedal
    and Wright 2006, algorithms 7.4 and 7.5).  Where the decrease of a step disappears in the
    rounding of the values, the slopes decide alone (Hager and Zhang 2005, (4.1)), so that float32
    gets as far as its gradients allow.

    Parameters
    ----------
    function : tensor -> (value, gradient)
    start : flat tensor
        Its dtype and device are used for everything but the values.
    accuracy : float
        Stop when the steps lower the value by less than this share of it on average, or at the
        limit of the precision.
    max_iterations, memory : int
    """
    x = start
    value, gradient = function(x)
    noise = 8 * torch.finfo(x.dtype).eps
    pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=memory)
    gains: deque[float] = deque(maxlen=_WINDOW)
    for _ in range(max_iterations):
        direction = _direction(gradient, pairs)
        slope = float(gradient @ direction)
        if not slope < 0:
            pairs.clear()
            direction, slope = -gradient, -float(gradient @ gradient)
        if slope == 0:
            break
        # Without curvature the length is unknown; no step gains more than the value itself.
        trial = 1.0 if pairs else 0.01 * abs(value) / -slope
        found = _step(function, x, value, slope, direction, trial, noise * abs(value))
        if found is None:
            if not pairs:
                break
            pairs.clear()  # the model of the curvature was at fault: once more along the gradient
            continue
        moved, new, new_gradient = found
        s, y = moved - x, new_gradient - gradient
        gain, value = value - new, new
        if gain < 10 * noise * abs(value):
            # The values cannot tell: the slopes at both ends can.
            gain = -0.5 * float(s @ (gradient + new_gradient))
        curvature = float(s @ y)
        if curvature > 1e-10 * float(s.norm()) * float(y.norm()):
            pairs.append((s, y, 1 / curvature))
        x, gradient = moved, new_gradient
        gains.append(gain)
        if len(gains) == _WINDOW and sum(gains) <= _WINDOW * accuracy * abs(value):
            break
    return x


def _direction(gradient: Tensor, pairs: deque[tuple[Tensor, Tensor, float]]) -> Tensor:
    """Minus the inverse Hessian's estimate times the gradient."""
    q = -gradient
    shares = []
    for s, y, rho in reversed(pairs):
        share = rho * float(s @ q)
        q = q.sub(y, alpha=share)
        shares.append(share)
    if pairs:
        _, y, rho = pairs[-1]
        q = q / (rho * float(y @ y))
    for (s, y, rho), share in zip(pairs, reversed(shares), strict=True):
        q = q.add(s, alpha=share - rho * float(y @ q))
    return q


def _step(
    function: Callable[[Tensor], tuple[float, Tensor]],
    x: Tensor,
    value: float,
    slope: float,
    direction: Tensor,
    trial: float,
    noise: float,
) -> tuple[Tensor, float, Tensor] | None:
    """A point on the ray that meets the weak Wolfe conditions; None if none is found."""
    low, high, best = 0.0, float("inf"), None
    for _ in range(_MOST_TRIALS):
        moved = x.add(direction, alpha=trial)
        new, gradient = function(moved)
        end = float(gradient @ direction)
        enough = new <= value + _DECREASE * trial * slope
        flat = new <= value + noise and end <= (1 - 2 * _DECREASE) * -slope
        if not (enough or flat):
            high = trial
            # The parabola through both values and the slope at 0, kept inside the bracket.
            bend = new - value - trial * slope
            guess = -slope * trial**2 / (2 * bend) if 0 < bend < float("inf") else 0.0
            width = high - low
            trial = min(max(guess, low + 0.1 * width), low + 0.5 * width)
        else:
            best = moved, new, gradient
            if end >= _CURVATURE * slope:
                return best
            low = trial
            trial = 4 * trial if high == float("inf") else 0.5 * (low + high)
    return best
