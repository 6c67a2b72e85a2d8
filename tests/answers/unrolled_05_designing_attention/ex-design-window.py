# %% Forgets the bias
# passes: nothing
# says: less m |i − j|
def local_energy(n, k, m, dtype):
    place = torch.arange(n)
    graph = (place[:, None] - place).abs() <= k
    return unrolled.AttentionEnergy(graph=graph)


# %% Forgets the window
# passes: nothing
# says: see each other
def local_energy(n, k, m, dtype):
    place = torch.arange(n, dtype=dtype)
    apart = (place[:, None] - place).abs()
    return unrolled.AttentionEnergy(graph=torch.exp(-m * apart))


# %% Puts the bias itself into the graph
# passes: nothing
# says: negative or non-finite
def local_energy(n, k, m, dtype):
    place = torch.arange(n, dtype=dtype)
    apart = (place[:, None] - place).abs()
    return unrolled.AttentionEnergy(graph=torch.where(apart <= k, -m * apart, 0.0))


# %% Leaves out the token itself
# passes: nothing
# says: is not seen
def local_energy(n, k, m, dtype):
    place = torch.arange(n, dtype=dtype)
    apart = (place[:, None] - place).abs()
    near = (apart <= k) & (apart > 0)
    return unrolled.AttentionEnergy(graph=torch.where(near, torch.exp(-m * apart), 0.0))


# %% Always computes the graph in float64
# passes: public, hidden 2
def local_energy(n, k, m, dtype):
    place = torch.arange(n, dtype=torch.float64)
    apart = (place[:, None] - place).abs()
    return unrolled.AttentionEnergy(graph=torch.where(apart <= k, torch.exp(-m * apart), 0.0))
