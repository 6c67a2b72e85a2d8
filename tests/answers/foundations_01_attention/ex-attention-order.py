# %% Forgets the causal mask
# passes: nothing
# says: after two causal layers
def last(X, layers):
    for _ in range(layers):
        X = attention(X, X, X)
    return X[-1]


tokens = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)


# %% Applies one layer, however many are asked for
# passes: nothing
# says: after two causal layers
def last(X, layers):
    return attention(X, X, X, causal=True)[-1]


tokens = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)


# %% Takes the values from the first layer's input in every layer
# passes: nothing
# says: after two causal layers
def last(X, layers):
    Y = X
    for _ in range(layers):
        Y = attention(Y, Y, X, causal=True)
    return Y[-1]


tokens = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)


# %% Starts counting at one, so that a layer is missing
# passes: nothing
# says: after one causal layer
def last(X, layers):
    for _ in range(1, layers):
        X = attention(X, X, X, causal=True)
    return X[-1]


tokens = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)


# %% Chooses three tokens of which the first two agree
# passes: hidden 1
# says: the swap changes nothing
def last(X, layers):
    for _ in range(layers):
        X = attention(X, X, X, causal=True)
    return X[-1]


tokens = torch.tensor([[1.0], [1.0], [0.0]], dtype=torch.float64)


# %% Takes tokens so small that softmax hardly sees them
# passes: hidden 1
# says: it needs more than 0.1
def last(X, layers):
    for _ in range(layers):
        X = attention(X, X, X, causal=True)
    return X[-1]


tokens = torch.tensor([[0.1], [0.0], [0.0]], dtype=torch.float64)


# %% Applies at least one layer, also when none is asked for
# passes: public
def last(X, layers):
    X = attention(X, X, X, causal=True)
    for _ in range(layers - 1):
        X = attention(X, X, X, causal=True)
    return X[-1]


tokens = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)
