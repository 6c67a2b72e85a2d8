# %% Rolls the image the wrong way
# passes: nothing
# says: mirrored filter
def convolve(x, weight):
    c, d, K, L = weight.shape
    out = x.new_zeros(*x.shape[:2], c)
    for a in range(K):
        for b in range(L):
            delta = a - (K - 1) // 2, b - (L - 1) // 2
            out = out + x.roll(delta, (0, 1)) @ weight[:, :, a, b].T
    return out


# %% Leaves the corner of the kernel at the query
# passes: nothing
# says: not the convolution
def convolve(x, weight):
    c, d, K, L = weight.shape
    out = x.new_zeros(*x.shape[:2], c)
    for a in range(K):
        for b in range(L):
            out = out + x.roll((-a, -b), (0, 1)) @ weight[:, :, a, b].T
    return out


# %% Puts the centre of an even kernel on the other side
# passes: public, hidden 2
def convolve(x, weight):
    c, d, K, L = weight.shape
    out = x.new_zeros(*x.shape[:2], c)
    for a in range(K):
        for b in range(L):
            out = out + x.roll((K // 2 - a, L // 2 - b), (0, 1)) @ weight[:, :, a, b].T
    return out


# %% Pads by the reach of the kernel, which must not be larger than the image
# passes: public, hidden 1
def convolve(x, weight):
    K, L = weight.shape[2:]
    before = (K - 1) // 2, (L - 1) // 2
    after = K - 1 - before[0], L - 1 - before[1]
    padded = nn.functional.pad(
        x.movedim(-1, 0)[None], (before[1], after[1], before[0], after[0]), mode="circular"
    )
    return nn.functional.conv2d(padded, weight)[0].movedim(0, -1)
