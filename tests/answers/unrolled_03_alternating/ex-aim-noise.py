# %% Takes the second gradient at y instead of u
# passes: hidden 2
# says: the new point is not u
def cycle(grad_f, grad_g, y, a1, a2):
    at_f, at_g = grad_f(y), grad_g(y)
    return y - a1 * at_f - a2 * at_g, (1 - a1 / a2) * at_f


# %% Forgets that the step sizes differ
# passes: nothing
# says: does not lead to the new point
def cycle(grad_f, grad_g, y, a1, a2):
    at_f, at_g = grad_f(y), grad_g(y)
    u = y - a1 * at_f
    at_u = grad_g(u)
    return u - a2 * at_u, at_g - at_u


# %% Has the sign of the error wrong
# passes: nothing
# says: does not lead to the new point
def cycle(grad_f, grad_g, y, a1, a2):
    at_f, at_g = grad_f(y), grad_g(y)
    u = y - a1 * at_f
    at_u = grad_g(u)
    return u - a2 * at_u, (a1 / a2 - 1) * at_f + at_u - at_g


# %% Computes the error from the end point, which loses its digits
# passes: public, hidden 1
def cycle(grad_f, grad_g, y, a1, a2):
    at_f, at_g = grad_f(y), grad_g(y)
    u = y - a1 * at_f
    new = u - a2 * grad_g(u)
    return new, at_f + at_g - (y - new) / a2


# %% Flattens the point
# passes: public, hidden 2
def cycle(grad_f, grad_g, y, a1, a2):
    at_f, at_g = grad_f(y), grad_g(y)
    u = y - a1 * at_f
    at_u = grad_g(u)
    new = u - a2 * at_u
    return new.flatten(), ((1 - a1 / a2) * at_f + (at_g - at_u)).flatten()
