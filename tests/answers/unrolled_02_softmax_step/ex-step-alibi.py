# %% Forgets the factors β in the step
# passes: hidden 1
# says: step is not attention with the scores
def energy(Y, m):
    place = torch.arange(len(Y))
    z = 0.5 * torch.cdist(Y, Y).square() + m * (place[:, None] - place).abs()
    return -torch.exp(-z).sum()


def step(Y, m):
    place = torch.arange(len(Y))
    scores = Y @ Y.T - m * (place[:, None] - place).abs()
    return torch.softmax(scores, 1) @ Y


# %% Adds the penalty to the energy instead of weighing the pairs
# passes: hidden 1
# says: not the attention step of this energy
def energy(Y, m):
    place = torch.arange(len(Y))
    z = 0.5 * (Y[:, None] - Y).square().sum(-1)
    return -torch.exp(-z).sum() + m * (place[:, None] - place).abs().sum()


def step(Y, m):
    place = torch.arange(len(Y))
    scores = Y @ Y.T - 0.5 * Y.square().sum(1)
    return torch.softmax(scores - m * (place[:, None] - place).abs(), 1) @ Y


# %% Takes the energy with the wrong sign
# passes: hidden 2
# says: points the wrong way
def energy(Y, m):
    place = torch.arange(len(Y))
    z = 0.5 * (Y[:, None] - Y).square().sum(-1)
    return torch.exp(-z - m * (place[:, None] - place).abs()).sum()


def step(Y, m):
    place = torch.arange(len(Y))
    scores = Y @ Y.T - 0.5 * Y.square().sum(1)
    return torch.softmax(scores - m * (place[:, None] - place).abs(), 1) @ Y


# %% Divides the energy by the number of weights that the tokens have now
# passes: hidden 1
# says: not the attention step of this energy
def energy(Y, m):
    place = torch.arange(len(Y))
    z = 0.5 * (Y[:, None] - Y).square().sum(-1)
    w = torch.exp(-z - m * (place[:, None] - place).abs())
    return -w.sum(1).log().sum()


def step(Y, m):
    place = torch.arange(len(Y))
    scores = Y @ Y.T - 0.5 * Y.square().sum(1)
    return torch.softmax(scores - m * (place[:, None] - place).abs(), 1) @ Y


# %% Builds all differences, a tensor of s times s times d numbers
# passes: hidden 1, hidden 2
# says: there is a tensor of 576 numbers
def energy(Y, m):
    place = torch.arange(len(Y))
    z = 0.5 * (Y[:, None] - Y).square().sum(-1)
    return -torch.exp(-z - m * (place[:, None] - place).abs()).sum()


def step(Y, m):
    place = torch.arange(len(Y))
    z = 0.5 * torch.cdist(Y, Y).square()
    return torch.softmax(-z - m * (place[:, None] - place).abs(), 1) @ Y
