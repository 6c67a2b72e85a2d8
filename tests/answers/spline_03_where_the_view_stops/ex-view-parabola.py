# %% Forgets that two negative factors have a positive product
# passes: nothing
# says: below the x axis
def above_parabola(x, y):
    return [[0 * x], [y * (y - x * x)]]


# %% Leaves out the zero
# passes: nothing
# says: wrong at a point below
def above_parabola(x, y):
    height = y - x * x
    return [[y * height, (1 + y * y) * height]]


# %% Takes y - x² itself for the second polynomial
# passes: nothing
# says: above the parabola
def above_parabola(x, y):
    height = y - x * x
    return [[0 * x], [y * height, height]]


# %% Takes a constant that is too small far away
# passes: public, hidden 2
def above_parabola(x, y):
    height = y - x * x
    return [[0 * x], [y * height, 1000 * height]]


# %% Hides a maximum in an entry
# passes: hidden 1
# says: it has a maximum
def above_parabola(x, y):
    height = y - x * x
    positive = (height + abs(height)) / 2
    return [[y * positive]]
