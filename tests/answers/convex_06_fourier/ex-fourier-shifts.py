# %% Shifts the list of tokens
# passes: nothing
# says: these are shifts of the list
def circ(X, grid):
    return torch.cat([X.roll(q, 1) for q in range(X.shape[1])], dim=2)


# %% Shifts in the opposite direction
# passes: nothing
# says: it must be the one at p − q
def circ(X, grid):
    n, s, d = X.shape
    h, w = grid
    images = X.reshape(n, h, w, d)
    shifted = [images.roll((-y, -x), (1, 2)).reshape(n, s, d) for y in range(h) for x in range(w)]
    return torch.cat(shifted, dim=2)


# %% Puts features outside and offsets inside
# passes: nothing
# says: is not the token at p − q
def circ(X, grid):
    n, s, d = X.shape
    h, w = grid
    images = X.reshape(n, h, w, d)
    shifted = [images.roll((y, x), (1, 2)).reshape(n, s, d) for y in range(h) for x in range(w)]
    return torch.stack(shifted, dim=3).flatten(2)


# %% Returns float64 whatever comes
# passes: public
def circ(X, grid):
    n, s, d = X.shape
    h, w = grid
    images = X.double().reshape(n, h, w, d)
    shifted = [images.roll((y, x), (1, 2)).reshape(n, s, d) for y in range(h) for x in range(w)]
    return torch.cat(shifted, dim=2)
