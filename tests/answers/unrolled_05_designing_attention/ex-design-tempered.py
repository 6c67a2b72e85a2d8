# %% Multiplies by the temperature instead of dividing
# passes: nothing
# says: not softmax at temperature tau
def tempered(tau):
    return unrolled.Rho(
        "hot",
        lambda z: -torch.exp(-z * tau) / tau,
        lambda z: torch.exp(-z * tau),
        positive_definite=True,
    )


# %% Forgets the factor tau in the value
# passes: nothing
# says: value does not grow as slope says
def tempered(tau):
    return unrolled.Rho(
        "hot",
        lambda z: -torch.exp(-z / tau),
        lambda z: torch.exp(-z / tau),
        positive_definite=True,
    )


# %% Divides the penalty, so that the slope at zero is not one
# passes: public, hidden 2
def tempered(tau):
    return unrolled.Rho(
        "hot",
        lambda z: -torch.exp(-z / tau),
        lambda z: torch.exp(-z / tau) / tau,
        positive_definite=True,
    )


# %% Does not say that the kernel is positive definite
# passes: public, hidden 2
def tempered(tau):
    return unrolled.Rho("hot", lambda z: -tau * torch.exp(-z / tau), lambda z: torch.exp(-z / tau))


# %% Uses an inverse instead of an exponential
# passes: nothing
# says: not softmax at temperature tau
def tempered(tau):
    return unrolled.Rho(
        "log",
        lambda z: tau * torch.log1p(z / tau),
        lambda z: 1 / (1 + z / tau),
        positive_definite=True,
    )
