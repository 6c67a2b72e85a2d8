# %% Bounds linear heads and forgets the half with |h|
# passes: nothing
# says: lies above an optimum
def lower(X, Y, beta, f):
    R = f - Y
    size = float(R.square().sum())
    if size == 0:
        return 0.0
    A = sum(torch.kron(x.T @ x, x.T @ r) for x, r in zip(X, R, strict=True))
    limit = 2 * beta / float(torch.linalg.matrix_norm(A, 2))
    product = float((R * Y).sum())
    theta = min(max(-product / size, -limit), limit)
    return max(0.0, -theta * product - theta**2 / 2 * size)


# %% Ignores the interval and takes the vertex
# passes: nothing
# says: lies above an optimum
def lower(X, Y, beta, f):
    R = f - Y
    size = float(R.square().sum())
    return 0.0 if size == 0 else float((R * Y).sum()) ** 2 / (2 * size)


# %% Allows only positive θ
# passes: nothing
# says: is smaller than the one that the lemma gives
def lower(X, Y, beta, f):
    R = f - Y
    size = float(R.square().sum())
    if size == 0:
        return 0.0
    grams, cross, outer = X.mT @ X, X.mT @ R, R.mT @ R
    sums = [torch.zeros(1), torch.zeros(1), torch.zeros(1)]
    for i, B in enumerate((cross, grams, outer)):
        sums[i] = sum(torch.kron(a, b) for a, b in zip(grams, B, strict=True))
    norms = [float(torch.linalg.matrix_norm(M, 2)) for M in sums]
    tau = 0.5 * (norms[0] + (norms[1] * norms[2]) ** 0.5)
    product = float((R * Y).sum())
    theta = min(max(-product / size, 0.0), beta / tau)
    return max(0.0, -theta * product - theta**2 / 2 * size)


# %% Always goes to the end of the interval
# passes: nothing
# says: is smaller than the one that the lemma gives
def lower(X, Y, beta, f):
    R = f - Y
    if float(R.square().sum()) == 0:
        return 0.0
    grams, cross, outer = X.mT @ X, X.mT @ R, R.mT @ R
    sums = []
    for B in (cross, grams, outer):
        sums.append(sum(torch.kron(a, b) for a, b in zip(grams, B, strict=True)))
    norms = [float(torch.linalg.matrix_norm(M, 2)) for M in sums]
    theta = 2 * beta / (norms[0] + (norms[1] * norms[2]) ** 0.5)
    product = float((R * Y).sum())
    return max(0.0, -theta * product - theta**2 / 2 * float(R.square().sum()))
