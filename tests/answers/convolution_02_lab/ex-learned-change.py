# %% Forgets the half
# passes: hidden 1
# says: wrong for two images with attention on two pixels
def content_change(maps):
    from_mean = maps - maps.mean(0, keepdim=True)
    return from_mean.abs().sum((-1, -2)).mean((0, 2, 3))


# %% Compares with uniform attention instead of the mean over images
# passes: nothing
# says: same attention on all images
def content_change(maps):
    even = 1 / (maps.shape[-1] * maps.shape[-2])
    return (maps - even).abs().sum((-1, -2)).mean((0, 2, 3)) / 2


# %% Averages over heads too before it compares
# passes: nothing
# says: same attention on all images
def content_change(maps):
    from_mean = maps - maps.mean((0, 1), keepdim=True)
    return from_mean.abs().sum((-1, -2)).mean((0, 2, 3)) / 2


# %% Averages over keys where it should sum
# passes: hidden 1
# says: wrong for two images with attention on two pixels
def content_change(maps):
    from_mean = maps - maps.mean(0, keepdim=True)
    return from_mean.abs().mean((0, 2, 3, 4, 5)) / 2


# %% Computes in double precision and leaves the result there
# passes: public
def content_change(maps):
    from_mean = maps.double() - maps.double().mean(0, keepdim=True)
    return from_mean.abs().sum((-1, -2)).mean((0, 2, 3)) / 2
