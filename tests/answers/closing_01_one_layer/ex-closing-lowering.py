# %% Averages along the diagonals, and does not go round the circle
# passes: hidden 1
# says: turned by one column it is another matrix
def lowering(L, c):
    s = len(L) // c
    blocks = L.reshape(s, c, s, c).permute(0, 2, 1, 3)
    K = torch.zeros_like(blocks)
    for o in range(1 - s, s):
        at = [i for i in range(s) if 0 <= i + o < s]
        mean = torch.stack([blocks[i, i + o] for i in at]).mean(0)
        for i in at:
            K[i, i + o] = mean
    K = K.permute(0, 2, 1, 3).reshape(L.shape)
    values, vectors = torch.linalg.eigh((K + K.T) / 2)
    return (vectors * values.clamp(min=-1)) @ vectors.T


# %% Takes the mean over turns by one entry instead of one column
# passes: nothing
# says: not the nearest to L
def lowering(L, c):
    n = len(L)
    C = sum(L.roll((k, k), (0, 1)) for k in range(n)) / n
    values, vectors = torch.linalg.eigh((C + C.T) / 2)
    return (vectors * values.clamp(min=-1)) @ vectors.T


# %% Forgets that a gradient is symmetric
# passes: nothing
# says: is no gradient
def lowering(L, c):
    return sum(L.roll((k * c, k * c), (0, 1)) for k in range(len(L) // c)) / (len(L) // c)


# %% Leaves eigenvalues below -1
# passes: nothing
# says: raises its energy
def lowering(L, c):
    C = sum(L.roll((k * c, k * c), (0, 1)) for k in range(len(L) // c)) / (len(L) // c)
    return (C + C.T) / 2


# %% Takes an energy that falls for one that is bounded below, and cuts at 1 too
# passes: nothing
# says: not the nearest to L
def lowering(L, c):
    C = sum(L.roll((k * c, k * c), (0, 1)) for k in range(len(L) // c)) / (len(L) // c)
    values, vectors = torch.linalg.eigh((C + C.T) / 2)
    return (vectors * values.clamp(-1, 1)) @ vectors.T


# %% Asks for a semidefinite matrix
# passes: nothing
# says: not the nearest to L
def lowering(L, c):
    C = sum(L.roll((k * c, k * c), (0, 1)) for k in range(len(L) // c)) / (len(L) // c)
    values, vectors = torch.linalg.eigh((C + C.T) / 2)
    return (vectors * values.clamp(min=0)) @ vectors.T


# %% Cuts the eigenvalues first and averages afterwards
# passes: hidden 1
# says: not the nearest to L
def lowering(L, c):
    values, vectors = torch.linalg.eigh((L + L.T) / 2)
    K = (vectors * values.clamp(min=-1)) @ vectors.T
    return sum(K.roll((k * c, k * c), (0, 1)) for k in range(len(L) // c)) / (len(L) // c)


# %% Shrinks the whole matrix until no eigenvalue is below -1
# passes: hidden 1
# says: not the nearest to L
def lowering(L, c):
    C = sum(L.roll((k * c, k * c), (0, 1)) for k in range(len(L) // c)) / (len(L) // c)
    C = (C + C.T) / 2
    return C / max(1.0, -float(torch.linalg.eigvalsh(C)[0]))


# %% Computes in double precision and leaves the result there
# passes: public, hidden 2
def lowering(L, c):
    C = sum(L.roll((k * c, k * c), (0, 1)) for k in range(len(L) // c)) / (len(L) // c)
    values, vectors = torch.linalg.eigh(((C + C.T) / 2).double())
    return (vectors * values.clamp(min=-1)) @ vectors.T
