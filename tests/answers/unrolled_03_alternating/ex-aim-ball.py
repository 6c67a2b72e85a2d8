# %% Centres the ball at the minimiser of the sum
# passes: hidden 2
# says: is not constant
def exceptional_ball(F, p, G, q, alpha):

    def top(H):
        return float(torch.linalg.eigvalsh(H)[-1])

    both = torch.linalg.eigvalsh(F + G)
    k = float(both[0]) / (alpha * top(F) * top(G))
    if alpha * float(both[-1]) > 1 or k <= 1:
        return None
    goal = torch.linalg.solve(F + G, F @ p + G @ q)
    return goal, k / (k * k - 1) * float((p - goal).norm())


# %% Adds the extreme eigenvalues of the parts instead of taking those of the sum
# passes: hidden 2
# says: not c_h/(α L_f L_g)
def exceptional_ball(F, p, G, q, alpha):
    f, g = torch.linalg.eigvalsh(F), torch.linalg.eigvalsh(G)
    k = float(f[0] + g[0]) / (alpha * float(f[-1]) * float(g[-1]))
    top = float(torch.linalg.eigvalsh(F + G)[-1])
    if alpha * top > 1:
        return None
    if k <= 1:
        k = 2.0 if len(p) > 2 else k
        if k <= 1:
            return None
    goal = torch.linalg.solve(F + G, F @ p + G @ q)
    gap = (k - 1) * (k + 1)
    return goal + (goal - p) / gap, k / gap * float((p - goal).norm())


# %% Never asks whether the step is short enough
# passes: hidden 1
# says: proves nothing: return None
def exceptional_ball(F, p, G, q, alpha):

    def top(H):
        return float(torch.linalg.eigvalsh(H)[-1])

    k = float(torch.linalg.eigvalsh(F + G)[0]) / (alpha * top(F) * top(G))
    goal = torch.linalg.solve(F + G, F @ p + G @ q)
    gap = (k - 1) * (k + 1)
    centre = goal + (goal - p) / gap
    return centre, k / abs(gap) * float((p - goal).norm())


# %% Asks for a short step, and not for k above one
# passes: public, hidden 1
def exceptional_ball(F, p, G, q, alpha):

    def top(H):
        return float(torch.linalg.eigvalsh(H)[-1])

    both = torch.linalg.eigvalsh(F + G)
    k = float(both[0]) / (alpha * top(F) * top(G))
    if alpha * float(both[-1]) > 1:
        return None
    goal = torch.linalg.solve(F + G, F @ p + G @ q)
    gap = (k - 1) * (k + 1)
    centre = goal + (goal - p) / gap
    return centre, k / abs(gap) * float((p - goal).norm())
