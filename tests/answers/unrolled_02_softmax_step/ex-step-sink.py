# %% Forgets the factors β of the keys
# passes: nothing
# says: the attention to the
def sink_attention(Y, lam):
    scores = Y @ Y.T
    sink = torch.full_like(Y[:, :1], lam / 2).log()
    p = torch.softmax(torch.cat([scores, sink], 1), 1)
    return p[:, :-1] @ Y, p


# %% Forgets that the score of the sink depends on the query
# passes: nothing
# says: the attention to the sink is not
def sink_attention(Y, lam):
    scores = Y @ Y.T - 0.5 * Y.square().sum(1)
    sink = torch.full_like(Y[:, :1], lam / 2).log()
    p = torch.softmax(torch.cat([scores, sink], 1), 1)
    return p[:, :-1] @ Y, p


# %% Takes λ for λ/2
# passes: nothing
# says: the attention to the sink is not
def sink_attention(Y, lam):
    sink = torch.full_like(Y[:, :1], lam).log()
    scores = torch.cat([-0.5 * torch.cdist(Y, Y).square(), sink], 1)
    p = torch.softmax(scores, 1)
    return p[:, :-1] @ Y, p


# %% Exponentiates before it divides
# passes: public, hidden 2
def sink_attention(Y, lam):
    powers = torch.exp(Y @ Y.T - 0.5 * Y.square().sum(1))
    sink = lam / 2 * torch.exp(0.5 * Y.square().sum(1, keepdim=True))
    p = torch.cat([powers, sink], 1)
    p = p / p.sum(1, keepdim=True)
    return p[:, :-1] @ Y, p


# %% Takes the logarithm with an offset that keeps it finite
# passes: public, hidden 1
def sink_attention(Y, lam):
    sink = torch.full_like(Y[:, :1], math.log(lam / 2 + 1e-12))
    z = torch.cdist(Y, Y, compute_mode="donot_use_mm_for_euclid_dist")
    p = torch.softmax(torch.cat([-0.5 * z.square(), sink], 1), 1)
    return p[:, :-1] @ Y, p


# %% Builds all differences, a tensor of s times s times d numbers
# passes: hidden 1, hidden 2
# says: there is a tensor of 576 numbers
def sink_attention(Y, lam):
    scores = -0.5 * (Y[:, None] - Y).square().sum(-1)
    sink = torch.full_like(Y[:, :1], lam / 2).log()
    attention = torch.softmax(torch.cat([scores, sink], dim=1), dim=1)
    return attention[:, :-1] @ Y, attention
