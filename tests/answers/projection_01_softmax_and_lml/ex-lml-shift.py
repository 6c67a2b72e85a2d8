# %% Divides instead of shifting: k times softmax
# passes: nothing
# says: not the same number for all entries
def shifted(x, k):
    y = (k * torch.softmax(x, 0)).clamp(1e-12, 1 - 1e-12)
    return torch.log(y) - torch.log1p(-y)


# %% Shifts the middle of the gap to zero and stops there
# passes: nothing
# says: do not sum to k
def shifted(x, k):
    s = x.sort(descending=True).values
    return x - (s[k - 1] + s[k]) / 2 + 0.1


# %% Bisection on the shift itself
# passes: public
def shifted(x, k):
    high = 40 - x.min()
    low = -40 - x.max()
    for _ in range(200):
        middle = (low + high) / 2
        if torch.sigmoid(x + middle).sum() > k:
            high = middle
        else:
            low = middle
    return x + (low + high) / 2


# %% Takes each of the two groups for equal entries, which gives t in closed form
# passes: nothing
# says: do not sum to k
def shifted(x, k):
    s = x.sort(descending=True).values
    return x - (s[k - 1] + s[k]) / 2 + math.log(k / (len(x) - k))
