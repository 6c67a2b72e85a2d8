# %% Puts the off-diagonal entries into the row of x1 x2
# passes: nothing
# says: not optimal
def optimum(beta, value):
    Z = torch.zeros(4, 2, dtype=torch.float64)
    Z[0, 0] = Z[3, 1] = 1 - beta
    Z[1] = (value - 2 * (1 - beta)) / 2
    return Z


# %% Reaches the prediction by scaling the diagonal
# passes: nothing
# says: not optimal
def optimum(beta, value):
    Z = torch.zeros(4, 2, dtype=torch.float64)
    Z[0, 0] = Z[3, 1] = value / 2
    return Z


# %% Always returns the solution without the freedom
# passes: nothing
# says: optimal, but at (1, 1)
def optimum(beta, value):
    Z = torch.zeros(4, 2, dtype=torch.float64)
    Z[0, 0] = Z[3, 1] = 1 - beta
    return Z


# %% Puts all of the difference into one off-diagonal entry
# passes: nothing
# says: not optimal
def optimum(beta, value):
    Z = torch.zeros(4, 2, dtype=torch.float64)
    Z[0, 0] = Z[3, 1] = 1 - beta
    Z[0, 1] = value - 2 * (1 - beta)
    return Z
