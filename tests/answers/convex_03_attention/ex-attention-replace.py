# %% Takes M = I/‖X‖² with the norm of the first sample
# passes: nothing
# says: with the smallest M
def as_attention(X, W):
    d = W.shape[0]
    return torch.kron(torch.eye(d, dtype=X.dtype) / X[0].square().sum(), W)


# %% Never says None
# passes: hidden 1
# says: cannot hold for both
def as_attention(X, W):
    d = W.shape[0]
    grams = (X.mT @ X).flatten(1)
    M = torch.linalg.pinv(grams) @ torch.ones(len(X), 1, dtype=X.dtype)
    return torch.kron(M.view(d, d), W)


# %% Says None when there are more samples than dimensions
# passes: nothing
# says: cannot hold for both
def as_attention(X, W):
    d = W.shape[0]
    if len(X) > d * (d + 1) // 2:
        return None
    grams = (X.mT @ X).flatten(1)
    M = torch.linalg.pinv(grams) @ torch.ones(len(X), 1, dtype=X.dtype)
    return torch.kron(M.view(d, d), W)


# %% Exchanges the roles of M and W in the Kronecker product
# passes: hidden 2
# says: does not predict
def as_attention(X, W):
    X = X[X.flatten(1).norm(dim=1) > 0]
    d = W.shape[0]
    grams = (X.mT @ X).flatten(1)
    ones = torch.ones(len(X), 1, dtype=X.dtype)
    M = torch.linalg.pinv(grams) @ ones
    if len(X) and (grams @ M - ones).abs().max() > 1e-8:
        return None
    return torch.kron(W, M.view(d, d))


# %% Lets samples of zeros count
# passes: public, hidden 2
def as_attention(X, W):
    d = W.shape[0]
    grams = (X.mT @ X).flatten(1)
    ones = torch.ones(len(X), 1, dtype=X.dtype)
    M = torch.linalg.pinv(grams, rtol=1e-10) @ ones
    if (grams @ M - ones).abs().max() > 1e-8:
        return None
    return torch.kron(M.view(d, d), W)
