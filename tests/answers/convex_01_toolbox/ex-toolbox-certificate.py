# %% No limit on the scale
# passes: nothing
# says: above the optimum
def lower_bound(X, Y, beta, F):
    R = F - Y
    s = -float((R * Y).sum() / R.square().sum())
    return float(-0.5 * s**2 * R.square().sum() - s * (R * Y).sum())


# %% Forgets the factor one half
# passes: nothing
# says: another allowed multiple
def lower_bound(X, Y, beta, F):
    R = F - Y
    limit = beta / float(torch.linalg.matrix_norm(X.T @ R, 2))
    s = -float((R * Y).sum() / R.square().sum())
    s = min(max(s, -limit), limit)
    return float(-(s**2) * R.square().sum() - s * (R * Y).sum())


# %% Wrong sign of the inner product with the labels
# passes: nothing
# says: another allowed multiple
def lower_bound(X, Y, beta, F):
    R = F - Y
    limit = beta / float(torch.linalg.matrix_norm(X.T @ R, 2))
    s = float((R * Y).sum() / R.square().sum())
    s = min(max(s, -limit), limit)
    return float(-0.5 * s**2 * R.square().sum() - s * (R * Y).sum())


# %% Takes the largest allowed scale for the best one
# passes: nothing
# says: another allowed multiple
def lower_bound(X, Y, beta, F):
    R = F - Y
    s = beta / float(torch.linalg.matrix_norm(X.T @ R, 2))
    return float(-0.5 * s**2 * R.square().sum() - s * (R * Y).sum())


# %% Only scales from 0 on, as for cross-entropy
# passes: hidden 2
# says: for F = 3Y your bound
def lower_bound(X, Y, beta, F):
    R = F - Y
    energy = float(R.square().sum())
    if energy == 0:
        return 0.0
    polar = float(torch.linalg.matrix_norm(X.T @ R, 2))
    s = max(-float((R * Y).sum()) / energy, 0.0)
    if polar > 0:
        s = min(s, beta / polar)
    return float(-0.5 * s**2 * energy - s * (R * Y).sum())


# %% Frobenius norm instead of the largest singular value: a bound, not the best
# passes: hidden 1
# says: another allowed multiple
def lower_bound(X, Y, beta, F):
    R = F - Y
    energy = float(R.square().sum())
    if energy == 0:
        return 0.0
    s = -float((R * Y).sum()) / energy
    limit = beta / max(float(torch.linalg.matrix_norm(X.T @ R)), 1e-300)
    s = min(max(s, -limit), limit)
    return float(-0.5 * s**2 * energy - s * (R * Y).sum())


# %% Largest entry instead of the largest singular value
# passes: nothing
# says: your bound
def lower_bound(X, Y, beta, F):
    R = F - Y
    limit = beta / float((X.T @ R).abs().max())
    s = -float((R * Y).sum() / R.square().sum())
    s = min(max(s, -limit), limit)
    return float(-0.5 * s**2 * R.square().sum() - s * (R * Y).sum())


# %% A few steps of a power iteration, which come from below
# passes: nothing
# says: your bound
def lower_bound(X, Y, beta, F):
    R = F - Y
    M = X.T @ R
    x = torch.ones(M.shape[1], dtype=M.dtype) / M.shape[1] ** 0.5
    for _ in range(2):
        x = M.T @ (M @ x)
        x = x / x.norm()
    limit = beta / float((M @ x).norm())
    s = -float((R * Y).sum() / R.square().sum())
    s = min(max(s, -limit), limit)
    return float(-0.5 * s**2 * R.square().sum() - s * (R * Y).sum())


# %% Reports the optimum of a solver in place of a bound from F
# passes: hidden 2
# says: none of them gives so much
def lower_bound(X, Y, beta, F):
    if beta == 0:
        return 0.0
    return convex.solve(convex.MLP(X, Y, beta=beta), tol=1e-11).lower_bound


# %% Divides by the residual, also where there is none
# passes: public, hidden 2
def lower_bound(X, Y, beta, F):
    R = F - Y
    limit = beta / float(torch.linalg.matrix_norm(X.T @ R, 2))
    s = -float((R * Y).sum()) / float(R.square().sum())
    s = min(max(s, -limit), limit)
    return float(-0.5 * s**2 * R.square().sum() - s * (R * Y).sum())
