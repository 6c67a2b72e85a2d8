# %% Off by one: the value of the m-th neuron instead of the next
# passes: nothing
# says: too large
def smallest_beta(X, Y, m):
    sizes = torch.linalg.svdvals(X.T @ Y)
    return float(sizes[max(min(m, len(sizes)) - 1, 0)])


# %% Singular values of the labels, not of their part within reach
# passes: nothing
# says: too large
def smallest_beta(X, Y, m):
    sizes = torch.linalg.svdvals(Y)
    return float(sizes[m]) if m < min(X.shape[1], len(sizes)) else 0.0


# %% Eigenvalues of the Gram matrix: squares of the singular values
# passes: nothing
# says: your beta
def smallest_beta(X, Y, m):
    M = X.T @ Y
    sizes = torch.linalg.eigvalsh(M.T @ M).flip(0)
    return float(sizes[m]) if m < min(M.shape) else 0.0


# %% Sorted upwards: starts with the smallest
# passes: nothing
# says: too small
def smallest_beta(X, Y, m):
    sizes = torch.linalg.svdvals(X.T @ Y).flip(0)
    return float(sizes[m]) if m < len(sizes) else 0.0


# %% Lengths of columns instead of singular values
# passes: nothing
# says: your beta
def smallest_beta(X, Y, m):
    sizes = (X.T @ Y).norm(dim=0).sort(descending=True).values
    return float(sizes[m]) if m < min(X.shape[1], len(sizes)) else 0.0


# %% Largest useful regularisation for every m
# passes: hidden 1
# says: for m = 1 your beta
def smallest_beta(X, Y, m):
    M = X.T @ Y
    return float(torch.linalg.matrix_norm(M, 2)) if m < min(M.shape) else 0.0


# %% Runs out of singular values when there are neurons enough
# passes: public, hidden 2
def smallest_beta(X, Y, m):
    return float(torch.linalg.svdvals(X.T @ Y)[m])


# %% Takes the last singular value when there are neurons enough
# passes: public, hidden 2
def smallest_beta(X, Y, m):
    sizes = torch.linalg.svdvals(X.T @ Y)
    return float(sizes[min(m, len(sizes) - 1)])
