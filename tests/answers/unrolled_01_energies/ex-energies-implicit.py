# %% Differentiates only the explicit dependence, as if y* did not move
# passes: nothing
# says: hypergradient is not the gradient of the loss
def hypergradient(A, b, w, t):
    H = A.T @ A + torch.diag(w.exp())
    y = torch.linalg.solve(H, A.T @ b)
    return w.exp() * y * (y - t)


# %% Loses the minus sign of the implicit function theorem
# passes: nothing
# says: Only the sign is wrong
def hypergradient(A, b, w, t):
    H = A.T @ A + torch.diag(w.exp())
    y = torch.linalg.solve(H, A.T @ b)
    return w.exp() * y * torch.linalg.solve(H, y - t)


# %% Forgets that the penalty is the exponential of w
# passes: nothing
# says: hypergradient is not the gradient of the loss
def hypergradient(A, b, w, t):
    H = A.T @ A + torch.diag(w.exp())
    y = torch.linalg.solve(H, A.T @ b)
    return -y * torch.linalg.solve(H, y - t)


# %% Solves for the whole matrix of derivatives
# passes: public, hidden 2
def hypergradient(A, b, w, t):
    H = A.T @ A + torch.diag(w.exp())
    y = torch.linalg.solve(H, A.T @ b)
    J = torch.linalg.solve(H, torch.diag(-w.exp() * y))
    return J.T @ (y - t)


# %% Leaves the work to automatic differentiation
# passes: public, hidden 2
def hypergradient(A, b, w, t):
    v = w.clone().requires_grad_()
    H = A.T @ A + torch.diag(v.exp())
    loss = 0.5 * (torch.linalg.solve(H, A.T @ b) - t).square().sum()
    return torch.autograd.grad(loss, v)[0]
