# %% Numbers by the height of the image
# passes: public, hidden 2
def encode(delta, grid):
    number = grid[0] * delta[..., 0] + delta[..., 1]
    return torch.stack([number**2, number], -1)


def query(offset, alpha, grid):
    number = grid[0] * offset[..., 0] + offset[..., 1]
    return torch.stack([-alpha * torch.ones_like(number), 2 * alpha * number])


# %% Adds row and column
# passes: nothing
# says: another pixel wins
def encode(delta, grid):
    number = delta.sum(-1)
    return torch.stack([number**2, number], -1)


def query(offset, alpha, grid):
    number = offset.sum(-1)
    return torch.stack([-alpha * torch.ones_like(number), 2 * alpha * number])


# %% Forgets the factor two, so that half the offset wins
# passes: nothing
# says: another pixel wins
def encode(delta, grid):
    number = grid[1] * delta[..., 0] + delta[..., 1]
    return torch.stack([number**2, number], -1)


def query(offset, alpha, grid):
    number = grid[1] * offset[..., 0] + offset[..., 1]
    return torch.stack([-alpha * torch.ones_like(number), alpha * number])


# %% Divides the numbers by their size, and the lead with them
# passes: hidden 1
# says: the lead is less than
def encode(delta, grid):
    number = (grid[1] * delta[..., 0] + delta[..., 1]) / (grid[0] * grid[1])
    return torch.stack([number**2, number], -1)


def query(offset, alpha, grid):
    number = (grid[1] * offset[..., 0] + offset[..., 1]) / (grid[0] * grid[1])
    return torch.stack([-alpha * torch.ones_like(number), 2 * alpha * number])
