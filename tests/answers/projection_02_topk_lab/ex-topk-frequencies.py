# %% No smoothing: kinds that never met get zero
# passes: hidden 2
# says: is not the smoothed frequency
def frequencies(subject, object_, written, kinds, smoothing):
    place = subject * kinds + object_
    triples = torch.zeros(kinds**2, written.shape[1]).double()
    triples.index_add_(0, place, written.double())
    met = torch.bincount(place, minlength=kinds**2).double()[:, None]
    return (triples / met.clamp_min(1)).view(kinds, kinds, -1)


# %% Subject and object change places
# passes: nothing
# says: is not the smoothed frequency
def frequencies(subject, object_, written, kinds, smoothing):
    place = object_ * kinds + subject
    triples = torch.zeros(kinds**2, written.shape[1]).double()
    triples.index_add_(0, place, written.double())
    met = torch.bincount(place, minlength=kinds**2).double()[:, None]
    q = written.double().mean(0)
    return ((triples + smoothing * q) / (met + smoothing)).view(kinds, kinds, -1)


# %% Writes instead of adding, so that repeated pairs count once
# passes: hidden 1
# says: is not the smoothed frequency
def frequencies(subject, object_, written, kinds, smoothing):
    place = subject * kinds + object_
    triples = torch.zeros(kinds**2, written.shape[1]).double()
    triples[place] += written.double()
    met = torch.bincount(place, minlength=kinds**2).double()[:, None]
    q = written.double().mean(0)
    return ((triples + smoothing * q) / (met + smoothing)).view(kinds, kinds, -1)


# %% Pulls towards equal predicates instead of the average
# passes: hidden 2
# says: is not the smoothed frequency
def frequencies(subject, object_, written, kinds, smoothing):
    place = subject * kinds + object_
    triples = torch.zeros(kinds**2, written.shape[1]).double()
    triples.index_add_(0, place, written.double())
    met = torch.bincount(place, minlength=kinds**2).double()[:, None]
    q = 1 / written.shape[1]
    return ((triples + smoothing * q) / (met + smoothing)).view(kinds, kinds, -1)
