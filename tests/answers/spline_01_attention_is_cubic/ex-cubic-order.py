# %% Keeps the formula of the usual order
# passes: nothing
# says: the polynomial along a line
def swapped_degree(s, t):
    return 3 ** (s + t) + 3**t - 3**s


# %% Adds the memory once instead of twice
# passes: nothing
# says: the polynomial along a line
def swapped_degree(s, t):
    degree = 1
    for _ in range(t):
        degree = 3 * (degree + 3**s)
    return degree


# %% Multiplies by the memory's degree
# passes: nothing
# says: the polynomial along a line
def swapped_degree(s, t):
    degree = 1
    for _ in range(t):
        degree = 3 * degree * 2 * 3**s
    return degree


# %% Right for one block, wrong for more: forgets that the result is tripled again
# passes: nothing
# says: the polynomial along a line
def swapped_degree(s, t):
    return 3**t + 6 * t * 3**s


# %% Computes with floats
# passes: public
def swapped_degree(s, t):
    return int(3.0**t + 3.0 ** (s + 1) * (3.0**t - 1))
