# %% Takes the row with the most negative product instead of the largest ratio
# passes: hidden 1
# says: the outputs relu(X @ U.T) @ v on the data are not X @ z
def as_relu(X, z, g):
    row = int((X @ z).argmin())
    t = (-(X[row] @ z) / (X[row] @ g)).clamp_min(0)
    parts = torch.stack([z + t * g, t * g])
    roots = parts.norm(dim=1).sqrt()
    safe = torch.where(roots > 0, roots, 1)
    return parts / safe[:, None], roots * roots.new_tensor([1, -1])


# %% Adds the second neuron instead of subtracting it
# passes: nothing
# says: the outputs relu(X @ U.T) @ v on the data are not X @ z
def as_relu(X, z, g):
    rows = X[X.norm(dim=1) > 0]
    t = (-(rows @ z) / (rows @ g)).max().clamp_min(0)
    parts = torch.stack([z + t * g, t * g])
    roots = parts.norm(dim=1).sqrt()
    safe = torch.where(roots > 0, roots, 1)
    return parts / safe[:, None], roots


# %% Does not balance the neurons
# passes: nothing
# says: not balanced
def as_relu(X, z, g):
    rows = X[X.norm(dim=1) > 0]
    t = (-(rows @ z) / (rows @ g)).max().clamp_min(0)
    return torch.stack([z + t * g, t * g]), z.new_tensor([1, -1])


# %% Takes the t of the proof, which is large enough, instead of the smallest
# passes: nothing
# says: is not the smallest
def as_relu(X, z, g):
    rows = X[X.norm(dim=1) > 0]
    width = (rows @ g / rows.norm(dim=1)).min()
    t = z.norm() / width
    parts = torch.stack([z + t * g, t * g])
    roots = parts.norm(dim=1).sqrt()
    safe = torch.where(roots > 0, roots, 1)
    return parts / safe[:, None], roots * roots.new_tensor([1, -1])


# %% Divides by the length of a neuron that is zero
# passes: public, hidden 2
def as_relu(X, z, g):
    rows = X[X.norm(dim=1) > 0]
    t = (-(rows @ z) / (rows @ g)).max().clamp_min(0)
    parts = torch.stack([z + t * g, t * g])
    roots = parts.norm(dim=1).sqrt()
    return parts / roots[:, None], roots * roots.new_tensor([1, -1])


# %% Divides zero by zero at a row of zeros
# passes: public, hidden 1
def as_relu(X, z, g):
    t = (-(X @ z) / (X @ g)).max().clamp_min(0)
    parts = torch.stack([z + t * g, t * g])
    roots = parts.norm(dim=1).sqrt()
    safe = torch.where(roots > 0, roots, 1)
    return parts / safe[:, None], roots * roots.new_tensor([1, -1])
