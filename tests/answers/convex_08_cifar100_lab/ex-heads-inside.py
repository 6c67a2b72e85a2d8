# %% Forgets the number of tokens
# passes: nothing
# says: the outputs
def inside(W, s):
    d, c = W.shape
    Z = torch.zeros(d * d, d * c, dtype=W.dtype)
    Z[-1] = W.flatten()
    return Z


# %% The block of the lemma, whose norm is larger
# passes: nothing
# says: nuclear norm of Z
def inside(W, s):
    d, c = W.shape
    Z = torch.zeros(d, d, d, c, dtype=W.dtype)
    Z[-1, :, -1] = W / s
    return Z.reshape(d * d, d * c)


# %% The first feature taken for the constant
# passes: nothing
# says: the outputs
def inside(W, s):
    d, c = W.shape
    Z = torch.zeros(d * d, d * c, dtype=W.dtype)
    Z[0] = W.flatten() / s
    return Z


# %% Right outputs, always in double precision
# passes: public
def inside(W, s):
    d, c = W.shape
    Z = torch.zeros(d * d, d * c, dtype=torch.float64)
    Z[-1] = W.flatten() / s
    return Z
