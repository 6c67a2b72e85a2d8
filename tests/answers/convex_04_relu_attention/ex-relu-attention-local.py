# %% Exchanges query and key in the mask
# passes: nothing
# says: the keys that each query lets through
def local(X, mask):
    return torch.einsum("tq,tk,tl->qkl", mask.to(X.dtype), X, X)


def predict(X, mask, Z):
    d = X.shape[1]
    blocks = Z.view(d, d, d, Z.shape[1] // d)
    return torch.einsum("qkl,qa,kalb->qb", local(X, mask), X, blocks)


# %% Uses the Gram matrix of all tokens
# passes: nothing
# says: the keys that each query lets through
def local(X, mask):
    return (X.T @ X).expand(len(X), -1, -1).clone()


def predict(X, mask, Z):
    d = X.shape[1]
    blocks = Z.view(d, d, d, Z.shape[1] // d)
    return torch.einsum("qkl,qa,kalb->qb", local(X, mask), X, blocks)


# %% Reads the rows of Z in another order
# passes: nothing
# says: predict is not the head
def local(X, mask):
    return torch.einsum("qt,tk,tl->qkl", mask.to(X.dtype), X, X)


def predict(X, mask, Z):
    d = X.shape[1]
    blocks = Z.view(d, d, d, Z.shape[1] // d)
    return torch.einsum("qkl,qa,aklb->qb", local(X, mask), X, blocks)


# %% Computes in double precision and leaves the result there
# passes: public
def local(X, mask):
    X = X.double()
    return torch.einsum("qt,tk,tl->qkl", mask.double(), X, X)


def predict(X, mask, Z):
    d = X.shape[1]
    blocks = Z.double().view(d, d, d, Z.shape[1] // d)
    return torch.einsum("qkl,qa,kalb->qb", local(X, mask), X.double(), blocks)
