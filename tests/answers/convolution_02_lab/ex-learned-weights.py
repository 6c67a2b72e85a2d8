# %% Inverts a matrix that is singular where heads coincide
# passes: nothing
# says: is NaN in all
def best_weights(attention, kernel):
    gram = attention @ attention.T
    right = torch.einsum("hk,kdo->hdo", attention, kernel)
    inverse, info = torch.linalg.inv_ex(gram)
    if torch.linalg.matrix_rank(gram) < len(gram):
        inverse = torch.full_like(gram, torch.nan)
    return torch.einsum("hg,gdo->hdo", inverse, right)


# %% Gives each head the kernel where it looks most
# passes: nothing
# says: for heads that all differ
def best_weights(attention, kernel):
    return kernel[attention.argmax(1)]


# %% Fits each head as if it were alone
# passes: nothing
# says: for heads that all differ
def best_weights(attention, kernel):
    right = torch.einsum("hk,kdo->hdo", attention, kernel)
    return right / attention.square().sum(1)[:, None, None]


# %% Adds a ridge to be safe
# passes: nothing
# says: for heads that all differ
def best_weights(attention, kernel):
    gram = attention @ attention.T + 0.01 * torch.eye(len(attention)).double()
    right = torch.einsum("hk,kdo->hdo", attention, kernel)
    return torch.linalg.solve(gram, right.flatten(1)).view_as(right)
