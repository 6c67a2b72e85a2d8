# %% Moves the patches and leaves the pixels inside them
# passes: nothing
# says: the pixels inside each patch are not mirrored
def mirror(h, w, a):
    tokens = torch.arange(h // a * (w // a)).view(h // a, w // a)
    return torch.eye(tokens.numel())[tokens.flip(1).flatten()], torch.eye(a * a)


# %% Mirrors the pixels and leaves the patches in their places
# passes: nothing
# says: the patches stay in their places
def mirror(h, w, a):
    pixels = torch.arange(a * a).view(a, a)
    s = (h // a) * (w // a)
    return torch.eye(s), torch.eye(a * a)[:, pixels.flip(1).flatten()]


# %% Turns the image upside down
# passes: nothing
# says: is not the mirror image, left to right
def mirror(h, w, a):
    tokens = torch.arange(h // a * (w // a)).view(h // a, w // a)
    pixels = torch.arange(a * a).view(a, a)
    W1 = torch.eye(tokens.numel())[tokens.flip(0).flatten()]
    return W1, torch.eye(a * a)[:, pixels.flip(0).flatten()]


# %% Writes patches of two by two pixels into the code
# passes: public
def mirror(h, w, a):
    tokens = torch.arange(h // 2 * (w // 2)).view(h // 2, w // 2)
    W1 = torch.eye(tokens.numel())[tokens.flip(1).flatten()]
    return W1, torch.eye(4)[:, [1, 0, 3, 2]]
