# %% Puts each kernel into a feature of its own, whatever the rank
# passes: public
def unfold(kernels, d):
    m, s = len(kernels), kernels.shape[1] // d
    if m > d:
        raise ValueError("more kernels than features")
    L = kernels.new_zeros(s, d, d)
    L[:, :, :m] = kernels.view(m, s, d).permute(1, 2, 0)
    return L, torch.eye(d, m, dtype=kernels.dtype)


# %% Cuts the rank instead of refusing
# passes: public
def unfold(kernels, d):
    m, s = len(kernels), kernels.shape[1] // d
    U, S, Vh = torch.linalg.svd(kernels.T, full_matrices=False)
    r = min(d, m)
    L, W1 = kernels.new_zeros(s * d, d), kernels.new_zeros(d, m)
    L[:, :r], W1[:r] = U[:, :r] * S[:r], Vh[:r]
    return L.view(s, d, d), W1


# %% Transposes each L[q]
# passes: nothing
# says: is not kernels[j]
def unfold(kernels, d):
    m, s = len(kernels), kernels.shape[1] // d
    U, S, Vh = torch.linalg.svd(kernels.T, full_matrices=False)
    r = min(d, m)
    L, W1 = kernels.new_zeros(s * d, d), kernels.new_zeros(d, m)
    L[:, :r], W1[:r] = U[:, :r] * S[:r], Vh[:r]
    return L.view(s, d, d).mT, W1


# %% Forgets the singular values
# passes: nothing
# says: is not kernels[j]
def unfold(kernels, d):
    m, s = len(kernels), kernels.shape[1] // d
    U, S, Vh = torch.linalg.svd(kernels.T, full_matrices=False)
    r = min(d, m)
    L, W1 = kernels.new_zeros(s * d, d), kernels.new_zeros(d, m)
    L[:, :r], W1[:r] = U[:, :r], Vh[:r]
    return L.view(s, d, d), W1
