# %% Thresholds the entries instead of the singular values
# passes: nothing
# says: prox(Z, tau) is not the minimiser
def prox(Z, tau):
    return Z.sign() * (Z.abs() - tau).clamp_min(0)


def step(X, Y, Z, beta):
    t = 1 / torch.linalg.matrix_norm(X, 2) ** 2
    return prox(Z - t * (X.T @ (X @ Z - Y)), t * beta)


# %% Hard threshold: what survives is not shrunk
# passes: nothing
# says: inner product
def prox(Z, tau):
    U, s, Vh = torch.linalg.svd(Z, full_matrices=False)
    return (U * torch.where(s > tau, s, 0)) @ Vh


def step(X, Y, Z, beta):
    t = 1 / torch.linalg.matrix_norm(X, 2) ** 2
    return prox(Z - t * (X.T @ (X @ Z - Y)), t * beta)


# %% Subtracts tau from every singular value, also from those below it
# passes: nothing
# says: inner product
def prox(Z, tau):
    U, s, Vh = torch.linalg.svd(Z, full_matrices=False)
    return (U * (s - tau)) @ Vh


def step(X, Y, Z, beta):
    t = 1 / torch.linalg.matrix_norm(X, 2) ** 2
    return prox(Z - t * (X.T @ (X @ Z - Y)), t * beta)


# %% Threshold β instead of tβ
# passes: hidden 1
# says: moves a point that is already optimal
def prox(Z, tau):
    U, s, Vh = torch.linalg.svd(Z, full_matrices=False)
    return (U * (s - tau).clamp_min(0)) @ Vh


def step(X, Y, Z, beta):
    t = 1 / torch.linalg.matrix_norm(X, 2) ** 2
    return prox(Z - t * (X.T @ (X @ Z - Y)), beta)


# %% Walks up the gradient instead of down
# passes: hidden 1
# says: moves a point that is already optimal
def prox(Z, tau):
    U, s, Vh = torch.linalg.svd(Z, full_matrices=False)
    return (U * (s - tau).clamp_min(0)) @ Vh


def step(X, Y, Z, beta):
    t = 1 / torch.linalg.matrix_norm(X, 2) ** 2
    return prox(Z + t * (X.T @ (X @ Z - Y)), t * beta)


# %% Step size 1/‖X‖₂ without the square
# passes: hidden 1
# says: gradient step of size
def prox(Z, tau):
    U, s, Vh = torch.linalg.svd(Z, full_matrices=False)
    return (U * (s - tau).clamp_min(0)) @ Vh


def step(X, Y, Z, beta):
    t = 1 / torch.linalg.matrix_norm(X, 2)
    return prox(Z - t * (X.T @ (X @ Z - Y)), t * beta)


# %% Shrinks first and takes the gradient step then
# passes: hidden 1
# says: moves a point that is already optimal
def prox(Z, tau):
    U, s, Vh = torch.linalg.svd(Z, full_matrices=False)
    return (U * (s - tau).clamp_min(0)) @ Vh


def step(X, Y, Z, beta):
    t = 1 / torch.linalg.matrix_norm(X, 2) ** 2
    return prox(Z, t * beta) - t * (X.T @ (X @ Z - Y))


# %% Works on Z in place
# passes: hidden 1
# says: in place
def prox(Z, tau):
    U, s, Vh = torch.linalg.svd(Z, full_matrices=False)
    return (U * (s - tau).clamp_min(0)) @ Vh


def step(X, Y, Z, beta):
    t = 1 / torch.linalg.matrix_norm(X, 2) ** 2
    Z -= t * (X.T @ (X @ Z - Y))
    return prox(Z, t * beta)


# %% Full singular vectors: right for square matrices only
# passes: nothing
# says: raised
def prox(Z, tau):
    U, s, Vh = torch.linalg.svd(Z)
    return U @ torch.diag((s - tau).clamp_min(0)) @ Vh


def step(X, Y, Z, beta):
    t = 1 / torch.linalg.matrix_norm(X, 2) ** 2
    return prox(Z - t * (X.T @ (X @ Z - Y)), t * beta)


# %% Drops axes of length one
# passes: public
def prox(Z, tau):
    U, s, Vh = torch.linalg.svd(Z, full_matrices=False)
    return ((U * (s - tau).clamp_min(0)) @ Vh).squeeze()


def step(X, Y, Z, beta):
    t = 1 / torch.linalg.matrix_norm(X, 2) ** 2
    return prox(Z - t * (X.T @ (X @ Z - Y)), t * beta)


# %% Computes in float64 and returns it, whatever came in
# passes: public
def prox(Z, tau):
    U, s, Vh = torch.linalg.svd(Z.double(), full_matrices=False)
    return (U * (s - tau).clamp_min(0)) @ Vh


def step(X, Y, Z, beta):
    t = 1 / torch.linalg.matrix_norm(X, 2) ** 2
    return prox(Z - t * (X.T @ (X @ Z - Y)), t * beta)
