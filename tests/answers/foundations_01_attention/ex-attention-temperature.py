# %% Gives one of the keys that share the largest score everything
# passes: nothing
# says: shared by several keys
def sharpest(Q, K, V):
    return V[(Q @ K.T).argmax(1)]


# %% Adds up the values of keys that share the largest score, without taking their mean
# passes: nothing
# says: shared by several keys
def sharpest(Q, K, V):
    scores = Q @ K.T
    best = scores == scores.amax(1, keepdim=True)
    return best.to(V.dtype) @ V


# %% Takes the maximum over the queries instead of the keys
# passes: nothing
# says: does not get its value
def sharpest(Q, K, V):
    scores = Q @ K.T
    best = (scores == scores.amax(0, keepdim=True)).to(V.dtype)
    return best / best.sum(1, keepdim=True).clamp(min=1) @ V


# %% Takes the score that is largest in absolute value
# passes: nothing
# says: does not get its value
def sharpest(Q, K, V):
    scores = (Q @ K.T).abs()
    best = (scores == scores.amax(1, keepdim=True)).to(V.dtype)
    return best / best.sum(1, keepdim=True) @ V


# %% Gives the limit at the other end, where t tends to 0
# passes: nothing
# says: the limit as t tends to 0
def sharpest(Q, K, V):
    return V.mean(0).expand(len(Q), -1)


# %% Puts a large number for infinity, too small for scores that nearly agree
# passes: public
def sharpest(Q, K, V):
    return attention(Q, K, V, scale=1000.0)


# %% Compares scores with a tolerance, so that nearly equal ones count as equal
# passes: public
def sharpest(Q, K, V):
    scores = Q @ K.T
    best = torch.isclose(scores, scores.amax(1, keepdim=True)).to(V.dtype)
    return best / best.sum(1, keepdim=True) @ V


# %% Counts ties in double precision and leaves the result there
# passes: public
def sharpest(Q, K, V):
    scores = Q @ K.T
    best = (scores == scores.amax(1, keepdim=True)).double()
    return best / best.sum(1, keepdim=True) @ V.double()
