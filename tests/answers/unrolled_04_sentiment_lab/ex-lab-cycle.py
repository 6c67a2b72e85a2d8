# %% Gives the minimiser of the energy
# passes: nothing
# says: layers end elsewhere
def rest(mu, h, x, alpha):
    return mu * x / (mu + h)


# %% Takes the limit of short steps for all steps
# passes: nothing
# says: layers end elsewhere
def rest(mu, h, x, alpha):
    k = mu / (2 + mu)
    return k * x / (h + k)


# %% Returns the point between the two halves
# passes: nothing
# says: layers end elsewhere
def rest(mu, h, x, alpha):
    k = mu / (2 + mu)
    return k * x / (h + k - alpha * h * k)


# %% Iterates, and stops too early for short steps
# passes: public
def rest(mu, h, x, alpha):
    k, y = mu / (2 + mu), x
    for _ in range(3000):
        y = (1 - alpha * h) * ((1 - alpha * k) * y + alpha * k * x)
    return y
