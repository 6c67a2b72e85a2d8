# %% Squares the distances
# passes: nothing
# says: wrong for a head that looks at the first
def reach(maps):
    h, w = maps.shape[-2:]
    at = torch.cartesian_prod(torch.arange(h), torch.arange(w)).to(maps)
    distance = (at[:, None] - at).square().sum(-1).view(h, w, h, w)
    return (maps * distance).sum((-1, -2)).mean((0, 2, 3))


# %% Adds rows and columns
# passes: hidden 1
# says: wrong for a head that looks at the first
def reach(maps):
    h, w = maps.shape[-2:]
    at = torch.cartesian_prod(torch.arange(h), torch.arange(w)).to(maps)
    distance = (at[:, None] - at).abs().sum(-1).view(h, w, h, w)
    return (maps * distance).sum((-1, -2)).mean((0, 2, 3))


# %% Averages over keys instead of adding up their weights
# passes: nothing
# says: wrong for a head that looks at the first
def reach(maps):
    h, w = maps.shape[-2:]
    at = torch.cartesian_prod(torch.arange(h), torch.arange(w)).to(maps)
    distance = (at[:, None] - at).norm(dim=-1).view(h, w, h, w)
    return (maps * distance).mean((0, 2, 3, 4, 5))


# %% Takes the distance of the mean key for the mean distance
# passes: nothing
# says: wrong for random attention
def reach(maps):
    h, w = maps.shape[-2:]
    at = torch.cartesian_prod(torch.arange(h), torch.arange(w)).to(maps)
    mean = maps.flatten(-2) @ at
    return (mean - at.view(h, w, 2)).norm(dim=-1).mean((0, 2, 3))


# %% Computes in double precision and leaves the result there
# passes: public
def reach(maps):
    h, w = maps.shape[-2:]
    at = torch.cartesian_prod(torch.arange(h), torch.arange(w)).double()
    distance = (at[:, None] - at).norm(dim=-1).view(h, w, h, w)
    return (maps.double() * distance).sum((-1, -2)).mean((0, 2, 3))
