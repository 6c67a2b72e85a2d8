# %% Balances u and v, and forgets that W1 has s equal rows
# passes: nothing
# says: the weight decay is
def pooled_units(A, d):
    s = A.shape[0]
    U, S, Vh = torch.linalg.svd(A, full_matrices=False)
    keep = S > 1e-9 * S.max()
    U, S, Vh = U[:, keep], S[keep], Vh[keep]
    W1 = (U * S.sqrt()).T[:, None, :].repeat(1, s, 1)
    return W1, (S.sqrt()[:, None] * Vh).view(len(S), d, -1)


# %% Writes to the first output token only
# passes: nothing
# says: the weight decay is
def pooled_units(A, d):
    s = A.shape[0]
    U, S, Vh = torch.linalg.svd(A, full_matrices=False)
    keep = S > 1e-9 * S.max()
    U, S, Vh = U[:, keep], S[keep], Vh[keep]
    size = (s * S).sqrt()[:, None]
    W1 = A.new_zeros(len(S), s, s)
    W1[:, 0] = U.T * size
    return W1, (size * Vh).view(len(S), d, -1)


# %% Takes the sum over tokens for the mean
# passes: nothing
# says: Each entry is
def pooled_units(A, d):
    s = A.shape[0]
    U, S, Vh = torch.linalg.svd(A / s, full_matrices=False)
    keep = S > 1e-9 * S.max()
    U, S, Vh = U[:, keep], S[keep], Vh[keep]
    size = (s**0.5 * S).sqrt()[:, None]
    W1 = (U.T * size / s**0.5)[:, None, :].repeat(1, s, 1)
    return W1, (size * Vh).view(len(S), d, -1)


# %% Keeps units for singular values that are zero
# passes: public
def pooled_units(A, d):
    s = A.shape[0]
    U, S, Vh = torch.linalg.svd(A, full_matrices=False)
    size = (s**0.5 * S).sqrt()[:, None]
    W1 = (U.T * size / s**0.5)[:, None, :].repeat(1, s, 1)
    return W1, (size * Vh).view(len(S), d, -1)
