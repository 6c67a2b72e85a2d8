# %% Takes ReLU attention
# passes: nothing
# says: tends to when the sharpness grows
def hard_attention(Q, K, V):
    return torch.relu(Q @ K.T) @ V


# %% Takes the first of the best keys
# passes: hidden 2
# says: two keys that are equal
def hard_attention(Q, K, V):
    return V[(Q @ K.T).argmax(dim=1)]


# %% Adds the values of the best keys
# passes: hidden 2
# says: two keys that are equal
def hard_attention(Q, K, V):
    scores = Q @ K.T
    best = (scores == scores.amax(dim=1, keepdim=True)).to(V.dtype)
    return best @ V


# %% Takes softmax with a sharpness that looks large
# passes: hidden 1
# says: tends to when the sharpness grows
def hard_attention(Q, K, V):
    return torch.softmax(50 * (Q @ K.T), dim=1) @ V


# %% Counts scores as equal that differ by less than a millionth
# passes: public, hidden 1
def hard_attention(Q, K, V):
    scores = Q @ K.T
    best = (scores > scores.amax(dim=1, keepdim=True) - 1e-6).to(V.dtype)
    return best @ V / best.sum(dim=1, keepdim=True)
