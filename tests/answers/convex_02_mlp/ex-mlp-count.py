# %% Takes for granted that each hyperplane cuts every cell
# passes: nothing
# says: in general position
def count_cells(X):
    return 2 ** int((X.norm(dim=1) > 0).sum())


# %% Projects the other rows onto the row instead of its hyperplane
# passes: nothing
# says: in general position
def count_cells(X):
    rows = X.double()
    rows = rows[rows.norm(dim=1) > 0]
    if len(rows) == 0:
        return 1
    rows = rows / rows.norm(dim=1, keepdim=True)
    others, h = rows[:-1], rows[-1]
    away = others - torch.outer(others @ h, h)
    if (away.norm(dim=1) < 1e-9).any():
        return count_cells(others)
    return count_cells(others) + count_cells(torch.outer(others @ h, h))


# %% Never asks whether the hyperplane is there already
# passes: nothing
# says: in general position
def count_cells(X):
    rows = X.double()
    rows = rows[rows.norm(dim=1) > 1e-9]
    if len(rows) == 0:
        return 1
    rows = rows / rows.norm(dim=1, keepdim=True)
    others, h = rows[:-1], rows[-1]
    projected = others - torch.outer(others @ h, h)
    return count_cells(others) + count_cells(projected)


# %% Puts the number of different hyperplanes into Cover's formula
# passes: public, hidden 2
def count_cells(X):
    lines = []
    for row in X.double():
        if row.norm() == 0:
            continue
        row = row / row.norm()
        if all(min((row - h).norm(), (row + h).norm()) > 1e-9 for h in lines):
            lines.append(row)
    if not lines:
        return 1
    rank = int(torch.linalg.matrix_rank(torch.stack(lines)))
    return convex.arrangement_bound(len(lines), rank)


# %% Compares a projected row with an absolute threshold, whatever its length was
# passes: public, hidden 1
def count_cells(X):
    rows = X.double()
    rows = rows[rows.norm(dim=1) > 0]
    if len(rows) == 0:
        return 1
    others, h = rows[:-1], rows[-1] / rows[-1].norm()
    projected = others - torch.outer(others @ h, h)
    if (projected.norm(dim=1) < 1e-5).any():
        return count_cells(others)
    return count_cells(others) + count_cells(projected)
