# %% Follows the claim and takes a penalty that grows slowly
# passes: nothing
# says: of the diversity is left
def my_rho(Y):
    return unrolled.RHOS["log2"]


# %% Makes the penalty a hundred times smaller, which changes nothing
# passes: nothing
# says: of the diversity is left
def my_rho(Y):
    return unrolled.Rho("small", lambda z: -0.01 * torch.exp(-z), lambda z: 0.01 * torch.exp(-z))


# %% Is so steep that nobody looks at anybody else
# passes: hidden 2
# says: of the weight goes to other tokens
def my_rho(Y):
    return unrolled.Rho(
        "steep", lambda z: -0.0005 * torch.exp(-z / 0.0005), lambda z: torch.exp(-z / 0.0005)
    )


# %% Takes one temperature for all texts
# passes: nothing
# says: crowded texts
def my_rho(Y):
    return unrolled.Rho(
        "fixed", lambda z: -0.1 * torch.exp(-z / 0.1), lambda z: torch.exp(-z / 0.1)
    )


# %% Takes the mean distance itself as temperature
# passes: nothing
# says: of the diversity is left
def my_rho(Y):
    tau = float(unrolled.half_squared_distances(Y).mean())
    return unrolled.Rho("mean", lambda z: -tau * torch.exp(-z / tau), lambda z: torch.exp(-z / tau))


# %% Pushes tokens apart with a penalty that falls
# passes: nothing
# says: needs to be non-decreasing
def my_rho(Y):
    return unrolled.Rho("apart", lambda z: torch.exp(-z), lambda z: -torch.exp(-z))
