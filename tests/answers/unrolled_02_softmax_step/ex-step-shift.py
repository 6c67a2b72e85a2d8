# %% Forgets what the step does without a shift
# passes: nothing
# says: not by at least 1.5
def nearest_shift(Y, lam, rise):
    m = (unrolled.attention_step(Y) - Y).sum(0)
    return rise / (lam * m.square().sum()) * m


# %% Divides by the length of the mean's move instead of its square
# passes: nothing
# says: from the tokens Y + c the energy
def nearest_shift(Y, lam, rise):
    Z = unrolled.attention_step(Y)
    m = (Z - Y).sum(0)
    change = unrolled.attention_energy(Z, confinement=lam)
    change = change - unrolled.attention_energy(Y, confinement=lam)
    return (rise - change).clamp_min(0) / (lam * m.norm()) * m


# %% Moves along the first feature only
# passes: hidden 1
# says: the shift has length
def nearest_shift(Y, lam, rise):
    Z = unrolled.attention_step(Y)
    m = (Z - Y).sum(0)
    change = unrolled.attention_energy(Z, confinement=lam)
    change = change - unrolled.attention_energy(Y, confinement=lam)
    c = torch.zeros_like(m)
    c[0] = (rise - change).clamp_min(0) / (lam * m[0])
    return c


# %% Moves back where the energy rises enough already
# passes: public, hidden 2
def nearest_shift(Y, lam, rise):
    Z = unrolled.attention_step(Y)
    m = (Z - Y).sum(0)
    change = unrolled.attention_energy(Z, confinement=lam)
    change = change - unrolled.attention_energy(Y, confinement=lam)
    return (rise - change) / (lam * m.square().sum()) * m


# %% Leaves λ out of the condition on the shift
# passes: hidden 1
# says: not by at least 1.5
def nearest_shift(Y, lam, rise):
    Z = unrolled.attention_step(Y)
    m = (Z - Y).sum(0)
    change = unrolled.attention_energy(Z, confinement=lam)
    change = change - unrolled.attention_energy(Y, confinement=lam)
    return (rise - change).clamp_min(0) / m.square().sum() * m
