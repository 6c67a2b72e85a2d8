# %% Lets go of the shift: each label by itself
# passes: nothing
# says: moves along c
def gradients(x, c, nu, g):
    y = torch.sigmoid(x + nu * c)
    w = y * (1 - y)
    return w * g, nu * w * g, torch.zeros_like(g[0])


# %% The lesson's own gradient, in which every label costs 1
# passes: nothing
# says: moves along c
def gradients(x, c, nu, g):
    z = x + nu * c
    w = torch.sigmoid(z) * torch.sigmoid(-z)
    mean = (w @ g) / w.sum()
    in_x = w * (g - mean)
    return in_x, nu * in_x, mean


# %% Forgets that the costs stand in the budget, too
# passes: nothing
# says: in c is wrong
def gradients(x, c, nu, g):
    z = x + nu * c
    log = torch.nn.functional.logsigmoid
    price = torch.softmax(2 * c.log() + log(z) + log(-z), 0) @ (g / c)
    in_x = torch.sigmoid(z) * torch.sigmoid(-z) * (g - price * c)
    return in_x, nu * in_x, price


# %% Takes the change of the shift for the change of the function
# passes: nothing
# says: in B is wrong
def gradients(x, c, nu, g):
    z = x + nu * c
    log = torch.nn.functional.logsigmoid
    price = torch.softmax(2 * c.log() + log(z) + log(-z), 0) @ (g / c)
    w = torch.sigmoid(z) * torch.sigmoid(-z)
    in_x = w * (g - price * c)
    return in_x, nu * in_x - price * torch.sigmoid(z), 1 / (c * c * w).sum()


# %% Quotients of y and 1 - y, as the lesson's formula is printed
# passes: public
def gradients(x, c, nu, g):
    y = torch.sigmoid(x + nu * c)
    h = 1 / y + 1 / (1 - y)
    price = (c * g / h).sum() / (c * c / h).sum()
    in_x = (g - price * c) / h
    return in_x, nu * in_x - price * y, price


# %% A small number in the denominator
# passes: public
def gradients(x, c, nu, g):
    z = x + nu * c
    w = torch.sigmoid(z) * torch.sigmoid(-z)
    price = (c * w * g).sum() / ((c * c * w).sum() + 1e-30)
    in_x = w * (g - price * c)
    return in_x, nu * in_x - price * torch.sigmoid(z), price


# %% Divides one sum of underflowing numbers by another
# passes: public, hidden 1
def gradients(x, c, nu, g):
    z = x + nu * c
    w = torch.sigmoid(z) * torch.sigmoid(-z)
    price = (c * w * g).sum() / (c * c * w).sum()
    in_x = w * (g - price * c)
    return in_x, nu * in_x - price * torch.sigmoid(z), price
