# %% The plain likelihood of the written labels
# passes: nothing
# says: the mean over writers
def fair_loss(logits, written, propensity, k):
    return projection.lml_loss(logits, written, k, reduction="sum")


# %% Multiplies by the propensity instead of dividing
# passes: nothing
# says: the mean over writers
def fair_loss(logits, written, propensity, k):
    z = projection.lml_logits(logits, k)
    terms = -torch.nn.functional.logsigmoid(z) * propensity
    return torch.where(written, terms, 0.0).sum()


# %% Takes the logarithm of y, which is gone where y rounds to 0
# passes: public, hidden 2
def fair_loss(logits, written, propensity, k):
    y = projection.lml(logits, k)
    terms = torch.where(written, -torch.log(y), 0.0)
    return (terms / propensity).sum()


# %% Normalises the weights, which brings the writers back
# passes: nothing
# says: the mean over writers
def fair_loss(logits, written, propensity, k):
    z = projection.lml_logits(logits, k)
    weight = written / propensity
    weight = weight * written.sum() / weight.sum().clamp_min(1e-12)
    return -(weight * torch.nn.functional.logsigmoid(z)).sum()
