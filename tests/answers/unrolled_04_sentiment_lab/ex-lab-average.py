# %% Lets the mean rise with the others
# passes: nothing
# says: the mean does not fall
def hidden_rises(m):
    energies = torch.arange(3, dtype=torch.float64).repeat(m, 1)
    energies[-1] *= -1
    return energies


# %% Lets all texts fall
# passes: nothing
# says: 0 texts rise at both layers
def hidden_rises(m):
    return -torch.arange(3, dtype=torch.float64).repeat(m, 1)


# %% Chooses a fall that is enough for small samples only
# passes: public
def hidden_rises(m):
    energies = torch.arange(3, dtype=torch.float64).repeat(m, 1)
    energies[-1] *= -40
    return energies


# %% Lets the last text fall at the first layer only
# passes: nothing
# says: the mean does not fall
def hidden_rises(m):
    energies = torch.arange(3, dtype=torch.float64).repeat(m, 1)
    energies[-1] = torch.tensor([0.0, -m, -m])
    return energies


# %% Swaps texts and layers
# passes: nothing
# says: hidden_rises(m)
def hidden_rises(m):
    energies = torch.arange(3, dtype=torch.float64).repeat(m, 1)
    energies[-1] *= -m
    return energies.T
