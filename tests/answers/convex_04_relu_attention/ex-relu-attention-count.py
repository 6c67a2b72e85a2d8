# %% Counts samples instead of pairs of tokens
# passes: nothing
# says: the bound
def at_most(n, s, d):
    import math

    return 2 * sum(math.comb(n - 1, k) for k in range(d * d)) - (n == 1)


# %% Counts tokens instead of pairs of tokens
# passes: nothing
# says: the bound
def at_most(n, s, d):
    import math

    rank = min(d**2, n * min(s, d) ** 2)
    return 2 * sum(math.comb(n * s - 1, k) for k in range(rank))


# %% Sums up to the rank and not below it
# passes: nothing
# says: the bound
def at_most(n, s, d):
    import math

    rank = min(d**2, n * min(s, d) ** 2)
    return 2 * sum(math.comb(n * s**2 - 1, k) for k in range(rank + 1))


# %% Counts dimensions of symmetric matrices
# passes: nothing
# says: the bound
def at_most(n, s, d):
    import math

    return 2 * sum(math.comb(n * s**2 - 1, k) for k in range(d * (d + 1) // 2))


# %% Computes with floating-point numbers
# passes: public
def at_most(n, s, d):
    import math

    rank = min(d**2, n * min(s, d) ** 2)
    return 2.0 * sum(float(math.comb(n * s**2 - 1, k)) for k in range(rank))
