# %% Puts the whole kernel at offset zero
# passes: nothing
# says: the weight decay is
def flat_units(W, s):
    d = len(W)
    U, S, Vh = torch.linalg.svd(W, full_matrices=False)
    keep = S > 1e-9 * S.max()
    U, S, Vh = U[:, keep], S[keep], Vh[keep]
    first = W.new_zeros(len(S), s * d)
    first[:, :d] = (U * S.sqrt()).T
    return first, S.sqrt()[:, None] * Vh


# %% Divides by s twice, for the mean and for the offsets
# passes: nothing
# says: the mean output is not the mean token times W
def flat_units(W, s):
    U, S, Vh = torch.linalg.svd(W / s, full_matrices=False)
    keep = S > 1e-9 * S.max()
    U, S, Vh = U[:, keep], S[keep], Vh[keep]
    size = (S / s**0.5).sqrt()[:, None]
    return (U.T * size / s**0.5).repeat(1, s), size * Vh


# %% Does not balance
# passes: nothing
# says: the weight decay is
def flat_units(W, s):
    U, S, Vh = torch.linalg.svd(W, full_matrices=False)
    keep = S > 1e-9 * S.max()
    U, S, Vh = U[:, keep], S[keep], Vh[keep]
    return (U.T / s).repeat(1, s), S[:, None] * Vh


# %% Keeps units for singular values that are zero
# passes: public
def flat_units(W, s):
    U, S, Vh = torch.linalg.svd(W, full_matrices=False)
    size = (S / s**0.5).sqrt()[:, None]
    return (U.T * size / s**0.5).repeat(1, s), size * Vh
