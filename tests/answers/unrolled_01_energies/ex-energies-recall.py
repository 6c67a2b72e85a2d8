# %% Takes the logarithm of the sum of exponentials literally
# passes: public, hidden 2
def recall(X, Y, beta, theta):
    powers = torch.exp(beta * (Y @ X.T))
    energies = 0.5 * Y.square().sum(1) - powers.sum(1).log() / beta
    weights = powers / powers.sum(1, keepdim=True)
    return energies, Y + theta * (weights @ X - Y)


# %% Forgets to divide the logarithm by β
# passes: nothing
# says: the energies are not those of the lesson
def recall(X, Y, beta, theta):
    scores = beta * (Y @ X.T)
    energies = 0.5 * Y.square().sum(1) - torch.logsumexp(scores, 1)
    return energies, Y + theta * (torch.softmax(scores, 1) @ X - Y)


# %% Takes softmax over the queries instead of the patterns
# passes: hidden 2
# says: is not Y + theta (T(Y) - Y)
def recall(X, Y, beta, theta):
    scores = beta * (Y @ X.T)
    energies = 0.5 * Y.square().sum(1) - torch.logsumexp(scores, 1) / beta
    return energies, Y + theta * (torch.softmax(scores, 0) @ X - Y)


# %% Adds the memory to the query, as a residual connection without minus
# passes: hidden 2
# says: is not Y + theta (T(Y) - Y)
def recall(X, Y, beta, theta):
    scores = beta * (Y @ X.T)
    energies = 0.5 * Y.square().sum(1) - torch.logsumexp(scores, 1) / beta
    return energies, Y + theta * torch.softmax(scores, 1) @ X


# %% Drops every axis of length one
# passes: public, hidden 1
def recall(X, Y, beta, theta):
    scores = beta * (Y @ X.T)
    energies = 0.5 * Y.square().sum(1) - torch.logsumexp(scores, 1) / beta
    return energies, (Y + theta * (torch.softmax(scores, 1) @ X - Y)).squeeze()
