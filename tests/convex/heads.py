"""Small problems of every head, and each head's map by its definition, entry by entry."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from fourviews import convex

HEADS = ("mlp", "attention", "mixer", "fno", "block_fno")
NEW_HEADS = HEADS[1:]
ACTIVATIONS = ("linear", "gated_relu", "relu")
POOLS = (None, "mean")


def head(name, X, Y, *, grid=None, blocks=2, **options):
    if name == "mlp":
        return convex.MLP(X, Y, **options)
    if name == "attention":
        return convex.SelfAttention(X, Y, **options)
    if name == "mixer":
        return convex.Mixer(X, Y, **options)
    grid = (1, X.shape[1]) if grid is None else grid
    if name == "fno":
        return convex.FNO(X, Y, grid=grid, **options)
    return convex.BlockFNO(X, Y, grid=grid, blocks=blocks, **options)


def build(
    name,
    activation="linear",
    loss="squared",
    *,
    pool=None,
    n=3,
    s=2,
    d=2,
    c=2,
    share=0.2,
    beta=None,
    n_gates=None,
    dtype=torch.float64,
    seed=0,
    x_scale=1.0,
    y_scale=1.0,
    **options,
):
    """A problem with random data; ``beta = share * (smallest beta whose solution is 0)``."""
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(x_scale * rng.standard_normal((n, s, d))).to(dtype)
    leading = (n,) if pool else (n, s)
    if loss == "squared":
        Y = torch.from_numpy(y_scale * rng.standard_normal((*leading, c))).to(dtype)
    else:
        Y = torch.from_numpy(rng.integers(0, c, leading))
        options["classes"] = c
    if n_gates is not None and activation != "linear":
        options["n_gates"] = n_gates
    elif activation == "gated_relu" and "gates" not in options:
        options["n_gates"] = 5

    def problem(beta):
        return head(
            name, X, Y, beta=beta, activation=activation, loss=loss, pool=pool, seed=seed, **options
        )

    if beta is None:
        beta = share * convex.largest_beta(problem(1.0))
    return problem(beta)


def circ_by_loops(X, grid):
    """Rows p, columns (q, f): feature f of the token at p − q on the torus."""
    s, d = X.shape
    h, w = grid
    out = np.zeros((s, s * d))
    for py, px, qy, qx in itertools.product(range(h), range(w), range(h), range(w)):
        source = (py - qy) % h * w + (px - qx) % w
        out[py * w + px, (qy * w + qx) * d : (qy * w + qx + 1) * d] = X[source]
    return out


def dense_map(problem):
    """The map A as a matrix (outputs × coefficients), from the heads' formulas and conventions.

    A unit with first weight e_r and second weight e_q is one entry of a block; its output is
    written out from the definition, with the mask that the gate's own pre-activations make.
    """
    X = problem.X.double().numpy()
    n, s, d = X.shape
    c = problem.n_outputs
    name = type(problem).__name__
    B = getattr(problem, "blocks", 1)
    p, q = problem.block_shape
    gates = None if problem.gates is None else problem.gates.double().numpy()
    n_gates = 1 if gates is None else gates.shape[1] if name == "BlockFNO" else len(gates)
    columns = []
    for j, b, r, k in itertools.product(range(n_gates), range(B), range(p), range(q)):
        out = np.zeros((n, s, c))
        for i in range(n):
            if name == "MLP":
                hidden = X[i, :, r]
                on = 1.0 if gates is None else X[i] @ gates[j] >= 0
                out[i, :, k] = on * hidden
            elif name == "SelfAttention":
                W1, W2 = np.zeros((d, d)), np.zeros((d, c))
                W1[r % d, r // d] = 1.0
                W2[k // c, k % c] = 1.0
                on = 1.0 if gates is None else X[i] @ gates[j] @ X[i].T >= 0
                out[i] = (on * (X[i] @ W1 @ X[i].T)) @ X[i] @ W2
            elif name == "Mixer":
                W1, W2 = np.zeros((s, s)), np.zeros((d, c))
                W1[r // s, r % s] = 1.0
                W2[k // c, k % c] = 1.0
                on = 1.0 if gates is None else gates[j] @ X[i] >= 0
                out[i] = (on * (W1 @ X[i])) @ W2
            else:
                part = X[i, :, b * d // B : (b + 1) * d // B]
                C = circ_by_loops(part, problem.grid)
                gate = None if gates is None else gates[b, j] if name == "BlockFNO" else gates[j]
                on = 1.0 if gate is None else C @ gate >= 0
                out[i, :, b * (c // B) + k] = on * C[:, r]
        columns.append((out.mean(axis=1) if problem.pool == "mean" else out).ravel())
    return np.stack(columns, axis=1)
