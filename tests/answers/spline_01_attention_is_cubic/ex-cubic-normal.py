# %% Gives the absolute value of the product
# passes: nothing
# says: differs from x|y|
def normal_form_of(x, y):
    return [[x * y], [-x * y]]


# %% Takes x itself for a bound of |x|
# passes: nothing
# says: differs from x|y|
def normal_form_of(x, y):
    u = x
    return [[x * y, x * y + 2 * u * y], [-x * y - 2 * u * y, -x * y]]


# %% Forgets that a product with a negative factor turns the maximum into a minimum
# passes: nothing
# says: differs from x|y|
def normal_form_of(x, y):
    u = x * x + 1
    return [[(x + u) * y - u * y], [-(x + u) * y + u * y]]


# %% Takes a bound that holds for small numbers only
# passes: hidden 2
# says: differs from x|y|
def normal_form_of(x, y):
    u = 3 + 0 * x
    return [[x * y, x * y + 2 * u * y], [-x * y - 2 * u * y, -x * y]]


# %% Takes a bound that is large enough for the public points
# passes: public, hidden 2
def normal_form_of(x, y):
    u = 100 + 0 * x
    return [[x * y, x * y + 2 * u * y], [-x * y - 2 * u * y, -x * y]]


# %% Hides the absolute value in an entry
# passes: hidden 1
# says: it has a maximum
def normal_form_of(x, y):
    return [[x * abs(y)]]
