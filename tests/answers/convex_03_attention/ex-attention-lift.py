# %% Reads W1 row by row
# passes: nothing
# says: is not the prediction of the heads
def lift(W1, W2):
    return W1.flatten(1).T @ W2.flatten(1)


def heads(Z, d):
    u, sigma, vt = torch.linalg.svd(Z, full_matrices=False)
    keep = (sigma > 1e-6 * sigma.max()) & (sigma > 0)
    root = sigma[keep].sqrt()[:, None]
    W1 = (root * u.T[keep]).view(len(root), d, d)
    return W1, (root * vt[keep]).view(len(root), d, Z.shape[1] // d)


# %% Leaves the singular value with the first matrix
# passes: hidden 1
# says: the decay of the heads is
def lift(W1, W2):
    return W1.mT.flatten(1).T @ W2.flatten(1)


def heads(Z, d):
    u, sigma, vt = torch.linalg.svd(Z, full_matrices=False)
    keep = (sigma > 1e-6 * sigma.max()) & (sigma > 0)
    W1 = (sigma[keep][:, None] * u.T[keep]).view(-1, d, d).mT
    return W1, vt[keep].view(len(W1), d, Z.shape[1] // d)


# %% One head for each row of vt, whether it is needed or not
# passes: nothing
# says: heads for a matrix Z of rank
def lift(W1, W2):
    return W1.mT.flatten(1).T @ W2.flatten(1)


def heads(Z, d):
    u, sigma, vt = torch.linalg.svd(Z, full_matrices=False)
    root = sigma.sqrt()[:, None]
    W1 = (root * u.T).view(len(root), d, d).mT
    return W1, (root * vt).view(len(root), d, Z.shape[1] // d)


# %% Takes zero for a singular value above the threshold
# passes: public
def lift(W1, W2):
    return W1.mT.flatten(1).T @ W2.flatten(1)


def heads(Z, d):
    u, sigma, vt = torch.linalg.svd(Z, full_matrices=False)
    keep = sigma >= 1e-6 * sigma.max()
    root = sigma[keep].sqrt()[:, None]
    W1 = (root * u.T[keep]).view(len(root), d, d).mT
    return W1, (root * vt[keep]).view(len(root), d, Z.shape[1] // d)
