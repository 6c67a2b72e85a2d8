# %% Takes the energy's product for the published scores
# passes: nothing
# says: published(Y, W) is not softmax
def published(Y, W):
    U = Y @ W
    return torch.softmax(U @ U.T, -1) @ Y


def corrected(Y, W, lam):
    U = Y @ W
    w = torch.exp(-0.5 * torch.cdist(U, U).square())
    return w @ Y / (w.sum(-1, keepdim=True) + lam / 2)


# %% Forgets β in the corrected step
# passes: nothing
# says: corrected(Y, W, lam) is not the step
def published(Y, W):
    U = Y @ W.T
    return torch.softmax(U @ U.T, -1) @ Y


def corrected(Y, W, lam):
    U = Y @ W
    return torch.softmax(U @ U.T, -1) @ Y


# %% Puts λ in place of its half
# passes: nothing
# says: corrected(Y, W, lam) is not the step
def published(Y, W):
    U = Y @ W.T
    return torch.softmax(U @ U.T, -1) @ Y


def corrected(Y, W, lam):
    U = Y @ W
    w = torch.exp(-0.5 * torch.cdist(U, U).square())
    return w @ Y / (w.sum(-1, keepdim=True) + lam)


# %% Averages YW in place of Y
# passes: nothing
# says: corrected(Y, W, lam) is not the step
def published(Y, W):
    U = Y @ W.T
    return torch.softmax(U @ U.T, -1) @ Y


def corrected(Y, W, lam):
    U = Y @ W
    w = torch.exp(-0.5 * torch.cdist(U, U).square())
    return w @ U / (w.sum(-1, keepdim=True) + lam / 2)


# %% Computes exponentials of scores, which overflow
# passes: public, hidden 2
def published(Y, W):
    U = Y @ W.T
    return torch.softmax(U @ U.T, -1) @ Y


def corrected(Y, W, lam):
    U = Y @ W
    half = 0.5 * (U * U).sum(-1)
    w = torch.exp(U @ U.T) * torch.exp(-half)[:, None] * torch.exp(-half)
    return w @ Y / (w.sum(-1, keepdim=True) + lam / 2)
