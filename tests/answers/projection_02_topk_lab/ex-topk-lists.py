# %% Both lists unconstrained
# passes: hidden 2
# says: the constrained recall
def recalls(scores, labels, k):
    best = scores.flatten().topk(min(k, scores.numel())).indices
    found = float(labels.flatten()[best].sum() / labels.sum())
    return found, found


# %% Divides by the length of the list: precision
# passes: nothing
# says: the constrained recall
def recalls(scores, labels, k):
    top = scores == scores.amax(1, keepdim=True)
    found = []
    for allowed in (top, torch.ones_like(top)):
        value = torch.where(allowed, scores, -math.inf).flatten()
        best = value.topk(min(k, value.numel())).indices
        hits = labels.flatten()[best] & (value[best] > -math.inf)
        found.append(float(hits.sum()) / k)
    return tuple(found)


# %% A long constrained list is filled with the other predicates
# passes: hidden 2
# says: the constrained recall
def recalls(scores, labels, k):
    top = scores == scores.amax(1, keepdim=True)
    found = []
    for allowed in (top, torch.ones_like(top)):
        value = torch.where(allowed, scores, -math.inf).flatten()
        best = value.topk(min(k, value.numel())).indices
        found.append(float(labels.flatten()[best].sum() / labels.sum()))
    return tuple(found)


# %% Marks missing triples by a number that is not small enough
# passes: public, hidden 1
def recalls(scores, labels, k):
    top = scores == scores.amax(1, keepdim=True)
    found = []
    for allowed in (top, torch.ones_like(top)):
        value = torch.where(allowed, scores, -1e4).flatten()
        best = value.topk(min(k, value.numel())).indices
        hits = labels.flatten()[best] & (value[best] > -1e4)
        found.append(float(hits.sum() / labels.sum()))
    return tuple(found)
