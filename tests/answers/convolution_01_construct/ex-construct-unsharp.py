# %% Forgets the factor two in the exponent of the Gaussian
# passes: hidden 2
# says: away from the sharpened image
def unsharp(sigma, amount):
    alpha = torch.tensor([30.0, 1 / sigma**2], dtype=torch.float64)
    return alpha, torch.tensor([1 + amount, -amount], dtype=torch.float64)


# %% Subtracts the blur and forgets to add the difference
# passes: nothing
# says: is multiplied by
def unsharp(sigma, amount):
    alpha = torch.tensor([30.0, 1 / (2 * sigma**2)], dtype=torch.float64)
    return alpha, torch.tensor([1.0, -amount], dtype=torch.float64)


# %% Is sharp enough for small amounts only
# passes: public, hidden 2
def unsharp(sigma, amount):
    alpha = torch.tensor([17.0, 1 / (2 * sigma**2)], dtype=torch.float64)
    return alpha, torch.tensor([1 + amount, -amount], dtype=torch.float64)


# %% Swaps the factors of the two heads
# passes: hidden 2
# says: away from the sharpened image
def unsharp(sigma, amount):
    alpha = torch.tensor([30.0, 1 / (2 * sigma**2)], dtype=torch.float64)
    return alpha, torch.tensor([-amount, 1 + amount], dtype=torch.float64)
