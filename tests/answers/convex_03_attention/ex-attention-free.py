# %% Forgets to transpose the product of tokens and residuals
# passes: nothing
# says: times(X, R, v)
def times(X, R, v):
    V = v.view(R.shape[2], X.shape[2])
    return (X.mT @ X @ V.mT @ (X.mT @ R).mT).sum(0).flatten()


def times_transposed(X, R, u):
    U = u.view(X.shape[2], X.shape[2])
    return (X.mT @ X @ U @ (X.mT @ R)).sum(0).flatten()


# %% Sums Gram matrices and residuals before they meet
# passes: nothing
# says: times(X, R, v) is not
def times(X, R, v):
    V = v.view(X.shape[2], R.shape[2])
    return ((X.mT @ X).sum(0) @ V @ (X.mT @ R).sum(0).mT).flatten()


def times_transposed(X, R, u):
    U = u.view(X.shape[2], X.shape[2])
    return ((X.mT @ X).sum(0) @ U @ (X.mT @ R).sum(0)).flatten()


# %% Transposes U
# passes: nothing
# says: times_transposed(X, R, u) is not
def times(X, R, v):
    V = v.view(X.shape[2], R.shape[2])
    return (X.mT @ X @ V @ (X.mT @ R).mT).sum(0).flatten()


def times_transposed(X, R, u):
    U = u.view(X.shape[2], X.shape[2]).T
    return (X.mT @ X @ U @ (X.mT @ R)).sum(0).flatten()


# %% Squeezes axes of length one away
# passes: public
def times(X, R, v):
    V = v.view(X.shape[2], R.shape[2])
    return (X.mT @ X @ V @ (X.mT @ R).mT).sum(0).flatten().squeeze()


def times_transposed(X, R, u):
    U = u.view(X.shape[2], X.shape[2])
    return (X.mT @ X @ U @ (X.mT @ R)).sum(0).flatten().squeeze()


# %% Writes the matrix down
# passes: hidden 1
# says: makes a tensor of
def times(X, R, v):
    return sum(torch.kron(x.T @ x, x.T @ r) for x, r in zip(X, R, strict=True)) @ v


def times_transposed(X, R, u):
    return sum(torch.kron(x.T @ x, x.T @ r) for x, r in zip(X, R, strict=True)).T @ u
