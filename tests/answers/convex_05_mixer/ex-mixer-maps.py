# %% Exchanges input and output tokens
# passes: nothing
# says: forward is not the sum of W1 X W2
def forward(X, Z):
    n, s, d = X.shape
    return torch.einsum("itk,tpkb->ipb", X, Z.reshape(s, s, d, -1))


def adjoint(X, R):
    s = X.shape[1]
    return torch.einsum("itk,ipb->tpkb", X, R).reshape(s * s, -1)


# %% Reads the columns of Z as output first, feature second
# passes: nothing
# says: forward is not the sum of W1 X W2
def forward(X, Z):
    n, s, d = X.shape
    return torch.einsum("itk,ptbk->ipb", X, Z.reshape(s, s, -1, d))


def adjoint(X, R):
    s = X.shape[1]
    return torch.einsum("itk,ipb->ptbk", X, R).reshape(s * s, -1)


# %% Reads X column by column in both maps
# passes: nothing
# says: forward is not the sum of W1 X W2
def forward(X, Z):
    n, s, d = X.shape
    X = X.mT.reshape(n, s, d)
    return torch.einsum("itk,ptkb->ipb", X, Z.reshape(s, s, d, -1))


def adjoint(X, R):
    n, s, d = X.shape
    X = X.mT.reshape(n, s, d)
    return torch.einsum("itk,ipb->ptkb", X, R).reshape(s * s, -1)


# %% Averages over the samples in the adjoint
# passes: nothing
# says: adjoint does not belong to A
def forward(X, Z):
    n, s, d = X.shape
    return torch.einsum("itk,ptkb->ipb", X, Z.reshape(s, s, d, -1))


def adjoint(X, R):
    n, s, d = X.shape
    return torch.einsum("itk,ipb->ptkb", X, R).reshape(s * s, -1) / n


# %% Computes in float64 whatever comes
# passes: public
def forward(X, Z):
    n, s, d = X.shape
    return torch.einsum("itk,ptkb->ipb", X.double(), Z.double().reshape(s, s, d, -1))


def adjoint(X, R):
    s = X.shape[1]
    return torch.einsum("itk,ipb->ptkb", X.double(), R.double()).reshape(s * s, -1)
