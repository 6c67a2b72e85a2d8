# %% Exchanges what meets the Gram matrix and what is left
# passes: nothing
# says: is not the output of the head
def token_map(Z, X):
    d = X.shape[1]
    return torch.einsum("kl,aklb->ab", X.T @ X, Z.reshape(d, d, d, -1))


# %% Takes the mean of token products instead of their sum
# passes: nothing
# says: is not the output of the head
def token_map(Z, X):
    d = X.shape[1]
    return torch.einsum("kl,kalb->ab", X.T @ X / len(X), Z.reshape(d, d, d, -1))


# %% Computes in double precision and drops an axis of length one
# passes: public
def token_map(Z, X):
    d = X.shape[1]
    X, Z = X.double(), Z.double()
    return torch.einsum("kl,kalb->ab", X.T @ X, Z.reshape(d, d, d, -1)).squeeze()
