# %% Cuts at 0 and rescales to the sum k
# passes: nothing
# says: capped
def capped(x, k):
    y = (x - x.min()).clamp_min(0)
    return k * y / y.sum()


# %% Sparsemax for one label, times k: the ceiling is forgotten
# passes: nothing
# says: has an entry above 1
def capped(x, k):
    s = x.sort(descending=True).values
    if k == 0:
        return torch.zeros_like(x)
    sums = s.cumsum(0)
    j = torch.arange(1, len(x) + 1, dtype=x.dtype)
    size = int((k + j * s > sums).sum())
    nu = (k - sums[size - 1]) / size
    return (x + nu).clamp_min(0)


# %% Chooses the k largest instead of the nearest point
# passes: hidden 2
# says: is not the nearest point
def capped(x, k):
    y = torch.zeros_like(x)
    y[x.topk(k).indices] = 1
    return y


# %% Bisection between fixed ends, which a shift of x leaves behind
# passes: public, hidden 1
def capped(x, k):
    if k == 0:
        return torch.zeros_like(x)
    if k == len(x):
        return torch.ones_like(x)
    low, high = x.new_tensor(-100.0), x.new_tensor(100.0)
    for _ in range(80):
        middle = (low + high) / 2
        if (x + middle).clamp(0, 1).sum() > k:
            high = middle
        else:
            low = middle
    return (x + high).clamp(0, 1)
