# %% Adds the tokens' cells instead of multiplying them
# passes: nothing
# says: count_patterns finds
def count_patterns(X):
    n, s, d = X.shape
    return len(convex.arrangements(X.mT.reshape(n * d, s))) * s


# %% Takes tokens as the rows instead of features' columns
# passes: nothing
# says: count_patterns finds
def count_patterns(X):
    n, s, d = X.shape
    return len(convex.arrangements(X.reshape(n * s, d))) ** s


# %% Applies Cover's count to all rows together
# passes: nothing
# says: count_patterns finds
def count_patterns(X):
    n, s, d = X.shape
    rank = s * min(s, n * d)
    return convex.arrangement_bound(n * s * d, rank)


# %% Takes general position for granted
# passes: public
def count_patterns(X):
    n, s, d = X.shape
    return convex.arrangement_bound(n * d, min(s, n * d)) ** s
