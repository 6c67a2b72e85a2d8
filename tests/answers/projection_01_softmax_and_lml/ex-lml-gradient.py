# %% Lets go of the shift: the gradient of the logistic function alone
# passes: nothing
# says: sum of the gradient is not zero
def gradient(z, g):
    return torch.sigmoid(z) * torch.sigmoid(-z) * g


# %% Subtracts the plain mean of g instead of the weighted one
# passes: nothing
# says: sum of the gradient is not zero
def gradient(z, g):
    w = torch.sigmoid(z) * torch.sigmoid(-z)
    return w * (g - g.mean())


# %% The weights are those of softmax of z, not of log w
# passes: nothing
# says: sum of the gradient is not zero
def gradient(z, g):
    w = torch.sigmoid(z) * torch.sigmoid(-z)
    return w * (g - torch.softmax(z, 0) @ g)


# %% The printed quotients, which are 0/0 for certain answers
# passes: public
def gradient(z, g):
    y = torch.sigmoid(z)
    h = 1 / y + 1 / (1 - y)
    return (g - (g / h).sum() / (1 / h).sum()) / h


# %% A small number in the denominator hides the loss of digits
# passes: public, hidden 2
def gradient(z, g):
    y = torch.sigmoid(z)
    w = y * (1 - y)
    return w * (g - (w * g).sum() / (w.sum() + 1e-30))
