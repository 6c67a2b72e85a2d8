# %% The loop: right, and too deep
# passes: public, hidden 2
def waiting(s):
    X = spline.variables(s, 1)
    wait, rows = 0, []
    for c in range(s):
        wait = spline.maximum(wait + X[c, 0], 0)
        rows.append([wait])
    return np.array(rows, dtype=object)


# %% The empty sum is forgotten: nobody may find the desk free
# passes: nothing
# says: waits a negative time
def waiting(s):
    X = spline.variables(s, 1)
    rows = []
    for c in range(s):
        sums = [X[c, 0]]
        for x in X[:c, 0][::-1]:
            sums.append(sums[-1] + x)
        rows.append([spline.maximum(*sums)])
    return np.array(rows, dtype=object)


# %% Sums of the first customers instead of the last ones
# passes: nothing
# says: is wrong in row
def waiting(s):
    X = spline.variables(s, 1)
    rows = []
    for c in range(s):
        sums = [0]
        for x in X[: c + 1, 0]:
            sums.append(sums[-1] + x)
        rows.append([spline.maximum(*sums)])
    return np.array(rows, dtype=object)


# %% Looks at customers who have not come yet
# passes: nothing
# says: not autoregressive
def waiting(s):
    X = spline.variables(s, 1)
    rows = []
    for c in range(s):
        sums = [0]
        for x in X[c:, 0]:
            sums.append(sums[-1] + x)
        rows.append([spline.maximum(*sums)])
    return np.array(rows, dtype=object)
