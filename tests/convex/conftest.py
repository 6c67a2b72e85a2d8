"""Small convex problems of every kind, with beta relative to its largest sensible value."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fourviews import convex


def build(
    activation="linear",
    loss="squared",
    *,
    layout="rows",
    n=7,
    s=3,
    d=3,
    c=3,
    share=0.2,
    beta=None,
    n_gates=5,
    gates=None,
    dtype=torch.float64,
    seed=0,
    x_scale=1.0,
    y_scale=1.0,
):
    """An MLP problem; ``beta = share * (smallest beta whose solution is 0)`` unless given."""
    rng = np.random.default_rng(seed)
    tokens = layout != "rows"
    X = x_scale * rng.standard_normal((n, s, d) if tokens else (n, d))
    leading = (n, s) if layout == "tokens" else (n,)
    if loss == "squared":
        Y = torch.from_numpy(y_scale * rng.standard_normal((*leading, c))).to(dtype)
        extra = {}
    else:
        Y = torch.from_numpy(rng.integers(0, c, leading))
        extra = {"classes": c}
    extra |= {"gates": gates} if gates is not None else {}
    if activation == "gated_relu" and gates is None:
        extra["n_gates"] = n_gates
    X = torch.from_numpy(X).to(dtype)
    pool = "mean" if layout == "pool" else None

    def problem(beta):
        return convex.MLP(X, Y, beta=beta, activation=activation, loss=loss, pool=pool, **extra)

    if beta is None:
        unit = problem(1.0)
        zero = torch.zeros_like(unit.loss.target)
        beta = share * unit.polar(unit.loss.gradient(zero))
    return problem(beta)


@pytest.fixture(scope="session")
def make_problem():
    return build
