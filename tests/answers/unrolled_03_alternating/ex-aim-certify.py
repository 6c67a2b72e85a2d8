# %% Forgets the wall
# passes: hidden 2
# says: a step is certified
def certified(grad_f, grad_g, y, a1, a2):
    if bool((y < 0).any()):
        return True
    at_f, at_g = grad_f(y), grad_g(y)
    noise = (1 - a1 / a2) * at_f + at_g - grad_g(y - a1 * at_f)
    return bool(noise.norm() <= (at_f + at_g).norm())


# %% Takes the lower bound (1 − κ)‖s‖² for the gain
# passes: hidden 2
# says: is not certified
def certified(grad_f, grad_g, y, a1, a2):
    if bool((y < 0).any()):
        return True
    at_f, at_g = grad_f(y), grad_g(y)
    noise = (1 - a1 / a2) * at_f + at_g - grad_g(y - a1 * at_f)
    s = a2 * (at_f + at_g)
    gain = torch.minimum(y * y, s * s).sum()
    return bool(a2 * a2 * (noise * noise).sum() <= gain)


# %% Looks whether the energy of the parabolas fell, which certifies nothing
# passes: hidden 2
# says: does not certify
def certified(grad_f, grad_g, y, a1, a2):
    at_f = grad_f(y)
    u = y - a1 * at_f
    new = (u - a2 * grad_g(u)).relu()
    slope = grad_f(y) + grad_g(y) + grad_f(new) + grad_g(new)
    return bool((slope * (new - y)).sum() <= 0)


# %% Says nothing about points outside of the orthant
# passes: public, hidden 1
def certified(grad_f, grad_g, y, a1, a2):
    if bool((y < 0).any()):
        return False
    at_f, at_g = grad_f(y), grad_g(y)
    noise = (1 - a1 / a2) * at_f + at_g - grad_g(y - a1 * at_f)
    s = a2 * (at_f + at_g)
    gain = torch.where(s <= y, s * s, y * (2 * s - y)).sum()
    return bool(a2 * a2 * (noise * noise).sum() <= gain)


# %% Forgets that the step sizes differ
# passes: public, hidden 2
def certified(grad_f, grad_g, y, a1, a2):
    if bool((y < 0).any()):
        return True
    at_f, at_g = grad_f(y), grad_g(y)
    noise = at_g - grad_g(y - a1 * at_f)
    s = a2 * (at_f + at_g)
    gain = torch.where(s <= y, s * s, y * (2 * s - y)).sum()
    return bool(a2 * a2 * (noise * noise).sum() <= gain)
