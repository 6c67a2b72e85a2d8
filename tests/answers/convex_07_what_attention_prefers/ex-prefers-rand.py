# %% Counts labels that are equal
# passes: nothing
# says: the same grouping with other names
def adjusted_rand(a, b):
    return float((a == b).double().mean())


# %% Does not adjust for chance
# passes: hidden 1, hidden 2
# says: wrong for two unrelated groupings
def adjusted_rand(a, b):
    same_a, same_b = a[:, None] == a, b[:, None] == b
    above = torch.ones(len(a), len(a)).triu(1).bool()
    return float((same_a == same_b)[above].double().mean())


# %% Divides by the larger sum instead of the mean
# passes: hidden 2
# says: wrong for two unrelated groupings
def adjusted_rand(a, b):
    def pairs(sizes):
        return float((sizes * (sizes - 1)).sum()) / 2

    both = torch.unique(torch.stack([a, b]), dim=1, return_counts=True)[1]
    A = pairs(torch.unique(a, return_counts=True)[1])
    B = pairs(torch.unique(b, return_counts=True)[1])
    E = A * B / (len(a) * (len(a) - 1) / 2)
    return (pairs(both) - E) / (max(A, B) - E)


# %% Makes a table with one row for each number up to the largest label
# passes: public, hidden 1
def adjusted_rand(a, b):
    table = torch.zeros(int(a.max()) + 1, int(b.max()) + 1)
    for i, j in zip(a.tolist(), b.tolist(), strict=True):
        table[i, j] += 1

    def pairs(sizes):
        return float((sizes * (sizes - 1)).sum()) / 2

    A, B = pairs(table.sum(1)), pairs(table.sum(0))
    E = A * B / (len(a) * (len(a) - 1) / 2)
    bottom = (A + B) / 2 - E
    return 1.0 if bottom == 0 else (pairs(table) - E) / bottom
