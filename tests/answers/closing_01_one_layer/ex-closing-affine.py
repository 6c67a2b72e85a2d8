# %% The tangent at the mean
# passes: hidden 2
# says: still goes with x
def best_affine(T, mean, covariance):
    T0, T1, T2, T3 = T
    L = T1 + 2 * T2 @ mean + 3 * T3 @ mean @ mean
    value = T0 + T1 @ mean + T2 @ mean @ mean + T3 @ mean @ mean @ mean
    return value - L @ mean, L


# %% The proposition with the variances alone
# passes: hidden 1, hidden 2
# says: still goes with x
def best_affine(T, mean, covariance):
    T0, T1, T2, T3 = T
    cubic, covariance = T3 @ mean, torch.diag(covariance.diagonal())
    L = T1 + 2 * T2 @ mean + 3 * cubic @ mean
    L = L + 3 * torch.einsum("oijk,jk->oi", T3, covariance)
    value = T0 + T1 @ mean + T2 @ mean @ mean + cubic @ mean @ mean
    value = value + torch.einsum("oij,ij->o", T2 + 3 * cubic, covariance)
    return value - L @ mean, L


# %% Counts one pairing of the indices in place of three
# passes: hidden 2
# says: still goes with x
def best_affine(T, mean, covariance):
    T0, T1, T2, T3 = T
    cubic = T3 @ mean
    L = T1 + 2 * T2 @ mean + 3 * cubic @ mean
    L = L + torch.einsum("oijk,jk->oi", T3, covariance)
    value = T0 + T1 @ mean + T2 @ mean @ mean + cubic @ mean @ mean
    value = value + torch.einsum("oij,ij->o", T2 + 3 * cubic, covariance)
    return value - L @ mean, L


# %% Second moments in the place of the covariance, and the mean forgotten otherwise
# passes: nothing
# says: still goes with x
def best_affine(T, mean, covariance):
    T0, T1, T2, T3 = T
    moment = covariance + torch.outer(mean, mean)
    L = T1 + 3 * torch.einsum("oijk,jk->oi", T3, moment)
    return T0 + torch.einsum("oij,ij->o", T2, moment), L


# %% The mean of the layer as the bias, though L adds its own
# passes: nothing
# says: has not the mean zero
def best_affine(T, mean, covariance):
    T0, T1, T2, T3 = T
    cubic = T3 @ mean
    L = T1 + 2 * T2 @ mean + 3 * cubic @ mean
    L = L + 3 * torch.einsum("oijk,jk->oi", T3, covariance)
    value = T0 + T1 @ mean + T2 @ mean @ mean + cubic @ mean @ mean
    return value + torch.einsum("oij,ij->o", T2 + 3 * cubic, covariance), L


# %% Draws contents and fits by least squares
# passes: nothing
# says: still goes with x
def best_affine(T, mean, covariance):
    T0, T1, T2, T3 = T
    half = torch.linalg.cholesky(covariance)
    x = mean + torch.randn(500, len(mean), dtype=mean.dtype) @ half.T
    value = T0 + x @ T1.T + torch.einsum("oij,ni,nj->no", T2, x, x)
    value = value + torch.einsum("oijk,ni,nj,nk->no", T3, x, x, x)
    rows = torch.cat([torch.ones(500, 1, dtype=x.dtype), x], dim=1)
    fit = torch.linalg.lstsq(rows, value).solution
    return fit[0], fit[1:].T


# %% Computes in double precision and leaves the result there
# passes: public, hidden 2
def best_affine(T, mean, covariance):
    T0, T1, T2, T3 = (part.double() for part in T)
    mean, covariance = mean.double(), covariance.double()
    cubic = T3 @ mean
    L = T1 + 2 * T2 @ mean + 3 * cubic @ mean
    L = L + 3 * torch.einsum("oijk,jk->oi", T3, covariance)
    value = T0 + T1 @ mean + T2 @ mean @ mean + cubic @ mean @ mean
    value = value + torch.einsum("oij,ij->o", T2 + 3 * cubic, covariance)
    return value - L @ mean, L
