# %% Bonferroni: every value times m
# passes: hidden 1, hidden 2
# says: the adjusted p-value
def adjusted(p):
    return (len(p) * p).clamp_max(1.0)


# %% Without the maximum
# passes: nothing
# says: the adjusted p-value
def adjusted(p):
    order = torch.argsort(p)
    factor = torch.arange(len(p), 0, -1, dtype=p.dtype)
    out = torch.empty_like(p)
    out[order] = (factor * p[order]).clamp_max(1.0)
    return out


# %% Results in sorted order
# passes: hidden 1
# says: the adjusted p-value
def adjusted(p):
    factor = torch.arange(len(p), 0, -1, dtype=p.dtype)
    return (factor * p.sort().values).cummax(0).values.clamp_max(1.0)


# %% The factor m only for the smallest, 1 for the others
# passes: nothing
# says: the adjusted p-value
def adjusted(p):
    out = p.clone()
    k = int(torch.argmin(p))
    out[k] = (len(p) * p[k]).clamp_max(1.0)
    return out
