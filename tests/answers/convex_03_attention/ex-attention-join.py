# %% Takes the singular value decomposition of all of Z
# passes: nothing
# says: the decay is
def fewest(Z, groups, c):
    d = Z.shape[1] // c
    u, s, vt = torch.linalg.svd(Z, full_matrices=False)
    root = s.sqrt()[:, None]
    return (root * u.T).view(-1, d, d).mT, (root * vt).view(-1, d, c)


# %% Drops the blocks across groups and joins nothing
# passes: nothing
# says: are enough
def fewest(Z, groups, c):
    d = Z.shape[1] // c
    kept = torch.zeros_like(Z).view(d, d, d, c)
    for group in groups:
        for k in group:
            for j in group:
                kept[k, :, j] = Z.view(d, d, d, c)[k, :, j]
    u, s, vt = torch.linalg.svd(kept.view(d * d, d * c), full_matrices=False)
    keep = s > 1e-8 * s.max()
    root = s[keep].sqrt()[:, None]
    return (root * u.T[keep]).view(-1, d, d).mT, (root * vt[keep]).view(-1, d, c)


# %% Takes for granted that the features of a group are neighbours
# passes: nothing
# says: the predictions are not those of Z
def fewest(Z, groups, c):
    d = Z.shape[1] // c
    at, pieces = 0, []
    for group in groups:
        size = len(group)
        own = Z[at * d : (at + size) * d, at * c : (at + size) * c]
        pieces.append((at, size, *torch.linalg.svd(own, full_matrices=False)))
        at += size
    largest = max(float(s.max()) for _, _, _, s, _ in pieces)
    ranks = [int((s > 1e-8 * largest).sum()) for _, _, _, s, _ in pieces]
    W1, W2 = Z.new_zeros(max(ranks), d, d), Z.new_zeros(max(ranks), d, c)
    for (at, size, u, s, vt), r in zip(pieces, ranks, strict=True):
        root = s[:r].sqrt()[:, None]
        W1[:r, :, at : at + size] = (root * u.T[:r]).view(r, size, d).mT
        W2[:r, at : at + size] = (root * vt[:r]).view(r, size, c)
    return W1, W2


# %% Joins as many pairs as the smallest rank and forgets the others
# passes: nothing
# says: the predictions are not those of Z
def fewest(Z, groups, c):
    d = Z.shape[1] // c
    parts = []
    for group in groups:
        own = Z.view(d, d, d, c)[group][:, :, group]
        own = own.reshape(len(group) * d, len(group) * c)
        parts.append(torch.linalg.svd(own, full_matrices=False))
    m = min(int((s > 1e-8).sum()) for _, s, _ in parts)
    W1, W2 = Z.new_zeros(m, d, d), Z.new_zeros(m, d, c)
    for group, (u, s, vt) in zip(groups, parts, strict=True):
        root = s[:m].sqrt()[:, None]
        W1[:, :, group] = (root * u.T[:m]).view(m, len(group), d).mT
        W2[:, group] = (root * vt[:m]).view(m, len(group), c)
    return W1, W2


# %% Counts singular values relative to the largest of each group
# passes: public
def fewest(Z, groups, c):
    d = Z.shape[1] // c
    parts = []
    for group in groups:
        own = Z.view(d, d, d, c)[group][:, :, group]
        own = own.reshape(len(group) * d, len(group) * c)
        parts.append(torch.linalg.svd(own, full_matrices=False))
    ranks = [int((s >= 1e-8 * s.max()).sum()) for _, s, _ in parts]
    m = max(ranks)
    W1, W2 = Z.new_zeros(m, d, d), Z.new_zeros(m, d, c)
    for group, (u, s, vt), r in zip(groups, parts, ranks, strict=True):
        root = s[:r].sqrt()[:, None]
        W1[:r, :, group] = (root * u.T[:r]).view(r, len(group), d).mT
        W2[:r, group] = (root * vt[:r]).view(r, len(group), c)
    return W1, W2
