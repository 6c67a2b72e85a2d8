# %% Forgets the energy of the input
# passes: nothing
# says: along(energy, step, texts, 3)
def along(energy, step, texts, layers):
    rows = []
    for X in texts:
        values = []
        for _ in range(layers):
            X = step(X)
            values.append(energy(X).detach() / len(X))
        rows.append(torch.stack(values))
    return torch.stack(rows)


# %% Does not divide by the number of tokens
# passes: nothing
# says: not the energy per token of the input
def along(energy, step, texts, layers):
    rows = []
    for X in texts:
        values = [energy(X).detach()]
        for _ in range(layers):
            X = step(X).detach()
            values.append(energy(X).detach())
        rows.append(torch.stack(values))
    return torch.stack(rows)


# %% Starts each layer from the input again
# passes: nothing
# says: seems to raise it
def along(energy, step, texts, layers):
    rows = []
    for X in texts:
        after = energy(step(X)).detach()
        values = [energy(X).detach()] + [after] * layers
        rows.append(torch.stack(values) / len(X))
    return torch.stack(rows)


# %% Divides by the number of tokens of the first text
# passes: nothing
# says: not the energy per token of the input
def along(energy, step, texts, layers):
    rows = []
    for X in texts:
        values = [energy(X).detach()]
        for _ in range(layers):
            X = step(X).detach()
            values.append(energy(X).detach())
        rows.append(torch.stack(values) / (len(texts[0]) + 0.5))
    return torch.stack(rows)


# %% Records gradients
# passes: public, hidden 1
def along(energy, step, texts, layers):
    rows = []
    for X in texts:
        values = [energy(X)]
        for _ in range(layers):
            X = step(X)
            values.append(energy(X))
        rows.append(torch.stack(values) / len(X))
    return torch.stack(rows)
