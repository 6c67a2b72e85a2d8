# %% Takes the number of values for the degree
# passes: nothing
# says: the degree comes out wrong
def polynomial_degree(values):
    return len(values) - 1


# %% Stops at the first row that is constant, and calls zeros constant
# passes: public, hidden 1
def polynomial_degree(values):
    row, order = list(values), 0
    while len(row) > 1:
        if len(set(row)) == 1:
            return order
        row = [b - a for a, b in zip(row[:-1], row[1:], strict=True)]
        order += 1
    return None


# %% Compares floats with a tolerance
# passes: public, hidden 2
def polynomial_degree(values):
    row, order = [float(value) for value in values], 0
    while row:
        if all(abs(value) < 1e-6 for value in row):
            return order - 1
        row = [b - a for a, b in zip(row[:-1], row[1:], strict=True)]
        order += 1
    return None


# %% Wants two rows that vanish
# passes: hidden 1
# says: returns None for
def polynomial_degree(values):
    row, order = list(values), 0
    while len(row) > 1:
        if not any(row):
            return order - 1
        row = [b - a for a, b in zip(row[:-1], row[1:], strict=True)]
        order += 1
    return None


# %% Returns the last order when the rows run out
# passes: hidden 1
# says: without a row that vanishes
def polynomial_degree(values):
    row, order = list(values), 0
    while row and any(row):
        row = [b - a for a, b in zip(row[:-1], row[1:], strict=True)]
        order += 1
    return order - 1
