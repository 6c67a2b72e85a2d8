# %% One ReLU only: coordinates grow beyond the end of their piece
# passes: nothing
# says: wrong on the later pieces
def from_pieces(x, knots, c):
    z = torch.relu(x[:, None] - knots[:-1])
    total = torch.zeros_like(z)
    for row in c[:-1]:
        total = (total + row) * z
    return c[-1, 0] + total.sum(1)


# %% The coordinates run from 0 to 1, and the widths are forgotten
# passes: nothing
# says: wrong on the first piece
def from_pieces(x, knots, c):
    h = knots[1:] - knots[:-1]
    z = 1 - torch.relu(1 - torch.relu(x[:, None] - knots[:-1]) / h)
    total = torch.zeros_like(z)
    for row in c[:-1]:
        total = (total + row) * z
    return c[-1, 0] + total.sum(1)


# %% Every piece adds its own constant
# passes: nothing
# says: wrong on the first piece
def from_pieces(x, knots, c):
    h = knots[1:] - knots[:-1]
    z = h * (1 - torch.relu(1 - torch.relu(x[:, None] - knots[:-1]) / h))
    total = torch.zeros_like(z)
    for row in c[:-1]:
        total = (total + row) * z
    return (c[-1] + total).sum(1)


# %% The table is read from the lowest power up
# passes: nothing
# says: wrong on the first piece
def from_pieces(x, knots, c):
    h = knots[1:] - knots[:-1]
    z = h * (1 - torch.relu(1 - torch.relu(x[:, None] - knots[:-1]) / h))
    total = torch.zeros_like(z)
    for row in c.flip(0)[:-1]:
        total = (total + row) * z
    return c[0, 0] + total.sum(1)


# %% Everything is converted to double precision
# passes: public, hidden 1
def from_pieces(x, knots, c):
    x, knots, c = x.double(), knots.double(), c.double()
    h = knots[1:] - knots[:-1]
    z = h * (1 - torch.relu(1 - torch.relu(x[:, None] - knots[:-1]) / h))
    total = torch.zeros_like(z)
    for row in c[:-1]:
        total = (total + row) * z
    return c[-1, 0] + total.sum(1)
