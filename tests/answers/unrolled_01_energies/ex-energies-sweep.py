# %% Leaves out the loops
# passes: nothing
# says: w_ij = a_ij / (1 + half the squared distance)
def sweep(Y, X, A, mu):
    w = A / (1 + 0.5 * torch.cdist(Y, Y).square())
    w = w - torch.diag(w.diagonal())
    below = w.sum(1, keepdim=True) + 0.5 * mu
    return torch.where(below > 0, (w @ Y + 0.5 * mu * X) / below, Y)


# %% Takes the whole squared distance
# passes: hidden 1
# says: half the squared distance
def sweep(Y, X, A, mu):
    w = A / (1 + torch.cdist(Y, Y).square())
    below = w.sum(1, keepdim=True) + 0.5 * mu
    return torch.where(below > 0, (w @ Y + 0.5 * mu * X) / below, Y)


# %% Puts μ where half of it belongs
# passes: nothing
# says: with mu = 0.8 the step is not
def sweep(Y, X, A, mu):
    w = A / (1 + 0.5 * torch.cdist(Y, Y).square())
    below = w.sum(1, keepdim=True) + mu
    return torch.where(below > 0, (w @ Y + mu * X) / below, Y)


# %% Divides zero by zero at a token without neighbours
# passes: public, hidden 2
def sweep(Y, X, A, mu):
    w = A / (1 + 0.5 * torch.cdist(Y, Y).square())
    return (w @ Y + 0.5 * mu * X) / (w.sum(1, keepdim=True) + 0.5 * mu)


# %% Sends a token without neighbours to the origin
# passes: public, hidden 2
def sweep(Y, X, A, mu):
    w = A / (1 + 0.5 * torch.cdist(Y, Y).square())
    below = w.sum(1, keepdim=True) + 0.5 * mu
    return (w @ Y + 0.5 * mu * X) / torch.where(below > 0, below, 1)


# %% Builds all differences, a tensor of s times s times d numbers
# passes: hidden 1, hidden 2
# says: there is a tensor of 576 numbers
def sweep(Y, X, A, mu):
    w = A / (1 + 0.5 * (Y[:, None] - Y).square().sum(-1))
    below = w.sum(1, keepdim=True) + 0.5 * mu
    mean = (w @ Y + 0.5 * mu * X) / torch.where(below > 0, below, 1)
    return torch.where(below > 0, mean, Y)
