"""Checks of tokens, weights, masks and numbers that the functions of this package make first."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "broadcasts",
    "check_integer",
    "check_mask",
    "check_matrix",
    "check_number",
    "check_relaxation",
    "check_same_features",
    "check_tensor",
    "check_tokens",
]

FLOATS = (torch.float32, torch.float64)


def check_tensor(X: Any, name: str) -> None:
    """Refuse what is no tensor of float32 or float64."""
    if not isinstance(X, Tensor):
        raise ValueError(f"{name} is a {type(X).__name__}; it needs to be a torch tensor")
    if X.dtype not in FLOATS:
        raise ValueError(f"{name} has dtype {X.dtype}; it needs float32 or float64")


def check_tokens(Y: Any, name: str = "Y") -> None:
    """Refuse what is no tensor (..., n, d) of float32 or float64."""
    check_tensor(Y, name)
    if Y.ndim < 2:
        raise ValueError(f"{name} has shape {tuple(Y.shape)}; it needs (..., tokens, features)")


def check_matrix(W: Any, name: str, shape: str, *, square: bool = False) -> None:
    """Refuse what is no finite matrix, square if asked for; ``shape`` is for the message."""
    check_tensor(W, name)
    if W.ndim != 2 or (square and W.shape[0] != W.shape[1]):
        raise ValueError(f"{name} has shape {tuple(W.shape)}; it needs {shape}")
    if not bool(torch.isfinite(W.detach()).all()):
        raise ValueError(f"{name} has NaN or infinite entries; it needs finite numbers")


def check_same_features(W: Tensor, Y: Tensor, features: int, name: str) -> None:
    """Refuse tokens of another width or dtype than a parameter is made for."""
    if Y.shape[-1] != features or Y.dtype != W.dtype:
        raise ValueError(
            f"{name} is {tuple(W.shape)} {W.dtype}; Y has {Y.shape[-1]} features of {Y.dtype}"
        )


def check_mask(tokens: Any, Y: Tensor) -> None:
    """Refuse what is no boolean tensor with one value a token of Y, batches broadcast."""
    if tokens is None:
        return
    if not isinstance(tokens, Tensor) or tokens.dtype != torch.bool:
        got = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(f"tokens is {got}; it needs booleans, True where there is a token")
    if not broadcasts(tokens, Y.shape[:-1]) or tokens.shape[-1:] != Y.shape[-2:-1]:
        raise ValueError(
            f"tokens has shape {tuple(tokens.shape)}; it needs to broadcast to"
            f" {tuple(Y.shape[:-1])}"
        )


def check_number(
    value: Any, name: str, low: float = -math.inf, high: float = math.inf, *, open: bool = False
) -> float:
    """A finite number in [low, high], or with ``open`` in (low, high]; as a float."""
    try:
        if isinstance(value, str | bool):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} is {value!r}; it needs to be a number") from None
    if not (low < number if open else low <= number) or not number <= high or math.isinf(number):
        if high < math.inf:
            needs = f"lie in {'(' if open else '['}{low:g}, {high:g}]"
        elif low > -math.inf:
            needs = "be positive and finite" if open and low == 0 else f"be finite and >= {low:g}"
        else:
            needs = "be finite"
        raise ValueError(f"{name} is {number}; it needs to {needs}")
    return number


def check_integer(value: Any, name: str, least: int) -> int:
    """An integer that is at least ``least``."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {value!r}; it needs to be an integer") from None
    if number < least:
        raise ValueError(f"{name} is {number}; it needs to be at least {least}")
    return number


def check_relaxation(relaxation: Any, Y: Tensor) -> None:
    """Refuse factors that are negative or not finite, or that would give Y another shape."""
    if not isinstance(relaxation, Tensor):
        check_number(relaxation, "relaxation", 0.0)
        return
    if not broadcasts(relaxation, Y.shape):
        raise ValueError(
            f"relaxation has shape {tuple(relaxation.shape)}; it needs to broadcast to"
            f" {tuple(Y.shape)}"
        )
    if not bool((torch.isfinite(relaxation) & (relaxation >= 0)).all()):
        raise ValueError("relaxation has entries that are negative or not finite")


def broadcasts(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether the tensor broadcasts to exactly this shape."""
    try:
        return torch.broadcast_shapes(tensor.shape, shape) == torch.Size(shape)
    except RuntimeError:
        return False
