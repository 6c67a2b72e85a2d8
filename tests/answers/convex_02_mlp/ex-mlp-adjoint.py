# %% Adds up the gates before the masks are applied
# passes: nothing
# says: forward is not the sum
def forward(X, masks, Z):
    return masks.sum(0)[:, None] * (X @ Z.sum(0))


def adjoint(X, masks, R):
    return torch.einsum("jn,na,nc->jac", masks, X, R)


# %% Forgets the masks in the adjoint
# passes: nothing
# says: adjoint does not belong to A
def forward(X, masks, Z):
    return torch.einsum("jn,na,jac->nc", masks, X, Z)


def adjoint(X, masks, R):
    return (X.T @ R).expand(masks.shape[0], -1, -1)


# %% Returns the blocks of the adjoint transposed
# passes: nothing
# says: Are the last two axes swapped?
def forward(X, masks, Z):
    return torch.einsum("jn,na,jac->nc", masks, X, Z)


def adjoint(X, masks, R):
    return torch.einsum("jn,na,nc->jca", masks, X, R)


# %% Drops every axis of length one
# passes: public
def forward(X, masks, Z):
    return torch.einsum("jn,na,jac->nc", masks, X, Z).squeeze()


def adjoint(X, masks, R):
    return torch.einsum("jn,na,nc->jac", masks, X, R).squeeze()


# %% Computes in double precision and leaves the result there
# passes: public
def forward(X, masks, Z):
    X, masks, Z = X.double(), masks.double(), Z.double()
    return torch.einsum("jn,na,jac->nc", masks, X, Z)


def adjoint(X, masks, R):
    X, masks, R = X.double(), masks.double(), R.double()
    return torch.einsum("jn,na,nc->jac", masks, X, R)
