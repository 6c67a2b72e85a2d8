# %% One head for the positive part alone
# passes: nothing
# says: where a·b is negative
def heads(a, b, c):
    return [(1.0, a, b, c)]


# %% The second head is added, not subtracted
# passes: nothing
# says: where a·b is negative
def heads(a, b, c):
    return [(1.0, a, b, c)] if torch.equal(a, b) else [(1.0, a, b, c), (1.0, -a, b, c)]


# %% The sign goes into query and key, and cancels
# passes: nothing
# says: where a·b is positive
def heads(a, b, c):
    return [(1.0, a, b, c)] if torch.equal(a, b) else [(1.0, a, b, c), (-1.0, -a, -b, c)]


# %% Two heads for a square as well
# passes: public
def heads(a, b, c):
    return [(1.0, a, b, c), (-1.0, -a, b, c)]
