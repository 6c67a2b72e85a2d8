# %% Keeps the heaviest neurons and forgets the others
# passes: nothing
# says: the outputs on the data have changed
def prune(U, V, X):
    heaviest = (U.norm(dim=1) * V.norm(dim=1)).argsort(descending=True)
    keep = heaviest[: len(X) * V.shape[1]]
    return U[keep], V[keep]


# %% Keeps some neurons and refits their second weights by least squares
# passes: nothing
# says: weight decay has risen
def prune(U, V, X):
    hidden = torch.relu(X @ U.T)
    target = hidden @ V
    keep, rank = [], 0
    for k in range(len(U)):
        if int(torch.linalg.matrix_rank(hidden[:, [*keep, k]])) > rank:
            keep.append(k)
            rank += 1
    refit = torch.linalg.lstsq(hidden[:, keep], target, driver="gelsd").solution
    return U[keep], refit


# %% Stops at the smallest |w/δ|, whatever the sign of δ
# passes: nothing
# says: the outputs on the data have changed
def prune(U, V, X):
    w = U.norm(dim=1) * V.norm(dim=1)
    U, V, w = U[w > 0], V[w > 0], w[w > 0]
    U, V = U / U.norm(dim=1, keepdim=True), V / V.norm(dim=1, keepdim=True)
    while len(w) > len(X) * V.shape[1]:
        H = torch.einsum("nk,kc->nck", torch.relu(X @ U.T), V).flatten(0, 1)
        delta = torch.linalg.svd(H).Vh[-1]
        if delta.sum() > 0:
            delta = -delta
        steps = w / delta.abs()
        k = int(steps.argmin())
        w = (w + steps[k] * delta).clamp_min(0)
        keep = torch.arange(len(w)) != k
        U, V, w = U[keep], V[keep], w[keep]
    root = w.sqrt()[:, None]
    return U * root, V * root


# %% Leaves the weight with the second layer instead of balancing
# passes: nothing
# says: weight decay has risen
def prune(U, V, X):
    w = U.norm(dim=1) * V.norm(dim=1)
    U, V, w = U[w > 0], V[w > 0], w[w > 0]
    U, V = U / U.norm(dim=1, keepdim=True), V / V.norm(dim=1, keepdim=True)
    while len(w) > len(X) * V.shape[1]:
        H = torch.einsum("nk,kc->nck", torch.relu(X @ U.T), V).flatten(0, 1)
        delta = torch.linalg.svd(H).Vh[-1]
        if delta.sum() > 0:
            delta = -delta
        steps = torch.where(delta < 0, -w / delta, torch.inf)
        k = int(steps.argmin())
        w = (w + steps[k] * delta).clamp_min(0)
        keep = torch.arange(len(w)) != k
        U, V, w = U[keep], V[keep], w[keep]
    return U, V * w[:, None]


# %% Looks for dependence in the first output only
# passes: public, hidden 2
def prune(U, V, X):
    kind = U.dtype
    U, V, X = U.double(), V.double(), X.double()
    w = U.norm(dim=1) * V.norm(dim=1)
    U, V, w = U[w > 0], V[w > 0], w[w > 0]
    U, V = U / U.norm(dim=1, keepdim=True), V / V.norm(dim=1, keepdim=True)
    while len(w) > len(X):
        H = torch.relu(X @ U.T) * V[:, 0]
        delta = torch.linalg.svd(H).Vh[-1]
        if delta.sum() > 0:
            delta = -delta
        steps = torch.where(delta < 0, -w / delta, torch.inf)
        k = int(steps.argmin())
        w = (w + steps[k] * delta).clamp_min(0)
        keep = torch.arange(len(w)) != k
        U, V, w = U[keep], V[keep], w[keep]
    root = w.sqrt()[:, None]
    return (U * root).to(kind), (V * root).to(kind)


# %% Divides by the length of weights that are zero
# passes: public, hidden 1
def prune(U, V, X):
    kind = U.dtype
    U, V, X = U.double(), V.double(), X.double()
    w = U.norm(dim=1) * V.norm(dim=1)
    U, V = U / U.norm(dim=1, keepdim=True), V / V.norm(dim=1, keepdim=True)
    while len(w) > len(X) * V.shape[1]:
        H = torch.einsum("nk,kc->nck", torch.relu(X @ U.T), V).flatten(0, 1)
        delta = torch.linalg.svd(H).Vh[-1]
        if delta.sum() > 0:
            delta = -delta
        steps = torch.where(delta < 0, -w / delta, torch.inf)
        k = int(steps.argmin())
        w = (w + steps[k] * delta).clamp_min(0)
        keep = torch.arange(len(w)) != k
        U, V, w = U[keep], V[keep], w[keep]
    root = w.sqrt()[:, None]
    return (U * root).to(kind), (V * root).to(kind)
